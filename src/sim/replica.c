#include "sim/replica.h"

#include "base/error.h"
#include "base/size.h"
#include "engine/pace.h"
#include "engine/step_shape.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct hash_secret secret = {1, 2}; /* nobody is kept from guessing a simulated prompt */

struct replica {
    struct sim_options o;
    struct sim_clock clock;
    struct kv_cache cache;
    struct scheduler *scheduler;
    struct pace pace;
    struct job *door, **door_end; /* not taken in yet, by arrival */
    size_t n_live;
    uint64_t n_arrived, n_steps, n_started;
    bool busy;
    struct quire_step step;
    struct job **rows; /* [max_num_seqs] whose next token comes with this step */
    size_t n_rows;
    double queue_us, busy_us;
};

static struct job *job_of(struct sequence *seq) {
    return (struct job *)seq; /* its first member */
}

/* ---- jobs ---- */

static uint32_t mix(uint64_t v) { /* the finaliser of splitmix64 (Steele, Lea and Flood, 2014) */
    v = (v ^ v >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    v = (v ^ v >> 27) * UINT64_C(0x94d049bb133111eb);
    return (uint32_t)(v >> 32);
}

uint32_t job_answer_token(uint32_t salt, size_t i) {
    return mix((uint64_t)salt << 32 | i);
}

struct job *job_new(const uint32_t *prompt, size_t n_prompt, size_t max_tokens, size_t n_output,
                    size_t block_tokens) {
    struct job *j = calloc(1, sizeof *j);
    if (!j) return NULL;
    struct sequence *s = &j->seq;
    s->n_prompt = s->n_known = n_prompt;
    s->max_len = n_prompt + max_tokens;
    s->read_cache = true;
    s->tokens = malloc(s->max_len * sizeof *s->tokens);
    s->keys = malloc((1 + s->max_len / block_tokens) * sizeof *s->keys);
    j->n_output = n_output;
    if (!s->tokens || !s->keys) {
        job_free(j);
        return NULL;
    }
    memcpy(s->tokens, prompt, n_prompt * sizeof *prompt);
    s->keys[0] = kv_root_key(secret, (struct hash128){0, 0}, NULL, NULL);
    return j;
}

void job_free(struct job *job) {
    if (!job) return;
    free(job->seq.tokens);
    free(job->seq.keys);
    free(job);
}

/* ---- life ---- */

static bool never(struct sequence *s) {
    return false;
}

static void no_copy(void *ctx, uint32_t dst, uint32_t src, size_t n_tokens) {}

static void describe_cache(struct replica *r) {
    struct kv_cache *c = &r->cache;
    const struct sim_options *o = &r->o;
    c->block_tokens = o->block_tokens;
    c->n_groups = o->n_groups;
    memcpy(c->window, o->window, sizeof c->window);
    c->chunk_tokens = o->max_num_batched_tokens;
    if (o->long_prefill_threshold) c->chunk_tokens = size_min(c->chunk_tokens, o->long_prefill_threshold);
    c->naming = o->prefix_caching;
    c->copy = no_copy;
    if (o->chunked_prefill) c->chunk_tokens = kv_chunk_limit(c, o->n_blocks);
}

static int check(const struct sim_options *o, struct error *err) {
    if (!o->n_groups || o->n_groups > BATCH_MAX_GROUPS || !o->block_tokens || !o->n_blocks)
        return error_set(err, QUIRE_EINVAL, "a simulated engine needs KV blocks and from 1 to %d groups",
                         BATCH_MAX_GROUPS);
    if (o->max_num_batched_tokens < o->max_num_seqs)
        return error_param(
            err, QUIRE_EINVAL, "max-num-batched-tokens",
            "max-num-batched-tokens is %zu, less than max-num-seqs %zu: every running sequence "
            "takes a token a step",
            o->max_num_batched_tokens, o->max_num_seqs);
    if (!o->chunked_prefill && o->max_num_batched_tokens < o->max_model_len)
        return error_param(err, QUIRE_EINVAL, "max-num-batched-tokens",
                           "max-num-batched-tokens is %zu: without chunked prefill it must be at least "
                           "max-model-len %zu",
                           o->max_num_batched_tokens, o->max_model_len);
    return 0;
}

int replica_create(const struct sim_options *o, const struct sim_clock *clock, struct replica **out,
                   struct error *err) {
    *out = NULL;
    int rc = check(o, err);
    if (rc) return rc;
    struct replica *r = calloc(1, sizeof *r);
    if (!r) return error_set(err, QUIRE_ENOMEM, "out of memory for a simulated engine");
    r->o = *o;
    r->clock = *clock;
    r->door_end = &r->door;
    describe_cache(r);
    r->rows = calloc(o->max_num_seqs, sizeof *r->rows);
    rc = r->rows ? kv_pool_create(o->n_blocks + 1, o->block_tokens, &r->cache.pool, err)
                 : error_set(err, QUIRE_ENOMEM, "out of memory for a simulated engine");
    struct scheduler_options s = {.max_num_seqs = o->max_num_seqs,
                                  .max_num_batched_tokens = o->max_num_batched_tokens,
                                  .max_score_rows = o->max_num_batched_tokens,
                                  .max_model_len = o->max_model_len,
                                  .max_live = o->max_num_seqs + o->max_queue,
                                  .chunked = o->chunked_prefill,
                                  .cache = &r->cache,
                                  .blocked = never};
    if (!rc) rc = scheduler_create(&s, &r->scheduler, err);
    if (rc) {
        replica_free(r);
        return rc;
    }
    kv_pool_grow(r->cache.pool, o->n_blocks + 1);
    *out = r;
    return 0;
}

void replica_free(struct replica *r) {
    if (!r) return;
    for (struct sequence *s; r->scheduler && (s = scheduler_any(r->scheduler));) {
        scheduler_remove(r->scheduler, s);
        job_free(job_of(s));
    }
    for (struct job *j; (j = r->door);) {
        r->door = j->next;
        job_free(j);
    }
    scheduler_free(r->scheduler);
    kv_pool_free(r->cache.pool);
    free(r->rows);
    free(r);
}

/* ---- requests ---- */

bool replica_fits(const struct replica *r, size_t n_tokens) {
    return n_tokens <= r->o.max_model_len && kv_peak_blocks(&r->cache, n_tokens) <= r->o.n_blocks;
}

bool replica_add(struct replica *r, struct job *job) {
    if (r->n_live == r->o.max_num_seqs + r->o.max_queue) return false;
    r->n_live++;
    job->next = NULL;
    *r->door_end = job;
    r->door_end = &job->next;
    return true;
}

static void take_in(struct replica *r, double now_us) {
    while (r->door && r->door->arrive_us <= now_us) {
        struct job *j = r->door;
        r->door = j->next;
        if (!r->door) r->door_end = &r->door;
        sequence_name_blocks(&j->seq, secret, r->o.block_tokens);
        j->seq.arrival = r->n_arrived++;
        j->salt = mix(r->n_arrived);
        scheduler_add(r->scheduler, &j->seq);
    }
}

/* ---- a step ---- */

static void note_start(struct replica *r, struct job *j, double now_us) {
    if (j->started) return;
    j->started = true;
    j->started_us = now_us;
    j->n_cached = j->seq.n_cached;
    r->queue_us += now_us - j->arrive_us;
    r->n_started++;
}

/* The engine's pace sees the time that a step took, so all of its times are those of the moment. */
static void take_time(struct replica *r, double now_us) {
    const struct sim_clock *c = &r->clock;
    struct quire_step *s = &r->step;
    c->time(c->ctx, s);
    double work = (double)(s->prepare_us + s->forward_us + s->sample_us);
    if (!c->wander || !(work > 0)) return;
    double slow = wander_time(c->wander, c->wander_us + now_us, work) / work;
    s->prepare_us = (uint64_t)((double)s->prepare_us * slow + 0.5);
    s->forward_us = (uint64_t)((double)s->forward_us * slow + 0.5);
    s->sample_us = (uint64_t)((double)s->sample_us * slow + 0.5);
}

bool replica_begin(struct replica *r, double now_us, double *end_us) {
    size_t n;
    take_in(r, now_us);
    scheduler_set_budget(r->scheduler, pace_budget(&r->pace, r->o.max_num_batched_tokens));
    size_t n_tokens = scheduler_plan(r->scheduler);
    if (!n_tokens) return false;
    struct sequence *const *planned = scheduler_planned(r->scheduler, &n);
    r->step = (struct quire_step){0};
    r->n_rows = 0;
    for (size_t i = 0; i < n; i++) {
        struct sequence *s = planned[i];
        note_start(r, job_of(s), now_us);
        step_shape_add(&r->step, s);
        if (s->n_computed + s->n_scheduled == s->n_known && s->n_known < s->max_len)
            r->rows[r->n_rows++] = job_of(s);
    }
    r->step.n_logit_rows = r->n_rows;
    r->step.n_running = scheduler_running(r->scheduler);
    r->step.n_waiting = scheduler_waiting(r->scheduler);
    take_time(r, now_us);
    pace_note(&r->pace, n_tokens, r->step.forward_us);
    double us = (double)(r->step.prepare_us + r->step.forward_us + r->step.sample_us);
    if (us < 1) us = 1; /* time goes on */
    r->busy_us += us;
    r->busy = true;
    r->n_steps++;
    *end_us = now_us + us;
    return true;
}

void replica_end(struct replica *r, void (*token)(void *ctx, struct job *job, bool last), void *ctx) {
    size_t n;
    struct sequence *const *planned = scheduler_planned(r->scheduler, &n);
    for (size_t i = 0; i < n; i++) scheduler_commit(r->scheduler, planned[i]);
    r->busy = false;
    for (size_t i = 0; i < r->n_rows; i++) {
        struct job *j = r->rows[i];
        size_t made = j->seq.n_known - j->seq.n_prompt;
        uint32_t id = j->answer ? j->answer[made] : job_answer_token(j->salt, made);
        sequence_append(&j->seq, id, secret, r->o.block_tokens);
        bool last = made + 1 >= j->n_output || j->seq.n_known == j->seq.max_len;
        if (last) {
            scheduler_remove(r->scheduler, &j->seq);
            r->n_live--;
        }
        token(ctx, j, last);
    }
}

/* ---- figures ---- */

bool replica_busy(const struct replica *r) {
    return r->busy;
}

const struct quire_step *replica_step(const struct replica *r) {
    return &r->step;
}

size_t replica_live(const struct replica *r) {
    return r->n_live;
}

double replica_next_us(const struct replica *r) {
    return r->door ? r->door->arrive_us : INFINITY;
}

void replica_read(const struct replica *r, struct replica_figures *out) {
    const struct scheduler_counts *c = scheduler_counts(r->scheduler);
    *out = (struct replica_figures){.running = scheduler_running(r->scheduler),
                                    .waiting = scheduler_waiting(r->scheduler),
                                    .kv_usage =
                                        (double)kv_pool_stats(r->cache.pool)->n_held / (double)r->o.n_blocks,
                                    .prefix_queries = c->prefix_queries,
                                    .prefix_hits = c->prefix_hits,
                                    .preemptions = c->preemptions + c->parkings,
                                    .steps = r->n_steps,
                                    .n_started = r->n_started,
                                    .queue_us = r->queue_us,
                                    .busy_us = r->busy_us};
}
