/* `quire plan`: what a model needs, before anything is started. Memory is the engine's own plan
 * (engine/outlook.h), so that it is what `quire serve` reports; what follows from it is here. */
#ifndef PLAN_FORECAST_H
#define PLAN_FORECAST_H

#include "base/buf.h"
#include "engine/outlook.h"

#include <quire/error.h>
#include <quire/quire.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What a machine does at most, and the shares of that which are expected. */
struct forecast_machine {
    const char *label;            /* NULL: this machine */
    double read_per_s, ops_per_s; /* 0: not known */
    double read_share, ops_share;
    bool measured;
};

struct forecast;
struct forecast_speed;

/* Stands in for the roofline: plays n streams of requests through on a machine that has been measured. */
struct forecast_player {
    /* Fills streams, times and rates, and within_slo; f has all but speed, advice and knobs. */
    int (*play)(void *ctx, const struct forecast *f, size_t n, struct forecast_speed *out, struct error *err);
    void *ctx;
    /* what was measured, and how well the step times that were fitted to it agree, at worst of all regions */
    const char *source, *model, *cpu_path; /* source: a file; NULL: just now */
    size_t n_threads, n_steps;
    double median_error, p95_error;
};

struct forecast_ask {
    const char *model;                 /* as it was named */
    const char *weight_format;         /* of a description of weights that are not there; NULL: they are */
    uint64_t hub_bytes;                /* of weights on a hub that were not fetched; 0: none */
    const struct quire_config *config; /* weights and limits, as quire_open would get them */
    struct outlook_device device;
    struct forecast_machine machine;
    const struct forecast_player *player; /* NULL: the roofline, if the machine's speed is known */
    size_t n_input, n_output;             /* tokens of a request, for speed and cost */
    double slo_ttft_s, slo_tpot_s;        /* 0: none */
    double rate, price_per_hour;          /* requests a second; 0: not asked for */
    size_t concurrency; /* sequences at once; 0: max_num_seqs, and that all have KV is not asked for */
};

/* Layers that share a block table, as formula: bytes of a token = layers x chunks x heads x head_dim x bytes
 * of an element. Chunks are K and V, or with latent attention the one row that holds both. */
struct forecast_group {
    const char *kind; /* "MHA", "GQA", "MQA", "MLA" */
    size_t n_chunks;
    size_t n_layers, n_heads, n_kv_heads, head_dim, window; /* window 0: full attention */
    uint64_t token_bytes;
};

struct forecast_knob {
    const char *knob; /* a flag, or what would be one */
    char value[24];
    bool chosen, planned_only; /* planned_only: Quire does not have it yet */
    uint64_t weights_bytes, sequence_bytes;
    double n_fit; /* sequences of max_model_len */
};
#define FORECAST_MAX_KNOBS 32

/* What would make n sequences of max_model_len fit, each by itself; 0 or NULL: it cannot. */
struct forecast_advice {
    size_t n, max_model_len, max_num_seqs;
    uint64_t memory_bytes; /* of the device, in all */
    const char *weight_format;
};

/* Expected of `streams` that each ask again when their answer has ended. */
struct forecast_speed {
    bool known, within_slo; /* within_slo: so many streams are (as many as fit, or fewer) */
    size_t streams;
    double ttft_s, tpot_s, requests_per_s, output_per_s, total_per_s; /* played: medians */
    double ttft_p95_s, tpot_p95_s;                                    /* 0: not known */
    double replicas;                                                  /* for the rate; 0: not asked for */
    double cost_output, cost_total;                                   /* of a million tokens; 0: no price */
};

/* A figure beside a measurement of the same load. */
struct forecast_check {
    char name[64];
    const char *unit;
    double measured, low, high; /* median, least and most of so many repeats */
    size_t n_repeats;
    double expected;
    double error;      /* expected / measured - 1; NaN when 0 was measured */
    double same_speed; /* the error with steps as long in all as they were then; NaN: not known */
};
#define FORECAST_MAX_CHECKS 96

struct forecast {
    struct outlook o;
    struct error refusal;                              /* code 0: the engine would start */
    uint64_t n_params, n_params_used, n_params_routed; /* used: of a token; routed: of all experts */
    uint64_t tensor_bytes;                             /* in the model's files */
    struct forecast_group groups[BATCH_MAX_GROUPS];
    size_t n_groups, elem_bytes;
    uint64_t token_bytes;    /* KV of a token, by formula, while no window is full */
    uint64_t sequence_bytes; /* KV of a sequence of max_model_len, in blocks */
    size_t concurrency;
    bool all_fit;          /* concurrency sequences of max_model_len have KV at the same time */
    uint64_t wanted_bytes; /* their KV */
    double n_fit;          /* sequences of max_model_len that memory has room for */
    size_t longest;        /* that concurrency sequences can have; 0: none */
    struct forecast_knob knobs[FORECAST_MAX_KNOBS];
    size_t n_knobs;
    struct forecast_speed speed;
    const char *checked; /* the report that the checks are from; NULL: none */
    struct forecast_check checks[FORECAST_MAX_CHECKS];
    size_t n_checks;
    struct forecast_advice advice; /* n 0: all fits */
};

/* Errors as quire_open, but that it does not fit is no error: it is in the forecast. */
int forecast_make(const struct forecast_ask *ask, struct forecast *out, struct error *err);

/* Whether n sequences of max_model_len have KV at the same time, where an engine would start. */
bool forecast_holds(const struct outlook *o, size_t n);
/* Whether an engine of n sequences of len tokens would start and hold them all. */
bool forecast_holds_at(const struct forecast_ask *ask, size_t n, size_t len);
/* One line, for when what was asked for does not fit: what would make it fit, with numbers. 0: it fits. */
int forecast_refuse(const struct forecast_ask *ask, const struct forecast *f, struct error *err);

void forecast_text(const struct forecast_ask *ask, const struct forecast *f, struct buf *out);
void forecast_json(const struct forecast_ask *ask, const struct forecast *f, struct buf *out);

#endif
