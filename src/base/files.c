#include "base/files.h"

#include "base/error.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A FIFO that nobody writes to is not waited for, and a device without an end is not read. */
static FILE *open_regular(const char *path, bool *other) {
    struct stat st;
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    *other = fd >= 0 && (fstat(fd, &st) || !S_ISREG(st.st_mode));
    FILE *f = fd >= 0 && !*other ? fdopen(fd, "rb") : NULL;
    if (fd >= 0 && !f) close(fd);
    return f;
}

int file_read(const char *option, const char *path, size_t max_mib, struct buf *out, struct error *err) {
    char piece[65536];
    const char *space = option ? " " : "";
    if (!option) option = "";
    bool other;
    FILE *f = open_regular(path, &other);
    if (other) return error_set(err, QUIRE_EFORMAT, "%s%s%s is not a regular file", option, space, path);
    if (!f) {
        int code = errno == ENOENT || errno == ENOTDIR ? QUIRE_ENOTFOUND : QUIRE_EIO;
        return error_set(err, code, "%s%s%s: %s", option, space, path, strerror(errno));
    }
    out->limit_bytes = max_mib << 20;
    for (size_t n; (n = fread(piece, 1, sizeof piece, f)) > 0;) buf_append(out, piece, n);
    bool failed = ferror(f);
    fclose(f);
    if (failed) return error_set(err, QUIRE_EIO, "%s%s%s cannot be read", option, space, path);
    if (!buf_ok(out))
        return error_set(err, QUIRE_ELIMIT, "%s%s%s is larger than %zu MiB", option, space, path, max_mib);
    return 0;
}

int file_open_result(const char *option, const char *path, FILE **out, struct error *err) {
    *out = path ? fopen(path, "abe") : NULL;
    if (!path || *out) return QUIRE_OK;
    return error_set(err, QUIRE_EINVAL, "%s %.200s cannot be written: %s", option, path, strerror(errno));
}

int file_write_result(FILE *f, const char *option, const char *path, const struct buf *data,
                      struct error *err) {
    if (!f) return QUIRE_OK;
    if (ftruncate(fileno(f), 0) && errno != EINVAL) goto fail; /* EINVAL: not a regular file */
    if (fwrite(data->data, 1, data->len, f) == data->len && !fflush(f)) return QUIRE_OK;
fail:
    return error_set(err, QUIRE_EIO, "%s %.200s cannot be written: %s", option, path, strerror(errno));
}

/* Whether both lead to one regular file, or will. */
static bool same(const char *a, const char *b) {
    struct stat x, y;
    if (!a || !b) return false;
    bool there = !stat(a, &x);
    if (!strcmp(a, b)) return !there || S_ISREG(x.st_mode);
    return there && S_ISREG(x.st_mode) && !stat(b, &y) && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

int file_check_apart(const struct file_option *files, size_t n_results, size_t n, struct error *err) {
    for (size_t i = 0; i < n_results; i++)
        for (size_t k = i + 1; k < n; k++)
            if (same(files[i].path, files[k].path))
                return error_set(err, QUIRE_EINVAL, "%s %.200s is the file of %s, too: each needs its own",
                                 files[i].option, files[i].path, files[k].option);
    return QUIRE_OK;
}

int file_check_replaceable(const char *option, const char *path, struct error *err) {
    struct stat st;
    if (!path || stat(path, &st) || S_ISREG(st.st_mode)) return QUIRE_OK;
    return error_set(err, QUIRE_EINVAL, "%s %.200s is not a regular file", option, path);
}
