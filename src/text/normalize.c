#include "text/normalize.h"

#include "base/size.h"
#include "text/unicode.h"
#include "text/unicode_nfc.h"
#include "text/unicode_props.h"

#include <stdlib.h>
#include <string.h>

static const char metaspace[] = "\xe2\x96\x81"; /* U+2581 */

struct input {
    const uint8_t *s;
    size_t n;
    const struct norm_source *from; /* NULL: it is the first text */
    bool at_start;
};

static uint32_t source_start(const struct input *in, size_t i) {
    if (in->from && in->n) return i < in->n ? in->from[i].start : in->from[in->n - 1].end;
    return (uint32_t)i;
}

static uint32_t source_end(const struct input *in, size_t i) {
    return in->from && i ? in->from[i - 1].end : (uint32_t)i;
}

/* Appends bytes that come from in[a .. b). */
static void put(struct norm_text *out, const void *bytes, size_t n, const struct input *in, size_t a,
                size_t b) {
    size_t before = out->text.len, need;
    buf_append(&out->text, bytes, n);
    if (!out->tracked || out->text.failed || n == 0) return;
    if (out->text.len > out->from_cap) {
        struct norm_source *from = NULL;
        size_t cap = size_max(64, out->text.len + out->text.len / 2);
        if (size_mul(cap, sizeof *from, &need)) from = realloc(out->from, need);
        if (!from) {
            out->text.failed = true;
            return;
        }
        out->from = from;
        out->from_cap = cap;
    }
    struct norm_source src = {source_start(in, a), a < b ? source_end(in, b) : source_start(in, a)};
    for (size_t i = before; i < out->text.len; i++) out->from[i] = src;
}

/* Appends in[a .. b) as it is. */
static void copy(struct norm_text *out, const struct input *in, size_t a, size_t b) {
    if (!out->tracked) {
        if (b > a) buf_append(&out->text, in->s + a, b - a);
        return;
    }
    for (size_t i = a; i < b; i++) put(out, in->s + i, 1, in, i, i + 1);
}

/* The character at i: its code point and length; UINT32_MAX for a stray byte. */
static uint32_t char_at(const struct input *in, size_t i, size_t *len) {
    if (in->s[i] < 0x80) {
        *len = 1;
        return in->s[i];
    }
    *len = utf8_sequence((const char *)in->s + i, in->n - i);
    if (*len) return unicode_decode(in->s + i, *len);
    *len = 1;
    return UINT32_MAX;
}

static bool is_white(uint32_t cp) {
    return cp != UINT32_MAX && (UNICODE_SPACE >> (unicode_entry(cp) & 31) & 1);
}

static bool starts_with(const struct input *in, size_t i, struct text_span a) {
    return in->n - i >= a.len && !memcmp(in->s + i, a.data, a.len);
}

/* --- the Unicode forms --- */

static bool joins_before(const struct input *in, size_t i, size_t *len) {
    uint32_t cp = char_at(in, i, len);
    return cp != UINT32_MAX && cp >= 0x80 &&
           ((unicode_entry(cp) & UNICODE_NORMALIZE) || (unicode_props(cp) & PROP_COMPAT));
}

static void unicode_form(enum norm_kind kind, const struct input *in, struct norm_text *out) {
    struct unicode_cluster c = {0};
    bool compat = kind == NORM_NFKC || kind == NORM_NFKD;
    for (size_t i = 0, end, len; i < in->n; i = end) {
        uint32_t cp = char_at(in, i, &len);
        end = i + len;
        if (cp == UINT32_MAX || (cp < 0x80 && (end == in->n || in->s[end] < 0x80))) {
            copy(out, in, i, end);
            continue;
        }
        c.n = 0;
        unicode_cluster_push(&c, cp, compat);
        for (; end < in->n && joins_before(in, end, &len); end += len)
            unicode_cluster_push(&c, unicode_decode(in->s + end, len), compat);
        if (c.failed) break;
        unicode_cluster_order(&c);
        if (kind == NORM_NFC || kind == NORM_NFKC) unicode_cluster_compose(&c);
        for (size_t k = 0; k < c.n; k++) {
            uint8_t utf8[4];
            put(out, utf8, unicode_encode(c.v[k] & 0xffffff, utf8), in, i, end);
        }
    }
    if (c.failed) out->text.failed = true;
    unicode_cluster_free(&c);
}

