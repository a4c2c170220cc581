/* From what a step computed to what a reader sees: tokens, stops, events; and the figures that follow. */
#include "base/clock.h"
#include "base/error.h"
#include "base/hist.h"
#include "engine/engine.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void count(_Atomic uint64_t *counter, uint64_t n) {
    atomic_fetch_add_explicit(counter, n, memory_order_relaxed);
}

static double seconds(uint64_t from, uint64_t to) {
    return (double)(to - from) * 1e-6;
}

/* ---- ends -----------------------------------------------------------------------------------------------
 */

/* Durations of a request that came to its natural end. */
static void note_durations(struct quire_stats *st, const struct quire_stream *s, uint64_t now) {
    uint64_t submitted = atomic_load(&s->times.submitted), scheduled = atomic_load(&s->times.scheduled);
    uint64_t first = atomic_load(&s->times.first_token), last = atomic_load(&s->times.last_token);
    size_t n = atomic_load(&s->n_output);
    hist_add(&st->e2e, seconds(submitted, now));
    hist_add(&st->inference, seconds(scheduled, now));
    if (first) hist_add(&st->prefill, seconds(scheduled, first));
    if (first) hist_add(&st->decode, seconds(first, last));
    if (n > 1) hist_add(&st->tpot, seconds(first, last) / (double)(n - 1));
    hist_add(&st->prompt_len, (double)s->seq.n_prompt);
    hist_add(&st->generation_len, (double)n);
    hist_add(&st->max_tokens, (double)s->max_tokens);
    hist_add(&st->preemptions_per_request, (double)(s->seq.n_preempted + s->seq.n_parked));
}

/* Pushes the last event, which is filled but for `finish`, and lets go of the stream. */
static void finish(struct quire_engine *e, struct quire_stream *s, struct ring_event *event,
                   enum quire_finish how) {
    bool in_step = s->seq.n_scheduled || e->step.batch.n_seqs;
    scheduler_remove(e->scheduler, &s->seq);
    if (how == QUIRE_STOP || how == QUIRE_LENGTH) note_durations(&e->stats, s, clock_us());
    count(&e->stats.finished[how], 1);
    atomic_store(&s->n_preempted, s->seq.n_preempted + s->seq.n_parked);
    atomic_fetch_sub(&e->n_live, 1);
    event->finish = (uint8_t)how;
    event->held_bytes = 0;
    engine_note_waker(e, s->waker);
    atomic_store(&s->finished, true);
    stream_publish(s);
    if (in_step)
        e->step.done[e->step.n_done++] = s; /* rows of this step may still point to it */
    else
        stream_drop(s);
}

static struct ring_event *empty_event(struct quire_stream *s) {
    struct ring_event *event = ring_slot(&s->ring);
    memset(event, 0, sizeof *event);
    return event;
}

void deliver_end(struct quire_engine *e, struct quire_stream *s, enum quire_finish how) {
    finish(e, s, empty_event(s), how);
}

void deliver_failure(struct quire_engine *e, struct quire_stream *s, int code, const char *fmt, ...) {
    char text[QUIRE_ERROR_TEXT_BYTES];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    error_set(&s->error, code, "%s", text);
    log_write(e->log, LOG_ERROR, "request failed: %s", text);
    deliver_end(e, s, QUIRE_FAILED);
}

static void fail_nonfinite(struct quire_engine *e, struct quire_stream *s, size_t position) {
    count(&e->stats.nonfinite_requests, 1);
    deliver_failure(e, s, QUIRE_EINTERNAL, "the model gave logits that are not finite at position %zu",
                    position);
}

/* ---- scores ---------------------------------------------------------------------------------------------
 */

static void put_top(struct quire_logprob *dst, const struct sample_result *r) {
    for (size_t i = 0; i < r->n_top; i++)
        dst[i] = (struct quire_logprob){.token = r->top[i].token, .logprob = r->top[i].logprob};
}

void deliver_score(struct quire_engine *e, struct quire_stream *s, const struct step_row *row,
                   const struct sample_result *r) {
    if (!r->finite) {
        fail_nonfinite(e, s, row->position - 1);
        return;
    }
    struct quire_logprob *scores = s->scores + row->position * (1 + s->n_prompt_top);
    scores[0] = (struct quire_logprob){r->token, r->logprob, r->rank};
    put_top(scores + 1, r);
    s->seq.n_scored = row->position; /* positions 0 ... position - 1 have given their scores */
}

static void note_prompt(struct quire_engine *e, struct quire_stream *s) {
    count(&e->stats.prompt_tokens, s->seq.n_prompt);
    count(&e->stats.cached_tokens, atomic_load(&s->n_cached));
}

