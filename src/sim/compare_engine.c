/* Step times of a calibration beside those that `quire bench engine` has measured. */
#include "sim/compare.h"

#include "base/error.h"
#include "load/compare.h"

#include <jansson.h>
#include <math.h>
#include <string.h>

static double number_of(const json_t *of, const char *name) {
    return json_number_value(json_object_get(of, name));
}

/* The step that a point's steps are on average. Decodes of a batch begin at the context and go on for so many
 * steps as were counted; prompts are cut into steps of equal size. */
static bool step_of(const json_t *point, struct quire_step *out) {
    const json_t *first = json_array_get(json_object_get(point, "repeats"), 0);
    const json_t *s = json_object_get(first, "summary");
    const char *phase = json_string_value(json_object_get(point, "phase"));
    double steps = number_of(s, "steps"), tokens = number_of(s, "tokens");
    double batch = number_of(point, "batch"), context = number_of(point, "context");
    *out = (struct quire_step){0};
    if (!phase || !(steps >= 1 && batch >= 1 && context >= 1 && tokens >= 1) ||
        !(steps < 1e9 && batch < 1e9 && context < 1e9 && tokens < 1e12))
        return false;
    if (!strcmp(phase, "decode")) {
        out->n_decode_rows = out->n_decode_seqs = out->n_logit_rows = (size_t)batch;
        out->decode_attended = (uint64_t)(batch * (context + steps / 2));
    } else {
        double rows = tokens / steps, prompts = rows / context;
        out->n_prefill_rows = (size_t)round(rows);
        out->n_prefill_seqs = (size_t)ceil(prompts);
        out->n_logit_rows = (size_t)round(prompts);
        out->prefill_attended = (uint64_t)(rows * (context + 1) / 2);
    }
    return true;
}

static void compare_step(const json_t *point, const struct calibration *c,
                         void (*row)(void *ctx, const struct sim_row *row), void *ctx) {
    const char *title = json_string_value(json_object_get(point, "title"));
    double measured = number_of(json_object_get(point, "summary"), "tokens_per_s");
    struct quire_step s;
    if (!title || !step_of(point, &s)) return;
    step_model_time(&c->steps, &s);
    double us = (double)(s.forward_us + s.sample_us);
    double expected = us > 0 ? 1e6 * (double)(s.n_prefill_rows + s.n_decode_rows) / us : 0;
    row(ctx, &(struct sim_row){.title = title,
                               .name = title,
                               .unit = "tok/s",
                               .measured = measured,
                               .low = measured,
                               .high = measured,
                               .n_repeats = 1,
                               .same_speed = NAN,
                               .simulated = expected,
                               .error = measured > 0 ? expected / measured - 1 : NAN});
}

static int check_machine(const json_t *machine, const struct calibration *c, const char *path,
                         struct error *err) {
    const char *kernels = json_string_value(json_object_get(machine, "path"));
    const char *dtype = json_string_value(json_object_get(machine, "dtype"));
    double threads = number_of(machine, "threads");
    if (kernels && dtype && !strcmp(kernels, c->cpu_path) && !strcmp(dtype, c->dtype) &&
        threads == (double)c->n_threads)
        return 0;
    return error_set(
        err, QUIRE_EINVAL,
        "%.200s was measured on %.20s with %.0f threads and %.20s, the calibration on %s with %zu and %s",
        path, kernels ? kernels : "?", threads, dtype ? dtype : "?", c->cpu_path, c->n_threads, c->dtype);
}

int sim_compare_engine(const struct calibration *c, const char *path, bool *is_engine,
                       void (*row)(void *ctx, const struct sim_row *row), void *ctx, struct error *err) {
    struct measurement m;
    const json_t *point;
    size_t i;
    *is_engine = false;
    int rc = measurement_read(path, &m, err);
    if (rc) return rc;
    *is_engine = !strcmp(m.format, "quire-bench-engine");
    if (*is_engine) {
        rc = check_machine(json_object_get(m.root, "machine"), c, path, err);
        if (!rc)
            json_array_foreach(json_object_get(m.root, "points"), i, point) compare_step(point, c, row, ctx);
    }
    json_decref(m.root);
    return rc;
}
