#include "base/arena.h"
#include "base/size.h"

#include <stdalign.h>
#include <stdlib.h>
#include <string.h>

#ifdef __has_feature
#if __has_feature(address_sanitizer)
#define ARENA_ASAN 1
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define ARENA_ASAN 1
#endif
#ifdef ARENA_ASAN
#include <sanitizer/asan_interface.h>
#define POISON(p, n)   ASAN_POISON_MEMORY_REGION(p, n)
#define UNPOISON(p, n) ASAN_UNPOISON_MEMORY_REGION(p, n)
#else
#define POISON(p, n)   ((void)(p), (void)(n))
#define UNPOISON(p, n) ((void)(p), (void)(n))
#endif

struct arena_chunk {
    struct arena_chunk *next;
    size_t size_bytes, used_bytes; /* of data */
    alignas(max_align_t) unsigned char data[];
};

void arena_init(struct arena *a, size_t chunk_bytes, size_t limit_bytes) {
    *a = (struct arena){.chunk_bytes = chunk_bytes ? chunk_bytes : 4096, .limit_bytes = limit_bytes};
}

/* A chunk with room for n bytes. One that is larger than usual goes behind the head, whose rest stays in use.
 */
static struct arena_chunk *new_chunk(struct arena *a, size_t n) {
    size_t total;
    size_t size_bytes = size_max(n, a->chunk_bytes);
    if (!size_add(size_bytes, sizeof(struct arena_chunk), &total)) return NULL;
    struct arena_chunk *c = malloc(total);
    if (!c) return NULL;
    c->size_bytes = size_bytes;
    c->used_bytes = 0;
    POISON(c->data, size_bytes);
    if (a->head && n > a->chunk_bytes) {
        c->next = a->head->next;
        a->head->next = c;
    } else {
        c->next = a->head;
        a->head = c;
    }
    return c;
}

void *arena_alloc(struct arena *a, size_t n) {
    size_t step, used;
    if (!size_align_up(n ? n : 1, alignof(max_align_t), &step)) return NULL;
    if (!size_add(a->used_bytes, step, &used)) return NULL;
    if (a->limit_bytes && used > a->limit_bytes) return NULL;
    struct arena_chunk *c = a->head;
    if (!c || step > c->size_bytes - c->used_bytes) c = new_chunk(a, step);
    if (!c) return NULL;
    void *p = c->data + c->used_bytes;
    c->used_bytes += step;
    a->used_bytes = used;
    UNPOISON(p, n ? n : 1);
    return p;
}

void *arena_zalloc(struct arena *a, size_t n) {
    void *p = arena_alloc(a, n);
    if (p) memset(p, 0, n);
    return p;
}

void *arena_array(struct arena *a, size_t n, size_t size) {
    size_t bytes;
    return size_mul(n, size, &bytes) ? arena_zalloc(a, bytes) : NULL;
}

char *arena_strndup(struct arena *a, const char *s, size_t n) {
    size_t bytes;
    char *copy = size_add(n, 1, &bytes) ? arena_alloc(a, bytes) : NULL;
    if (!copy) return NULL;
    if (n) memcpy(copy, s, n);
    copy[n] = '\0';
    return copy;
}

static void free_chunks(struct arena_chunk *c) {
    while (c) {
        struct arena_chunk *next = c->next;
        UNPOISON(c->data, c->size_bytes);
        free(c);
        c = next;
    }
}

void arena_reset(struct arena *a) {
    a->used_bytes = 0;
    if (!a->head) return;
    free_chunks(a->head->next);
    a->head->next = NULL;
    a->head->used_bytes = 0;
    POISON(a->head->data, a->head->size_bytes);
}

void arena_free(struct arena *a) {
    free_chunks(a->head);
    a->head = NULL;
    a->used_bytes = 0;
}
