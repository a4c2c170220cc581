/* Files made to harm: each is refused by name, in memory and from disk, and costs no more memory than its
 * size justifies. The cases are those that overran readers of GGUF before (CVE-2024-21802, -21825, -21836,
 * -23496, -23605, -32878, -41130, CVE-2025-49847, -53630, CVE-2026-7482, -27940, GHSA-96jg-mvhq-q7q7,
 * llama.cpp 15711, 19856, 24759, 26318, 27203, ggml 709). */
#include "util/alloc_fail.h"
#include "util/gguf_build.h"
#include "util_file.h"
#include "weights/weights.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { U8 = 0, U32 = 4, F32 = 6, BOOL = 7, STRING = 8, ARRAY = 9, U64 = 10 };

struct crafted {
    const char *what;
    void (*build)(struct gguf_build *b, const struct crafted *c);
    uint64_t a, b;     /* the builder's numbers */
    int code;          /* expected */
    const char *parts; /* text that the message must hold; several are separated by '|' */
};

/* ---- builders ---- */

static void good(struct gguf_build *b) {
    static const float eight[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    uint64_t dims[2] = {4, 2};
    gguf_kv_str(b, "general.architecture", "llama");
    gguf_kv_u32(b, "general.quantization_version", 2);
    gguf_tensor(b, "good", 0, 2, dims, eight, sizeof eight);
}

static void build_good(struct gguf_build *b, const struct crafted *c) {
    good(b);
}

static void build_version(struct gguf_build *b, const struct crafted *c) {
    good(b);
    b->version = (uint32_t)c->a;
}

static void build_magic(struct gguf_build *b, const struct crafted *c) {
    good(b);
    b->magic = (uint32_t)c->a;
}

static void build_counts(struct gguf_build *b, const struct crafted *c) { /* a: tensors, b: metadata */
    good(b);
    if (c->a) b->n_tensors = c->a;
    if (c->b) b->n_kv = c->b;
}

static void build_string(struct gguf_build *b, const struct crafted *c) { /* a: claimed length */
    good(b);
    gguf_kv(b, "long.string", STRING);
    gguf_bytes_u64(&b->kv, c->a);
    gguf_bytes_zeros(&b->kv, 16);
}

static void build_key_length(struct gguf_build *b,
                             const struct crafted *c) { /* a: claimed length of the key */
    good(b);
    gguf_bytes_u64(&b->kv, c->a);
    gguf_bytes_zeros(&b->kv, 100);
    b->n_kv++;
}

static void build_long_key(struct gguf_build *b, const struct crafted *c) { /* a: length */
    char *key = calloc(1, c->a + 1);
    good(b);
    memset(key, 'k', c->a);
    gguf_kv_u32(b, key, 1);
    free(key);
}

static void build_key_byte(struct gguf_build *b, const struct crafted *c) { /* a: a byte within */
    char key[] = {'k', (char)c->a, 'y'};
    good(b);
    gguf_bytes_str(&b->kv, key, sizeof key);
    gguf_bytes_u32(&b->kv, U32);
    gguf_bytes_u32(&b->kv, 1);
    b->n_kv++;
}

static void build_value_type(struct gguf_build *b, const struct crafted *c) {
    good(b);
    gguf_kv(b, "odd.type", (uint32_t)c->a);
    gguf_bytes_zeros(&b->kv, 16);
}

static void build_array(struct gguf_build *b,
                        const struct crafted *c) { /* a: element type, b: claimed count */
    good(b);
    gguf_kv_array(b, "big.array", (uint32_t)c->a, c->b);
    gguf_bytes_zeros(&b->kv, 64);
}

static void build_array_late(struct gguf_build *b,
                             const struct crafted *c) { /* strings; the b-th has length a */
    good(b);
    gguf_kv_array(b, "late.array", STRING, c->b);
    for (uint64_t i = 0; i + 1 < c->b; i++) gguf_bytes_str(&b->kv, "token", 5);
    gguf_bytes_u64(&b->kv, c->a);
}

static void build_nested(struct gguf_build *b, const struct crafted *c) { /* a: depth, b: count at each */
    good(b);
    gguf_kv(b, "nested.array", ARRAY);
    for (uint64_t i = 0; i < c->a; i++) {
        gguf_bytes_u32(&b->kv, ARRAY);
        gguf_bytes_u64(&b->kv, c->b);
    }
    gguf_bytes_zeros(&b->kv, 64);
}

static void build_bool(struct gguf_build *b, const struct crafted *c) { /* a: the byte, b: in an array */
    uint8_t bytes[3] = {0, 1, (uint8_t)c->a};
    good(b);
    if (c->b) {
        gguf_kv_array(b, "flag", BOOL, 3);
        gguf_bytes_put(&b->kv, bytes, 3);
    } else {
        gguf_kv(b, "flag", BOOL);
        gguf_bytes_put(&b->kv, bytes + 2, 1);
    }
}

static void build_alignment(struct gguf_build *b, const struct crafted *c) { /* a: value, b: type */
    good(b);
    gguf_kv(b, "general.alignment", (uint32_t)c->b);
    if (c->b == STRING) {
        gguf_bytes_str(&b->kv, "32", 2);
    } else if (c->b == ARRAY) {
        gguf_bytes_u32(&b->kv, U32);
        gguf_bytes_u64(&b->kv, 1);
        gguf_bytes_u32(&b->kv, (uint32_t)c->a);
    } else if (c->b == U64) {
        gguf_bytes_u64(&b->kv, c->a);
    } else {
        gguf_bytes_u32(&b->kv, (uint32_t)c->a);
    }
}

static void build_u32(struct gguf_build *b,
                      const struct crafted *c) { /* key = what; a: value; b: tensor type */
    uint64_t dims = 32;
    good(b);
    b->n_kv = b->kv.n = 0;
    gguf_kv_u32(b, c->what, (uint32_t)c->a);
    gguf_tensor(b, "quantized", (uint32_t)c->b, 1, &dims, NULL, 34);
}

static void build_same_key(struct gguf_build *b, const struct crafted *c) {
    good(b);
    gguf_kv_u32(b, "same.key", 1);
    gguf_kv_str(b, "other.key", "");
    gguf_kv_u32(b, "same.key", 1);
}

static void build_same_tensor(struct gguf_build *b, const struct crafted *c) {
    uint64_t dims = 8;
    good(b);
    gguf_tensor(b, "other", 0, 1, &dims, NULL, 32);
    gguf_tensor(b, "good", 0, 1, &dims, NULL, 32);
}

/* A second tensor, described only, with 64 bytes of data behind. */
static void second(struct gguf_build *b, uint32_t n_dims, const uint64_t *dims, uint32_t type,
                   uint64_t offset) {
    good(b);
    gguf_tensor_info(b, "crafted", n_dims, dims, type, offset);
    gguf_bytes_zeros(&b->data, 64);
}

static void build_dims2(struct gguf_build *b, const struct crafted *c) {
    second(b, 2, (uint64_t[]){c->a, c->b}, 0, 32);
}
static void build_dims1(struct gguf_build *b, const struct crafted *c) {
    second(b, 1, &c->a, (uint32_t)c->b, 32);
}

static void build_dims4(struct gguf_build *b, const struct crafted *c) {
    second(b, 4, (uint64_t[]){c->a, c->b, c->a, c->b}, 0, 32);
}

static void build_n_dims(struct gguf_build *b, const struct crafted *c) { /* a: number, each dimension b */
    uint64_t dims[16];
    for (int i = 0; i < 16; i++) dims[i] = c->b;
    good(b);
    gguf_tensor_info(b, "crafted", (uint32_t)c->a, dims, 0, 32);
    if (c->a > 16) b->infos.n = 0;
    gguf_bytes_zeros(&b->data, 64);
}

static void build_n_dims_huge(struct gguf_build *b, const struct crafted *c) {
    good(b);
    gguf_bytes_str(&b->infos, "crafted", 7);
    gguf_bytes_u32(&b->infos, (uint32_t)c->a);
    gguf_bytes_zeros(&b->infos, 64);
    b->n_tensors++;
}

static void build_type(struct gguf_build *b, const struct crafted *c) { /* a: type */
    uint64_t dims = 256;
    good(b);
    gguf_tensor(b, "crafted", (uint32_t)c->a, 1, &dims, NULL, 4096);
}

static void build_offset(struct gguf_build *b, const struct crafted *c) { /* a: offset, b: dims[0] */
    second(b, 1, &c->b, 0, c->a);
}

static void build_overlap(struct gguf_build *b,
                          const struct crafted *c) { /* a: bytes of the first, second at b */
    uint64_t dims = c->a / 4;
    gguf_kv_u32(b, "general.alignment", 8);
    b->alignment = 8;
    gguf_tensor(b, "first", 0, 1, &dims, NULL, c->a);
    dims = 2;
    gguf_tensor_info(b, "behind", 1, &dims, 0, c->b);
    gguf_bytes_zeros(&b->data, 64);
}

static void build_no_data(struct gguf_build *b,
                          const struct crafted *c) { /* a: bytes of data that are there */
    good(b);
    b->data.n = c->a;
}

static void build_name(struct gguf_build *b, const struct crafted *c) { /* a: length; b: a byte, if not 0 */
    char name[256];
    uint64_t dims = 4;
    memset(name, 't', sizeof name);
    name[c->a] = 0;
    if (c->b) name[c->a / 2] = (char)c->b;
    good(b);
    gguf_tensor(b, name, 0, 1, &dims, NULL, 16);
}

#define MAX63 ((uint64_t)INT64_MAX)
#define FITS  "do not fit in a file of"

static const struct crafted CASES[] = {
    /* what, builder, numbers, code, text */
    {"a good file", build_good, 0, 0, QUIRE_OK, ""},
    {"version 2", build_version, 2, 0, QUIRE_OK, ""},
    {"version 0", build_version, 0, 0, QUIRE_EUNSUPPORTED, "version 0|2 and 3"},
    {"version 1", build_version, 1, 0, QUIRE_EUNSUPPORTED, "version 1|2 and 3"},
    {"version 4", build_version, 4, 0, QUIRE_EUNSUPPORTED, "version 4"},
    {"big-endian", build_version, 0x03000000, 0, QUIRE_EUNSUPPORTED, "big-endian|little-endian"},
    {"other magic", build_magic, 0x46554748, 0, QUIRE_EFORMAT, "not a GGUF file|48 47 55 46"},
    {"old ggml", build_magic, 0x67676d6c, 0, QUIRE_EFORMAT, "not a GGUF file|old GGML"},
    {"old ggjt", build_magic, 0x67676a74, 0, QUIRE_EFORMAT, "not a GGUF file|old GGJT"},
    {"zip", build_magic, 0x04034b50, 0, QUIRE_EFORMAT, "not a GGUF file|zip archive"},

    {"2^60 tensors", build_counts, 1ull << 60, 0, QUIRE_EFORMAT, "1152921504606846976 tensors|" FITS},
    {"2^64 - 1 tensors", build_counts, UINT64_MAX, 0, QUIRE_EFORMAT, "tensors|" FITS},
    {"one tensor too many", build_counts, 2, 0, QUIRE_EFORMAT, "tensor 1|the name"},
    {"2^60 entries", build_counts, 0, 1ull << 60, QUIRE_EFORMAT,
     "1152921504606846976 metadata entries|" FITS},
    {"2^64 - 1 entries", build_counts, 0, UINT64_MAX, QUIRE_EFORMAT, "metadata entries|" FITS},
    {"entries x tensors", build_counts, 1ull << 63, 1ull << 63, QUIRE_EFORMAT, "metadata entries|" FITS},
    {"one entry too many", build_counts, 0, 3, QUIRE_EFORMAT, "tensor 0|the name"},

    {"string of 2^63", build_string, 1ull << 63, 0, QUIRE_EFORMAT,
     "long.string|9223372036854775808 bytes|ends at"},
    {"string of 2^64 - 1", build_string, UINT64_MAX, 0, QUIRE_EFORMAT,
     "long.string|18446744073709551615 bytes"},
    {"string of 2^64 - 8", build_string, UINT64_MAX - 7, 0, QUIRE_EFORMAT,
     "long.string|18446744073709551608 bytes"},
    {"string of 2^31", build_string, 1ull << 31, 0, QUIRE_EFORMAT, "long.string|2147483648 bytes"},
    {"string to past the end", build_string, 400, 0, QUIRE_EFORMAT, "long.string|400 bytes"},
    {"key of 2^63", build_key_length, 1ull << 63, 0, QUIRE_EFORMAT,
     "metadata entry 2|the key|9223372036854775808"},
    {"key of 2^64 - 1", build_key_length, UINT64_MAX, 0, QUIRE_EFORMAT,
     "metadata entry 2|18446744073709551615"},
    {"empty key", build_key_length, 0, 0, QUIRE_EFORMAT, "metadata entry 2|the key has 0 bytes; 1 to 65535"},
    {"longest key", build_long_key, 65535, 0, QUIRE_OK, ""},
    {"longer key", build_long_key, 65536, 0, QUIRE_EFORMAT, "the key has 65536 bytes"},
    {"NUL in key", build_key_byte, 0, 0, QUIRE_EFORMAT, "the key|byte 0x00 at 1"},
    {"newline in key", build_key_byte, '\n', 0, QUIRE_EFORMAT, "the key|byte 0x0a"},
    {"half a character in key", build_key_byte, 0xc3, 0, QUIRE_EFORMAT, "the key|byte 0xc3|UTF-8"},

    {"value type 13", build_value_type, 13, 0, QUIRE_EFORMAT, "odd.type|value type 13|0 to 12"},
    {"value type 2^32 - 1", build_value_type, UINT32_MAX, 0, QUIRE_EFORMAT, "odd.type|4294967295"},
    {"element type 13", build_array, 13, 1, QUIRE_EFORMAT, "big.array|element type 13"},
    {"negative element type", build_array, UINT32_MAX, 1, QUIRE_EFORMAT, "big.array|element type 4294967295"},
    {"2^61 elements of 8", build_array, U64, 1ull << 61, QUIRE_EFORMAT,
     "big.array|2305843009213693952 elements"},
    {"2^61 elements of 4", build_array, U32, 1ull << 61, QUIRE_EFORMAT,
     "big.array|9223372036854775808 bytes"},
    {"2^61 + 1 elements of 8", build_array, U64, (1ull << 61) + 1, QUIRE_EFORMAT,
     "big.array|2305843009213693953"},
    {"2^64 - 1 bytes", build_array, U8, UINT64_MAX, QUIRE_EFORMAT, "big.array|18446744073709551615"},
    {"2^61 strings", build_array, STRING, 1ull << 61, QUIRE_EFORMAT, "big.array|2305843009213693952 strings"},
    {"2^60 + 1 strings", build_array, STRING, (1ull << 60) + 1, QUIRE_EFORMAT,
     "big.array|1152921504606846977 strings"},
    {"more strings than bytes", build_array, STRING, 200, QUIRE_EFORMAT, "big.array|200 strings"},
    {"last string too long", build_array_late, 1ull << 62, 1000, QUIRE_EFORMAT,
     "late.array|4611686018427387904 bytes"},
    {"last string longer than INT_MAX", build_array_late, 1ull << 31, 1000, QUIRE_EFORMAT,
     "late.array|2147483648 bytes"},
    {"nested array", build_nested, 1, 1, QUIRE_EUNSUPPORTED, "nested.array|array of arrays"},
    {"deeply nested array", build_nested, 100000, 1, QUIRE_EUNSUPPORTED, "nested.array|array of arrays"},
    {"nested array, 2^64 - 1", build_nested, 8, UINT64_MAX, QUIRE_EUNSUPPORTED,
     "nested.array|array of arrays"},
    {"boolean of 2", build_bool, 2, 0, QUIRE_EFORMAT, "\"flag\"|is 2; 0 and 1"},
    {"boolean of 255 in an array", build_bool, 255, 1, QUIRE_EFORMAT, "\"flag\"|boolean 2 is 255"},
    {"duplicate key", build_same_key, 0, 0, QUIRE_EFORMAT, "\"same.key\" occurs more than once"},

    {"alignment 0", build_alignment, 0, U32, QUIRE_EFORMAT, "general.alignment|the u32 0|8 to 1048576"},
    {"alignment 3", build_alignment, 3, U32, QUIRE_EFORMAT, "general.alignment|the u32 3"},
    {"alignment 24", build_alignment, 24, U32, QUIRE_EFORMAT, "general.alignment|24|powers of two"},
    {"alignment 2^31", build_alignment, 1u << 31, U32, QUIRE_EFORMAT, "general.alignment|2147483648"},
    {"alignment 2^63", build_alignment, 1ull << 63, U64, QUIRE_EFORMAT,
     "general.alignment|9223372036854775808"},
    {"alignment 2^64 - 1", build_alignment, UINT64_MAX, U64, QUIRE_EFORMAT, "general.alignment"},
    {"alignment of type string", build_alignment, 32, STRING, QUIRE_EFORMAT,
     "general.alignment|the string \"32\""},
    {"alignment of type f32", build_alignment, 0x42000000, F32, QUIRE_EFORMAT,
     "general.alignment|the f32 32"},
    {"alignment of type array", build_alignment, 32, ARRAY, QUIRE_EFORMAT,
     "general.alignment|array of 1 u32"},
    {"alignment past the end", build_alignment, 1 << 20, U32, QUIRE_EFORMAT, "before its data section"},

    {"general.quantization_version", build_u32, 1, 8, QUIRE_EUNSUPPORTED,
     "general.quantization_version|is 1|version 2"},
    {"general.quantization_version", build_u32, 2, 8, QUIRE_OK, ""},
    {"split.count", build_u32, 3, 8, QUIRE_EUNSUPPORTED, "split.count|is 3|-00001-of-00003.gguf"},
    {"split.count", build_u32, 1, 8, QUIRE_OK, ""},

    {"2^62 x 4", build_dims2, 1ull << 62, 4, QUIRE_EFORMAT, "\"crafted\"|dimension 1 is 4|fits 64 bits"},
    {"2^63 - 1 x 2", build_dims2, MAX63, 2, QUIRE_EFORMAT, "\"crafted\"|" FITS "|9223372036854775807"},
    {"2^32 x 2^32", build_dims2, 1ull << 32, 1ull << 32, QUIRE_EFORMAT,
     "\"crafted\"|dimension 1 is 4294967296"},
    {"2^16 four times", build_dims4, 1 << 16, 1 << 16, QUIRE_EFORMAT, "\"crafted\"|dimension 3 is 65536"},
    {"2^15 four times", build_dims4, 1 << 15, 1 << 15, QUIRE_EFORMAT, "\"crafted\"|" FITS},
    {"dimension 0", build_dims1, 0, 0, QUIRE_EFORMAT, "\"crafted\"|dimension 0 is 0"},
    {"second dimension 0", build_dims2, 4, 0, QUIRE_EFORMAT, "\"crafted\"|dimension 1 is 0"},
    {"dimension -1", build_dims1, UINT64_MAX, 0, QUIRE_EFORMAT, "\"crafted\"|dimension 0 is -1"},
    {"dimension -2^63", build_dims1, 1ull << 63, 0, QUIRE_EFORMAT,
     "\"crafted\"|dimension 0 is -9223372036854775808"},
    {"-1 x -1", build_dims2, UINT64_MAX, UINT64_MAX, QUIRE_EFORMAT, "\"crafted\"|dimension 0 is -1"},
    {"F32 x SIZE_MAX / 4", build_dims1, SIZE_MAX / 4, 0, QUIRE_EFORMAT, "\"crafted\"|" FITS},
    {"F32 x SIZE_MAX / 4 + 1", build_dims1, SIZE_MAX / 4 + 1, 0, QUIRE_EFORMAT, "\"crafted\"|" FITS},
    {"F32 x 2^63 - 1", build_dims1, MAX63, 0, QUIRE_EFORMAT, "\"crafted\"|" FITS},
    {"Q6_K x 2^62", build_dims1, 1ull << 62, 14, QUIRE_EFORMAT, "\"crafted\"|" FITS "|Q6_K"},
    {"half a block", build_dims1, 16, 8, QUIRE_EFORMAT, "\"crafted\"|16 elements|blocks of 32|Q8_0"},
    {"0 dimensions", build_n_dims, 0, 1, QUIRE_EFORMAT, "\"crafted\"|0 dimensions; 1 to 4"},
    {"5 dimensions", build_n_dims, 5, 1, QUIRE_EFORMAT, "\"crafted\"|5 dimensions"},
    {"9 dimensions", build_n_dims, 9, 1, QUIRE_EFORMAT, "\"crafted\"|9 dimensions"},
    {"2^32 - 1 dimensions", build_n_dims_huge, UINT32_MAX, 0, QUIRE_EFORMAT,
     "\"crafted\"|4294967295 dimensions"},

    {"type 43", build_type, 43, 0, QUIRE_EFORMAT, "\"crafted\"|type 43 is unknown"},
    {"type 62", build_type, 62, 0, QUIRE_EFORMAT, "\"crafted\"|type 62 is unknown"}, /* not GGUF's */
    {"type 200", build_type, 200, 0, QUIRE_EFORMAT, "\"crafted\"|type 200 is unknown"},
    {"type 2^32 - 1", build_type, UINT32_MAX, 0, QUIRE_EFORMAT, "\"crafted\"|type 4294967295 is unknown"},
    {"Q4_2", build_type, 4, 0, QUIRE_EUNSUPPORTED, "\"crafted\"|Q4_2|removed from GGUF|use Q4_0"},
    {"Q4_0_8_8", build_type, 33, 0, QUIRE_EUNSUPPORTED, "\"crafted\"|Q4_0_8_8|removed|use Q4_0"},
    {"IQ3_S", build_type, 21, 0, QUIRE_EUNSUPPORTED, "\"crafted\"|IQ3_S is not supported|use Q3_K"},
    {"Q1_0", build_type, 41, 0, QUIRE_EUNSUPPORTED, "\"crafted\"|Q1_0 is not supported|use Q2_K"},
    {"I32", build_type, 26, 0, QUIRE_EUNSUPPORTED, "\"crafted\"|I32 is not supported|use F32"},
    {"Q8_1", build_type, 9, 0, QUIRE_EUNSUPPORTED, "\"crafted\"|Q8_1|activations|use Q8_0"},

    {"good offset", build_offset, 64, 8, QUIRE_OK, ""},
    {"offset past the end", build_offset, 96, 8, QUIRE_EFORMAT, "\"crafted\"|32 bytes|complete"},
    {"offset far past the end", build_offset, 1ull << 40, 8, QUIRE_EFORMAT,
     "\"crafted\"|1099511627776|complete"},
    {"offset 2^64 - 32", build_offset, UINT64_MAX - 31, 8, QUIRE_EFORMAT, "\"crafted\"|18446744073709551584"},
    {"offset + bytes = 2^64", build_offset, UINT64_MAX - 63, 16, QUIRE_EFORMAT,
     "\"crafted\"|18446744073709551552"},
    {"offset 2^63", build_offset, 1ull << 63, 8, QUIRE_EFORMAT, "\"crafted\"|9223372036854775808"},
    {"offset 33", build_offset, 33, 4, QUIRE_EFORMAT, "\"crafted\"|offset 33|alignment 32"},
    {"offset 40", build_offset, 40, 4, QUIRE_EFORMAT, "\"crafted\"|offset 40|alignment 32"},
    {"same place", build_offset, 0, 4, QUIRE_EFORMAT, "\"good\"|\"crafted\"|overlap"},
    {"one inside the next", build_offset, 32, 16, QUIRE_OK, ""},
    {"into the next", build_offset, 0, 24, QUIRE_EFORMAT, "\"good\"|\"crafted\"|overlap"},
    {"just behind", build_overlap, 32, 32, QUIRE_OK, ""},
    {"overlap of four bytes", build_overlap, 36, 32, QUIRE_EFORMAT, "\"first\"|\"behind\"|overlap"},
    {"too long", build_offset, 32, 17, QUIRE_EFORMAT, "\"crafted\"|68 bytes|96|complete"},
    {"duplicate tensor", build_same_tensor, 0, 0, QUIRE_EFORMAT, "tensor \"good\" occurs more than once"},
    {"data one byte short", build_no_data, 31, 0, QUIRE_EFORMAT, "\"good\"|32 bytes|has 31|complete"},
    {"no data", build_no_data, 0, 0, QUIRE_EFORMAT, "\"good\"|has 0|complete"},
    {"name of 64", build_name, 64, 0, QUIRE_OK, ""},
    {"name of 65", build_name, 65, 0, QUIRE_EFORMAT, "tensor 1|the name has 65 bytes; 1 to 64"},
    {"no name", build_name, 0, 0, QUIRE_EFORMAT, "tensor 1|the name has 0 bytes"},
    {"escape in name", build_name, 9, 0x1b, QUIRE_EFORMAT, "tensor 1|the name|byte 0x1b at 4"},
};

/* ---- running ---- */

/* Sum of all that was asked for while opening, growing tables included. */
static size_t allowed_bytes(size_t file_bytes) {
    return 24 * file_bytes + 65536;
}

static void expect_text(const struct crafted *c, const char *text) {
    char parts[256];
    snprintf(parts, sizeof parts, "%s", c->parts);
    for (char *part = strtok(parts, "|"); part; part = strtok(NULL, "|")) {
        if (!strstr(text, part)) fail_msg("%s: \"%s\" lacks \"%s\"", c->what, text, part);
    }
    if (strchr(text, '\n')) fail_msg("%s: not one line: %s", c->what, text);
}

static void expect(const struct crafted *c, int rc, struct weights *w, const struct error *err,
                   const char *where) {
    if (rc != c->code) fail_msg("%s, from %s: %d (%s), expected %d", c->what, where, rc, err->text, c->code);
    if (rc) {
        assert_null(w);
        assert_int_equal(err->code, rc);
        expect_text(c, err->text);
        if (strncmp(err->text, where, strlen(where))) fail_msg("%s: %s", c->what, err->text);
    }
    weights_close(w);
}

static void test_crafted(void **state) {
    char folder[FILE_FOLDER_BYTES];
    file_folder_make(folder);
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        const struct crafted *c = &CASES[i];
        struct gguf_build b = gguf_build_new();
        struct weights *w = (void *)1;
        struct error err = {0};
        size_t n;
        c->build(&b, c);
        uint8_t *data = gguf_build_finish(&b, &n);
        alloc_fail_at(SIZE_MAX);
        int rc = weights_open_memory(data, n, &w, &err);
        alloc_fail_stop();
        if (alloc_fail_bytes() > allowed_bytes(n)) {
            fail_msg("%s: %zu bytes allocated for a file of %zu", c->what, alloc_fail_bytes(), n);
        }
        expect(c, rc, w, &err, "memory: ");
        const char *path = file_put(folder, "crafted.gguf", data, n);
        rc = weights_open(path, &w, &err);
        expect(c, rc, w, &err, path);
        free(data);
    }
    file_folder_remove(folder);
}

