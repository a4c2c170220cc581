/* Case mapping and character predicates of strings. */
#include "text/jinja_methods.h"
#include "text/jinja_unicode.h"

#define SIGMA       0x3a3
#define SIGMA_SMALL 0x3c3
#define SIGMA_FINAL 0x3c2

/* The code point that ends before byte `end`, whose first byte gets into *start. */
static uint32_t cp_before(const struct jinja_str *s, size_t end, size_t *start) {
    size_t len;
    *start = end - 1;
    while (*start > 0 && ((unsigned char)s->data[*start] & 0xc0) == 0x80) --*start;
    return jinja_utf8_get(s->data + *start, end - *start, &len);
}

/* A capital sigma becomes the final form at the end of a word: a cased letter before it and none behind,
 * characters that case ignores aside (Unicode, section 3.13, Final_Sigma). */
static uint32_t lower_sigma(const struct jinja_str *s, size_t at, size_t len) {
    unsigned props = 0;
    bool cased = false;
    for (size_t p = at; p > 0;) {
        props = jinja_unicode_props(cp_before(s, p, &p));
        if (props & JINJA_IS_CASE_IGNORABLE) continue;
        cased = props & JINJA_IS_CASED;
        break;
    }
    if (!cased) return SIGMA_SMALL;
    for (size_t p = at + len, n; p < s->len; p += n) {
        props = jinja_unicode_props(jinja_utf8_get(s->data + p, s->len - p, &n));
        if (props & JINJA_IS_CASE_IGNORABLE) continue;
        return props & JINJA_IS_CASED ? SIGMA_SMALL : SIGMA_FINAL;
    }
    return SIGMA_FINAL;
}

static enum jinja_case case_of(enum jinja_change how, unsigned props, bool first, bool after_cased,
                               bool *keep) {
    *keep = false;
    switch (how) {
    case JINJA_TO_UPPER: return JINJA_CASE_UPPER;
    case JINJA_TO_LOWER: return JINJA_CASE_LOWER;
    case JINJA_TO_FOLD: return JINJA_CASE_FOLD;
    case JINJA_TO_CAPITAL: return first ? JINJA_CASE_TITLE : JINJA_CASE_LOWER;
    case JINJA_TO_TITLE: return after_cased ? JINJA_CASE_LOWER : JINJA_CASE_TITLE;
    case JINJA_TO_SWAPPED: break;
    }
    *keep = !(props & (JINJA_IS_UPPER | JINJA_IS_LOWER));
    return props & JINJA_IS_UPPER ? JINJA_CASE_LOWER : JINJA_CASE_UPPER;
}

/* Upper and lower case of ASCII text. */
static int change_ascii(struct jinja *j, const struct jinja_str *s, bool upper,
                        const struct jinja_str **out) {
    struct jinja_str *r = jinja_alloc(j, sizeof *r);
    char *data = jinja_alloc(j, s->len);
    if (!r || !data) return QUIRE_ENOMEM;
    char first = upper ? 'a' : 'A';
    for (size_t i = 0; i < s->len; i++) {
        char c = s->data[i];
        data[i] = (char)(c ^ ((unsigned char)(c - first) < 26 ? 0x20 : 0));
    }
    *r = *s;
    r->data = data;
    *out = r;
    return jinja_steps(j, s->len / 128);
}

int jinja_str_change(struct jinja *j, const struct jinja_str *s, enum jinja_change how,
                     const struct jinja_str **out) {
    if (jinja_str_ascii(s) && (how == JINJA_TO_UPPER || how == JINJA_TO_LOWER || how == JINJA_TO_FOLD))
        return change_ascii(j, s, how == JINJA_TO_UPPER, out);
    struct jinja_sb b;
    jinja_sb_init(j, &b);
    JINJA_TRY(jinja_steps(j, s->len / 4));
    bool after_cased = false, need_props = how == JINJA_TO_TITLE || how == JINJA_TO_SWAPPED;
    for (size_t i = 0, len; i < s->len && !b.rc; i += len) {
        uint32_t cp = jinja_utf8_get(s->data + i, s->len - i, &len), to[3];
        unsigned props = need_props ? jinja_unicode_props(cp) : 0;
        bool keep;
        enum jinja_case kind = case_of(how, props, i == 0, after_cased, &keep);
        size_t n = 1;
        to[0] = cp;
        if (kind == JINJA_CASE_LOWER && cp == SIGMA && !keep) {
            to[0] = lower_sigma(s, i, len);
        } else if (!keep) {
            n = jinja_unicode_map(cp, kind, to);
        }
        for (size_t k = 0; k < n; k++) jinja_sb_add_cp(&b, to[k], jinja_str_prov_at(s, i));
        after_cased = props & JINJA_IS_CASED;
    }
    JINJA_TRY(jinja_sb_finish(&b, out));
    *out = jinja_str_markup(j, *out, s->markup);
    return *out ? 0 : QUIRE_ENOMEM;
}

bool jinja_str_all(const struct jinja_str *s, unsigned props, bool or_underscore) {
    for (size_t i = 0, len; i < s->len; i += len) {
        uint32_t cp = jinja_utf8_get(s->data + i, s->len - i, &len);
        if (!(jinja_unicode_props(cp) & props) && !(or_underscore && cp == '_')) return false;
    }
    return s->len != 0;
}

bool jinja_str_is_cased(const struct jinja_str *s, bool upper) {
    unsigned wanted = upper ? JINJA_IS_UPPER : JINJA_IS_LOWER;
    bool cased = false;
    for (size_t i = 0, len; i < s->len; i += len) {
        unsigned props = jinja_unicode_props(jinja_utf8_get(s->data + i, s->len - i, &len));
        if (props & (JINJA_IS_CASED ^ wanted)) return false;
        cased |= (props & wanted) != 0;
    }
    return cased;
}
