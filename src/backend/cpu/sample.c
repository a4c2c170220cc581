/* Choosing tokens: see backend/sample.h for the order of things. One row is one item; a row's arithmetic runs
 * in one order whatever else is in the batch. */
#include "backend/cpu/cpu.h"
#include "backend/cpu/select.h"

#include "base/rng.h"
#include "base/size.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <string.h>

/* The sorted part of the candidates grows by this factor until it holds the nucleus. */
#define SORT_FIRST  64
#define SORT_FACTOR 8
/* Blocks whose maxima bound the k-th largest logit from below. */
#define BOUND_BLOCK 64

struct sampler {
    const struct kern *kern;
    const float *raw; /* [n] logits */
    size_t n;
    const struct sample_row *row;
    float *work, *terms; /* [n] */
    uint64_t *keys;      /* [n] */
};

/* ---- adjusting logits ---- */

static float bounded(float x) {
    return x > FLT_MAX ? FLT_MAX : x < -FLT_MAX ? -FLT_MAX : x;
}

static bool has_penalties(const struct sample_row *r) {
    return r->n_counts &&
           (r->repetition_penalty != 1.0f || r->presence_penalty != 0.0f || r->frequency_penalty != 0.0f);
}

static void apply_penalties(float *x, size_t n, const struct sample_row *r) {
    for (size_t i = 0; i < r->n_counts; i++) {
        const struct sample_count *c = &r->counts[i];
        if (c->token >= n || x[c->token] == -INFINITY) continue;
        float v = x[c->token];
        if (c->in_prompt || c->n_output) v = v > 0.0f ? v / r->repetition_penalty : v * r->repetition_penalty;
        if (c->n_output) v -= r->presence_penalty + r->frequency_penalty * (float)c->n_output;
        x[c->token] = bounded(v);
    }
}

static void apply_mask(float *x, size_t n, const uint32_t *mask) {
    for (size_t word = 0; word * 32 < n; word++) {
        uint32_t forbidden = ~mask[word];
        size_t left = n - word * 32;
        if (left < 32) forbidden &= (1u << left) - 1;
        for (; forbidden; forbidden &= forbidden - 1)
            x[word * 32 + (size_t)__builtin_ctz(forbidden)] = -INFINITY;
    }
}

/* The logits to choose from: the raw ones, or an adjusted copy. */
static const float *adjusted(struct sampler *s) {
    const struct sample_row *r = s->row;
    if (!r->n_bias && !r->allow_mask && !has_penalties(r) && !r->n_banned) return s->raw;
    float *x = s->work;
    memcpy(x, s->raw, s->n * sizeof *x);
    for (size_t i = 0; i < r->n_bias; i++)
        if (r->bias[i].token < s->n) x[r->bias[i].token] = bounded(x[r->bias[i].token] + r->bias[i].bias);
    if (r->allow_mask) apply_mask(x, s->n, r->allow_mask);
    if (has_penalties(r)) apply_penalties(x, s->n, r);
    for (size_t i = 0; i < r->n_banned; i++)
        if (r->banned[i] < s->n) x[r->banned[i]] = -INFINITY;
    return x;
}

/* ---- drawing ---- */

static double uniform(const struct sample_row *r) {
    return rng_uniform(r->seed, r->choice, r->position, 0);
}

/* From all ids whose term is at least `least`, in id order. */
static uint32_t draw_by_id(const struct sampler *s, double total, float least) {
    double target = uniform(s->row) * total, sum = 0.0;
    uint32_t last = 0;
    for (size_t i = 0; i < s->n; i++) {
        if (s->terms[i] < least || s->terms[i] <= 0.0f) continue;
        last = (uint32_t)i;
        sum += s->terms[i];
        if (sum > target) break;
    }
    return last; /* the last candidate if rounding kept the sum below the target */
}