/* --- character by character --- */

static void lowercase(const struct input *in, struct norm_text *out) {
    for (size_t i = 0, len; i < in->n; i += len) {
        uint32_t cp = char_at(in, i, &len);
        const struct unicode_mapping *m = NULL;
        if (cp != UINT32_MAX && unicode_props(cp) & PROP_LOWER)
            m = unicode_mapping_find(unicode_lower, unicode_n_lower, cp);
        if (!m) copy(out, in, i, i + len);
        for (size_t k = 0; m && k < m->n; k++) {
            uint8_t utf8[4];
            put(out, utf8, unicode_encode(unicode_lower_pool[m->at + k], utf8), in, i, i + len);
        }
    }
}

/* Drops characters with a property of gone, makes spaces of those with one of white. */
static void filter(const struct input *in, unsigned gone, unsigned white, struct norm_text *out) {
    for (size_t i = 0, len; i < in->n; i += len) {
        uint32_t cp = char_at(in, i, &len);
        unsigned props = cp == UINT32_MAX ? 0 : unicode_props(cp);
        if (props & white)
            put(out, " ", 1, in, i, i + len);
        else if (!(props & gone))
            copy(out, in, i, i + len);
    }
}

static void space_cjk(const struct input *in, struct norm_text *out) {
    for (size_t i = 0, len; i < in->n; i += len) {
        uint32_t cp = char_at(in, i, &len);
        bool cjk = cp != UINT32_MAX && unicode_props(cp) & PROP_CJK;
        if (cjk) put(out, " ", 1, in, i, i + len);
        copy(out, in, i, i + len);
        if (cjk) put(out, " ", 1, in, i, i + len);
    }
}

/* --- strings --- */

static void replace(const struct norm_step *st, const struct input *in, struct norm_text *out) {
    size_t done = 0;
    for (size_t i = 0; i < in->n;) {
        const uint8_t *p = memchr(in->s + i, st->a.data[0], in->n - i);
        if (!p) break;
        i = (size_t)(p - in->s);
        if (!starts_with(in, i, st->a)) {
            i++;
            continue;
        }
        copy(out, in, done, i);
        put(out, st->b.data, st->b.len, in, i, i + st->a.len);
        done = i += st->a.len;
    }
    copy(out, in, done, in->n);
}

/* Runs of at least min spaces (or of any white space) become b. */
static void replace_runs(const struct norm_step *st, bool any_white, const struct input *in,
                         struct norm_text *out) {
    for (size_t i = 0, len; i < in->n; i += len) {
        size_t end = i, count = 0;
        for (; end < in->n; end += len, count++) {
            uint32_t cp = char_at(in, end, &len);
            if (any_white ? !is_white(cp) : cp != ' ') break;
        }
        if (count && count >= st->min) {
            put(out, st->b.data, st->b.len, in, i, end);
            len = end - i;
        } else if (count) {
            copy(out, in, i, end);
            len = end - i;
        } else {
            char_at(in, i, &len);
            copy(out, in, i, i + len);
        }
    }
}

static void strip(const struct norm_step *st, const struct input *in, struct norm_text *out) {
    size_t start = 0, end = in->n, len, last = 0;
    while (st->left && start < in->n && is_white(char_at(in, start, &len))) start += len;
    for (size_t i = start; i < in->n; i += len)
        if (!is_white(char_at(in, i, &len))) last = i + len;
    if (st->right) end = size_max(last, start);
    copy(out, in, start, end);
}

static bool has_prefix(const struct norm_step *st, bool at_start) {
    return st->prefix == PREFIX_ALWAYS || (st->prefix == PREFIX_FIRST && at_start);
}

static void metaspace_words(const struct norm_step *st, const struct input *in, struct norm_text *out) {
    for (size_t i = 0, len; i < in->n; i += len) {
        if (is_white(char_at(in, i, &len))) continue;
        size_t end = i;
        for (; end < in->n && !is_white(char_at(in, end, &len)); end += len) {}
        bool first = in->at_start && source_start(in, i) == 0;
        if (has_prefix(st, first) && !starts_with(in, i, st->a)) put(out, st->a.data, st->a.len, in, i, i);
        copy(out, in, i, end);
        len = end - i;
    }
}

