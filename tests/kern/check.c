#include "check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

void check_that(struct check *c, bool ok, const char *format, ...) {
    c->n_checks++;
    if (ok) return;
    if (c->n_failed++ >= 20) return;
    va_list args;
    va_start(args, format);
    printf("FAIL %s %s: ", c->kern->name, c->what);
    vprintf(format, args);
    printf("\n");
    va_end(args);
}

/* splitmix64 (Steele, Lea and Flood 2014) */
uint64_t check_random(struct check *c) {
    uint64_t z = c->rng += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

size_t check_below(struct check *c, size_t n) {
    return (size_t)(check_random(c) % n);
}

float check_uniform(struct check *c, float low, float high) {
    return low + (high - low) * (float)((double)(check_random(c) >> 11) * 0x1p-53);
}

const char *const fill_names[FILLS] = {"normal", "ones", "alternating", "wide", "denormal", "zero"};

static float normal(struct check *c) { /* sum of 12 uniforms, variance 1 */
    float sum = -6.0f;
    for (int i = 0; i < 12; i++) sum += check_uniform(c, 0.0f, 1.0f);
    return sum;
}

void check_fill(struct check *c, float *x, size_t n, enum fill fill) {
    for (size_t i = 0; i < n; i++) switch (fill) {
        case FILL_NORMAL: x[i] = normal(c); break;
        case FILL_ONES: x[i] = 1.0f; break;
        case FILL_ALTERNATING: x[i] = i % 2 ? -3.0f : 3.0f; break;
        case FILL_WIDE: x[i] = ldexpf(normal(c), (int)check_below(c, 40) - 20); break;
        case FILL_DENORMAL: x[i] = normal(c) * 0x1p-140f; break;
        default: x[i] = 0.0f; break;
        }
}

#define CANARY 0xa5

struct guarded guarded_new(size_t bytes, size_t align, enum side side) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE), inner = (bytes + align + page - 1) / page * page;
    struct guarded g = {.bytes = bytes, .map_bytes = inner + 2 * page};
    g.map = mmap(NULL, g.map_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (g.map == MAP_FAILED || mprotect(g.map, page, PROT_NONE) ||
        mprotect(g.map + page + inner, page, PROT_NONE)) {
        fprintf(stderr, "kern_check: no memory for %zu bytes\n", bytes);
        exit(2);
    }
    memset(g.map + page, CANARY, inner);
    size_t offset = side == SIDE_FRONT ? 0 : (inner - bytes) / align * align;
    g.data = g.map + page + offset;
    memset(g.data, 0xff, bytes);
    return g;
}

void guarded_free(struct check *c, struct guarded *g) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const unsigned char *data = g->data, *end = (unsigned char *)g->map + g->map_bytes - page;
    bool intact = true;
    for (const unsigned char *p = (unsigned char *)g->map + page; p < end; p++)
        if ((p < data || p >= data + g->bytes) && *p != CANARY) intact = false;
    check_that(c, intact, "wrote outside a buffer of %zu bytes", g->bytes);
    munmap(g->map, g->map_bytes);
}

bool same_bits(const void *a, const void *b, size_t bytes) {
    return memcmp(a, b, bytes) == 0;
}
