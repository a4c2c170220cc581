/* GGUF, versions 2 and 3, little-endian. Format: the GGUF specification of the ggml project.
 *
 *   "GGUF", u32 version, u64 number of tensors, u64 number of metadata entries
 *   entry:  string key, u32 type, value           string: u64 length, bytes
 *           value of an array: u32 element type, u64 count, elements
 *   tensor: string name, u32 n_dims, u64 dims[n_dims], u32 type, u64 offset in the data section
 *   padding to general.alignment (32), data section
 *
 * Every number is compared with what is left of the file before it is used; nothing is allocated for a count,
 * only for entries that were there. The header is made private before it is read. */
#include "base/error.h"
#include "base/size.h"
#include "base/utf8.h"
#include "weights/weights_impl.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define HEADER_BYTES        24
#define META_MIN_BYTES      14 /* key of one byte, type, value of one byte */
#define TENSOR_MIN_BYTES    33 /* name of one byte, one dimension */
#define KEY_MAX_BYTES       65535
#define NAME_MAX_BYTES      64
#define METADATA_MAX_BYTES  ((size_t)1 << 30)
#define FIRST_READ_BYTES    ((size_t)1 << 20)
#define ALIGNMENT_DEFAULT   32
#define ALIGNMENT_MIN       8
#define ALIGNMENT_MAX       (1 << 20)
#define QUANTIZATION_LAYOUT 2

struct reader {
    struct weights *w;
    struct error *err;
    const uint8_t *base;
    size_t n, pos;
    size_t private_bytes; /* of the file's beginning, already copied */
    uint64_t n_tensors, n_metas;
    size_t alignment, data_start;
};

/* ---- bytes ---- */

static int need(struct reader *r, uint64_t n, const char *what) {
    if (n > r->n - r->pos) {
        return error_set(r->err, QUIRE_EFORMAT,
                         "%s takes %" PRIu64
                         " bytes at offset %zu, and the file ends at %zu (is it complete?)",
                         what, n, r->pos, r->n);
    }
    size_t end = r->pos + (size_t)n;
    if (end <= r->private_bytes) return QUIRE_OK;
    if (end > METADATA_MAX_BYTES) {
        return error_set(r->err, QUIRE_ELIMIT,
                         "%s ends at offset %zu; at most %zu bytes of metadata are read", what, end,
                         METADATA_MAX_BYTES);
    }
    size_t wanted = size_max(end, size_max(FIRST_READ_BYTES, 2 * r->private_bytes));
    wanted = size_min(size_min(wanted, METADATA_MAX_BYTES), r->n);
    int rc = file_map_copy(&r->w->map, r->private_bytes, wanted - r->private_bytes, r->err);
    if (!rc) r->private_bytes = wanted;
    return rc;
}

static uint64_t load_le(const uint8_t *p, size_t n) {
    uint64_t v = 0;
    for (size_t i = 0; i < n; i++) v |= (uint64_t)p[i] << (8 * i);
    return v;
}

static int read_u32(struct reader *r, const char *what, uint32_t *out) {
    int rc = need(r, 4, what);
    if (rc) return rc;
    *out = (uint32_t)load_le(r->base + r->pos, 4);
    r->pos += 4;
    return QUIRE_OK;
}

static int read_u64(struct reader *r, const char *what, uint64_t *out) {
    int rc = need(r, 8, what);
    if (rc) return rc;
    *out = load_le(r->base + r->pos, 8);
    r->pos += 8;
    return QUIRE_OK;
}

static int read_string(struct reader *r, const char *what, struct meta_str *out) {
    uint64_t len;
    int rc = read_u64(r, what, &len);
    if (!rc) rc = need(r, len, what);
    if (rc) return rc;
    *out = (struct meta_str){(const char *)r->base + r->pos, (size_t)len};
    r->pos += (size_t)len;
    return QUIRE_OK;
}

static int out_of_memory(struct reader *r) {
    return error_set(r->err, QUIRE_ENOMEM, "out of memory");
}

