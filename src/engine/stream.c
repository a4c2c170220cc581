#include "engine/stream.h"

#include "base/error.h"
#include "base/rng.h"
#include "base/size.h"
#include "engine/doorbell.h"

#include <stdlib.h>
#include <string.h>

/* ---- one allocation: a stream and its arrays -------------------------------------------------------------
 */

struct layout {
    size_t bytes;
    bool overflow;
};

static size_t place(struct layout *l, size_t n, size_t size) {
    size_t at, bytes;
    if (!size_mul(n, size, &bytes) || !size_align_up(l->bytes, 16, &at) || !size_add(at, bytes, &l->bytes))
        l->overflow = true;
    return l->overflow ? 0 : at;
}

struct places {
    size_t vector, tokens, keys, stop_ids, counts, slots, bias, bans, allow, scores, ring, stops, stop_text,
        borders;
    size_t n_counts, n_slots, n_bans;
};

static bool counting(const struct quire_sampling *s) {
    return s->repetition_penalty != 1 || s->presence_penalty != 0 || s->frequency_penalty != 0;
}

static size_t stop_bytes(const struct quire_sampling *s) {
    size_t n = 0;
    for (size_t i = 0; i < s->n_stop; i++) n += s->stop[i].len + 1;
    return n;
}

static size_t count_stop_ids(const struct stream_limits *l, const struct quire_sampling *s) {
    return s->n_stop_token_ids + (s->ignore_eos ? 0 : l->n_stop_tokens);
}

static size_t n_vector(const struct stream_limits *l, const struct quire_request *r) {
    return !r->pool ? 0 : r->dimensions ? r->dimensions : l->vector_floats;
}

static struct layout lay_out(const struct stream_limits *l, const struct quire_request *r, size_t max_len,
                             struct places *p) {
    const struct quire_sampling *s = &r->sampling;
    struct layout y = {offsetof(struct quire_stream, memory), false};
    size_t n_top = s->n_logprobs > 0 ? (size_t)s->n_logprobs : 0, max_tokens = max_len - r->n_prompt;
    memset(p, 0, sizeof *p);
    p->vector = place(&y, n_vector(l, r), sizeof(float));
    p->tokens = place(&y, max_len, sizeof(uint32_t));
    p->keys = place(&y, 1 + max_len / l->block_tokens, sizeof(struct hash128));
    p->stop_ids = place(&y, count_stop_ids(l, s), sizeof(uint32_t));
    p->n_bans = s->min_tokens ? count_stop_ids(l, s) : 0;
    p->bans = place(&y, p->n_bans, sizeof(uint32_t));
    p->bias = place(&y, s->n_bias, sizeof(struct sample_bias));
    if (counting(s)) {
        p->n_counts = size_min(max_len, l->n_vocab);
        p->n_slots = sampler_slots(p->n_counts);
    }
    p->counts = place(&y, p->n_counts, sizeof(struct sample_count));
    p->slots = place(&y, p->n_slots, sizeof(uint32_t));
    p->allow = place(&y, r->constraint ? size_div_up(l->n_vocab, 32) : 0, sizeof(uint32_t));
    if (s->n_prompt_logprobs >= 0)
        p->scores = place(&y, r->n_prompt, (1 + (size_t)s->n_prompt_logprobs) * sizeof(struct quire_logprob));
    p->ring = place(&y, ring_capacity(size_min(max_tokens, SIZE_MAX - 2) + 2, n_top), ring_stride(n_top));
    p->stops = place(&y, s->n_stop, sizeof(struct stop_string));
    p->stop_text = place(&y, stop_bytes(s), 1);
    p->borders = place(&y, stop_bytes(s), sizeof(uint16_t));
    return y;
}

static void *at(struct quire_stream *s, size_t offset) {
    return (char *)s + offset;
}

/* ---- filling it ------------------------------------------------------------------------------------------
 */

