#include "sim/calibrate.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/rng.h"
#include "base/size.h"

#include <quire/quire.h>

#include <stdlib.h>
#include <string.h>

/* ---- the log ---- */

static void keep_step(void *ctx, const struct quire_step *step) {
    struct step_log *log = ctx;
    size_t n = atomic_load(&log->n);
    if (n == log->cap) return;
    log->steps[n] = *step;
    atomic_store(&log->n, n + 1);
}

int step_log_open(struct step_log *log, size_t cap, struct error *err) {
    *log = (struct step_log){.cap = cap, .reader = {keep_step, log}};
    log->steps = calloc(cap, sizeof *log->steps);
    return log->steps ? 0 : error_set(err, QUIRE_ENOMEM, "out of memory for %zu steps", cap);
}

void step_log_close(struct step_log *log) {
    free(log->steps);
    log->steps = NULL;
}

/* ---- mixes ---- */

/* n sequences of prefix (shared, so computed once) + prompt tokens, each with an answer; once the first token
 * is there, n_late more come. */
struct mix {
    uint16_t n, prefix, prompt, output, n_late, late_prompt, late_output;
};

static const struct mix mixes[] = {
    {1, 0, 8, 24, 0, 0, 0},     {2, 0, 8, 16, 0, 0, 0},    {3, 0, 8, 10, 0, 0, 0},
    {4, 0, 8, 16, 0, 0, 0},     {6, 0, 8, 10, 0, 0, 0},    {8, 0, 8, 16, 0, 0, 0},
    {12, 0, 8, 10, 0, 0, 0},    {16, 0, 8, 14, 0, 0, 0},   {24, 0, 8, 10, 0, 0, 0},
    {32, 0, 8, 14, 0, 0, 0},    {48, 0, 6, 8, 0, 0, 0},    {64, 0, 6, 12, 0, 0, 0},
    {96, 0, 4, 8, 0, 0, 0},     {128, 0, 4, 10, 0, 0, 0},  {1, 0, 2, 1, 0, 0, 0},
    {1, 0, 16, 1, 0, 0, 0},     {1, 0, 32, 1, 0, 0, 0},    {1, 0, 64, 1, 0, 0, 0},
    {1, 0, 100, 1, 0, 0, 0},    {1, 0, 200, 1, 0, 0, 0},   {1, 0, 400, 2, 0, 0, 0},
    {1, 0, 900, 2, 0, 0, 0},    {4, 0, 64, 2, 0, 0, 0},    {8, 0, 48, 2, 0, 0, 0},
    {1, 1024, 16, 16, 0, 0, 0}, {4, 1024, 8, 10, 0, 0, 0}, {16, 1024, 8, 10, 0, 0, 0},
    {48, 1024, 4, 8, 0, 0, 0},  {2, 3000, 8, 10, 0, 0, 0}, {4, 0, 16, 24, 2, 150, 4},
    {12, 0, 16, 20, 3, 100, 4}, {32, 0, 8, 20, 4, 64, 4},  {8, 512, 8, 20, 1, 300, 2},
};

struct calibrator {
    struct quire_engine *engine;
    const struct calibrate_options *o;
    struct error *err;
    uint32_t *prompt, n_drawn;
    struct quire_stream **streams;
    size_t n;
};

static void fill(struct calibrator *c, uint32_t *to, size_t n, uint32_t what) {
    size_t n_vocab = quire_info(c->engine)->n_vocab;
    for (size_t i = 0; i < n; i++) to[i] = rng_philox(what, (uint32_t)i, 0, 0, 0).v[0] % (uint32_t)n_vocab;
}

static int submit(struct calibrator *c, size_t prefix, size_t prompt, size_t output) {
    fill(c, c->prompt, prefix, 0);
    fill(c, c->prompt + prefix, prompt, ++c->n_drawn);
    struct quire_request q = {.prompt = c->prompt,
                              .n_prompt = prefix + prompt,
                              .sampling = {.top_p = 1,
                                           .repetition_penalty = 1,
                                           .max_tokens = output,
                                           .ignore_eos = true,
                                           .n_logprobs = -1,
                                           .n_prompt_logprobs = -1}};
    int rc = quire_submit(c->engine, &q, &c->streams[c->n], c->err);
    if (!rc) c->n++;
    return rc;
}

static bool stopped(const struct calibrator *c) {
    return c->o->interrupted && *c->o->interrupted;
}

/* Until the stream's next event, or its last. */
static int wait_for(struct calibrator *c, struct quire_stream *s, bool last) {
    struct quire_event event = {0};
    do {
        while (!quire_wait(s, &event, 200000))
            if (stopped(c)) return error_set(c->err, QUIRE_ECANCELED, "interrupted");
        if (event.finish == QUIRE_FAILED) return error_set(c->err, QUIRE_EINTERNAL, "%s", event.error->text);
    } while (last && event.finish == QUIRE_RUNNING);
    return 0;
}

static int run_mix(struct calibrator *c, const struct mix *m) {
    int rc = 0;
    size_t waited = 0;
    c->n = 0;
    for (size_t i = 0; i < m->n && !rc; i++) rc = submit(c, m->prefix, m->prompt, m->output);
    if (!rc && m->n_late) rc = wait_for(c, c->streams[0], false);
    for (size_t i = 0; i < m->n_late && !rc; i++) rc = submit(c, 0, m->late_prompt, m->late_output);
    for (; waited < c->n && !rc; waited++) rc = wait_for(c, c->streams[waited], true);
    for (size_t i = 0; i < c->n; i++) quire_close(c->streams[i]);
    return rc;
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

static int run_all(struct calibrator *c, size_t max_num_seqs) {
    uint64_t start = clock_us(), end = start + (uint64_t)(c->o->seconds * 1e6);
    size_t n = sizeof mixes / sizeof *mixes, n_run = 0;
    for (int round = 0; !round || clock_us() < end; round++) {
        for (size_t i = 0; i < n && (!round || clock_us() < end); i++) {
            if (!allowed(c, &mixes[i], max_num_seqs)) continue;
            int rc = run_mix(c, &mixes[i]);
            if (rc) return rc;
            n_run++;
            if (c->o->progress)
                fprintf(c->o->progress, "\rcalibrating: %zu mixes, %.0f s", n_run,
                        (double)(clock_us() - start) / 1e6);
        }
        if (!n_run)
            return error_set(c->err, QUIRE_EINVAL,
                             "max-num-seqs, max-model-len or KV memory is too small to "
                             "calibrate with");
    }
    if (c->o->progress) fprintf(c->o->progress, "\r\033[K");
    return 0;
}

int calibrate_run(struct quire_engine *e, size_t max_num_seqs, const struct calibrate_options *o,
                  struct error *err) {
    struct calibrator c = {.engine = e, .o = o, .err = err};
    c.prompt = calloc(1 << 16, sizeof *c.prompt);
    c.streams = calloc(1024, sizeof *c.streams);
    int rc =
        c.prompt && c.streams ? run_all(&c, max_num_seqs) : error_set(err, QUIRE_ENOMEM, "out of memory");
    free(c.prompt);
    free(c.streams);
    return rc;
}
