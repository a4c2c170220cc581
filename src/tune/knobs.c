#include "tune/knobs.h"

#include "base/buf.h"
#include "base/error.h"
#include "base/suggest.h"

#include <stdio.h>
#include <string.h>

static const double concurrencies[] = {1, 2, 4, 8, 16, 32, 64, 128, 256, -1};
static const double seqs[] = {8, 16, 32, 64, 128, 256, -1};
static const double tokens[] = {512, 1024, 2048, 4096, 8192, 16384, 32768, -1};
static const double shares[] = {0.5, 0.7, 0.9, 0.95, -1};
static const double chunks[] = {0, 64, 128, 256, 512, 1024, -1};
static const double switches[] = {0, 1, -1};
static const double blocks[] = {16, 32, 64, 128, -1};
static const double threads[] = {1, 2, 4, 8, 16, 32, 64, 128, -1};

const struct knob_row knob_rows[KNOBS] = {
    [KNOB_CONCURRENCY] = {"concurrency", false, true, concurrencies},
    [KNOB_SEQS] = {"max-num-seqs", false, true, seqs},
    [KNOB_TOKENS] = {"max-num-batched-tokens", false, true, tokens},
    [KNOB_MEMORY] = {"gpu-memory-utilization", false, true, shares},
    [KNOB_CHUNK] = {"long-prefill-token-threshold", false, true, chunks},
    [KNOB_PREFIX] = {"enable-prefix-caching", true, true, switches},
    [KNOB_BLOCK] = {"block-size", false, false, blocks},
    [KNOB_THREADS] = {"threads", false, false, threads},
};

size_t knob_ladder(enum knob k, double base, size_t n_cores, double out[LADDER_MAX]) {
    size_t n = 0;
    bool placed = false;
    for (const double *v = knob_rows[k].values; *v >= 0 && n + 1 < LADDER_MAX; v++) {
        if (k == KNOB_THREADS && *v > (double)n_cores) break;
        if (!placed && *v >= base) {
            if (*v > base) out[n++] = base;
            placed = true;
        }
        out[n++] = *v;
    }
    if (!placed) out[n++] = base;
    return n;
}

void knob_print(enum knob k, double v, char *out, size_t size) {
    if (knob_rows[k].is_switch)
        snprintf(out, size, "%s", v > 0 ? "on" : "off");
    else
        snprintf(out, size, "%.10g", v);
}

int knob_parse(const char *list, unsigned *bits, struct error *err) {
    *bits = (1u << KNOBS) - 1;
    if (!list) return 0;
    *bits = 0;
    for (const char *p = list;;) {
        size_t n = strcspn(p, ","), k = 0;
        struct suggestion s;
        suggest_init(&s, p, n);
        while (k < KNOBS && (strlen(knob_rows[k].name) != n || memcmp(p, knob_rows[k].name, n)))
            suggest_offer(&s, knob_rows[k++].name);
        if (k == KNOBS)
            return error_set(
                err, QUIRE_EINVAL,
                "--parameters has \"%.*s\"%s%s; concurrency, max-num-seqs, max-num-batched-tokens, "
                "gpu-memory-utilization, long-prefill-token-threshold, enable-prefix-caching, block-size and "
                "threads are allowed",
                n < 40 ? (int)n : 40, p, s.nearest ? ", did you mean " : "", s.nearest ? s.nearest : "");
        *bits |= 1u << k;
        if (!p[n]) return 0;
        p += n + 1;
    }
}

bool candidate_equal(const struct candidate *a, const struct candidate *b) {
    for (int k = 0; k < KNOBS; k++)
        if (a->v[k] != b->v[k]) return false;
    return true;
}

void candidate_print(const struct candidate *c, const struct candidate *base, char *out, size_t size) {
    size_t n = 0;
    *out = 0;
    for (int k = 0; k < KNOBS; k++) {
        char v[32];
        if (c->v[k] == base->v[k]) continue;
        knob_print((enum knob)k, c->v[k], v, sizeof v);
        n += (size_t)snprintf(out + n, size - n, "%s%s %s", n ? ", " : "", knob_rows[k].name, v);
        if (n >= size) return;
    }
    if (!n) snprintf(out, size, "as given");
}
