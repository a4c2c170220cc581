#include "bench/drive.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/rng.h"
#include "base/size.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TICK_US   100000  /* between two looks at `interrupted` */
#define SETTLE_US 5000000 /* for the last steps to be told, after the last event */

struct drive {
    struct quire_step_reader reader;
    struct quire_waker waker;
    pthread_mutex_t lock;
    pthread_cond_t woken, released;
    bool holding; /* the engine waits after its first step, so that all sequences of a load begin together.
                     The rest, too, is under the lock */
    bool awake;
    struct drive_step *steps; /* [max_steps] */
    size_t n_steps, max_steps, n_lost;
    uint64_t n_rows; /* of all steps */
};

static void read_step(void *ctx, const struct quire_step *step) {
    struct drive *d = ctx;
    pthread_mutex_lock(&d->lock);
    while (d->holding) pthread_cond_wait(&d->released, &d->lock);
    d->n_rows += step->n_prefill_rows + step->n_decode_rows;
    if (d->n_steps < d->max_steps)
        d->steps[d->n_steps++] = (struct drive_step){*step, clock_us()};
    else
        d->n_lost++;
    d->awake = true;
    pthread_cond_signal(&d->woken);
    pthread_mutex_unlock(&d->lock);
}

static void wake(void *ctx) {
    struct drive *d = ctx;
    pthread_mutex_lock(&d->lock);
    d->awake = true;
    pthread_cond_signal(&d->woken);
    pthread_mutex_unlock(&d->lock);
}

int drive_create(size_t max_steps, struct drive **out, struct error *err) {
    struct drive *d = calloc(1, sizeof *d);
    pthread_condattr_t attr;
    *out = NULL;
    if (d) d->steps = calloc(max_steps, sizeof *d->steps);
    if (!d || !d->steps) {
        free(d);
        return error_set(err, QUIRE_ENOMEM, "out of memory for %zu steps", max_steps);
    }
    d->max_steps = max_steps;
    d->reader = (struct quire_step_reader){read_step, d};
    d->waker = (struct quire_waker){wake, d};
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_mutex_init(&d->lock, NULL);
    pthread_cond_init(&d->woken, &attr);
    pthread_cond_init(&d->released, NULL);
    pthread_condattr_destroy(&attr);
    *out = d;
    return 0;
}

const struct quire_step_reader *drive_reader(const struct drive *d) {
    return &d->reader;
}

void drive_free(struct drive *d) {
    if (!d) return;
    pthread_cond_destroy(&d->woken);
    pthread_cond_destroy(&d->released);
    pthread_mutex_destroy(&d->lock);
    free(d->steps);
    free(d);
}

const struct drive_step *drive_steps(struct drive *d, size_t *n) {
    pthread_mutex_lock(&d->lock);
    *n = d->n_steps;
    pthread_mutex_unlock(&d->lock);
    return d->steps;
}

/* Until the engine has told something, or a tick has passed. */
static void await(struct drive *d) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += TICK_US * 1000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_mutex_lock(&d->lock);
    while (!d->awake && !pthread_cond_timedwait(&d->woken, &d->lock, &until)) {}
    d->awake = false;
    pthread_mutex_unlock(&d->lock);
}

/* ---- one run ---- */

struct flight {
    struct quire_stream **streams; /* [n] NULL: its end has been read, or it is not submitted yet */
    size_t n, n_submitted, n_left;
    bool begun;      /* the first has its first token */
    uint64_t n_rows; /* computed by those that have ended */
    uint32_t *prompt;
};

static void draw_prompt(const struct drive_load *l, size_t i, size_t n_prompt, uint32_t n_vocab,
                        uint32_t *prompt) {
    size_t n_prefix = i < l->n_seqs ? size_min(l->n_prefix, n_prompt) : 0;
    for (size_t k = 0; k < n_prompt; k++) {
        struct rng_block b = k < n_prefix ? rng_philox(0, (uint32_t)k, 0, 0x70726566, 0)
                                          : rng_philox(l->seed, (uint32_t)k, (uint32_t)i, 0x64726976, 0);
        prompt[k] = b.v[0] % n_vocab;
    }
}

/* Those up to `end`; from n_seqs on they are the late ones. */
static int submit(struct drive *d, struct quire_engine *e, const struct drive_load *l, size_t end,
                  struct flight *f, struct error *err) {
    struct quire_request r = {.prompt = f->prompt,
                              .sampling = {.top_p = 1,
                                           .repetition_penalty = 1,
                                           .ignore_eos = true,
                                           .n_logprobs = -1,
                                           .n_prompt_logprobs = -1},
                              .skip_prefix_cache = !l->cached,
                              .waker = &d->waker};
    int rc = 0;
    for (size_t i = f->n_submitted; i < end && !rc; i++) {
        bool late = i >= l->n_seqs;
        r.n_prompt = late ? l->late_prompt : l->n_prompt;
        r.sampling.max_tokens = late ? l->late_output : l->n_output;
        draw_prompt(l, i, r.n_prompt, (uint32_t)quire_info(e)->n_vocab, f->prompt);
        rc = quire_submit(e, &r, &f->streams[i], err);
        f->n_submitted += !rc;
    }
    return rc;
}

