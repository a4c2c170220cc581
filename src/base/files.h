/* Whole files that an option named. */
#ifndef BASE_FILES_H
#define BASE_FILES_H

#include "base/buf.h"

#include <quire/error.h>

#include <stdbool.h>
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
/* Whether both paths lead to one regular file; a NULL leads nowhere. */
bool file_same(const char *a, const char *b);

#endif
