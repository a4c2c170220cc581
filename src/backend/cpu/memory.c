#include "backend/cpu/memory.h"
#include "backend/cpu/places.h"

#include "base/size.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

#define HUGE_BYTES MEMORY_HUGE_BYTES

/* Of a slab only what has been used is resident, so its size costs address space alone. A matrix larger than
 * a quarter of it gets its own. */
#define SLAB_BYTES (64u << 20)

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif

void *memory_map(size_t bytes, bool reserve) {
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | (reserve ? MAP_NORESERVE : 0);
    bool huge = bytes >= HUGE_BYTES;
    size_t span, mapped;
    if (!size_align_up(bytes, MEMORY_PAGE_BYTES, &span)) return NULL;
    if (!size_add(span, huge ? HUGE_BYTES : 0, &mapped)) return NULL;
    char *p = mmap(NULL, mapped, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (p == MAP_FAILED) return NULL;
    if (!huge) return p;
    /* Older kernels do not align large mappings by themselves. */
    size_t before = (HUGE_BYTES - (uintptr_t)p % HUGE_BYTES) % HUGE_BYTES;
    if (before) munmap(p, before);
    if (HUGE_BYTES - before) munmap(p + before + span, HUGE_BYTES - before);
    madvise(p + before, span, MADV_HUGEPAGE);
    return p + before;
}

void memory_unmap(void *p, size_t bytes) {
    size_t span;
    if (p && size_align_up(bytes, MEMORY_PAGE_BYTES, &span)) munmap(p, span);
}

int memory_populate(void *p, size_t bytes) {
    if (!bytes) return 0;
    if (!madvise(p, bytes, MADV_POPULATE_WRITE)) return 0;
    if (errno != EINVAL) return errno;
    /* A kernel without it: touch each page. Adding zero atomically keeps what another thread may be writing.
     */
    for (size_t i = 0; i < bytes; i += MEMORY_PAGE_BYTES)
        __atomic_fetch_add((char *)p + i, 0, __ATOMIC_RELAXED);
    return 0;
}

struct memory_slab {
    struct memory_slab *next;
    char *data;
    size_t bytes, used, n_live;
    size_t resident; /* from its beginning, as memory_slab_fresh has told */
    bool reserved;
};

size_t memory_slab_bytes(size_t bytes) {
    size_t n;
    return size_align_up(size_max(bytes, 1), MEMORY_ALIGN, &n) ? n : 0;
}

static struct memory_slab *slab_new(struct memory_slabs *s, size_t bytes) {
    struct memory_slab *slab = calloc(1, sizeof *slab);
    if (!slab) return NULL;
    slab->bytes = bytes;
    slab->data = memory_map(bytes, false);
    if (!slab->data) {
        free(slab);
        return NULL;
    }
    places_interleave(s->places, slab->data, bytes);
    slab->next = s->head;
    s->head = slab;
    return slab;
}

struct memory_block memory_slab_alloc(struct memory_slabs *s, size_t bytes) {
    size_t n = memory_slab_bytes(bytes);
    if (!n) return (struct memory_block){0};
    bool own = n > SLAB_BYTES / 4;
    struct memory_slab *slab = s->head;
    for (; slab; slab = slab->next)
        if ((slab->reserved || (!own && slab->bytes == SLAB_BYTES)) && slab->bytes - slab->used >= n) break;
    if (!slab) slab = slab_new(s, own ? n : SLAB_BYTES);
    if (!slab) return (struct memory_block){0};
    void *data = slab->data + slab->used;
    slab->used += n;
    slab->n_live++;
    return (struct memory_block){.data = data, .slab = slab};
}

bool memory_slabs_reserve(struct memory_slabs *s, size_t bytes) {
    size_t n = memory_slab_bytes(bytes);
    struct memory_slab *slab = n ? slab_new(s, n) : NULL;
    if (slab) slab->reserved = true;
    return slab != NULL;
}

struct memory_span memory_slab_fresh(struct memory_block block, size_t ahead) {
    struct memory_slab *slab = block.slab;
    size_t first = slab->resident, end = slab->used;
    if (first >= end) return (struct memory_span){0};
    if (slab->reserved) end += ahead;
    end = size_min(size_div_up(end, HUGE_BYTES) * HUGE_BYTES,
                   size_div_up(slab->bytes, MEMORY_PAGE_BYTES) * MEMORY_PAGE_BYTES);
    slab->resident = end;
    return (struct memory_span){slab->data + first, end - first};
}

static void slab_drop(struct memory_slabs *s, struct memory_slab *slab) {
    struct memory_slab **at = &s->head;
    while (*at != slab) at = &(*at)->next;
    *at = slab->next;
    memory_unmap(slab->data, slab->bytes);
    free(slab);
}

void memory_slabs_free(struct memory_slabs *s) {
    while (s->head) slab_drop(s, s->head);
}

void memory_slab_free(struct memory_slabs *s, struct memory_block block) {
    struct memory_slab *slab = block.slab;
    if (slab && !--slab->n_live) slab_drop(s, slab);
}
