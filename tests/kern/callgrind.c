/* kern_once TABLE [--list | KERNEL ...]: calls each named kernel once, with one fixed small input, through
 * measured(); scripts/callgrind.py has the instructions of these calls counted. Calls measured() once for
 * each name, in order. */
#include "bench/fill.h"
#include "kern/kern.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    K = 512, /* a multiple of all formats' blocks */
    PANELS = 2,
    ROWS_MANY = 32,
    HEAD = 64,
    QUERIES_GROUP = 3,
    QUERIES_TILE = 48,
    VOCABULARY = 4096,
    ROW = 1536,
    BLOCK = 16,
    CHUNKS = KERN_ATTN_PARTITION / BLOCK
};

struct run {
    const struct kern *kern;
    bool list;
    const char *name; /* to be called; NULL: none */
    bool found;
    struct fill fill;
};

static void *memory(size_t bytes) {
    void *p = aligned_alloc(64, (bytes + 63) & ~(size_t)63);
    if (!p) {
        fprintf(stderr, "kern_once: no memory for %zu bytes\n", bytes);
        exit(2);
    }
    return memset(p, 0, (bytes + 63) & ~(size_t)63);
}

static float *floats(struct run *r, size_t n) {
    float *x = memory(n * sizeof *x);
    fill_floats(&r->fill, x, n);
    return x;
}

/* Named on valgrind's command line: nothing else is counted. */
void measured(void (*call)(void *ctx), void *ctx);
__attribute__((noinline)) void measured(void (*call)(void *ctx), void *ctx) {
    call(ctx);
    __asm__ volatile("" ::: "memory"); /* no tail call: counting ends with the return */
}

static bool wanted(struct run *r, const char *name) {
    if (r->list) puts(name);
    bool is = r->name && !strcmp(r->name, name);
    r->found = r->found || is;
    return is;
}

/* ---- matrix products ---- */

struct product {
    const struct kern_mm *mm;
    struct kern_matrix w;
    uint8_t *file;
    size_t file_row_bytes, act_row_bytes, m;
    char *panels, *acts;
    float *y, *scratch;
};

static void call_pack(void *ctx) {
    struct product *p = ctx;
    size_t panel_bytes = p->mm->panel_bytes(&p->w), panel_file_bytes = p->mm->panel_rows * p->file_row_bytes;
    for (size_t i = 0; i < PANELS; i++)
        p->mm->pack(&p->w, p->panels + i * panel_bytes, p->file + i * panel_file_bytes, p->file_row_bytes,
                    p->mm->panel_rows);
}

static void call_product(void *ctx) {
    struct product *p = ctx;
    p->mm->run(&p->w, p->y, p->w.rows, 0, PANELS, p->acts, p->act_row_bytes, p->m, false, p->scratch);
}

static void run_product(struct run *r, enum kern_format f, const struct tensor_type_info *type, size_t m) {
    struct product p = {.mm = &r->kern->mm[f], .m = m};
    p.w = (struct kern_matrix){.mm = p.mm,
                               .format = f,
                               .decode = type->decode,
                               .block_elems = type->block_elems,
                               .block_bytes = type->block_bytes,
                               .rows = PANELS * p.mm->panel_rows,
                               .k = K};
    p.file_row_bytes = K / type->block_elems * type->block_bytes;
    p.act_row_bytes = r->kern->act_row_bytes(p.mm->act, K);
    p.file = memory(p.w.rows * p.file_row_bytes);
    if (!fill_blocks(&r->fill, p.file, p.w.rows * p.file_row_bytes, type)) {
        fprintf(stderr, "kern_once: no usable weights of format %s\n", type->name);
        exit(2);
    }
    p.panels = memory(PANELS * p.mm->panel_bytes(&p.w));
    p.w.panels = p.panels;
    if (!m) {
        measured(call_pack, &p);
    } else {
        call_pack(&p);
        p.acts = memory(m * p.act_row_bytes);
        p.y = memory(m * p.w.rows * sizeof *p.y);
        p.scratch = memory(kern_mm_scratch(K) * sizeof *p.scratch);
        for (size_t i = 0; i < m; i++) {
            float *x = floats(r, K);
            r->kern->act_pack[p.mm->act](p.acts + i * p.act_row_bytes, x, K);
            free(x);
        }
        measured(call_product, &p);
    }
    free(p.file);
    free(p.panels);
    free(p.acts);
    free(p.y);
    free(p.scratch);
}