static int compare_ids(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static void fill_stops(struct quire_stream *s, const struct stream_limits *l, const struct quire_request *r,
                       const struct places *p) {
    const struct quire_sampling *q = &r->sampling;
    s->stop_ids = at(s, p->stop_ids);
    for (size_t i = 0; i < q->n_stop_token_ids; i++) s->stop_ids[s->n_stop_ids++] = q->stop_token_ids[i];
    for (size_t i = 0; i < l->n_stop_tokens && !q->ignore_eos; i++)
        s->stop_ids[s->n_stop_ids++] = l->stop_tokens[i];
    if (s->n_stop_ids) qsort(s->stop_ids, s->n_stop_ids, sizeof *s->stop_ids, compare_ids);

    char *text = at(s, p->stop_text);
    uint16_t *border = at(s, p->borders);
    s->stop = (struct stop_matcher){at(s, p->stops), q->n_stop};
    for (size_t i = 0; i < q->n_stop; i++) {
        size_t len = q->stop[i].len;
        memcpy(text, q->stop[i].data, len);
        text[len] = 0;
        s->stop.strings[i] = (struct stop_string){text, len, border, 0};
        stop_prepare(&s->stop.strings[i]);
        text += len + 1;
        border += len + 1;
    }
}

static void fill_sampler(struct quire_stream *s, const struct stream_limits *l, const struct quire_request *r,
                         const struct places *p, uint64_t number) {
    const struct quire_sampling *q = &r->sampling;
    struct sampler *m = &s->sampler;
    struct sample_bias *bias = at(s, p->bias);
    struct rng_block random = rng_philox(l->seed, (uint32_t)number, (uint32_t)(number >> 32), 0, 0);
    uint64_t own_seed = random.v[0] | (uint64_t)random.v[1] << 32;
    for (size_t i = 0; i < q->n_bias; i++) bias[i] = (struct sample_bias){q->bias[i].token, q->bias[i].bias};
    m->row = (struct sample_row){
        .temperature = q->temperature,
        .top_p = q->top_p,
        .min_p = q->min_p,
        .top_k = q->top_k,
        .repetition_penalty = q->repetition_penalty,
        .presence_penalty = q->presence_penalty,
        .frequency_penalty = q->frequency_penalty,
        .bias = bias,
        .n_bias = q->n_bias,
        .seed = q->has_seed ? q->seed : own_seed,
        .choice = r->choice,
        .n_top = q->n_logprobs,
    };
    m->counting = counting(q);
    m->counts = at(s, p->counts);
    m->slots = at(s, p->slots);
    m->mask = p->n_slots - 1;
    for (size_t i = 0; i < r->n_prompt; i++) sampler_note(m, r->prompt[i], true);
    m->min_tokens = q->min_tokens;
    m->bans = at(s, p->bans);
    m->n_bans = p->n_bans;
    memcpy(m->bans, s->stop_ids, p->n_bans * sizeof *m->bans);
    m->allow = r->constraint ? at(s, p->allow) : NULL;
}

static void fill_sequence(struct quire_stream *s, const struct stream_limits *l,
                          const struct quire_request *r, const struct places *p, size_t max_len) {
    struct sequence *seq = &s->seq;
    seq->n_prompt = seq->n_known = r->n_prompt;
    seq->max_len = max_len;
    seq->priority = r->priority;
    seq->read_cache = !r->skip_prefix_cache && l->caching;
    seq->score_prompt = r->sampling.n_prompt_logprobs >= 0;
    seq->n_scored = r->sampling.first_prompt_logprob ? r->sampling.first_prompt_logprob - 1 : 0;
    seq->tokens = at(s, p->tokens);
    memcpy(seq->tokens, r->prompt, r->n_prompt * sizeof *seq->tokens);
    seq->keys = at(s, p->keys);
    seq->keys[0] = kv_root_key(l->secret, l->numerics_id, r->adapter, r->cache_salt);
    sequence_name_blocks(seq, l->secret, l->block_tokens);
}

/* Whoever wants a vector samples nothing. */
static struct quire_request without_sampling(const struct quire_request *r) {
    struct quire_request q = *r;
    q.sampling = (struct quire_sampling){
        .top_p = 1, .repetition_penalty = 1, .ignore_eos = true, .n_logprobs = -1, .n_prompt_logprobs = -1};
    return q;
}

int stream_create(const struct stream_limits *l, const struct quire_request *request, uint64_t number,
                  struct quire_stream **out, struct error *err) {
    struct quire_request plain = without_sampling(request);
    const struct quire_request *r = request->pool ? &plain : request;
    size_t max_tokens;
    struct places p;
    *out = NULL;
    int rc = request_check(l, r, &max_tokens, err);
    if (rc) return rc;
    size_t max_len = r->n_prompt + max_tokens;
    struct layout y = lay_out(l, r, max_len, &p);
    size_t bytes = size_max(y.bytes, sizeof(struct quire_stream));
    size_t rounded;
    if (y.overflow || !size_align_up(bytes, _Alignof(struct quire_stream), &rounded))
        return error_set(err, QUIRE_ENOMEM, "the request is too large");
    struct quire_stream *s = aligned_alloc(_Alignof(struct quire_stream), rounded);
    if (!s) return error_set(err, QUIRE_ENOMEM, "out of memory for a request of %zu tokens", max_len);
    memset(s, 0, sizeof *s);
    memset(at(s, p.slots), 0, p.n_slots * sizeof(uint32_t));

    const struct quire_sampling *q = &r->sampling;
    s->waker = r->waker;
    s->score_reader = r->score_reader;
    s->first_score = q->first_prompt_logprob;
    s->max_tokens = max_tokens;
    s->want_logprobs = q->n_logprobs >= 0;
    s->n_top = q->n_logprobs > 0 ? (size_t)q->n_logprobs : 0;
    s->n_prompt_top = q->n_prompt_logprobs > 0 ? (size_t)q->n_prompt_logprobs : 0;
    s->include_stop = q->include_stop;
    s->raw_vector = r->raw_vector;
    s->n_first = (uint32_t)r->n_first;
    s->vector = at(s, p.vector);
    s->n_vector = n_vector(l, r);
    s->scores = q->n_prompt_logprobs >= 0 ? at(s, p.scores) : NULL;
    if ((s->has_constraint = r->constraint != NULL)) s->constraint = *r->constraint;
    s->stop_token = -1;
    s->ring.slots = at(s, p.ring);
    s->ring.stride = ring_stride(s->n_top);
    s->ring.capacity = ring_capacity(size_min(max_tokens, SIZE_MAX - 2) + 2, s->n_top);
    atomic_init(&s->refs, 1);
    fill_stops(s, l, r, &p);
    fill_sequence(s, l, r, &p, max_len);
    fill_sampler(s, l, r, &p, number);
    *out = s;
    return 0;
}

void stream_free(struct quire_stream *s) {
    if (s->has_constraint && s->constraint.destroy) s->constraint.destroy(s->constraint.state);
    free(s);
}

void stream_hold(struct quire_stream *s) {
    atomic_fetch_add_explicit(&s->refs, 1, memory_order_relaxed);
}

void stream_drop(struct quire_stream *s) {
    if (atomic_fetch_sub_explicit(&s->refs, 1, memory_order_acq_rel) == 1) stream_free(s);
}

bool stream_is_stop_id(const struct quire_stream *s, uint32_t token) {
    size_t low = 0, high = s->n_stop_ids;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (s->stop_ids[mid] < token)
            low = mid + 1;
        else
            high = mid;
    }
    return low < s->n_stop_ids && s->stop_ids[low] == token;
}

