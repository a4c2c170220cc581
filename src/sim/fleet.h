/* Replicas side by side: who gets a request, and how many are up (private to drive.c and fleet.c). */
#ifndef SIM_FLEET_H
#define SIM_FLEET_H

#include "sim/drive.h"

enum member_state { MEMBER_OFF, MEMBER_STARTING, MEMBER_READY, MEMBER_LEAVING };

struct member {
    struct replica *replica; /* NULL while off or starting */
    enum member_state state;
    double ready_us, end_us;     /* end of the step that runs */
    double front_us;             /* until when the server is busy reading requests that came before */
    struct replica_figures gone; /* of replicas that were here before */
};

struct fleet {
    const struct sim_config *c;
    struct member *members;                  /* [c->fleet.n_replicas] */
    size_t n, next;                          /* next: of round robin */
    double changed_us, replica_s, wanted_us; /* wanted_us: when all that are up were last wanted */
    size_t n_up, most_up;
    uint64_t n_steps, seed;
    double busy_us;
};

/* seed: of the moments of the machines' speed. */
int fleet_open(struct fleet *f, const struct sim_config *c, uint64_t seed, struct error *err);
void fleet_close(struct fleet *f);
/* Time has come to now_us: starts and stops replicas as n_active requests in flight ask for it. */
int fleet_adjust(struct fleet *f, size_t n_active, double now_us, struct error *err);
/* The time of the next change of state; INFINITY: none is due. */
double fleet_next_us(const struct fleet *f);
/* The one that the next request goes to; at least one is always ready. */
struct member *fleet_route(struct fleet *f);
void fleet_read(const struct fleet *f,
                struct replica_figures *out); /* of all together, those gone included */

#endif
