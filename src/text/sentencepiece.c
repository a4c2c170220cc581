#include "text/sentencepiece.h"

#include "base/error.h"
#include "base/size.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* --- protocol buffers (the encoding's specification) --- */

enum { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };

struct reader {
    const uint8_t *p;
    size_t n, at;
    bool bad;
};

struct field {
    uint32_t number, wire;
    uint64_t value; /* varint and fixed */
    struct text_span bytes;
};

static uint64_t take_varint(struct reader *r) {
    uint64_t v = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
        if (r->at >= r->n) break;
        uint8_t b = r->p[r->at++];
        v |= (uint64_t)(b & 0x7f) << shift;
        if (!(b & 0x80)) return v;
    }
    r->bad = true;
    return 0;
}

static uint64_t take_fixed(struct reader *r, size_t bytes) {
    uint64_t v = 0;
    if (r->n - r->at < bytes) {
        r->bad = true;
        return 0;
    }
    for (size_t i = 0; i < bytes; i++) v |= (uint64_t)r->p[r->at++] << 8 * i;
    return v;
}

/* The next field; false at the end or where the bytes are no message (r->bad). */
static bool take_field(struct reader *r, struct field *f) {
    if (r->bad || r->at >= r->n) return false;
    uint64_t key = take_varint(r);
    *f = (struct field){.number = (uint32_t)(key >> 3), .wire = key & 7};
    if (key >> 3 > UINT32_MAX || key >> 3 == 0) r->bad = true;
    switch (f->wire) {
    case WIRE_VARINT: f->value = take_varint(r); break;
    case WIRE_64: f->value = take_fixed(r, 8); break;
    case WIRE_32: f->value = take_fixed(r, 4); break;
    case WIRE_BYTES: {
        uint64_t len = take_varint(r);
        if (len > r->n - r->at) {
            r->bad = true;
            break;
        }
        f->bytes = (struct text_span){(const char *)r->p + r->at, len};
        r->at += len;
        break;
    }
    default: r->bad = true;
    }
    return !r->bad;
}

static struct reader reader_of(struct text_span s) {
    return (struct reader){.p = (const uint8_t *)s.data, .n = s.len};
}

/* --- the model --- */

enum { MODEL_UNIGRAM = 1, MODEL_BPE = 2 };

struct model {
    struct text_span *pieces;
    float *scores;
    int32_t *types;
    size_t n, cap;
    int64_t type, unk;
    struct text_span bos, eos; /* pieces */
    bool byte_fallback, space_suffix, dummy_prefix, squeeze, escape;
    struct text_span charsmap;
};

static int grow(struct model *m) {
    size_t cap = m->cap ? m->cap : 1024, bytes;
    if (!size_mul(cap, 2, &cap) || !size_mul(cap, sizeof *m->pieces, &bytes) || cap > INT_MAX)
        return QUIRE_ENOMEM;
    struct text_span *pieces = realloc(m->pieces, bytes);
    if (!pieces) return QUIRE_ENOMEM;
    m->pieces = pieces;
    float *scores = realloc(m->scores, cap * sizeof *scores);
    if (!scores) return QUIRE_ENOMEM;
    m->scores = scores;
    int32_t *types = realloc(m->types, cap * sizeof *types);
    if (!types) return QUIRE_ENOMEM;
    m->types = types;
    m->cap = cap;
    return 0;
}

static int bad(struct error *err, const char *what) {
    return error_set(err, QUIRE_EFORMAT, "tokenizer.model: %s is no well-formed protocol buffer", what);
}

static int read_piece(struct model *m, struct text_span message, struct error *err) {
    struct reader r = reader_of(message);
    struct field f;
    if (m->n == m->cap && grow(m))
        return error_set(err, QUIRE_ENOMEM, "no memory for the pieces of tokenizer.model");
    m->pieces[m->n] = (struct text_span){"", 0};
    m->scores[m->n] = 0;
    m->types[m->n] = TOKEN_NORMAL;
    while (take_field(&r, &f)) {
        uint32_t bits = (uint32_t)f.value;
        if (f.number == 1 && f.wire == WIRE_BYTES) m->pieces[m->n] = f.bytes;
        if (f.number == 2 && f.wire == WIRE_32) memcpy(&m->scores[m->n], &bits, sizeof bits);
        if (f.number == 3 && f.wire == WIRE_VARINT)
            m->types[m->n] = f.value > TOKEN_BYTE ? 0 : (int32_t)f.value;
    }
    if (r.bad) return bad(err, "a piece");
    if (m->types[m->n] < TOKEN_NORMAL)
        return error_set(err, QUIRE_EFORMAT,
                         "tokenizer.model: pieces[%zu].type is out of range; 1 to 6 are allowed", m->n);
    m->n++;
    return 0;
}

static int read_trainer(struct model *m, struct text_span message, struct error *err) {
    struct reader r = reader_of(message);
    struct field f;
    while (take_field(&r, &f)) {
        if (f.wire == WIRE_BYTES && f.number == 46 && f.bytes.len) m->bos = f.bytes;
        if (f.wire == WIRE_BYTES && f.number == 47 && f.bytes.len) m->eos = f.bytes;
        if (f.wire != WIRE_VARINT) continue;
        int64_t id = f.value > INT32_MAX ? -1 : (int64_t)f.value;
        switch (f.number) {
        case 3: m->type = id; break;
        case 24: m->space_suffix = f.value; break;
        case 35: m->byte_fallback = f.value; break;
        case 40: m->unk = id; break;
        default: break;
        }
    }
    return r.bad ? bad(err, "trainer_spec") : 0;
}

