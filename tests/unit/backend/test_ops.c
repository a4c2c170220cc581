/* Every operation but attention and sampling against straightforward double-precision C, on every path, and
 * bit for bit the same at any thread count and any split of the rows. */
#include "base/error.h"
#include "kern/kern_half.h"
#include "util_backend.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Runs fn for each path; then, for 2 and 4 threads, expects the same bits as with one. fn returns n malloc'd
 * floats. */
typedef float *run_fn(struct backend *b, size_t rows_per_call, size_t *n, const void *ctx);

static void on_all_paths(run_fn *fn, const void *ctx, const float *expected, double tolerance) {
    for (const char *const *path = backend_paths(); *path; path++) {
        float *first = NULL;
        size_t n = 0;
        const size_t splits[] = {TEST_MAX_ROWS, 1, 7, TEST_MAX_ROWS, 33};
        const size_t threads[] = {1, 1, 2, 4, 4};
        for (size_t i = 0; i < 5; i++) {
            struct backend *b = backend_start(*path, threads[i]);
            float *got = fn(b, splits[i], &n, ctx);
            b->ops->close(b);
            if (!first) {
                assert_close(got, expected, n, tolerance);
                first = got;
                continue;
            }
            assert_memory_equal(got, first, n * sizeof *got);
            free(got);
        }
        free(first);
    }
}

static size_t least(size_t a, size_t b) {
    return a < b ? a : b;
}

/* ---- products ---- */

#define MM_ROWS    45
#define MM_OUTPUTS 3

struct mm_case {
    struct backend_tensor t[MM_OUTPUTS];
    enum backend_dtype dtype;
    const float *x, *bias[MM_OUTPUTS], *y0[MM_OUTPUTS];
    size_t k;
    bool add;
};

static float *run_mm(struct backend *b, size_t step, size_t *n, const void *ctx) {
    const struct mm_case *c = ctx;
    struct backend_matrix *w[MM_OUTPUTS];
    struct backend_buffer *bias[MM_OUTPUTS] = {0}, *y[MM_OUTPUTS];
    size_t total = 0;
    for (int i = 0; i < MM_OUTPUTS; i++) total += MM_ROWS * c->t[i].rows;
    float *out = malloc(total * sizeof *out);
    for (int i = 0; i < MM_OUTPUTS; i++) {
        w[i] = load_matrix(b, &c->t[i], c->dtype);
        if (c->bias[i]) bias[i] = buffer_of(b, c->bias[i], c->t[i].rows);
    }
    for (size_t first = 0; first < MM_ROWS; first += step) {
        size_t rows = least(step, MM_ROWS - first);
        struct backend_buffer *x = buffer_of(b, c->x + first * c->k, rows * c->k);
        for (int i = 0; i < MM_OUTPUTS; i++)
            y[i] = buffer_of(b, c->y0[i] + first * c->t[i].rows, rows * c->t[i].rows);
        b->ops->matmul(b, y, (const struct backend_matrix *const *)w,
                       (const struct backend_buffer *const *)bias, MM_OUTPUTS,
                       &(struct backend_input){.x = x}, rows, c->add);
        float *at = out;
        for (int i = 0; i < MM_OUTPUTS; i++) {
            float *part = floats_of(b, y[i], rows * c->t[i].rows);
            memcpy(at + first * c->t[i].rows, part, rows * c->t[i].rows * sizeof *part);
            at += MM_ROWS * c->t[i].rows;
            free(part);
            b->ops->buffer_free(b, y[i]);
        }
        b->ops->buffer_free(b, x);
    }
    for (int i = 0; i < MM_OUTPUTS; i++) {
        b->ops->matrix_free(b, w[i]);
        b->ops->buffer_free(b, bias[i]);
    }
    *n = total;
    return out;
}

/* An input as a product with quantized weights takes it: blocks of 32 in 8 bits, see KERN_ACT_Q8. */
static float *round_to_q8(const float *x, size_t n) {
    float *out = malloc(n * sizeof *out);
    for (size_t first = 0; first < n; first += 32) {
        float largest = 0.0f;
        for (size_t i = first; i < first + 32; i++) largest = fmaxf(largest, fabsf(x[i]));
        for (size_t i = first; i < first + 32; i++)
            out[i] = largest > 0.0f ? nearbyintf(x[i] * (127.0f / largest)) * (largest / 127.0f) : 0.0f;
    }
    return out;
}

