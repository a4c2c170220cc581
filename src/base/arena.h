/* Bump allocator: many small allocations with one owner and one end. Not thread-safe. */
#ifndef BASE_ARENA_H
#define BASE_ARENA_H

#include <stddef.h>

struct arena_chunk;

struct arena {
    struct arena_chunk *head;
    size_t chunk_bytes; /* size of a new chunk */
    size_t used_bytes;  /* handed out so far */
    size_t limit_bytes; /* no more than this is handed out; 0 = no limit */
};

void arena_init(struct arena *a, size_t chunk_bytes, size_t limit_bytes);

/* Aligned for any type; uninitialised. NULL when memory or the limit is exhausted. n = 0 gives a valid pointer. */
void *arena_alloc(struct arena *a, size_t n);
void *arena_zalloc(struct arena *a, size_t n);
/* n elements of size bytes each, zeroed, with a checked product. */
void *arena_array(struct arena *a, size_t n, size_t size);
char *arena_strndup(struct arena *a, const char *s, size_t n); /* NUL-terminated copy */

void arena_reset(struct arena *a); /* frees all but one chunk; everything handed out is gone */
void arena_free(struct arena *a);  /* frees everything; the arena may be used again */

#endif