/* ---- reading ---------------------------------------------------------------------------------------------
 */

bool stream_poll(struct quire_stream *s, struct quire_event *event, bool *drained) {
    const struct ring_event *e = ring_front(&s->ring);
    *drained = false;
    if (!e) return false;
    memset(event, 0, sizeof *event);
    event->has_token = e->has_token;
    event->chosen = e->chosen;
    event->n_top = e->n_top;
    event->top = s->top;
    memcpy(s->top, e->top, e->n_top * sizeof *s->top);
    event->held_bytes = e->held_bytes;
    event->finish = (enum quire_finish)e->finish;
    event->stop_token = -1;
    if (event->finish != QUIRE_RUNNING) {
        event->trim_bytes = s->trim_bytes;
        event->stop_reason = s->stop_reason;
        event->stop_token = s->stop_token;
        if (event->finish == QUIRE_FAILED) event->error = &s->error;
    }
    ring_pop(&s->ring);
    s->read_first = true;
    if (atomic_load(&s->stalled)) *drained = atomic_exchange(&s->stalled, false);
    return true;
}

void stream_sleep(struct quire_stream *s, uint64_t timeout_us) {
    uint32_t head = atomic_load(&s->ring.head);
    atomic_store(&s->sleeping, true);
    if (atomic_load(&s->ring.head) == head && atomic_load(&s->ring.tail) == head)
        futex_sleep(&s->ring.head, head, timeout_us);
    atomic_store(&s->sleeping, false);
}

struct quire_usage stream_usage(const struct quire_stream *s) {
    uint64_t submitted = atomic_load(&s->times.submitted), scheduled = atomic_load(&s->times.scheduled);
    uint64_t first = atomic_load(&s->times.first_token), last = atomic_load(&s->times.last_token);
    return (struct quire_usage){
        .prompt_tokens = s->seq.n_prompt,
        .cached_tokens = atomic_load(&s->n_cached),
        .completion_tokens = atomic_load(&s->n_output),
        .preemptions = atomic_load(&s->n_preempted),
        .queue_us = scheduled ? scheduled - submitted : 0,
        .prefill_us = first ? first - scheduled : 0,
        .decode_us = last ? last - first : 0,
        .first_token_us = first ? first - submitted : 0,
    };
}

/* ---- writing ---------------------------------------------------------------------------------------------
 */

void stream_publish(struct quire_stream *s) {
    ring_push(&s->ring);
    if (atomic_exchange(&s->sleeping, false)) futex_wake_all(&s->ring.head);
}

bool stream_stalls(struct quire_stream *s) {
    if (ring_has_room(&s->ring)) return false;
    atomic_store(&s->stalled, true);
    if (!ring_has_room(&s->ring)) return true; /* what is read from now on is reported */
    atomic_store(&s->stalled, false);
    return false;
}