static void metaspace_step(const struct norm_step *st, const struct input *in, struct norm_text *out) {
    if (in->n && has_prefix(st, in->at_start) && in->s[0] != ' ' && !starts_with(in, 0, st->a))
        put(out, st->a.data, st->a.len, in, 0, 0);
    struct norm_step spaces = {.a = {" ", 1}, .b = st->a};
    replace(&spaces, in, out);
}

/* --- precompiled rules --- */

#define UNICODE_CONTROLS                                                                                     \
    (UNICODE_BIT(UNICODE_CC) | UNICODE_BIT(UNICODE_CW) | UNICODE_BIT(UNICODE_ZL) | UNICODE_BIT(UNICODE_ZP))

/* Characters that are a cluster by themselves. */
static bool is_control(uint32_t cp) {
    unsigned kind = unicode_entry(cp) & 31u;
    if (kind == UNICODE_CF) return !(unicode_props(cp) & (PROP_EXTEND | PROP_PREPEND));
    return UNICODE_CONTROLS >> kind & 1;
}

/* End of the grapheme cluster at i, as far as it matters: in clusters of less than 6 bytes. */
static size_t cluster_end(const struct input *in, size_t i) {
    size_t len, end;
    uint32_t cp = char_at(in, i, &len);
    end = i + len;
    if (cp == '\r' && end < in->n && in->s[end] == '\n') return end + 1;
    if (cp == UINT32_MAX || is_control(cp)) return end;
    bool joins_next = unicode_props(cp) & PROP_PREPEND;
    while (end < in->n) {
        uint32_t next = char_at(in, end, &len);
        if (next == UINT32_MAX) break;
        unsigned props = unicode_props(next);
        if (!(props & PROP_EXTEND) && (!joins_next || is_control(next))) break;
        joins_next = props & PROP_PREPEND;
        end += len;
    }
    return end;
}

static void precompiled(const struct norm_step *st, const struct input *in, struct norm_text *out) {
    for (size_t i = 0, end, used, n, len; i < in->n; i = end) {
        end = cluster_end(in, i);
        const uint8_t *rule = NULL;
        if (end - i < 6 && (rule = charsmap_find(st->charsmap, in->s + i, end - i, 1, &used, &n))) {
            put(out, rule, n, in, i, end);
            continue;
        }
        for (size_t k = i; k < end; k += len) {
            char_at(in, k, &len);
            rule = charsmap_find(st->charsmap, in->s + k, len, 1, &used, &n);
            if (rule)
                put(out, rule, n, in, k, k + len);
            else
                copy(out, in, k, k + len);
        }
    }
}

/* The next unit of text at i: what it becomes. Returns its length in the text. */
static size_t sentencepiece_unit(const struct norm_step *st, const struct input *in, size_t i,
                                 const uint8_t **text, size_t *n) {
    size_t len;
    *text = in->s + i;
    if (st->keep && trie_longest(st->keep, in->s + i, in->n - i, &len) != TRIE_NONE) return *n = len;
    const uint8_t *rule = charsmap_find(st->charsmap, in->s + i, in->n - i, 0, &len, n);
    if (rule) {
        *text = rule;
        return len;
    }
    char_at(in, i, &len);
    return *n = len;
}

/* Kudo and Richardson 2018; normalizer.cc of the reference: rules, then spaces, which become U+2581. */
static void sentencepiece(const struct norm_step *st, const struct input *in, struct norm_text *out) {
    const uint8_t *unit;
    size_t i = 0, n, len;
    bool prefix = st->prefix == PREFIX_ALWAYS, after_space = st->squeeze;
    for (; st->squeeze && i < in->n; i += len) {
        len = sentencepiece_unit(st, in, i, &unit, &n);
        if (n != 1 || *unit != ' ') break;
    }
    if (i == in->n) return;
    if (prefix && !st->suffix) put(out, metaspace, 3, in, i, i);
    for (; i < in->n; i += len) {
        len = sentencepiece_unit(st, in, i, &unit, &n);
        size_t k = 0;
        while (after_space && k < n && unit[k] == ' ') k++;
        if (k < n) after_space = unit[n - 1] == ' ';
        for (; k < n; k++) {
            bool space = unit[k] == ' ';
            put(out, space ? (const void *)metaspace : unit + k, space ? 3 : 1, in, i, i + len);
        }
        after_space = after_space && st->squeeze;
    }
    while (st->squeeze && out->text.len >= 3 && !memcmp(out->text.data + out->text.len - 3, metaspace, 3))
        out->text.len -= 3;
    if (prefix && st->suffix) put(out, metaspace, 3, in, in->n, in->n);
}

