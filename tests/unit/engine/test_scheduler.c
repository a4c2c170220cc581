/* Scheduler, block tables and prefix cache without a model. "Computing" a token writes a hash of all tokens
 * up to it into its KV slot, and every position that a model would read is compared with what must be there:
 * whatever is shared, copied, evicted, preempted or slid out of a window, a sequence must see exactly its own
 * past. */
#include "engine/scheduler.h"
#include "util_engine.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define BT 4u /* tokens of a block */

struct sim_seq {
    struct sequence seq;
    uint64_t *past; /* [max_len] hash of tokens 0 ... i and the salt */
    uint64_t salt;
    bool blocked;
    size_t id, n_steps_waited;
};

struct sim {
    struct scheduler_options o;
    struct kv_cache cache;
    struct scheduler *s;
    uint64_t *memory; /* [block][BT] */
    size_t n_blocks;
    struct hash_secret secret;
    uint64_t random;
    struct sim_seq *seqs[512];
    size_t n_seqs, n_made, n_done, n_steps, n_reads;
    unsigned most_preempted;
};

static bool sim_blocked(struct sequence *s) {
    return ((struct sim_seq *)s)->blocked;
}

static void sim_copy(void *ctx, uint32_t dst, uint32_t src, size_t n) {
    struct sim *x = ctx;
    memcpy(x->memory + dst * BT, x->memory + src * BT, n * sizeof *x->memory);
    for (size_t i = n; i < BT; i++) x->memory[dst * BT + i] = 0xdead;
}

static struct sim sim_make(size_t n_blocks, size_t n_groups, const size_t *windows,
                           struct scheduler_options o) {
    struct sim x = {.o = o, .n_blocks = n_blocks, .random = 1, .secret = {1, 2}};
    x.cache = (struct kv_cache){.block_tokens = BT, .n_groups = n_groups, .naming = true, .copy = sim_copy};
    for (size_t g = 0; g < n_groups; g++) x.cache.window[g] = windows[g];
    x.memory = calloc((n_blocks + 1) * BT, sizeof *x.memory);
    assert_non_null(x.memory);
    assert_int_equal(kv_pool_create(n_blocks + 1, BT, &x.cache.pool, NULL), 0);
    kv_pool_grow(x.cache.pool, n_blocks + 1);
    return x;
}

static void sim_start(struct sim *x) {
    x->cache.copy_ctx = x;
    if (!x->cache.chunk_tokens) x->cache.chunk_tokens = x->o.max_num_batched_tokens;
    x->o.cache = &x->cache;
    x->o.blocked = sim_blocked;
    if (!x->o.max_score_rows) x->o.max_score_rows = x->o.max_num_batched_tokens;
    assert_int_equal(scheduler_create(&x->o, &x->s, NULL), 0);
}

static void note_past(struct sim_seq *q, size_t i) {
    uint64_t before = i ? q->past[i - 1] : q->salt;
    q->past[i] = (before ^ (q->seq.tokens[i] + 1)) * UINT64_C(0x9e3779b97f4a7c15);
}

static struct sim_seq *sim_add(struct sim *x, const uint32_t *prompt, size_t n_prompt, size_t n_out,
                               uint64_t salt) {
    struct sim_seq *q = calloc(1, sizeof *q);
    assert_non_null(q);
    size_t max_len = n_prompt + n_out;
    char name[32];
    snprintf(name, sizeof name, "%llu", (unsigned long long)salt);
    q->seq =
        (struct sequence){.n_prompt = n_prompt, .n_known = n_prompt, .max_len = max_len, .read_cache = true};
    q->seq.tokens = calloc(max_len, sizeof(uint32_t));
    q->seq.keys = calloc(2 + max_len / BT, sizeof(struct hash128));
    q->past = calloc(max_len, sizeof *q->past);
    q->salt = salt;
    q->seq.arrival = q->id = x->n_made++;
    memcpy(q->seq.tokens, prompt, n_prompt * sizeof *prompt);
    for (size_t i = 0; i < n_prompt; i++) note_past(q, i);
    q->seq.keys[0] = kv_root_key(x->secret, (struct hash128){3, 4}, NULL, salt ? name : NULL);
    sequence_name_blocks(&q->seq, x->secret, BT);
    x->seqs[x->n_seqs++] = q;
    scheduler_add(x->s, &q->seq);
    return q;
}

static void sim_remove(struct sim *x, size_t i) {
    struct sim_seq *q = x->seqs[i];
    scheduler_remove(x->s, &q->seq);
    if (q->seq.n_preempted > x->most_preempted) x->most_preempted = q->seq.n_preempted;
    free(q->seq.tokens);
    free(q->seq.keys);
    free(q->past);
    free(q);
    x->seqs[i] = x->seqs[--x->n_seqs];
    x->n_done++;
}

