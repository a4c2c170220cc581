#include "util_session.h"

#include "kern/kern.h"
#include "util/gguf_build.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

bool session_has_path(const char *path) {
    const struct kern *k = kern_select(path);
    return k && !strcmp(k->name, path);
}

static void check(int rc, const struct error *err) {
    if (rc) fail_msg("%s", err->text);
}

void session_open(struct session *s, struct weights *w, const struct session_options *o) {
    struct error err = {0};
    *s = (struct session){.w = w,
                          .spec = calloc(1, sizeof *s->spec),
                          .block_tokens = o->block_tokens ? o->block_tokens : 16,
                          .n_pages = o->n_pages,
                          .max_logit_rows = o->max_logit_rows ? o->max_logit_rows : 8};
    assert_non_null(s->spec);
    check(model_spec_read(w, s->spec, &err), &err);
    struct backend_cpu_options cpu = model_cpu_options(s->spec, o->max_model_len, 8192);
    cpu.n_threads = o->n_threads;
    cpu.isa_limit = o->path;
    if (o->max_rows) cpu.max_rows = o->max_rows;
    check(backend_cpu_open(&cpu, &s->b, &err), &err);
    if (s->max_logit_rows > cpu.max_rows) s->max_logit_rows = cpu.max_rows;
    struct model_options mo = {.dtype = o->dtype,
                               .max_model_len = o->max_model_len,
                               .max_logit_rows = s->max_logit_rows,
                               .max_kept_rows = o->max_kept_rows ? o->max_kept_rows : 4096,
                               .pooling = o->pooling};
    if (o->pooling) {
        mo.max_logit_rows = mo.max_kept_rows = 0;
        mo.max_pool_rows = 1;
    }
    check(model_load(w, s->spec, s->b, &mo, &s->m, &err), &err);
    struct backend_kv_layout layout = model_kv_layout(s->spec, s->block_tokens, o->dtype);
    size_t n_pages = s->n_pages * s->spec->n_kv_groups;
    check(s->b->ops->kv_create(s->b, &layout, n_pages, &s->kv, &err), &err);
    check(s->b->ops->kv_populate(s->b, s->kv, 0, n_pages, &err), &err);
}

void session_close(struct session *s) {
    s->b->ops->kv_free(s->b, s->kv);
    model_free(s->m);
    s->b->ops->close(s->b);
    free(s->spec);
}

void session_poison(struct session *s) {
    for (size_t g = 0; g < s->spec->n_kv_groups; g++) {
        size_t n = s->b->ops->kv_export_bytes(s->b, s->kv, g);
        uint32_t *page = malloc(n);
        assert_non_null(page);
        for (size_t i = 0; i < n / 4; i++) page[i] = i % 3 ? 0x7fc00000u : 0x7f800000u; /* NaN, infinity */
        for (size_t p = 0; p < s->n_pages * s->spec->n_kv_groups; p++)
            s->b->ops->kv_import(s->b, s->kv, g, p, page);
        free(page);
    }
}

/* Page i of a sequence is one page for each group; those that a group's window no longer needs are the null
 * page. */
static void fill_tables(const struct session *s, const struct session_seq *seq, uint32_t *tables,
                        struct batch_seq *out) {
    size_t n_blocks = (seq->n_tokens + s->block_tokens - 1) / s->block_tokens;
    for (size_t g = 0; g < s->spec->n_kv_groups; g++, tables += n_blocks) {
        size_t window = s->spec->kv_groups[g].window, low = 0;
        if (window && seq->computed >= window) low = (seq->computed + 1 - window) / s->block_tokens;
        for (size_t i = 0; i < n_blocks; i++)
            tables[i] = i < low ? 0 : seq->table[i] * (uint32_t)s->spec->n_kv_groups + (uint32_t)g;
        out->table[g] = tables;
    }
}

struct step {
    struct batch batch;
    struct batch_seq *seqs;
    uint32_t *tables;
};