static void each_product(struct run *r) {
    static const struct {
        const char *label;
        size_t m; /* 0: packing */
    } cases[] = {{"pack", 0}, {"1 row", 1}, {"32 rows", ROWS_MANY}};
    for (uint32_t f = 0; f < KERN_FORMAT_END; f++) {
        const struct tensor_type_info *type = tensor_type_info(f);
        if (!r->kern->mm[f].run || !type || !type->decode) continue;
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            char name[64];
            snprintf(name, sizeof name, "%s, %s", type->name, cases[i].label);
            if (wanted(r, name)) run_product(r, (enum kern_format)f, type, cases[i].m);
        }
    }
}

/* ---- attention ---- */

struct attention {
    const struct kern_attn *attn;
    struct kern_attn_job job;
};

static void call_attention(void *ctx) {
    const struct attention *a = ctx;
    a->attn->partition(&a->job);
}

static void run_attention(struct run *r, enum kern_kv type, size_t n_q) {
    const void *k[CHUNKS], *v[CHUNKS];
    const float *q[QUERIES_TILE];
    float *acc[QUERIES_TILE], max[QUERIES_TILE], sum[QUERIES_TILE];
    uint16_t begin[QUERIES_TILE] = {0}, end[QUERIES_TILE];
    const struct kern_attn *attn = &r->kern->attn[type];
    size_t chunk_bytes = BLOCK * HEAD * attn->elem_bytes;
    char *kv = memory(2 * CHUNKS * chunk_bytes);
    float *queries = floats(r, n_q * HEAD), *sums = memory(n_q * HEAD * sizeof *sums);
    for (size_t i = 0; i < CHUNKS; i++) {
        k[i] = kv + i * chunk_bytes;
        v[i] = kv + (CHUNKS + i) * chunk_bytes;
        for (size_t slot = 0; slot < BLOCK; slot++) {
            float *row = floats(r, 2 * HEAD);
            attn->write_k(kv + i * chunk_bytes, slot, BLOCK, row, HEAD);
            attn->write_v(kv + (CHUNKS + i) * chunk_bytes, slot, row + HEAD, HEAD);
            free(row);
        }
    }
    for (size_t i = 0; i < n_q; i++) {
        q[i] = queries + i * HEAD;
        acc[i] = sums + i * HEAD;
        end[i] = KERN_ATTN_PARTITION;
    }
    struct attention a = {.attn = attn,
                          .job = {.k = k,
                                  .v = v,
                                  .block_tokens = BLOCK,
                                  .head_dim = HEAD,
                                  .value_dim = HEAD,
                                  .q = q,
                                  .begin = begin,
                                  .end = end,
                                  .n_q = n_q,
                                  .scale = 0.125f,
                                  .max = max,
                                  .sum = sum,
                                  .acc = acc,
                                  .scratch = memory(n_q * KERN_ATTN_PARTITION * sizeof(float))}};
    measured(call_attention, &a);
    free(a.job.scratch);
    free(kv);
    free(queries);
    free(sums);
}

static void each_attention(struct run *r) {
    static const char *const types[KERN_KV_TYPES] = {"f32", "f16", "bf16"};
    static const size_t queries[] = {QUERIES_GROUP, QUERIES_TILE};
    for (int type = 0; type < KERN_KV_TYPES; type++) {
        for (size_t i = 0; i < 2; i++) {
            char name[64];
            snprintf(name, sizeof name, "attention %s, %zu queries", types[type], queries[i]);
            if (wanted(r, name)) run_attention(r, (enum kern_kv)type, queries[i]);
        }
    }
}

/* ---- rows ---- */

struct row {
    const struct kern *kern;
    float *x, *y, *w;
};

