/* JSON from outside: one parse with fixed limits, and typed getters that name the field, the value and what
 * is allowed.
 *
 * Numbers are finite and ranged, integers stay integers (2.0 counts as 2), null means "not given". Nothing
 * here recurses deeper than JSON_IN_MAX_DEPTH: jansson's own limit is fixed at 2,048, so depth is scanned
 * before parsing. */
#ifndef SERVE_JSON_IN_H
#define SERVE_JSON_IN_H

#include <quire/error.h>

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define JSON_IN_MAX_DEPTH  64
#define JSON_IN_MAX_VALUES 500000 /* a parsed value takes some 40 bytes, even where its text has two */

/* Parses a whole body into an object. QUIRE_EFORMAT with line and column, QUIRE_ELIMIT when nested too deep
 * or with too many values. Duplicate keys, NaN, trailing text and invalid UTF-8 are refused. The caller owns
 * *out. */
int json_in_object(const char *text, size_t len, json_t **out, struct error *err);

/* Each leaves *out alone when the field is absent or null. field: static name, for messages and error.param.
 */
int json_in_int(const json_t *obj, const char *field, int64_t min, int64_t max, int64_t *out,
                struct error *err);
int json_in_float(const json_t *obj, const char *field, double min, double max, bool open_min, float *out,
                  struct error *err);
int json_in_bool(const json_t *obj, const char *field, bool *out, struct error *err);
/* *out points into obj. May hold NUL bytes; see json_string_length. */
int json_in_string(const json_t *obj, const char *field, size_t min_bytes, size_t max_bytes,
                   const json_t **out, struct error *err);
/* The field if it is there and not null. */
json_t *json_in_get(const json_t *obj, const char *field);

/* "a string", "an integer", ... for messages. */
const char *json_in_type_name(const json_t *value);

/* An integer, or a float that is one; false if it is neither. */
bool json_in_as_int(const json_t *value, int64_t *out);

#endif
