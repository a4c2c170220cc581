/* Whole files that an option named. */
#ifndef BASE_FILES_H
#define BASE_FILES_H

#include "base/buf.h"

#include <quire/error.h>

#include <stdio.h>

/* Appends the whole of a regular file. option: what named it, for messages, or NULL. QUIRE_ENOTFOUND,
 * QUIRE_EIO, QUIRE_ELIMIT, QUIRE_EFORMAT (it is not a regular file). */
int file_read(const char *option, const char *path, size_t max_mib, struct buf *out, struct error *err);

/* A file for results: opened before they are there (so that a wrong path is told at once), and emptied only
 * when there is something to put in. path NULL: *out becomes NULL. */
int file_open_result(const char *option, const char *path, FILE **out, struct error *err);
/* Replaces what is in the file, and leaves it open; a NULL file is left alone. */
int file_write_result(FILE *f, const char *option, const char *path, const struct buf *data,
                      struct error *err);

struct file_option {
    const char *option, *path; /* path NULL: not given */
};
/* QUIRE_EINVAL when one of the first n_results files, which will be written, is any of those behind it. */
int file_check_apart(const struct file_option *files, size_t n_results, size_t n, struct error *err);
/* For a result that is written beside its place and then put there: QUIRE_EINVAL when something other than a
 * regular file would be replaced. */
int file_check_replaceable(const char *option, const char *path, struct error *err);

#endif