/* Reads whatever is there, of all streams, so that none is ever behind. */
static int read_events(struct flight *f, struct error *err) {
    int rc = 0;
    for (size_t i = 0; i < f->n; i++) {
        struct quire_event event = {0};
        while (f->streams[i] && quire_poll(f->streams[i], &event)) {
            f->begun = true;
            if (event.finish == QUIRE_RUNNING) continue;
            if (event.finish != QUIRE_LENGTH && event.finish != QUIRE_STOP && !rc)
                rc = error_set(err, event.error ? event.error->code : QUIRE_ECANCELED,
                               "a sequence ended early: %s",
                               event.error ? event.error->text : "the engine is stopping");
            struct quire_usage u = quire_usage(f->streams[i]);
            if (u.completion_tokens) f->n_rows += u.prompt_tokens - u.cached_tokens + u.completion_tokens - 1;
            quire_close(f->streams[i]);
            f->streams[i] = NULL;
            f->n_left--;
        }
    }
    return rc;
}

static uint64_t rows_told(struct drive *d) {
    pthread_mutex_lock(&d->lock);
    uint64_t n = d->n_rows;
    pthread_mutex_unlock(&d->lock);
    return n;
}

/* A step is told after its events. */
static int settle(struct drive *d, const struct flight *f, struct error *err) {
    uint64_t start = clock_us();
    while (rows_told(d) < f->n_rows) {
        if (clock_us() - start > SETTLE_US)
            return error_set(err, QUIRE_EINTERNAL, "the steps of %llu rows were told, %llu were computed",
                             (unsigned long long)rows_told(d), (unsigned long long)f->n_rows);
        await(d);
    }
    if (d->n_lost)
        return error_set(err, QUIRE_ELIMIT, "a run took %zu steps, %zu more than there is room for",
                         d->n_steps + d->n_lost, d->n_lost);
    return 0;
}

void drive_forget(struct drive *d) {
    pthread_mutex_lock(&d->lock);
    d->n_steps = d->n_lost = 0;
    d->n_rows = 0;
    pthread_mutex_unlock(&d->lock);
}

static void hold(struct drive *d, bool holding) {
    pthread_mutex_lock(&d->lock);
    d->holding = holding;
    if (!holding) pthread_cond_broadcast(&d->released);
    pthread_mutex_unlock(&d->lock);
}

/* Submits, and reads until all have ended. */
static int fly(struct drive *d, struct quire_engine *e, const struct drive_load *l,
               const volatile int *interrupted, struct flight *f, struct error *err) {
    hold(d, true);
    int rc = submit(d, e, l, l->n_seqs, f, err);
    hold(d, false);
    while (!rc && f->n_left) {
        await(d);
        rc = interrupted && *interrupted              ? error_set(err, QUIRE_ECANCELED, "interrupted")
             : l->until_us && clock_us() >= l->until_us ? error_set(err, QUIRE_ECANCELED, "its time is over")
                                                        : read_events(f, err);
        if (!rc && f->begun && f->n_submitted < f->n) rc = submit(d, e, l, f->n, f, err);
    }
    return rc;
}

static void land(struct flight *f) {
    for (size_t i = 0; f->streams && i < f->n; i++)
        if (f->streams[i]) quire_cancel(f->streams[i]);
    for (size_t i = 0; f->streams && i < f->n; i++) {
        struct quire_event event = {0};
        while (f->streams[i] && event.finish == QUIRE_RUNNING) quire_wait(f->streams[i], &event, TICK_US);
        quire_close(f->streams[i]);
    }
}

int drive_run(struct drive *d, struct quire_engine *e, const struct drive_load *l,
              const volatile int *interrupted, struct error *err) {
    struct flight f = {.n = l->n_seqs + l->n_late, .n_left = l->n_seqs + l->n_late};
    f.streams = calloc(f.n, sizeof *f.streams);
    f.prompt = calloc(size_max(l->n_prompt, l->late_prompt), sizeof *f.prompt);
    drive_forget(d);
    int rc = f.streams && f.prompt ? fly(d, e, l, interrupted, &f, err)
                                   : error_set(err, QUIRE_ENOMEM, "out of memory for %zu sequences", f.n);
    land(&f);
    if (!rc) rc = settle(d, &f, err);
    free(f.streams);
    free(f.prompt);
    return rc;
}
