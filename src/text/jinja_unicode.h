/* Characters as Python's str methods see them: properties, case mapping with its special cases (one character
 * to several, final sigma), for the template interpreter. Tables are generated from Python, see
 * jinja_unicode_table.c. */
#ifndef TEXT_JINJA_UNICODE_H
#define TEXT_JINJA_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Properties of a code point, named after the str method that reports them; IS_TITLE: category Lt. */
enum {
    JINJA_IS_SPACE = 1 << 0,
    JINJA_IS_ALPHA = 1 << 1,
    JINJA_IS_NUMBER = 3 << 2, /* 1: isnumeric, 2: also isdigit, 3: also isdecimal */
    JINJA_IS_UPPER = 1 << 4,
    JINJA_IS_LOWER = 1 << 5,
    JINJA_IS_TITLE = 1 << 6,
    JINJA_IS_PRINTABLE = 1 << 7,
    JINJA_IS_ID_START = 1 << 8,
    JINJA_IS_ID = 1 << 9,
    JINJA_IS_CASE_IGNORABLE = 1 << 10,
    JINJA_IS_CASED = JINJA_IS_UPPER | JINJA_IS_LOWER | JINJA_IS_TITLE
};
#define JINJA_NUMBER_LEVEL(props) (((props)&JINJA_IS_NUMBER) >> 2)

unsigned jinja_unicode_props(uint32_t cp);

enum jinja_case { JINJA_CASE_UPPER, JINJA_CASE_LOWER, JINJA_CASE_TITLE, JINJA_CASE_FOLD };

/* The mapping of one code point on its own: 1 to 3 code points into out. */
size_t jinja_unicode_map(uint32_t cp, enum jinja_case kind, uint32_t out[3]);

/* The value of a decimal digit (isdecimal) of any script, or -1. */
int jinja_unicode_digit(uint32_t cp);

/* Reads the code point at s, which starts a well-formed sequence; *len gets its bytes. Ill-formed input
 * (never found in the interpreter's strings) gives U+FFFD, 1 byte. */
uint32_t jinja_utf8_get(const char *s, size_t n, size_t *len);
size_t jinja_utf8_put(uint32_t cp, char out[4]);

/* The generated tables. */
struct jinja_case_run {
    uint32_t first, last, step;
    int32_t delta;
};
struct jinja_case_special {
    uint32_t cp;
    enum jinja_case kind;
    uint32_t to[3];
};
extern const uint32_t jinja_unicode_properties[]; /* code point << 11 | properties, from that code point on */
extern const size_t jinja_unicode_properties_n;
extern const struct jinja_case_run jinja_unicode_upper[], jinja_unicode_lower[];
extern const size_t jinja_unicode_upper_n, jinja_unicode_lower_n;
extern const struct jinja_case_special jinja_unicode_special[];
extern const size_t jinja_unicode_special_n;

#endif
