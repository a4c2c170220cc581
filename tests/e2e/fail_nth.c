/* Preloaded into the program: the FAIL_AT-th allocation (or thread) that its own code asks for fails, once.
 * With FAIL_EVERY=K instead, each K-th one fails between a SIGUSR1 and the next. With neither it only counts
 * and writes the number to descriptor 2 at the end, as "allocations: N". */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);

static uintptr_t start, end;
static long fail_at, fail_every;
static atomic_long count;
static atomic_bool armed;

static int first_object(struct dl_phdr_info *info, size_t size, void *unused) {
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        if (p->p_type != PT_LOAD) continue;
        uintptr_t a = info->dlpi_addr + p->p_vaddr;
        if (!start || a < start) start = a;
        if (a + p->p_memsz > end) end = a + p->p_memsz;
    }
    return 1;
}

static void toggle(int unused) {
    atomic_store(&armed, !atomic_load(&armed));
}

__attribute__((constructor)) static void prepare(void) {
    const char *at = getenv("FAIL_AT");
    const char *every = getenv("FAIL_EVERY");
    fail_at = at ? atol(at) : 0;
    fail_every = every ? atol(every) : 0;
    if (fail_every) signal(SIGUSR1, toggle);
    dl_iterate_phdr(first_object, NULL);
}

__attribute__((destructor)) static void report(void) {
    if (!fail_at && !fail_every) dprintf(2, "allocations: %ld\n", atomic_load(&count));
}

static int fails(void *caller) {
    uintptr_t at = (uintptr_t)caller;
    if (at < start || at >= end) return 0;
    long n = atomic_fetch_add(&count, 1) + 1;
    return fail_every ? atomic_load(&armed) && n % fail_every == 0 : n == fail_at;
}

#define FAILS fails(__builtin_return_address(0))

void *malloc(size_t n) {
    if (FAILS) return errno = ENOMEM, NULL;
    return __libc_malloc(n);
}
void *calloc(size_t n, size_t size) {
    if (FAILS) return errno = ENOMEM, NULL;
    return __libc_calloc(n, size);
}
void *realloc(void *p, size_t n) {
    if (FAILS) return errno = ENOMEM, NULL;
    return __libc_realloc(p, n);
}
void *aligned_alloc(size_t align, size_t n) {
    if (FAILS) return errno = ENOMEM, NULL;
    return __libc_memalign(align, n);
}
int posix_memalign(void **out, size_t align, size_t n) {
    if (FAILS) return ENOMEM;
    *out = __libc_memalign(align, n);
    return *out ? 0 : ENOMEM;
}
char *strdup(const char *s) {
    size_t n = strlen(s) + 1;
    char *copy = FAILS ? NULL : __libc_malloc(n);
    return copy ? memcpy(copy, s, n) : (errno = ENOMEM, NULL);
}
char *strndup(const char *s, size_t most) {
    size_t n = strnlen(s, most);
    char *copy = FAILS ? NULL : __libc_malloc(n + 1);
    if (!copy) return errno = ENOMEM, NULL;
    copy[n] = 0;
    return memcpy(copy, s, n);
}
void *mmap(void *at, size_t n, int protection, int flags, int fd, off_t offset) {
    static void *(*next)(void *, size_t, int, int, int, off_t);
    if (!next) next = dlsym(RTLD_NEXT, "mmap");
    if (FAILS) return errno = ENOMEM, MAP_FAILED;
    return next(at, n, protection, flags, fd, offset);
}
int pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*fn)(void *), void *arg) {
    static int (*next)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    if (!next) next = dlsym(RTLD_NEXT, "pthread_create");
    if (FAILS) return EAGAIN;
    return next(thread, attr, fn, arg);
}
