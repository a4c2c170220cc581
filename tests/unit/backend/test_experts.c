/* Routed experts against straightforward double-precision C: gatings, biases, more experts than rows, waves
 * (rows times experts above max_rows), formats that need different inputs. The bits are the same for any
 * company of a row and any number of threads. */
#include "util_backend.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define ROWS  TEST_MAX_ROWS
#define WIDTH 96
#define FF    64

struct problem {
    size_t n_experts, n_used;
    size_t n_groups, n_groups_used, group_best;
    enum backend_gating gating;
    bool choice_biases;
    bool normalise, biases, mixed; /* mixed: gate in Q8_0, the others in float */
    float scale;
    enum backend_activation activation;
    float *x, *norm, *logits, *gate, *up, *down, *gate_bias, *up_bias, *down_bias, *choice_bias;
};

static void prepare(struct problem *p) {
    uint64_t seed = 21;
    p->x = random_floats(&seed, ROWS * WIDTH);
    p->norm = random_floats(&seed, WIDTH);
    p->logits = random_floats(&seed, ROWS * p->n_experts);
    for (size_t e = 0; e < p->n_experts; e++) p->logits[e] = 0.25f; /* all equal: the first ones are taken */
    for (size_t r = 8; r < 40; r++) p->logits[r * p->n_experts + 3] += 9.0f; /* one that many rows want */
    p->gate = random_floats(&seed, p->n_experts * FF * WIDTH);
    p->up = random_floats(&seed, p->n_experts * FF * WIDTH);
    p->down = random_floats(&seed, p->n_experts * FF * WIDTH);
    p->gate_bias = random_floats(&seed, p->n_experts * FF);
    p->up_bias = random_floats(&seed, p->n_experts * FF);
    p->down_bias = random_floats(&seed, p->n_experts * WIDTH);
    p->choice_bias = random_floats(&seed, p->n_experts);
    for (size_t e = 0; e < p->n_experts; e++) p->choice_bias[e] *= 0.2f;
}

static void forget(struct problem *p) {
    free(p->x);
    free(p->norm);
    free(p->logits);
    free(p->gate);
    free(p->up);
    free(p->down);
    free(p->gate_bias);
    free(p->up_bias);
    free(p->down_bias);
    free(p->choice_bias);
}

/* Blocks of 32 integers with scale 1/16, in place of the floats they stand for. */
struct q8_0 {
    uint16_t d;
    int8_t q[32];
};

static void decode_q8_0(float *dst, const void *src, size_t n_blocks) {
    const struct q8_0 *blocks = src;
    for (size_t i = 0; i < n_blocks * 32; i++) dst[i] = (float)blocks[i / 32].q[i % 32] / 16.0f;
}

static struct q8_0 *quantize(float *x, size_t n) {
    struct q8_0 *blocks = malloc(n / 32 * sizeof *blocks);
    for (size_t i = 0; i < n; i++) {
        blocks[i / 32].d = 0x2c00; /* 1/16 */
        blocks[i / 32].q[i % 32] = (int8_t)lrintf(x[i] * 16.0f);
        x[i] = (float)blocks[i / 32].q[i % 32] / 16.0f;
    }
    return blocks;
}

static void load_all(struct backend *b, const struct backend_matrix **out, const void *data, size_t n,
                     size_t rows, size_t cols, bool q8) {
    for (size_t e = 0; e < n; e++) {
        struct backend_tensor t = f32_tensor((const float *)data + e * rows * cols, rows, cols);
        if (q8)
            t = (struct backend_tensor){.name = "q8",
                                        .format = 8,
                                        .decode = decode_q8_0,
                                        .block_elems = 32,
                                        .block_bytes = sizeof(struct q8_0),
                                        .rows = rows,
                                        .cols = cols,
                                        .data = (const struct q8_0 *)data + e * rows * cols / 32,
                                        .row_bytes = cols / 32 * sizeof(struct q8_0)};
        out[e] = load_matrix(b, &t, BACKEND_F32);
    }
}

