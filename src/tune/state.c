#include "tune/state.h"

#include "base/error.h"
#include "base/files.h"
#include "base/json_out.h"
#include "tune/knobs.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FORMAT  "quire-tune"
#define VERSION 2
#define MAX_MIB 64

/* Figures by name, for reading and writing alike. */
static const struct {
    const char *name;
    size_t offset;
} numbers[] = {
    {"good_per_s", offsetof(struct figures, good_per_s)},
    {"good_share", offsetof(struct figures, good_share)},
    {"excess", offsetof(struct figures, excess)},
    {"output_per_s", offsetof(struct figures, output_per_s)},
    {"total_per_s", offsetof(struct figures, total_per_s)},
    {"ttft_p50_ms", offsetof(struct figures, ttft_p50)},
    {"ttft_p95_ms", offsetof(struct figures, ttft_p95)},
    {"tpot_p50_ms", offsetof(struct figures, tpot_p50)},
    {"tpot_p95_ms", offsetof(struct figures, tpot_p95)},
    {"e2e_p95_ms", offsetof(struct figures, e2e_p95)},
};
#define N_NUMBERS (sizeof numbers / sizeof *numbers)

static double *number_at(struct figures *f, size_t i) {
    return (double *)(void *)((char *)f + numbers[i].offset);
}

static void put(struct buf *b, const char *name, const char *v) {
    if (v) buf_printf(b, "%s=%s;", name, v);
}

char *state_key(const struct tune_options *o) {
    const struct load_options *l = &o->load;
    struct buf b = BUF_INIT;
    put(&b, "model", o->model);
    put(&b, "command", o->command);
    for (size_t i = 1; i < o->n_weights; i++) put(&b, "weights", o->weights[i]);
    for (const char *const *a = o->server_args; a && *a; a++) put(&b, "arg", *a);
    for (int k = 0; k < KNOBS; k++) buf_printf(&b, "%s=%.10g;", knob_rows[k].name, o->base.v[k]);
    put(&b, "slo", l->slo);
    put(&b, "workload", l->workload);
    put(&b, "input", l->input_tokens);
    put(&b, "output", l->output_tokens);
    put(&b, "file", l->file);
    put(&b, "rate", l->rate);
    put(&b, "arrival", l->rate ? l->arrival : NULL);
    put(&b, "endpoint", l->endpoint);
    buf_printf(&b, "prefix=%lld/%lld;requests=%lld;seed=%lld;duration=%g;scale=%g;warmup=%lld;",
               (long long)l->prefix_tokens, (long long)l->prefix_groups, (long long)l->requests,
               (long long)l->seed, l->duration_s, l->scale, (long long)l->warmup);
    buf_printf(&b, "turns=%lld;think=%g;time=%g;ramp=%g;burst=%g;eos=%d", (long long)l->turns, l->think_s,
               l->time_scale, l->ramp_to, l->burstiness, l->ignore_eos);
    buf_putc(&b, 0);
    if (buf_ok(&b)) return b.data;
    buf_free(&b);
    return NULL;
}

/* ---- writing ---- */

static void put_trial(struct json_out *j, const struct trial *r) {
    struct figures f = r->f;
    json_out_obj(j);
    json_out_key(j, "options");
    json_out_obj(j);
    for (int k = 0; k < KNOBS; k++) {
        json_out_put_f64(j, knob_rows[k].name, r->c.v[k]);
    }
    json_out_obj_end(j);
    json_out_put_u64(j, "repeat", r->repeat);
    json_out_put_f64(j, "part", r->part);
    json_out_put_f64(j, "seconds", r->seconds);
    json_out_put_str(j, "failed", *r->failed ? r->failed : NULL);
    json_out_put_u64(j, "ok_requests", f.n_ok);
    json_out_put_u64(j, "failed_requests", f.n_failed);
    for (size_t i = 0; i < N_NUMBERS; i++) {
        json_out_put_f64(j, numbers[i].name, *number_at(&f, i)); /* infinite: null */
    }
    json_out_key(j, "goodput_batches");
    json_out_arr(j);
    for (int b = 0; b < TRIAL_BATCHES; b++) json_out_f64(j, r->batches[b]);
    json_out_arr_end(j);
    json_out_obj_end(j);
}

static void put_looked(struct json_out *j, const struct looked *l) {
    json_out_obj(j);
    json_out_put_f64(j, "dtype", l->dtype);
    json_out_put_f64(j, "weights", l->weights);
    json_out_put_u64(j, "tokens", l->q.tokens);
    json_out_put_f64(j, "ppl_increase", l->q.ppl_increase);
    json_out_put_f64(j, "kl", l->q.kl);
    json_out_put_f64(j, "top1", l->q.top1);
    json_out_obj_end(j);
}

/* Written beside and put in its place, so that an interrupt leaves the old or the new one. */
int state_write(const struct trials *t, struct error *err) {
    char path[1100], beside[1110];
    struct buf b = BUF_INIT;
    struct json_out j;
    FILE *f;
    snprintf(path, sizeof path, "%s/tune.json", t->o->folder);
    snprintf(beside, sizeof beside, "%s.new", path);
    json_out_init(&j, &b);
    json_out_obj(&j);
    json_out_put_str(&j, "format", FORMAT);
    json_out_put_u64(&j, "version", VERSION);
    json_out_put_str(&j, "of", t->key);
    json_out_key(&j, "runs");
    json_out_arr(&j);
    for (size_t i = 0; i < t->n; i++)
        if (t->v[i].done >= 0.5 || *t->v[i].failed)
            put_trial(&j, &t->v[i]); /* with less: of this call only */
    json_out_arr_end(&j);
    json_out_key(&j, "quality");
    json_out_arr(&j);
    for (size_t i = 0; i < t->n_looked; i++) put_looked(&j, &t->looked[i]);
    json_out_arr_end(&j);
    json_out_obj_end(&j);
    int rc = file_open_result("--folder", beside, &f, err);
    if (!rc) rc = file_write_result(f, "--folder", beside, &b, err);
    if (!rc) fclose(f);
    buf_free(&b);
    if (!rc && rename(beside, path))
        rc = error_set(err, QUIRE_EIO, "%.200s cannot be replaced: %s", path, strerror(errno));
    return rc;
}

