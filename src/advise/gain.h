/* Gains by simulation: the load that was measured, played with and without what a verdict would change. Who
 * plays it is told by the caller; nothing of engines is known here. */
#ifndef ADVISE_GAIN_H
#define ADVISE_GAIN_H

#include "advise/tree.h"

#include <quire/error.h>

/* Requests of a mean length, and the server that they go to. */
struct gain_load {
    double input, output; /* tokens of a prompt and an answer, mean */
    double cached;        /* of a prompt: those that all have in common and the cache finds */
    double in_flight;     /* that many at once, each followed by the next (closed loop); 0: by `rate` */
    double rate;          /* requests a second */
    double max_num_seqs, max_batched_tokens, max_model_len, max_queue, kv_tokens; /* 0: not known */
    bool prefix_caching, chunked_prefill;
    double slow; /* a step takes so many times what the player says */
    double weight_factor; /* reading the weights takes so many times as long */
    double replicas;      /* servers that share the load */
};

struct gain_outcome {
    double requests_per_s, output_per_s;
    double ttft_p95_ms, tpot_p95_ms, itl_p99_ms; /* 0: not known */
    double step_s;                               /* in steps, for each request */
};

struct gain_player {
    const char *source;   /* of the step times, for people */
    const char *cpu_path; /* what they were measured with */
    size_t n_threads;
    double max_model_len; /* the longest sequence that can be played */
    int (*play)(void *ctx, const struct gain_load *load, struct gain_outcome *out, struct error *err);
    void *ctx;
};

/* What was simulated, in struct advice. */
struct gain_base {
    bool done;
    char why_not[160]; /* when it was asked for and not done; else empty */
    const char *source;
    struct gain_load load;
    double measured_output_per_s, simulated_output_per_s;
};

/* Replaces the gains and what is expected of the verdicts that change something that can be played, and puts
 * them in order. QUIRE_EINVAL: the step times are not of such a server. */
int gain_simulate(const struct figures *f, const struct gain_player *player, struct advice *a,
                  struct gain_base *base, struct error *err);

#endif
