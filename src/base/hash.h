/* Keyed 128-bit hashes. SipHash-2-4 with 128-bit output (Aumasson and Bernstein, 2012; reference vectors in the
 * unit test) for anything an adversary may choose; the KV block key is built on it. A faster hash for file contents. */
#ifndef BASE_HASH_H
#define BASE_HASH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct hash128 {
    uint64_t lo, hi;
};

struct hash_secret {
    uint64_t k0, k1;
};

static inline bool hash128_equal(struct hash128 a, struct hash128 b) { return a.lo == b.lo && a.hi == b.hi; }

/* A fresh secret from the kernel's random source. Returns false if there is none. */
bool hash_secret_random(struct hash_secret *out);
/* A secret from text (a configured one), so that several processes agree. */
struct hash_secret hash_secret_from_text(const char *text, size_t n);

struct hash128 hash128_sip(struct hash_secret secret, const void *data, size_t n);

/* Not keyed and not collision-resistant against an adversary: identifies file contents, at several GB/s. */
struct hash128 hash128_bulk(const void *data, size_t n);

/* Key of the root of a prefix: what must match before any token does. Each part is length-prefixed and tagged, so
 * that no adapter name can pass for a salt. Strings may be NULL (absent differs from empty). */
struct hash128 kv_root_key(struct hash_secret secret, struct hash128 numerics_id, const char *adapter, const char *salt);

/* Key of a full block: parent key (root or previous block) and its n tokens. */
struct hash128 kv_block_key(struct hash_secret secret, struct hash128 parent, const uint32_t *tokens, size_t n);

#endif
