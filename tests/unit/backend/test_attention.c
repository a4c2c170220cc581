/* Rotation, KV pages and paged attention against straightforward double-precision C: grouped and single
 * heads, windows, all KV types, pages in random order and full of NaN before they are written. The bits are
 * the same for any cut of the sequences into steps, any company in the batch, and any number of threads. */
#include "util_backend.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MAX_SEQS  5
#define N_PAGES   200
#define MAX_TABLE (TEST_POSITIONS / 16)

struct scenario {
    size_t n_heads, n_kv_heads, head_dim, window, block_tokens, n_rot;
    size_t value_dim; /* V is so many elements of K's row, whose last n_rot rotate; 0: V is apart */
    float soft_cap;
    bool interleaved, norms, norm_rows, sinks_used, no_rotation, bidirectional;
    enum backend_dtype dtype;
    size_t lengths[MAX_SEQS], n_seqs;
    /* made by prepare() */
    size_t total, first[MAX_SEQS];          /* rows of all sequences, one after the other */
    float *q, *k, *v, *rope, *norm, *sinks; /* norm: of all heads of q, then of k */
    uint32_t tables[MAX_SEQS][MAX_TABLE];
};

static void prepare(struct scenario *s) {
    uint64_t seed = 11;
    uint32_t pages[N_PAGES];
    size_t next = 0;
    for (size_t i = 0; i < N_PAGES; i++) pages[i] = (uint32_t)i;
    for (size_t i = N_PAGES - 1; i > 1; i--) { /* page 0 stays the null page */
        size_t j = 1 + random_u32(&seed) % i;
        uint32_t t = pages[i];
        pages[i] = pages[j];
        pages[j] = t;
    }
    s->total = 0;
    for (size_t i = 0; i < s->n_seqs; i++) {
        s->first[i] = s->total;
        s->total += s->lengths[i];
        for (size_t b = 0; b * s->block_tokens < s->lengths[i]; b++) s->tables[i][b] = pages[++next];
    }
    assert_true(next < N_PAGES);
    s->q = random_floats(&seed, s->total * s->n_heads * s->head_dim);
    s->k = random_floats(&seed, s->total * s->n_kv_heads * s->head_dim);
    s->v = random_floats(&seed, s->total * s->n_kv_heads * s->head_dim);
    s->norm = random_floats(&seed, 2 * s->n_heads * s->head_dim);
    s->sinks = random_floats(&seed, s->n_heads);
    s->sinks[0] = 40.0f; /* far above all scores */
    s->rope = malloc(TEST_POSITIONS * s->n_rot * sizeof(float));
    for (size_t p = 0; p < TEST_POSITIONS; p++)
        for (size_t i = 0; i < s->n_rot / 2; i++) {
            double angle = (double)p * pow(10000.0, -2.0 * (double)i / (double)s->n_rot);
            s->rope[p * s->n_rot + i] = (float)cos(angle);
            s->rope[p * s->n_rot + s->n_rot / 2 + i] = (float)sin(angle);
        }
}

static size_t value_dim(const struct scenario *s) {
    return s->value_dim ? s->value_dim : s->head_dim;
}

static void forget(struct scenario *s) {
    free(s->q);
    free(s->k);
    free(s->v);
    free(s->norm);
    free(s->sinks);
    free(s->rope);
}

static struct backend_kv_layout layout_of(const struct scenario *s) {
    /* The group under test is the second; the first is larger, so pages have slack. */
    return (struct backend_kv_layout){
        .n_groups = 2,
        .groups = {{.n_layers = 3, .n_kv_heads = 9, .head_dim = 64},
                   {.n_layers = 2, .n_kv_heads = s->n_kv_heads, .head_dim = s->head_dim}},
        .block_tokens = s->block_tokens,
        .dtype = s->dtype,
        .rows = s->value_dim != 0};
}

