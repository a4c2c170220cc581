/* Setting a `struct error` (include/quire/error.h). */
#ifndef BASE_ERROR_H
#define BASE_ERROR_H

#include <quire/error.h>

/* Fills *err (ignored when NULL) and returns code, so that callers write `return error_set(...)`. The text is
 * truncated to fit; bytes of it that are not printable ASCII or valid UTF-8 are escaped as \xNN. param becomes NULL. */
int error_set(struct error *err, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* As error_set, and names the field or flag at fault (static string, kept by pointer). */
int error_param(struct error *err, int code, const char *param, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* Puts "prefix: " in front of the text of a failure on its way up. Returns err->code. */
int error_prefix(struct error *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* What threads that share a task leave of it: the first failure, and its text. */
struct first_error {
    _Atomic int status; /* 0 until one fails */
    struct error *err;  /* or NULL; to be read when all are done */
};
void first_error_note(struct first_error *f, int status, const struct error *err); /* status: not 0 */

/* Short constant name of a code ("invalid", "out of memory", ...). */
const char *error_name(int code);

#endif
