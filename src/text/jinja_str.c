#include "text/jinja_str.h"
#include "base/size.h"
#include "text/jinja_unicode.h"
#include "text/jinja_value.h"

#include <string.h>

/* How many of 8 bytes continue a character. */
static size_t tail_bytes(const char *data) {
    uint64_t w;
    memcpy(&w, data, 8);
    w = w >> 7 & ~(w >> 6) & 0x0101010101010101u; /* 1 in each byte that is 10xxxxxx */
    return w * 0x0101010101010101u >> 56;
}

size_t jinja_utf8_chars(const char *data, size_t len) {
    size_t tails = 0, i = 0;
    for (; i + 8 <= len; i += 8) tails += tail_bytes(data + i);
    for (; i < len; i++) tails += ((unsigned char)data[i] & 0xc0) == 0x80;
    return len - tails;
}

void jinja_str_init(struct jinja_str *s, const char *data, size_t len, enum jinja_prov prov) {
    *s = (struct jinja_str){
        .data = data, .len = len, .n_chars = jinja_utf8_chars(data, len), .prov = (uint8_t)prov};
}

uint8_t jinja_str_prov_of(const struct jinja_str *s, size_t start, size_t len) {
    if (s->prov != JINJA_MIXED) return s->prov;
    if (len == 0) return JINJA_BY_TEMPLATE;
    uint8_t first = s->map[start];
    return memchr(s->map + start, !first, len) ? JINJA_MIXED : first;
}

const struct jinja_str *jinja_str_wrap(struct jinja *j, const char *data, size_t len, enum jinja_prov prov) {
    struct jinja_str *s = jinja_alloc(j, sizeof *s);
    if (s) jinja_str_init(s, data, len, prov);
    return s;
}

const struct jinja_str *jinja_str_lit(struct jinja *j, const char *literal) {
    return jinja_str_wrap(j, literal, strlen(literal), JINJA_BY_TEMPLATE);
}

const struct jinja_str *jinja_str_copy(struct jinja *j, const char *data, size_t len, enum jinja_prov prov) {
    char *copy = jinja_alloc(j, len);
    if (!copy) return NULL;
    if (len) memcpy(copy, data, len);
    return jinja_str_wrap(j, copy, len, prov);
}

const struct jinja_str *jinja_str_sub(struct jinja *j, const struct jinja_str *s, size_t start, size_t len) {
    if (start == 0 && len == s->len) return s;
    struct jinja_str *sub = jinja_alloc(j, sizeof *sub);
    if (!sub) return NULL;
    uint8_t prov = jinja_str_prov_of(s, start, len);
    *sub = (struct jinja_str){.data = s->data + start,
                              .len = len,
                              .n_chars = jinja_str_ascii(s) ? len : jinja_utf8_chars(s->data + start, len),
                              .map = prov == JINJA_MIXED ? s->map + start : NULL,
                              .prov = prov,
                              .markup = s->markup};
    return sub;
}

const struct jinja_str *jinja_str_markup(struct jinja *j, const struct jinja_str *s, bool markup) {
    if (s->markup == markup) return s;
    struct jinja_str *copy = jinja_alloc(j, sizeof *copy);
    if (!copy) return NULL;
    *copy = *s;
    copy->markup = markup;
    return copy;
}

bool jinja_str_equal(const struct jinja_str *a, const struct jinja_str *b) {
    return a->len == b->len && memcmp(a->data, b->data, a->len) == 0;
}

bool jinja_str_is(const struct jinja_str *s, const char *literal) {
    return s->len == strlen(literal) && memcmp(s->data, literal, s->len) == 0;
}

/* UTF-8 sorts bytewise as its code points do. */
int jinja_str_compare(const struct jinja_str *a, const struct jinja_str *b) {
    int c = memcmp(a->data, b->data, size_min(a->len, b->len));
    if (c) return c;
    return (a->len > b->len) - (a->len < b->len);
}

size_t jinja_str_offset(const struct jinja_str *s, size_t i) {
    if (jinja_str_ascii(s)) return i;
    if (i >= s->n_chars) return s->len;
    size_t offset = 0, left = i; /* characters still to pass */
    for (; left > 8; offset += 8) left -= 8 - tail_bytes(s->data + offset);
    for (;; offset++) { /* to the byte that starts the next character */
        if (((unsigned char)s->data[offset] & 0xc0) == 0x80) continue;
        if (left-- == 0) return offset;
    }
}

size_t jinja_str_index(const struct jinja_str *s, size_t offset) {
    return jinja_str_ascii(s) ? offset : jinja_utf8_chars(s->data, offset);
}

ptrdiff_t jinja_str_find(const struct jinja_str *s, const struct jinja_str *needle, size_t from, size_t to) {
    if (from > to || needle->len > to - from) return -1;
    if (needle->len == 0) return (ptrdiff_t)from;
    const char *hit = memmem(s->data + from, to - from, needle->data, needle->len);
    return hit ? hit - s->data : -1;
}

int jinja_str_rfind(struct jinja *j, const struct jinja_str *s, const struct jinja_str *needle, size_t from,
                    size_t to, ptrdiff_t *at) {
    *at = -1;
    if (from > to || needle->len > to - from) return 0;
    if (needle->len == 0) {
        *at = (ptrdiff_t)to;
        return 0;
    }
    for (size_t end = to - needle->len + 1; end > from;) {
        const char *hit = memrchr(s->data + from, needle->data[0], end - from);
        if (!hit) return 0;
        JINJA_TRY(jinja_steps(j, 1 + needle->len / 64));
        end = (size_t)(hit - s->data);
        if (memcmp(hit, needle->data, needle->len) == 0) {
            *at = (ptrdiff_t)end;
            return 0;
        }
    }
    return 0;
}