/* --- */

static bool is_ascii(const uint8_t *s, size_t n) {
    uint64_t any = 0, v;
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        memcpy(&v, s + i, 8);
        any |= v;
    }
    for (; i < n; i++) any |= (uint64_t)s[i] << 56;
    return !(any & 0x8080808080808080u);
}

/* Whether the step leaves the text as it is, as far as that is quickly seen. */
static bool has_no_effect(const struct norm_step *st, const struct input *in) {
    switch (st->kind) {
    case NORM_NFC: return !unicode_nfc_needed(in->s, in->n);
    case NORM_NFD:
    case NORM_NFKC:
    case NORM_NFKD:
    case NORM_STRIP_ACCENTS:
    case NORM_BERT_ACCENTS:
    case NORM_BERT_CJK: return is_ascii(in->s, in->n);
    case NORM_PREPEND: return in->n == 0 || st->a.len == 0;
    case NORM_PREFIX_SPACE: return in->n == 0 || in->s[0] == ' ';
    default: return false;
    }
}

static void run_step(const struct norm_step *st, const struct input *in, struct norm_text *out) {
    switch (st->kind) {
    case NORM_NFC:
        if (!out->tracked) {
            unicode_nfc(in->s, in->n, &out->text);
            return;
        }
        __attribute__((fallthrough));
    case NORM_NFD:
    case NORM_NFKC:
    case NORM_NFKD: unicode_form(st->kind, in, out); return;
    case NORM_LOWERCASE: lowercase(in, out); return;
    case NORM_STRIP_ACCENTS: filter(in, PROP_COMBINING, 0, out); return;
    case NORM_BERT_CLEAN: filter(in, PROP_BERT_CONTROL, PROP_BERT_SPACE, out); return;
    case NORM_BERT_CJK: space_cjk(in, out); return;
    case NORM_BERT_ACCENTS: filter(in, PROP_NONSPACING, 0, out); return;
    case NORM_NMT: filter(in, PROP_NMT_GONE, PROP_NMT_SPACE, out); return;
    case NORM_PRECOMPILED: precompiled(st, in, out); return;
    case NORM_PREPEND:
        put(out, st->a.data, st->a.len, in, 0, 0);
        copy(out, in, 0, in->n);
        return;
    case NORM_REPLACE: replace(st, in, out); return;
    case NORM_REPLACE_SPACES: replace_runs(st, false, in, out); return;
    case NORM_REPLACE_WHITE: replace_runs(st, true, in, out); return;
    case NORM_STRIP: strip(st, in, out); return;
    case NORM_PREFIX_SPACE:
        put(out, " ", 1, in, 0, 0);
        copy(out, in, 0, in->n);
        return;
    case NORM_METASPACE: metaspace_step(st, in, out); return;
    case NORM_METASPACE_WORDS: metaspace_words(st, in, out); return;
    case NORM_SENTENCEPIECE: sentencepiece(st, in, out); return;
    }
}

bool norm_run(const struct norm_step *steps, size_t n_steps, const uint8_t *text, size_t n, bool at_start,
              struct norm_scratch *s, const uint8_t **out, size_t *out_len, const struct norm_source **from) {
    struct input in = {text, n, NULL, at_start};
    unsigned next = 0;
    for (size_t i = 0; i < n_steps; i++) {
        if (has_no_effect(&steps[i], &in)) continue;
        struct norm_text *o = &s->v[next];
        next ^= 1;
        buf_clear(&o->text);
        o->tracked = from != NULL;
        run_step(&steps[i], &in, o);
        if (!buf_ok(&o->text)) return false;
        in.s = o->text.data ? (const uint8_t *)o->text.data : text;
        in.n = o->text.len;
        in.from = from ? o->from : NULL;
    }
    *out = in.s;
    *out_len = in.n;
    if (from) *from = in.from;
    return true;
}

void norm_scratch_free(struct norm_scratch *s) {
    for (size_t i = 0; i < 2; i++) {
        buf_free(&s->v[i].text);
        free(s->v[i].from);
    }
    *s = (struct norm_scratch){0};
}