static uint64_t *slot_of(struct sim *x, const struct sequence *s, size_t g, size_t position) {
    return &x->memory[s->table->blocks[g][position / BT] * BT + position % BT];
}

/* Writes the planned rows of one sequence, then reads all that they attend to. */
static void sim_compute(struct sim *x, struct sim_seq *q) {
    struct sequence *s = &q->seq;
    size_t end = s->n_computed + s->n_scheduled;
    assert_true(end <= s->n_known);
    for (size_t g = 0; g < x->cache.n_groups; g++) {
        for (size_t i = s->n_computed; i < end; i++) {
            assert_true(i / BT < s->table->n_blocks[g]);
            uint32_t block = s->table->blocks[g][i / BT];
            assert_int_not_equal(block, 0);
            assert_int_equal(kv_pool_refs(x->cache.pool, block), 1); /* nobody else sees the write */
            *slot_of(x, s, g, i) = q->past[i];
        }
        for (size_t i = s->n_computed; i < end; i++) {
            size_t window = x->cache.window[g], first = window && i + 1 > window ? i + 1 - window : 0;
            for (size_t j = first; j <= i; j++, x->n_reads++)
                assert_int_equal(*slot_of(x, s, g, j), q->past[j]);
        }
    }
}

/* What the settings for measurement promise: nobody joins a batch, and what is running lacks no block. */
static size_t sim_plan(struct sim *x) {
    bool ran[512], joined = false, stayed = false;
    for (size_t i = 0; i < x->n_seqs; i++) ran[i] = x->seqs[i]->seq.state == SEQUENCE_RUNNING;
    size_t total = scheduler_plan(x->s);
    for (size_t i = 0; i < x->n_seqs; i++) {
        const struct sequence *s = &x->seqs[i]->seq;
        bool runs = s->state == SEQUENCE_RUNNING;
        joined |= runs && !ran[i];
        stayed |= runs && ran[i];
        if (!runs || !x->o.reserve_tokens) continue;
        for (size_t g = 0; g < x->cache.n_groups; g++)
            if (!x->cache.window[g]) assert_true(s->table->n_blocks[g] * BT >= x->o.reserve_tokens);
    }
    if (x->o.static_batch) assert_false(joined && stayed);
    if (x->o.reserve_tokens) assert_int_equal(scheduler_counts(x->s)->preemptions, 0);
    return total;
}

/* One step; sequences that end are removed. Returns the tokens of the step. */
static size_t sim_step(struct sim *x) {
    size_t n, total = sim_plan(x), sum = 0, n_running = scheduler_running(x->s);
    struct sequence *const *planned = scheduler_planned(x->s, &n);
    assert_true(total <= x->o.max_num_batched_tokens && n <= x->o.max_num_seqs &&
                n_running <= x->o.max_num_seqs);
    for (size_t i = 0; i < n; i++) {
        struct sim_seq *q = (struct sim_seq *)planned[i];
        sum += q->seq.n_scheduled;
        assert_true(q->seq.n_scheduled > 0);
        if (!x->o.chunked) assert_int_equal(q->seq.n_scheduled, sequence_left(&q->seq));
        if (!q->blocked) q->n_steps_waited = 0;
        sim_compute(x, q);
    }
    assert_int_equal(sum, total);
    for (size_t i = 0; i < n; i++) {
        struct sim_seq *q = (struct sim_seq *)planned[i];
        scheduler_commit(x->s, &q->seq);
        if (q->seq.n_computed < q->seq.n_known) continue;
        if (q->seq.n_known == q->seq.max_len) continue; /* removed below */
        sequence_append(&q->seq, (uint32_t)(q->past[q->seq.n_known - 1] % 3), x->secret, BT);
        note_past(q, q->seq.n_known - 1);
    }
    for (size_t i = x->n_seqs; i-- > 0;) {
        const struct sequence *s = &x->seqs[i]->seq; /* without an output it ends when it is computed */
        if (s->n_known == s->max_len && (s->max_len > s->n_prompt || s->n_computed == s->n_known))
            sim_remove(x, i);
    }
    x->n_steps++;
    return total;
}

static void sim_end(struct sim *x) {
    while (x->n_seqs) sim_remove(x, x->n_seqs - 1);
    assert_int_equal(kv_pool_stats(x->cache.pool)->n_held, 0);
    assert_int_equal(kv_pool_stats(x->cache.pool)->filled_tokens, 0);
    assert_null(kv_pool_check(x->cache.pool));
    assert_null(scheduler_any(x->s));
    scheduler_free(x->s);
    kv_pool_free(x->cache.pool);
    free(x->memory);
}