static struct backend_kv *poisoned_pages(struct backend *b, const struct scenario *s) {
    struct backend_kv_layout layout = layout_of(s);
    struct backend_kv *kv = NULL;
    struct error err = {0};
    if (b->ops->kv_create(b, &layout, N_PAGES, &kv, &err)) fail_msg("%s", err.text);
    if (b->ops->kv_populate(b, kv, 0, N_PAGES, &err)) fail_msg("%s", err.text);
    for (size_t g = 0; g < 2; g++) {
        size_t n = b->ops->kv_export_bytes(b, kv, g) / sizeof(float);
        float *page = malloc(n * sizeof *page);
        for (size_t i = 0; i < n; i++) page[i] = i % 2 ? NAN : INFINITY;
        for (size_t p = 0; p < N_PAGES; p++) b->ops->kv_import(b, kv, g, p, page);
        free(page);
    }
    return kv;
}

/* What one run leaves: attention's output and rotated queries of all rows, and the pages' contents. */
struct outcome {
    float *y, *q;
    float *k, *v; /* [total][n_kv_heads * head_dim], as stored */
};

struct runner {
    struct backend *b;
    const struct scenario *s;
    struct backend_kv *kv;
    struct backend_buffer *rope, *q_norm, *k_norm, *sinks;
    struct outcome out;
};

static struct backend_attention attention_of(const struct runner *r) {
    const struct scenario *s = r->s;
    return (struct backend_attention){.group = 1,
                                      .layer = 1,
                                      .n_heads = s->n_heads,
                                      .n_kv_heads = s->n_kv_heads,
                                      .head_dim = s->head_dim,
                                      .value_dim = value_dim(s),
                                      .scale = (float)(1.0 / sqrt((double)s->head_dim)),
                                      .soft_cap = s->soft_cap,
                                      .window = s->window,
                                      .bidirectional = s->bidirectional,
                                      .sinks = s->sinks_used ? r->sinks : NULL};
}

static struct backend_rope rope_of(const struct runner *r) {
    const struct scenario *s = r->s;
    return (struct backend_rope){.table = s->no_rotation ? NULL : r->rope,
                                 .n_rot = s->n_rot,
                                 .interleaved = s->interleaved,
                                 .behind = s->value_dim != 0,
                                 .q_norm = s->norms ? r->q_norm : NULL,
                                 .k_norm = s->norms ? r->k_norm : NULL,
                                 .norm_rows = s->norm_rows,
                                 .norm_eps = 1e-5f};
}

/* Rows take[i] of each sequence from done[i] on, as one panel that begins at row `offset` of the batch: rows
 * before it belong to a sequence of their own, which the operations must leave alone. */
