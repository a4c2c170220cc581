/* One step: prepare (plan, build the batch), forward, complete (sample, deliver). */
#include "base/clock.h"
#include "base/error.h"
#include "base/hist.h"
#include "base/size.h"
#include "engine/engine.h"
#include "engine/step_shape.h"

#include <quire/score.h>
#include <quire/step.h>

#include <stdlib.h>
#include <string.h>

/* ---- life -----------------------------------------------------------------------------------------------
 */

static size_t vector_floats(const struct plan *p, const struct model_spec *spec) {
    return STEP_VECTORS * model_vector_floats(spec, p->pooling);
}

size_t step_bytes(const struct plan *p, const struct model_spec *spec) {
    /* Limits are ranged (plan.c), so nothing here overflows. */
    return p->max_num_batched_tokens * 3 * sizeof(uint32_t) +
           p->max_num_seqs * (sizeof(struct batch_seq) + sizeof(struct quire_stream *)) +
           vector_floats(p, spec) * sizeof(float) +
           p->max_kept_rows * (sizeof(uint32_t) + sizeof(struct step_row)) +
           p->max_logit_rows * (sizeof(struct sample_row) + sizeof(struct sample_result) + sizeof(size_t));
}

int step_create(struct step *s, const struct plan *p, const struct model_spec *spec, struct error *err) {
    s->batch.token = calloc(p->max_num_batched_tokens, sizeof(uint32_t));
    s->batch.position = calloc(p->max_num_batched_tokens, sizeof(uint32_t));
    s->batch.seq = calloc(p->max_num_batched_tokens, sizeof(uint32_t));
    s->batch.seqs = calloc(p->max_num_seqs, sizeof *s->batch.seqs);
    s->batch.logit_rows = calloc(p->max_kept_rows, sizeof(uint32_t));
    s->rows = calloc(p->max_kept_rows, sizeof *s->rows);
    s->sample_rows = calloc(p->max_logit_rows, sizeof *s->sample_rows);
    s->sample_results = calloc(p->max_logit_rows, sizeof *s->sample_results);
    s->masked = calloc(p->max_logit_rows, sizeof *s->masked);
    s->vectors = calloc(vector_floats(p, spec), sizeof *s->vectors);
    s->done = calloc(p->max_num_seqs, sizeof(struct quire_stream *));
    if (s->batch.token && s->batch.position && s->batch.seq && s->batch.seqs && s->batch.logit_rows &&
        s->rows && s->sample_rows && s->sample_results && s->masked && s->vectors && s->done)
        return 0;
    step_free(s);
    return error_set(err, QUIRE_ENOMEM, "out of memory for the buffers of a step");
}

void step_free(struct step *s) {
    free(s->batch.token);
    free(s->batch.position);
    free(s->batch.seq);
    free(s->batch.seqs);
    free(s->batch.logit_rows);
    free(s->rows);
    free(s->sample_rows);
    free(s->sample_results);
    free(s->masked);
    free(s->vectors);
    free(s->done);
    memset(s, 0, sizeof *s);
}

/* ---- prepare --------------------------------------------------------------------------------------------
 */

static void keep_row(struct step *st, size_t row, struct sequence *seq, size_t position, bool score) {
    st->batch.logit_rows[st->batch.n_logit_rows] = (uint32_t)row;
    st->rows[st->batch.n_logit_rows++] = (struct step_row){.seq = seq, .position = position, .score = score};
}

static void add_rows(struct quire_engine *e, struct sequence *seq) {
    struct step *st = &e->step;
    struct batch *b = &st->batch;
    struct batch_seq *bs = &b->seqs[b->n_seqs];
    size_t first = seq->n_computed, end = first + seq->n_scheduled;
    *bs = (struct batch_seq){.first_row = b->n_rows,
                             .n_rows = end - first,
                             .first_position = (uint32_t)first,
                             .pool_row = (uint32_t)seq->slot,
                             .n_first = stream_of(seq)->n_first};
    for (size_t g = 0; g < e->cache.n_groups; g++) bs->table[g] = seq->table->blocks[g];
    for (size_t i = first; i < end; i++, b->n_rows++) {
        b->token[b->n_rows] = seq->tokens[i];
        b->position[b->n_rows] = (uint32_t)i;
        b->seq[b->n_rows] = (uint32_t)b->n_seqs;
        if (seq->score_prompt && i >= seq->n_scored && i + 1 < seq->n_prompt)
            keep_row(st, b->n_rows, seq, i + 1, true);
        else if (i + 1 == seq->n_known && seq->n_known < seq->max_len)
            keep_row(st, b->n_rows, seq, i + 1, false);
    }
    b->n_seqs++;
}