/* ---- reading ---- */

static bool index_below(double v, size_t n) {
    return v >= 0 && v < (double)n && v == floor(v);
}

static size_t names_of(const struct tune_options *o, enum knob k) {
    double ladder[LADDER_MAX];
    size_t n = knob_ladder(o, k, 0, ladder);
    return n ? n : 1; /* without files, of the one model */
}

static double number_or_inf(const json_t *row, const char *name) {
    const json_t *v = json_object_get(row, name);
    return json_is_number(v) ? json_number_value(v) : INFINITY;
}

static bool get_looked(const struct tune_options *o, const json_t *row, struct looked *l) {
    *l = (struct looked){.dtype = number_or_inf(row, "dtype"),
                         .weights = number_or_inf(row, "weights"),
                         .q = {.tokens = (size_t)json_integer_value(json_object_get(row, "tokens")),
                               .ppl_increase = number_or_inf(row, "ppl_increase"),
                               .kl = number_or_inf(row, "kl"),
                               .top1 = number_or_inf(row, "top1")}};
    return index_below(l->dtype, TUNE_DTYPES) && index_below(l->weights, names_of(o, KNOB_WEIGHTS));
}

static bool get_trial(const struct tune_options *o, const json_t *row, struct trial *r) {
    const json_t *options = json_object_get(row, "options"),
                 *batches = json_object_get(row, "goodput_batches");
    const char *failed = json_string_value(json_object_get(row, "failed"));
    bool ok = json_array_size(batches) == TRIAL_BATCHES;
    *r = (struct trial){.done = 1,
                        .repeat = (unsigned)json_integer_value(json_object_get(row, "repeat")),
                        .part = json_number_value(json_object_get(row, "part")),
                        .seconds = json_number_value(json_object_get(row, "seconds"))};
    r->f.n_ok = (size_t)json_integer_value(json_object_get(row, "ok_requests"));
    r->f.n_failed = (size_t)json_integer_value(json_object_get(row, "failed_requests"));
    if (failed) snprintf(r->failed, sizeof r->failed, "%s", failed);
    for (int k = 0; k < KNOBS; k++) {
        const json_t *v = json_object_get(options, knob_rows[k].name);
        ok = ok && json_is_number(v);
        r->c.v[k] = json_number_value(v);
        ok = ok && (knob_rows[k].kind != KNOB_NAME || index_below(r->c.v[k], names_of(o, (enum knob)k)));
    }
    for (size_t i = 0; i < N_NUMBERS; i++) {
        *number_at(&r->f, i) = number_or_inf(row, numbers[i].name);
    }
    for (size_t b = 0; b < TRIAL_BATCHES; b++) r->batches[b] = json_number_value(json_array_get(batches, b));
    return ok && r->part > 0;
}

static int state_check(const struct trials *t, const json_t *root, const char *path, struct error *err) {
    const char *format = json_string_value(json_object_get(root, "format"));
    const char *of = json_string_value(json_object_get(root, "of"));
    if (!format || strcmp(format, FORMAT))
        return error_set(err, QUIRE_EFORMAT,
                         "%.200s is not of `quire tune`: give another --folder, or remove it", path);
    if (json_integer_value(json_object_get(root, "version")) != VERSION)
        return error_set(err, QUIRE_EFORMAT,
                         "%.200s is of another version of `quire tune`: give another --folder, or remove it",
                         path);
    if (!of || strcmp(of, t->key))
        return error_set(err, QUIRE_EINVAL,
                         "--folder %.200s has runs of another model, load or SLO: give another, or remove it",
                         t->o->folder);
    return 0;
}

int state_read(struct trials *t, struct error *err) {
    char path[1100];
    struct buf data = BUF_INIT;
    json_error_t e;
    size_t i;
    const json_t *row;
    snprintf(path, sizeof path, "%s/tune.json", t->o->folder);
    if (access(path, F_OK)) return 0;
    int rc = file_read("--folder", path, MAX_MIB, &data, err);
    if (rc) return rc;
    json_t *root = json_loadb(data.data ? data.data : "", data.len, JSON_REJECT_DUPLICATES, &e);
    buf_free(&data);
    rc = state_check(t, root, path, err);
    json_array_foreach(json_object_get(root, "runs"), i, row) {
        if (rc || t->n == TRIALS_MAX) break;
        if (!get_trial(t->o, row, &t->v[t->n++]))
            rc = error_set(err, QUIRE_EFORMAT, "%.200s: run %zu is damaged", path, i + 1);
    }
    json_array_foreach(json_object_get(root, "quality"), i, row) {
        if (rc || t->n_looked == LOOKED_MAX) break;
        if (!get_looked(t->o, row, &t->looked[t->n_looked++]))
            rc = error_set(err, QUIRE_EFORMAT, "%.200s: quality %zu is damaged", path, i + 1);
    }
    json_decref(root);
    return rc;
}
