/* JSON of a folder: parsing, typed getters that name the key, and metadata made from it. */
#include "base/error.h"
#include "base/size.h"
#include "base/utf8.h"
#include "weights/hf_impl.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Integers of more digits than 64 bits hold become reals, which is what they stand for: tokenizers without a
 * limit have a model_max_length of 10^30. The last two digits make room for an exponent. */
static void shorten_integers(char *text, size_t n) {
    bool in_string = false;
    for (size_t i = 0, digits = 0; i <= n; i++) {
        char c = i < n ? text[i] : 0;
        if (c == '"') in_string = !in_string;
        if (in_string && c == '\\') i++;
        if (!in_string && c >= '0' && c <= '9') {
            digits++;
            continue;
        }
        bool part = c == '.' || c == 'e' || c == 'E' || c == '+' || (c == '-' && digits);
        bool too_long = digits > 19 || (digits == 19 && memcmp(text + i - 19, "9223372036854775807", 19) > 0);
        if (too_long && !part) memcpy(text + i - 2, "e2", 2);
        digits = 0;
        if (part) /* of a real: its other digits are as they are */
            while (i + 1 < n && strchr("0123456789+-eE.", text[i + 1]) && text[i + 1]) i++;
    }
}

static json_t *load(const char *text, size_t n, json_error_t *e) {
    char *copy = malloc(n + 1);
    if (!copy) {
        *e = (json_error_t){.text[JSON_ERROR_TEXT_LENGTH - 1] = json_error_out_of_memory};
        return NULL;
    }
    memcpy(copy, text, n);
    shorten_integers(copy, n);
    json_t *j = json_loadb(copy, n, JSON_REJECT_DUPLICATES, e);
    free(copy);
    return j;
}

int hf_json_load(const char *text, size_t n, json_t **out, struct error *err) {
    json_error_t e;
    *out = NULL;
    if (utf8_mark(text, n))
        return error_set(err, QUIRE_EFORMAT,
                         "it begins with a byte order mark, which JSON has not; remove it");
    *out = load(text, n, &e);
    if (!*out && json_error_code(&e) == json_error_out_of_memory)
        return error_set(err, QUIRE_ENOMEM, "out of memory");
    if (!*out) return error_set(err, QUIRE_EFORMAT, "line %d, column %d: %s", e.line, e.column, e.text);
    return QUIRE_OK;
}

int hf_json_parse(const char *text, size_t n, json_t **out, struct error *err) {
    int rc = hf_json_load(text, n, out, err);
    if (rc || json_is_object(*out)) return rc;
    json_decref(*out);
    *out = NULL;
    return error_set(err, QUIRE_EFORMAT, "it must be a JSON object");
}

void hf_fail(struct hf_reader *r, int code, const char *fmt, ...) {
    char text[sizeof r->err->text];
    va_list args;
    if (r->rc) return;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    r->rc = error_set(r->err, code, "%s: %s", r->file ? r->file : "config.json", text);
}

int hf_no_memory(struct hf_reader *r) {
    if (!r->rc) r->rc = error_set(r->err, QUIRE_ENOMEM, "out of memory");
    return r->rc;
}

/* ---- getters ---- */

json_t *hf_get(const json_t *object, const char *name) {
    json_t *v = json_object_get(object, name);
    return json_is_null(v) ? NULL : v;
}

const char *hf_spelling(const struct hf_reader *r, const char *name) {
    const struct hf_alias *a = r->family && !r->file ? r->family->aliases : NULL;
    for (; a && a->theirs; a++)
        if (!strcmp(a->name, name) && json_object_get(r->aliased, a->theirs)) return a->theirs;
    return name;
}

void hf_fail_value(struct hf_reader *r, int code, const char *name, const json_t *v, const char *says) {
    char *text = json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT);
    hf_fail(r, code, "%s = %.60s: %s", hf_spelling(r, name), text ? text : v ? "?" : "(nothing)", says);
    free(text);
}

uint64_t hf_size(struct hf_reader *r, const json_t *object, const char *name, uint64_t min, uint64_t max,
                 uint64_t preset) {
    const json_t *v = hf_get(object, name);
    char allowed[80];
    if (!v || r->rc) return preset;
    double d = json_is_real(v) ? json_real_value(v) : -1;
    if (json_is_integer(v) && json_integer_value(v) >= 0) {
        uint64_t u = (uint64_t)json_integer_value(v);
        if (u >= min && u <= max) return u;
    } else if (d >= 0 && d < 0x1p53 && d == floor(d) && d >= (double)min && d <= (double)max) {
        return (uint64_t)d;
    }
    snprintf(allowed, sizeof allowed, "must be an integer from %" PRIu64 " to %" PRIu64, min, max);
    hf_fail_value(r, QUIRE_EFORMAT, name, v, allowed);
    return preset;
}