/* Rows in runs of `step`. */
static float *run(const struct problem *p, const void *gate_blocks, const char *path, size_t n_threads,
                  size_t step) {
    struct backend *b = backend_start(path, n_threads);
    const struct backend_matrix *gate[TEST_MAX_EXPERTS], *up[TEST_MAX_EXPERTS], *down[TEST_MAX_EXPERTS];
    load_all(b, gate, p->mixed ? gate_blocks : p->gate, p->n_experts, FF, WIDTH, p->mixed);
    load_all(b, up, p->up, p->n_experts, FF, WIDTH, false);
    load_all(b, down, p->down, p->n_experts, WIDTH, FF, false);
    struct backend_buffer *bias[3] = {NULL}, *norm = buffer_of(b, p->norm, WIDTH);
    if (p->biases) {
        bias[0] = buffer_of(b, p->gate_bias, p->n_experts * FF);
        bias[1] = buffer_of(b, p->up_bias, p->n_experts * FF);
        bias[2] = buffer_of(b, p->down_bias, p->n_experts * WIDTH);
    }
    struct backend_buffer *choice = p->choice_biases ? buffer_of(b, p->choice_bias, p->n_experts) : NULL;
    struct backend_experts e = {.n_experts = p->n_experts,
                                .n_used = p->n_used,
                                .n_groups = p->n_groups,
                                .n_groups_used = p->n_groups_used,
                                .group_best = p->group_best,
                                .choice_bias = choice,
                                .gating = p->gating,
                                .normalise = p->normalise,
                                .scale = p->scale,
                                .activation = p->activation,
                                .gate = gate,
                                .up = up,
                                .down = down,
                                .gate_bias = bias[0],
                                .up_bias = bias[1],
                                .down_bias = bias[2]};
    float *out = malloc(ROWS * WIDTH * sizeof *out);
    for (size_t first = 0; first < ROWS; first += step) {
        size_t n = step < ROWS - first ? step : ROWS - first;
        struct backend_buffer *x = buffer_of(b, p->x + first * WIDTH, n * WIDTH);
        struct backend_buffer *logits = buffer_of(b, p->logits + first * p->n_experts, n * p->n_experts);
        struct backend_buffer *y = buffer_of(b, p->x, n * WIDTH); /* anything: it is overwritten */
        struct backend_input in = {.x = x, .norm = norm, .norm_eps = 1e-5f};
        b->ops->experts(b, y, &e, logits, &in, n);
        b->ops->download(b, out + first * WIDTH, y, 0, n * WIDTH * sizeof *out);
        b->ops->buffer_free(b, x);
        b->ops->buffer_free(b, logits);
        b->ops->buffer_free(b, y);
    }
    for (size_t i = 0; i < p->n_experts; i++) {
        b->ops->matrix_free(b, (struct backend_matrix *)(uintptr_t)gate[i]);
        b->ops->matrix_free(b, (struct backend_matrix *)(uintptr_t)up[i]);
        b->ops->matrix_free(b, (struct backend_matrix *)(uintptr_t)down[i]);
    }
    for (size_t i = 0; i < 3; i++) b->ops->buffer_free(b, bias[i]);
    b->ops->buffer_free(b, norm);
    b->ops->buffer_free(b, choice);
    b->ops->close(b);
    return out;
}

static double act(const struct problem *p, double g, double u) {
    if (p->activation == BACKEND_SWIGLU) return g / (1.0 + exp(-g)) * u;
    g = fmin(g, 7.0);
    u = fmax(fmin(u, 7.0), -7.0);
    return g / (1.0 + exp(-1.702 * g)) * (u + 1.0);
}

static void add_expert(const struct problem *p, size_t e, const double *x, double weight, double *y) {
    double h[FF];
    for (size_t i = 0; i < FF; i++) {
        double g = p->biases ? p->gate_bias[e * FF + i] : 0.0, u = p->biases ? p->up_bias[e * FF + i] : 0.0;
        for (size_t k = 0; k < WIDTH; k++) {
            g += p->gate[(e * FF + i) * WIDTH + k] * x[k];
            u += p->up[(e * FF + i) * WIDTH + k] * x[k];
        }
        h[i] = act(p, g, u);
    }
    for (size_t i = 0; i < WIDTH; i++) {
        double out = p->biases ? p->down_bias[e * WIDTH + i] : 0.0;
        for (size_t k = 0; k < FF; k++) out += p->down[(e * WIDTH + i) * FF + k] * h[k];
        y[i] += weight * out;
    }
}

/* Of the scores that are not taken yet the largest, the lower index of equals. */
static size_t take_best(const double *scores, bool *taken, size_t n) {
    size_t best = SIZE_MAX;
    for (size_t e = 0; e < n; e++)
        if (!taken[e] && (best == SIZE_MAX || scores[e] > scores[best])) best = e;
    taken[best] = true;
    return best;
}

/* Experts of all groups but the best are ruled out. */
static void rule_out(const struct problem *p, const double *scores, bool *ruled_out) {
    size_t n = p->n_experts / p->n_groups;
    double best[TEST_MAX_EXPERTS] = {0};
    bool group_taken[TEST_MAX_EXPERTS] = {false};
    for (size_t g = 0; g < p->n_groups; g++) {
        bool taken[TEST_MAX_EXPERTS] = {false};
        for (size_t i = 0; i < p->group_best; i++)
            best[g] += scores[g * n + take_best(scores + g * n, taken, n)];
    }
    for (size_t i = 0; i < p->n_groups_used; i++) take_best(best, group_taken, p->n_groups);
    for (size_t e = 0; e < p->n_experts; e++) ruled_out[e] = !group_taken[e / n];
}

