/* Paged attention over a ragged batch.
 *
 * A unit is a run of rows of one sequence (a tile of a prompt chunk, or a decode row) with the partitions of
 * logical positions that any of its rows attends to. Its items are (partition, KV head) pairs, so that one
 * long sequence among many short ones is shared by all threads. An item leaves, for each of its queries, the
 * partition's maximum, sum and weighted sum; whoever finishes a unit's last partition of a head combines them
 * in order. Partitions are anchored at position 0 and each is reduced alone, so neither tiles nor threads nor
 * waves decide a bit of the result.
 *
 * Units are queued until the partial results fill the scratch reserved for them; then the wave runs. */
#include "backend/cpu/cpu.h"

#include "base/size.h"

#include <assert.h>
#include <math.h>
#include <stdatomic.h>

#define MAX_CHUNKS (KERN_ATTN_PARTITION / KERN_KV_LANES)

struct attn_unit {
    const struct batch_seq *seq;
    size_t row, n_rows;         /* rows of the panel */
    size_t position;            /* of the first row */
    size_t first_part, n_parts; /* partitions that any row attends to */
    size_t first_item;          /* of the wave */
    size_t partial;             /* first float of its partial results */
    size_t counter;             /* first of its counters, one for each KV head */
};

/* One thread's part of the scratch. */
struct attn_thread {
    const void *k[MAX_CHUNKS], *v[MAX_CHUNKS];
    const float **q;       /* [n_queries] */
    float **acc;           /* [n_queries] */
    uint16_t *begin, *end; /* [n_queries] */
    float *scores;         /* [n_queries][KERN_ATTN_PARTITION] */
    float *max, *sum;      /* [n_parts] */
};

struct attn_wave {
    struct cpu_backend *c;
    const struct backend_attention *a;
    const struct backend_kv *kv;
    const float *q;
    float *y;
    size_t group_heads; /* query heads of a KV head */
    struct attn_unit *units;
    _Atomic uint32_t *counters;
    float *partials;
    size_t n_units, n_items, n_counters, n_partials;
};

size_t attention_unit_bytes(void) {
    return sizeof(struct attn_unit);
}

static size_t carve(size_t *at, size_t bytes) {
    size_t here = *at;
    *at = (here + bytes + MEMORY_ALIGN - 1) & ~(size_t)(MEMORY_ALIGN - 1);
    return here;
}

static struct attn_thread thread_layout(char *base, size_t n_queries, size_t n_parts, size_t *bytes) {
    size_t at = 0;
    struct attn_thread t = {0};
    size_t q = carve(&at, n_queries * sizeof *t.q), acc = carve(&at, n_queries * sizeof *t.acc);
    size_t begin = carve(&at, n_queries * sizeof *t.begin), end = carve(&at, n_queries * sizeof *t.end);
    size_t scores = carve(&at, n_queries * KERN_ATTN_PARTITION * sizeof(float));
    size_t max = carve(&at, n_parts * sizeof(float)), sum = carve(&at, n_parts * sizeof(float));
    *bytes = at;
    if (!base) return t;
    t.q = (const float **)(void *)(base + q);
    t.acc = (float **)(void *)(base + acc);
    t.begin = (uint16_t *)(void *)(base + begin);
    t.end = (uint16_t *)(void *)(base + end);
    t.scores = (float *)(void *)(base + scores);
    t.max = (float *)(void *)(base + max);
    t.sum = (float *)(void *)(base + sum);
    return t;
}

size_t attention_thread_bytes(size_t n_queries, size_t n_parts) {
    size_t bytes;
    thread_layout(NULL, n_queries, n_parts, &bytes);
    return bytes;
}

/* First position that a row at `position` attends to. */
static size_t window_begin(const struct backend_attention *a, size_t position) {
    return a->window && position >= a->window ? position + 1 - a->window : 0;
}

/* Last position that a row at `position` attends to. */
static size_t last_attended(const struct backend_attention *a, const struct batch_seq *seq, size_t position) {
    return a->bidirectional ? seq->first_position + seq->n_rows - 1 : position;
}

/* Floats that the partial results of one query in one partition take: its weighted sum, maximum and sum. */
static size_t partial_floats(const struct attn_wave *w) {
    return w->a->value_dim + 2;
}

/* The partial results of one (partition, KV head): all maxima, all sums, all weighted sums. */
static float *partial_at(const struct attn_wave *w, const struct attn_unit *u, size_t part, size_t head) {
    size_t n_queries = u->n_rows * w->group_heads;
    size_t index = head * u->n_parts + (part - u->first_part);
    return w->partials + u->partial + index * n_queries * partial_floats(w);
}

