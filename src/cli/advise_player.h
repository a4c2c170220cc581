/* Gains of `quire advise` by simulation: the load that was measured, on the engine's own scheduler with the
 * step times of a calibration (docs/simulate.md). */
#ifndef CLI_ADVISE_PLAYER_H
#define CLI_ADVISE_PLAYER_H

#include "advise/gain.h"
#include "sim/calibration.h"

struct advise_player {
    struct gain_player player; /* its ctx is this */
    struct calibration cal;
    const volatile int *interrupted;
};

/* p->cal is filled; source: where it is from, for people. Both must outlive p, and p must stay where it is.
 */
void advise_player_init(struct advise_player *p, const char *source, const volatile int *interrupted);

#endif