static void run_panel(struct runner *r, const size_t *take, const size_t *done, size_t offset) {
    const struct scenario *s = r->s;
    size_t nq = s->n_heads * s->head_dim, nkv = s->n_kv_heads * s->head_dim, n = 0;
    uint32_t token[2 * TEST_MAX_ROWS] = {0}, position[2 * TEST_MAX_ROWS], seq[2 * TEST_MAX_ROWS],
                       none[1] = {0};
    struct batch_seq seqs[MAX_SEQS + 1] = {{.n_rows = offset, .table = {none, none}}};
    float *q = malloc(TEST_MAX_ROWS * nq * sizeof *q), *k = malloc(TEST_MAX_ROWS * nkv * sizeof *k);
    float *v = malloc(TEST_MAX_ROWS * nkv * sizeof *v);
    struct batch batch = {.token = token, .position = position, .seq = seq, .seqs = seqs, .n_seqs = 1};
    for (size_t i = 0; i < offset; i++) position[i] = (uint32_t)i, seq[i] = 0;
    for (size_t i = 0; i < s->n_seqs; i++) {
        if (!take[i]) continue;
        seqs[batch.n_seqs] = (struct batch_seq){.first_row = offset + n,
                                                .n_rows = take[i],
                                                .first_position = (uint32_t)done[i],
                                                .table = {none, s->tables[i]}};
        for (size_t j = 0; j < take[i]; j++, n++) {
            size_t row = s->first[i] + done[i] + j;
            position[offset + n] = (uint32_t)(done[i] + j);
            seq[offset + n] = (uint32_t)batch.n_seqs;
            memcpy(q + n * nq, s->q + row * nq, nq * sizeof *q);
            memcpy(k + n * nkv, s->k + row * nkv, nkv * sizeof *k);
            memcpy(v + n * nkv, s->v + row * nkv, nkv * sizeof *v);
        }
        batch.n_seqs++;
    }
    batch.n_rows = offset + n;
    struct backend *b = r->b;
    struct backend_buffer *qb = buffer_of(b, q, n * nq), *kb = buffer_of(b, k, n * nkv),
                          *vb = buffer_of(b, v, n * nkv);
    struct backend_buffer *yb = buffer_of(b, NULL, n * nq);
    struct backend_attention a = attention_of(r);
    struct backend_rope rope = rope_of(r);
    size_t ny = s->n_heads * value_dim(s);
    b->ops->rope_kv_write(b, qb, kb, s->value_dim ? NULL : vb, &rope, &a, r->kv, &batch, offset, n);
    b->ops->attention(b, yb, qb, &a, r->kv, &batch, offset, n);
    b->ops->download(b, q, qb, 0, n * nq * sizeof *q);
    float *y = floats_of(b, yb, n * ny);
    n = 0;
    for (size_t i = 0; i < s->n_seqs; i++)
        for (size_t j = 0; j < take[i]; j++, n++) {
            size_t row = s->first[i] + done[i] + j;
            memcpy(r->out.y + row * ny, y + n * ny, ny * sizeof *y);
            memcpy(r->out.q + row * nq, q + n * nq, nq * sizeof *q);
        }
    free(y);
    free(q);
    free(k);
    free(v);
    b->ops->buffer_free(b, qb);
    b->ops->buffer_free(b, kb);
    b->ops->buffer_free(b, vb);
    b->ops->buffer_free(b, yb);
}

/* One batch of all sequences, in panels of so many rows: all of K and V first, then attention. */
static void run_whole(struct runner *r, size_t panel) {
    const struct scenario *s = r->s;
    size_t nq = s->n_heads * s->head_dim, nkv = s->n_kv_heads * s->head_dim;
    uint32_t *position = malloc(s->total * sizeof *position), *seq = malloc(s->total * sizeof *seq), none = 0;
    struct batch_seq seqs[MAX_SEQS];
    struct backend *b = r->b;
    struct batch batch = {
        .position = position, .seq = seq, .seqs = seqs, .n_seqs = s->n_seqs, .n_rows = s->total};
    struct backend_attention a = attention_of(r);
    struct backend_rope rope = rope_of(r);
    for (size_t i = 0; i < s->n_seqs; i++) {
        seqs[i] = (struct batch_seq){
            .first_row = s->first[i], .n_rows = s->lengths[i], .table = {&none, s->tables[i]}};
        for (size_t t = 0; t < s->lengths[i]; t++) {
            position[s->first[i] + t] = (uint32_t)t;
            seq[s->first[i] + t] = (uint32_t)i;
        }
    }
    for (size_t first = 0, n; first < s->total; first += n) {
        n = s->total - first < panel ? s->total - first : panel;
        struct backend_buffer *q = buffer_of(b, s->q + first * nq, n * nq),
                              *k = buffer_of(b, s->k + first * nkv, n * nkv),
                              *v = buffer_of(b, s->v + first * nkv, n * nkv);
        b->ops->rope_kv_write(b, q, k, v, &rope, &a, r->kv, &batch, first, n);
        b->ops->download(b, r->out.q + first * nq, q, 0, n * nq * sizeof(float));
        b->ops->buffer_free(b, q);
        b->ops->buffer_free(b, k);
        b->ops->buffer_free(b, v);
    }
    for (size_t first = 0, n; first < s->total; first += n) {
        n = s->total - first < panel ? s->total - first : panel;
        struct backend_buffer *q = buffer_of(b, r->out.q + first * nq, n * nq),
                              *y = buffer_of(b, NULL, n * nq);
        b->ops->attention(b, y, q, &a, r->kv, &batch, first, n);
        b->ops->download(b, r->out.y + first * nq, y, 0, n * nq * sizeof(float));
        b->ops->buffer_free(b, q);
        b->ops->buffer_free(b, y);
    }
    free(position);
    free(seq);
}

