#include "engine/scheduler.h"

#include "base/error.h"
#include "base/size.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define PROMPT_ROWS 32 /* of a lowered budget, beside a token for each running sequence */

/* Keys of blocks that this step will compute. An entry counts only with the current round. */
struct pending {
    struct hash128 *keys;
    uint64_t *rounds;
    size_t mask, n; /* n: entries of this round, at most half of all */
    uint64_t round;
};

struct scheduler {
    struct scheduler_options o;
    struct kv_cache *cache;
    struct sequence **queue; /* [max_live] binary heap, the next one first */
    size_t n_queue;
    struct sequence **parked; /* [max_live] in no order */
    size_t n_parked;
    struct sequence **running; /* [max_num_seqs] by rank: the oldest of highest priority first */
    size_t n_running;
    struct sequence **planned; /* [max_num_seqs] */
    size_t budget;             /* tokens of a step */
    size_t n_planned, n_planned_tokens, n_planned_scores;
    struct sequence **aside; /* [max_num_seqs] out of the queue while a plan is made */
    struct kv_table *tables; /* [max_num_seqs] by slot */
    uint32_t *table_blocks;
    size_t *free_slots; /* [max_num_seqs] stack */
    size_t n_free_slots;
    struct pending pending;
    struct scheduler_counts counts;
};

/* ---- order ----------------------------------------------------------------------------------------------
 */

static bool ranks_before(const struct scheduler *s, const struct sequence *a, const struct sequence *b) {
    if (s->o.by_priority && a->priority != b->priority) return a->priority < b->priority;
    return a->arrival < b->arrival;
}

static void queue_set(struct scheduler *s, size_t i, struct sequence *seq) {
    s->queue[i] = seq;
    seq->place = i;
}

static void queue_up(struct scheduler *s, size_t i) {
    struct sequence *seq = s->queue[i];
    for (; i && ranks_before(s, seq, s->queue[(i - 1) / 2]); i = (i - 1) / 2)
        queue_set(s, i, s->queue[(i - 1) / 2]);
    queue_set(s, i, seq);
}

static void queue_down(struct scheduler *s, size_t i) {
    struct sequence *seq = s->queue[i];
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= s->n_queue) break;
        if (child + 1 < s->n_queue && ranks_before(s, s->queue[child + 1], s->queue[child])) child++;
        if (!ranks_before(s, s->queue[child], seq)) break;
        queue_set(s, i, s->queue[child]);
        i = child;
    }
    queue_set(s, i, seq);
}

static void queue_push(struct scheduler *s, struct sequence *seq) {
    seq->state = SEQUENCE_WAITING;
    queue_set(s, s->n_queue, seq);
    queue_up(s, s->n_queue++);
}

static void queue_remove(struct scheduler *s, struct sequence *seq) {
    size_t i = seq->place;
    struct sequence *last = s->queue[--s->n_queue];
    seq->state = SEQUENCE_NEW;
    if (last == seq) return;
    queue_set(s, i, last);
    queue_down(s, i);
    queue_up(s, last->place);
}

static void park(struct scheduler *s, struct sequence *seq) {
    seq->state = SEQUENCE_PARKED;
    seq->place = s->n_parked;
    s->parked[s->n_parked++] = seq;
}

static void unpark(struct scheduler *s, struct sequence *seq) {
    struct sequence *last = s->parked[--s->n_parked];
    s->parked[seq->place] = last;
    last->place = seq->place;
    seq->state = SEQUENCE_NEW;
}

static void running_insert(struct scheduler *s, struct sequence *seq) {
    size_t i = s->n_running++;
    for (; i && ranks_before(s, seq, s->running[i - 1]); i--) {
        s->running[i] = s->running[i - 1];
        s->running[i]->place = i;
    }
    s->running[i] = seq;
    seq->place = i;
    seq->state = SEQUENCE_RUNNING;
    seq->slot = s->free_slots[--s->n_free_slots];
    seq->table = &s->tables[seq->slot];
}

static void running_remove(struct scheduler *s, struct sequence *seq) {
    kv_release(s->cache, seq->table);
    s->free_slots[s->n_free_slots++] = seq->slot;
    s->n_running--;
    for (size_t i = seq->place; i < s->n_running; i++) {
        s->running[i] = s->running[i + 1];
        s->running[i]->place = i;
    }
    seq->table = NULL;
    seq->state = SEQUENCE_NEW;
    s->n_planned_tokens -= seq->n_scheduled; /* when taken out again while a plan is made */
    seq->n_scheduled = 0;
}

