#include "sim/calibration.h"

#include "base/error.h"
#include "base/files.h"
#include "base/json_out.h"

#include <jansson.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define FORMAT      "quire-calibration"
#define VERSION     1
#define MAX_MIB     4
#define MOST_TOKENS (1u << 30)

/* Fields by their names in the file, for reading and writing alike. */
struct field {
    const char *name;
    size_t offset, size; /* size: of a text */
    double min, max;     /* of a number */
};

#define TEXT(member)                                                                                         \
    { #member, offsetof(struct calibration, member), sizeof((struct calibration *)0)->member, 0, 0 }
#define COUNT(member, min, max)                                                                              \
    { #member, offsetof(struct calibration, member), 0, min, max }

static const struct field texts[] = {TEXT(model), TEXT(numerics_id), TEXT(family),
                                     TEXT(dtype), TEXT(cpu_path),    TEXT(machine)};
static const struct field counts[] = {
    COUNT(n_threads, 1, 65536),    COUNT(max_model_len, 2, MOST_TOKENS), COUNT(n_groups, 1, BATCH_MAX_GROUPS),
    COUNT(block_tokens, 1, 65536), COUNT(n_blocks, 1, 2147483647),       COUNT(kv_bytes_per_token, 1, 1e12),
    COUNT(chat_tokens, 0, 100000)};
/* Those that a file may lack: 0. */
static const struct field optional[] = {COUNT(tensor_bytes, 0, 9e15), COUNT(chat_system_tokens, 0, 100000),
                                        COUNT(chat_turn_tokens, 0, 100000)};
static const struct field optional_numbers[] = {
    COUNT(gap_us, 0, 1e9),
    COUNT(cpu_share, 0, 1e3),
    COUNT(measured_share, 0, 1),
    {"slow_low", offsetof(struct calibration, steps.slow_low), 0, 0, 1e9},
    {"slow_high", offsetof(struct calibration, steps.slow_high), 0, 0, 1e9}};
static const struct field numbers[] = {COUNT(startup_s, 0, 1e6), COUNT(request_us, 0, 1e9),
                                       COUNT(prompt_token_us, 0, 1e9), COUNT(row_us, 0, 1e9)};
#define N(a) (sizeof(a) / sizeof *(a))

/* ---- writing ---- */

static void put_terms(struct json_out *j, const char *key, const double *v) {
    json_out_key(j, key);
    json_out_obj(j);
    for (size_t i = 0; i < STEP_TERMS; i++) json_out_put_f64(j, step_term_names[i], v[i]);
    json_out_obj_end(j);
}

static void put_fit(struct json_out *j, const struct step_model *m) {
    json_out_key(j, "fit");
    json_out_arr(j);
    for (size_t r = 0; r < STEP_REGIONS; r++) {
        json_out_obj(j);
        json_out_put_str(j, "region", step_region_names[r]);
        json_out_put_u64(j, "steps", m->fit[r].n);
        json_out_put_f64(j, "median_error", m->fit[r].median_error);
        json_out_put_f64(j, "p95_error", m->fit[r].p95_error);
        json_out_put_f64(j, "bias", m->fit[r].bias);
        json_out_obj_end(j);
    }
    json_out_arr_end(j);
}

static void put_wander(struct json_out *j, const struct wander *w) {
    if (!w->n) return;
    json_out_key(j, "wander");
    json_out_obj(j);
    json_out_put_f64(j, "moment_us", w->moment_us);
    json_out_key(j, "slow_thousandths");
    json_out_arr(j);
    for (size_t i = 0; i < w->n; i++) json_out_u64(j, w->slow[i]);
    json_out_arr_end(j);
    json_out_obj_end(j);
}

static void put_numbers(struct json_out *j, const struct field *f, size_t n, const char *base) {
    for (size_t i = 0; i < n; i++)
        json_out_put_f64(j, f[i].name, *(const double *)(const void *)(base + f[i].offset));
}

void calibration_write(const struct calibration *c, struct buf *out) {
    struct json_out j;
    const char *base = (const char *)c;
    json_out_init(&j, out);
    json_out_obj(&j);
    json_out_put_str(&j, "format", FORMAT);
    json_out_put_u64(&j, "version", VERSION);
    json_out_key(&j, "created_unix_s");
    json_out_i64(&j, c->created_unix_s);
    for (size_t i = 0; i < N(texts); i++) json_out_put_str(&j, texts[i].name, base + texts[i].offset);
    for (size_t i = 0; i < N(counts); i++)
        json_out_put_u64(&j, counts[i].name, *(const size_t *)(const void *)(base + counts[i].offset));
    for (size_t i = 0; i < N(optional); i++)
        json_out_put_u64(&j, optional[i].name, *(const size_t *)(const void *)(base + optional[i].offset));
    put_numbers(&j, numbers, N(numbers), base);
    put_numbers(&j, optional_numbers, N(optional_numbers), base);
    json_out_key(&j, "windows");
    json_out_arr(&j);
    for (size_t g = 0; g < c->n_groups; g++) json_out_u64(&j, c->window[g]);
    json_out_arr_end(&j);
    put_terms(&j, "forward_us", c->steps.forward_us);
    put_terms(&j, "rest_us", c->steps.rest_us);
    put_fit(&j, &c->steps);
    put_wander(&j, &c->steps.wander);
    json_out_obj_end(&j);
    buf_putc(out, '\n');
}

/* ---- reading ---- */

struct reader {
    const char *path;
    const json_t *root;
    struct error *err;
    int rc;
};

static void wrong(struct reader *r, const char *name, const char *allowed) {
    if (!r->rc) r->rc = error_set(r->err, QUIRE_EFORMAT, "%.200s: \"%s\" must be %s", r->path, name, allowed);
}

static double get_number(struct reader *r, const json_t *of, const char *name, double min, double max) {
    const json_t *v = json_object_get(of, name);
    double d = json_is_number(v) ? json_number_value(v) : NAN;
    char allowed[80];
    if (d >= min && d <= max) return d + 0.0; /* -0 is 0 */
    snprintf(allowed, sizeof allowed, "a number from %g to %g", min, max);
    wrong(r, name, allowed);
    return min;
}

static void get_text(struct reader *r, const struct field *f, char *out) {
    const char *v = json_string_value(json_object_get(r->root, f->name));
    char allowed[80];
    if (v && strlen(v) < f->size) {
        memcpy(out, v, strlen(v) + 1);
        return;
    }
    snprintf(allowed, sizeof allowed, "a text of less than %zu bytes", f->size);
    wrong(r, f->name, allowed);
}

static void get_terms(struct reader *r, const char *name, double *out) {
    const json_t *of = json_object_get(r->root, name);
    if (json_object_size(of) != STEP_TERMS) wrong(r, name, "an object with a number for each term");
    for (size_t i = 0; !r->rc && i < STEP_TERMS; i++) out[i] = get_number(r, of, step_term_names[i], 0, 1e12);
}

static void get_fit(struct reader *r, struct step_model *m) {
    const json_t *rows = json_object_get(r->root, "fit");
    if (json_array_size(rows) != STEP_REGIONS) wrong(r, "fit", "an array with an object for each region");
    for (size_t i = 0; !r->rc && i < STEP_REGIONS; i++) {
        const json_t *row = json_array_get(rows, i);
        m->fit[i] = (struct step_fit){
            (size_t)get_number(r, row, "steps", 0, 1e15), get_number(r, row, "median_error", 0, 1e9),
            get_number(r, row, "p95_error", 0, 1e9), get_number(r, row, "bias", -1, 1e9)};
    }
}

/* A file may lack it. */
static void get_wander(struct reader *r, struct wander *w) {
    const json_t *of = json_object_get(r->root, "wander"), *v = json_object_get(of, "slow_thousandths");
    char allowed[80];
    if (!of) return;
    w->moment_us = get_number(r, of, "moment_us", WANDER_BIN_US, 1e12);
    double doublings = log2(w->moment_us / WANDER_BIN_US);
    if (doublings != floor(doublings)) wrong(r, "moment_us", "50000 times a power of two");
    snprintf(allowed, sizeof allowed, "an array of %d to %d whole numbers from %d to %d", WANDER_LEAST,
             WANDER_MOST, WANDER_FASTEST, WANDER_SLOWEST);
    w->n = json_array_size(v);
    if (w->n < WANDER_LEAST || w->n > WANDER_MOST) wrong(r, "slow_thousandths", allowed);
    for (size_t i = 0; !r->rc && i < w->n; i++) {
        json_int_t slow = json_integer_value(json_array_get(v, i)); /* 0 when it is none */
        if (slow < WANDER_FASTEST || slow > WANDER_SLOWEST) wrong(r, "slow_thousandths", allowed);
        w->slow[i] = (uint16_t)slow;
    }
}

static void get_windows(struct reader *r, struct calibration *c) {
    const json_t *v = json_object_get(r->root, "windows");
    if (json_array_size(v) != c->n_groups)
        wrong(r, "windows", "an array of n_groups lengths in tokens, 0 for none");
    for (size_t g = 0; !r->rc && g < c->n_groups; g++) {
        json_int_t n = json_integer_value(json_array_get(v, g));
        if (n < 0 || n > MOST_TOKENS) wrong(r, "windows", "lengths from 0 to 2^30");
        c->window[g] = (size_t)n;
    }
}

/* may_lack: a field that is not there is 0. */
static void get_counts(struct reader *r, const struct field *f, size_t n, bool may_lack, char *base) {
    for (size_t i = 0; i < n; i++) {
        if (may_lack && !json_object_get(r->root, f[i].name)) continue;
        double v = get_number(r, r->root, f[i].name, f[i].min, f[i].max);
        if (v != floor(v)) wrong(r, f[i].name, "a whole number");
        *(size_t *)(void *)(base + f[i].offset) = (size_t)v;
    }
}

static void get_numbers(struct reader *r, const struct field *f, size_t n, bool may_lack, char *base) {
    for (size_t i = 0; i < n; i++)
        if (!may_lack || json_object_get(r->root, f[i].name))
            *(double *)(void *)(base + f[i].offset) = get_number(r, r->root, f[i].name, f[i].min, f[i].max);
}

static void get_all(struct reader *r, struct calibration *c) {
    char *base = (char *)c;
    for (size_t i = 0; i < N(texts); i++) get_text(r, &texts[i], base + texts[i].offset);
    get_counts(r, counts, N(counts), false, base);
    get_counts(r, optional, N(optional), true, base);
    get_numbers(r, numbers, N(numbers), false, base);
    get_numbers(r, optional_numbers, N(optional_numbers), true, base);
    c->created_unix_s = (int64_t)get_number(r, r->root, "created_unix_s", 0, 1e12);
    if (!r->rc) get_windows(r, c);
    get_terms(r, "forward_us", c->steps.forward_us);
    get_terms(r, "rest_us", c->steps.rest_us);
    get_fit(r, &c->steps);
    if (!r->rc) get_wander(r, &c->steps.wander);
}

int calibration_parse(const char *path, const char *text, size_t n, struct calibration *out,
                      struct error *err) {
    json_error_t e;
    *out = (struct calibration){0};
    json_t *root = json_loadb(text, n, JSON_REJECT_DUPLICATES, &e);
    if (!root) return error_set(err, QUIRE_EFORMAT, "%.200s: line %d: not JSON: %s", path, e.line, e.text);
    const char *format = json_string_value(json_object_get(root, "format"));
    json_int_t version = json_integer_value(json_object_get(root, "version"));
    struct reader r = {.path = path, .root = root, .err = err};
    if (!format || strcmp(format, FORMAT))
        r.rc = error_set(err, QUIRE_EFORMAT, "%.200s is no calibration of `quire simulate --save`", path);
    else if (version != VERSION)
        r.rc = error_set(err, QUIRE_EUNSUPPORTED, "%.200s has version %lld of the format; %d can be read",
                         path, (long long)version, VERSION);
    if (!r.rc) get_all(&r, out);
    json_decref(root);
    return r.rc;
}

int calibration_read(const char *option, const char *path, struct calibration *out, struct error *err) {
    struct buf data = BUF_INIT;
    *out = (struct calibration){0};
    int rc = file_read(option, path, MAX_MIB, &data, err);
    if (!rc) rc = calibration_parse(path, data.data ? data.data : "", data.len, out, err);
    buf_free(&data);
    return rc;
}

/* ---- the clock ---- */

static void time_step(void *ctx, struct quire_step *step) {
    const struct calibration *c = ctx;
    step_model_time(&c->steps, step);
    step->sample_us += (uint64_t)(c->gap_us + c->row_us * (double)step->n_logit_rows + 0.5);
}

struct sim_clock calibration_clock(const struct calibration *c) {
    return (struct sim_clock){.time = time_step, .ctx = (void *)(uintptr_t)c};
}