static void read_pages(struct runner *r) {
    const struct scenario *s = r->s;
    size_t nkv = s->n_kv_heads * s->head_dim, n = r->b->ops->kv_export_bytes(r->b, r->kv, 1) / sizeof(float);
    float *page = malloc(n * sizeof *page), *k = page + n / 2,
          *v = k + s->block_tokens * nkv; /* of layer 1 */
    for (size_t i = 0; i < s->n_seqs; i++)
        for (size_t t = 0; t < s->lengths[i]; t++) {
            size_t slot = t % s->block_tokens, row = s->first[i] + t;
            if (!slot) r->b->ops->kv_export(r->b, r->kv, 1, s->tables[i][t / s->block_tokens], page);
            memcpy(r->out.k + row * nkv, k + slot * nkv, nkv * sizeof *k);
            memcpy(r->out.v + row * nkv, (s->value_dim ? k : v) + slot * nkv, nkv * sizeof *v);
        }
    free(page);
}

/* All rows of all sequences, chunk rows of each at a time (0: random), as far as a panel holds them. */
static struct outcome run(const struct scenario *s, const char *path, size_t threads, size_t chunk,
                          uint64_t seed) {
    size_t nq = s->n_heads * s->head_dim, nkv = s->n_kv_heads * s->head_dim, done[MAX_SEQS] = {0},
           left = s->total;
    struct runner r = {.b = backend_start(path, threads), .s = s};
    r.kv = poisoned_pages(r.b, s);
    r.rope = buffer_of(r.b, s->rope, TEST_POSITIONS * s->n_rot);
    r.q_norm = buffer_of(r.b, s->norm, nq);
    r.k_norm = buffer_of(r.b, s->norm + nq, nkv);
    r.sinks = buffer_of(r.b, s->sinks, s->n_heads);
    r.out = (struct outcome){.y = malloc(s->total * nq * sizeof(float)),
                             .q = malloc(s->total * nq * sizeof(float)),
                             .k = malloc(s->total * nkv * sizeof(float)),
                             .v = malloc(s->total * nkv * sizeof(float))};
    if (s->bidirectional) {
        run_whole(&r, chunk ? chunk : 1 + random_u32(&seed) % TEST_MAX_ROWS);
        left = 0;
    }
    while (left) {
        size_t take[MAX_SEQS] = {0}, room = TEST_MAX_ROWS, n = 0;
        for (size_t i = 0; i < s->n_seqs; i++) {
            size_t want = chunk ? chunk : random_u32(&seed) % 3 ? random_u32(&seed) % 90 : 1;
            if (want > s->lengths[i] - done[i]) want = s->lengths[i] - done[i];
            take[i] = want < room ? want : room;
            room -= take[i];
            n += take[i];
        }
        if (!n) continue;
        run_panel(&r, take, done, chunk ? 0 : random_u32(&seed) % 40);
        for (size_t i = 0; i < s->n_seqs; i++) done[i] += take[i];
        left -= n;
    }
    read_pages(&r);
    r.b->ops->buffer_free(r.b, r.rope);
    r.b->ops->buffer_free(r.b, r.q_norm);
    r.b->ops->buffer_free(r.b, r.k_norm);
    r.b->ops->buffer_free(r.b, r.sinks);
    r.b->ops->kv_free(r.b, r.kv);
    r.b->ops->close(r.b);
    return r.out;
}

