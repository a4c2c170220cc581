#include "base/error.h"
#include "base/utf8.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

/* Longer than error.text: whatever does not fit in it is never looked at. */
#define RAW_BYTES (2 * QUIRE_ERROR_TEXT_BYTES)

static size_t format(char raw[RAW_BYTES], const char *fmt, va_list args) {
    int n = vsnprintf(raw, RAW_BYTES, fmt, args);
    if (n < 0) return 0;
    return (size_t)n < RAW_BYTES ? (size_t)n : RAW_BYTES - 1;
}

static int set(struct error *err, int code, const char *param, const char *fmt, va_list args) {
    char raw[RAW_BYTES]; /* an argument may point into err->text */
    if (!err) return code;
    size_t n = format(raw, fmt, args);
    utf8_printable(err->text, sizeof err->text, raw, n);
    err->code = code;
    err->param = param;
    return code;
}

int error_set(struct error *err, int code, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    set(err, code, NULL, fmt, args);
    va_end(args);
    return code;
}

int error_param(struct error *err, int code, const char *param, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    set(err, code, param, fmt, args);
    va_end(args);
    return code;
}

int error_prefix(struct error *err, const char *fmt, ...) {
    if (!err) return QUIRE_OK;
    char raw[RAW_BYTES];
    va_list args;
    va_start(args, fmt);
    size_t n = format(raw, fmt, args);
    va_end(args);
    int more = snprintf(raw + n, RAW_BYTES - n, ": %s", err->text);
    if (more > 0) n = (size_t)more < RAW_BYTES - n ? n + (size_t)more : RAW_BYTES - 1;
    utf8_printable(err->text, sizeof err->text, raw, n);
    return err->code;
}

void first_error_note(struct first_error *f, int status, const struct error *err) {
    int none = 0;
    if (atomic_compare_exchange_strong(&f->status, &none, status) && f->err) *f->err = *err;
}

const char *error_name(int code) {
    switch (code) {
    case QUIRE_OK: return "ok";
    case QUIRE_EINVAL: return "invalid";
    case QUIRE_ENOMEM: return "out of memory";
    case QUIRE_EIO: return "input/output error";
    case QUIRE_ENOTFOUND: return "not found";
    case QUIRE_EFORMAT: return "malformed";
    case QUIRE_EUNSUPPORTED: return "not supported";
    case QUIRE_ELIMIT: return "limit exceeded";
    case QUIRE_EBUSY: return "busy";
    case QUIRE_ECANCELED: return "canceled";
    case QUIRE_EINTERNAL: return "internal error";
    default: return "unknown error";
    }
}
