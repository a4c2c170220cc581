/* Memory of the CPU backend: 64-byte aligned, big pieces straight from the system on huge pages where it has
 * them. */
#ifndef BACKEND_CPU_MEMORY_H
#define BACKEND_CPU_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

#define MEMORY_ALIGN      64
#define MEMORY_PAGE_BYTES 4096

/* Zeroed address space from the system; NULL when there is none. reserve: nothing is promised to be there,
 * pages come (and are accounted) as they are touched. bytes > 0. */
void *memory_map(size_t bytes, bool reserve);
void memory_unmap(void *p, size_t bytes);
/* Makes [p, p + bytes) resident, keeping what is in it. p is page-aligned. 0, or the system's errno. */
int memory_populate(void *p, size_t bytes);

#define MEMORY_HUGE_BYTES (2u << 20)

/* Weights: matrices packed one after the other into slabs, so that small ones share huge pages. Not
 * thread-safe. */
struct memory_slab;
struct places;
struct memory_slabs {
    struct places *places; /* or NULL: slabs lie on all nodes by turns */
    struct memory_slab *head;
};
struct memory_block {
    void *data; /* zeroed, MEMORY_ALIGN; NULL: no memory */
    struct memory_slab *slab;
};
struct memory_block memory_slab_alloc(struct memory_slabs *s, size_t bytes);
void memory_slab_free(struct memory_slabs *s, struct memory_block block);
/* One slab for allocations of so many bytes together, as memory_slab_bytes counts them; without it, slabs
 * come as they are needed. false: no memory. */
bool memory_slabs_reserve(struct memory_slabs *s, size_t bytes);
void memory_slabs_free(struct memory_slabs *s); /* all that is left */
/* The pages that are not resident yet of what has been handed out up to this block, and up to `ahead` bytes
 * more of a reserved slab: the caller makes them so (memory_populate). Threads that write into pages as they
 * come meet in huge ones, and each of them clears it. */
struct memory_span {
    char *data; /* page-aligned */
    size_t bytes;
};
struct memory_span memory_slab_fresh(struct memory_block block, size_t ahead);
size_t memory_slab_bytes(size_t bytes); /* what an allocation of `bytes` takes from a slab; 0 on overflow */

#endif