/* ---- blocks being computed ------------------------------------------------------------------------------
 */

static size_t pending_slots(const struct scheduler_options *o) {
    size_t n = 16, most = o->max_num_batched_tokens / o->cache->block_tokens + o->max_num_seqs;
    while (n < 2 * most) n *= 2;
    return n;
}

static size_t pending_slot(const struct pending *p, struct hash128 key) {
    size_t i = (size_t)key.lo & p->mask;
    while (p->rounds[i] == p->round && !hash128_equal(p->keys[i], key)) i = (i + 1) & p->mask;
    return i;
}

static bool is_pending(const struct pending *p, struct hash128 key) {
    return p->rounds[pending_slot(p, key)] == p->round;
}

static void add_pending(struct scheduler *s, const struct sequence *seq) {
    size_t bt = s->cache->block_tokens, end = (seq->n_computed + seq->n_scheduled) / bt;
    struct pending *p = &s->pending;
    for (size_t i = seq->n_computed / bt; i < end && i < seq->n_full && p->n <= p->mask / 2; i++) {
        size_t slot = pending_slot(p, seq->keys[i + 1]);
        p->n += p->rounds[slot] != p->round;
        p->keys[slot] = seq->keys[i + 1];
        p->rounds[slot] = p->round;
    }
}

/* ---- preemption -----------------------------------------------------------------------------------------
 */

static void preempt(struct scheduler *s, struct sequence *seq) {
    bool blocked = s->o.blocked(seq);
    running_remove(s, seq);
    seq->n_lost = size_max(seq->n_lost, seq->n_computed);
    seq->n_computed = 0;
    seq->waited_for = 0;
    if (blocked) {
        seq->n_parked++;
        s->counts.parkings++;
        park(s, seq);
    } else {
        seq->n_preempted++;
        s->counts.preemptions++;
        queue_push(s, seq);
    }
}

/* Running sequence that gives way first. */
static struct sequence *pick_blocked(struct scheduler *s) {
    for (size_t i = s->n_running; i-- > 0;)
        if (s->o.blocked(s->running[i])) return s->running[i];
    return NULL;
}

static struct sequence *pick_victim(struct scheduler *s) {
    struct sequence *blocked = pick_blocked(s);
    if (blocked) return blocked;
    for (size_t i = s->n_running; i-- > 1;)
        if (s->running[i]->n_preempted < SCHED_PROTECT) return s->running[i];
    return s->running[s->n_running - 1];
}

/* Blocks for the sequence's next n tokens, at the cost of others; false when it has been preempted itself. */
static bool make_room(struct scheduler *s, struct sequence *seq, size_t n) {
    while (!kv_extend(s->cache, seq->table, seq->n_computed + n)) {
        struct sequence *victim = pick_victim(s);
        preempt(s, victim);
        if (victim == seq) return false;
    }
    return true;
}

/* ---- running sequences ----------------------------------------------------------------------------------
 */

static bool wants_scores(const struct sequence *seq) {
    return seq->score_prompt && seq->n_scored + 1 < seq->n_prompt;
}

/* Tokens that a sequence with so many left may have in this step. */
static size_t share(const struct scheduler *s, const struct sequence *seq, size_t left) {
    size_t budget = s->budget - size_min(s->budget, s->n_planned_tokens);
    if (wants_scores(seq)) budget = size_min(budget, s->o.max_score_rows - s->n_planned_scores);
    if (s->o.chunked) return size_min(left, size_min(budget, s->cache->chunk_tokens));
    bool alone = s->o.in_one_step && !s->n_planned_tokens;
    return left <= budget || alone ? left : 0;
}

static void schedule(struct scheduler *s, struct sequence *seq, size_t n) {
    seq->n_scheduled = n;
    s->n_planned_tokens += n;
    if (wants_scores(seq)) s->n_planned_scores += n;
}

static void plan_running(struct scheduler *s, bool decodes) {
    for (size_t i = 0; i < s->n_running;) {
        struct sequence *seq = s->running[i];
        size_t left = sequence_left(seq);
        size_t n = (left == 1) == decodes && !s->o.blocked(seq) ? share(s, seq, left) : 0;
        if (n && !make_room(s, seq, n)) {
            i = size_min(i, s->n_running); /* the next one has moved here */
            continue;
        }
        if (n) schedule(s, seq, n);
        i = seq->place + 1; /* victims before it have moved it */
    }
}

