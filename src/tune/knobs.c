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

const char *const tune_dtypes[TUNE_DTYPES] = {"bfloat16", "float16", "float32"};

const struct knob_row knob_rows[KNOBS] = {
    [KNOB_CONCURRENCY] = {"concurrency", KNOB_NUMBER, true, concurrencies},
    [KNOB_SEQS] = {"max-num-seqs", KNOB_NUMBER, true, seqs},
    [KNOB_TOKENS] = {"max-num-batched-tokens", KNOB_NUMBER, true, tokens},
    [KNOB_MEMORY] = {"gpu-memory-utilization", KNOB_NUMBER, true, shares},
    [KNOB_CHUNK] = {"long-prefill-token-threshold", KNOB_NUMBER, true, chunks},
    [KNOB_PREFIX] = {"enable-prefix-caching", KNOB_SWITCH, true, switches},
    [KNOB_BLOCK] = {"block-size", KNOB_NUMBER, false, blocks},
    [KNOB_THREADS] = {"threads", KNOB_NUMBER, false, threads},
    [KNOB_DTYPE] = {"dtype", KNOB_NAME, false, NULL},
    [KNOB_WEIGHTS] = {"weights", KNOB_NAME, false, NULL},
};

static size_t ladder_of_names(size_t n, double out[LADDER_MAX]) {
    for (size_t i = 0; i < n; i++) out[i] = (double)i;
    return n;
}

size_t knob_ladder(const struct tune_options *o, enum knob k, double base, double out[LADDER_MAX]) {
    size_t n = 0;
    bool placed = false;
    if (knob_rows[k].kind == KNOB_NAME)
        return ladder_of_names(k == KNOB_DTYPE ? TUNE_DTYPES : o->n_weights, out);
    for (const double *v = knob_rows[k].values; *v >= 0 && n + 1 < LADDER_MAX; v++) {
        if (k == KNOB_THREADS && *v > (double)o->n_cores) break;
        if (!placed && *v >= base) {
            if (*v > base) out[n++] = base;
            placed = true;
        }
        out[n++] = *v;
    }
    if (!placed) out[n++] = base;
    return n;
}

void knob_print(const struct tune_options *o, enum knob k, double v, char *out, size_t size) {
    if (k == KNOB_DTYPE) {
        snprintf(out, size, "%s", tune_dtypes[(size_t)v]);
    } else if (k == KNOB_WEIGHTS) {
        const char *path = o->weights[(size_t)v], *file = strrchr(path, '/');
        snprintf(out, size, "%s", file && file[1] ? file + 1 : path);
    } else if (knob_rows[k].kind == KNOB_SWITCH) {
        snprintf(out, size, "%s", v > 0 ? "on" : "off");
    } else {
        snprintf(out, size, "%.10g", v);
    }
}

static int find_knob(const char *name, size_t n, size_t *out, struct error *err) {
    struct suggestion s;
    suggest_init(&s, name, n);
    for (*out = 0; *out < KNOBS; (*out)++) {
        const char *known = knob_rows[*out].name;
        if (strlen(known) == n && !memcmp(name, known, n)) return 0;
        suggest_offer(&s, known);
    }
    return error_set(
        err, QUIRE_EINVAL,
        "--parameters has \"%.*s\"%s%s; concurrency, max-num-seqs, max-num-batched-tokens, "
        "gpu-memory-utilization, long-prefill-token-threshold, enable-prefix-caching, block-size, "
        "threads, dtype and weights are allowed",
        n < 40 ? (int)n : 40, name, s.nearest ? ", did you mean " : "", s.nearest ? s.nearest : "");
}

/* Why it cannot be tried here; NULL: it can. */
static const char *idle_because(const struct tune_options *o, size_t k) {
    if (k == KNOB_CONCURRENCY && o->open_loop) return "the load has a rate, so its concurrency is none";
    if (k == KNOB_MEMORY && o->kv_given) return "--kv-cache-memory-bytes fixes what it would change";
    if (k >= KNOB_DTYPE && !o->judge)
        return "it changes answers, which are looked at in models, not with --command";
    if (k == KNOB_WEIGHTS && o->n_weights < 2) return "--weights names no files";
    return NULL;
}

int knob_choose(const struct tune_options *o, unsigned *bits, struct error *err) {
    *bits = 0;
    for (size_t k = 0; k < KNOBS && !o->parameters; k++)
        if (!idle_because(o, k)) *bits |= 1u << k;
    for (const char *p = o->parameters; p;) {
        size_t n = strcspn(p, ","), k;
        int rc = find_knob(p, n, &k, err);
        if (rc) return rc;
        if (idle_because(o, k))
            return error_set(err, QUIRE_EINVAL, "--parameters has %s: %s", knob_rows[k].name,
                             idle_because(o, k));
        if (*bits & 1u << k)
            return error_set(err, QUIRE_EINVAL, "--parameters has %s twice", knob_rows[k].name);
        *bits |= 1u << k;
        p = p[n] ? p + n + 1 : NULL;
    }
    if (o->n_weights > 1 && !(*bits & 1u << KNOB_WEIGHTS))
        return error_set(err, QUIRE_EINVAL,
                         "--weights are tried as \"weights\", which --parameters leaves out");
    return 0;
}

bool candidate_equal(const struct candidate *a, const struct candidate *b) {
    for (int k = 0; k < KNOBS; k++)
        if (a->v[k] != b->v[k]) return false;
    return true;
}

void candidate_print(const struct tune_options *o, const struct candidate *c, char *out, size_t size) {
    size_t n = 0;
    *out = 0;
    for (int k = 0; k < KNOBS; k++) {
        char v[80];
        if (c->v[k] == o->base.v[k]) continue;
        knob_print(o, (enum knob)k, c->v[k], v, sizeof v);
        n += (size_t)snprintf(out + n, size - n, "%s%s %s", n ? ", " : "", knob_rows[k].name, v);
        if (n >= size) return;
    }
    if (!n) snprintf(out, size, "as given");
}
