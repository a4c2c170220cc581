/* Text from numbers and the two format languages of Python: "%s of %d" % (a, b) and "{} of {n}".format(a,
 * n=b). */
#ifndef TEXT_JINJA_FORMAT_H
#define TEXT_JINJA_FORMAT_H

#include "text/jinja_call.h"

int jinja_format_percent(struct jinja *j, const struct jinja_str *format, struct jinja_value values,
                         struct jinja_value *out);
/* mapping: format_map's argument, or NULL. */
int jinja_format_braces(struct jinja *j, const struct jinja_str *format, const struct jinja_args *args,
                        const struct jinja_value *mapping, struct jinja_value *out);

/* int() and float() of text, as Python reads it; *ok = false if it is not a number. Integers beyond 64 bits
 * fail. */
int jinja_parse_int(struct jinja *j, const struct jinja_str *s, int64_t base, int64_t *out, bool *ok);
int jinja_parse_float(struct jinja *j, const struct jinja_str *s, double *out, bool *ok);

/* How a number is to be written: what both format languages have in common. */
struct jinja_number_format {
    char type;                     /* d b o x X c e E f F g G %, or 0: as str() does */
    char sign;                     /* '+', ' ' or 0: minus only */
    char grouping;                 /* ',', '_' or 0 */
    bool alternate;                /* # */
    int64_t precision, zero_width; /* precision -1: none; zero_width: filled with zeros behind the sign */
};
/* -3.50 as text. v: an int, bool or float that suits the type. */
int jinja_format_number(struct jinja *j, struct jinja_value v, const struct jinja_number_format *f,
                        const struct jinja_str **out);

#endif