/* ---- admission ------------------------------------------------------------------------------------------
 */

static size_t growth(const struct scheduler *s, const struct sequence *seq, size_t most) {
    size_t now = kv_peak_blocks(s->cache, seq->n_known), end = kv_peak_blocks(s->cache, seq->max_len);
    return size_min(end > now ? end - now : 0, most);
}

/* Free blocks to be left for running sequences when seq comes in: what their prefills lack, and some growth.
 */
static size_t headroom(const struct scheduler *s, const struct sequence *seq) {
    static const size_t each[SCHED_PROTECT] = {1, 4, 16};
    size_t most = seq->n_preempted < SCHED_PROTECT ? each[seq->n_preempted] * s->cache->n_groups : SIZE_MAX;
    if (!s->n_running) return 0;
    size_t total = s->o.reserve_tokens ? 0 : growth(s, seq, most);
    for (size_t i = 0; i < s->n_running; i++) {
        if (s->o.reserve_tokens) { /* in groups with a window some of it may have come back */
            total += kv_needed(s->cache, s->running[i]->table, s->o.reserve_tokens);
            continue;
        }
        total += kv_needed(s->cache, s->running[i]->table, s->running[i]->n_known);
        total += growth(s, s->running[i], most);
    }
    return total;
}

static size_t cache_limit(const struct sequence *seq) {
    if (!seq->read_cache) return 0;
    size_t limit = seq->n_known - 1; /* the last token is always computed: its logits are wanted */
    if (wants_scores(seq)) limit = size_min(limit, seq->n_scored);
    return limit;
}

static bool waits_for_other(struct scheduler *s, struct sequence *seq, const struct kv_hit *hit) {
    if (!s->cache->naming || hit->n_blocks >= seq->n_full || hit->n_blocks < seq->waited_for) return false;
    if (cache_limit(seq) <= hit->n_blocks * s->cache->block_tokens) return false; /* it could not read more */
    if (!is_pending(&s->pending, seq->keys[hit->n_blocks + 1])) return false;
    seq->waited_for = hit->n_blocks + 1;
    return true;
}

static void admit(struct scheduler *s, struct sequence *seq, struct kv_hit *hit) {
    queue_remove(s, seq);
    running_insert(s, seq); /* takes the slot whose table kv_lookup has filled */
    kv_attach(s->cache, seq->table, hit);
    seq->n_cached = seq->n_computed = hit->n_tokens;
    if (!seq->admitted_before && seq->read_cache && !wants_scores(seq) && s->cache->naming) {
        s->counts.prefix_queries += seq->n_prompt;
        s->counts.prefix_hits += hit->n_tokens;
    }
    seq->admitted_before = true;
}

enum admission { ADMITTED, SET_ASIDE, NO_PLACE, NO_BLOCKS, NO_TOKENS };

static enum admission try_admit(struct scheduler *s, struct sequence *seq) {
    struct kv_hit hit;
    struct kv_tokens tokens = sequence_tokens(seq);
    while (!s->n_free_slots) {
        struct sequence *blocked = pick_blocked(s);
        if (!blocked) return NO_PLACE;
        preempt(s, blocked);
    }
    for (;;) {
        struct kv_table *table = &s->tables[s->free_slots[s->n_free_slots - 1]];
        kv_lookup(s->cache, &tokens, cache_limit(seq), table, &hit);
        if (!s->o.static_batch && waits_for_other(s, seq, &hit)) return SET_ASIDE;
        size_t held = size_max(s->o.reserve_tokens, seq->n_known);
        size_t need = kv_needed_after(s->cache, &hit, held) + hit.n_from_free;
        if (need + headroom(s, seq) <= kv_pool_stats(s->cache->pool)->n_free) break;
        struct sequence *blocked = pick_blocked(s);
        if (!blocked) return NO_BLOCKS;
        preempt(s, blocked);
    }
    if (!s->o.static_batch && !share(s, seq, seq->n_known - hit.n_tokens)) return NO_TOKENS;
    admit(s, seq, &hit);
    bool reserved = !s->o.reserve_tokens || kv_reserve(s->cache, seq->table, s->o.reserve_tokens);
    assert(reserved); /* what was free when it was admitted */
    (void)reserved;
    size_t n = share(s, seq, sequence_left(seq)); /* less may have been attached than found */
    if (!n || !kv_extend(s->cache, seq->table, seq->n_computed + n)) n = 0; /* next step */
    schedule(s, seq, n);
    add_pending(s, seq);
    return ADMITTED;
}

