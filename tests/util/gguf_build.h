/* Writes GGUF files in memory, good ones and, through the fields and raw functions, deliberately wrong ones.
 * For tests: running out of memory ends the program. Layout: GGUF specification, version 3, little-endian. */
#ifndef UTIL_GGUF_BUILD_H
#define UTIL_GGUF_BUILD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gguf_bytes {
    uint8_t *data;
    size_t n, cap;
};

void gguf_bytes_put(struct gguf_bytes *b, const void *data, size_t n);
void gguf_bytes_u32(struct gguf_bytes *b, uint32_t v);
void gguf_bytes_u64(struct gguf_bytes *b, uint64_t v);
void gguf_bytes_str(struct gguf_bytes *b, const char *s, size_t n); /* u64 length, then the bytes */
void gguf_bytes_zeros(struct gguf_bytes *b, size_t n);

struct gguf_build {
    struct gguf_bytes kv, infos, data;
    size_t alignment; /* of tensor offsets and of the data section; 32 unless general.alignment says so */
    uint32_t magic, version; /* what the header will claim; set by gguf_build_init, free to spoil */
    uint64_t n_kv, n_tensors;
};

struct gguf_build gguf_build_new(void);
void gguf_build_free(struct gguf_build *b);
/* The finished file, malloc'd; b is freed. */
uint8_t *gguf_build_finish(struct gguf_build *b, size_t *n);

/* ---- metadata; type ids are GGUF's (4 = u32, 8 = string, 9 = array, ...) ---- */
void gguf_kv(struct gguf_build *b, const char *key,
             uint32_t type); /* key and type; the value is put on b->kv */
void gguf_kv_u32(struct gguf_build *b, const char *key, uint32_t v);
void gguf_kv_f32(struct gguf_build *b, const char *key, float v);
void gguf_kv_bool(struct gguf_build *b, const char *key, bool v);
void gguf_kv_str(struct gguf_build *b, const char *key, const char *v);
/* Key, array, element type and count; the elements are put on b->kv. */
void gguf_kv_array(struct gguf_build *b, const char *key, uint32_t elem, uint64_t n);

/* ---- tensors ---- */
/* Appends a tensor at the next aligned offset; data NULL means zeros. */
void gguf_tensor(struct gguf_build *b, const char *name, uint32_t type, unsigned n_dims, const uint64_t *dims,
                 const void *data, size_t bytes);
/* The description alone, whatever it says. */
void gguf_tensor_info(struct gguf_build *b, const char *name, uint32_t n_dims, const uint64_t *dims,
                      uint32_t type, uint64_t offset);

/* What gguf_build_finish gave (freed here; NULL counts as a failure) to a file: 0, or -1. */
int gguf_build_write(const char *path, void *data, size_t n);

#endif