static void drop(struct outcome *o) {
    free(o->y);
    free(o->q);
    free(o->k);
    free(o->v);
}

/* ---- what it must be ---- */

/* Head h of a row of n_heads; norm: of all heads, or NULL. */
static void rotate(const struct scenario *s, float *x, const float *row, size_t h, size_t n_heads,
                   const float *norm, size_t position) {
    const float *c = s->rope + position * s->n_rot, *sn = c + s->n_rot / 2;
    double sum = 0.0, scale = 1.0, out[128];
    size_t front = s->value_dim ? s->head_dim - s->n_rot : 0;
    size_t n = s->norm_rows ? n_heads * s->head_dim : front ? front : s->head_dim;
    memcpy(x, row + h * s->head_dim, s->head_dim * sizeof *x);
    for (size_t i = 0; i < n; i++) sum += (double)(s->norm_rows ? row : x)[i] * (s->norm_rows ? row : x)[i];
    if (norm) scale = 1.0 / sqrt(sum / (double)n + 1e-5);
    if (norm && s->norm_rows) norm += h * s->head_dim;
    for (size_t i = 0; i < s->head_dim; i++)
        out[i] = norm && (!front || i < front) ? x[i] * scale * norm[i] : x[i];
    for (size_t i = 0; i < s->n_rot / 2 && !s->no_rotation; i++) {
        size_t a = front + (s->interleaved ? 2 * i : i);
        size_t b = front + (s->interleaved ? 2 * i + 1 : i + s->n_rot / 2);
        double x0 = out[a], x1 = out[b];
        out[a] = x0 * c[i] - x1 * sn[i];
        out[b] = x0 * sn[i] + x1 * c[i];
    }
    for (size_t i = 0; i < s->head_dim; i++) x[i] = (float)out[i];
}

/* Rotated queries within float rounding; stored K and V within one rounding to their type. */
static void check_rotation(const struct scenario *s, const struct outcome *o) {
    float unit = s->dtype == BACKEND_F32 ? 2e-6f : s->dtype == BACKEND_F16 ? 1e-3f : 8e-3f;
    size_t hd = s->head_dim;
    float x[128];
    for (size_t i = 0; i < s->n_seqs; i++)
        for (size_t t = 0; t < s->lengths[i]; t++) {
            size_t row = s->first[i] + t;
            for (size_t h = 0; h < s->n_heads; h++) {
                rotate(s, x, s->q + row * s->n_heads * hd, h, s->n_heads, s->norms ? s->norm : NULL, t);
                assert_close(o->q + (row * s->n_heads + h) * hd, x, hd, 2e-6);
            }
            for (size_t h = 0; h < s->n_kv_heads; h++) {
                size_t at = (row * s->n_kv_heads + h) * hd;
                rotate(s, x, s->k + row * s->n_kv_heads * hd, h, s->n_kv_heads,
                       s->norms ? s->norm + s->n_heads * hd : NULL, t);
                assert_close(o->k + at, x, hd, unit);
                for (size_t d = 0; d < hd; d++) {
                    float stored = round_dtype(s->v[at + d], s->dtype);
                    assert_true(s->value_dim || o->v[at + d] == stored);
                    assert_true(round_dtype(o->k[at + d], s->dtype) == o->k[at + d]);
                }
            }
        }
}

/* What a head of one row must be: softmax over the attended positions of stored K and V, in double; of the
 * query as it is, or rounded to bfloat16. size: sums of |weight v|. */
