#include "base/hash.h"

#include <string.h>
#include <sys/random.h>

static inline uint64_t rotl(uint64_t v, unsigned n) {
    return (v << n) | (v >> (64 - n));
}

static inline uint64_t load_le64(const unsigned char *p) {
    uint64_t v;
    memcpy(&v, p, 8);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    v = __builtin_bswap64(v);
#endif
    return v;
}

/* ---- SipHash-2-4, 128-bit output
 * ----------------------------------------------------------------------------- */

struct sip {
    uint64_t v0, v1, v2, v3;
    uint64_t n_bytes;
    unsigned char part[8]; /* n_bytes % 8 bytes that wait for the rest of their word */
};

static inline void sip_round(struct sip *s) {
    s->v0 += s->v1;
    s->v2 += s->v3;
    s->v1 = rotl(s->v1, 13) ^ s->v0;
    s->v3 = rotl(s->v3, 16) ^ s->v2;
    s->v0 = rotl(s->v0, 32);
    s->v2 += s->v1;
    s->v0 += s->v3;
    s->v1 = rotl(s->v1, 17) ^ s->v2;
    s->v3 = rotl(s->v3, 21) ^ s->v0;
    s->v2 = rotl(s->v2, 32);
}

static void sip_start(struct sip *s, struct hash_secret secret) {
    s->v0 = secret.k0 ^ 0x736f6d6570736575u;
    s->v1 =
        secret.k1 ^ 0x646f72616e646f6du ^ 0xee; /* 0xee and, at the end, 0xee and 0xdd: the 128-bit variant */
    s->v2 = secret.k0 ^ 0x6c7967656e657261u;
    s->v3 = secret.k1 ^ 0x7465646279746573u;
    s->n_bytes = 0;
}

static inline void sip_word(struct sip *s, uint64_t word) {
    s->v3 ^= word;
    sip_round(s);
    sip_round(s);
    s->v0 ^= word;
}

static void sip_add(struct sip *s, const void *data, size_t n) {
    const unsigned char *p = data;
    size_t have = s->n_bytes % 8;
    s->n_bytes += n;
    if (have) {
        while (have < 8 && n) {
            s->part[have++] = *p++;
            n--;
        }
        if (have < 8) return;
        sip_word(s, load_le64(s->part));
    }
    for (; n >= 8; p += 8, n -= 8) sip_word(s, load_le64(p));
    if (n) memcpy(s->part, p, n);
}

static void sip_add_u64(struct sip *s, uint64_t v) {
    unsigned char bytes[8];
    for (int i = 0; i < 8; i++) bytes[i] = (unsigned char)(v >> (8 * i));
    sip_add(s, bytes, 8);
}

static struct hash128 sip_end(struct sip *s) {
    struct hash128 out;
    uint64_t last = s->n_bytes << 56;
    for (unsigned i = 0; i < s->n_bytes % 8; i++) last |= (uint64_t)s->part[i] << (8 * i);
    sip_word(s, last);
    s->v2 ^= 0xee;
    for (int i = 0; i < 4; i++) sip_round(s);
    out.lo = s->v0 ^ s->v1 ^ s->v2 ^ s->v3;
    s->v1 ^= 0xdd;
    for (int i = 0; i < 4; i++) sip_round(s);
    out.hi = s->v0 ^ s->v1 ^ s->v2 ^ s->v3;
    return out;
}

struct hash128 hash128_sip(struct hash_secret secret, const void *data, size_t n) {
    struct sip s;
    sip_start(&s, secret);
    sip_add(&s, data, n);
    return sip_end(&s);
}

/* ---- secrets ------------------------------------------------------------------------------------------- */

bool hash_secret_random(struct hash_secret *out) {
    return getrandom(out, sizeof *out, 0) == (ssize_t)sizeof *out;
}

struct hash_secret hash_secret_from_text(const char *text, size_t n) {
    const struct hash_secret name = {0x6572697571202d20u,
                                     0x7465726365732073u}; /* any fixed key; part of the format */
    struct hash128 h = hash128_sip(name, text, n);
    return (struct hash_secret){h.lo, h.hi};
}

/* ---- file contents ------------------------------------------------------------------------------------- */