static void combine(const struct attn_wave *w, const struct attn_unit *u, size_t head,
                    struct attn_thread *t) {
    const struct backend_attention *a = w->a;
    size_t n_queries = u->n_rows * w->group_heads, stride = n_queries * partial_floats(w);
    for (size_t i = 0; i < n_queries; i++) {
        size_t row = i / w->group_heads, position = u->position + row;
        size_t first = window_begin(a, position) / KERN_ATTN_PARTITION;
        size_t n_parts = last_attended(a, u->seq, position) / KERN_ATTN_PARTITION - first + 1;
        const float *partial = partial_at(w, u, first, head);
        for (size_t p = 0; p < n_parts; p++) {
            t->max[p] = partial[p * stride + i];
            t->sum[p] = partial[p * stride + n_queries + i];
        }
        size_t h = head * w->group_heads + i % w->group_heads;
        float *y = w->y + ((u->row + row) * a->n_heads + h) * a->value_dim;
        w->c->kern->attn_combine(y, t->max, t->sum, partial + 2 * n_queries + i * a->value_dim, stride,
                                 n_parts, a->sinks ? cpu_f32(a->sinks)[h] : -INFINITY, a->value_dim);
    }
}

/* K and V of the blocks that some query attends to in [begin, end) of the partition; the others stay NULL. */
static void find_chunks(const struct attn_wave *w, const struct attn_unit *u, size_t part, size_t head,
                        size_t begin, size_t end, struct attn_thread *t) {
    const struct backend_kv *kv = w->kv;
    size_t block_tokens = kv->layout.block_tokens, n_chunks = KERN_ATTN_PARTITION / block_tokens;
    const uint32_t *table = u->seq->table[w->a->group] + part * n_chunks;
    for (size_t i = 0; i < n_chunks; i++) {
        bool wanted = (i + 1) * block_tokens > begin && i * block_tokens < end;
        const char *k = wanted ? kv_chunk(kv, w->a->group, table[i], w->a->layer, head) : NULL;
        t->k[i] = k;
        t->v[i] = wanted && !kv->layout.rows ? k + kv->chunk_bytes[w->a->group] : k;
    }
}

/* Fills begin, end and query pointers of the rows that attend to the partition. Rows are in position order,
 * so they are a run; returns its first query and sets the count. */
static size_t find_queries(const struct attn_wave *w, const struct attn_unit *u, size_t part, size_t head,
                           struct attn_thread *t, size_t *n_found, size_t *begin, size_t *end) {
    const struct backend_attention *a = w->a;
    size_t base = part * KERN_ATTN_PARTITION, first = 0, n = 0;
    *begin = KERN_ATTN_PARTITION;
    *end = 0;
    for (size_t row = 0; row < u->n_rows; row++) {
        size_t position = u->position + row, low = window_begin(a, position);
        size_t last = last_attended(a, u->seq, position);
        if (last < base || low >= base + KERN_ATTN_PARTITION) continue;
        size_t from = low > base ? low - base : 0, to = size_min(last + 1 - base, KERN_ATTN_PARTITION);
        if (!n) first = row * w->group_heads;
        *begin = size_min(*begin, from);
        *end = size_max(*end, to);
        const float *q = w->q + ((u->row + row) * a->n_heads + head * w->group_heads) * a->head_dim;
        for (size_t g = 0; g < w->group_heads; g++, n++) {
            t->q[n] = q + g * a->head_dim;
            t->begin[n] = (uint16_t)from;
            t->end[n] = (uint16_t)to;
        }
    }
    *n_found = n;
    return first;
}