/* The same bytes, in an allocation of exactly their size: reading one more is seen by AddressSanitizer. */
static int open_exactly(const uint8_t *data, size_t n, struct error *err) {
    uint8_t *exact = malloc(n ? n : 1);
    struct weights *w;
    assert_non_null(exact);
    memcpy(exact, data, n);
    alloc_fail_at(SIZE_MAX);
    int rc = weights_open_memory(exact, n, &w, err);
    alloc_fail_stop();
    assert_true(alloc_fail_bytes() <= allowed_bytes(n));
    weights_close(w);
    free(exact);
    return rc;
}

static void mixed(struct gguf_build *b) { /* every kind of value, three tensors */
    uint64_t dims[2] = {32, 3};
    good(b);
    gguf_kv_bool(b, "flag", true);
    gguf_kv_array(b, "numbers", U64, 3);
    for (uint64_t i = 0; i < 3; i++) gguf_bytes_u64(&b->kv, i);
    gguf_kv_array(b, "strings", STRING, 3);
    for (uint64_t i = 0; i < 3; i++) gguf_bytes_str(&b->kv, "token", 2 * i);
    gguf_tensor(b, "matrix", 8, 2, dims, NULL, 3 * 34);
    gguf_tensor(b, "last", 0, 1, dims, NULL, 128);
}