/* Weights as decoded, rounded to dtype when they are not quantized; inputs rounded likewise. */
static float *expect_mm(const struct mm_case *c) {
    size_t total = 0, at = 0;
    for (int i = 0; i < MM_OUTPUTS; i++) total += MM_ROWS * c->t[i].rows;
    float *out = malloc(total * sizeof *out), *row = malloc(c->k * sizeof *row);
    float *q8 = round_to_q8(c->x, MM_ROWS * c->k);
    for (int o = 0; o < MM_OUTPUTS; o++) {
        const struct backend_tensor *t = &c->t[o];
        bool quantized = t->format != 0;
        for (size_t j = 0; j < t->rows; j++) {
            t->decode(row, (const char *)t->data + j * t->row_bytes, t->cols / t->block_elems);
            for (size_t i = 0; i < MM_ROWS; i++) {
                double sum = 0.0;
                for (size_t k = 0; k < c->k; k++) {
                    float w = quantized ? row[k] : round_dtype(row[k], c->dtype);
                    float x = quantized ? q8[i * c->k + k] : round_dtype(c->x[i * c->k + k], c->dtype);
                    sum += (double)w * x;
                }
                if (c->bias[o]) sum += c->bias[o][j];
                if (c->add) sum += c->y0[o][i * t->rows + j];
                out[at + i * t->rows + j] = (float)sum;
            }
        }
        at += MM_ROWS * t->rows;
    }
    free(row);
    free(q8);
    return out;
}

static void decode_q4_1(float *dst, const void *src, size_t n_blocks) {
    const uint8_t *s = src;
    for (size_t i = 0; i < n_blocks; i++, s += 20, dst += 32) {
        uint16_t half[2];
        memcpy(half, s, sizeof half);
        float d = kern_from_f16(half[0]), m = kern_from_f16(half[1]);
        for (int k = 0; k < 16; k++) {
            dst[k] = d * (float)(s[4 + k] & 15) + m;
            dst[k + 16] = d * (float)(s[4 + k] >> 4) + m;
        }
    }
}

/* Blocks with small scales: half d, half m, 16 bytes of nibbles. */
static uint8_t *random_q4_1(uint64_t *seed, size_t rows, size_t cols) {
    uint8_t *out = malloc(rows * cols / 32 * 20);
    for (size_t i = 0; i < rows * cols / 32; i++) {
        uint16_t d = kern_to_f16(0.02f + 0.01f * random_float(seed)),
                 m = kern_to_f16(0.1f * random_float(seed));
        memcpy(out + i * 20, &d, 2);
        memcpy(out + i * 20 + 2, &m, 2);
        for (int k = 4; k < 20; k++) out[i * 20 + (size_t)k] = (uint8_t)random_u32(seed);
    }
    return out;
}

static void products(void **state) {
    uint64_t seed = 1;
    const size_t k = 96, rows[MM_OUTPUTS] = {70, 33, 1};
    float *x = random_floats(&seed, MM_ROWS * k), *w[MM_OUTPUTS], *bias = random_floats(&seed, 70),
          *y0[MM_OUTPUTS];
    struct mm_case c = {.x = x, .k = k};
    for (int i = 0; i < MM_OUTPUTS; i++) {
        w[i] = random_floats(&seed, rows[i] * k);
        y0[i] = random_floats(&seed, MM_ROWS * rows[i]);
        c.t[i] = f32_tensor(w[i], rows[i], k);
        c.y0[i] = y0[i];
    }
    for (int dtype = 0; dtype < 3; dtype++)
        for (int variant = 0; variant < 4; variant++) {
            c.dtype = (enum backend_dtype)dtype;
            c.add = variant & 1;
            c.bias[0] = variant & 2 ? bias : NULL;
            float *expected = expect_mm(&c);
            on_all_paths(run_mm, &c, expected, 2e-5);
            free(expected);
        }
    for (int i = 0; i < MM_OUTPUTS; i++) {
        free(w[i]);
        free(y0[i]);
    }
    free(x);
    free(bias);
}

static void products_of_quantized_weights(void **state) {
    uint64_t seed = 2;
    const size_t k = 128, rows[MM_OUTPUTS] = {64, 50, 17};
    float *x = random_floats(&seed, MM_ROWS * k), *y0[MM_OUTPUTS], *plain = random_floats(&seed, 50 * k);
    uint8_t *w[MM_OUTPUTS];
    struct mm_case c = {.x = x, .k = k, .dtype = BACKEND_F32};
    for (int i = 0; i < MM_OUTPUTS; i++) {
        w[i] = random_q4_1(&seed, rows[i], k);
        y0[i] = random_floats(&seed, MM_ROWS * rows[i]);
        c.y0[i] = y0[i];
        c.t[i] = (struct backend_tensor){.name = "q",
                                         .format = 3,
                                         .decode = decode_q4_1,
                                         .block_elems = 32,
                                         .block_bytes = 20,
                                         .rows = rows[i],
                                         .cols = k,
                                         .data = w[i],
                                         .row_bytes = k / 32 * 20};
    }
    /* Mixed formats in one call: inputs are packed once for each kind. */
    c.t[1] = f32_tensor(plain, rows[1], k);
    float *expected = expect_mm(&c);
    on_all_paths(run_mm, &c, expected, 2e-5);
    free(expected);
    for (int i = 0; i < MM_OUTPUTS; i++) {
        free(w[i]);
        free(y0[i]);
    }
    free(plain);
    free(x);
}

