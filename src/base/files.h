/* Whole files that an option named. */
#ifndef BASE_FILES_H
#define BASE_FILES_H

#include "base/buf.h"

#include <quire/error.h>

#include <stdio.h>

/* Appends the whole of a file. option: what named it, for messages, or NULL. QUIRE_ENOTFOUND, QUIRE_EIO,
 * QUIRE_ELIMIT.
 */
int file_read(const char *option, const char *path, size_t max_mib, struct buf *out, struct error *err);

/* A file for results: opened before they are there (so that a wrong path is told at once), and emptied only
 * when there is something to put in. path NULL: *out becomes NULL. */
int file_open_result(const char *option, const char *path, FILE **out, struct error *err);
/* Replaces what is in the file, and leaves it open; a NULL file is left alone. */
int file_write_result(FILE *f, const char *option, const char *path, const struct buf *data,
                      struct error *err);

#endif
