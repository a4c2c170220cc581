#include "engine/engine.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/hist.h"

#include <string.h>

/* ---- figures --------------------------------------------------------------------------------------------
 */

static const double LENGTH_BOUNDS[] = {1,    2,    5,     10,    20,    50,     100,    200,    500,    1000,
                                       2000, 5000, 10000, 20000, 50000, 100000, 200000, 500000, 1000000};
static const double ITERATION_BOUNDS[] = {1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384};
static const double COUNT_BOUNDS[] = {0, 1, 2, 3, 4, 5, 8, 16, 32};
static const double STEP_BOUNDS[] = {0.00001, 0.00002, 0.00005, 0.0001, 0.0002, 0.0005, 0.001,
                                     0.002,   0.005,   0.01,    0.02,   0.05,   0.1,    0.2,
                                     0.5,     1,       2,       5,      10};

#define COUNT_OF(a) (sizeof(a) / sizeof *(a))

void stats_init(struct quire_stats *s) {
    struct quire_hist *const request[] = {&s->e2e, &s->queue, &s->inference, &s->prefill, &s->decode};
    struct quire_hist *const lengths[] = {&s->prompt_len, &s->generation_len, &s->max_tokens};
    struct quire_hist *const steps[] = {&s->step_prepare, &s->step_forward, &s->step_sample};
    hist_init(&s->ttft, HIST_TTFT_BOUNDS, COUNT_OF(HIST_TTFT_BOUNDS));
    hist_init(&s->itl, HIST_TOKEN_LATENCY_BOUNDS, COUNT_OF(HIST_TOKEN_LATENCY_BOUNDS));
    hist_init(&s->tpot, HIST_TOKEN_LATENCY_BOUNDS, COUNT_OF(HIST_TOKEN_LATENCY_BOUNDS));
    for (size_t i = 0; i < COUNT_OF(request); i++)
        hist_init(request[i], HIST_REQUEST_LATENCY_BOUNDS, COUNT_OF(HIST_REQUEST_LATENCY_BOUNDS));
    for (size_t i = 0; i < COUNT_OF(lengths); i++)
        hist_init(lengths[i], LENGTH_BOUNDS, COUNT_OF(LENGTH_BOUNDS));
    for (size_t i = 0; i < COUNT_OF(steps); i++) hist_init(steps[i], STEP_BOUNDS, COUNT_OF(STEP_BOUNDS));
    hist_init(&s->preemptions_per_request, COUNT_BOUNDS, COUNT_OF(COUNT_BOUNDS));
    hist_init(&s->iteration_tokens, ITERATION_BOUNDS, COUNT_OF(ITERATION_BOUNDS));
}

static void set(_Atomic uint64_t *gauge, uint64_t v) {
    atomic_store_explicit(gauge, v, memory_order_relaxed);
}

static void update_stats(struct quire_engine *e) {
    const struct kv_pool_stats *p = kv_pool_stats(e->pool);
    const struct scheduler_counts *c = scheduler_counts(e->scheduler);
    struct quire_stats *s = &e->stats;
    size_t waiting = scheduler_waiting(e->scheduler);
    set(&s->running, scheduler_running(e->scheduler));
    atomic_fetch_add_explicit(&s->waiting, waiting - e->reported_waiting,
                              memory_order_relaxed); /* may wrap: it
                                                        falls */
    e->reported_waiting = waiting;
    set(&s->behind, scheduler_parked(e->scheduler) + scheduler_blocked(e->scheduler));
    for (size_t i = 0; i < QUIRE_LACKS; i++) set(&s->held_steps[i], c->held_steps[i]);
    set(&s->blocks_used, p->n_held);
    set(&s->blocks_cached, p->n_cached);
    set(&s->blocks_resident, p->n_resident);
    set(&s->kv_slots_allocated, p->n_held * e->plan.block_tokens);
    set(&s->kv_slots_used, p->filled_tokens);
    set(&s->block_allocations, p->allocations);
    set(&s->block_evictions, p->evictions);
    set(&s->block_reuses, p->reuses);
    set(&s->block_copies, e->cache.copies);
    set(&s->preemptions, c->preemptions + c->parkings);
    set(&s->recomputed_tokens, c->recomputed_tokens);
    set(&s->prefix_queries, c->prefix_queries);
    set(&s->prefix_hits, c->prefix_hits);
}