/* A logit that at least k ids reach: the k-th largest of the maxima of blocks. */
static float lower_bound(struct sampler *s, const float *x, size_t k) {
    size_t n_blocks = s->n / BOUND_BLOCK;
    if (n_blocks < k) return -INFINITY;
    for (size_t i = 0; i < n_blocks; i++) {
        const float *block = x + i * BOUND_BLOCK;
        float max = block[0];
        for (size_t j = 1; j < BOUND_BLOCK; j++) max = block[j] > max ? block[j] : max;
        s->keys[i] = select_key(max, (uint32_t)i);
    }
    select_largest(s->keys, n_blocks, k);
    size_t least = 0;
    for (size_t i = 1; i < k; i++)
        if (s->keys[i] < s->keys[least]) least = i;
    size_t first = select_id(s->keys[least]) * (size_t)BOUND_BLOCK;
    float max = x[first];
    for (size_t j = 1; j < BOUND_BLOCK; j++) max = x[first + j] > max ? x[first + j] : max;
    return max;
}

static size_t collect(struct sampler *s, const float *x, float least_logit, float least_term) {
    size_t n = 0;
    for (size_t i = 0; i < s->n; i++) {
        if (!(x[i] >= least_logit) || s->terms[i] < least_term || x[i] == -INFINITY) continue;
        s->keys[n++] = select_key(x[i], (uint32_t)i);
    }
    return n;
}

/* How many of the sorted candidates top_p and min_p keep, and the sum of their terms. Candidates are sorted
 * as far as needed; total: the sum that top_p is a share of. */
static size_t cut(struct sampler *s, size_t n, double total, bool use_top_p, float least_term,
                  double *kept_sum) {
    size_t n_sorted = 0, kept = 0;
    double sum = 0.0;
    while (kept < n) {
        if (kept == n_sorted) {
            size_t more = size_min(n_sorted ? n_sorted * (SORT_FACTOR - 1) : SORT_FIRST, n - n_sorted);
            select_largest(s->keys + n_sorted, n - n_sorted, more);
            select_sort(s->keys + n_sorted, more);
            n_sorted += more;
        }
        float term = s->terms[select_id(s->keys[kept])];
        if (kept && term < least_term) break;
        sum += term;
        kept++;
        if (use_top_p && sum >= (double)s->row->top_p * total) break;
    }
    *kept_sum = sum;
    return kept;
}

static uint32_t draw_sorted(const struct sampler *s, size_t n, double total) {
    double target = uniform(s->row) * total, sum = 0.0;
    size_t last = 0;
    for (size_t i = 0; i < n; i++) {
        float term = s->terms[select_id(s->keys[i])];
        if (term <= 0.0f) break;
        last = i;
        sum += term;
        if (sum > target) break;
    }
    return select_id(s->keys[last]);
}

/* x: adjusted logits whose largest, x[argmax], is finite. */
static uint32_t draw(struct sampler *s, const float *x, size_t argmax) {
    const struct sample_row *r = s->row;
    bool use_top_k = r->top_k > 0 && (size_t)r->top_k < s->n,
         use_top_p = r->top_p<1.0f, use_min_p = r->min_p> 0.0f;
    double total = s->kern->softmax_terms(s->terms, x, s->n, x[argmax], 1.0f / r->temperature);
    float least_term = use_min_p ? r->min_p * s->terms[argmax] : 0.0f;
    if (!use_top_k && !use_top_p) {
        if (use_min_p) {
            total = 0.0;
            for (size_t i = 0; i < s->n; i++)
                if (s->terms[i] >= least_term) total += s->terms[i];
        }
        return draw_by_id(s, total, least_term);
    }
    size_t n;
    if (use_top_k) {
        size_t k = (size_t)r->top_k;
        n = collect(s, x, lower_bound(s, x, k), 0.0f);
        if (n > k) {
            select_largest(s->keys, n, k);
            n = k;
        }
        if (use_top_p) {
            select_sort(s->keys, n);
            total = 0.0;
            for (size_t i = 0; i < n; i++) total += s->terms[select_id(s->keys[i])];
        }
    } else {
        /* Ids below this term hold less than 1 - top_p of the total together: none of them is in the nucleus.
         */
        float unreachable = (float)((1.0 - (double)r->top_p) * total / (double)s->n * (1.0 - 1e-6));
        n = collect(s, x, -INFINITY, least_term > unreachable ? least_term : unreachable);
    }
    double kept_sum;
    n = cut(s, n, total, use_top_p, least_term, &kept_sum);
    return draw_sorted(s, n, kept_sum);
}

