/* What is planned is what is taken; nothing is allocated while running; every failing allocation on the way
 * to a loaded model is an error that leaves nothing behind. */
#include "util_session.h"

#include "util/alloc_fail.h"
#include "util/tiny_encoder.h"
#include "util/tiny_family.h"
#include "util/tiny_model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct weights *open_tiny(unsigned type, bool tied, void **file) {
    struct tiny_model_options o = tiny_model_defaults();
    struct weights *w;
    struct error err = {0};
    size_t n;
    o.type = type;
    o.tied = tied;
    o.rope_freqs = true;
    *file = tiny_model_memory(&o, &n);
    assert_non_null(*file);
    if (weights_open_memory(*file, n, &w, &err)) fail_msg("%s", err.text);
    return w;
}

/* ---- a backend that counts ---- */

/* Operations get the real backend, so what they count into is here. */
static struct counting { size_t buffer_bytes, matrix_bytes; } * counter;
static const struct backend_ops *real_ops;

static struct backend_buffer *count_buffer(struct backend *b, size_t bytes) {
    counter->buffer_bytes += bytes;
    return real_ops->buffer_alloc(b, bytes);
}

static int count_matrix(struct backend *b, const struct backend_tensor *t, enum backend_dtype dtype,
                        struct backend_matrix **out, struct error *err) {
    counter->matrix_bytes += real_ops->matrix_bytes(b, t, dtype, err);
    return real_ops->matrix_load(b, t, dtype, out, err);
}

/* Closes w. */
static void check_plan_of(struct weights *w, const struct model_options *options) {
    struct model_options o = *options;
    struct model_spec *spec = calloc(1, sizeof *spec);
    struct error err = {0};
    struct backend *b;
    struct model *m;
    struct model_memory plan;
    if (model_spec_read(w, spec, &err)) fail_msg("%s", err.text);
    struct backend_cpu_options cpu = model_cpu_options(spec, 1000, 300);
    cpu.n_threads = 2;
    if (backend_cpu_open(&cpu, &b, &err)) fail_msg("%s", err.text);
    if (model_memory_plan(w, spec, b, &o, &plan, &err)) fail_msg("%s", err.text);

    struct counting count = {0};
    struct backend_ops ops = *b->ops;
    real_ops = b->ops;
    counter = &count;
    ops.buffer_alloc = count_buffer;
    ops.matrix_load = count_matrix;
    b->ops = &ops;
    if (model_load(w, spec, b, &o, &m, &err)) fail_msg("%s", err.text);
    b->ops = real_ops;
    assert_int_equal(plan.weights_bytes + plan.activation_bytes, count.buffer_bytes + count.matrix_bytes);
    assert_true(plan.weights_bytes >= count.matrix_bytes);
    model_free(m);
    b->ops->close(b);
    weights_close(w);
    free(spec);
}

static void check_plan(unsigned type, bool tied, enum backend_dtype dtype) {
    void *file;
    struct weights *w = open_tiny(type, tied, &file);
    check_plan_of(w, &(struct model_options){
                         .dtype = dtype, .max_model_len = 1000, .max_logit_rows = 20, .max_kept_rows = 70});
    free(file);
}

/* Sequences longer than a panel; and an untied decoder whose matrix of logits is left out. */
static void the_plan_of_vectors(void **state) {
    struct model_options o = {.dtype = BACKEND_BF16, .max_model_len = 1000, .max_pool_rows = 17};
    struct weights *w;
    struct error err = {0};
    size_t n;
    for (int pooling = MODEL_POOL_MEAN; pooling < MODEL_POOL_END; pooling++) {
        void *file = tiny_encoder_memory("cross", TENSOR_Q8_0, 1, &n);
        assert_non_null(file);
        if (weights_open_memory(file, n, &w, &err)) fail_msg("%s", err.text);
        o.pooling = (enum model_pooling)pooling;
        check_plan_of(w, &o);
        free(file);
    }
    void *file;
    w = open_tiny(TENSOR_F32, false, &file);
    o.pooling = MODEL_POOL_LAST;
    check_plan_of(w, &o);
    free(file);
}