static void attend(const struct scenario *s, const struct outcome *o, size_t i, size_t t, size_t h,
                   bool rounded, double *y, double *size) {
    size_t hd = s->head_dim, kv_head = h / (s->n_heads / s->n_kv_heads), stride = s->n_kv_heads * hd;
    static double weight[TEST_POSITIONS];
    const float *q = o->q + ((s->first[i] + t) * s->n_heads + h) * hd;
    const float *k = o->k + (s->first[i] * s->n_kv_heads + kv_head) * hd;
    const float *v = o->v + (s->first[i] * s->n_kv_heads + kv_head) * hd;
    size_t low = s->window && t >= s->window ? t - s->window + 1 : 0;
    size_t high = s->bidirectional ? s->lengths[i] - 1 : t;
    double max = s->sinks_used ? s->sinks[h] : -INFINITY, sum = 0.0;
    for (size_t p = low; p <= high; p++) {
        double dot = 0.0;
        for (size_t d = 0; d < hd; d++)
            dot += (double)(rounded ? round_bf16(q[d]) : q[d]) * k[p * stride + d];
        dot /= sqrt((double)hd);
        weight[p] = s->soft_cap > 0.0f ? s->soft_cap * tanh(dot / s->soft_cap) : dot;
        max = fmax(max, weight[p]);
    }
    if (s->sinks_used) sum = exp(s->sinks[h] - max);
    for (size_t p = low; p <= high; p++) sum += weight[p] = exp(weight[p] - max);
    for (size_t d = 0; d < value_dim(s); d++) {
        y[d] = size[d] = 0.0;
        for (size_t p = low; p <= high; p++) {
            y[d] += weight[p] / sum * v[p * stride + d];
            size[d] += weight[p] / sum * fabs(v[p * stride + d]);
        }
    }
}

/* A device may round queries and the terms of the softmax to bfloat16 where K and V are of that type: then
 * each weight may be wrong by 2^-8, and so may their sum. */
static void check_head(const struct scenario *s, const struct outcome *o, size_t i, size_t t, size_t h) {
    size_t n = value_dim(s), exact = 0;
    const float *got = o->y + ((s->first[i] + t) * s->n_heads + h) * n;
    double y[128], size[128];
    attend(s, o, i, t, h, false, y, size);
    for (size_t d = 0; d < n; d++) exact += fabs(got[d] - y[d]) <= 1e-5 * (1.0 + fabs(y[d]));
    if (exact == n) return;
    assert_int_equal(s->dtype, BACKEND_BF16);
    attend(s, o, i, t, h, true, y, size);
    for (size_t d = 0; d < n; d++)
        if (!(fabs(got[d] - y[d]) <= 2.02 * 0x1p-8 * size[d] + 1e-5))
            fail_msg("sequence %zu, row %zu, head %zu, element %zu: %.9g, expected %.9g", i, t, h, d, got[d],
                     y[d]);
}

static void check_attention(const struct scenario *s, const struct outcome *o) {
    for (size_t i = 0; i < s->n_seqs; i++)
        for (size_t t = 0; t < s->lengths[i]; t++)
            for (size_t h = 0; h < s->n_heads; h++) check_head(s, o, i, t, h);
}

static void check(struct scenario s) {
    prepare(&s);
    size_t ny = s.n_heads * value_dim(&s), nkv = s.n_kv_heads * s.head_dim;
    for (const char *const *path = backend_paths(); *path; path++) {
        struct outcome first = run(&s, *path, 1, TEST_MAX_ROWS, 0);
        check_rotation(&s, &first);
        check_attention(&s, &first);
        const size_t chunks[] = {1, 16, 37, 0, 0, 0}, threads[] = {2, 1, 4, 2, 4, 3};
        for (size_t i = 0; i < 6; i++) {
            struct outcome o = run(&s, *path, threads[i], chunks[i], i);
            assert_memory_equal(o.y, first.y, s.total * ny * sizeof(float));
            assert_memory_equal(o.k, first.k, s.total * nkv * sizeof(float));
            drop(&o);
        }
        drop(&first);
    }
    forget(&s);
}