/* Runs until nothing is left; fails when it takes too long. */
static void sim_drain(struct sim *x, size_t most_steps) {
    while (x->n_seqs) {
        for (size_t i = 0; i < x->n_seqs; i++) x->seqs[i]->blocked = false;
        assert_int_not_equal(sim_step(x), 0);
        if (!most_steps--) fail_msg("%zu sequences never end", x->n_seqs);
    }
}

static void fill_prompt(uint32_t *prompt, size_t n, uint64_t *random) {
    for (size_t i = 0; i < n; i++)
        prompt[i] = test_random(random, 3); /* few letters: prefixes are often shared */
}

/* ---- random traffic --------------------------------------------------------------------------------------
 */

struct traffic {
    size_t n_groups, windows[2], n_blocks, budget, max_seqs, chunk;
    bool chunked, by_priority, naming;
};

static void play_traffic(const struct traffic *t, bool batch, bool reserve, uint64_t seed) {
    struct scheduler_options o = {.max_num_seqs = t->max_seqs,
                                  .max_num_batched_tokens = t->budget,
                                  .max_model_len = 80,
                                  .max_live = 512,
                                  .chunked = t->chunked,
                                  .by_priority = t->by_priority,
                                  .static_batch = batch,
                                  .reserve_tokens = reserve ? 80 : 0};
    struct sim x = sim_make(t->n_blocks, t->n_groups, t->windows, o);
    x.cache.naming = t->naming;
    x.cache.chunk_tokens = t->chunk;
    x.random = seed;
    sim_start(&x);
    uint32_t prompt[80];
    for (int step = 0; step < 400; step++) {
        while (x.n_seqs < 30 && test_random(&x.random, 3)) {
            size_t n = 1 + test_random(&x.random, 50), n_out = 1 + test_random(&x.random, 29);
            fill_prompt(prompt, n, &x.random);
            if (kv_peak_blocks(&x.cache, n + n_out) > t->n_blocks) continue;
            struct sim_seq *q = sim_add(&x, prompt, n, n_out, test_random(&x.random, 3));
            q->seq.read_cache = test_random(&x.random, 5) != 0;
            q->seq.priority = (int32_t)test_random(&x.random, 3);
        }
        if (x.n_seqs && !test_random(&x.random, 6))
            sim_remove(&x, test_random(&x.random, (uint32_t)x.n_seqs));
        for (size_t i = 0; i < x.n_seqs; i++)
            if (!test_random(&x.random, 10)) /* a reader falls behind only while tokens come */
                x.seqs[i]->blocked = !x.seqs[i]->blocked && x.seqs[i]->seq.state == SEQUENCE_RUNNING;
        sim_step(&x);
        const char *fault = kv_pool_check(x.cache.pool);
        if (fault) fail_msg("%s", fault);
    }
    sim_drain(&x, 5000);
    assert_true(x.n_done > 40);
    assert_true(x.most_preempted <= SCHED_PROTECT);
    sim_end(&x);
}