/* More heads than an operation's scratch holds at once, and what is behind a head's input goes along. */
#define HEADS 40

struct heads_case {
    const float *w, *x;
    size_t rows, k, x_dim;
};

static float *run_heads(struct backend *b, size_t step, size_t *n, const void *ctx) {
    const struct heads_case *c = ctx;
    const struct backend_matrix *w[HEADS];
    size_t x_row = HEADS * c->x_dim, y_row = HEADS * (c->rows + c->x_dim - c->k);
    float *out = malloc(MM_ROWS * y_row * sizeof *out);
    for (size_t h = 0; h < HEADS; h++) {
        struct backend_tensor t = f32_tensor(c->w + h * c->rows * c->k, c->rows, c->k);
        w[h] = load_matrix(b, &t, BACKEND_F32);
    }
    for (size_t i = 0; i < MM_ROWS; i += step) {
        size_t m = least(step, MM_ROWS - i);
        struct backend_buffer *x = buffer_of(b, c->x + i * x_row, m * x_row);
        struct backend_buffer *y = buffer_of(b, NULL, m * y_row);
        b->ops->matmul_heads(b, y, w, HEADS, x, c->x_dim, m);
        b->ops->download(b, out + i * y_row, y, 0, m * y_row * sizeof *out);
        b->ops->buffer_free(b, x);
        b->ops->buffer_free(b, y);
    }
    for (size_t h = 0; h < HEADS; h++) b->ops->matrix_free(b, (struct backend_matrix *)(uintptr_t)w[h]);
    *n = MM_ROWS * y_row;
    return out;
}

static void products_of_heads(void **state) {
    static const struct heads_case cases[] = {{.rows = 72, .k = 32, .x_dim = 48},
                                              {.rows = 24, .k = 64, .x_dim = 64}};
    uint64_t seed = 3;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct heads_case c = cases[i];
        size_t y_dim = c.rows + c.x_dim - c.k;
        float *w = random_floats(&seed, HEADS * c.rows * c.k),
              *x = random_floats(&seed, MM_ROWS * HEADS * c.x_dim);
        float *expected = malloc(MM_ROWS * HEADS * y_dim * sizeof *expected);
        c.w = w;
        c.x = x;
        for (size_t pair = 0; pair < MM_ROWS * HEADS; pair++) {
            const float *in = x + pair * c.x_dim, *own = w + pair % HEADS * c.rows * c.k;
            float *out = expected + pair * y_dim;
            for (size_t r = 0; r < c.rows; r++) {
                double sum = 0.0;
                for (size_t k = 0; k < c.k; k++) sum += (double)own[r * c.k + k] * in[k];
                out[r] = (float)sum;
            }
            memcpy(out + c.rows, in + c.k, (c.x_dim - c.k) * sizeof *out);
        }
        on_all_paths(run_heads, &c, expected, 2e-5);
        free(w);
        free(x);
        free(expected);
    }
}

static void matrices_that_do_not_fit_are_refused(void **state) {
    struct backend *b = backend_start("ref", 1);
    struct error err = {0};
    struct backend_matrix *m;
    float data[64] = {0};
    struct backend_tensor t = f32_tensor(data, 2, 32);
    t.format = 55; /* has no products: kept as floats, if it can be decoded */
    struct backend_tensor plain = f32_tensor(data, 2, 32);
    assert_int_equal(b->ops->matrix_bytes(b, &t, BACKEND_F32, &err),
                     b->ops->matrix_bytes(b, &plain, BACKEND_F32, &err));
    t.decode = NULL;
    assert_int_equal(b->ops->matrix_bytes(b, &t, BACKEND_F32, &err), 0);
    assert_int_equal(err.code, QUIRE_EUNSUPPORTED);
    assert_non_null(strstr(err.text, "test.weight"));
    assert_int_equal(b->ops->matrix_load(b, &t, BACKEND_F32, &m, &err), QUIRE_EUNSUPPORTED);
    t = f32_tensor(data, 2, 32);
    t.format = 1000;
    assert_int_equal(b->ops->matrix_load(b, &t, BACKEND_F32, &m, &err), QUIRE_EUNSUPPORTED);
    t = f32_tensor(data, SIZE_MAX / 8, 32);
    assert_int_equal(b->ops->matrix_bytes(b, &t, BACKEND_F32, &err), 0);
    assert_int_equal(err.code, QUIRE_ELIMIT);
    t = f32_tensor(data, 0, 32);
    assert_int_equal(b->ops->matrix_bytes(b, &t, BACKEND_F32, &err), 0);
    t = f32_tensor(data, 2, 31);
    t.format = 3;
    t.block_elems = 32;
    assert_int_equal(b->ops->matrix_bytes(b, &t, BACKEND_F32, &err), 0);
    assert_int_equal(err.code, QUIRE_EUNSUPPORTED);
    b->ops->close(b);
}