/* A key or tensor name: it is looked up, printed and NUL-terminated, so it must be text. */
static int read_name(struct reader *r, const char *what, size_t max, const char **out) {
    struct meta_str s;
    int rc = read_string(r, what, &s);
    if (rc) return rc;
    if (!s.len || s.len > max) {
        return error_set(r->err, QUIRE_EFORMAT, "%s has %zu bytes; 1 to %zu are allowed", what, s.len, max);
    }
    for (size_t i = 0, step; i < s.len; i += step) {
        step = utf8_sequence(s.data + i, s.len - i);
        if (!step || (unsigned char)s.data[i] < 0x20 || s.data[i] == 0x7f) {
            return error_set(
                r->err, QUIRE_EFORMAT,
                "%s \"%.*s\" has byte 0x%02x at %zu; UTF-8 without control characters is allowed", what,
                (int)size_min(s.len, 64), s.data, (unsigned char)s.data[i], i);
        }
    }
    *out = arena_strndup(&r->w->arena, s.data, s.len);
    return *out ? QUIRE_OK : out_of_memory(r);
}

/* ---- header ---- */

static const char *what_else(const uint8_t *p) { /* 8 bytes may be read */
    static const struct {
        const char *magic;
        const char *what;
    } kinds[] = {
        {"lmgg", "an old GGML file: convert the model to GGUF"},
        {"tjgg", "an old GGJT file: convert the model to GGUF"},
        {"fmgg", "an old GGMF file: convert the model to GGUF"},
        {"PK\x03\x04", "a zip archive, perhaps of PyTorch weights: convert the model to GGUF"},
        {"version ", "a Git LFS pointer: fetch the file it stands for"},
        {"<!DOCTYP", "a web page: the download went wrong"},
        {"<html", "a web page: the download went wrong"},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (!memcmp(p, kinds[i].magic, strlen(kinds[i].magic))) return kinds[i].what;
    }
    return NULL;
}

static int read_magic(struct reader *r) {
    if (r->n < HEADER_BYTES) {
        return error_set(r->err, QUIRE_EFORMAT,
                         "not a GGUF file: it has %zu bytes, the header alone takes %d", r->n, HEADER_BYTES);
    }
    int rc = need(r, HEADER_BYTES, "the header");
    if (rc) return rc;
    const uint8_t *p = r->base;
    if (memcmp(p, "GGUF", 4)) {
        const char *what = what_else(p);
        if (!what && p[8] == '{') what = "a safetensors file: name the folder that it is in";
        if (what) return error_set(r->err, QUIRE_EFORMAT, "not a GGUF file: it looks like %s", what);
        return error_set(r->err, QUIRE_EFORMAT,
                         "not a GGUF file: it begins with %02x %02x %02x %02x, not with \"GGUF\"", p[0], p[1],
                         p[2], p[3]);
    }
    r->pos = 4;
    return QUIRE_OK;
}

static int read_header(struct reader *r) {
    uint32_t version = 0;
    int rc = read_magic(r);
    if (!rc) rc = read_u32(r, "the version", &version);
    if (rc) return rc;
    if (version && !(version & 0xffff)) {
        return error_set(r->err, QUIRE_EUNSUPPORTED, "a big-endian GGUF file: convert it to little-endian");
    }
    if (version != 2 && version != 3) {
        return error_set(r->err, QUIRE_EUNSUPPORTED, "GGUF version %" PRIu32 " is not supported; 2 and 3 are",
                         version);
    }
    rc = read_u64(r, "the number of tensors", &r->n_tensors);
    if (!rc) rc = read_u64(r, "the number of metadata entries", &r->n_metas);
    if (rc) return rc;
    size_t left = r->n - r->pos;
    if (r->n_metas > left / META_MIN_BYTES) {
        return error_set(r->err, QUIRE_EFORMAT,
                         "%" PRIu64 " metadata entries do not fit in a file of %zu bytes", r->n_metas, r->n);
    }
    left -= (size_t)r->n_metas * META_MIN_BYTES;
    if (r->n_tensors > left / TENSOR_MIN_BYTES) {
        return error_set(r->err, QUIRE_EFORMAT, "%" PRIu64 " tensors do not fit in a file of %zu bytes",
                         r->n_tensors, r->n);
    }
    return QUIRE_OK;
}

/* ---- metadata ---- */

static int check_bools(struct reader *r, const uint8_t *p, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (p[i] > 1)
            return error_set(r->err, QUIRE_EFORMAT, "boolean %zu is %u; 0 and 1 are allowed", i, p[i]);
    }
    return QUIRE_OK;
}