static struct step build_step(const struct session *s, struct session_seq *const *seqs, const size_t *n_rows,
                              size_t n_seqs, bool logits) {
    struct step st = {0};
    struct batch *b = &st.batch;
    for (size_t i = 0; i < n_seqs; i++) b->n_rows += n_rows[i];
    b->n_seqs = n_seqs;
    b->token = calloc(b->n_rows, 4);
    b->position = calloc(b->n_rows, 4);
    b->seq = calloc(b->n_rows, 4);
    b->logit_rows = calloc(b->n_rows, 4);
    b->seqs = st.seqs = calloc(n_seqs, sizeof *st.seqs);
    assert_true(b->token && b->position && b->seq && b->logit_rows && b->seqs);
    b->n_logit_rows = logits ? b->n_rows : 0;
    size_t row = 0, n_entries = 0;
    for (size_t i = 0; i < n_seqs; i++)
        n_entries += (seqs[i]->n_tokens / s->block_tokens + 1) * BATCH_MAX_GROUPS;
    uint32_t *tables = st.tables = calloc(n_entries, sizeof *tables);
    assert_non_null(tables);
    for (size_t i = 0; i < n_seqs; i++) {
        st.seqs[i] = (struct batch_seq){
            .first_row = row, .n_rows = n_rows[i], .first_position = (uint32_t)seqs[i]->computed};
        fill_tables(s, seqs[i], tables, &st.seqs[i]);
        tables += (seqs[i]->n_tokens / s->block_tokens + 1) * BATCH_MAX_GROUPS;
        for (size_t j = 0; j < n_rows[i]; j++, row++) {
            b->token[row] = seqs[i]->tokens[seqs[i]->computed + j];
            b->position[row] = (uint32_t)(seqs[i]->computed + j);
            b->seq[row] = (uint32_t)i;
            b->logit_rows[row] = (uint32_t)row;
        }
    }
    return st;
}

static void step_free(struct step *st) {
    free(st->batch.token);
    free(st->batch.position);
    free(st->batch.seq);
    free(st->batch.logit_rows);
    free(st->seqs);
    free(st->tables);
}

void session_step(struct session *s, struct session_seq *const *seqs, const size_t *n_rows, size_t n_seqs,
                  float *const *logits) {
    struct step st = build_step(s, seqs, n_rows, n_seqs, logits != NULL);
    size_t n_vocab = s->spec->n_vocab;
    model_forward(s->m, s->kv, &st.batch);
    for (size_t first = 0; first < st.batch.n_logit_rows; first += s->max_logit_rows) {
        size_t n = st.batch.n_logit_rows - first;
        if (n > s->max_logit_rows) n = s->max_logit_rows;
        struct backend_buffer *rows = model_logits(s->m, first, n);
        for (size_t i = 0; i < n; i++) {
            const struct batch_seq *seq = &st.seqs[st.batch.seq[first + i]];
            float *out = logits[st.batch.seq[first + i]];
            if (out)
                s->b->ops->download(s->b, out + (first + i - seq->first_row) * n_vocab, rows, i * n_vocab * 4,
                                    n_vocab * 4);
        }
    }
    for (size_t i = 0; i < n_seqs; i++) seqs[i]->computed += n_rows[i];
    step_free(&st);
}

/* Pages 1, 2, ... for a sequence of n tokens. */
static uint32_t *new_table(const struct session *s, size_t n) {
    size_t n_blocks = (n + s->block_tokens - 1) / s->block_tokens;
    uint32_t *table = calloc(n_blocks, 4);
    assert_non_null(table);
    assert_true(n_blocks < s->n_pages);
    for (size_t i = 0; i < n_blocks; i++) table[i] = (uint32_t)i + 1;
    return table;
}

void session_vector(struct session *s, const uint32_t *tokens, size_t n, size_t n_first, float *out) {
    struct session_seq seq = {.tokens = tokens, .n_tokens = n, .table = new_table(s, n)}, *seqs[] = {&seq};
    struct step st = build_step(s, seqs, &n, 1, false);
    uint32_t row = 0, n_tokens = (uint32_t)n;
    st.seqs[0].n_first = (uint32_t)n_first;
    model_forward(s->m, s->kv, &st.batch);
    model_vectors(s->m, &row, &n_tokens, 1, out);
    step_free(&st);
    free(seq.table);
}

void session_run(struct session *s, const uint32_t *tokens, size_t n, size_t chunk, float *logits) {
    struct session_seq seq = {.tokens = tokens, .n_tokens = n, .table = new_table(s, n)}, *seqs[] = {&seq};
    while (seq.computed < n) {
        size_t rows = n - seq.computed < chunk ? n - seq.computed : chunk;
        float *out = logits + seq.computed * s->spec->n_vocab;
        session_step(s, seqs, &rows, 1, &out);
    }
    free(seq.table);
}