static int read_normalizer(struct model *m, struct text_span message, struct error *err) {
    struct reader r = reader_of(message);
    struct field f;
    while (take_field(&r, &f)) {
        if (f.number == 2 && f.wire == WIRE_BYTES) m->charsmap = f.bytes;
        if (f.wire != WIRE_VARINT) continue;
        if (f.number == 3) m->dummy_prefix = f.value;
        if (f.number == 4) m->squeeze = f.value;
        if (f.number == 5) m->escape = f.value;
    }
    return r.bad ? bad(err, "normalizer_spec") : 0;
}

/* Rules for decoding, which no model here has. */
static int read_denormalizer(struct text_span message, struct error *err) {
    struct reader r = reader_of(message);
    struct field f;
    bool rules = false;
    while (take_field(&r, &f)) rules |= f.number == 2 && f.wire == WIRE_BYTES && f.bytes.len;
    if (r.bad) return bad(err, "denormalizer_spec");
    return rules ? error_set(err, QUIRE_EUNSUPPORTED,
                             "tokenizer.model: denormalizer_spec.precompiled_charsmap is not supported")
                 : 0;
}

static int read_model(struct model *m, const void *data, size_t n, struct error *err) {
    struct reader r = reader_of((struct text_span){data, n});
    struct field f;
    int rc = 0;
    *m = (struct model){.type = MODEL_UNIGRAM,
                        .bos = {"<s>", 3},
                        .eos = {"</s>", 4},
                        .dummy_prefix = true,
                        .squeeze = true,
                        .escape = true};
    while (!rc && take_field(&r, &f)) {
        if (f.wire != WIRE_BYTES) continue;
        if (f.number == 1) rc = read_piece(m, f.bytes, err);
        if (f.number == 2) rc = read_trainer(m, f.bytes, err);
        if (f.number == 3) rc = read_normalizer(m, f.bytes, err);
        if (f.number == 5) rc = read_denormalizer(f.bytes, err);
    }
    if (!rc && r.bad) rc = bad(err, "the file");
    if (!rc && m->n == 0) rc = error_set(err, QUIRE_EFORMAT, "tokenizer.model has no pieces");
    if (!rc && m->type != MODEL_UNIGRAM && m->type != MODEL_BPE)
        rc = error_set(
            err, QUIRE_EUNSUPPORTED,
            "tokenizer.model: trainer_spec.model_type is %lld; 1 (unigram) and 2 (BPE) are supported",
            (long long)m->type);
    if (!rc && !m->escape)
        rc =
            error_set(err, QUIRE_EUNSUPPORTED,
                      "tokenizer.model: normalizer_spec.escape_whitespaces is false, which is not supported");
    return rc;
}

/* An id that names no token is as good as none. */
static int64_t known_id(const struct model *m, int64_t id) {
    return id >= 0 && (uint64_t)id < m->n ? id : -1;
}

/* The reference goes by the piece; the ids that trainer_spec has, too, may be those of another order. */
static int64_t control_id(const struct model *m, struct text_span piece) {
    for (size_t i = 0; i < m->n; i++)
        if (m->types[i] == TOKEN_CONTROL && m->pieces[i].len == piece.len &&
            !memcmp(m->pieces[i].data, piece.data, piece.len))
            return (int64_t)i;
    return -1;
}

int tokenizer_from_sentencepiece(const void *data, size_t n, const struct tokenizer_spec *adds,
                                 struct tokenizer **out, struct error *err) {
    struct model m = {0};
    *out = NULL;
    int rc = read_model(&m, data, n, err);
    int64_t unk = known_id(&m, m.unk);
    for (size_t i = 0; i < m.n; i++)
        if (m.types[i] == TOKEN_UNKNOWN) unk = (int64_t)i; /* what the reference goes by */
    if (!rc) {
        struct tokenizer_spec spec = {.model = m.type == MODEL_BPE ? (struct text_span){"llama", 5}
                                                                   : (struct text_span){"t5", 2},
                                      .pieces = m.pieces,
                                      .types = m.types,
                                      .n_vocab = m.n,
                                      .bos = control_id(&m, m.bos),
                                      .eos = control_id(&m, m.eos),
                                      .unk = unk,
                                      .add_bos_unset = true,
                                      .add_eos_unset = true,
                                      .scores = m.scores,
                                      .cls = -1,
                                      .sep = -1,
                                      .no_space_prefix = !m.dummy_prefix,
                                      .squeeze_spaces = m.squeeze,
                                      .space_suffix = m.space_suffix,
                                      .no_byte_fallback = !m.byte_fallback,
                                      .charsmap = m.charsmap};
        if (adds) {
            spec.add_bos = adds->add_bos;
            spec.add_bos_unset = adds->add_bos_unset;
            spec.add_eos = adds->add_eos;
            spec.add_eos_unset = adds->add_eos_unset;
        }
        rc = tokenizer_create(&spec, out, err);
        if (rc) error_prefix(err, "tokenizer.model");
    }
    free(m.pieces);
    free(m.scores);
    free(m.types);
    return rc;
}