static void run_item(void *ctx, size_t item, size_t thread) {
    const struct attn_wave *w = ctx;
    const struct backend_attention *a = w->a;
    cpu_begin_kernels(w->c);
    size_t low = 0, high = w->n_units, bytes;
    while (high - low > 1) {
        size_t mid = (low + high) / 2;
        if (w->units[mid].first_item <= item)
            low = mid;
        else
            high = mid;
    }
    const struct attn_unit *u = &w->units[low];
    size_t part = u->first_part + (item - u->first_item) / a->n_kv_heads;
    size_t head = (item - u->first_item) % a->n_kv_heads;
    struct attn_thread t = thread_layout(cpu_thread_scratch(w->c, thread, w->c->at.attn), w->c->at.n_queries,
                                         w->c->at.n_parts, &bytes);

    size_t n, begin, end, first = find_queries(w, u, part, head, &t, &n, &begin, &end);
    find_chunks(w, u, part, head, begin, end, &t);
    size_t n_queries = u->n_rows * w->group_heads;
    float *partial = partial_at(w, u, part, head);
    for (size_t i = 0; i < n; i++) t.acc[i] = partial + 2 * n_queries + (first + i) * a->value_dim;
    struct kern_attn_job job = {.k = t.k,
                                .v = t.v,
                                .block_tokens = w->kv->layout.block_tokens,
                                .head_dim = a->head_dim,
                                .value_dim = a->value_dim,
                                .q = t.q,
                                .begin = t.begin,
                                .end = t.end,
                                .n_q = n,
                                .scale = a->scale,
                                .soft_cap = a->soft_cap,
                                .max = partial + first,
                                .sum = partial + n_queries + first,
                                .acc = t.acc,
                                .scratch = t.scores};
    w->kv->attn->partition(&job);
    uint32_t done = atomic_fetch_add_explicit(&w->counters[u->counter + head], 1, memory_order_acq_rel) + 1;
    if (done == u->n_parts) combine(w, u, head, &t);
}

static void run_wave(struct attn_wave *w) {
    for (size_t i = 0; i < w->n_counters; i++)
        atomic_store_explicit(&w->counters[i], 0, memory_order_relaxed);
    pool_run(w->c->pool, w->n_items, run_item, w);
    w->n_units = w->n_items = w->n_counters = w->n_partials = 0;
}

/* Partitions that rows at [position, position + n_rows) attend to. */
static size_t count_parts(const struct backend_attention *a, const struct batch_seq *seq, size_t position,
                          size_t n_rows, size_t *first) {
    *first = window_begin(a, position) / KERN_ATTN_PARTITION;
    return last_attended(a, seq, position + n_rows - 1) / KERN_ATTN_PARTITION - *first + 1;
}

/* Queues up to max_rows rows as one unit, running the wave first when it is full. Returns how many it took:
 * fewer than asked when one unit of them would not fit the scratch. */
static size_t queue_unit(struct attn_wave *w, const struct batch_seq *seq, size_t row, size_t position,
                         size_t max_rows) {
    size_t n_rows = max_rows, first_part, n_parts, need;
    for (;; n_rows = (n_rows + 1) / 2) {
        n_parts = count_parts(w->a, seq, position, n_rows, &first_part);
        need = n_rows * w->a->n_heads * n_parts * partial_floats(w);
        if (need <= w->c->at.n_partials) break;
        assert(n_rows > 1);
    }
    if (w->n_units == ATTN_MAX_UNITS || w->n_counters + w->a->n_kv_heads > ATTN_MAX_COUNTERS ||
        need > w->c->at.n_partials - w->n_partials)
        run_wave(w);
    w->units[w->n_units++] = (struct attn_unit){.seq = seq,
                                                .row = row,
                                                .n_rows = n_rows,
                                                .position = position,
                                                .first_part = first_part,
                                                .n_parts = n_parts,
                                                .first_item = w->n_items,
                                                .partial = w->n_partials,
                                                .counter = w->n_counters};
    w->n_items += n_parts * w->a->n_kv_heads;
    w->n_counters += w->a->n_kv_heads;
    w->n_partials += need;
    return n_rows;
}

void cpu_attention(struct backend *b, struct backend_buffer *y, const struct backend_buffer *q,
                   const struct backend_attention *a, const struct backend_kv *kv, const struct batch *batch,
                   size_t first_row, size_t n_rows) {
    struct cpu_backend *c = cpu_of(b);
    struct attn_wave w = {.c = c,
                          .a = a,
                          .kv = kv,
                          .q = cpu_f32(q),
                          .y = cpu_f32(y),
                          .group_heads = a->n_heads / a->n_kv_heads,
                          .units = (struct attn_unit *)(void *)(c->scratch + c->at.units),
                          .counters = (_Atomic uint32_t *)(void *)(c->scratch + c->at.counters),
                          .partials = (float *)(void *)(c->scratch + c->at.partials)};
    size_t tile_rows = size_max(ATTN_TILE_QUERIES / w.group_heads, 1);
    for (size_t i = 0; i < n_rows;) {
        const struct batch_seq *seq = &batch->seqs[batch->seq[first_row + i]];
        size_t end = size_min(seq->first_row + seq->n_rows - first_row, n_rows);
        size_t position = seq->first_position + (first_row + i - seq->first_row);
        i += queue_unit(&w, seq, i, position, size_min(end - i, tile_rows));
    }
    if (w.n_items) run_wave(&w);
}
