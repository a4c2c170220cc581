/* Lengths in tokens: fixed or drawn. */
#ifndef LOAD_LENGTH_H
#define LOAD_LENGTH_H

#include <quire/error.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LENGTH_MAX_TOKENS 10000000

enum length_kind { LENGTH_FIXED, LENGTH_UNIFORM, LENGTH_NORMAL, LENGTH_LOGNORMAL };

struct length {
    enum length_kind kind;
    double a,
        b; /* fixed: a; uniform: a to b; normal: mean, deviation; lognormal: median, sigma of the logarithm */
};

/* "512", "uniform:100:900", "normal:512:64" or "lognormal:512:0.6". option: the flag, for messages. */
int length_parse(const char *option, const char *text, struct length *out, struct error *err);
struct length length_scale(struct length l, double factor);
/* From two uniform numbers in [0, 1). At least 1, and for normal and lognormal at most 8 times a. */
uint32_t length_draw(const struct length *l, double u, double v);
/* The longest that can come. */
uint32_t length_most(const struct length *l);

/* Standard normal from two uniform numbers (Box and Muller, 1958). */
double draw_normal(double u, double v);

/* A number from `from` on, "1.5" or "8"; the whole of the n bytes. */
bool number_read(const char *text, size_t n, double from, double to, double *out);
/* "1,8,32": up to max numbers. */
int numbers_parse(const char *option, const char *text, double from, double to, bool whole, double *out,
                  size_t max, size_t *n, struct error *err);

#endif
