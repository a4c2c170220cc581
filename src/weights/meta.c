#include "base/error.h"
#include "weights/weights_impl.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

const char *meta_type_name(enum meta_type type) {
    static const char *const names[] = {
        [META_U8] = "u8",         [META_I8] = "i8",       [META_U16] = "u16", [META_I16] = "i16",
        [META_U32] = "u32",       [META_I32] = "i32",     [META_F32] = "f32", [META_BOOL] = "boolean",
        [META_STRING] = "string", [META_ARRAY] = "array", [META_U64] = "u64", [META_I64] = "i64",
        [META_F64] = "f64"};
    return (unsigned)type < sizeof names / sizeof *names ? names[type] : NULL;
}

/* ---- scalars ---- */

static uint64_t load(const uint8_t *p, size_t n) {
    uint64_t v = 0;
    for (size_t i = 0; i < n; i++) v |= (uint64_t)p[i] << (8 * i);
    return v;
}

/* Element i as an integer; unsigned 64-bit values keep their bits. False when the type is no integer. */
static bool load_int(const void *raw, enum meta_type type, size_t i, int64_t *out) {
    const uint8_t *p = raw;
    switch (type) {
    case META_U8: *out = p[i]; return true;
    case META_I8: *out = (int8_t)p[i]; return true;
    case META_U16: *out = (uint16_t)load(p + 2 * i, 2); return true;
    case META_I16: *out = (int16_t)load(p + 2 * i, 2); return true;
    case META_U32: *out = (uint32_t)load(p + 4 * i, 4); return true;
    case META_I32: *out = (int32_t)load(p + 4 * i, 4); return true;
    case META_U64:
    case META_I64: *out = (int64_t)load(p + 8 * i, 8); return true;
    default: return false;
    }
}

static bool load_float(const void *raw, enum meta_type type, size_t i, double *out) {
    if (type == META_F32) {
        uint32_t bits = (uint32_t)load((const uint8_t *)raw + 4 * i, 4);
        float v;
        memcpy(&v, &bits, sizeof v);
        *out = v;
        return true;
    }
    if (type != META_F64) return false;
    uint64_t bits = load((const uint8_t *)raw + 8 * i, 8);
    memcpy(out, &bits, sizeof *out);
    return true;
}

int64_t meta_array_int(const struct meta *m, size_t i) {
    int64_t v = 0;
    load_int(m->raw, m->elem, i, &v);
    return v;
}

double meta_array_float(const struct meta *m, size_t i) {
    double v = 0;
    load_float(m->raw, m->elem, i, &v);
    return v;
}

/* ---- getters ---- */

#define TEXT_BYTES 96

/* "the u32 7", "the string "abc"", "an array of 3 f32", for messages. */
static const char *describe(const struct meta *m, char text[TEXT_BYTES]) {
    const char *type = meta_type_name(m->type);
    int64_t i;
    double f;
    if (m->type == META_ARRAY) {
        snprintf(text, TEXT_BYTES, "an array of %zu %s", m->n, meta_type_name(m->elem));
    } else if (m->type == META_STRING) {
        snprintf(text, TEXT_BYTES, "the string \"%.*s\"", m->strings->len > 60 ? 60 : (int)m->strings->len,
                 m->strings->data);
    } else if (m->type == META_BOOL) {
        snprintf(text, TEXT_BYTES, "the boolean %s", *(const uint8_t *)m->raw ? "true" : "false");
    } else if (m->type == META_U64) {
        snprintf(text, TEXT_BYTES, "the u64 %" PRIu64, load(m->raw, 8));
    } else if (load_int(m->raw, m->type, 0, &i)) {
        snprintf(text, TEXT_BYTES, "the %s %" PRId64, type, i);
    } else if (load_float(m->raw, m->type, 0, &f)) {
        snprintf(text, TEXT_BYTES, "the %s %g", type, f);
    }
    return text;
}

static int absent(const struct weights *w, const char *key, struct error *err) {
    if (weights_folder(w))
        return error_set(err, QUIRE_ENOTFOUND, "config.json: %.64s is missing", weights_key_name(w, key));
    return error_set(err, QUIRE_ENOTFOUND, "metadata key \"%.64s\" is missing", weights_label(w, key));
}

static int refuse(const struct weights *w, const struct meta *m, const char *allowed, struct error *err) {
    char text[TEXT_BYTES];
    if (weights_label(w, m->key) != m->key &&
        describe(m, text)[0] == 't') { /* "the u64 7": the value alone */
        const char *value = strchr(text + strlen("the "), ' ') + 1;
        return error_set(err, QUIRE_EFORMAT, "%.96s = %s: %s", weights_label(w, m->key), value, allowed);
    }
    return error_set(err, QUIRE_EFORMAT, "metadata key \"%.64s\" is %s; %s", weights_label(w, m->key),
                     describe(m, text), allowed);
}

int weights_get_u64(const struct weights *w, const char *key, uint64_t min, uint64_t max, uint64_t *out,
                    struct error *err) {
    const struct meta *m = weights_meta(w, key);
    if (!m) return absent(w, key, err);
    int64_t v;
    bool is_int = load_int(m->raw, m->type, 0, &v), fits = false;
    if (is_int && (v >= 0 || m->type == META_U64)) fits = (uint64_t)v >= min && (uint64_t)v <= max;
    if (!fits) {
        char allowed[96];
        snprintf(allowed, sizeof allowed, "an integer from %" PRIu64 " to %" PRIu64 " is allowed", min, max);
        return refuse(w, m, allowed, err);
    }
    *out = (uint64_t)v;
    return QUIRE_OK;
}

int weights_get_f64(const struct weights *w, const char *key, double *out, struct error *err) {
    const struct meta *m = weights_meta(w, key);
    if (!m) return absent(w, key, err);
    double f = 0;
    int64_t i;
    bool ok = load_float(m->raw, m->type, 0, &f);
    if (!ok && load_int(m->raw, m->type, 0, &i)) {
        f = m->type == META_U64 ? (double)(uint64_t)i : (double)i;
        ok = true;
    }
    if (!ok || !isfinite(f)) return refuse(w, m, "a finite number is allowed", err);
    *out = f;
    return QUIRE_OK;
}

int weights_get_bool(const struct weights *w, const char *key, bool *out, struct error *err) {
    const struct meta *m = weights_meta(w, key);
    if (!m) return absent(w, key, err);
    if (m->type != META_BOOL) return refuse(w, m, "a boolean is allowed", err);
    *out = *(const uint8_t *)m->raw != 0;
    return QUIRE_OK;
}

int weights_get_str(const struct weights *w, const char *key, struct meta_str *out, struct error *err) {
    const struct meta *m = weights_meta(w, key);
    if (!m) return absent(w, key, err);
    if (m->type != META_STRING) return refuse(w, m, "a string is allowed", err);
    *out = *m->strings;
    return QUIRE_OK;
}

size_t meta_scalar_bytes(uint32_t type) {
    static const uint8_t bytes[] = {
        [META_U8] = 1,  [META_I8] = 1,   [META_U16] = 2, [META_I16] = 2, [META_U32] = 4, [META_I32] = 4,
        [META_F32] = 4, [META_BOOL] = 1, [META_U64] = 8, [META_I64] = 8, [META_F64] = 8};
    return type < sizeof bytes ? bytes[type] : 0;
}