/* A file cut anywhere is refused, from disk too. */
static void test_truncated(void **state) {
    struct gguf_build b = gguf_build_new();
    size_t n;
    char folder[FILE_FOLDER_BYTES];
    mixed(&b);
    uint8_t *data = gguf_build_finish(&b, &n);
    file_folder_make(folder);
    struct error err = {0};
    assert_int_equal(open_exactly(data, n, &err), 0);
    for (size_t cut = 0; cut < n; cut++) {
        int rc = open_exactly(data, cut, &err);
        if (rc != QUIRE_EFORMAT) fail_msg("cut at %zu of %zu: %d", cut, n, rc);
        struct weights *w;
        assert_int_equal(weights_open(file_put(folder, "cut.gguf", data, cut), &w, &err), QUIRE_EFORMAT);
        assert_null(w);
    }
    file_folder_remove(folder);
    free(data);
}

/* Each byte of the header in turn becomes something else: whatever is accepted can be walked. */
static void test_each_byte_spoiled(void **state) {
    struct gguf_build b = gguf_build_new();
    static const uint8_t flips[] = {0x01, 0x80, 0xff};
    size_t n;
    mixed(&b);
    uint8_t *data = gguf_build_finish(&b, &n);
    for (size_t i = 0; i < n; i++) {
        for (size_t j = 0; j < sizeof flips; j++) {
            struct error err = {0};
            data[i] ^= flips[j];
            int rc = open_exactly(data, n, &err);
            assert_true(rc <= 0 && (!rc || err.text[0]));
            data[i] ^= flips[j];
        }
    }
    free(data);
}