/* ---- embedding ---- */

struct embed_case {
    struct backend_tensor t;
    enum backend_dtype dtype;
    float scale;
    const uint32_t *tokens;
    size_t n;
};

static float *run_embed(struct backend *b, size_t step, size_t *n, const void *ctx) {
    const struct embed_case *c = ctx;
    struct backend_matrix *table = load_matrix(b, &c->t, c->dtype);
    float *out = malloc(c->n * c->t.cols * sizeof *out);
    for (size_t first = 0; first < c->n; first += step) {
        size_t rows = least(step, c->n - first);
        struct backend_buffer *y = buffer_of(b, NULL, rows * c->t.cols);
        b->ops->embed(b, y, table, c->tokens + first, rows, c->scale);
        b->ops->download(b, out + first * c->t.cols, y, 0, rows * c->t.cols * sizeof *out);
        b->ops->buffer_free(b, y);
    }
    b->ops->matrix_free(b, table);
    *n = c->n * c->t.cols;
    return out;
}

static void embedding(void **state) {
    uint64_t seed = 3;
    const size_t vocab = 101, width = 64;
    float *w = random_floats(&seed, vocab * width);
    uint32_t tokens[60];
    for (size_t i = 0; i < 60; i++) tokens[i] = random_u32(&seed) % vocab;
    tokens[0] = 100;
    for (int dtype = 0; dtype < 3; dtype++)
        for (int scaled = 0; scaled < 2; scaled++) {
            struct embed_case c = {f32_tensor(w, vocab, width), (enum backend_dtype)dtype,
                                   scaled ? 3.5f : 1.0f, tokens, 60};
            float *expected = malloc(60 * width * sizeof *expected);
            for (size_t i = 0; i < 60 * width; i++)
                expected[i] = c.scale * round_dtype(w[tokens[i / width] * width + i % width], c.dtype);
            on_all_paths(run_embed, &c, expected, 1e-6);
            free(expected);
        }
    free(w);
}

/* ---- rows ---- */

#define ROWS  50
#define WIDTH 100

/* x, and norm weights or what is gated. */
struct input_case {
    const float *x, *norm, *up;
    enum backend_activation activation;
};

/* The input of a product as it is made: the product with the identity. */
static float *run_input(struct backend *b, size_t step, size_t *n, const void *ctx) {
    const struct input_case *c = ctx;
    float *out = malloc(ROWS * WIDTH * sizeof *out), *one = calloc(WIDTH * WIDTH, sizeof *one);
    for (size_t i = 0; i < WIDTH; i++) one[i * WIDTH + i] = 1.0f;
    struct backend_tensor t = f32_tensor(one, WIDTH, WIDTH);
    struct backend_matrix *identity = load_matrix(b, &t, BACKEND_F32);
    struct backend_buffer *norm = c->norm ? buffer_of(b, c->norm, WIDTH) : NULL;
    for (size_t first = 0; first < ROWS; first += step) {
        size_t rows = least(step, ROWS - first);
        struct backend_buffer *x = buffer_of(b, c->x + first * WIDTH, rows * WIDTH);
        struct backend_buffer *up = c->up ? buffer_of(b, c->up + first * WIDTH, rows * WIDTH) : NULL;
        struct backend_buffer *y = b->ops->buffer_alloc(b, rows * WIDTH * sizeof *out);
        struct backend_input in = {
            .x = x, .norm = norm, .norm_eps = 1e-3f, .up = up, .activation = c->activation};
        b->ops->matmul(b, &y, (const struct backend_matrix *const[]){identity}, NULL, 1, &in, rows, false);
        b->ops->download(b, out + first * WIDTH, y, 0, rows * WIDTH * sizeof *out);
        b->ops->buffer_free(b, x);
        b->ops->buffer_free(b, up);
        b->ops->buffer_free(b, y);
    }
    b->ops->buffer_free(b, norm);
    b->ops->matrix_free(b, identity);
    free(one);
    *n = ROWS * WIDTH;
    return out;
}

