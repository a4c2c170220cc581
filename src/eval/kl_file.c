#include "eval/kl_file.h"

#include "base/error.h"
#include "base/size.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the file is little-endian");
_Static_assert(sizeof(struct kl_header) == 328, "no padding");

static int count_rows(struct kl_file *f, const struct windows *w, struct error *err) {
    f->first_row = calloc(w->n + 1, sizeof *f->first_row);
    if (!f->first_row) return error_set(err, QUIRE_ENOMEM, "out of memory for %zu windows", w->n);
    for (size_t i = 0; i < w->n; i++) f->first_row[i + 1] = f->first_row[i] + w->list[i].n - w->list[i].first;
    return 0;
}

static void describe(struct kl_header *h, const struct windows *w, const struct eval_context *c) {
    const struct quire_info *info = quire_info(c->local->engine);
    *h = (struct kl_header){.version = KL_VERSION,
                            .header_bytes = sizeof *h,
                            .n_vocab = info->n_vocab,
                            .row_bytes = kl_row_bytes(info->n_vocab),
                            .context = w->context,
                            .stride = w->stride,
                            .bos = (uint64_t)(w->bos + 1),
                            .text_tokens = w->tokens.n,
                            .text = w->text_hash,
                            .tokenizer = w->tokenizer_hash,
                            .tokens = w->tokens_hash};
    memcpy(h->magic, KL_MAGIC, sizeof h->magic);
    snprintf(h->model, sizeof h->model, "%.127s", c->model);
    snprintf(h->dtype, sizeof h->dtype, "%.15s", info->dtype_name);
    snprintf(h->cpu, sizeof h->cpu, "%.15s", info->cpu_path);
    snprintf(h->numerics, sizeof h->numerics, "%.39s", info->numerics_id);
}

static int map(struct kl_file *f, int fd, bool writable, const char *flag, const char *path,
               struct error *err) {
    void *p = mmap(NULL, f->bytes, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED)
        return error_set(err, QUIRE_EIO, "%s %.200s cannot be mapped: %s", flag, path, strerror(errno));
    f->header = p;
    f->writable = writable;
    return 0;
}

/* The rows of an earlier run are of use only if everything but the number of windows is the same. */
static bool continues(int fd, const struct kl_header *want) {
    struct kl_header had;
    if (pread(fd, &had, sizeof had, 0) != (ssize_t)sizeof had) return false;
    had.n_windows = had.n_rows = 0;
    return !memcmp(&had, want, sizeof had);
}

int kl_file_create(const char *path, const struct windows *w, const struct eval_context *c, bool keep,
                   struct kl_file *out, struct error *err) {
    struct kl_header h;
    *out = (struct kl_file){0};
    describe(&h, w, c);
    int fd = -1, rc = count_rows(out, w, err);
    if (rc) return rc;
    if (!size_mul(out->first_row[w->n], h.row_bytes, &out->bytes) ||
        !size_add(out->bytes, sizeof h, &out->bytes)) {
        rc = error_set(err, QUIRE_ELIMIT, "--save: %zu distributions are too many", out->first_row[w->n]);
        goto fail;
    }
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0) {
        rc = error_set(err, QUIRE_EINVAL, "--save %.200s cannot be written: %s", path, strerror(errno));
        goto fail;
    }
    if (keep && !continues(fd, &h)) {
        rc = error_set(err, QUIRE_EINVAL, "--resume: --save %.200s is not of the interrupted run", path);
        goto fail;
    }
    if ((!keep && ftruncate(fd, 0)) || (errno = posix_fallocate(fd, 0, (off_t)out->bytes))) {
        rc = error_set(err, QUIRE_EIO, "--save %.200s: %zu bytes cannot be had: %s", path, out->bytes,
                       strerror(errno));
        goto fail;
    }
    if ((rc = map(out, fd, true, "--save", path, err))) goto fail;
    if (!keep) *out->header = h;
    close(fd);
    return 0;
fail:
    if (fd >= 0) close(fd);
    kl_file_close(out);
    return rc;
}

static bool hash_differs(struct hash128 a, struct hash128 b) {
    return !hash128_equal(a, b);
}