void deliver_scored(struct quire_engine *e, struct quire_stream *s, uint64_t now) {
    note_prompt(e, s);
    deliver_end(e, s, QUIRE_LENGTH);
}

/* ---- vectors --------------------------------------------------------------------------------------------
 */

/* Sums in double, in order: bits depend on the vector alone. */
static bool scale_vector(struct quire_stream *s, const float *vector, bool score) {
    double sum = 0;
    for (size_t i = 0; i < s->n_vector; i++) sum += (double)vector[i] * vector[i];
    double factor = sum > 0 ? 1 / sqrt(sum) : 0;
    for (size_t i = 0; i < s->n_vector; i++) {
        double v = vector[i];
        if (!s->raw_vector) v = score ? 1 / (1 + exp(-v)) : v * factor;
        s->vector[i] = (float)v;
    }
    return isfinite(sum);
}

void deliver_vector(struct quire_engine *e, struct quire_stream *s, const float *vector) {
    if (!scale_vector(s, vector, e->limits.pooling == QUIRE_POOLING_RANK)) {
        count(&e->stats.nonfinite_requests, 1);
        deliver_failure(e, s, QUIRE_EINTERNAL, "the model gave a vector that is not finite");
        return;
    }
    s->has_vector = true;
    note_prompt(e, s);
    deliver_end(e, s, QUIRE_STOP);
}

/* ---- tokens ---------------------------------------------------------------------------------------------
 */

static void note_token(struct quire_engine *e, struct quire_stream *s, uint64_t now) {
    uint64_t last = atomic_load(&s->times.last_token);
    if (!last) {
        atomic_store(&s->times.first_token, now);
        hist_add(&e->stats.ttft, seconds(atomic_load(&s->times.submitted), now));
        note_prompt(e, s);
    } else {
        hist_add(&e->stats.itl, seconds(last, now));
    }
    atomic_store(&s->times.last_token, now);
    atomic_fetch_add(&s->n_output, 1);
    count(&e->stats.generation_tokens, 1);
}

/* Looks for a stop string in the bytes of a token; true when the output ends there. */
static bool match_stops(struct quire_engine *e, struct quire_stream *s, uint32_t token, bool mute) {
    const struct quire_token_bytes *t = e->limits.token_bytes;
    struct stop_hit hit;
    if (!s->stop.n || token >= t->n_vocab) return false;
    const uint8_t *bytes = t->bytes + t->offsets[token];
    if (!stop_feed(&s->stop, bytes, t->offsets[token + 1] - t->offsets[token], mute, &hit)) return false;
    const struct stop_string *string = &s->stop.strings[hit.which];
    s->trim_bytes = hit.n_after + (s->include_stop ? 0 : string->len);
    s->stop_reason = string->text;
    return true;
}

static enum quire_finish decide(struct quire_engine *e, struct quire_stream *s, uint32_t token) {
    size_t n = s->seq.n_known - s->seq.n_prompt; /* this token included */
    if (n > s->sampler.min_tokens && stream_is_stop_id(s, token)) {
        s->stop_token = token;
        return QUIRE_STOP;
    }
    if (match_stops(e, s, token, n < s->sampler.min_tokens)) return QUIRE_STOP;
    return n == s->max_tokens ? QUIRE_LENGTH : QUIRE_RUNNING;
}

void deliver_token(struct quire_engine *e, struct quire_stream *s, const struct step_row *row,
                   const struct sample_result *r, uint64_t now) {
    if (!r->finite) {
        fail_nonfinite(e, s, row->position - 1);
        return;
    }
    if (row->mask_failed || !r->allowed ||
        (s->has_constraint && s->constraint.accept(s->constraint.state, r->token) < 0)) {
        deliver_failure(e, s, QUIRE_EINTERNAL, "no token is allowed at position %zu", row->position);
        return;
    }
    sequence_append(&s->seq, r->token, e->limits.secret, e->plan.block_tokens);
    sampler_note(&s->sampler, r->token, false);
    note_token(e, s, now);

    struct ring_event *event = empty_event(s);
    event->has_token = true;
    event->chosen.token = r->token;
    if (s->want_logprobs) {
        event->chosen.logprob = r->logprob;
        event->chosen.rank = r->rank;
        event->n_top = (uint16_t)r->n_top;
        put_top(event->top, r);
    }
    enum quire_finish how = decide(e, s, r->token);
    if (how != QUIRE_RUNNING) {
        finish(e, s, event, how);
        return;
    }
    event->held_bytes = s->include_stop ? 0 : (uint32_t)stop_held(&s->stop);
    engine_note_waker(e, s->waker);
    stream_publish(s);
}
