#include "util/alloc_fail.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

static atomic_size_t count, bytes, first_failure, thread_count, thread_failure; /* first_failure 0: off */
static atomic_bool keep_failing, hit;

static void arm(size_t n, bool keep) {
    count = 0;
    bytes = 0;
    hit = false;
    keep_failing = keep;
    first_failure = n;
}

void alloc_fail_at(size_t n) {
    arm(n, false);
}
void alloc_fail_from(size_t n) {
    arm(n, true);
}
size_t alloc_fail_bytes(void) {
    return bytes;
}
bool alloc_fail_hit(void) {
    return hit;
}

size_t alloc_fail_stop(void) {
    first_failure = 0;
    return count;
}

void thread_fail_at(size_t n) {
    thread_count = 0;
    thread_failure = n;
}

size_t alloc_fail_each(void (*body)(void *ctx), void *ctx) {
    for (size_t n = 1;; n++) {
        alloc_fail_at(n);
        body(ctx);
        alloc_fail_stop();
        if (!alloc_fail_hit()) return n - 1;
    }
}

static bool fails(size_t n_bytes) {
    atomic_fetch_add(&bytes, n_bytes);
    size_t n = atomic_fetch_add(&count, 1) + 1, first = first_failure;
    if (!first || (keep_failing ? n < first : n != first)) return false;
    hit = true;
    errno = ENOMEM;
    return true;
}

void *__real_malloc(size_t n);
void *__wrap_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__wrap_realloc(void *p, size_t n);
char *__real_strdup(const char *s);
char *__wrap_strdup(const char *s);
char *__real_strndup(const char *s, size_t n);
char *__wrap_strndup(const char *s, size_t n);
void *__real_aligned_alloc(size_t align, size_t n);
void *__wrap_aligned_alloc(size_t align, size_t n);
int __real_posix_memalign(void **out, size_t align, size_t n);
int __wrap_posix_memalign(void **out, size_t align, size_t n);
void *__real_mmap(void *at, size_t n, int prot, int flags, int fd, off_t offset);
void *__wrap_mmap(void *at, size_t n, int prot, int flags, int fd, off_t offset);
int __real_pthread_create(pthread_t *out, const pthread_attr_t *attr, void *(*start)(void *), void *arg);
int __wrap_pthread_create(pthread_t *out, const pthread_attr_t *attr, void *(*start)(void *), void *arg);

void *__wrap_malloc(size_t n) {
    return fails(n) ? NULL : __real_malloc(n);
}
void *__wrap_calloc(size_t n, size_t size) {
    return fails(n * size) ? NULL : __real_calloc(n, size);
}
void *__wrap_realloc(void *p, size_t n) {
    return fails(n) ? NULL : __real_realloc(p, n);
}
char *__wrap_strdup(const char *s) {
    return fails(strlen(s) + 1) ? NULL : __real_strdup(s);
}
char *__wrap_strndup(const char *s, size_t n) {
    return fails(n) ? NULL : __real_strndup(s, n);
}
void *__wrap_aligned_alloc(size_t align, size_t n) {
    return fails(n) ? NULL : __real_aligned_alloc(align, n);
}

int __wrap_posix_memalign(void **out, size_t align, size_t n) {
    return fails(n) ? ENOMEM : __real_posix_memalign(out, align, n);
}

void *__wrap_mmap(void *at, size_t n, int prot, int flags, int fd, off_t offset) {
    return fails(n) ? MAP_FAILED : __real_mmap(at, n, prot, flags, fd, offset);
}

int __wrap_pthread_create(pthread_t *out, const pthread_attr_t *attr, void *(*start)(void *), void *arg) {
    size_t n = atomic_fetch_add(&thread_count, 1) + 1;
    return n == thread_failure ? EAGAIN : __real_pthread_create(out, attr, start, arg);
}
