#include "eval/score.h"

#include "base/error.h"
#include "base/size.h"

#include <quire/score.h>

#include <stdlib.h>
#include <string.h>

#define WAIT_US       100000
#define FLIGHT_TOKENS 2048 /* as a step by default */

/* One window under way. */
struct slot {
    const struct score_job *job;
    size_t window;
    struct quire_stream *stream; /* NULL: free */
    struct quire_score_reader reader;
    void *rows;
};

struct flight {
    struct slot *slots;
    size_t n, first, n_busy; /* a ring: the oldest is slots[first] */
    uint32_t *prompt;
};

static void read_row(void *ctx, size_t position, const float *logits, size_t n_vocab) {
    struct slot *s = ctx;
    size_t row = position - s->job->w->list[s->window].first;
    s->job->read(s->job->user, s->rows, s->window, row, logits, n_vocab);
}

static int launch(const struct score_job *job, struct flight *f, size_t window, struct error *err) {
    struct slot *s = &f->slots[(f->first + f->n_busy) % f->n];
    const struct window *w = &job->w->list[window];
    windows_prompt(job->w, window, f->prompt);
    s->job = job;
    s->window = window;
    s->reader = (struct quire_score_reader){read_row, s};
    struct quire_request q = {.prompt = f->prompt,
                              .n_prompt = w->n,
                              .sampling = {.top_p = 1,
                                           .repetition_penalty = 1,
                                           .n_logprobs = -1,
                                           .n_prompt_logprobs = 0,
                                           .first_prompt_logprob = w->first},
                              .skip_prefix_cache = true,
                              .score_reader = job->read ? &s->reader : NULL};
    int rc = quire_submit(job->c->local->engine, &q, &s->stream, err);
    if (!rc) f->n_busy++;
    return rc;
}

/* The oldest window to its end. */
static int land(const struct score_job *job, struct flight *f, struct error *err) {
    struct slot *s = &f->slots[f->first];
    const struct window *w = &job->w->list[s->window];
    struct quire_event e = {0};
    while (e.finish == QUIRE_RUNNING) {
        if (!quire_wait(s->stream, &e, WAIT_US) && job->c->stopped && job->c->stopped(job->c->stopped_ctx))
            return EVAL_STOPPED;
    }
    if (e.finish == QUIRE_FAILED) {
        *err = *e.error;
        return error_prefix(err, "window %zu", s->window);
    }
    struct scored scored = {.window = s->window, .rows = s->rows};
    for (size_t i = w->first; i < w->n; i++) {
        size_t n;
        const struct quire_logprob *p = quire_prompt_logprobs(s->stream, i, &n);
        if (!p) return error_set(err, QUIRE_ECANCELED, "window %zu: the engine stopped", s->window);
        scored.nll -= (double)p->logprob;
        scored.nll_squares += (double)p->logprob * (double)p->logprob;
        scored.n++;
    }
    quire_close(s->stream);
    s->stream = NULL;
    f->first = (f->first + 1) % f->n;
    f->n_busy--;
    return job->done(job->user, &scored, err);
}

static int fly(const struct score_job *job, struct flight *f, struct error *err) {
    struct bar bar;
    char note[80] = "";
    int rc = 0;
    bar_start(&bar, "windows", job->items->n_done, job->w->n);
    for (size_t next = 0; !rc && (next < job->w->n || f->n_busy);) {
        if (next < job->w->n && job->items->items[next].done) {
            next++;
            continue;
        }
        if (next < job->w->n && f->n_busy < f->n) {
            rc = launch(job, f, next++, err);
            continue;
        }
        rc = land(job, f, err);
        if (job->note) job->note(job->user, note, sizeof note);
        bar_show(&bar, job->items->n_done, note);
        if (!rc && job->items->n_done < job->w->n && job->c->stopped && job->c->stopped(job->c->stopped_ctx))
            rc = EVAL_STOPPED;
    }
    bar_end(&bar);
    return rc;
}

/* Twice what a step takes, so that the next is there when one ends. */
size_t eval_in_flight(size_t context, size_t max_num_batched_tokens) {
    return 1 + size_div_up(2 * max_num_batched_tokens, context);
}

int score_windows(const struct score_job *job, struct error *err) {
    struct flight f = {.n = eval_in_flight(job->w->context, FLIGHT_TOKENS)};
    f.slots = calloc(f.n, sizeof *f.slots);
    f.prompt = calloc(job->w->context, sizeof *f.prompt);
    int rc = f.slots && f.prompt ? 0 : QUIRE_ENOMEM;
    for (size_t i = 0; !rc && job->rows_bytes && i < f.n; i++)
        if (!(f.slots[i].rows = malloc(job->rows_bytes))) rc = QUIRE_ENOMEM;
    if (rc)
        error_set(err, rc, "out of memory for windows of %zu tokens", job->w->context);
    else
        rc = fly(job, &f, err);
    for (size_t i = 0; f.slots && i < f.n; i++) {
        struct quire_event e = {0};
        if (f.slots[i].stream) quire_cancel(f.slots[i].stream); /* its rows are read until it has ended */
        while (f.slots[i].stream && e.finish == QUIRE_RUNNING) quire_wait(f.slots[i].stream, &e, WAIT_US);
        quire_close(f.slots[i].stream);
        free(f.slots[i].rows);
    }
    free(f.slots);
    free(f.prompt);
    return rc;
}
