/* A small JSON writer onto a buf: no tree, no allocation but the buffer's. Commas and nesting are kept by the
 * writer; strings are escaped, and bytes that are not valid UTF-8 become U+FFFD, so the output is always
 * valid JSON. NaN and infinities are written as null. */
#ifndef BASE_JSON_OUT_H
#define BASE_JSON_OUT_H

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define JSON_OUT_DEPTH 64

struct json_out {
    struct buf *out;
    unsigned depth;
    bool after_value[JSON_OUT_DEPTH + 1]; /* a comma is due before the next item of this level */
};

void json_out_init(struct json_out *j, struct buf *out);
void json_out_obj(struct json_out *j);     /* { */
void json_out_obj_end(struct json_out *j); /* } */
void json_out_arr(struct json_out *j);
void json_out_arr_end(struct json_out *j);
void json_out_key(struct json_out *j, const char *key);
void json_out_keyn(struct json_out *j, const char *key, size_t n); /* may hold NUL bytes */
void json_out_str(struct json_out *j, const char *s);              /* NUL-terminated; NULL writes null */
void json_out_strn(struct json_out *j, const char *s, size_t n);
void json_out_u64(struct json_out *j, uint64_t v);
void json_out_i64(struct json_out *j, int64_t v);
void json_out_f64(struct json_out *j, double v); /* shortest text that reads back to the same double */
void json_out_f32(struct json_out *j, float v);  /* likewise to the same float */
void json_out_bool(struct json_out *j, bool v);
void json_out_null(struct json_out *j);
void json_out_raw(struct json_out *j, const char *text, size_t n); /* a finished JSON value */

/* A member of an object: its key and its value. */
void json_out_put_str(struct json_out *j, const char *key, const char *s);
void json_out_put_u64(struct json_out *j, const char *key, uint64_t v);
void json_out_put_f64(struct json_out *j, const char *key, double v);
void json_out_put_bool(struct json_out *j, const char *key, bool v);

/* Appends s with JSON string escapes and no quotes. */
void json_out_escape(struct buf *out, const char *s, size_t n);

#endif
