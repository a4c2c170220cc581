#define _GNU_SOURCE /* mremap */
#include "weights/file_map.h"
#include "base/error.h"
#include "base/size.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static int system_error(struct error *err, const char *what) {
    int code = errno == ENOENT || errno == ENOTDIR ? QUIRE_ENOTFOUND
               : errno == ENOMEM                   ? QUIRE_ENOMEM
                                                   : QUIRE_EIO;
    return error_set(err, code, "cannot %s: %s", what, strerror(errno));
}

static int map_whole(struct file_map *m, struct error *err) {
    struct stat st;
    if (fstat(m->fd, &st)) return system_error(err, "stat");
    if (!S_ISREG(st.st_mode)) return error_set(err, QUIRE_EIO, "is not a regular file");
    if (st.st_size < 0 || !size_from_u64((uint64_t)st.st_size, &m->n)) {
        return error_set(err, QUIRE_EIO, "is too large for this machine's addresses");
    }
    if (!m->n) return QUIRE_OK;
    void *base = mmap(NULL, m->n, PROT_READ, MAP_SHARED, m->fd, 0);
    if (base == MAP_FAILED) return system_error(err, "map");
    m->base = base;
    return QUIRE_OK;
}

int file_map_open(struct file_map *m, const char *path, struct error *err) {
    *m = (struct file_map){.page_bytes = (size_t)sysconf(_SC_PAGESIZE)};
    /* not blocking: opening a pipe must not wait for its writer */
    m->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (m->fd < 0) return system_error(err, "open");
    int rc = map_whole(m, err);
    if (rc) file_map_close(m);
    return rc;
}

void file_map_borrow(struct file_map *m, const void *data, size_t n) {
    *m = (struct file_map){.base = data, .n = n, .fd = -1};
}

void file_map_close(struct file_map *m) {
    if (m->fd < 0) return;
    if (m->base) munmap((void *)m->base, m->n);
    close(m->fd);
    *m = (struct file_map){.fd = -1};
}

static int read_at(const struct file_map *m, uint8_t *dst, size_t offset, size_t n, struct error *err) {
    while (n) {
        ssize_t got = pread(m->fd, dst, size_min(n, (size_t)1 << 30), (off_t)offset);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return system_error(err, "read");
        if (got == 0) {
            return error_set(err, QUIRE_EIO, "the file has shrunk to %zu bytes while it was read, from %zu",
                             offset, m->n);
        }
        dst += got;
        offset += (size_t)got;
        n -= (size_t)got;
    }
    return QUIRE_OK;
}

int file_map_read(const struct file_map *m, size_t offset, size_t n, void *dst, struct error *err) {
    if (m->fd >= 0) return read_at(m, dst, offset, n, err);
    if (n) memcpy(dst, m->base + offset, n);
    return QUIRE_OK;
}

int file_map_copy(const struct file_map *m, size_t offset, size_t n, struct error *err) {
    if (m->fd < 0 || !n) return QUIRE_OK;
    size_t first = offset / m->page_bytes * m->page_bytes, end = offset + n;
    size_t pages_bytes = size_div_up(end - first, m->page_bytes) * m->page_bytes;
    void *copy = mmap(NULL, pages_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (copy == MAP_FAILED) return system_error(err, "allocate");
    /* up to the end of the last page: its other bytes may be a neighbour's */
    int rc = read_at(m, copy, first, size_min(pages_bytes, m->n - first), err);
    if (rc) goto fail;
    if (mprotect(copy, pages_bytes, PROT_READ) ||
        mremap(copy, pages_bytes, pages_bytes, MREMAP_MAYMOVE | MREMAP_FIXED, m->base + first) ==
            MAP_FAILED) {
        rc = system_error(err, "remap");
        goto fail;
    }
    return QUIRE_OK;
fail:
    munmap(copy, pages_bytes);
    return rc;
}
