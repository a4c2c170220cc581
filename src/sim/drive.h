/* A measurement without a server: the load generator's requests on simulated engines, in virtual time. What
 * comes out is what `quire bench serve` would keep of the requests, so summaries and reports are the same. */
#ifndef SIM_DRIVE_H
#define SIM_DRIVE_H

#include "load/plan.h"
#include "sim/calibration.h"

enum sim_routing { SIM_ROUND_ROBIN, SIM_LEAST_LOADED };

struct sim_fleet {
    size_t n_replicas; /* that there are, or (growing) the most that there may be */
    enum sim_routing routing;
    /* growing: as many replicas are kept as the requests in flight need at `load` each, and `reserve` more;
     * one is ready startup_s after it was wanted, and leaves when it has not been wanted for idle_s */
    bool growing;
    double load, startup_s, idle_s;
    size_t reserve;
};

struct sim_config {
    struct sim_options engine;
    struct sim_clock clock;
    const struct calibration *cal; /* what the API takes around the engine; NULL: nothing */
    uint64_t draw; /* from which moment on cal's wander is played (sim/wander.h); 0: always the mean speed */
    struct sim_fleet fleet;
};

/* Filled by sim_perform. */
struct sim_outcome {
    uint64_t n_steps;
    double replica_s; /* replicas that were up, over time */
    size_t most_up;
    double busy_us; /* in steps, of all replicas */
};

/* What cannot be simulated, because its content is not made here or its length is the server's affair. */
int sim_check_workload(const struct workload_spec *spec, struct error *err);
/* Fills *run as run_perform does; run_free afterwards in any case. */
int sim_perform(const struct sim_config *s, const struct run_config *config, struct run *run,
                struct sim_outcome *out, struct error *err);

/* As struct performer has it (load/plan.h), with a struct sim_target as its ctx. */
struct sim_target {
    struct sim_config config;
    const char *model;
    bool steady;                /* at the mean speed of the calibration; else it wanders as it did then */
    size_t n_runs;              /* since sim_performer */
    struct sim_outcome outcome; /* of the last run */
    struct sim_outcome total;   /* of all since sim_performer; most_up: the most */
};
/* Runs in which the speed wanders are performed again, each from another moment on, until they have lasted
 * for SIM_DRAWN_S together or there are PERFORM_MOST. */
#define SIM_DRAWN_S 600
struct performer sim_performer(struct sim_target *t);

/* Plans a load and measures it on the target. *plan is zeroed before and plan_free'd after this, whatever it
 * returns. An interruption is QUIRE_ECANCELED; requests that are refused are none (plan_check_answers). */
int sim_measure(struct sim_target *t, const struct load_options *load, struct plan *plan,
                const volatile int *interrupted, struct error *err);

#endif