static void count_held(struct scheduler *s, enum admission why) {
    bool lowered = s->budget < s->o.max_num_batched_tokens;
    enum quire_lack lack = why == NO_PLACE    ? QUIRE_LACK_SEQS
                           : why == NO_BLOCKS ? QUIRE_LACK_BLOCKS
                           : lowered          ? QUIRE_LACK_TIME
                                              : QUIRE_LACK_TOKENS;
    if (s->n_planned_tokens) s->counts.held_steps[lack]++;
}

static void plan_waiting(struct scheduler *s) {
    size_t n_aside = 0;
    bool batch = s->o.static_batch;
    if (batch && s->n_running) return;
    enum admission a = NO_TOKENS; /* what ends the loop where it is not a sequence that lacks something */
    while (s->n_queue && n_aside < s->o.max_num_seqs && (batch || s->n_planned_tokens < s->budget)) {
        struct sequence *seq = s->queue[0];
        a = try_admit(s, seq);
        if (a > SET_ASIDE) break;
        if (a == ADMITTED) continue;
        queue_remove(s, seq);
        s->aside[n_aside++] = seq;
    }
    if (s->n_queue && n_aside < s->o.max_num_seqs) count_held(s, a);
    while (n_aside) queue_push(s, s->aside[--n_aside]);
}

/* ---- a step ---------------------------------------------------------------------------------------------
 */

static void unpark_drained(struct scheduler *s) {
    for (size_t i = s->n_parked; i-- > 0;) {
        struct sequence *seq = s->parked[i];
        if (s->o.blocked(seq)) continue;
        unpark(s, seq);
        queue_push(s, seq);
    }
}

void scheduler_set_budget(struct scheduler *s, size_t n_tokens) {
    if (!s->o.chunked && !s->o.in_one_step) return;
    size_t least = size_min(s->o.max_num_seqs, s->n_running + PROMPT_ROWS);
    s->budget = size_min(s->o.max_num_batched_tokens, size_max(n_tokens, least));
}

size_t scheduler_plan(struct scheduler *s) {
    s->n_planned = s->n_planned_tokens = s->n_planned_scores = 0;
    for (size_t i = 0; i < s->n_running; i++) s->running[i]->n_scheduled = 0;
    s->pending.round++;
    s->pending.n = 0;
    unpark_drained(s);
    plan_running(s, true);
    plan_running(s, false);
    for (size_t i = 0; i < s->n_running; i++) add_pending(s, s->running[i]);
    plan_waiting(s);
    for (size_t i = 0; i < s->n_running; i++)
        if (s->running[i]->n_scheduled) s->planned[s->n_planned++] = s->running[i];
    return s->n_planned_tokens;
}

struct sequence *const *scheduler_planned(const struct scheduler *s, size_t *n) {
    *n = s->n_planned;
    return s->planned;
}

void scheduler_commit(struct scheduler *s, struct sequence *seq) {
    size_t before = seq->n_computed;
    struct kv_tokens tokens = sequence_tokens(seq);
    seq->n_computed += seq->n_scheduled;
    seq->n_scheduled = 0;
    if (before < seq->n_lost) s->counts.recomputed_tokens += size_min(seq->n_computed, seq->n_lost) - before;
    kv_advance(s->cache, seq->table, &tokens, seq->n_computed);
}

/* ---- coming and going -----------------------------------------------------------------------------------
 */

void scheduler_add(struct scheduler *s, struct sequence *seq) {
    queue_push(s, seq);
}

void scheduler_remove(struct scheduler *s, struct sequence *seq) {
    switch (seq->state) {
    case SEQUENCE_NEW: break;
    case SEQUENCE_WAITING: queue_remove(s, seq); break;
    case SEQUENCE_PARKED: unpark(s, seq); break;
    case SEQUENCE_RUNNING: running_remove(s, seq); break;
    }
}

struct sequence *scheduler_any(struct scheduler *s) {
    if (s->n_running) return s->running[s->n_running - 1];
    if (s->n_queue) return s->queue[s->n_queue - 1];
    return s->n_parked ? s->parked[s->n_parked - 1] : NULL;
}

size_t scheduler_running(const struct scheduler *s) {
    return s->n_running;
}
size_t scheduler_waiting(const struct scheduler *s) {
    return s->n_queue + s->n_parked;
}
size_t scheduler_parked(const struct scheduler *s) {
    return s->n_parked;
}
const struct scheduler_counts *scheduler_counts(const struct scheduler *s) {
    return &s->counts;
}

