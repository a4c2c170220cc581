#include "serve/prompt_stats.h"

#include "base/error.h"
#include "base/hash.h"
#include "base/size.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define WAYS         8u
#define BUCKETS      (1u << 15)
#define CHUNK_MIN    8u
#define CHUNK_MAX    64u
#define CHUNK_MASK   15u /* an end every 16 tokens beyond the least, on average */
#define MAX_PREFIXES (PROMPT_STATS_TOKENS / PROMPT_STATS_BLOCK)
#define MAX_CHUNKS   (PROMPT_STATS_TOKENS / CHUNK_MIN)
#define FEW_TOKENS   32u /* displaced tokens of a prompt below which they are chance */
#define FIELD_TOKENS 64  /* a change in front that moves what follows by no more is a field */
#define TURN_TOKENS  24  /* but what moves as a whole to the front, by as much, follows a turn that was cut */
#define ALIKE_TOKENS 4

/* An entry: 40 bits of a hash, 13 of the place where it was seen last, 11 of when. 0: none. */
#define STAMPS        2048u
#define STAMP_PROMPTS 16u /* prompts of a stamp */

struct prompt_stats {
    struct hash_secret secret;
    pthread_mutex_t lock;
    struct prompt_figures figures;
    uint64_t *entries; /* [BUCKETS * WAYS] */
};

struct chunk {
    uint64_t hash;
    uint32_t start, n;
    int32_t moved; /* from where it was seen last */
    bool known;
};

/* What is looked up of a prompt. */
struct shape {
    uint64_t prefixes[MAX_PREFIXES];
    struct chunk chunks[MAX_CHUNKS];
    size_t n_tokens, n_prefixes, n_chunks;
};

/* ---- the table ---- */

static uint64_t tag_of(uint64_t hash) {
    return hash >> 24 ? hash >> 24 : 1;
}

static uint64_t *bucket_of(struct prompt_stats *p, uint64_t hash) {
    return p->entries + (hash & (BUCKETS - 1)) * WAYS;
}

static uint64_t now_of(const struct prompt_stats *p) {
    return p->figures.prompts / STAMP_PROMPTS % STAMPS;
}

static uint64_t *find(struct prompt_stats *p, uint64_t hash) {
    uint64_t *b = bucket_of(p, hash);
    for (size_t i = 0; i < WAYS; i++)
        if (b[i] >> 24 == tag_of(hash)) return &b[i];
    return NULL;
}

static void keep(struct prompt_stats *p, uint64_t hash, uint32_t place) {
    uint64_t *e = find(p, hash), now = now_of(p), oldest = 0;
    if (!e) {
        uint64_t *b = bucket_of(p, hash);
        e = b;
        for (size_t i = 0; i < WAYS; i++) {
            uint64_t age = b[i] ? 1 + (now + STAMPS - b[i] % STAMPS) % STAMPS : UINT64_MAX;
            if (age > oldest) {
                oldest = age;
                e = &b[i];
            }
        }
    }
    *e = tag_of(hash) << 24 | (uint64_t)place << 11 | now;
}

/* ---- hashes of a prompt ---- */

/* Keyed, but only to find ends of chunks: it is not kept. */
static uint64_t mix(uint64_t key, uint32_t token) {
    uint64_t x = (key ^ token) * UINT64_C(0x9E3779B97F4A7C15);
    x = (x ^ x >> 32) * UINT64_C(0xD6E8FEB86659FD93);
    return x ^ x >> 32;
}

static void cut_chunks(const struct prompt_stats *p, struct hash128 root, const uint32_t *t,
                       struct shape *s) {
    struct hash128 other = {~root.lo, root.hi}; /* a chunk's hash is never a prefix's */
    uint64_t h = 0;
    for (uint32_t i = 0, start = 0; i < s->n_tokens; i++) {
        h = (h << 1) + mix(p->secret.k0, t[i]); /* the lowest 4 bits: of the last 4 tokens */
        uint32_t n = i + 1 - start;
        if ((n < CHUNK_MIN || h & CHUNK_MASK) && n < CHUNK_MAX) continue;
        struct hash128 key = kv_block_key(p->secret, other, t + start, n);
        s->chunks[s->n_chunks++] = (struct chunk){.hash = key.lo, .start = start, .n = n};
        start = i + 1;
    }
}

static void hash_prompt(const struct prompt_stats *p, const uint32_t *t, size_t n, const char *salt,
                        struct shape *s) {
    struct hash128 root = kv_root_key(p->secret, (struct hash128){0, 0}, NULL, salt), key = root;
    s->n_tokens = size_min(n, PROMPT_STATS_TOKENS);
    s->n_prefixes = s->n_tokens / PROMPT_STATS_BLOCK;
    s->n_chunks = 0;
    for (size_t i = 0; i < s->n_prefixes; i++) {
        key = kv_block_key(p->secret, key, t + i * PROMPT_STATS_BLOCK, PROMPT_STATS_BLOCK);
        s->prefixes[i] = key.lo;
    }
    cut_chunks(p, root, t, s);
}