static void normalised_inputs(void **state) {
    uint64_t seed = 4;
    float *x = random_floats(&seed, ROWS * WIDTH + WIDTH), expected[ROWS * WIDTH];
    for (size_t i = 0; i < ROWS; i++) {
        double sum = 0.0;
        for (size_t j = 0; j < WIDTH; j++) sum += (double)x[i * WIDTH + j] * x[i * WIDTH + j];
        for (size_t j = 0; j < WIDTH; j++)
            expected[i * WIDTH + j] =
                (float)(x[i * WIDTH + j] / sqrt(sum / WIDTH + 1e-3) * x[ROWS * WIDTH + j]);
    }
    on_all_paths(run_input, &(struct input_case){.x = x, .norm = x + ROWS * WIDTH}, expected, 1e-6);
    free(x);
}

static void gated_inputs(void **state) {
    uint64_t seed = 5;
    float *x = random_floats(&seed, 2 * ROWS * WIDTH), expected[ROWS * WIDTH];
    x[0] = -200.0f;
    x[1] = 200.0f;
    x[2] = -90.0f;
    for (int kind = BACKEND_SWIGLU; kind <= BACKEND_SWIGLU_CLAMPED; kind++) {
        for (size_t i = 0; i < ROWS * WIDTH; i++) {
            double g = x[i], u = x[ROWS * WIDTH + i] *= kind == BACKEND_SWIGLU_CLAMPED ? 4.0f : 1.0f;
            if (kind == BACKEND_SWIGLU) expected[i] = (float)(g / (1.0 + exp(-g)) * u);
            if (kind == BACKEND_GEGLU)
                expected[i] =
                    (float)(0.5 * g * (1.0 + tanh(sqrt(2.0 / acos(-1.0)) * (g + 0.044715 * g * g * g))) * u);
            if (kind != BACKEND_SWIGLU_CLAMPED) continue;
            g = fmin(g, 7.0);
            u = fmax(fmin(u, 7.0), -7.0);
            expected[i] = (float)(g / (1.0 + exp(-1.702 * g)) * (u + 1.0));
        }
        struct input_case c = {.x = x, .up = x + ROWS * WIDTH, .activation = (enum backend_activation)kind};
        on_all_paths(run_input, &c, expected, 2e-6);
    }
    free(x);
}

/* Rows to join others: x, and how. */
struct residual_case {
    const float *x, *y, *norm, *gate;
    float scale, cap;
};

static float *run_residual(struct backend *b, size_t step, size_t *n, const void *ctx) {
    const struct residual_case *c = ctx;
    float *out = malloc(ROWS * WIDTH * sizeof *out);
    struct backend_buffer *norm = c->norm ? buffer_of(b, c->norm, WIDTH) : NULL;
    for (size_t first = 0; first < ROWS; first += step) {
        size_t rows = least(step, ROWS - first);
        struct backend_buffer *x = buffer_of(b, c->x + first * WIDTH, rows * WIDTH);
        struct backend_buffer *y = buffer_of(b, c->y + first * WIDTH, rows * WIDTH);
        struct backend_buffer *gate = c->gate ? buffer_of(b, c->gate + first, rows) : NULL;
        struct backend_residual r = {.norm = norm, .norm_eps = 1e-3f, .scale = c->scale, .gate = gate};
        b->ops->residual(b, y, x, &r, rows, WIDTH);
        if (c->cap > 0.0f) b->ops->soft_cap(b, y, c->cap, rows, WIDTH);
        b->ops->download(b, out + first * WIDTH, y, 0, rows * WIDTH * sizeof *out);
        b->ops->buffer_free(b, x);
        b->ops->buffer_free(b, y);
        b->ops->buffer_free(b, gate);
    }
    b->ops->buffer_free(b, norm);
    *n = ROWS * WIDTH;
    return out;
}