static int check(const struct kl_header *h, const struct windows *w, size_t n_vocab, const char *path,
                 struct error *err) {
    const char *what =
        memcmp(h->magic, KL_MAGIC, sizeof h->magic) ? "it is not a file of reference distributions"
        : h->version != KL_VERSION || h->header_bytes != sizeof *h ? "its version of the format is not known"
        : hash_differs(h->text, w->text_hash)                      ? "it is of another text"
        : hash_differs(h->tokenizer, w->tokenizer_hash)            ? "it is of a model with another tokenizer"
        : hash_differs(h->tokens, w->tokens_hash)                  ? "the text has other tokens in it"
        : h->bos != (uint64_t)(w->bos + 1)                         ? "its windows begin with another token"
                                                                   : NULL;
    if (what) return error_set(err, QUIRE_EINVAL, "--reference %.200s: %s", path, what);
    if (h->context != w->context || h->stride != w->stride)
        return error_set(err, QUIRE_EINVAL,
                         "--reference %.200s: it is of --context %" PRIu64 " --stride %" PRIu64
                         ", not %zu and %zu",
                         path, h->context, h->stride, w->context, w->stride);
    if (h->n_vocab != n_vocab || h->row_bytes != kl_row_bytes(n_vocab))
        return error_set(err, QUIRE_EINVAL,
                         "--reference %.200s: it has %" PRIu64 " tokens in a distribution, not %zu", path,
                         h->n_vocab, n_vocab);
    return h->n_windows ? 0
                        : error_set(err, QUIRE_EINVAL, "--reference %.200s: it has no complete window", path);
}

/* The rows of the windows that both have are there. */
static int check_size(struct kl_file *f, struct windows const *w, size_t n, const char *path,
                      struct error *err) {
    size_t need;
    if (f->header->n_windows <= w->n && f->first_row[n] != f->header->n_rows)
        return error_set(err, QUIRE_EFORMAT,
                         "--reference %.200s: %zu windows have %zu scored tokens, not %" PRIu64, path, n,
                         f->first_row[n], f->header->n_rows);
    if (!size_mul(f->first_row[n], f->header->row_bytes, &need) ||
        !size_add(need, sizeof *f->header, &need) || need > f->bytes)
        return error_set(err, QUIRE_EFORMAT, "--reference %.200s is cut short: %zu bytes, %zu are needed",
                         path, f->bytes, need);
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < w->list[i].n - w->list[i].first; k++)
            if (kl_file_row(f, i, k)->token != w->tokens.ids[w->list[i].begin + w->list[i].first + k])
                return error_set(err, QUIRE_EFORMAT,
                                 "--reference %.200s: the rows of window %zu are not of this text", path, i);
    return 0;
}

int kl_file_open(const char *path, const struct windows *w, size_t n_vocab, struct kl_file *out,
                 size_t *n_windows, struct error *err) {
    struct stat st;
    *out = (struct kl_file){0};
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return error_set(err, QUIRE_ENOTFOUND, "--reference %.200s: %s", path, strerror(errno));
    int rc = count_rows(out, w, err);
    if (!rc && fstat(fd, &st))
        rc = error_set(err, QUIRE_EIO, "--reference %.200s: %s", path, strerror(errno));
    if (!rc && (st.st_size < (off_t)sizeof(struct kl_header) || !S_ISREG(st.st_mode)))
        rc = error_set(err, QUIRE_EFORMAT, "--reference %.200s: it is not a file of reference distributions",
                       path);
    if (!rc) {
        out->bytes = (size_t)st.st_size;
        rc = map(out, fd, false, "--reference", path, err);
    }
    close(fd);
    if (!rc) rc = check(out->header, w, n_vocab, path, err);
    if (!rc) {
        *n_windows = size_min(w->n, out->header->n_windows);
        rc = check_size(out, w, *n_windows, path, err);
    }
    if (rc) kl_file_close(out);
    return rc;
}

struct kl_row *kl_file_row(const struct kl_file *f, size_t window, size_t row) {
    char *rows = (char *)(f->header + 1);
    return (struct kl_row *)(void *)(rows + (f->first_row[window] + row) * f->header->row_bytes);
}

int kl_file_finish(struct kl_file *f, const char *path, size_t n_windows, struct error *err) {
    f->header->n_windows = n_windows;
    f->header->n_rows = f->first_row[n_windows];
    if (!msync(f->header, f->bytes, MS_SYNC)) return 0;
    return error_set(err, QUIRE_EIO, "--save %.200s cannot be written: %s", path, strerror(errno));
}

void kl_file_close(struct kl_file *f) {
    if (f->header) munmap(f->header, f->bytes);
    free(f->first_row);
    *f = (struct kl_file){0};
}