static struct scenario base(enum backend_dtype dtype) {
    return (struct scenario){.n_heads = 4,
                             .n_kv_heads = 2,
                             .head_dim = 32,
                             .n_rot = 32,
                             .block_tokens = 16,
                             .n_seqs = 4,
                             .lengths = {300, 1, 70, 17},
                             .dtype = dtype};
}

static void check_heads(size_t n_heads, size_t n_kv_heads, size_t head_dim, size_t n_rot, bool interleaved,
                        enum backend_dtype dtype) {
    struct scenario s = base(dtype);
    s.n_heads = n_heads;
    s.n_kv_heads = n_kv_heads;
    s.head_dim = head_dim;
    s.n_rot = n_rot;
    s.interleaved = interleaved;
    check(s);
}

static void grouped_heads(void **state) {
    for (int dtype = 0; dtype < 3; dtype++) check(base((enum backend_dtype)dtype));
}

static void other_head_counts(void **state) {
    check_heads(4, 4, 32, 32, true, BACKEND_BF16);
    check_heads(6, 1, 64, 64, false, BACKEND_F32);
}

static void odd_sizes(void **state) {
    check_heads(3, 3, 24, 12, false, BACKEND_BF16);
    check_heads(3, 3, 80, 40, true, BACKEND_F16);
}

static void blocks_of_other_sizes(void **state) {
    struct scenario s = base(BACKEND_F16);
    s.block_tokens = 32;
    check(s);
    s.block_tokens = 256;
    check(s);
}

static void norms_and_soft_cap(void **state) {
    struct scenario s = base(BACKEND_F32);
    s.norms = true;
    s.soft_cap = 2.0f;
    check(s);
}

static void norms_of_whole_rows(void **state) {
    struct scenario s = base(BACKEND_F32);
    s.norms = s.norm_rows = true;
    check(s);
}

static void sinks(void **state) {
    struct scenario s = base(BACKEND_F32);
    s.sinks_used = true;
    s.window = 100;
    check(s);
}

static void no_rotation(void **state) {
    struct scenario s = base(BACKEND_F32);
    s.no_rotation = true;
    check(s);
}

static void both_directions(void **state) {
    for (int dtype = 0; dtype < 3; dtype++) {
        struct scenario s = base((enum backend_dtype)dtype);
        s.bidirectional = true;
        s.no_rotation = dtype == BACKEND_F32;
        s.lengths[2] = 513;
        check(s);
    }
}

static void windows(void **state) {
    const size_t sizes[] = {1, 16, 100, 256, 299, 300};
    for (size_t i = 0; i < 6; i++) {
        struct scenario s = base(BACKEND_BF16);
        s.window = sizes[i];
        check(s);
    }
}

static void partition_edges(void **state) {
    struct scenario s = base(BACKEND_BF16);
    s.lengths[0] = 256;
    s.lengths[1] = 257;
    s.lengths[2] = 255;
    s.lengths[3] = 513;
    check(s);
}

static void one_long_sequence(void **state) {
    struct scenario s = base(BACKEND_BF16);
    s.n_seqs = 2;
    s.lengths[0] = 1100;
    s.lengths[1] = 30;
    check(s);
    s.window = 300;
    check(s);
}

/* Latent attention: one row of K for all heads, of which V is the part that does not rotate. */
static void values_in_rows_of_keys(void **state) {
    for (int dtype = 0; dtype < 3; dtype++) {
        struct scenario s = base((enum backend_dtype)dtype);
        s.n_kv_heads = 1;
        s.head_dim = 72;
        s.value_dim = 64;
        s.n_rot = 8;
        s.interleaved = s.norms = true;
        s.block_tokens = dtype == BACKEND_F16 ? 64 : 16;
        s.lengths[1] = 257;
        check(s);
    }
    struct scenario s = base(BACKEND_F32);
    s.n_heads = 2;
    s.head_dim = 40;
    s.value_dim = 24;
    s.n_rot = 16;
    check(s);
}