static void residuals(void **state) {
    uint64_t seed = 8;
    float *x = random_floats(&seed, 2 * ROWS * WIDTH + WIDTH + ROWS), expected[ROWS * WIDTH];
    float *y = x + ROWS * WIDTH, *norm = y + ROWS * WIDTH, *gate = norm + WIDTH;
    struct residual_case cases[] = {{.scale = 1.0f},
                                    {.scale = 0.3f},
                                    {.scale = 1.0f, .norm = norm},
                                    {.scale = 0.3f, .norm = norm, .gate = gate},
                                    {.scale = 1.0f, .gate = gate, .cap = 2.0f}};
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        struct residual_case *c = &cases[k];
        c->x = x;
        c->y = y;
        for (size_t i = 0; i < ROWS; i++) {
            double sum = 0.0, scale = c->scale;
            for (size_t j = 0; j < WIDTH; j++) sum += (double)x[i * WIDTH + j] * x[i * WIDTH + j];
            if (c->norm) scale /= sqrt(sum / WIDTH + 1e-3);
            if (c->gate) scale /= 1.0 + exp(-(double)gate[i]);
            for (size_t j = 0; j < WIDTH; j++) {
                double v = y[i * WIDTH + j] + scale * x[i * WIDTH + j] * (c->norm ? norm[j] : 1.0f);
                expected[i * WIDTH + j] = (float)(c->cap > 0.0f ? c->cap * tanh(v / c->cap) : v);
            }
        }
        on_all_paths(run_residual, c, expected, 2e-6);
    }
    free(x);
}

/* x, and LayerNorm's weights and biases, or those of RMS norm without biases. */
struct norm_case {
    const float *x, *weight, *bias;
};

static float *run_norm(struct backend *b, size_t step, size_t *n, const void *ctx) {
    const struct norm_case *c = ctx;
    float *out = malloc(ROWS * WIDTH * sizeof *out);
    struct backend_buffer *weight = buffer_of(b, c->weight, WIDTH);
    struct backend_buffer *bias = c->bias ? buffer_of(b, c->bias, WIDTH) : NULL;
    struct backend_norm norm = {weight, bias, 1e-3f};
    for (size_t first = 0; first < ROWS; first += step) {
        size_t rows = least(step, ROWS - first);
        struct backend_buffer *y = buffer_of(b, c->x + first * WIDTH, rows * WIDTH);
        b->ops->normalise(b, y, &norm, rows, WIDTH);
        b->ops->download(b, out + first * WIDTH, y, 0, rows * WIDTH * sizeof *out);
        b->ops->buffer_free(b, y);
    }
    b->ops->buffer_free(b, weight);
    b->ops->buffer_free(b, bias);
    *n = ROWS * WIDTH;
    return out;
}

static void norms(void **state) {
    uint64_t seed = 12;
    float *x = random_floats(&seed, ROWS * WIDTH + 2 * WIDTH), expected[ROWS * WIDTH];
    float *weight = x + ROWS * WIDTH, *bias = weight + WIDTH;
    for (int layer = 0; layer < 2; layer++) {
        for (size_t i = 0; i < ROWS; i++) {
            double mean = 0.0, squares = 0.0;
            for (size_t j = 0; j < WIDTH && layer; j++) mean += x[i * WIDTH + j] / (double)WIDTH;
            for (size_t j = 0; j < WIDTH; j++) squares += pow(x[i * WIDTH + j] - mean, 2.0);
            for (size_t j = 0; j < WIDTH; j++)
                expected[i * WIDTH + j] =
                    (float)((x[i * WIDTH + j] - mean) / sqrt(squares / WIDTH + 1e-3) * weight[j] +
                            (layer ? bias[j] : 0.0f));
        }
        on_all_paths(run_norm, &(struct norm_case){x, weight, layer ? bias : NULL}, expected, 2e-6);
    }
    free(x);
}

/* Without gates: the exact form of GELU, and ReLU. */
static void activated_inputs(void **state) {
    uint64_t seed = 13;
    float *x = random_floats(&seed, ROWS * WIDTH), expected[ROWS * WIDTH];
    for (size_t i = 0; i < ROWS * WIDTH; i++) expected[i] = (float)(0.5 * x[i] * erfc(-x[i] / sqrt(2.0)));
    on_all_paths(run_input, &(struct input_case){.x = x, .activation = BACKEND_GELU}, expected, 2e-6);
    for (size_t i = 0; i < ROWS * WIDTH; i++) expected[i] = fmaxf(x[i], 0);
    on_all_paths(run_input, &(struct input_case){.x = x, .activation = BACKEND_RELU}, expected, 0);
    free(x);
}