/* Matrices for each head, and those of keys turned around, whatever their type. */
static void the_plan_of_latent_attention(void **state) {
    static const char *const variants[] = {"deepseek2-lite", "deepseek3"};
    for (size_t i = 0; i < 4; i++) {
        size_t n;
        struct weights *w;
        struct error err = {0};
        void *file = tiny_family_memory(variants[i % 2], i < 2 ? TENSOR_Q8_0 : TENSOR_F32, 3, &n);
        if (weights_open_memory(file, n, &w, &err)) fail_msg("%s", err.text);
        check_plan_of(w, &(struct model_options){.dtype = i < 2 ? BACKEND_BF16 : BACKEND_F32,
                                                 .max_model_len = 1000,
                                                 .max_logit_rows = 8,
                                                 .max_kept_rows = 16});
        free(file);
    }
}

static void the_plan_is_what_is_taken(void **state) {
    check_plan(TENSOR_F32, false, BACKEND_F32);
    check_plan(TENSOR_F32, true, BACKEND_BF16);
    check_plan(TENSOR_Q4_1, false, BACKEND_BF16);
}

/* Packed weights of the default model: within 5 % of the file's tensors; activations and scratch small. */
static void the_default_model_fits(void **state) {
    struct weights *w;
    struct error err = {0};
    const char *path = session_real_model();
    if (!path) {
        print_message(
            "SKIPPED: the default model is not there (quire pull smollm2, or QUIRE_TEST_MODEL=FILE)\n");
        skip();
    }
    if (weights_open(path, &w, &err)) fail_msg("%s", err.text);
    struct model_spec *spec = calloc(1, sizeof *spec);
    if (model_spec_read(w, spec, &err)) fail_msg("%s", err.text);
    const char *const paths[] = {"ref", "avx2", "avx512"};
    for (size_t i = 0; i < 3; i++) {
        if (!session_has_path(paths[i])) continue;
        struct backend_cpu_options cpu = model_cpu_options(spec, 0, 8192);
        struct backend *b;
        struct model_memory plan;
        cpu.n_threads = 2;
        cpu.isa_limit = paths[i];
        if (backend_cpu_open(&cpu, &b, &err)) fail_msg("%s", err.text);
        struct model_options o = {.dtype = BACKEND_BF16, .max_logit_rows = 64, .max_kept_rows = 256};
        if (model_memory_plan(w, spec, b, &o, &plan, &err)) fail_msg("%s", err.text);
        print_message("%s: weights %.1f MB (file %.1f), activations %.1f MB, scratch %.1f MB\n", paths[i],
                      (double)plan.weights_bytes / 1e6, (double)weights_tensor_bytes(w) / 1e6,
                      (double)plan.activation_bytes / 1e6, (double)backend_cpu_scratch_bytes(&cpu) / 1e6);
        assert_true((double)plan.weights_bytes <= 1.05 * (double)weights_tensor_bytes(w));
        assert_true(plan.activation_bytes + backend_cpu_scratch_bytes(&cpu) <= 64u << 20);
        b->ops->close(b);
    }
    free(spec);
    weights_close(w);
}

static void limits_are_checked(void **state) {
    void *file;
    struct weights *w = open_tiny(TENSOR_F32, false, &file);
    struct model_spec *spec = calloc(1, sizeof *spec);
    struct error err = {0};
    struct backend *b;
    struct model *m;
    struct model_memory plan;
    if (model_spec_read(w, spec, &err)) fail_msg("%s", err.text);
    struct backend_cpu_options cpu = model_cpu_options(spec, 0, 64);
    if (backend_cpu_open(&cpu, &b, &err)) fail_msg("%s", err.text);
    struct model_options o = {
        .dtype = BACKEND_F32, .max_model_len = 4097, .max_logit_rows = 8, .max_kept_rows = 8};
    assert_int_equal(model_memory_plan(w, spec, b, &o, &plan, &err), QUIRE_EINVAL);
    assert_string_equal(err.param, "max-model-len");
    assert_non_null(strstr(err.text, "4097"));
    assert_non_null(strstr(err.text, "4096"));
    assert_int_equal(model_load(w, spec, b, &o, &m, &err), QUIRE_EINVAL);
    model_free(NULL);
    b->ops->close(b);
    weights_close(w);
    free(spec);
    free(file);
}

/* ---- running ---- */