static void expect(const struct problem *p, size_t row, float *out) {
    const float *logits = p->logits + row * p->n_experts;
    double x[WIDTH], y[WIDTH] = {0}, sum = 0.0, all = 0.0, chosen = 0.0;
    double terms[TEST_MAX_EXPERTS], scores[TEST_MAX_EXPERTS];
    bool used[TEST_MAX_EXPERTS] = {false}, taken[TEST_MAX_EXPERTS] = {false};
    bool sigmoid = p->gating == BACKEND_GATE_SIGMOID;
    for (size_t e = 0; e < p->n_experts; e++)
        all += terms[e] = sigmoid ? 1.0 / (1.0 + exp(-(double)logits[e])) : exp(logits[e]);
    if (sigmoid) all = 1.0;
    for (size_t e = 0; e < p->n_experts; e++)
        scores[e] = terms[e] / all + (p->choice_biases ? p->choice_bias[e] : 0.0);
    if (p->n_groups) rule_out(p, scores, taken);
    for (size_t i = 0; i < WIDTH; i++) sum += (double)p->x[row * WIDTH + i] * p->x[row * WIDTH + i];
    for (size_t i = 0; i < WIDTH; i++) x[i] = p->x[row * WIDTH + i] / sqrt(sum / WIDTH + 1e-5) * p->norm[i];
    for (size_t k = 0; k < p->n_used; k++) {
        size_t best = take_best(scores, taken, p->n_experts);
        used[best] = true;
        chosen += terms[best];
    }
    if (p->normalise || p->gating == BACKEND_GATE_SELECTED) all = chosen;
    for (size_t e = 0; e < p->n_experts; e++)
        if (used[e]) add_expert(p, e, x, p->scale * terms[e] / all, y);
    for (size_t i = 0; i < WIDTH; i++) out[i] = (float)y[i];
}

static void check(struct problem p, double tolerance) {
    prepare(&p);
    struct q8_0 *blocks = p.mixed ? quantize(p.gate, p.n_experts * FF * WIDTH) : NULL;
    float *expected = malloc(ROWS * WIDTH * sizeof *expected);
    double size = 0.0;
    for (size_t row = 0; row < ROWS; row++) expect(&p, row, expected + row * WIDTH);
    for (size_t i = 0; i < ROWS * WIDTH; i++) size = fmax(size, fabs(expected[i]));
    for (const char *const *path = backend_paths(); *path; path++) {
        float *first = run(&p, blocks, *path, 1, ROWS);
        for (size_t i = 0; i < ROWS * WIDTH; i++)
            if (!(fabs((double)first[i] - expected[i]) <= tolerance * size))
                fail_msg("%s, row %zu: %g instead of %g", *path, i / WIDTH, first[i], expected[i]);
        const size_t steps[] = {1, 7, 33, ROWS}, threads[] = {2, 4, 3, 4};
        for (size_t i = 0; i < 4; i++) {
            float *again = run(&p, blocks, *path, threads[i], steps[i]);
            assert_memory_equal(again, first, ROWS * WIDTH * sizeof *first);
            free(again);
        }
        free(first);
    }
    free(expected);
    free(blocks);
    forget(&p);
}

static void normalised(void **state) {
    check((struct problem){.n_experts = 8, .n_used = 2, .normalise = true, .scale = 1.0f}, 2e-6);
}

static void plain_softmax(void **state) {
    check((struct problem){.n_experts = TEST_MAX_EXPERTS, .n_used = 5, .scale = 2.5f}, 2e-6);
}

static void selected_with_biases(void **state) {
    check((struct problem){.n_experts = 6,
                           .n_used = 4,
                           .gating = BACKEND_GATE_SELECTED,
                           .biases = true,
                           .scale = 1.0f,
                           .activation = BACKEND_SWIGLU_CLAMPED},
          2e-6);
}

static void all_experts(void **state) {
    check((struct problem){.n_experts = 4, .n_used = 4, .scale = 1.0f}, 2e-6);
}

static void formats_with_different_inputs(void **state) { /* rows are rounded to 8 bits for the gate */
    check((struct problem){.n_experts = 5, .n_used = 2, .scale = 1.0f, .mixed = true}, 2e-2);
}

/* DeepSeek-V3's: by sigmoid and bias, in the two groups whose two best experts are best. */
static void sigmoid_in_groups(void **state) {
    check((struct problem){.n_experts = 20,
                           .n_used = 4,
                           .n_groups = 5,
                           .n_groups_used = 2,
                           .group_best = 2,
                           .gating = BACKEND_GATE_SIGMOID,
                           .choice_biases = true,
                           .normalise = true,
                           .scale = 2.5f},
          2e-6);
    check((struct problem){.n_experts = 8,
                           .n_used = 3,
                           .gating = BACKEND_GATE_SIGMOID,
                           .choice_biases = true,
                           .scale = 1.0f},
          2e-6);
}

/* DeepSeek-V2's: in the groups of the best experts. */
static void softmax_in_groups(void **state) {
    check(
        (struct problem){
            .n_experts = 16, .n_used = 3, .n_groups = 4, .n_groups_used = 1, .group_best = 1, .scale = 4.0f},
        2e-6);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(normalised),
        cmocka_unit_test(plain_softmax),
        cmocka_unit_test(selected_with_biases),
        cmocka_unit_test(all_experts),
        cmocka_unit_test(formats_with_different_inputs),
        cmocka_unit_test(sigmoid_in_groups),
        cmocka_unit_test(softmax_in_groups),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