static void note_start(struct quire_engine *e, struct quire_stream *s, uint64_t now) {
    atomic_store(&s->n_preempted, s->seq.n_preempted + s->seq.n_parked);
    if (s->started) return;
    s->started = true;
    atomic_store(&s->times.scheduled, now);
    atomic_store(&s->n_cached, s->seq.n_cached);
    hist_add(&e->stats.queue, (double)(now - atomic_load(&s->times.submitted)) * 1e-6);
}

static void build_batch(struct quire_engine *e, uint64_t now) {
    struct batch *b = &e->step.batch;
    size_t n;
    struct sequence *const *planned = scheduler_planned(e->scheduler, &n);
    b->n_rows = b->n_seqs = b->n_logit_rows = 0;
    for (size_t i = 0; i < n; i++) {
        note_start(e, stream_of(planned[i]), now);
        add_rows(e, planned[i]);
    }
}

/* ---- complete -------------------------------------------------------------------------------------------
 */

static void fill_mask(void *ctx, size_t item) {
    struct quire_engine *e = ctx;
    struct step_row *row = &e->step.rows[e->step.masked[item]];
    struct quire_stream *s = stream_of(row->seq);
    memset(s->sampler.allow, 0, size_div_up(e->spec.n_vocab, 32) * sizeof(uint32_t));
    row->mask_failed = s->constraint.fill_mask(s->constraint.state, s->sampler.allow, e->spec.n_vocab) < 0;
}

static void sample_rows(struct quire_engine *e, size_t first, size_t n, struct backend_buffer *logits) {
    struct step *st = &e->step;
    size_t n_masked = 0;
    for (size_t i = 0; i < n; i++) {
        struct step_row *row = &st->rows[first + i];
        struct quire_stream *s = stream_of(row->seq);
        if (row->score) {
            sampler_score_row(row->seq->tokens[row->position], (int)s->n_prompt_top, &st->sample_rows[i]);
            continue;
        }
        sampler_row(&s->sampler, row->seq->n_known - row->seq->n_prompt, row->position, &st->sample_rows[i]);
        if (s->has_constraint) st->masked[n_masked++] = first + i;
    }
    if (n_masked) e->backend->ops->host_run(e->backend, n_masked, fill_mask, e);
    e->backend->ops->sample(e->backend, logits, n, e->spec.n_vocab, st->sample_rows, st->sample_results);
}

struct shown {
    struct quire_engine *e;
    size_t first;
};

static void show_score(void *ctx, size_t row, const float *logits) {
    const struct shown *v = ctx;
    const struct step_row *r = &v->e->step.rows[v->first + row];
    const struct quire_score_reader *reader = stream_of(r->seq)->score_reader;
    if (!r->score || !reader || !v->e->step.sample_results[row].finite) return;
    reader->read(reader->ctx, r->position, logits, v->e->spec.n_vocab);
}

/* The distributions that somebody wants to see as a whole. */
static void show_scores(struct quire_engine *e, size_t first, size_t n, struct backend_buffer *logits) {
    bool wanted = false;
    for (size_t i = first; i < first + n; i++) {
        const struct step_row *r = &e->step.rows[i];
        wanted |= r->score && stream_of(r->seq)->score_reader;
    }
    struct shown v = {e, first};
    if (wanted) e->backend->ops->read_rows(e->backend, logits, n, e->spec.n_vocab, show_score, &v);
}

static void deliver_rows(struct quire_engine *e, size_t first, size_t n) {
    struct step *st = &e->step;
    uint64_t now = clock_us();
    for (size_t i = 0; i < n; i++) {
        struct step_row *row = &st->rows[first + i];
        struct quire_stream *s = stream_of(row->seq);
        if (atomic_load_explicit(&s->finished, memory_order_relaxed)) continue; /* failed at an earlier row */
        if (row->score)
            deliver_score(e, s, row, &st->sample_results[i]);
        else
            deliver_token(e, s, row, &st->sample_results[i], now);
    }
}

/* Nothing is to be generated, and all is computed. */
static bool is_done(struct sequence *seq) {
    return seq->max_len == seq->n_prompt && seq->n_computed == seq->n_known &&
           !atomic_load_explicit(&stream_of(seq)->finished, memory_order_relaxed);
}

/* Sequences that were only to be computed or scored have no row that would end them. */
static void end_scored(struct quire_engine *e) {
    size_t n;
    struct sequence *const *planned = scheduler_planned(e->scheduler, &n);
    for (size_t i = 0; i < n; i++)
        if (is_done(planned[i])) deliver_scored(e, stream_of(planned[i]), clock_us());
}

