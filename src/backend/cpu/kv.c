/* The KV pool: one reservation of equal pages. A page holds, for each layer and KV head of its group, the K
 * chunk and then the V chunk of kern/kern.h, or with `rows` the K chunk alone. */
#include "backend/cpu/cpu.h"
#include "backend/cpu/places.h"

#include "base/error.h"
#include "base/size.h"

#include <stdlib.h>
#include <string.h>

static const enum kern_kv KV_OF_DTYPE[] = {
    [BACKEND_BF16] = KERN_KV_BF16, [BACKEND_F16] = KERN_KV_F16, [BACKEND_F32] = KERN_KV_F32};

static bool block_fits(size_t block_tokens) {
    return block_tokens && block_tokens % KERN_KV_LANES == 0 && KERN_ATTN_PARTITION % block_tokens == 0;
}

/* The kernels move elements of a head in groups of this many (kern/kern.h). */
#define HEAD_DIM_STEP 8

/* Fills the sizes of *kv for its layout; false: too large, or a block size that partitions cannot be cut
 * into. */
static bool lay_out(struct backend_kv *kv, const struct cpu_backend *c) {
    const struct backend_kv_layout *l = &kv->layout;
    kv->attn = l->rows ? &c->kern->attn_rows[KV_OF_DTYPE[l->dtype]] : &c->kern->attn[KV_OF_DTYPE[l->dtype]];
    kv->page_bytes = 0;
    if (!block_fits(l->block_tokens) || !l->n_groups || l->n_groups > BATCH_MAX_GROUPS) return false;
    for (size_t g = 0; g < l->n_groups; g++) {
        const struct backend_kv_group *group = &l->groups[g];
        size_t bytes;
        if (group->head_dim % HEAD_DIM_STEP || group->head_dim > KERN_ATTN_MAX_HEAD) return false;
        if (!size_mul(l->block_tokens * kv->attn->elem_bytes, group->head_dim, &bytes) ||
            !size_align_up(bytes, MEMORY_ALIGN, &kv->chunk_bytes[g]) ||
            !size_mul(kv->chunk_bytes[g], kv_chunks(kv) * group->n_kv_heads, &bytes) ||
            !size_mul(bytes, group->n_layers, &bytes))
            return false;
        kv->page_bytes = size_max(kv->page_bytes, bytes);
    }
    return kv->page_bytes && size_align_up(kv->page_bytes, MEMORY_PAGE_BYTES, &kv->page_bytes);
}

size_t cpu_kv_page_bytes(struct backend *b, const struct backend_kv_layout *layout) {
    struct backend_kv kv = {.layout = *layout};
    return lay_out(&kv, cpu_of(b)) ? kv.page_bytes : 0;
}

int cpu_kv_create(struct backend *b, const struct backend_kv_layout *layout, size_t n_pages,
                  struct backend_kv **out, struct error *err) {
    struct backend_kv *kv = calloc(1, sizeof *kv);
    if (!kv) return error_set(err, QUIRE_ENOMEM, "KV pool: out of memory");
    kv->layout = *layout;
    kv->n_pages = n_pages;
    if (!lay_out(kv, cpu_of(b)) || !n_pages || !size_mul(n_pages, kv->page_bytes, &kv->bytes)) {
        free(kv);
        if (!block_fits(layout->block_tokens))
            return error_param(err, QUIRE_EINVAL, "block-size",
                               "block-size %zu: must be a multiple of %d that divides %d",
                               layout->block_tokens, KERN_KV_LANES, KERN_ATTN_PARTITION);
        return error_set(err, QUIRE_ELIMIT, "KV pool: %zu pages of such layers are not possible", n_pages);
    }
    kv->pages = memory_map(kv->bytes, true);
    if (!kv->pages) {
        size_t bytes = kv->bytes;
        free(kv);
        return error_set(err, QUIRE_ENOMEM, "KV pool: no address space for %zu bytes", bytes);
    }
    places_interleave(cpu_of(b)->places, kv->pages, kv->bytes);
    *out = kv;
    return 0;
}

void cpu_kv_free(struct backend *b, struct backend_kv *kv) {
    if (!kv) return;
    memory_unmap(kv->pages, kv->bytes);
    free(kv);
}

int cpu_kv_populate(struct backend *b, struct backend_kv *kv, size_t first, size_t n, struct error *err) {
    if (first > kv->n_pages || n > kv->n_pages - first)
        return error_set(err, QUIRE_EINTERNAL, "KV pool: pages %zu + %zu of %zu", first, n, kv->n_pages);
    int rc = memory_populate(kv->pages + first * kv->page_bytes, n * kv->page_bytes);
    if (!rc) return 0;
    return error_set(err, QUIRE_ENOMEM, "KV pool: pages %zu to %zu could not be had: %s", first, first + n,
                     strerror(rc));
}

void cpu_kv_copy(struct backend *b, struct backend_kv *kv, size_t dst_page, size_t src_page,
                 size_t n_tokens) {
    if (!n_tokens || dst_page == src_page) return;
    memcpy(kv->pages + dst_page * kv->page_bytes, kv->pages + src_page * kv->page_bytes, kv->page_bytes);
}

size_t cpu_kv_export_bytes(struct backend *b, const struct backend_kv *kv, size_t group) {
    const struct backend_kv_group *g = &kv->layout.groups[group];
    return g->n_layers * kv_chunks(kv) * kv->layout.block_tokens * g->n_kv_heads * g->head_dim *
           sizeof(float);
}

void cpu_kv_export(struct backend *b, const struct backend_kv *kv, size_t group, size_t page, void *dst) {
    const struct backend_kv_group *g = &kv->layout.groups[group];
    size_t n_tokens = kv->layout.block_tokens, row = g->n_kv_heads * g->head_dim;
    for (size_t layer = 0; layer < g->n_layers; layer++)
        for (size_t head = 0; head < g->n_kv_heads; head++) {
            const char *k = kv_chunk(kv, group, page, layer, head), *v = k + kv->chunk_bytes[group];
            float *out = (float *)dst + layer * kv_chunks(kv) * n_tokens * row + head * g->head_dim;
            for (size_t t = 0; t < n_tokens; t++) {
                kv->attn->read_k(out + t * row, k, t, g->head_dim);
                if (!kv->layout.rows) kv->attn->read_v(out + (n_tokens + t) * row, v, t, g->head_dim);
            }
        }
}

void cpu_kv_import(struct backend *b, struct backend_kv *kv, size_t group, size_t page, const void *src) {
    const struct backend_kv_group *g = &kv->layout.groups[group];
    size_t n_tokens = kv->layout.block_tokens, row = g->n_kv_heads * g->head_dim;
    for (size_t layer = 0; layer < g->n_layers; layer++)
        for (size_t head = 0; head < g->n_kv_heads; head++) {
            char *k = kv_chunk(kv, group, page, layer, head), *v = k + kv->chunk_bytes[group];
            const float *in =
                (const float *)src + layer * kv_chunks(kv) * n_tokens * row + head * g->head_dim;
            for (size_t t = 0; t < n_tokens; t++) {
                kv->attn->write_k(k, t, n_tokens, in + t * row, g->head_dim);
                if (!kv->layout.rows) kv->attn->write_v(v, t, in + (n_tokens + t) * row, g->head_dim);
            }
        }
}