/* ---- log probabilities ---- */

static uint32_t rank_of(const struct sampler *s, uint32_t token) {
    float x = s->raw[token];
    uint32_t larger = 0;
    for (size_t i = 0; i < s->n; i++) larger += s->raw[i] > x;
    return larger + 1;
}

/* The n_top largest, by insertion: ids come in order, so among equals the lower stays in front. */
static void find_top(const struct sampler *s, double log_sum, struct sample_result *result) {
    struct sample_top *top = result->top;
    size_t want = size_min((size_t)s->row->n_top, size_min(SAMPLE_MAX_TOP, s->n)), n = 0;
    for (size_t i = 0; want && i < s->n; i++) {
        float x = s->raw[i];
        if (n == want && !(x > top[n - 1].logprob)) continue;
        size_t j = n < want ? n++ : n - 1;
        for (; j && x > top[j - 1].logprob; j--) top[j] = top[j - 1];
        top[j] = (struct sample_top){.token = (uint32_t)i, .logprob = x};
    }
    for (size_t i = 0; i < n; i++) top[i].logprob = (float)(top[i].logprob - log_sum);
    result->n_top = n;
}

static void sample_one(struct sampler *s, struct sample_result *result) {
    const struct sample_row *r = s->row;
    bool score = r->score_only || r->n_top >= 0;
    size_t argmax;
    float max;
    *result = (struct sample_result){0};
    s->kern->logits_scan(s->raw, s->n, &max, &argmax, &result->finite);
    if (!result->finite) return;
    double log_sum = score ? s->kern->log_sum_exp(s->raw, s->n, max) : 0.0;
    if (r->n_top > 0) find_top(s, log_sum, result);

    if (r->score_only) {
        assert(r->target < s->n);
        result->token = r->target;
    } else {
        const float *x = adjusted(s);
        bool finite;
        if (x != s->raw) s->kern->logits_scan(x, s->n, &max, &argmax, &finite);
        if (max == -INFINITY) return;
        result->token = r->temperature < SAMPLE_MIN_TEMPERATURE ? (uint32_t)argmax : draw(s, x, argmax);
    }
    result->allowed = true;
    if (!score) return;
    result->logprob = (float)(s->raw[result->token] - log_sum);
    result->rank = rank_of(s, result->token);
}

/* ---- the operation ---- */

static size_t array_bytes(size_t n, size_t size) {
    return (n * size + MEMORY_ALIGN - 1) & ~(size_t)(MEMORY_ALIGN - 1);
}

size_t sample_thread_bytes(size_t max_vocab) {
    return 2 * array_bytes(max_vocab, sizeof(float)) + array_bytes(max_vocab, sizeof(uint64_t));
}

struct sample_job {
    const struct cpu_backend *c;
    const float *logits;
    size_t n_vocab;
    const struct sample_row *rows;
    struct sample_result *results;
};

static void sample_item(void *ctx, size_t item, size_t thread) {
    const struct sample_job *j = ctx;
    char *scratch = cpu_thread_scratch(j->c, thread, j->c->at.sample);
    size_t floats = array_bytes(j->c->at.max_vocab, sizeof(float));
    struct sampler s = {.kern = j->c->kern,
                        .raw = j->logits + item * j->n_vocab,
                        .n = j->n_vocab,
                        .row = &j->rows[item],
                        .keys = (uint64_t *)(void *)scratch,
                        .work =
                            (float *)(void *)(scratch + array_bytes(j->c->at.max_vocab, sizeof(uint64_t)))};
    s.terms = s.work + floats / sizeof(float);
    sample_one(&s, &j->results[item]);
}

void cpu_sample(struct backend *b, const struct backend_buffer *logits, size_t n_rows, size_t n_vocab,
                const struct sample_row *rows, struct sample_result *results) {
    struct sample_job j = {
        .c = cpu_of(b), .logits = cpu_f32(logits), .n_vocab = n_vocab, .rows = rows, .results = results};
    assert(n_vocab && n_vocab <= j.c->at.max_vocab);
    pool_run(j.c->pool, n_rows, sample_item, &j);
}
