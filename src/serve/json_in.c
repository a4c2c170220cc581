#include "serve/json_in.h"

#include "base/error.h"
#include "base/utf8.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

struct shape {
    size_t depth,
        values; /* deepest nesting of brackets outside strings; values, never fewer than there are */
};

/* Runs before the parser, so it must not trust the text to be JSON. Stops where a limit is passed. */
static struct shape scan(const char *text, size_t len) {
    struct shape s = {0, 1};
    size_t depth = 0;
    bool in_string = false;
    for (size_t i = 0; i < len && s.depth <= JSON_IN_MAX_DEPTH && s.values <= JSON_IN_MAX_VALUES; i++) {
        char c = text[i];
        if (in_string) {
            if (c == '\\')
                i++;
            else if (c == '"')
                in_string = false;
        } else if (c == '"') {
            in_string = true;
        } else if (c == '{' || c == '[') {
            s.values++;
            if (++depth > s.depth) s.depth = depth;
        } else if (c == ',') {
            s.values++;
        } else if ((c == '}' || c == ']') && depth) {
            depth--;
        }
    }
    return s;
}

int json_in_object(const char *text, size_t len, json_t **out, struct error *err) {
    if (!len) return error_set(err, QUIRE_EFORMAT, "the request body is empty; expected a JSON object");
    if (utf8_mark(text, len))
        return error_set(err, QUIRE_EFORMAT,
                         "the request body starts with a byte order mark; send plain UTF-8 without one");
    struct shape shape = scan(text, len);
    if (shape.depth > JSON_IN_MAX_DEPTH)
        return error_set(err, QUIRE_ELIMIT,
                         "the request body is nested too deep; at most %d levels are allowed",
                         JSON_IN_MAX_DEPTH);
    if (shape.values > JSON_IN_MAX_VALUES)
        return error_set(err, QUIRE_ELIMIT, "the request body has too many values; at most %d are allowed",
                         JSON_IN_MAX_VALUES);
    json_error_t e;
    json_t *root = json_loadb(text, len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_ANY, &e);
    if (!root)
        return error_set(err, QUIRE_EFORMAT, "the request body is not valid JSON: line %d, column %d: %s",
                         e.line, e.column, e.text);
    if (!json_is_object(root)) {
        error_set(err, QUIRE_EFORMAT, "the request body must be a JSON object, not %s",
                  json_in_type_name(root));
        json_decref(root);
        return QUIRE_EFORMAT;
    }
    *out = root;
    return 0;
}

const char *json_in_type_name(const json_t *value) {
    switch (json_typeof(value)) {
    case JSON_OBJECT: return "an object";
    case JSON_ARRAY: return "an array";
    case JSON_STRING: return "a string";
    case JSON_INTEGER: return "an integer";
    case JSON_REAL: return "a number";
    case JSON_TRUE:
    case JSON_FALSE: return "a boolean";
    default: return "null";
    }
}

json_t *json_in_get(const json_t *obj, const char *field) {
    json_t *v = json_object_get(obj, field);
    return json_is_null(v) ? NULL : v;
}

bool json_in_as_int(const json_t *value, int64_t *out) {
    if (json_is_integer(value)) {
        *out = json_integer_value(value);
        return true;
    }
    if (!json_is_real(value)) return false;
    double d = json_real_value(value);
    if (d != floor(d) || fabs(d) > 9007199254740992.0) return false; /* 2^53: exact in a double */
    *out = (int64_t)d;
    return true;
}

int json_in_int(const json_t *obj, const char *field, int64_t min, int64_t max, int64_t *out,
                struct error *err) {
    const json_t *v = json_in_get(obj, field);
    if (!v) return 0;
    int64_t n;
    if (!json_in_as_int(v, &n))
        return error_param(err, QUIRE_EINVAL, field, "%s must be an integer, not %s", field,
                           json_in_type_name(v));
    if (n < min || n > max)
        return error_param(err, QUIRE_EINVAL, field, "%s is %" PRId64 "; allowed is %" PRId64 " to %" PRId64,
                           field, n, min, max);
    *out = n;
    return 0;
}

int json_in_float(const json_t *obj, const char *field, double min, double max, bool open_min, float *out,
                  struct error *err) {
    const json_t *v = json_in_get(obj, field);
    if (!v) return 0;
    if (!json_is_number(v))
        return error_param(err, QUIRE_EINVAL, field, "%s must be a number, not %s", field,
                           json_in_type_name(v));
    double d = json_number_value(v);
    if (!isfinite(d) || d < min || d > max || (open_min && d <= min))
        return error_param(err, QUIRE_EINVAL, field, "%s is %g; allowed is %s %g to %g", field, d,
                           open_min ? "more than" : "from", min, max);
    *out = (float)d;
    return 0;
}

int json_in_bool(const json_t *obj, const char *field, bool *out, struct error *err) {
    const json_t *v = json_in_get(obj, field);
    if (!v) return 0;
    if (!json_is_boolean(v))
        return error_param(err, QUIRE_EINVAL, field, "%s must be true or false, not %s", field,
                           json_in_type_name(v));
    *out = json_is_true(v);
    return 0;
}

int json_in_string(const json_t *obj, const char *field, size_t min_bytes, size_t max_bytes,
                   const json_t **out, struct error *err) {
    const json_t *v = json_in_get(obj, field);
    if (!v) return 0;
    if (!json_is_string(v))
        return error_param(err, QUIRE_EINVAL, field, "%s must be a string, not %s", field,
                           json_in_type_name(v));
    size_t n = json_string_length(v);
    if (n < min_bytes || n > max_bytes)
        return error_param(err, QUIRE_EINVAL, field, "%s has %zu bytes; allowed is %zu to %zu", field, n,
                           min_bytes, max_bytes);
    *out = v;
    return 0;
}
