/* Strings of the template interpreter: UTF-8 bytes, counted in code points as Python counts them, and for
 * each byte whether the template wrote it or it stems from the input ("content"), kept through every
 * operation. */
#ifndef TEXT_JINJA_STR_H
#define TEXT_JINJA_STR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct jinja;

enum jinja_prov { JINJA_BY_TEMPLATE = 0, JINJA_BY_CONTENT = 1, JINJA_MIXED = 2 };

/* Memory of a built string, which longer strings that begin with it may share: the bytes behind a string's
 * own are no part of it. */
struct jinja_room {
    char *data;
    size_t cap;
    size_t used; /* by the longest string so far; JINJA_ROOM_TAKEN while a builder goes on behind it */
};
#define JINJA_ROOM_TAKEN SIZE_MAX

struct jinja_str {
    const char *data;        /* not NUL-terminated; well-formed UTF-8; may contain NUL */
    size_t len;              /* bytes */
    size_t n_chars;          /* code points; equal to len when all is ASCII */
    const uint8_t *map;      /* JINJA_MIXED: [len], JINJA_BY_TEMPLATE or JINJA_BY_CONTENT; else NULL */
    uint8_t prov;            /* enum jinja_prov */
    bool markup;             /* made by `safe` or `escape`: + and % escape what is joined to it */
    struct jinja_room *room; /* of a built string; else NULL */
};

size_t jinja_utf8_chars(const char *data, size_t len);

static inline bool jinja_str_ascii(const struct jinja_str *s) {
    return s->n_chars == s->len;
}
static inline uint8_t jinja_str_prov_at(const struct jinja_str *s, size_t i) {
    return s->prov == JINJA_MIXED ? s->map[i] : s->prov;
}
/* Provenance of a stretch: uniform or JINJA_MIXED. */
uint8_t jinja_str_prov_of(const struct jinja_str *s, size_t start, size_t len);

/* Fills in a string whose data is kept, not copied. */
void jinja_str_init(struct jinja_str *s, const char *data, size_t len, enum jinja_prov prov);

/* As above, in the render's arena. NULL: the error is set. */
const struct jinja_str *jinja_str_wrap(struct jinja *j, const char *data, size_t len, enum jinja_prov prov);
const struct jinja_str *jinja_str_lit(struct jinja *j,
                                      const char *literal); /* static text, by the template */
const struct jinja_str *jinja_str_copy(struct jinja *j, const char *data, size_t len, enum jinja_prov prov);
const struct jinja_str *jinja_str_sub(struct jinja *j, const struct jinja_str *s, size_t start,
                                      size_t len); /* bytes */
const struct jinja_str *jinja_str_markup(struct jinja *j, const struct jinja_str *s, bool markup);

bool jinja_str_equal(const struct jinja_str *a, const struct jinja_str *b);
bool jinja_str_is(const struct jinja_str *s, const char *literal);
int jinja_str_compare(const struct jinja_str *a, const struct jinja_str *b); /* by code point: <0, 0, >0 */

/* Byte offset of code point i <= n_chars, and back. */
size_t jinja_str_offset(const struct jinja_str *s, size_t i);
size_t jinja_str_index(const struct jinja_str *s, size_t offset);

/* First occurrence of needle at or after byte `from` and ending by byte `to`, or -1; linear. */
ptrdiff_t jinja_str_find(const struct jinja_str *s, const struct jinja_str *needle, size_t from, size_t to);
/* The last one, into *at. Candidates count as steps: the search is not linear. */
int jinja_str_rfind(struct jinja *j, const struct jinja_str *s, const struct jinja_str *needle, size_t from,
                    size_t to, ptrdiff_t *at);

/* Builder. Fails (sticky, the error is set) beyond the render's string limit; sizes count as steps. */
struct jinja_sb {
    struct jinja *j;
    char *data;
    size_t len, cap;
    uint8_t *map; /* NULL while all bytes so far are of one provenance */
    uint8_t prov; /* of all bytes, or JINJA_MIXED */
    int rc;
    struct jinja_room *room; /* of `data`, if it was another string's */
    size_t counted, n_chars; /* bytes whose characters are known, and how many these are */
};

void jinja_sb_init(struct jinja *j, struct jinja_sb *b);
/* Begins with a string, and room for `more` bytes. What makes a text longer bit by bit (ns.text = ns.text ~
 * x) costs what it adds: the bytes of a string that was built are not copied while there is room behind them.
 */
void jinja_sb_from(struct jinja *j, struct jinja_sb *b, const struct jinja_str *s, size_t more);
void jinja_sb_add(struct jinja_sb *b, const char *data, size_t len, uint8_t prov); /* prov: not JINJA_MIXED */
void jinja_sb_add_str(struct jinja_sb *b, const struct jinja_str *s);
void jinja_sb_add_sub(struct jinja_sb *b, const struct jinja_str *s, size_t start, size_t len);
void jinja_sb_add_lit(struct jinja_sb *b, const char *literal); /* by the template */
void jinja_sb_add_cp(struct jinja_sb *b, uint32_t cp, uint8_t prov);
void jinja_sb_fill(struct jinja_sb *b, const struct jinja_str *what, size_t times);
/* The string, which keeps the builder's memory; the builder must not be used any more. Returns the sticky
 * code. */
int jinja_sb_finish(struct jinja_sb *b, const struct jinja_str **out);

#endif