/* ---- pages ---- */

/* Where V is a part of K, a page is half as large. */
static void pages_of_rows(void **state) {
    struct scenario s = base(BACKEND_BF16);
    struct backend *b = backend_start("ref", 1);
    s.value_dim = 24;
    struct backend_kv_layout layout = layout_of(&s);
    assert_int_equal(b->ops->kv_page_bytes(b, &layout), (3 * 9 * 16 * 64 * 2 + 4095) / 4096 * 4096);
    b->ops->close(b);
}

static void pages_are_laid_out_and_copied(void **state) {
    struct scenario s = base(BACKEND_BF16);
    struct error err = {0};
    for (const char *const *path = backend_paths(); *path; path++) {
        struct backend *b = backend_start(*path, 1);
        struct backend_kv_layout layout = layout_of(&s);
        /* 3 layers of 9 heads of 64, K and V, 16 tokens, 2 bytes: rounded up to 4096 */
        assert_int_equal(b->ops->kv_page_bytes(b, &layout), (3 * 9 * 2 * 16 * 64 * 2 + 4095) / 4096 * 4096);
        struct backend_kv *kv = poisoned_pages(b, &s);
        uint64_t seed = 21;
        for (size_t g = 0; g < 2; g++) {
            size_t n = b->ops->kv_export_bytes(b, kv, g) / sizeof(float);
            assert_int_equal(n, layout.groups[g].n_layers * 2 * 16 * layout.groups[g].n_kv_heads *
                                    layout.groups[g].head_dim);
            float *in = random_floats(&seed, n), *out = malloc(n * sizeof *out);
            for (size_t i = 0; i < n; i++) in[i] = round_bf16(in[i]);
            b->ops->kv_import(b, kv, g, 5, in);
            b->ops->kv_export(b, kv, g, 5, out);
            assert_memory_equal(in, out, n * sizeof *in);
            b->ops->kv_copy(b, kv, 7, 5, 11);
            b->ops->kv_export(b, kv, g, 7, out);
            size_t row = layout.groups[g].n_kv_heads * layout.groups[g].head_dim, block = 16 * row;
            for (size_t part = 0; part < n / block; part++)
                assert_memory_equal(in + part * block, out + part * block, 11 * row * sizeof *in);
            free(in);
            free(out);
        }
        b->ops->kv_free(b, kv);
        layout.block_tokens = 24;
        assert_int_equal(b->ops->kv_page_bytes(b, &layout), 0);
        assert_int_equal(b->ops->kv_create(b, &layout, 4, &kv, &err), QUIRE_EINVAL);
        assert_string_equal(err.param, "block-size");
        layout.block_tokens = 16;
        layout.groups[1].head_dim = 20;
        assert_int_equal(b->ops->kv_page_bytes(b, &layout), 0);
        layout.groups[1].head_dim = 32;
        assert_int_equal(b->ops->kv_create(b, &layout, SIZE_MAX / 4096, &kv, &err), QUIRE_ELIMIT);
        assert_int_equal(b->ops->kv_create(b, &layout, 0, &kv, &err), QUIRE_ELIMIT);
        b->ops->close(b);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(grouped_heads),
        cmocka_unit_test(other_head_counts),
        cmocka_unit_test(odd_sizes),
        cmocka_unit_test(blocks_of_other_sizes),
        cmocka_unit_test(norms_and_soft_cap),
        cmocka_unit_test(norms_of_whole_rows),
        cmocka_unit_test(sinks),
        cmocka_unit_test(no_rotation),
        cmocka_unit_test(both_directions),
        cmocka_unit_test(windows),
        cmocka_unit_test(partition_edges),
        cmocka_unit_test(one_long_sequence),
        cmocka_unit_test(values_in_rows_of_keys),
        cmocka_unit_test(pages_are_laid_out_and_copied),
        cmocka_unit_test(pages_of_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