/* Those whose vectors are now gathered: they are taken before a place is given to another. */
static void end_pooled(struct quire_engine *e) {
    size_t n, width = e->limits.vector_floats;
    struct sequence *const *planned = scheduler_planned(e->scheduler, &n);
    for (size_t i = 0; i < n;) {
        struct sequence *ended[STEP_VECTORS];
        uint32_t rows[STEP_VECTORS], n_tokens[STEP_VECTORS];
        size_t n_ended = 0;
        for (; i < n && n_ended < STEP_VECTORS; i++) {
            if (!is_done(planned[i])) continue;
            rows[n_ended] = (uint32_t)planned[i]->slot;
            n_tokens[n_ended] = (uint32_t)planned[i]->n_prompt;
            ended[n_ended++] = planned[i];
        }
        model_vectors(e->model, rows, n_tokens, n_ended, e->step.vectors);
        for (size_t k = 0; k < n_ended; k++)
            deliver_vector(e, stream_of(ended[k]), e->step.vectors + k * width);
    }
}

/* Returns how long the passes over the vocabulary took, which are the model's work. */
static uint64_t complete(struct quire_engine *e) {
    uint64_t logits_us = 0;
    struct step *st = &e->step;
    size_t n_planned, n_rows = st->batch.n_logit_rows, most = e->plan.max_logit_rows;
    struct sequence *const *planned = scheduler_planned(e->scheduler, &n_planned);
    for (size_t i = 0; i < n_planned; i++) scheduler_commit(e->scheduler, planned[i]);
    for (size_t first = 0; first < n_rows; first += most) {
        size_t n = size_min(most, n_rows - first);
        uint64_t start = clock_us();
        struct backend_buffer *logits = model_logits(e->model, first, n);
        logits_us += clock_us() - start;
        sample_rows(e, first, n, logits);
        show_scores(e, first, n, logits);
        deliver_rows(e, first, n);
    }
    if (e->plan.pooling)
        end_pooled(e);
    else
        end_scored(e);
    for (size_t i = 0; i < st->n_done; i++) stream_drop(st->done[i]);
    st->n_done = 0;
    return logits_us;
}

/* Before the step is complete: sequences may end there. */
static void describe_step(const struct quire_engine *e, struct quire_step *out) {
    size_t n;
    struct sequence *const *planned = scheduler_planned(e->scheduler, &n);
    for (size_t i = 0; i < n; i++) step_shape_add(out, planned[i]);
    out->n_logit_rows = e->step.batch.n_logit_rows;
    out->n_running = scheduler_running(e->scheduler);
    out->n_waiting = scheduler_waiting(e->scheduler);
}

static void add(_Atomic uint64_t *to, uint64_t v) {
    atomic_fetch_add_explicit(to, v, memory_order_relaxed);
}

static void note_sums(struct quire_engine *e, const struct quire_step *s, size_t n_rows) {
    struct quire_step_sums *sums = s->n_prefill_rows ? &e->stats.prompt_steps : &e->stats.decode_steps;
    uint64_t us = s->prepare_us + s->forward_us + s->sample_us;
    add(&sums->steps, 1);
    add(&sums->rows, n_rows);
    add(&sums->rows_squared, (uint64_t)n_rows * n_rows);
    add(&sums->us, us);
    add(&sums->row_us, us * n_rows);
}

static void note_times(struct quire_engine *e, const struct quire_step *s, size_t n_rows) {
    hist_add(&e->stats.step_prepare, (double)s->prepare_us * 1e-6);
    hist_add(&e->stats.step_forward, (double)s->forward_us * 1e-6);
    hist_add(&e->stats.step_sample, (double)s->sample_us * 1e-6);
    hist_add(&e->stats.iteration_tokens, (double)n_rows);
    atomic_fetch_add_explicit(&e->stats.steps, 1, memory_order_relaxed);
}

bool step_run(struct quire_engine *e) {
    uint64_t start = clock_us();
    scheduler_set_budget(e->scheduler, pace_budget(&e->step.pace, e->plan.max_num_batched_tokens));
    size_t n = scheduler_plan(e->scheduler);
    if (!n) return false;
    struct quire_step figures = {0};
    build_batch(e, start);
    uint64_t prepared = clock_us();
    model_forward(e->model, e->kv, &e->step.batch);
    e->backend->ops->wait(e->backend);
    uint64_t computed = clock_us();
    describe_step(e, &figures);
    uint64_t logits_us = complete(e), end = clock_us();
    figures.prepare_us = prepared - start;
    figures.forward_us = computed - prepared + logits_us;
    figures.sample_us = end - computed - logits_us;
    pace_note(&e->step.pace, n, figures.forward_us);
    note_times(e, &figures, n);
    note_sums(e, &figures, n);
    if (e->step_reader) e->step_reader->read(e->step_reader->ctx, &figures);
    return true;
}