static void call_norm(void *ctx) {
    struct row *r = ctx;
    r->kern->rms_norm(r->y, r->x, r->w, ROW, 1e-5f);
}
static void call_swiglu(void *ctx) {
    struct row *r = ctx;
    r->kern->swiglu(r->y, r->x, r->w, ROW);
}
static void call_rope_pairs(void *ctx) {
    struct row *r = ctx;
    r->kern->rope(r->y, r->w, HEAD, true);
}
static void call_rope_halves(void *ctx) {
    struct row *r = ctx;
    r->kern->rope(r->y, r->w, HEAD, false);
}
static void call_add(void *ctx) {
    struct row *r = ctx;
    r->kern->add(r->y, r->x, ROW);
}
static void call_pack_q8(void *ctx) {
    struct row *r = ctx;
    r->kern->act_pack[KERN_ACT_Q8](r->y, r->x, ROW);
}
static void call_pack_f16(void *ctx) {
    struct row *r = ctx;
    r->kern->act_pack[KERN_ACT_F16](r->y, r->x, ROW);
}
static void call_pack_bf16(void *ctx) {
    struct row *r = ctx;
    r->kern->act_pack[KERN_ACT_BF16](r->y, r->x, ROW);
}
static void call_combine(void *ctx) {
    struct row *r = ctx;
    r->kern->attn_combine(r->y, r->w, r->w + 8, r->x, HEAD, 8, -INFINITY, HEAD);
}
static void call_scan(void *ctx) {
    struct row *r = ctx;
    size_t at;
    bool finite;
    r->kern->logits_scan(r->x, VOCABULARY, r->y, &at, &finite);
}
static void call_log_sum_exp(void *ctx) {
    struct row *r = ctx;
    r->y[0] = (float)r->kern->log_sum_exp(r->x, VOCABULARY, 1.0f);
}
static void call_softmax(void *ctx) {
    struct row *r = ctx;
    r->y[0] = (float)r->kern->softmax_terms(r->y, r->x, VOCABULARY, 1.0f, 1.25f);
}

static void each_row(struct run *r) {
    static const struct {
        const char *name;
        void (*call)(void *ctx);
    } cases[] = {{"rms_norm", call_norm},
                 {"swiglu", call_swiglu},
                 {"rope, interleaved", call_rope_pairs},
                 {"rope, halves", call_rope_halves},
                 {"add", call_add},
                 {"act_pack q8", call_pack_q8},
                 {"act_pack f16", call_pack_f16},
                 {"act_pack bf16", call_pack_bf16},
                 {"attn_combine", call_combine},
                 {"logits_scan", call_scan},
                 {"log_sum_exp", call_log_sum_exp},
                 {"softmax_terms", call_softmax}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (!wanted(r, cases[i].name)) continue;
        struct row row = {r->kern, floats(r, VOCABULARY), floats(r, VOCABULARY), floats(r, VOCABULARY)};
        for (size_t j = 0; j < VOCABULARY; j++) row.w[j] = 0.5f + 0.25f * row.w[j];
        measured(cases[i].call, &row);
        free(row.x);
        free(row.y);
        free(row.w);
    }
}

static void each_kernel(struct run *r) {
    each_product(r);
    each_attention(r);
    each_row(r);
}

int main(int argc, char **argv) {
    const struct kern *kern = argc > 2 ? kern_select(argv[1]) : NULL;
    if (!kern || strcmp(kern->name, argv[1]) != 0) {
        fprintf(stderr,
                argc > 2 ? "kern_once: this machine has no path %s\n"
                         : "usage: kern_once TABLE --list | KERNEL ...\n",
                argv[1]);
        return 2;
    }
    struct run r = {.kern = kern, .list = !strcmp(argv[2], "--list")};
    if (r.list) {
        each_kernel(&r);
        return 0;
    }
    for (int i = 2; i < argc; i++) {
        r.name = argv[i];
        r.found = false;
        r.fill = (struct fill){1}; /* the same data whatever was called before */
        each_kernel(&r);
        if (!r.found) {
            fprintf(stderr, "kern_once: the path %s has no kernel \"%s\"\n", kern->name, r.name);
            return 2;
        }
    }
    return 0;
}