/* n scalars of a type, in place. */
static int read_scalars(struct reader *r, struct meta *m, uint32_t type, uint64_t n, const char *what) {
    size_t count, bytes;
    if (!size_from_u64(n, &count) || !size_mul(count, meta_scalar_bytes(type), &bytes)) {
        return error_set(r->err, QUIRE_EFORMAT,
                         "an array of %" PRIu64 " elements does not fit in a file of %zu bytes", n, r->n);
    }
    int rc = need(r, bytes, what);
    if (rc) return rc;
    m->raw = r->base + r->pos;
    r->pos += bytes;
    return type == META_BOOL ? check_bools(r, m->raw, count) : QUIRE_OK;
}

/* n strings: walked once to know that all are there, then indexed. */
static int read_strings(struct reader *r, struct meta *m, uint64_t n, const char *what) {
    if (n > (r->n - r->pos) / 8) {
        return error_set(r->err, QUIRE_EFORMAT,
                         "an array of %" PRIu64 " strings does not fit in a file of %zu bytes", n, r->n);
    }
    size_t start = r->pos, bytes;
    for (uint64_t i = 0; i < n; i++) {
        struct meta_str s;
        int rc = read_string(r, what, &s);
        if (rc) return rc;
    }
    if (!size_mul((size_t)n, sizeof(struct meta_str), &bytes)) return out_of_memory(r);
    struct meta_str *strings = arena_alloc(&r->w->arena, bytes);
    if (!strings) return out_of_memory(r);
    const uint8_t *p = r->base + start;
    for (uint64_t i = 0; i < n; i++) {
        strings[i] = (struct meta_str){(const char *)p + 8, (size_t)load_le(p, 8)};
        p += 8 + strings[i].len;
    }
    m->raw = r->base + start;
    m->strings = strings;
    return QUIRE_OK;
}

static int read_array(struct reader *r, struct meta *m) {
    uint32_t elem;
    uint64_t n;
    int rc = read_u32(r, "the element type", &elem);
    if (!rc) rc = read_u64(r, "the element count", &n);
    if (rc) return rc;
    if (elem == META_ARRAY) {
        return error_set(r->err, QUIRE_EUNSUPPORTED,
                         "it is an array of arrays; arrays of scalars and strings are supported");
    }
    if (elem != META_STRING && !meta_scalar_bytes(elem)) {
        return error_set(r->err, QUIRE_EFORMAT, "element type %" PRIu32 " is unknown; 0 to %d are allowed",
                         elem, META_F64);
    }
    m->elem = (enum meta_type)elem;
    rc = elem == META_STRING ? read_strings(r, m, n, "a string of the array")
                             : read_scalars(r, m, elem, n, "the array");
    if (!rc) m->n = (size_t)n;
    return rc;
}

static int read_value(struct reader *r, struct meta *m) {
    uint32_t type;
    int rc = read_u32(r, "the value's type", &type);
    if (rc) return rc;
    m->type = (enum meta_type)type;
    m->n = 1;
    if (type == META_ARRAY) return read_array(r, m);
    if (type == META_STRING) return read_strings(r, m, 1, "the string");
    if (meta_scalar_bytes(type)) return read_scalars(r, m, type, 1, "the value");
    return error_set(r->err, QUIRE_EFORMAT, "value type %" PRIu32 " is unknown; 0 to %d are allowed", type,
                     META_F64);
}

static int read_metas(struct reader *r) {
    for (uint64_t i = 0; i < r->n_metas; i++) {
        struct meta *m = weights_add_meta(r->w);
        if (!m) return out_of_memory(r);
        int rc = read_name(r, "the key", KEY_MAX_BYTES, &m->key);
        if (rc) {
            error_prefix(r->err, "metadata entry %" PRIu64, i);
            return rc;
        }
        rc = read_value(r, m);
        if (rc) {
            error_prefix(r->err, "metadata key \"%.64s\"", m->key);
            return rc;
        }
    }
    return weights_index_metas(r->w, r->err);
}

/* An optional integer key. */
static int optional_u64(struct reader *r, const char *key, uint64_t min, uint64_t max, uint64_t *value) {
    if (!weights_meta(r->w, key)) return QUIRE_OK;
    return weights_get_u64(r->w, key, min, max, value, r->err);
}

