/* How many replicas a load needs under an SLO, all the time or growing and shrinking with it. */
#ifndef SIM_SCALE_H
#define SIM_SCALE_H

#include "load/load.h"
#include "sim/drive.h"

#define SCALE_MOST 256 /* replicas */

struct scale_answer {
    size_t n_fixed; /* the fewest that hold the SLO when they are up all the time */
    double fixed_share, fixed_replica_s;
    size_t load; /* requests in flight that one replica holds the SLO with */
    bool grows;  /* whether growing with the load can hold it, too; then: */
    size_t reserve, most_up;
    double grown_share, grown_replica_s;
};

/* good_share: of the requests of each point that have to be within o->slo. t's fleet gives routing, start-up
 * time and idle time; the rest of it is set here. QUIRE_ELIMIT: not even SCALE_MOST replicas hold it. */
int sim_scale(struct sim_target *t, const struct load_options *o, double good_share,
              const volatile int *interrupted, struct scale_answer *out, struct error *err);

#endif
