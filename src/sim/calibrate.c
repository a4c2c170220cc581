#include "sim/calibrate.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/rng.h"
#include "base/size.h"

#include <math.h>
#include <stdlib.h>

/* ---- the log ---- */

void step_log_free(struct step_log *log) {
    free(log->steps);
    free(log->end_us);
    *log = (struct step_log){0};
}

static bool make_room(struct step_log *log, size_t n) {
    if (log->n + n <= log->cap) return true;
    size_t cap = size_max(2 * log->cap, log->n + n);
    struct quire_step *steps = realloc(log->steps, cap * sizeof *steps);
    if (steps) log->steps = steps;
    uint64_t *end_us = steps ? realloc(log->end_us, cap * sizeof *end_us) : NULL;
    if (!end_us) return false;
    log->end_us = end_us;
    log->cap = cap;
    return true;
}

int step_log_keep(struct step_log *log, struct drive *d, struct error *err) {
    size_t n;
    const struct drive_step *steps = drive_steps(d, &n);
    if (!make_room(log, n)) return error_set(err, QUIRE_ENOMEM, "out of memory for %zu steps", log->n + n);
    for (size_t i = 0; i < n; i++, log->n++) {
        log->steps[log->n] = steps[i].step;
        log->end_us[log->n] = steps[i].end_us;
    }
    return 0;
}

/* ---- mixes ---- */

/* n sequences of prefix (the same for all, so computed once) + prompt tokens, each with an answer; once the
 * first token is there, n_late more come. */
struct mix {
    uint16_t n, prefix, prompt, output, n_late, late_prompt, late_output;
};

static const struct mix mixes[] = {
    {1, 0, 8, 16, 0, 0, 0},     {2, 0, 8, 10, 0, 0, 0},     {3, 0, 8, 8, 0, 0, 0},
    {4, 0, 8, 8, 0, 0, 0},      {6, 0, 8, 6, 0, 0, 0},      {8, 0, 8, 8, 0, 0, 0},
    {12, 0, 8, 5, 0, 0, 0},     {16, 0, 8, 6, 0, 0, 0},     {24, 0, 6, 4, 0, 0, 0},
    {32, 0, 4, 5, 0, 0, 0},     {48, 0, 4, 3, 0, 0, 0},     {64, 0, 4, 4, 0, 0, 0},
    {96, 0, 2, 3, 0, 0, 0},     {128, 0, 2, 3, 0, 0, 0},    {1, 0, 2, 1, 0, 0, 0},
    {1, 0, 16, 1, 0, 0, 0},     {1, 0, 32, 1, 0, 0, 0},     {1, 0, 64, 1, 0, 0, 0},
    {1, 0, 100, 1, 0, 0, 0},    {1, 0, 130, 1, 0, 0, 0},    {1, 0, 200, 1, 0, 0, 0},
    {1, 0, 400, 1, 0, 0, 0},    {1, 0, 700, 1, 0, 0, 0},    {4, 0, 64, 1, 0, 0, 0},
    {8, 0, 24, 1, 0, 0, 0},     {1, 1024, 16, 10, 0, 0, 0}, {4, 1024, 8, 6, 0, 0, 0},
    {16, 1024, 8, 4, 0, 0, 0},  {48, 1024, 4, 3, 0, 0, 0},  {2, 2000, 8, 6, 0, 0, 0},
    {1, 0, 8, 10, 1, 128, 2},   {4, 0, 16, 16, 2, 150, 3},  {7, 0, 8, 12, 1, 128, 2},
    {12, 0, 16, 10, 2, 120, 3}, {32, 0, 4, 8, 3, 64, 3},    {8, 512, 8, 10, 1, 300, 2},
};
#define N_MIXES (sizeof mixes / sizeof *mixes)

struct calibrator {
    struct drive *drive;
    struct quire_engine *engine;
    const struct calibrate_options *o;
    struct step_log *log;
    struct error *err;
    size_t n_run;
    uint64_t start_us, until_us; /* until_us: in any case */
};

static int run_mix(struct calibrator *c, const struct mix *m) {
    struct drive_load l = {.n_seqs = m->n,
                           .n_prompt = (size_t)m->prefix + m->prompt,
                           .n_output = m->output,
                           .seed = ++c->n_run,
                           .cached = m->prefix > 0,
                           .n_prefix = m->prefix,
                           .n_late = m->n_late,
                           .late_prompt = m->late_prompt,
                           .late_output = m->late_output,
                           .until_us = c->until_us};
    int rc = drive_run(c->drive, c->engine, &l, c->o->interrupted, c->err);
    return rc ? rc : step_log_keep(c->log, c->drive, c->err);
}

static bool interrupted(const struct calibrator *c) {
    return c->o->interrupted && *c->o->interrupted;
}

static bool allowed(const struct calibrator *c, const struct mix *m, size_t max_num_seqs) {
    const struct quire_info *info = quire_info(c->engine);
    size_t longest =
        size_max((size_t)m->prefix + m->prompt + m->output, (size_t)m->late_prompt + m->late_output);
    size_t most = (size_t)m->prefix + (size_t)m->n * (m->prompt + m->output + 2 * info->block_tokens) +
                  (size_t)m->n_late * (m->late_prompt + m->late_output);
    return (size_t)m->n + m->n_late <= max_num_seqs && longest <= info->max_model_len &&
           most <= info->n_blocks * info->block_tokens / 2;
}

