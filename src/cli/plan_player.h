/* What `quire plan` expects of this machine: streams of requests played through the engine's own scheduler,
 * with the step times of a calibration (docs/simulate.md). */
#ifndef CLI_PLAN_PLAYER_H
#define CLI_PLAN_PLAYER_H

#include "cli/cli.h"
#include "plan/forecast.h"
#include "sim/calibration.h"

struct plan_player {
    struct forecast_player player; /* for the forecast; its ctx is this */
    struct calibration cal;
    const struct forecast_ask *ask;
    const char *slo; /* as --slo has it; NULL: none */
    const volatile int *interrupted;
};

/* p->cal is filled; file: where it is from, NULL: measured just now. Both must outlive p, and p must stay
 * where it is. */
void plan_player_init(struct plan_player *p, const char *file, const struct forecast_ask *ask,
                      const char *slo, const volatile int *interrupted);
/* What was forecast beside the same point of a report of `quire bench serve --json`, or the steps of one of
 * `quire bench engine --json`, into f->checks. QUIRE_ENOTFOUND when the report does not have it. */
int plan_player_check(struct plan_player *p, const char *report, struct forecast *f, struct error *err);

#endif