static void test_random_traffic(void **state) {
    static const struct traffic all[] = {
        {1, {0}, 400, 64, 8, 64, true, false, true},    {1, {0}, 24, 64, 8, 64, true, false, true},
        {1, {0}, 24, 16, 4, 5, true, true, true},       {1, {0}, 30, 90, 8, 90, false, false, true},
        {1, {0}, 24, 64, 8, 64, true, false, false},    {1, {10}, 60, 32, 8, 32, true, false, true},
        {1, {4}, 30, 16, 8, 16, true, true, true},      {1, {1}, 30, 16, 8, 16, true, false, true},
        {2, {0, 9}, 60, 32, 8, 32, true, false, true},  {2, {7, 0}, 60, 32, 8, 13, true, true, true},
        {2, {16, 3}, 60, 32, 8, 32, true, false, true}, {2, {0, 0}, 50, 90, 8, 90, false, true, true},
        {1, {0}, 25, 8, 8, 8, true, false, true},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        for (uint64_t seed = 1; seed <= 4; seed++) play_traffic(&all[i], false, false, seed * 1000 + i);
}

static void test_random_traffic_of_baselines(void **state) {
    static const struct {
        struct traffic t;
        bool batch, reserve;
    } all[] = {
        {{1, {0}, 90, 90, 8, 90, false, false, false}, true, true},
        {{1, {0}, 90, 90, 8, 90, false, false, false}, false, true},
        {{1, {0}, 24, 64, 8, 64, true, false, true}, true, false},
        {{1, {0}, 60, 16, 4, 5, true, true, true}, true, true},
        {{2, {0, 9}, 90, 32, 8, 13, true, true, true}, false, true},
        {{1, {10}, 30, 32, 8, 32, true, false, true}, true, true},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        for (uint64_t seed = 1; seed <= 4; seed++)
            play_traffic(&all[i].t, all[i].batch, all[i].reserve, seed * 1000 + i);
}

/* ---- the rules, one by one -------------------------------------------------------------------------------
 */

static const size_t FULL[] = {0};

static struct scheduler_options plain(size_t max_seqs, size_t budget) {
    return (struct scheduler_options){.max_num_seqs = max_seqs,
                                      .max_num_batched_tokens = budget,
                                      .max_model_len = 1000,
                                      .max_live = 100,
                                      .chunked = true};
}

static void ramp(uint32_t *prompt, size_t n, uint32_t start) {
    for (size_t i = 0; i < n; i++) prompt[i] = start + (uint32_t)i;
}

static void test_prefix_is_shared_and_copied(void **state) {
    struct sim x = sim_make(100, 1, FULL, plain(8, 256));
    sim_start(&x);
    uint32_t p[40];
    ramp(p, 40, 10);
    sim_add(&x, p, 40, 2, 0);
    sim_drain(&x, 10);
    /* The same prompt: all but the last token, of which three quarters of a block copied. */
    struct sim_seq *same = sim_add(&x, p, 40, 2, 0);
    sim_step(&x);
    assert_int_equal(same->seq.n_cached, 39);
    assert_int_equal(x.cache.copies, 1);
    /* 22 common tokens: five blocks and two tokens of the sixth. */
    p[22] = 999;
    struct sim_seq *part = sim_add(&x, p, 30, 2, 0);
    sim_step(&x);
    assert_int_equal(part->seq.n_cached, 22);
    assert_int_equal(x.cache.copies, 2);
    /* Another salt, and a request that does not want to read: nothing. */
    p[22] = 32;
    struct sim_seq *other = sim_add(&x, p, 40, 2, 5), *fresh = sim_add(&x, p, 40, 2, 0);
    fresh->seq.read_cache = false;
    sim_step(&x);
    assert_int_equal(other->seq.n_cached, 0);
    assert_int_equal(fresh->seq.n_cached, 0);
    sim_drain(&x, 20);
    sim_end(&x);
}

static void test_generated_tokens_are_found(void **state) {
    struct sim x = sim_make(100, 1, FULL, plain(8, 256));
    sim_start(&x);
    uint32_t p[60];
    ramp(p, 10, 10);
    struct sim_seq *q = sim_add(&x, p, 10, 30, 0);
    while (q->seq.n_known < 39) sim_step(&x);
    memcpy(p, q->seq.tokens, 39 * sizeof *p);
    sim_drain(&x, 5);
    ramp(p + 39, 5, 70); /* the next turn */
    q = sim_add(&x, p, 44, 2, 0);
    sim_step(&x);
    assert_int_equal(q->seq.n_cached, 36); /* whole blocks of computed tokens */
    sim_drain(&x, 5);
    sim_end(&x);
}

/* Only what has been computed may be named: a sequence that ends with a full block of known tokens whose last
 * one was never computed leaves one block less. */
static void test_uncomputed_tokens_are_not_named(void **state) {
    struct sim x = sim_make(100, 1, FULL, plain(8, 256));
    sim_start(&x);
    uint32_t p[12];
    ramp(p, 5, 10);
    struct sim_seq *q = sim_add(&x, p, 5, 3, 0); /* 8 known at the end, 7 computed */
    while (q->seq.n_known < 7) sim_step(&x);
    uint64_t next = q->past[6] % 3;
    memcpy(p, q->seq.tokens, 7 * sizeof *p);
    sim_drain(&x, 5);
    p[7] = (uint32_t)next;
    ramp(p + 8, 4, 70);
    q = sim_add(&x, p, 12, 1, 0);
    scheduler_plan(x.s);
    assert_int_equal(q->seq.n_cached, 4);
    sim_drain(&x, 5);
    sim_end(&x);
}

static void test_same_prompts_at_once_are_computed_once(void **state) {
    struct sim x = sim_make(200, 1, FULL, plain(8, 16));
    sim_start(&x);
    uint32_t p[40];
    size_t computed = 0;
    ramp(p, 40, 10);
    for (int i = 0; i < 6; i++) sim_add(&x, p, 40, 4, 0);
    for (int i = 0; i < 200 && x.n_seqs; i++) computed += sim_step(&x);
    assert_int_equal(x.n_seqs, 0);
    /* 40 once, then the last token of the prompt five times; three tokens of each output are fed back. */
    assert_int_equal(computed, 40 + 5 * 1 + 6 * 3);
    sim_end(&x);
}

/* The one who is waited for goes away: the others carry on. */
static void test_waiting_for_another_does_not_starve(void **state) {
    struct sim x = sim_make(200, 1, FULL, plain(8, 8));
    sim_start(&x);
    uint32_t p[64];
    ramp(p, 64, 10);
    for (int i = 0; i < 5; i++) sim_add(&x, p, 64, 2, 0);
    while (x.n_seqs > 1) {
        sim_step(&x);
        sim_step(&x);
        size_t oldest = 0;
        for (size_t i = 1; i < x.n_seqs; i++)
            if (x.seqs[i]->id < x.seqs[oldest]->id) oldest = i;
        sim_remove(&x, oldest);
    }
    sim_drain(&x, 20);
    sim_end(&x);
}

/* Who has waited for a block in vain computes it, though somebody else is about to do so again. */
static void test_nobody_waits_twice_for_a_block(void **state) {
    struct scheduler_options o = plain(8, 128);
    o.by_priority = true;
    struct sim x = sim_make(200, 1, FULL, o);
    sim_start(&x);
    uint32_t p[40];
    ramp(p, 40, 10);
    sim_add(&x, p, 40, 4, 0);
    struct sim_seq *waiting = sim_add(&x, p, 40, 4, 0);
    assert_int_equal(scheduler_plan(x.s), 40);
    assert_int_equal(waiting->seq.state, SEQUENCE_WAITING);
    sim_remove(&x, 0); /* before it has computed anything */
    struct sim_seq *preferred = sim_add(&x, p, 40, 4, 0);
    preferred->seq.priority = waiting->seq.priority - 1;
    scheduler_remove(x.s, &preferred->seq);
    scheduler_add(x.s, &preferred->seq);
    assert_int_equal(sim_step(&x), 80);
    sim_drain(&x, 20);
    sim_end(&x);
}

static void test_prompt_is_not_admitted_in_parts(void **state) {
    struct sim x = sim_make(30, 1, FULL, plain(8, 8)); /* 120 tokens */
    sim_start(&x);
    uint32_t p[80];
    uint64_t random = 5;
    for (int i = 0; i < 3; i++) {
        ramp(p, 80, 1000 * (uint32_t)test_random(&random, 1000));
        sim_add(&x, p, 80, 4, 0);
    }
    while (x.n_seqs) {
        sim_step(&x);
        assert_true(scheduler_running(x.s) <= 1); /* 8 of 80 tokens would fit three times */
    }
    assert_int_equal(scheduler_counts(x.s)->preemptions, 0);
    sim_end(&x);
}

/* The kv-preempt case: KV for 2,000 tokens, 20 requests of 900 + 900. */
static void test_preemptions_are_bounded(void **state) {
    struct scheduler_options o = plain(64, 512);
    o.max_model_len = 2000;
    struct sim x = sim_make(500, 1, FULL, o);
    sim_start(&x);
    uint32_t p[900];
    struct sim_seq *oldest = NULL;
    for (uint32_t i = 0; i < 20; i++) {
        ramp(p, 900, 10000 * i);
        struct sim_seq *q = sim_add(&x, p, 900, 900, 0);
        if (!oldest) oldest = q;
    }
    size_t steps = 0, known = 0;
    while (x.n_seqs) {
        bool has_oldest = false;
        for (size_t i = 0; i < x.n_seqs; i++) has_oldest |= x.seqs[i] == oldest;
        if (has_oldest && steps > 2) assert_true(oldest->seq.n_known > known); /* it always progresses */
        if (has_oldest) known = oldest->seq.n_known;
        sim_step(&x);
        assert_true(++steps < 20 * 1000);
    }
    assert_true(scheduler_counts(x.s)->preemptions > 0);
    assert_true(x.most_preempted <= SCHED_PROTECT);
    assert_true(steps < 20 * 910); /* better than one after another */
    printf("20 x (900 + 900) in 2,000 tokens: %zu steps, %llu preemptions, at most %u each\n", steps,
           (unsigned long long)scheduler_counts(x.s)->preemptions, x.most_preempted);
    sim_end(&x);
}

static void test_newest_of_lowest_priority_gives_way(void **state) {
    struct scheduler_options o = plain(8, 64);
    o.by_priority = true;
    struct sim x = sim_make(15, 1, FULL, o);
    sim_start(&x);
    uint32_t p[16];
    struct sim_seq *q[3];
    const int32_t priorities[] = {1, 5, 0};
    for (uint32_t i = 0; i < 3; i++) {
        ramp(p, 16, 1000 * i);
        q[i] = sim_add(&x, p, 16, 30, 0);
        q[i]->seq.priority = priorities[i];
        sim_step(&x);
    }
    while (!scheduler_counts(x.s)->preemptions) sim_step(&x);
    assert_int_equal(q[0]->seq.n_preempted, 0);
    assert_int_equal(q[1]->seq.n_preempted, 1);
    assert_int_equal(q[2]->seq.n_preempted, 0);
    sim_drain(&x, 200);
    sim_end(&x);
}

static void test_priority_decides_admission(void **state) {
    for (int by_priority = 0; by_priority < 2; by_priority++) {
        struct scheduler_options o = plain(1, 64);
        o.by_priority = by_priority;
        struct sim x = sim_make(100, 1, FULL, o);
        sim_start(&x);
        uint32_t p[8];
        struct sim_seq *q[4];
        const int32_t priorities[] = {0, 7, -2, 7};
        static const size_t expected[2][4] = {{0, 1, 2, 3}, {2, 0, 1, 3}};
        for (uint32_t i = 0; i < 4; i++) {
            ramp(p, 8, 100 * i);
            q[i] = sim_add(&x, p, 8, 2, 0);
            scheduler_remove(x.s, &q[i]->seq); /* priority belongs to the queue's order */
            q[i]->seq.priority = priorities[i];
            scheduler_add(x.s, &q[i]->seq);
        }
        for (size_t i = 0; i < 4; i++) {
            size_t n;
            scheduler_plan(x.s);
            struct sequence *const *planned = scheduler_planned(x.s, &n);
            assert_int_equal(n, 1);
            assert_ptr_equal(planned[0], &q[expected[by_priority][i]]->seq);
            while (x.n_seqs > 3 - i) sim_step(&x);
        }
        sim_end(&x);
    }
}

static void test_slow_reader_gives_way(void **state) {
    struct sim x = sim_make(40, 1, FULL, plain(2, 64));
    sim_start(&x);
    uint32_t p[40];
    ramp(p, 40, 0);
    struct sim_seq *slow = sim_add(&x, p, 40, 20, 0);
    sim_step(&x);
    slow->blocked = true;
    assert_int_equal(sim_step(&x), 0); /* not scheduled */
    assert_int_equal(slow->seq.state, SEQUENCE_RUNNING);
    for (uint32_t i = 1; i < 3; i++) { /* two more: only with its slot and its memory */
        ramp(p, 40, 1000 * i);
        sim_add(&x, p, 40, 20, 0);
    }
    while (x.n_seqs > 1) assert_int_not_equal(sim_step(&x), 0);
    assert_int_equal(slow->seq.state, SEQUENCE_PARKED);
    assert_int_equal(slow->seq.n_preempted, 0);
    assert_int_equal(slow->seq.n_parked, 1);
    assert_int_equal(sim_step(&x), 0);
    slow->blocked = false;
    sim_drain(&x, 40);
    assert_int_equal(scheduler_counts(x.s)->parkings, 1);
    sim_end(&x);
}

static void test_decodes_are_not_held_up_by_a_prefill(void **state) {
    struct sim x = sim_make(400, 1, FULL, plain(8, 16));
    sim_start(&x);
    uint32_t p[400];
    ramp(p, 400, 0);
    struct sim_seq *first = sim_add(&x, p, 400, 4, 0); /* older, and would take every budget */
    sim_step(&x);
    ramp(p, 8, 5000);
    first->blocked = true;
    struct sim_seq *second = sim_add(&x, p, 8, 20, 0);
    sim_step(&x);
    first->blocked = false;
    for (size_t known = second->seq.n_known; known < 27; known++) {
        assert_int_equal(sim_step(&x), 16);
        if (known < 26) assert_int_equal(second->seq.n_known, known + 1);
    }
    sim_drain(&x, 40);
    sim_end(&x);
}

static void test_window_blocks_come_back(void **state) {
    static const size_t windows[] = {16};
    struct sim x = sim_make(20, 1, windows, plain(2, 16)); /* 80 tokens */
    sim_start(&x);
    uint32_t p[400];
    ramp(p, 400, 0);
    sim_add(&x, p, 400, 100, 0); /* 500 tokens in 80 slots */
    while (x.n_seqs) {
        sim_step(&x);
        /* The window before a chunk, the chunk, and a block for the odd ends. */
        assert_true(kv_pool_stats(x.cache.pool)->n_held <= (15 + 16) / BT + 2);
    }
    /* What is left of it serves a prompt that goes on within the last window. */
    sim_end(&x);
}

static void test_waste_is_at_most_half_a_block(void **state) {
    struct scheduler_options o = plain(32, 512);
    o.max_model_len = 3000;
    struct sim x = sim_make(16000, 1, FULL, o);
    sim_start(&x);
    static uint32_t p[2000];
    uint64_t random = 99;
    double wasted = 0, n_seqs = 0, used = 0;
    for (uint32_t i = 0; i < 64; i++) {
        size_t n = 256 + test_random(&random, 1745), n_out = 1 + test_random(&random, 40);
        ramp(p, n, 100000 * (i + 1));
        sim_add(&x, p, n, n_out, 0);
    }
    while (x.n_seqs) {
        sim_step(&x);
        const struct kv_pool_stats *s = kv_pool_stats(x.cache.pool);
        wasted += (double)(s->n_held * BT - s->filled_tokens);
        used += (double)s->filled_tokens;
        n_seqs += (double)scheduler_running(x.s);
    }
    printf("waste: %.2f slots a sequence (block of %u), %.2f %% of the used\n", wasted / n_seqs, BT,
           100 * wasted / used);
    assert_true(wasted / n_seqs <= BT / 2.0);
    sim_end(&x);
}

static void test_budget_can_be_lowered(void **state) {
    struct sim x = sim_make(400, 1, FULL, plain(8, 256));
    sim_start(&x);
    uint32_t p[200];
    ramp(p, 200, 0);
    sim_add(&x, p, 200, 2, 0);
    scheduler_set_budget(x.s, 50);
    assert_int_equal(sim_step(&x), 50);
    scheduler_set_budget(x.s, 1); /* every running sequence keeps its token */
    assert_int_equal(sim_step(&x), 8);
    scheduler_set_budget(x.s, 100000);
    assert_int_equal(sim_step(&x), 142);
    sim_drain(&x, 3);
    sim_end(&x);
}

/* Room for many sequences alone makes no step longer: what a lowered budget may not go below is a token for
 * each that runs, and 32 so that prompts go on. */
static void test_lowered_budget_beside_room_for_many(void **state) {
    struct scheduler_options o = plain(256, 1024);
    o.max_live = 512;
    struct sim x = sim_make(4000, 1, FULL, o);
    sim_start(&x);
    uint32_t p[400];
    ramp(p, 400, 0);
    sim_add(&x, p, 400, 2, 0);
    scheduler_set_budget(x.s, 100);
    assert_int_equal(sim_step(&x), 100);
    scheduler_set_budget(x.s, 1);
    assert_int_equal(sim_step(&x), 1 + 32);
    sim_drain(&x, 40);
    for (uint32_t i = 0; i < 60; i++) { /* 60 that only take tokens one by one, and a prompt */
        uint32_t one[2] = {1000 + 2 * i, 1001 + 2 * i};
        sim_add(&x, one, 2, 40, 0);
    }
    scheduler_set_budget(x.s, 1024);
    assert_int_equal(sim_step(&x), 120);
    ramp(p, 400, 2000);
    sim_add(&x, p, 400, 2, 0);
    scheduler_set_budget(x.s, 1);
    assert_int_equal(sim_step(&x), 60 + 32);
    sim_drain(&x, 100);
    sim_end(&x);
}

/* Sequences that are computed whole and then end: a step goes beyond a lowered budget only for one alone. */
static void test_whole_sequences_within_a_budget(void **state) {
    struct sim x = sim_make(100, 1, (size_t[]){0},
                            (struct scheduler_options){.max_num_seqs = 8,
                                                       .max_num_batched_tokens = 64,
                                                       .max_model_len = 64,
                                                       .max_live = 16,
                                                       .in_one_step = true});
    const size_t lengths[] = {10, 10, 60, 5, 5, 64, 20, 1}, steps[] = {20, 60, 10, 64, 21};
    uint32_t prompt[64] = {0};
    x.cache.naming = false;
    sim_start(&x);
    scheduler_set_budget(x.s, 24);
    for (size_t i = 0; i < 8; i++) sim_add(&x, prompt, lengths[i], 0, i);
    for (size_t i = 0; i < 5; i++) assert_int_equal(sim_step(&x), steps[i]);
    assert_int_equal(sim_step(&x), 0);
    sim_end(&x);
}

/* Admitted together though their prompts take three steps; the next ones come when the longest has ended. */
static void test_static_batch(void **state) {
    struct scheduler_options o = plain(3, 16);
    o.static_batch = true;
    struct sim x = sim_make(100, 1, FULL, o);
    sim_start(&x);
    uint32_t p[16];
    const size_t outputs[] = {2, 20, 5, 3, 3};
    struct sim_seq *q[5];
    for (uint32_t i = 0; i < 5; i++) {
        ramp(p, 16, 100 * i);
        q[i] = sim_add(&x, p, 16, outputs[i], 0);
    }
    assert_int_equal(sim_step(&x), 16);
    assert_int_equal(scheduler_running(x.s), 3);
    size_t steps = 1;
    while (x.n_done < 3) {
        assert_int_equal(q[3]->seq.state, SEQUENCE_WAITING);
        assert_int_equal(q[4]->seq.state, SEQUENCE_WAITING);
        sim_step(&x);
        steps++;
    }
    /* 48 prompt tokens at 16 a step, beside which the first and the second decode: the second one's first
     * token comes in step 2 or 3, and it has 20. */
    assert_true(steps >= 21 && steps <= 24);
    sim_step(&x);
    assert_int_equal(scheduler_running(x.s), 2);
    sim_drain(&x, 20);
    sim_end(&x);
}

/* Blocks for the longest sequence there may be, whoever asks for how little. */
static void test_reservation(void **state) {
    struct scheduler_options o = plain(8, 64);
    o.max_model_len = o.reserve_tokens = 40;
    struct sim x = sim_make(35, 1, FULL, o); /* 3 times 10 blocks, and 5 that are no use */
    sim_start(&x);
    uint32_t p[4];
    for (uint32_t i = 0; i < 7; i++) {
        ramp(p, 4, 100 * i);
        sim_add(&x, p, 4, 3, 0);
    }
    for (size_t left = 7; left; left -= left < 3 ? left : 3) {
        size_t n = left < 3 ? left : 3;
        for (int i = 0; i < 3; i++) {
            assert_int_equal(x.n_seqs, left);
            sim_step(&x);
            if (i < 2) assert_int_equal(kv_pool_stats(x.cache.pool)->n_held, n * 10);
        }
    }
    assert_int_equal(x.n_seqs, 0);
    sim_end(&x);
}

static void test_score_rows_are_limited(void **state) {
    struct scheduler_options o = plain(8, 64);
    o.max_score_rows = 10;
    struct sim x = sim_make(400, 1, FULL, o);
    sim_start(&x);
    uint32_t p[60];
    ramp(p, 60, 0);
    sim_add(&x, p, 60, 1, 0);
    sim_drain(&x, 4);
    struct sim_seq *q = sim_add(&x, p, 60, 1, 0);
    q->seq.score_prompt = true;
    size_t n_steps = 0;
    while (x.n_seqs) {
        size_t before = q->seq.n_computed, n = scheduler_plan(x.s);
        assert_true(n <= 10);
        assert_true(before > 0 || q->seq.n_cached == 0); /* positions to be scored are computed */
        sim_compute(&x, q);
        scheduler_commit(x.s, &q->seq);
        q->seq.n_scored = q->seq.n_computed;
        n_steps++;
        if (q->seq.n_computed == 60) sim_remove(&x, 0);
    }
    assert_int_equal(n_steps, 6);
    sim_end(&x);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_traffic),
        cmocka_unit_test(test_random_traffic_of_baselines),
        cmocka_unit_test(test_prefix_is_shared_and_copied),
        cmocka_unit_test(test_generated_tokens_are_found),
        cmocka_unit_test(test_uncomputed_tokens_are_not_named),
        cmocka_unit_test(test_same_prompts_at_once_are_computed_once),
        cmocka_unit_test(test_waiting_for_another_does_not_starve),
        cmocka_unit_test(test_nobody_waits_twice_for_a_block),
        cmocka_unit_test(test_prompt_is_not_admitted_in_parts),
        cmocka_unit_test(test_preemptions_are_bounded),
        cmocka_unit_test(test_newest_of_lowest_priority_gives_way),
        cmocka_unit_test(test_priority_decides_admission),
        cmocka_unit_test(test_slow_reader_gives_way),
        cmocka_unit_test(test_decodes_are_not_held_up_by_a_prefill),
        cmocka_unit_test(test_window_blocks_come_back),
        cmocka_unit_test(test_waste_is_at_most_half_a_block),
        cmocka_unit_test(test_budget_can_be_lowered),
        cmocka_unit_test(test_lowered_budget_beside_room_for_many),
        cmocka_unit_test(test_whole_sequences_within_a_budget),
        cmocka_unit_test(test_static_batch),
        cmocka_unit_test(test_reservation),
        cmocka_unit_test(test_score_rows_are_limited),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