/* Row 1 of two: the sum of all rows, in as many calls as the step makes; row 0 stays. */
static float *run_sum(struct backend *b, size_t step, size_t *n, const void *ctx) {
    const float *x = ctx;
    float *out = malloc(2 * WIDTH * sizeof *out);
    struct backend_buffer *dst = buffer_of(b, x, 2 * WIDTH), *src = buffer_of(b, x, ROWS * WIDTH);
    for (size_t first = 0; first < ROWS; first += step)
        b->ops->sum_rows(b, dst, 1, src, first, least(step, ROWS - first), WIDTH, first != 0);
    b->ops->download(b, out, dst, 0, 2 * WIDTH * sizeof *out);
    b->ops->buffer_free(b, dst);
    b->ops->buffer_free(b, src);
    *n = 2 * WIDTH;
    return out;
}

static void sums(void **state) {
    uint64_t seed = 14;
    float *x = random_floats(&seed, ROWS * WIDTH), expected[2 * WIDTH];
    memcpy(expected, x, WIDTH * sizeof *x);
    for (size_t j = 0; j < WIDTH; j++) {
        double sum = 0.0;
        for (size_t i = 0; i < ROWS; i++) sum += x[i * WIDTH + j];
        expected[WIDTH + j] = (float)sum;
    }
    on_all_paths(run_sum, x, expected, 1e-5);
    free(x);
}

/* A matrix of which a part cannot be read. */
struct unread {
    const float *rows;
    size_t cols, bad_row;
    _Atomic size_t n_read;
};

static int read_some(void *ctx, size_t first, size_t n, void *dst, struct error *err) {
    struct unread *u = ctx;
    if (u->bad_row >= first && u->bad_row < first + n)
        return error_set(err, QUIRE_EIO, "row %zu is gone", u->bad_row);
    memcpy(dst, u->rows + first * u->cols, n * u->cols * sizeof(float));
    atomic_fetch_add(&u->n_read, n);
    return 0;
}

static void rows_that_are_read(void **state) {
    enum { R = 75, C = 40 };
    uint64_t seed = 6;
    float *rows = random_floats(&seed, R * C), x[C], y[2][R];
    for (size_t i = 0; i < C; i++) x[i] = rows[i];
    for (size_t threads = 1; threads <= 3; threads++) {
        struct backend *b = backend_start(backend_paths()[0], threads);
        struct backend_buffer *in = buffer_of(b, x, C);
        for (size_t bad = 0; bad <= R; bad += 25) {
            struct unread u = {.rows = rows, .cols = C, .bad_row = bad < R ? bad : SIZE_MAX};
            struct backend_tensor t = f32_tensor(rows, R, C), from_memory = t;
            struct backend_matrix *w[2] = {0};
            struct error err = {0};
            t.data = NULL;
            t.read_rows = read_some;
            t.ctx = &u;
            int rc = b->ops->matrix_load(b, &t, BACKEND_F32, &w[0], &err);
            assert_int_equal(rc, bad < R ? QUIRE_EIO : 0);
            if (rc) {
                assert_null(w[0]);
                assert_non_null(strstr(err.text, "is gone"));
                continue;
            }
            assert_int_equal(u.n_read, R);
            w[1] = load_matrix(b, &from_memory, BACKEND_F32);
            for (int i = 0; i < 2; i++) {
                struct backend_buffer *out = b->ops->buffer_alloc(b, sizeof y[i]);
                b->ops->matmul(b, &out, (const struct backend_matrix *const *)&w[i], NULL, 1,
                               &(struct backend_input){.x = in}, 1, false);
                b->ops->download(b, y[i], out, 0, sizeof y[i]);
                b->ops->buffer_free(b, out);
                b->ops->matrix_free(b, w[i]);
            }
            assert_memory_equal(y[0], y[1], sizeof y[0]);
        }
        b->ops->buffer_free(b, in);
        b->ops->close(b);
    }
    free(rows);
}

static float *run_gather(struct backend *b, size_t step, size_t *n, const void *ctx) {
    uint32_t rows[ROWS];
    for (size_t i = 0; i < ROWS; i++) rows[i] = (uint32_t)(i * 7 % ROWS);
    struct backend_buffer *src = buffer_of(b, ctx, ROWS * WIDTH),
                          *dst = buffer_of(b, NULL, (ROWS + 2) * WIDTH);
    for (size_t first = 0; first < ROWS; first += step)
        b->ops->gather_rows(b, dst, first + 2, src, rows + first, least(step, ROWS - first), WIDTH);
    *n = (ROWS + 2) * WIDTH;
    float *out = floats_of(b, dst, *n);
    b->ops->buffer_free(b, src);
    b->ops->buffer_free(b, dst);
    return out;
}

static void gathers(void **state) {
    uint64_t seed = 6;
    float *x = random_floats(&seed, ROWS * WIDTH), expected[(ROWS + 2) * WIDTH] = {0};
    for (size_t i = 0; i < ROWS; i++)
        memcpy(expected + (i + 2) * WIDTH, x + i * 7 % ROWS * WIDTH, WIDTH * sizeof *x);
    on_all_paths(run_gather, x, expected, 0.0);
    free(x);
}