struct sequence *scheduler_head(struct scheduler *s) {
    return s->n_queue ? s->queue[0] : NULL;
}

size_t scheduler_blocked(const struct scheduler *s) {
    size_t n = 0;
    for (size_t i = 0; i < s->n_running; i++) n += s->o.blocked(s->running[i]);
    return n;
}

/* ---- life -----------------------------------------------------------------------------------------------
 */

static size_t table_entries(const struct scheduler_options *o) {
    return kv_table_blocks(o->max_model_len, o->cache->block_tokens);
}

size_t scheduler_bytes(const struct scheduler_options *o) {
    size_t per_seq, per_live, tables, pending, total = sizeof(struct scheduler);
    per_seq = 3 * sizeof(struct sequence *) + sizeof(size_t) + sizeof(struct kv_table);
    if (!size_mul(table_entries(o), o->cache->n_groups * sizeof(uint32_t), &tables) ||
        !size_add(per_seq, tables, &per_seq) || !size_mul(per_seq, o->max_num_seqs, &per_seq) ||
        !size_mul(o->max_live, 2 * sizeof(struct sequence *), &per_live) ||
        o->max_num_batched_tokens > SIZE_MAX / 256 || o->max_num_seqs > SIZE_MAX / 256)
        return 0;
    pending = pending_slots(o) * (sizeof(struct hash128) + sizeof(uint64_t));
    if (!size_add(total, per_seq, &total) || !size_add(total, per_live, &total) ||
        !size_add(total, pending, &total))
        return 0;
    return total;
}

static bool allocate(struct scheduler *s) {
    const struct scheduler_options *o = &s->o;
    size_t n_pending = pending_slots(o), entries = table_entries(o), n_groups = s->cache->n_groups;
    s->queue = calloc(o->max_live, sizeof(struct sequence *));
    s->parked = calloc(o->max_live, sizeof(struct sequence *));
    s->running = calloc(o->max_num_seqs, sizeof(struct sequence *));
    s->planned = calloc(o->max_num_seqs, sizeof(struct sequence *));
    s->aside = calloc(o->max_num_seqs, sizeof(struct sequence *));
    s->tables = calloc(o->max_num_seqs, sizeof *s->tables);
    s->table_blocks = calloc(o->max_num_seqs, entries * n_groups * sizeof *s->table_blocks);
    s->free_slots = calloc(o->max_num_seqs, sizeof *s->free_slots);
    s->pending.keys = calloc(n_pending, sizeof *s->pending.keys);
    s->pending.rounds = calloc(n_pending, sizeof *s->pending.rounds);
    s->pending.mask = n_pending - 1;
    if (!s->queue || !s->parked || !s->running || !s->planned || !s->aside || !s->tables ||
        !s->table_blocks || !s->free_slots || !s->pending.keys || !s->pending.rounds)
        return false;
    for (size_t i = 0; i < o->max_num_seqs; i++) {
        s->free_slots[s->n_free_slots++] = o->max_num_seqs - 1 - i;
        for (size_t g = 0; g < n_groups; g++)
            s->tables[i].blocks[g] = s->table_blocks + (i * n_groups + g) * entries;
    }
    return true;
}

int scheduler_create(const struct scheduler_options *o, struct scheduler **out, struct error *err) {
    *out = NULL;
    if (!o->max_num_seqs || o->max_num_batched_tokens < o->max_num_seqs || o->max_live < o->max_num_seqs ||
        !scheduler_bytes(o))
        return error_set(err, QUIRE_EINVAL, "scheduler limits are out of range");
    struct scheduler *s = calloc(1, sizeof *s);
    if (s) {
        s->o = *o;
        s->cache = o->cache;
        s->budget = o->max_num_batched_tokens;
    }
    if (!s || !allocate(s)) {
        scheduler_free(s);
        return error_set(err, QUIRE_ENOMEM, "out of memory for a queue of %zu requests", o->max_live);
    }
    *out = s;
    return 0;
}

void scheduler_free(struct scheduler *s) {
    if (!s) return;
    free(s->queue);
    free(s->parked);
    free(s->running);
    free(s->planned);
    free(s->aside);
    free(s->tables);
    free(s->table_blocks);
    free(s->free_slots);
    free(s->pending.keys);
    free(s->pending.rounds);
    free(s);
}