/* ---- what they say ---- */

/* Displaced tokens that have moved by about as much. */
static uint64_t moved_about(const struct shape *s, int32_t by, int32_t within) {
    uint64_t n = 0;
    for (size_t i = 0; i < s->n_chunks; i++)
        if (s->chunks[i].known && abs(s->chunks[i].moved - by) <= within) n += s->chunks[i].n;
    return n;
}

/* The move of the longest run of chunks that have moved by the same. */
static int32_t usual_move(const struct shape *s) {
    uint64_t run = 0, longest = 0;
    int32_t move = 0, best = 0;
    for (size_t i = 0; i < s->n_chunks; i++) {
        const struct chunk *c = &s->chunks[i];
        if (!c->known) continue;
        run = c->moved == move ? run + c->n : c->n;
        move = c->moved;
        if (run <= longest) continue;
        longest = run;
        best = move;
    }
    return best;
}

/* Three quarters of what is displaced decide. */
static enum prompt_cause cause_of(const struct shape *s, uint64_t displaced) {
    int32_t move = usual_move(s);
    if (move <= -TURN_TOKENS && 4 * moved_about(s, move, ALIKE_TOKENS) >= 3 * displaced) return PROMPT_CUT;
    if (4 * moved_about(s, 0, FIELD_TOKENS) >= 3 * displaced) return PROMPT_FIELD;
    return 4 * moved_about(s, move, FIELD_TOKENS) >= 3 * displaced ? PROMPT_CUT : PROMPT_ORDER;
}

static void count(struct prompt_stats *p, struct shape *s) {
    struct prompt_figures *f = &p->figures;
    size_t known = 0;
    uint64_t displaced = 0;
    while (known < s->n_prefixes && find(p, s->prefixes[known])) known++;
    known *= PROMPT_STATS_BLOCK;
    f->prompts++;
    f->tokens += s->n_tokens;
    f->prefix_tokens += known;
    for (size_t i = 0; i < s->n_chunks; i++) {
        struct chunk *c = &s->chunks[i];
        const uint64_t *e = c->start >= known ? find(p, c->hash) : NULL;
        c->known = e;
        if (!e) continue;
        c->moved = (int32_t)c->start - (int32_t)(*e >> 11 & (PROMPT_STATS_TOKENS - 1));
        displaced += c->n;
    }
    if (displaced < FEW_TOKENS) return;
    enum prompt_cause cause = cause_of(s, displaced);
    f->displaced_prompts[cause]++;
    f->displaced_tokens[cause] += displaced;
    f->difference_tokens[cause] += known;
}

static void keep_all(struct prompt_stats *p, const struct shape *s) {
    for (size_t i = 0; i < s->n_prefixes; i++) keep(p, s->prefixes[i], 0);
    for (size_t i = 0; i < s->n_chunks; i++) keep(p, s->chunks[i].hash, s->chunks[i].start);
}

void prompt_stats_note(struct prompt_stats *p, const uint32_t *tokens, size_t n, const char *salt) {
    struct shape s; /* 29 KiB */
    if (!p || !n) return;
    hash_prompt(p, tokens, n, salt, &s);
    pthread_mutex_lock(&p->lock);
    count(p, &s);
    keep_all(p, &s);
    pthread_mutex_unlock(&p->lock);
}

void prompt_stats_read(struct prompt_stats *p, struct prompt_figures *out) {
    *out = (struct prompt_figures){0};
    if (!p) return;
    pthread_mutex_lock(&p->lock);
    *out = p->figures;
    pthread_mutex_unlock(&p->lock);
}

/* ---- life ---- */

size_t prompt_stats_bytes(void) {
    return sizeof(struct prompt_stats) + sizeof(uint64_t) * BUCKETS * WAYS;
}

int prompt_stats_new(struct prompt_stats **out, struct error *err) {
    struct prompt_stats *p = calloc(1, sizeof *p);
    *out = NULL;
    if (p) p->entries = calloc(BUCKETS * WAYS, sizeof *p->entries);
    if (!p || !p->entries) {
        free(p);
        return error_set(err, QUIRE_ENOMEM, "out of memory for --prompt-statistics (%zu bytes)",
                         prompt_stats_bytes());
    }
    if (!hash_secret_random(&p->secret)) {
        free(p->entries);
        free(p);
        return error_set(err, QUIRE_EIO, "the system gave no random bytes");
    }
    pthread_mutex_init(&p->lock, NULL);
    memset(p->entries, 0, sizeof *p->entries * BUCKETS * WAYS); /* resident now */
    *out = p;
    return 0;
}

void prompt_stats_free(struct prompt_stats *p) {
    if (!p) return;
    pthread_mutex_destroy(&p->lock);
    free(p->entries);
    free(p);
}
