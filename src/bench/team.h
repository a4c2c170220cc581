/* Threads that run shares of one piece of work over and over while its time is taken. */
#ifndef BENCH_TEAM_H
#define BENCH_TEAM_H

#include <quire/error.h>

#include <stdbool.h>
#include <stddef.h>

struct team;

/* One share of the work. */
typedef void team_work(void *ctx, size_t thread, size_t n_threads);

/* The caller is thread 0 of n_threads. Errors: QUIRE_ENOMEM, QUIRE_EIO. */
int team_start(struct team **out, size_t n_threads, struct error *err);
void team_stop(struct team *t); /* NULL allowed */
size_t team_threads(const struct team *t);

/* One round of all shares, at the same time. */
void team_once(struct team *t, team_work *work, void *ctx);

/* Seconds of the slowest share in one round of all shares, the best of many rounds. Each share is timed by
 * its thread's own processor time: kernels never wait, so others on the machine disturb this least. Rounds
 * whose shares ran one after the other do not count, since each then had the memory for itself, unless all
 * did, on a busy machine: *apart. */
double team_seconds(struct team *t, team_work *work, void *ctx, bool *apart);

#endif
