/* What the conformance tests of a backend share. Failures fail the running test. */
#ifndef UTIL_BACKEND_H
#define UTIL_BACKEND_H

#include "backend/backend.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The paths of this machine, NULL-terminated: "ref" first. */
const char *const *backend_paths(void);

struct backend *backend_start(const char *path, size_t n_threads); /* limits large enough for every test */
#define TEST_MAX_ROWS    96
#define TEST_MAX_WIDTH   512
#define TEST_MAX_VOCAB   3000
#define TEST_POSITIONS   2048
#define TEST_MAX_EXPERTS 20

struct backend_buffer *buffer_of(struct backend *b, const float *values, size_t n);
float *floats_of(struct backend *b, const struct backend_buffer *buf, size_t n); /* malloc'd copy */

/* Deterministic values. */
uint32_t random_u32(uint64_t *state);
float random_float(uint64_t *state); /* roughly normal, |x| < 4 */
float *random_floats(uint64_t *state, size_t n);

float round_bf16(float x);
float round_f16(float x);
float round_dtype(float x, enum backend_dtype dtype);

/* A float32 matrix as a model file has it; data must outlive the matrix's loading. */
struct backend_tensor f32_tensor(const float *data, size_t rows, size_t cols);
struct backend_matrix *load_matrix(struct backend *b, const struct backend_tensor *t,
                                   enum backend_dtype dtype);

/* |a - b| <= tolerance * (1 + |b|) for all; names the first that is not. */
void assert_close(const float *a, const float *b, size_t n, double tolerance);

#endif