double hf_real(struct hf_reader *r, const json_t *object, const char *name, double preset) {
    const json_t *v = hf_get(object, name);
    if (!v || r->rc) return preset;
    if (json_is_number(v) && isfinite(json_number_value(v))) return json_number_value(v);
    hf_fail_value(r, QUIRE_EFORMAT, name, v, "must be a finite number");
    return preset;
}

bool hf_flag(struct hf_reader *r, const json_t *object, const char *name, bool preset) {
    const json_t *v = hf_get(object, name);
    if (!v || r->rc) return preset;
    if (json_is_boolean(v)) return json_is_true(v);
    hf_fail_value(r, QUIRE_EFORMAT, name, v, "must be true or false");
    return preset;
}

/* ---- metadata ---- */

static bool add_label(struct hf_reader *r, const char *key, const char *name) {
    struct weights *w = r->w;
    char text[128];
    int n = snprintf(text, sizeof text, "%s: %s", r->file ? r->file : "config.json", hf_spelling(r, name));
    const char *label = arena_strndup(&w->arena, text, size_min((size_t)n, sizeof text - 1));
    if (!label) return false;
    if (w->n_labels % 32 == 0) {
        struct weights_label *more = realloc(w->labels, (w->n_labels + 32) * sizeof *more);
        if (!more) return false;
        w->labels = more;
    }
    w->labels[w->n_labels++] = (struct weights_label){key, label};
    return true;
}

/* "FAMILY.key" or, with a dot in front, the key behind it; in the arena. */
static char *full_key(struct hf_reader *r, const char *key) {
    char full[128];
    int n = key[0] == '.' ? snprintf(full, sizeof full, "%s", key + 1)
                          : snprintf(full, sizeof full, "%s.%s", r->family->family, key);
    return arena_strndup(&r->w->arena, full, size_min((size_t)n, sizeof full - 1));
}

/* n elements of a scalar type, or the value of a key that is there already: then it must be the same. */
static void put(struct hf_reader *r, const char *key, const char *label, enum meta_type type, const void *raw,
                size_t bytes) {
    char *full = r->rc ? NULL : full_key(r, key);
    if (r->rc) return;
    for (size_t i = 0; full && i < r->w->n_metas; i++) {
        if (strcmp(r->w->metas[i].key, full)) continue;
        if (memcmp(r->w->metas[i].raw, raw, bytes))
            hf_fail(r, QUIRE_EFORMAT, "%s contradicts another key that stands for the same", label);
        return;
    }
    void *copy = arena_alloc(&r->w->arena, bytes);
    struct meta *m = full && copy ? weights_add_meta(r->w) : NULL;
    if (!m || !add_label(r, full, label)) {
        hf_no_memory(r);
        return;
    }
    memcpy(copy, raw, bytes);
    *m = (struct meta){.key = full, .type = type, .n = 1, .raw = copy};
}

void hf_put_u64(struct hf_reader *r, const char *key, const char *label, uint64_t v) {
    put(r, key, label, META_U64, &v, sizeof v);
}

void hf_put_f64(struct hf_reader *r, const char *key, const char *label, double v) {
    put(r, key, label, META_F64, &v, sizeof v);
}

void hf_put_bool(struct hf_reader *r, const char *key, const char *label, bool v) {
    uint8_t byte = v;
    put(r, key, label, META_BOOL, &byte, 1);
}

void hf_put_bools(struct hf_reader *r, const char *key, const char *label, const bool *v, size_t n) {
    uint8_t bytes[HF_MAX_LAYERS];
    for (size_t i = 0; i < n; i++) bytes[i] = v[i];
    put(r, key, label, META_ARRAY, bytes, n);
    if (r->rc) return;
    struct meta *m = &r->w->metas[r->w->n_metas - 1];
    m->elem = META_BOOL;
    m->n = n;
}

void hf_put_str(struct hf_reader *r, const char *key, const char *label, const char *v) {
    put(r, key, label, META_STRING, v, strlen(v) + 1);
    if (r->rc) return;
    struct meta *m = &r->w->metas[r->w->n_metas - 1];
    struct meta_str *s = arena_alloc(&r->w->arena, sizeof *s);
    if (!s) {
        hf_no_memory(r);
        return;
    }
    *s = (struct meta_str){m->raw, strlen(v)};
    m->strings = s;
}

void hf_put_vector(struct hf_reader *r, const char *name, const char *label, const float *v, size_t n) {
    if (r->rc) return;
    void *copy = arena_alloc(&r->w->arena, n * sizeof *v);
    struct tensor *t = copy ? weights_add_tensor(r->w) : NULL;
    if (!t) {
        hf_no_memory(r);
        return;
    }
    memcpy(copy, v, n * sizeof *v);
    *t = (struct tensor){.name = name,
                         .label = label,
                         .type = TENSOR_F32,
                         .n_dims = 1,
                         .dims = {n, 1, 1, 1},
                         .data = copy,
                         .row_bytes = n * sizeof *v,
                         .bytes = n * sizeof *v,
                         .file = TENSOR_IN_MEMORY};
    r->w->tensor_bytes += t->bytes;
}