/* A lane's 128 bits and 16 bytes of content meet in one multiplication to 128 bits (as in folded multiply
 * hashes), whose factors are added to its halves: a factor of 0 does not swallow the other. */
struct bulk_lane {
    uint64_t lo, hi;
};

static inline struct bulk_lane bulk_mix(struct bulk_lane l, const unsigned char *p) {
    uint64_t x = l.lo ^ load_le64(p), y = l.hi + load_le64(p + 8);
    unsigned __int128 m = (unsigned __int128)x * (y ^ 0xb7e151628aed2a6bu);
    return (struct bulk_lane){(uint64_t)m ^ y, (uint64_t)(m >> 64) + x};
}

#define BULK_LANES        4
#define BULK_STRIPE_BYTES (16 * BULK_LANES)

/* The lanes do not wait for each other, and as variables of their own they stay in registers: loading a model
 * waits for this. */
static void bulk_stripes(struct bulk_lane l[BULK_LANES], const unsigned char *p, size_t n_bytes) {
    struct bulk_lane l0 = l[0], l1 = l[1], l2 = l[2], l3 = l[3];
    for (const unsigned char *end = p + n_bytes; p != end; p += BULK_STRIPE_BYTES) {
        l0 = bulk_mix(l0, p);
        l1 = bulk_mix(l1, p + 16);
        l2 = bulk_mix(l2, p + 32);
        l3 = bulk_mix(l3, p + 48);
    }
    l[0] = l0;
    l[1] = l1;
    l[2] = l2;
    l[3] = l3;
}

/* What is left and the length are closed with SipHash under a fixed key. */
struct hash128 hash128_bulk(const void *data, size_t n) {
    const unsigned char *p = data;
    const size_t n_tail = n % BULK_STRIPE_BYTES;
    struct bulk_lane l[BULK_LANES];
    for (unsigned i = 0; i < BULK_LANES; i++) /* digits of pi, as above of e */
        l[i] = (struct bulk_lane){0x243f6a8885a308d3u + i, 0x13198a2e03707344u + i};
    bulk_stripes(l, p, n - n_tail);
    struct sip s;
    sip_start(&s, (struct hash_secret){0x082efa98ec4e6c89u, 0x452821e638d01377u});
    for (unsigned i = 0; i < BULK_LANES; i++) {
        sip_add_u64(&s, l[i].lo);
        sip_add_u64(&s, l[i].hi);
    }
    sip_add_u64(&s, n);
    sip_add(&s, p + (n - n_tail), n_tail);
    return sip_end(&s);
}

/* ---- keys of KV blocks --------------------------------------------------------------------------------- */

enum kv_tag {
    KV_ROOT = 1,
    KV_ADAPTER,
    KV_SALT,
    KV_BLOCK
}; /* stored and shared keys depend on these: never renumber */

static void add_hash(struct sip *s, struct hash128 h) {
    sip_add_u64(s, h.lo);
    sip_add_u64(s, h.hi);
}

static void add_string(struct sip *s, enum kv_tag tag, const char *text) {
    size_t n = text ? strlen(text) : 0;
    sip_add_u64(s, (uint64_t)tag | (text ? 0x100u : 0));
    sip_add_u64(s, n);
    if (n) sip_add(s, text, n);
}

struct hash128 kv_root_key(struct hash_secret secret, struct hash128 numerics_id, const char *adapter,
                           const char *salt) {
    struct sip s;
    sip_start(&s, secret);
    sip_add_u64(&s, KV_ROOT);
    add_hash(&s, numerics_id);
    add_string(&s, KV_ADAPTER, adapter);
    add_string(&s, KV_SALT, salt);
    return sip_end(&s);
}

struct hash128 kv_block_key(struct hash_secret secret, struct hash128 parent, const uint32_t *tokens,
                            size_t n) {
    struct sip s;
    sip_start(&s, secret);
    sip_add_u64(&s, KV_BLOCK);
    add_hash(&s, parent);
    sip_add_u64(&s, n);
    size_t i = 0;
    for (; i + 2 <= n; i += 2) sip_add_u64(&s, tokens[i] | (uint64_t)tokens[i + 1] << 32);
    if (i < n) sip_add_u64(&s, tokens[i]); /* n above tells it from a zero token */
    return sip_end(&s);
}