/* ---- the thread -----------------------------------------------------------------------------------------
 */

static void wake_all(struct quire_engine *e) {
    for (size_t i = 0; i < e->n_wakers; i++) e->wakers[i]->wake(e->wakers[i]->ctx);
    e->n_wakers = 0;
}

void engine_note_waker(struct quire_engine *e, const struct quire_waker *waker) {
    if (!waker) return;
    for (size_t i = 0; i < e->n_wakers; i++)
        if (e->wakers[i] == waker) return;
    if (e->n_wakers == ENGINE_MAX_WAKERS) wake_all(e);
    e->wakers[e->n_wakers++] = waker;
}

static void take_arrivals(struct quire_engine *e) {
    for (struct mpsc_node *node; (node = mpsc_pop(&e->arrivals));) {
        struct quire_stream *s =
            (struct quire_stream *)((char *)node - offsetof(struct quire_stream, arrive));
        s->arrived = true;
        s->seq.arrival = e->n_arrived++;
        scheduler_add(e->scheduler, &s->seq);
        e->reported_waiting++; /* stats.waiting counts it since its submission */
        if (atomic_load(&s->cancelled)) deliver_end(e, s, QUIRE_ABORT);
    }
}

static void take_departures(struct quire_engine *e) {
    for (struct mpsc_node *node; (node = mpsc_pop(&e->departures));) {
        struct quire_stream *s = (struct quire_stream *)((char *)node - offsetof(struct quire_stream, leave));
        if (s->arrived && !atomic_load(&s->finished)) deliver_end(e, s, QUIRE_ABORT);
        stream_drop(s); /* the reference of the queue */
    }
}

/* Nothing can be scheduled although nothing runs and no more memory will come: what was promised at
 * submission does not hold, because pages could not be had. */
static bool fail_head(struct quire_engine *e, bool populated) {
    struct sequence *head = scheduler_head(e->scheduler);
    if (!head || !populated || scheduler_running(e->scheduler)) return false;
    deliver_failure(e, stream_of(head), QUIRE_ENOMEM, "KV memory of %zu blocks is less than the %zu planned",
                    kv_pool_stats(e->pool)->n_resident, e->plan.n_pages - 1);
    return true;
}

static void sleep_until_rung(struct quire_engine *e) {
    atomic_store(&e->n_stuck, scheduler_parked(e->scheduler) + scheduler_blocked(e->scheduler));
    atomic_store(&e->asleep, true);
    doorbell_wait(&e->bell);
    atomic_store(&e->beat_us, clock_us());
    atomic_store(&e->asleep, false);
}

void *engine_main(void *arg) {
    struct quire_engine *e = arg;
    e->backend->ops->enter(e->backend);
    while (!atomic_load(&e->stopping)) {
        doorbell_clear(&e->bell);
        bool populated = atomic_load(&e->populated); /* before the count, so that both are final together */
        kv_pool_grow(e->pool, atomic_load(&e->n_resident));
        take_arrivals(e);
        take_departures(e);
        bool worked = step_run(e) || fail_head(e, populated);
        e->step.batch.n_seqs = 0; /* no step is under way */
        update_stats(e);
        wake_all(e);
        atomic_store(&e->beat_us, clock_us());
        if (!worked) sleep_until_rung(e);
    }
    take_arrivals(e);
    for (struct sequence *seq; (seq = scheduler_any(e->scheduler));)
        deliver_end(e, stream_of(seq), QUIRE_ABORT);
    take_departures(e);
    update_stats(e);
    wake_all(e);
    return NULL;
}

/* ---- callers --------------------------------------------------------------------------------------------
 */