/* ---- host work and buffers ---- */

static void count_item(void *ctx, size_t item) {
    ((unsigned char *)ctx)[item]++;
}

static void keep_row(void *ctx, size_t row, const float *values) {
    memcpy((float *)ctx + row * WIDTH, values, WIDTH * sizeof *values);
}

static void rows_are_read(struct backend *b) {
    uint64_t seed = 16;
    float *x = random_floats(&seed, ROWS * WIDTH), seen[ROWS * WIDTH] = {0};
    struct backend_buffer *buf = b->ops->buffer_alloc(b, ROWS * WIDTH * sizeof *x);
    assert_non_null(buf);
    b->ops->upload(b, buf, 0, x, ROWS * WIDTH * sizeof *x);
    b->ops->read_rows(b, buf, ROWS, WIDTH, keep_row, seen);
    assert_memory_equal(seen, x, sizeof seen);
    b->ops->buffer_free(b, buf);
    free(x);
}

static void host_work_and_buffers(void **state) {
    struct backend *b = backend_start("ref", 3);
    unsigned char seen[1000] = {0};
    b->ops->host_run(b, 1000, count_item, seen);
    for (size_t i = 0; i < 1000; i++) assert_int_equal(seen[i], 1);
    rows_are_read(b);
    for (size_t bytes = 1; bytes < 8u << 20; bytes = bytes * 3 + 1) {
        struct backend_buffer *buf = b->ops->buffer_alloc(b, bytes);
        unsigned char *copy = malloc(bytes);
        assert_non_null(buf);
        memset(copy, 1, bytes);
        b->ops->download(b, copy, buf, 0, bytes);
        for (size_t i = 0; i < bytes; i++) assert_int_equal(copy[i], 0);
        b->ops->upload(b, buf, bytes - 1, "x", 1);
        b->ops->download(b, copy, buf, bytes - 1, 1);
        assert_int_equal(copy[0], 'x');
        b->ops->buffer_free(b, buf);
        free(copy);
    }
    b->ops->buffer_free(b, NULL);
    b->ops->matrix_free(b, NULL);
    b->ops->kv_free(b, NULL);
    b->ops->close(b);
}

static void unknown_paths_are_refused(void **state) {
    struct backend_cpu_options o = {.n_threads = 1, .isa_limit = "sse9", .max_rows = 1, .max_width = 32};
    struct backend *b;
    struct error err = {0};
    assert_int_equal(backend_cpu_open(&o, &b, &err), QUIRE_EINVAL);
    assert_non_null(strstr(err.text, "sse9"));
    assert_int_equal(backend_cpu_scratch_bytes(&o), 0);
}

static void unknown_bindings_are_refused(void **state) {
    struct backend_cpu_options o = {.n_threads = 1, .bind = "socket", .max_rows = 1, .max_width = 32};
    struct backend *b;
    struct error err = {0};
    assert_int_equal(backend_cpu_open(&o, &b, &err), QUIRE_EINVAL);
    assert_string_equal(err.text, "cpu-bind socket: unknown; allowed: node, core, none");
}

/* Two paths differ in bits, so their identities must. */
static void numerics_name_the_path(void **state) {
    const char *const *paths = backend_paths();
    char first[2048];
    for (size_t i = 0; paths[i]; i++) {
        struct backend *b = backend_start(paths[i], 1);
        assert_non_null(strstr(backend_numerics(b), paths[i]));
        if (i) assert_string_not_equal(backend_numerics(b), first);
        strncpy(first, backend_numerics(b), sizeof first - 1);
        b->ops->close(b);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products),
        cmocka_unit_test(products_of_quantized_weights),
        cmocka_unit_test(products_of_heads),
        cmocka_unit_test(matrices_that_do_not_fit_are_refused),
        cmocka_unit_test(embedding),
        cmocka_unit_test(rows_that_are_read),
        cmocka_unit_test(normalised_inputs),
        cmocka_unit_test(gated_inputs),
        cmocka_unit_test(activated_inputs),
        cmocka_unit_test(norms),
        cmocka_unit_test(sums),
        cmocka_unit_test(residuals),
        cmocka_unit_test(gathers),
        cmocka_unit_test(host_work_and_buffers),
        cmocka_unit_test(unknown_paths_are_refused),
        cmocka_unit_test(unknown_bindings_are_refused),
        cmocka_unit_test(numerics_name_the_path),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