const char *session_real_model(void) {
    static char path[4096];
    const char *name = "SmolLM2-135M-Instruct.Q4_1.gguf", *dir;
    if ((dir = getenv("QUIRE_TEST_MODEL")) && *dir)
        snprintf(path, sizeof path, "%s", dir);
    else if ((dir = getenv("QUIRE_CACHE")) && *dir)
        snprintf(path, sizeof path, "%s/%s", dir, name);
    else if ((dir = getenv("XDG_CACHE_HOME")) && *dir)
        snprintf(path, sizeof path, "%s/quire/%s", dir, name);
    else if ((dir = getenv("HOME")) && *dir)
        snprintf(path, sizeof path, "%s/.cache/quire/%s", dir, name);
    return access(path, R_OK) ? NULL : path;
}

/* Scalars, texts and arrays of scalars, but for the tokenizer. */
static void copy_meta(struct gguf_build *b, const struct meta *m) {
    static const size_t bytes[] = {
        [META_U8] = 1,  [META_I8] = 1,   [META_U16] = 2, [META_I16] = 2, [META_U32] = 4, [META_I32] = 4,
        [META_F32] = 4, [META_BOOL] = 1, [META_U64] = 8, [META_I64] = 8, [META_F64] = 8};
    if (!strncmp(m->key, "tokenizer.", 10)) return;
    if (!strncmp(m->key, "general.", 8) && strcmp(m->key, "general.architecture")) return;
    if (m->type == META_STRING) {
        gguf_kv(b, m->key, META_STRING);
        gguf_bytes_str(&b->kv, m->strings->data, m->strings->len);
        return;
    }
    bool array = m->type == META_ARRAY;
    enum meta_type elem = array ? m->elem : m->type;
    assert_true(elem != META_STRING && elem != META_ARRAY);
    if (array)
        gguf_kv_array(b, m->key, elem, m->n);
    else
        gguf_kv(b, m->key, elem);
    gguf_bytes_put(&b->kv, m->raw, m->n * bytes[elem]);
}

static size_t padded_f32_bytes(const struct tensor *t) {
    return (t->dims[0] * tensor_rows(t) * sizeof(float) + 31) / 32 * 32;
}

/* As weights_read gives it, so a tensor may be in parts. */
static void dequantize(const struct weights *w, const struct tensor *t, float *out) {
    struct error err = {0};
    const struct tensor_type_info *type = tensor_type_info(t->type);
    void *row = malloc(t->row_bytes);
    assert_non_null(row);
    assert_false(t->plus_one);
    for (size_t r = 0; r < tensor_rows(t); r++) {
        check(weights_read(w, t, r * t->row_bytes, t->row_bytes, row, &err), &err);
        type->decode(out + r * t->dims[0], row, t->dims[0] / type->block_elems);
    }
    free(row);
}

void session_copy_metadata(struct gguf_build *b, const struct weights *w) {
    for (size_t i = 0; i < weights_n_meta(w); i++) copy_meta(b, weights_meta_at(w, i));
}

void *session_dequantized(const struct weights *w, size_t *n) {
    struct gguf_build b = gguf_build_new();
    size_t bytes = 0, header_bytes;
    session_copy_metadata(&b, w);
    for (size_t i = 0; i < weights_n_tensors(w); i++) {
        const struct tensor *t = weights_tensor_at(w, i);
        uint64_t dims[TENSOR_MAX_DIMS];
        for (unsigned k = 0; k < t->n_dims; k++) dims[k] = t->dims[k];
        gguf_tensor_info(&b, t->name, t->n_dims, dims, TENSOR_F32, bytes);
        bytes += padded_f32_bytes(t);
    }
    uint8_t *header = gguf_build_finish(&b, &header_bytes);
    *n = header_bytes + bytes;
    char *data = mmap(NULL, *n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(data != MAP_FAILED);
    memcpy(data, header, header_bytes);
    free(header);
    char *at = data + header_bytes;
    for (size_t i = 0; i < weights_n_tensors(w); i++) {
        const struct tensor *t = weights_tensor_at(w, i);
        dequantize(w, t, (float *)(void *)at);
        at += padded_f32_bytes(t);
    }
    return data;
}

void session_dequantized_free(void *data, size_t n) {
    munmap(data, n);
}