/* Takes a place among the live requests; false when all are taken. */
static bool take_place(struct quire_engine *e) {
    size_t n = atomic_load(&e->n_live);
    while (n < e->plan.max_live)
        if (atomic_compare_exchange_weak(&e->n_live, &n, n + 1)) return true;
    return false;
}

int quire_submit(struct quire_engine *e, const struct quire_request *request, struct quire_stream **out,
                 struct error *err) {
    uint64_t now = clock_us();
    *out = NULL;
    if (atomic_load(&e->stopping)) return error_set(err, QUIRE_ECANCELED, "the engine is stopping");
    if (!take_place(e)) {
        atomic_fetch_add_explicit(&e->stats.queue_rejections, 1, memory_order_relaxed);
        return error_set(err, QUIRE_EBUSY, "the queue is full: %zu requests are running or waiting",
                         e->plan.max_live);
    }
    struct quire_stream *s;
    uint64_t number = atomic_fetch_add(&e->n_submitted, 1);
    int rc = stream_create(&e->limits, request, number, &s, err);
    if (rc) {
        atomic_fetch_sub(&e->n_live, 1);
        return rc;
    }
    s->engine = e;
    atomic_store(&s->times.submitted, now);
    stream_hold(s); /* the engine's */
    atomic_fetch_add_explicit(&e->stats.waiting, 1, memory_order_relaxed);
    if (atomic_load(&e->asleep)) atomic_store(&e->beat_us, now); /* it has been idle, not stuck */
    mpsc_push(&e->arrivals, &s->arrive);
    doorbell_ring(&e->bell);
    *out = s;
    return 0;
}

int quire_poll(struct quire_stream *s, struct quire_event *event) {
    bool drained;
    if (!stream_poll(s, event, &drained)) return 0;
    if (drained) doorbell_ring(&s->engine->bell);
    return 1;
}

int quire_wait(struct quire_stream *s, struct quire_event *event, uint64_t timeout_us) {
    uint64_t start = clock_us();
    for (;;) {
        if (quire_poll(s, event)) return 1;
        uint64_t waited = clock_us() - start;
        if (waited >= timeout_us) return 0;
        stream_sleep(s, timeout_us == UINT64_MAX ? UINT64_MAX : timeout_us - waited);
    }
}

const struct quire_logprob *quire_prompt_logprobs(const struct quire_stream *s, size_t position, size_t *n) {
    *n = 0;
    if (!s->scores || !s->read_first || !position || position < s->first_score || position > s->seq.n_scored)
        return NULL;
    *n = 1 + s->n_prompt_top;
    return s->scores + position * *n;
}

const float *quire_vector(const struct quire_stream *s, size_t *n) {
    *n = 0;
    if (!s->read_first || !s->has_vector) return NULL; /* there is one event only */
    *n = s->n_vector;
    return s->vector;
}

struct quire_usage quire_usage(const struct quire_stream *s) {
    return stream_usage(s);
}

void quire_cancel(struct quire_stream *s) {
    struct quire_engine *e = s->engine;
    if (atomic_load(&s->finished) || atomic_exchange(&s->cancelled, true)) return;
    stream_hold(s); /* the queue's */
    mpsc_push(&e->departures, &s->leave);
    doorbell_ring(&e->bell);
}

void quire_close(struct quire_stream *s) {
    if (!s) return;
    quire_cancel(s);
    stream_drop(s);
}

const struct quire_info *quire_info(const struct quire_engine *e) {
    return &e->info;
}
const struct quire_stats *quire_stats(const struct quire_engine *e) {
    return &e->stats;
}

bool quire_healthy(const struct quire_engine *e, uint64_t limit_us) {
    uint64_t beat = atomic_load(&e->beat_us), now = clock_us();
    size_t live = atomic_load(&e->n_live);
    size_t stuck = atomic_load(&e->asleep) ? atomic_load(&e->n_stuck) : 0;
    return live <= stuck || now <= beat || now - beat <= limit_us;
}