/* A web page, a pointer of Git LFS, and files shorter than a header. */
static void test_not_models(void **state) {
    static const struct {
        const char *data, *text;
    } cases[] = {{"", "it has 0 bytes"},
                 {"GGUF", "it has 4 bytes, the header alone takes 24"},
                 {"GGUF\3aaaaaaaaaaaaaaaaaa", "it has 23 bytes"},
                 {"version https://git-lfs.github.com/spec/v1\noid", "Git LFS"},
                 {"<!DOCTYPE html><html><head>", "web page"},
                 {"<html><head><title></title>", "web page"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct error err = {0};
        assert_int_equal(open_exactly((const uint8_t *)cases[i].data, strlen(cases[i].data), &err),
                         QUIRE_EFORMAT);
        assert_non_null(strstr(err.text, cases[i].text));
    }
}

/* Many entries that are all there: tables grow with them, and no faster. */
static void test_many_small_entries(void **state) {
    struct gguf_build b = gguf_build_new();
    uint64_t dims = 1;
    char name[16];
    size_t n;
    struct error err = {0};
    b.alignment = 8;
    gguf_kv_u32(&b, "general.alignment", 8);
    for (unsigned i = 0; i < 20000; i++) {
        snprintf(name, sizeof name, "%x", i);
        gguf_kv(&b, name, U8);
        gguf_bytes_put(&b.kv, "", 1);
        gguf_tensor(&b, name, 0, 1, &dims, NULL, 4);
    }
    uint8_t *data = gguf_build_finish(&b, &n);
    assert_int_equal(open_exactly(data, n, &err), 0);
    free(data);
}

static void open_or_fail_cleanly(void *ctx) {
    struct weights *w;
    struct error err = {0};
    int rc = weights_open(ctx, &w, &err);
    if (rc == 0 ? !w : rc != QUIRE_ENOMEM || w || !err.text[0]) fail_msg("%d: %s", rc, err.text);
    if (!rc) {
        float row[8];
        assert_int_equal(weights_read(w, weights_tensor(w, "matrix"), 0, sizeof row, row, &err), 0);
    }
    weights_close(w);
}

static void test_each_allocation_fails(void **state) {
    struct gguf_build b = gguf_build_new();
    char folder[FILE_FOLDER_BYTES];
    size_t n;
    mixed(&b);
    uint8_t *data = gguf_build_finish(&b, &n);
    file_folder_make(folder);
    const char *path = file_put(folder, "good.gguf", data, n);
    assert_true(alloc_fail_each(open_or_fail_cleanly, (void *)path) > 8);
    file_folder_remove(folder);
    free(data);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_crafted),
        cmocka_unit_test(test_truncated),
        cmocka_unit_test(test_each_byte_spoiled),
        cmocka_unit_test(test_not_models),
        cmocka_unit_test(test_many_small_entries),
        cmocka_unit_test(test_each_allocation_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