/* The order of a round (Fisher and Yates). */
static void shuffle(const struct mix **order, size_t n, uint32_t round) {
    for (size_t i = n; i > 1; i--) {
        size_t k = rng_philox(round, (uint32_t)i, 0, 0x73687566, 0).v[0] % i;
        const struct mix *m = order[i - 1];
        order[i - 1] = order[k];
        order[k] = m;
    }
}

#define BETWEEN 6 /* mixes */

/* What is measured between mixes takes none of their time. */
static int pause_mixes(struct calibrator *c, uint64_t *end_us) {
    uint64_t start = clock_us();
    if (!c->o->between || c->n_run % BETWEEN) return 0;
    int rc = c->o->between(c->o->ctx, c->err);
    *end_us += clock_us() - start;
    return rc;
}

static void show(const struct calibrator *c) {
    if (c->o->progress)
        fprintf(c->o->progress, "\rcalibrating: %zu mixes, %.0f s", c->n_run,
                (double)(clock_us() - c->start_us) / 1e6);
}

static int run_all(struct calibrator *c, const struct mix **order, size_t n) {
    uint64_t end = c->start_us + (uint64_t)(c->o->seconds * 1e6);
    int rc = 0;
    for (uint32_t round = 0; !rc && (!round || clock_us() < end); round++) {
        shuffle(order, n, round);
        for (size_t i = 0; i < n && !rc && (!round || clock_us() < end); i++) {
            rc = run_mix(c, order[i]);
            if (!rc && !round) c->log->share += 1.0 / (double)n;
            if (!rc) rc = pause_mixes(c, &end);
            show(c);
        }
    }
    if (c->o->progress) fprintf(c->o->progress, "\r\033[K");
    return rc && rc != QUIRE_ENOMEM && !interrupted(c) && clock_us() >= c->until_us ? 0 : rc;
}

int calibrate_run(struct drive *d, struct quire_engine *e, size_t max_num_seqs,
                  const struct calibrate_options *o, struct step_log *log, struct error *err) {
    struct calibrator c = {.drive = d, .engine = e, .o = o, .log = log, .err = err, .start_us = clock_us()};
    c.until_us = c.start_us + (uint64_t)(o->limit_s * 1e6);
    const struct mix *order[N_MIXES];
    size_t n = 0;
    for (size_t i = 0; i < N_MIXES; i++)
        if (allowed(&c, &mixes[i], max_num_seqs)) order[n++] = &mixes[i];
    if (!n)
        return error_set(err, QUIRE_EINVAL,
                         "max-num-seqs, max-model-len or KV memory is too small to calibrate with");
    return run_all(&c, order, n);
}

/* ---- steps that are served ---- */

#define PAUSE_US 3000 /* longer between two steps: there was no work, or something else had the machine */
#define MANY     8    /* rows */

static double took_us(const struct quire_step *s) {
    return (double)(s->prepare_us + s->forward_us + s->sample_us);
}

/* Between a step and the one before it; negative: not known, or there was no work. */
static double gap_before(const struct step_log *log, size_t i) {
    if (!i || log->end_us[i] < log->end_us[i - 1]) return -1;
    double gap = fmax(0, (double)(log->end_us[i] - log->end_us[i - 1]) - took_us(&log->steps[i]));
    return gap > PAUSE_US ? -1 : gap;
}

/* From decodes of one row and of many: what passes between steps, and preparing and sampling beyond what the
 * model says. With rows of answers there was work when the step before had ended. */
static void find_gaps(const struct step_log *log, const struct step_model *m, double *gap_us, double *row_us) {
    double sum[2] = {0}, rows[2] = {0}, count[2] = {0};
    for (size_t i = 1; i < log->n; i++) {
        struct quire_step s = log->steps[i];
        double gap = gap_before(log, i), rest = (double)(s.prepare_us + s.sample_us);
        int many = s.n_logit_rows >= MANY;
        if (!s.n_decode_rows || gap < 0 || (!many && s.n_logit_rows != 1)) continue;
        step_model_time(m, &s);
        sum[many] += gap + rest - (double)s.sample_us;
        rows[many] += (double)s.n_logit_rows;
        count[many]++;
    }
    double one = count[0] > 0 ? sum[0] / count[0] : 0, all = count[1] > 0 ? sum[1] / count[1] : 0;
    double more = count[1] > 0 ? rows[1] / count[1] - 1 : 0;
    *row_us = more > 0 && count[0] > 0 ? fmax(0, (all - one) / more) : 0;
    *gap_us = fmax(0, one - *row_us);
}

int calibrate_served(const struct step_log *served, struct step_model *m, double *gap_us, double *row_us,
                     struct error *err) {
    size_t n = served->n;
    double *took = calloc(2 * (n + 1), sizeof *took), *mean = took + n + 1;
    struct wander *w = malloc(sizeof *w);
    bool enough = took && w;
    if (enough) {
        find_gaps(served, m, gap_us, row_us);
        for (size_t i = 0; i < n; i++) {
            struct quire_step s = served->steps[i];
            double gap = gap_before(served, i);
            took[i] = took_us(&s) + fmax(0, gap);
            step_model_time(m, &s);
            mean[i] = took_us(&s) + *row_us * (double)s.n_logit_rows + (gap >= 0 ? *gap_us : 0);
        }
        wander_make(took, mean, n, w);
        if (w->n) m->wander = *w;
    }
    free(took);
    free(w);
    return enough ? 0 : error_set(err, QUIRE_ENOMEM, "out of memory for %zu steps", n);
}
