/* `quire bench serve` and `quire bench compare`: load on any OpenAI-compatible server, and what became of it.
 */
#ifndef LOAD_LOAD_H
#define LOAD_LOAD_H

#include <quire/error.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* As given on the command line; what is text here is checked by load_serve. Strings may be NULL. */
struct load_options {
    const char *url, *model, *api_key, *ca_cert, *endpoint, *extra_body, *label;
    const char *concurrency, *rate, *arrival, *suite;
    const char *workload, *input_tokens, *output_tokens, *file, *trace_format;
    const char *slo, *price, *json, *csv, *html;
    int64_t max_concurrency, requests, warmup, repeat, seed, prefix_tokens, prefix_groups, turns;
    double duration_s, burstiness, ramp_to, think_s, time_scale, scale, temperature, timeout_s, interval_s;
    bool insecure, ignore_eos, records, progress;
    bool has_temperature, has_turns; /* whether they were given */
};

/* Runs, prints the table to `out`, writes the files. interrupted (may be NULL): raised by a signal handler to
 * end the run with a report of what was measured. Returns QUIRE_OK, or an error; *measured says whether a
 * report was nonetheless made (a server that died, say). */
int load_serve(const struct load_options *o, const volatile int *interrupted, FILE *out, bool *measured,
               struct error *err);

/* As load_serve, of what stands in for a server (load/plan.h): a simulated one, say. NULL: the server at
 * o->url. */
struct performer;
int load_perform(const struct load_options *o, const struct performer *performer,
                 const volatile int *interrupted, FILE *out, bool *measured, struct error *err);

/* The table of two or more files of --json, the first being the baseline. json: NULL, or where to write it.
 */
int load_compare(const char *const *paths, size_t n, const char *json, FILE *out, struct error *err);

#endif