static void steps_allocate_nothing(void **state) {
    void *file;
    struct weights *w = open_tiny(TENSOR_Q4_1, false, &file);
    struct session s;
    session_open(&s, w, &(struct session_options){.n_threads = 2, .dtype = BACKEND_BF16, .n_pages = 40});
    enum { ROWS = 300 };
    uint32_t token[ROWS], position[ROWS], seq[ROWS] = {0}, table[20], logit_rows[] = {0, 299};
    for (uint32_t i = 0; i < ROWS; i++) token[i] = position[i] = i;
    for (uint32_t i = 0; i < 20; i++) table[i] = i + 1;
    struct batch_seq sq = {.n_rows = ROWS, .table = {table}};
    struct batch batch = {.n_rows = ROWS,
                          .n_seqs = 1,
                          .n_logit_rows = 2,
                          .token = token,
                          .position = position,
                          .seq = seq,
                          .seqs = &sq,
                          .logit_rows = logit_rows};
    struct sample_row rows[2] = {
        {.temperature = 0.7f, .top_p = 0.9f, .repetition_penalty = 1.0f, .n_top = 5},
        {.temperature = 0.7f, .top_p = 1.0f, .top_k = 40, .repetition_penalty = 1.0f, .n_top = -1}};
    struct sample_result results[2];
    alloc_fail_from(1); /* any would fail, and be counted */
    for (int i = 0; i < 3; i++) {
        model_forward(s.m, s.kv, &batch);
        s.b->ops->sample(s.b, model_logits(s.m, 0, 2), 2, s.spec->n_vocab, rows, results);
        s.b->ops->kv_copy(s.b, s.kv, 30, 1, 7);
    }
    assert_int_equal(alloc_fail_stop(), 0);
    assert_true(results[0].finite && results[1].finite);
    session_close(&s);
    weights_close(w);
    free(file);
}

/* ---- failing ---- */

struct load_case {
    struct weights *w;
    struct model_spec *spec;
};

static void load_once(void *ctx) {
    struct load_case *c = ctx;
    struct error err = {0};
    struct backend *b = NULL;
    struct backend_kv *kv = NULL;
    struct model *m = NULL;
    struct backend_cpu_options cpu = model_cpu_options(c->spec, 500, 64);
    struct model_options o = {
        .dtype = BACKEND_BF16, .max_model_len = 500, .max_logit_rows = 4, .max_kept_rows = 4};
    struct backend_kv_layout layout = model_kv_layout(c->spec, 16, BACKEND_BF16);
    cpu.n_threads = 2;
    int rc = backend_cpu_open(&cpu, &b, &err);
    if (!rc) rc = model_load(c->w, c->spec, b, &o, &m, &err);
    if (!rc) rc = b->ops->kv_create(b, &layout, 10, &kv, &err);
    if (!rc) rc = b->ops->kv_populate(b, kv, 0, 10, &err);
    if (alloc_fail_hit()) {
        assert_int_equal(rc, QUIRE_ENOMEM);
        assert_int_equal(err.code, QUIRE_ENOMEM);
        assert_true(err.text[0] != '\0');
    } else {
        assert_int_equal(rc, 0);
    }
    if (b) b->ops->kv_free(b, kv);
    model_free(m);
    if (b) b->ops->close(b);
}

/* Closes w. */
static void fail_each(struct weights *w) {
    struct load_case c = {.w = w, .spec = calloc(1, sizeof *c.spec)};
    struct error err = {0};
    if (model_spec_read(c.w, c.spec, &err)) fail_msg("%s", err.text);
    assert_true(alloc_fail_each(load_once, &c) > 50);
    weights_close(c.w);
    free(c.spec);
}

static void every_allocation_may_fail(void **state) {
    void *file;
    struct weights *w;
    struct error err = {0};
    size_t n;
    fail_each(open_tiny(TENSOR_Q4_1, false, &file));
    free(file);
    file = tiny_family_memory("deepseek2-lite", TENSOR_Q8_0, 3, &n);
    if (weights_open_memory(file, n, &w, &err)) fail_msg("%s", err.text);
    fail_each(w);
    free(file);
}

static void threads_may_not_start(void **state) {
    struct backend_cpu_options cpu = {.n_threads = 3, .max_rows = 8, .max_width = 64, .max_vocab = 10};
    struct backend *b = NULL;
    struct error err = {0};
    for (size_t i = 1; i <= 2; i++) {
        thread_fail_at(i);
        assert_int_equal(backend_cpu_open(&cpu, &b, &err), QUIRE_ENOMEM);
        thread_fail_at(0);
        assert_non_null(strstr(err.text, "thread"));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_plan_is_what_is_taken), cmocka_unit_test(the_plan_of_vectors),
        cmocka_unit_test(the_default_model_fits),    cmocka_unit_test(limits_are_checked),
        cmocka_unit_test(steps_allocate_nothing),    cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(threads_may_not_start),     cmocka_unit_test(the_plan_of_latent_attention),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
