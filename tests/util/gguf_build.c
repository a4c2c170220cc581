#include "util/gguf_build.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void gguf_bytes_put(struct gguf_bytes *b, const void *data, size_t n) {
    if (n > b->cap - b->n) {
        size_t cap = (b->n + n) * 2;
        b->data = realloc(b->data, cap);
        if (!b->data) {
            fprintf(stderr, "gguf_build: out of memory\n");
            abort();
        }
        b->cap = cap;
    }
    if (n) memcpy(b->data + b->n, data, n);
    b->n += n;
}

static void put_le(struct gguf_bytes *b, uint64_t v, size_t n) {
    uint8_t le[8];
    for (size_t i = 0; i < n; i++) le[i] = (uint8_t)(v >> (8 * i));
    gguf_bytes_put(b, le, n);
}

void gguf_bytes_u32(struct gguf_bytes *b, uint32_t v) {
    put_le(b, v, 4);
}
void gguf_bytes_u64(struct gguf_bytes *b, uint64_t v) {
    put_le(b, v, 8);
}

void gguf_bytes_str(struct gguf_bytes *b, const char *s, size_t n) {
    gguf_bytes_u64(b, n);
    gguf_bytes_put(b, s, n);
}

void gguf_bytes_zeros(struct gguf_bytes *b, size_t n) {
    static const uint8_t zeros[4096];
    for (; n > sizeof zeros; n -= sizeof zeros) gguf_bytes_put(b, zeros, sizeof zeros);
    gguf_bytes_put(b, zeros, n);
}

static size_t padding(size_t n, size_t alignment) {
    return (alignment - n % alignment) % alignment;
}

struct gguf_build gguf_build_new(void) {
    return (struct gguf_build){.alignment = 32, .magic = 0x46554747 /* "GGUF" */, .version = 3};
}

void gguf_build_free(struct gguf_build *b) {
    free(b->kv.data);
    free(b->infos.data);
    free(b->data.data);
    *b = (struct gguf_build){0};
}

uint8_t *gguf_build_finish(struct gguf_build *b, size_t *n) {
    struct gguf_bytes out = {0};
    gguf_bytes_u32(&out, b->magic);
    gguf_bytes_u32(&out, b->version);
    gguf_bytes_u64(&out, b->n_tensors);
    gguf_bytes_u64(&out, b->n_kv);
    gguf_bytes_put(&out, b->kv.data, b->kv.n);
    gguf_bytes_put(&out, b->infos.data, b->infos.n);
    gguf_bytes_zeros(&out, padding(out.n, b->alignment));
    gguf_bytes_put(&out, b->data.data, b->data.n);
    gguf_build_free(b);
    *n = out.n;
    return out.data;
}

void gguf_kv(struct gguf_build *b, const char *key, uint32_t type) {
    gguf_bytes_str(&b->kv, key, strlen(key));
    gguf_bytes_u32(&b->kv, type);
    b->n_kv++;
}

void gguf_kv_u32(struct gguf_build *b, const char *key, uint32_t v) {
    gguf_kv(b, key, 4);
    gguf_bytes_u32(&b->kv, v);
}

void gguf_kv_f32(struct gguf_build *b, const char *key, float v) {
    uint32_t bits;
    memcpy(&bits, &v, 4);
    gguf_kv(b, key, 6);
    gguf_bytes_u32(&b->kv, bits);
}

void gguf_kv_bool(struct gguf_build *b, const char *key, bool v) {
    uint8_t byte = v;
    gguf_kv(b, key, 7);
    gguf_bytes_put(&b->kv, &byte, 1);
}

void gguf_kv_str(struct gguf_build *b, const char *key, const char *v) {
    gguf_kv(b, key, 8);
    gguf_bytes_str(&b->kv, v, strlen(v));
}

void gguf_kv_array(struct gguf_build *b, const char *key, uint32_t elem, uint64_t n) {
    gguf_kv(b, key, 9);
    gguf_bytes_u32(&b->kv, elem);
    gguf_bytes_u64(&b->kv, n);
}

void gguf_tensor(struct gguf_build *b, const char *name, uint32_t type, unsigned n_dims, const uint64_t *dims,
                 const void *data, size_t bytes) {
    gguf_tensor_info(b, name, n_dims, dims, type, b->data.n);
    if (data) {
        gguf_bytes_put(&b->data, data, bytes);
    } else {
        gguf_bytes_zeros(&b->data, bytes);
    }
    gguf_bytes_zeros(&b->data, padding(b->data.n, b->alignment));
}

void gguf_tensor_info(struct gguf_build *b, const char *name, uint32_t n_dims, const uint64_t *dims,
                      uint32_t type, uint64_t offset) {
    gguf_bytes_str(&b->infos, name, strlen(name));
    gguf_bytes_u32(&b->infos, n_dims);
    for (uint32_t i = 0; i < n_dims; i++) gguf_bytes_u64(&b->infos, dims[i]);
    gguf_bytes_u32(&b->infos, type);
    gguf_bytes_u64(&b->infos, offset);
    b->n_tensors++;
}

int gguf_build_write(const char *path, void *data, size_t n) {
    if (!data) return -1;
    FILE *f = fopen(path, "wb");
    int failed = !f || fwrite(data, 1, n, f) != n;
    if (f && fclose(f)) failed = 1;
    free(data);
    return failed ? -1 : 0;
}
