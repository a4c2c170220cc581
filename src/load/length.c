#include "load/length.h"

#include "base/error.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool number_read(const char *text, size_t n, double from, double to, double *out) {
    char copy[40], *end;
    if (!n || n >= sizeof copy || !((*text >= '0' && *text <= '9') || *text == '.')) return false;
    memcpy(copy, text, n);
    copy[n] = 0;
    double v = strtod(copy, &end);
    if (*end || !isfinite(v) || v < from || v > to || strpbrk(copy, "xX")) return false;
    *out = v;
    return true;
}

int numbers_parse(const char *option, const char *text, double from, double to, bool whole, double *out,
                  size_t max, size_t *n, struct error *err) {
    *n = 0;
    for (const char *p = text;;) {
        size_t len = strcspn(p, ",");
        double v;
        if (!number_read(p, len, from, to, &v) || (whole && v != floor(v)))
            return error_set(err, QUIRE_EINVAL, "%s %.60s: \"%.*s\" is not a %s from %g to %g", option, text,
                             (int)(len < 40 ? len : 40), p, whole ? "whole number" : "number", from, to);
        if (*n == max) return error_set(err, QUIRE_EINVAL, "%s has more than %zu values", option, max);
        out[(*n)++] = v;
        if (!p[len]) return 0;
        p += len + 1;
    }
}

static const struct {
    const char *name;
    enum length_kind kind;
} kinds[] = {{"uniform:", LENGTH_UNIFORM}, {"normal:", LENGTH_NORMAL}, {"lognormal:", LENGTH_LOGNORMAL}};

int length_parse(const char *option, const char *text, struct length *out, struct error *err) {
    struct length l = {.kind = LENGTH_FIXED};
    if (number_read(text, strlen(text), 1, LENGTH_MAX_TOKENS, &l.a) && l.a == floor(l.a)) {
        *out = l;
        return 0;
    }
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        size_t n = strlen(kinds[i].name);
        if (strncmp(text, kinds[i].name, n)) continue;
        l.kind = kinds[i].kind;
        const char *first = text + n, *colon = strchr(first, ':');
        double most = l.kind == LENGTH_LOGNORMAL ? 4 : LENGTH_MAX_TOKENS;
        if (!colon || !number_read(first, (size_t)(colon - first), 1, LENGTH_MAX_TOKENS, &l.a) ||
            !number_read(colon + 1, strlen(colon + 1), l.kind == LENGTH_UNIFORM ? l.a : 0, most, &l.b))
            break;
        *out = l;
        return 0;
    }
    return error_set(
        err, QUIRE_EINVAL,
        "%s \"%.60s\" is not N, uniform:MIN:MAX, normal:MEAN:DEVIATION or lognormal:MEDIAN:SIGMA, in "
        "tokens from 1 to %d",
        option, text, LENGTH_MAX_TOKENS);
}

struct length length_scale(struct length l, double factor) {
    l.a = fmax(1, round(l.a * factor));
    if (l.kind != LENGTH_LOGNORMAL) l.b = round(l.b * factor);
    return l;
}

double draw_normal(double u, double v) {
    return sqrt(-2 * log(1 - u)) * cos(2 * 3.14159265358979323846 * v);
}

uint32_t length_draw(const struct length *l, double u, double v) {
    double n = l->a;
    if (l->kind == LENGTH_UNIFORM) n = floor(l->a + u * (l->b - l->a + 1));
    if (l->kind == LENGTH_NORMAL) n = round(l->a + l->b * draw_normal(u, v));
    if (l->kind == LENGTH_LOGNORMAL) n = round(l->a * exp(l->b * draw_normal(u, v)));
    return (uint32_t)fmin(fmax(n, 1), (double)length_most(l));
}

uint32_t length_most(const struct length *l) {
    double most = l->kind == LENGTH_FIXED ? l->a : l->kind == LENGTH_UNIFORM ? l->b : 8 * l->a;
    return (uint32_t)fmin(most, LENGTH_MAX_TOKENS);
}
