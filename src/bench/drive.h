/* Random prompts through an engine of this process, and every step that came of them: for measuring the
 * engine and for fitting a model of its steps. Nothing is shared between sequences unless it is asked for,
 * and answers have exactly the length asked for, so counts are known beforehand. */
#ifndef BENCH_DRIVE_H
#define BENCH_DRIVE_H

#include <quire/error.h>
#include <quire/quire.h>
#include <quire/step.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct drive;

/* Room for max_steps steps of a run. The engine is opened with drive_reader in its configuration, and the
 * drive outlives it. */
int drive_create(size_t max_steps, struct drive **out, struct error *err);
const struct quire_step_reader *drive_reader(const struct drive *d);
void drive_free(struct drive *d); /* NULL allowed */

struct drive_load {
    size_t n_seqs;             /* submitted at once; no more than the engine's max_requests */
    size_t n_prompt, n_output; /* tokens of each; at least 1 */
    uint64_t seed;             /* of the prompts: the same seed makes the same ones */
    bool cached;               /* prompts may be found in the prefix cache */
    size_t n_prefix;           /* of n_prompt: the same in all prompts, of all loads */
    /* submitted when the first token of the others is there; 0: none */
    size_t n_late, late_prompt, late_output;
    uint64_t until_us; /* clock_us() at which it is given up, as by an interruption; 0: never */
};

struct drive_step {
    struct quire_step step;
    uint64_t end_us; /* clock_us() when its results had been delivered */
};

/* Submits all and waits for their ends, and for all steps to be told. Without preemptions the prefill rows of
 * the steps are the prompts' tokens that were not found in the cache, and the decode rows are n_seqs *
 * (n_output - 1) and n_late * (late_output - 1). QUIRE_ECANCELED: interrupted (may be NULL) was raised, or
 * the time was over; nothing runs any more then. QUIRE_ELIMIT: more than max_steps steps. Else errors of quire_submit and of a
 * sequence that failed. */
int drive_run(struct drive *d, struct quire_engine *e, const struct drive_load *l,
              const volatile int *interrupted, struct error *err);
/* Of the last run, or since drive_forget, in order; valid until the next one. */
const struct drive_step *drive_steps(struct drive *d, size_t *n);
/* Forgets all steps; those of whatever the engine does are kept from now on. */
void drive_forget(struct drive *d);

#endif
