#include "plan/knobs.h"

#include "base/size.h"
#include "plan/weight_format.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define PAGE_BYTES 4096 /* of memory: KV blocks are whole ones */

static struct forecast_knob *add(struct forecast *f, const char *knob, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static struct forecast_knob *add(struct forecast *f, const char *knob, const char *fmt, ...) {
    struct forecast_knob *k = &f->knobs[f->n_knobs++];
    va_list args;
    *k = (struct forecast_knob){.knob = knob};
    va_start(args, fmt);
    vsnprintf(k->value, sizeof k->value, fmt, args);
    va_end(args);
    return k;
}

/* Sequences of max_model_len that there is room for. */
static double room_of(const struct outlook *o) {
    return (double)o->room_blocks / (double)outlook_blocks(o, o->max_model_len);
}

static void fill(struct forecast_knob *k, const struct outlook *o) {
    k->weights_bytes = o->weights_bytes;
    k->sequence_bytes = outlook_blocks(o, o->max_model_len) * (uint64_t)o->page_bytes;
    k->n_fit = room_of(o);
}

/* A plan with other options. False: what is asked for cannot be planned at all. */
static bool plan_with(const struct forecast_ask *ask, const struct quire_config *c, struct outlook *o) {
    struct error err = {0};
    struct quire_config quiet = *c;
    quiet.log = NULL;
    int rc = outlook_make(&quiet, &ask->device, o, &err);
    return !rc || (rc == QUIRE_ENOMEM && o->page_bytes);
}

static void try_config(const struct forecast_ask *ask, const struct quire_config *c,
                       struct forecast_knob *k) {
    struct outlook o;
    if (plan_with(ask, c, &o)) fill(k, &o);
}

static void memory_shares(const struct forecast_ask *ask, struct forecast *f) {
    static const double shares[] = {0.85, 0.90, 0.92};
    for (size_t i = 0; i < 3 && !ask->config->kv_bytes; i++) {
        struct quire_config c = *ask->config;
        c.memory_share = shares[i];
        struct forecast_knob *k = add(f, "gpu-memory-utilization", "%.2f", shares[i]);
        k->chosen = fabs(shares[i] - ask->config->memory_share) < 1e-9;
        try_config(ask, &c, k);
    }
}

static void block_sizes(const struct forecast_ask *ask, struct forecast *f) {
    for (size_t n = 16; n <= 256; n *= 2) {
        struct quire_config c = *ask->config;
        c.block_tokens = n;
        struct forecast_knob *k = add(f, "block-size", "%zu", n);
        k->chosen = n == ask->config->block_tokens;
        try_config(ask, &c, k);
    }
}

static void types(const struct forecast_ask *ask, struct forecast *f) {
    static const struct {
        enum quire_dtype dtype;
        const char *name;
    } rows[] = {{QUIRE_BFLOAT16, "bfloat16"}, {QUIRE_FLOAT32, "float32"}};
    for (size_t i = 0; i < 2; i++) {
        struct quire_config c = *ask->config;
        c.dtype = rows[i].dtype;
        struct forecast_knob *k = add(f, "dtype", "%s", rows[i].name);
        k->chosen = c.dtype == ask->config->dtype;
        try_config(ask, &c, k);
    }
}

/* KV blocks of another size: what is not in the engine is computed from the plan that it makes. */
static void scale_kv(const struct outlook *o, uint64_t page_bytes, uint64_t weights_bytes,
                     struct forecast_knob *k) {
    uint64_t fixed = o->fixed_bytes - o->taken_bytes - o->weights_bytes + weights_bytes;
    uint64_t cost = o->block_cost_bytes - o->page_bytes + page_bytes,
             blocks = outlook_blocks(o, o->max_model_len);
    uint64_t room = o->allowed_bytes > fixed ? (o->allowed_bytes - fixed) / cost : 0;
    k->planned_only = true;
    k->weights_bytes = weights_bytes;
    k->sequence_bytes = blocks * page_bytes;
    k->n_fit = room ? (double)(room - 1) / (double)blocks : 0;
}

static uint64_t whole_pages(double bytes) {
    return (uint64_t)ceil(bytes / PAGE_BYTES) * PAGE_BYTES;
}

/* Bits of an element: 8-bit floats, and 4 bits with a scale of 16 for each 32. */
static void kv_types(const struct forecast_ask *ask, struct forecast *f) {
    static const struct {
        const char *name;
        double bits;
    } rows[] = {{"fp8", 8}, {"4 bits", 4.5}};
    struct outlook o;
    struct quire_config c = *ask->config;
    c.dtype = QUIRE_BFLOAT16;
    if (c.kv_bytes || !plan_with(ask, &c, &o)) return;
    for (size_t i = 0; i < 2; i++)
        scale_kv(&o, whole_pages((double)o.page_bytes * rows[i].bits / 16), o.weights_bytes,
                 add(f, "kv-cache-dtype", "%s", rows[i].name));
}

/* n devices, each with its part of every matrix and of the KV heads (Shoeybi et al. 2019); heads that are
 * fewer than devices are kept by several. The figures are those of one device. */
static void tensor_parallel(const struct forecast_ask *ask, struct forecast *f) {
    size_t heads = f->groups[0].n_kv_heads;
    if (ask->config->kv_bytes) return;
    for (size_t n = 2; n <= 8; n *= 2) {
        size_t own = heads >= n ? size_div_up(heads, n) : 1;
        scale_kv(&f->o, whole_pages((double)f->o.page_bytes * (double)own / (double)heads),
                 size_div_up(f->o.weights_bytes, n), add(f, "tensor-parallel-size", "%zu", n));
    }
}

/* ---- weight formats ---- */

static const char *const SHOWN[] = {"bf16", "q8_0", "q6_k", "q4_k_m", "q4_0", "q3_k_m"};

/* The plan for the weights in a format; false: it has no such form. */
static bool plan_format(const struct forecast_ask *ask, const struct forecast *f, const char *name,
                        struct outlook *o, bool *fits) {
    const struct weight_format *format;
    struct weights *w = NULL;
    struct error err = {0};
    struct quire_config c = *ask->config;
    if (weight_format_find(name, &format, &err) ||
        weight_format_apply(format, ask->config->weights, &f->o.spec, &w, &err))
        return false;
    c.weights = w;
    c.log = NULL;
    int rc = outlook_make(&c, &ask->device, o, &err);
    *fits = !rc;
    weights_close(w);
    return !rc || (rc == QUIRE_ENOMEM && o->page_bytes);
}

static void formats(const struct forecast_ask *ask, struct forecast *f) {
    for (size_t i = 0; i < sizeof SHOWN / sizeof *SHOWN; i++) {
        struct outlook o;
        bool fits;
        if (!plan_format(ask, f, SHOWN[i], &o, &fits)) continue;
        struct forecast_knob *k = add(f, "weight-format", "%s", SHOWN[i]);
        k->chosen = ask->weight_format && !strcmp(ask->weight_format, SHOWN[i]);
        fill(k, &o);
    }
}

int knobs_make(const struct forecast_ask *ask, struct forecast *f, struct error *err) {
    f->n_knobs = 0;
    memory_shares(ask, f);
    types(ask, f);
    kv_types(ask, f);
    formats(ask, f);
    block_sizes(ask, f);
    tensor_parallel(ask, f);
    return 0;
}

/* ---- what would make it fit ---- */

/* The most of 1 ... most at which it fits, where less never needs more; 0: none. */
static size_t most_that(const struct forecast_ask *ask, size_t n, size_t len, size_t most, bool of_seqs) {
    size_t low = 0, high = most;
    while (low < high) {
        size_t mid = low + (high - low + 1) / 2;
        if (of_seqs ? forecast_holds_at(ask, mid, len) : forecast_holds_at(ask, n, mid))
            low = mid;
        else
            high = mid - 1;
    }
    return low;
}

static const char *format_that_fits(const struct forecast_ask *ask, const struct forecast *f, size_t n) {
    const struct weight_format *format;
    for (size_t i = 0; (format = weight_format_at(i)); i++) {
        struct outlook o;
        bool fits;
        const char *name = weight_format_name(format);
        if (!plan_format(ask, f, name, &o, &fits) || o.weights_bytes >= f->o.weights_bytes) continue;
        if (fits && forecast_holds(&o, n)) return name;
    }
    return NULL;
}

void knobs_advise(const struct forecast_ask *ask, struct forecast *f, size_t n) {
    const struct outlook *o = &f->o;
    uint64_t blocks = n * (uint64_t)outlook_blocks(o, o->max_model_len) + 1;
    uint64_t need = o->fixed_bytes - o->taken_bytes + blocks * o->block_cost_bytes;
    double share = ask->config->kv_bytes ? 1.0 : ask->config->memory_share;
    f->advice =
        (struct forecast_advice){.n = n,
                                 .memory_bytes = (uint64_t)ceil((double)need / share),
                                 .max_model_len = most_that(ask, n, 0, o->max_model_len - 1, false),
                                 .max_num_seqs = n > 1 ? most_that(ask, 0, o->max_model_len, n - 1, true) : 0,
                                 .weight_format = format_that_fits(ask, f, n)};
    if (f->advice.max_model_len < 2) f->advice.max_model_len = 0;
}