/* Keys that decide how the rest is to be read. */
static int check_metas(struct reader *r) {
    uint64_t alignment = ALIGNMENT_DEFAULT;
    int rc = optional_u64(r, "general.alignment", ALIGNMENT_MIN, ALIGNMENT_MAX, &alignment);
    if (rc) return rc;
    if (!size_is_pow2((size_t)alignment)) {
        return error_set(r->err, QUIRE_EFORMAT,
                         "metadata key \"general.alignment\" is %" PRIu64 "; powers of two are allowed",
                         alignment);
    }
    r->alignment = (size_t)alignment;
    return QUIRE_OK;
}

/* ---- tensors ---- */

static int read_dims(struct reader *r, struct tensor *t) {
    uint32_t n_dims;
    size_t n_elements = 1;
    int rc = read_u32(r, "the number of dimensions", &n_dims);
    if (rc) return rc;
    if (n_dims < 1 || n_dims > TENSOR_MAX_DIMS) {
        return error_set(r->err, QUIRE_EFORMAT, "has %" PRIu32 " dimensions; 1 to %d are allowed", n_dims,
                         TENSOR_MAX_DIMS);
    }
    t->n_dims = n_dims;
    for (unsigned i = 0; i < TENSOR_MAX_DIMS; i++) {
        uint64_t v = 1;
        if (i < n_dims && (rc = read_u64(r, "a dimension", &v))) return rc;
        if (v < 1 || v > INT64_MAX || !size_from_u64(v, &t->dims[i]) ||
            !size_mul(n_elements, t->dims[i], &n_elements)) {
            return error_set(r->err, QUIRE_EFORMAT,
                             "dimension %u is %" PRId64
                             "; it is positive, and the product of all fits 64 bits",
                             i, (int64_t)v);
        }
    }
    return QUIRE_OK;
}

static int read_type(struct reader *r, struct tensor *t) {
    uint32_t type;
    int rc = read_u32(r, "the type", &type);
    if (rc) return rc;
    const struct tensor_type_info *info = type < TENSOR_GGUF_END ? tensor_type_info(type) : NULL;
    if (!info) return error_set(r->err, QUIRE_EFORMAT, "type %" PRIu32 " is unknown", type);
    if (!info->block_elems || (!info->loadable && !r->w->any_type)) {
        return error_set(r->err, QUIRE_EUNSUPPORTED, "type %s is not supported: %s", info->name,
                         info->instead);
    }
    if (t->dims[0] % info->block_elems) {
        return error_set(r->err, QUIRE_EFORMAT, "a row of %zu elements is not whole blocks of %zu (type %s)",
                         t->dims[0], info->block_elems, info->name);
    }
    t->type = (enum tensor_type)type;
    if (!size_mul(t->dims[0] / info->block_elems, info->block_bytes, &t->row_bytes) ||
        !size_mul(t->row_bytes, t->dims[1], &t->bytes) || !size_mul(t->bytes, t->dims[2], &t->bytes) ||
        !size_mul(t->bytes, t->dims[3], &t->bytes) || t->bytes > r->n) {
        return error_set(r->err, QUIRE_EFORMAT,
                         "%zu x %zu x %zu x %zu elements of type %s do not fit in a file of %zu bytes",
                         t->dims[0], t->dims[1], t->dims[2], t->dims[3], info->name, r->n);
    }
    return QUIRE_OK;
}

static int read_tensor(struct reader *r, struct tensor *t, uint64_t *offset) {
    int rc = read_dims(r, t);
    if (!rc) rc = read_type(r, t);
    if (!rc) rc = read_u64(r, "the offset", offset);
    if (rc) return rc;
    if (*offset % r->alignment) {
        return error_set(r->err, QUIRE_EFORMAT, "offset %" PRIu64 " is not a multiple of the alignment %zu",
                         *offset, r->alignment);
    }
    if (*offset > r->n - t->bytes) {
        return error_set(r->err, QUIRE_EFORMAT,
                         "its %zu bytes at offset %" PRIu64
                         " of the data end past the file's %zu bytes (is it complete?)",
                         t->bytes, *offset, r->n);
    }
    /* where the data section begins is known once all descriptions are read; see place_tensors */
    t->data = r->base + *offset;
    return QUIRE_OK;
}

