/* `quire advise`: what to change first on a running server, or on one that `quire bench serve` has measured.
 */
#ifndef ADVISE_ADVISE_H
#define ADVISE_ADVISE_H

#include "advise/gain.h"

#include <quire/error.h>

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* As given on the command line; what is text here is checked by advise_run. Strings may be NULL. */
struct advise_options {
    const char *source; /* a server's URL, or the path of a report */
    const char *api_key, *ca_cert, *slo, *price;
    double window_s;  /* 0: since the start of the server */
    double timeout_s; /* of a request */
    bool insecure, watch, json;
    int64_t rounds;                   /* of --watch; 0: until it is interrupted */
    const struct gain_player *player; /* for gains by simulation; NULL: they are estimates */
};

/* Whether it is taken for a server's address: it begins with http:// or https://. */
bool advise_is_url(const char *source);

/* Prints to `out`. interrupted (may be NULL): raised by a signal handler to end --watch. */
int advise_run(const struct advise_options *o, const volatile int *interrupted, FILE *out, struct error *err);

#endif