void jinja_sb_init(struct jinja *j, struct jinja_sb *b) {
    *b = (struct jinja_sb){.j = j};
}

static bool sb_reserve(struct jinja_sb *b, size_t extra) {
    size_t need;
    if (b->rc) return false;
    if (!size_add(b->len, extra, &need) || need > b->j->max_string_bytes) {
        b->rc = jinja_fail(b->j, QUIRE_ELIMIT,
                           "a string would be longer than the %zu bytes that a render may write",
                           b->j->max_string_bytes);
        return false;
    }
    if (need <= b->cap) return true;
    size_t cap =
        size_max(size_max(need, b->cap * 2), 48); /* no overflow: cap is below a limit that was checked */
    char *data = jinja_alloc(b->j, cap);
    uint8_t *map = data && b->map ? jinja_alloc(b->j, cap) : NULL;
    if (!data || (b->map && !map)) {
        b->rc = QUIRE_ENOMEM;
        return false;
    }
    if (b->len) memcpy(data, b->data, b->len);
    if (map) memcpy(map, b->map, b->len);
    b->data = data;
    b->map = map;
    b->cap = cap;
    b->room = NULL;
    return true;
}

/* Room for n bytes of this provenance, and their map if there has to be one. */
static bool sb_prepare(struct jinja_sb *b, size_t n, uint8_t prov) {
    if (n >= 256 && !b->rc) b->rc = jinja_steps(b->j, n / 256);
    if (!sb_reserve(b, n)) return false;
    if (b->len == 0) b->prov = prov;
    if (b->prov == prov && prov != JINJA_MIXED) return true;
    if (!b->map) {
        b->map = jinja_alloc(b->j, b->cap);
        if (!b->map) {
            b->rc = QUIRE_ENOMEM;
            return false;
        }
        memset(b->map, b->prov, b->len);
        b->prov = JINJA_MIXED;
    }
    if (prov != JINJA_MIXED) memset(b->map + b->len, prov, n);
    return true;
}

void jinja_sb_add(struct jinja_sb *b, const char *data, size_t len, uint8_t prov) {
    if (len == 0) return;
    bool simple = len <= b->cap - b->len && b->prov == prov && b->len && len < 256 && !b->rc;
    if (!simple && !sb_prepare(b, len, prov)) return;
    memcpy(b->data + b->len, data, len);
    b->len += len;
}

void jinja_sb_add_sub(struct jinja_sb *b, const struct jinja_str *s, size_t start, size_t len) {
    uint8_t prov = jinja_str_prov_of(s, start, len);
    if (len == 0 || !sb_prepare(b, len, prov)) return;
    memcpy(b->data + b->len, s->data + start, len);
    if (prov == JINJA_MIXED) memcpy(b->map + b->len, s->map + start, len);
    b->len += len;
}

void jinja_sb_add_str(struct jinja_sb *b, const struct jinja_str *s) {
    jinja_sb_add_sub(b, s, 0, s->len);
}

void jinja_sb_add_lit(struct jinja_sb *b, const char *literal) {
    jinja_sb_add(b, literal, strlen(literal), JINJA_BY_TEMPLATE);
}

void jinja_sb_add_cp(struct jinja_sb *b, uint32_t cp, uint8_t prov) {
    char text[4];
    jinja_sb_add(b, text, jinja_utf8_put(cp, text), prov);
}

void jinja_sb_fill(struct jinja_sb *b, const struct jinja_str *what, size_t times) {
    size_t total, start = b->len;
    if (what->len == 0 || times == 0) return;
    if (!size_mul(what->len, times, &total)) total = SIZE_MAX;
    if (!sb_reserve(b, total)) return; /* refused before anything is built */
    b->rc = jinja_steps(b->j, total / 256);
    jinja_sb_add_str(b, what);
    for (size_t done = what->len; done < total && !b->rc;) { /* doubles what is there */
        size_t n = size_min(done, total - done);
        memcpy(b->data + b->len, b->data + start, n);
        if (b->map) memcpy(b->map + b->len, b->map + start, n);
        b->len += n;
        done += n;
    }
}

void jinja_sb_from(struct jinja *j, struct jinja_sb *b, const struct jinja_str *s, size_t more) {
    struct jinja_room *room = s->room;
    if (room && s->len && room->used == s->len) {
        *b = (struct jinja_sb){.j = j,
                               .data = room->data,
                               .len = s->len,
                               .cap = room->cap,
                               .map = (uint8_t *)s->map,
                               .prov = s->prov,
                               .room = room};
        room->used = JINJA_ROOM_TAKEN;
    } else {
        jinja_sb_init(j, b);
        if (sb_reserve(b, s->len + more)) jinja_sb_add_str(b, s); /* of strings that exist: no overflow */
    }
    b->counted = s->len;
    b->n_chars = s->n_chars;
}

int jinja_sb_finish(struct jinja_sb *b, const struct jinja_str **out) {
    if (b->rc) return b->rc;
    struct jinja_str *s = jinja_alloc(b->j, sizeof *s);
    struct jinja_room *room = b->room ? b->room : jinja_alloc(b->j, sizeof *room);
    if (!s || !room) return QUIRE_ENOMEM;
    const char *data = b->data ? b->data : "";
    size_t n_chars = b->n_chars + jinja_utf8_chars(data + b->counted, b->len - b->counted);
    *room = (struct jinja_room){.data = b->data, .cap = b->cap, .used = b->len};
    *s = (struct jinja_str){.data = data,
                            .len = b->len,
                            .n_chars = n_chars,
                            .map = b->prov == JINJA_MIXED ? b->map : NULL,
                            .prov = b->prov,
                            .room = room};
    *out = s;
    return 0;
}