static int read_tensors(struct reader *r) {
    for (uint64_t i = 0; i < r->n_tensors; i++) {
        struct tensor *t = weights_add_tensor(r->w);
        uint64_t offset;
        if (!t) return out_of_memory(r);
        int rc = read_name(r, "the name", NAME_MAX_BYTES, &t->name);
        if (rc) {
            error_prefix(r->err, "tensor %" PRIu64, i);
            return rc;
        }
        rc = read_tensor(r, t, &offset);
        if (rc) {
            error_prefix(r->err, "tensor \"%s\"", t->name);
            return rc;
        }
    }
    return weights_index_tensors(r->w, r->err);
}

/* Offsets become addresses. */
static int place_tensors(struct reader *r) {
    struct weights *w = r->w;
    w->descriptions_end = r->pos;
    w->alignment = r->alignment;
    if (!w->n_tensors) return QUIRE_OK;
    if (!size_align_up(r->pos, r->alignment, &r->data_start) || r->data_start > r->n) {
        return error_set(r->err, QUIRE_EFORMAT,
                         "the file ends at %zu, before its data section (is it complete?)", r->n);
    }
    for (size_t i = 0; i < w->n_tensors; i++) {
        struct tensor *t = &w->tensors[i];
        size_t offset =
            (size_t)((const uint8_t *)t->data - r->base); /* + bytes <= n, as read_tensor checked */
        if (offset + t->bytes > r->n - r->data_start) {
            return error_set(r->err, QUIRE_EFORMAT,
                             "tensor \"%s\": its %zu bytes end at %zu of the data section, which has %zu (is "
                             "the file complete?)",
                             t->name, t->bytes, offset + t->bytes, r->n - r->data_start);
        }
        t->data = r->base + r->data_start + offset;
        w->tensor_bytes += t->bytes; /* wraps only where tensors overlap, which is refused */
    }
    return QUIRE_OK;
}

static int by_address(const void *a, const void *b) {
    const struct tensor *x = *(const struct tensor *const *)a, *y = *(const struct tensor *const *)b;
    return x->data < y->data ? -1 : x->data > y->data;
}

static int check_overlaps(struct reader *r) {
    struct weights *w = r->w;
    int rc = QUIRE_OK;
    const struct tensor **sorted = calloc(w->n_tensors + 1, sizeof *sorted);
    if (!sorted) return out_of_memory(r);
    for (size_t i = 0; i < w->n_tensors; i++) sorted[i] = &w->tensors[i];
    if (w->n_tensors) qsort(sorted, w->n_tensors, sizeof *sorted, by_address);
    for (size_t i = 1; i < w->n_tensors && !rc; i++) {
        const struct tensor *a = sorted[i - 1], *b = sorted[i];
        if ((const uint8_t *)a->data + a->bytes > (const uint8_t *)b->data) {
            rc = error_set(r->err, QUIRE_EFORMAT, "tensors \"%s\" and \"%s\" overlap in the file", a->name,
                           b->name);
        }
    }
    free(sorted);
    return rc;
}

/* Block layouts are those of one quantization version. */
static int check_layout(struct reader *r) {
    bool quantized = false;
    uint64_t version = QUANTIZATION_LAYOUT;
    for (size_t i = 0; i < r->w->n_tensors; i++)
        quantized |= tensor_type_info(r->w->tensors[i].type)->block_elems > 1;
    int rc = optional_u64(r, "general.quantization_version", 0, UINT64_MAX, &version);
    if (rc || !quantized || version == QUANTIZATION_LAYOUT) return rc;
    return error_set(r->err, QUIRE_EUNSUPPORTED,
                     "metadata key \"general.quantization_version\" is %" PRIu64
                     "; the block layouts known are of version %d",
                     version, QUANTIZATION_LAYOUT);
}

int gguf_read(struct weights *w, struct error *err) {
    struct reader r = {.w = w, .err = err, .base = w->map.base, .n = w->map.n};
    int rc = read_header(&r);
    if (!rc) rc = read_metas(&r);
    if (!rc) rc = check_metas(&r);
    if (!rc) rc = read_tensors(&r);
    if (!rc) rc = place_tensors(&r);
    if (!rc) rc = check_overlaps(&r);
    if (!rc) rc = check_layout(&r);
    return rc;
}
