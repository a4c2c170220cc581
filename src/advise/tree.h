/* The decision tree: from figures to verdicts, the one with the largest expected gain first. A pure function.
 *
 * too many tokens? -> is the device full, or kept from its cores? -> is KV the bottleneck? -> weight format
 * -> speculation -> more devices. docs/advise.md has each verdict's condition and formula. */
#ifndef ADVISE_TREE_H
#define ADVISE_TREE_H

#include "advise/figures.h"
#include "load/summary.h"

enum verdict_kind {
    /* too many tokens */
    VERDICT_CHANGING_FIELD,
    VERDICT_CUT_HISTORY,
    VERDICT_CHANGING_ORDER,
    VERDICT_PREFIX_CACHE_OFF,
    VERDICT_LONG_PROMPTS,
    VERDICT_LONG_ANSWERS,
    /* the device */
    VERDICT_CPU_STARVED,
    VERDICT_CPU_PATH,
    VERDICT_THREADS,
    VERDICT_BATCH_LIMIT,
    VERDICT_TOKEN_BUDGET,
    VERDICT_CHUNKED_PREFILL_OFF,
    VERDICT_BATCH_TOO_LARGE,
    VERDICT_QUEUE_LIMIT,
    VERDICT_CONNECTION_LIMIT,
    VERDICT_SLOW_READERS,
    VERDICT_CLIENTS_LEAVE,
    VERDICT_FAILING_REQUESTS,
    /* KV memory */
    VERDICT_KV_POOL,
    VERDICT_CACHE_TOO_SMALL,
    VERDICT_CONTEXT_RESERVED,
    /* the rest */
    VERDICT_WEIGHT_FORMAT,
    VERDICT_SPECULATION,
    VERDICT_SLO_IMPOSSIBLE,
    VERDICT_MORE_DEVICES,
    VERDICT_LOW_TRAFFIC,
    VERDICTS
};
extern const char *const verdict_names[VERDICTS]; /* "changing-field", ... */

#define VERDICT_RESTS 8
#define VERDICT_TEXT  320
#define VERDICTS_MOST VERDICTS

/* What a verdict would change, as far as it can be simulated. 0 and false: it stays. */
struct verdict_change {
    bool any;
    double max_num_seqs, max_batched_tokens;
    double kv_factor, input_factor, output_factor, step_factor; /* times as much memory, as long */
    double weight_factor;                                       /* times as many bytes of weights */
    double replicas;                                            /* so many servers instead of one */
    double cached_share;                                        /* of the prompt tokens, found in the cache */
    bool prefix_caching, chunked_prefill;                       /* turned on */
};

struct verdict {
    enum verdict_kind kind;
    struct verdict_change change;
    bool simulated; /* gain and `expected` are of a simulation (advise/gain.h); else of a formula */
    double gain; /* share of the time or of the requests that `expected` speaks of, 0 to 1: what the order is
                    by */
    char what[VERDICT_TEXT];          /* what is wrong */
    char expected[VERDICT_TEXT];      /* the gain, and the formula it comes from */
    char attempt[VERDICT_TEXT];       /* the command or flag to try */
    char falsified[VERDICT_TEXT];     /* what would show that it is wrong */
    enum figure rests[VERDICT_RESTS]; /* the figures it rests on */
    size_t n_rests;
    double tokens_a_day, money_a_day; /* that it wastes; 0: not known, or no price was given */
};

enum bound { BOUND_UNKNOWN, BOUND_NEITHER, BOUND_MEMORY, BOUND_COMPUTE, BOUND_BOTH };
extern const char *const bound_names[]; /* by enum bound */

struct advice {
    struct verdict verdicts[VERDICTS_MOST];
    size_t n;
    bool traffic;                  /* there was any; without it nothing is said */
    enum bound bound;              /* which of KV memory and computing is full */
    bool slo_known[3], slo_met[3]; /* TTFT, TPOT, E2E: P95 within --slo */
    bool unseen[VERDICTS];         /* a figure that this verdict needs is not known */
};

struct wishes {
    struct slo slo;
    double price; /* of the server, for an hour; 0: not given */
};

void advise(const struct figures *f, const struct wishes *w, struct advice *out);
void advice_sort(struct advice *a); /* the largest gain first; equal ones stay as they are */

/* A figure that `kind` needs and f does not have; FIGURES: it has all. */
enum figure advise_missing(const struct figures *f, enum verdict_kind kind);

#endif
