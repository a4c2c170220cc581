#include "bench/team.h"

#include "base/error.h"

#include <math.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MIN_ROUNDS = 4, MAX_ROUNDS = 100000 };
#define MIN_SECONDS 0.15
#define MAX_SECONDS 0.4 /* while shares have not yet run at the same time */

struct member {
    struct team *team;
    size_t thread;
    pthread_t id;
    double seconds, begin, end; /* of its share in the last round: processor time, and on the clock */
};

struct team {
    size_t n_threads;
    struct member *members; /* [n_threads]; the first is the caller */
    pthread_mutex_t start;  /* held until all threads are there */
    pthread_barrier_t barrier;
    team_work *work;
    void *ctx;
    bool failed; /* not all could be started; written under `start` */
    bool stop;   /* written before the barrier */
};

static double now(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void run_share(struct member *m) {
    struct team *t = m->team;
    m->begin = now(CLOCK_MONOTONIC);
    double start = now(CLOCK_THREAD_CPUTIME_ID);
    t->work(t->ctx, m->thread, t->n_threads);
    m->seconds = now(CLOCK_THREAD_CPUTIME_ID) - start;
    m->end = now(CLOCK_MONOTONIC);
}

static void *member_main(void *arg) {
    struct member *m = arg;
    struct team *t = m->team;
    pthread_mutex_lock(&t->start);
    bool failed = t->failed;
    pthread_mutex_unlock(&t->start);
    while (!failed) {
        pthread_barrier_wait(&t->barrier);
        if (t->stop) break;
        run_share(m);
        pthread_barrier_wait(&t->barrier);
    }
    return NULL;
}

static void team_free(struct team *t) {
    pthread_barrier_destroy(&t->barrier);
    pthread_mutex_destroy(&t->start);
    free(t->members);
    free(t);
}

int team_start(struct team **out, size_t n_threads, struct error *err) {
    *out = NULL;
    struct team *t = calloc(1, sizeof *t);
    struct member *members = calloc(n_threads, sizeof *members);
    if (!t || !members || pthread_barrier_init(&t->barrier, NULL, (unsigned)n_threads)) {
        free(t);
        free(members);
        return error_set(err, QUIRE_ENOMEM, "no memory for %zu threads", n_threads);
    }
    t->n_threads = n_threads;
    t->members = members;
    pthread_mutex_init(&t->start, NULL);
    pthread_mutex_lock(&t->start);
    size_t n = 1;
    int rc = 0;
    for (size_t i = 0; i < n_threads; i++) members[i] = (struct member){.team = t, .thread = i};
    for (; n < n_threads && !rc; n += !rc)
        rc = pthread_create(&members[n].id, NULL, member_main, &members[n]);
    t->failed = rc != 0;
    pthread_mutex_unlock(&t->start);
    if (!rc) {
        *out = t;
        return QUIRE_OK;
    }
    for (size_t i = 1; i < n; i++) pthread_join(members[i].id, NULL);
    team_free(t);
    return error_set(err, QUIRE_EIO, "cannot start thread %zu of %zu: %s", n + 1, n_threads, strerror(rc));
}

void team_stop(struct team *t) {
    if (!t) return;
    t->stop = true;
    pthread_barrier_wait(&t->barrier);
    for (size_t i = 1; i < t->n_threads; i++) pthread_join(t->members[i].id, NULL);
    team_free(t);
}

size_t team_threads(const struct team *t) {
    return t->n_threads;
}

/* One round of all shares. */
static struct round {
    double seconds; /* processor time of the slowest share */
    double span;    /* from the first begin to the last end */
} run_round(struct team *t) {
    pthread_barrier_wait(&t->barrier);
    run_share(&t->members[0]);
    pthread_barrier_wait(&t->barrier);
    struct round r = {0};
    double begin = t->members[0].begin, end = begin;
    for (size_t i = 0; i < t->n_threads; i++) {
        const struct member *m = &t->members[i];
        r.seconds = fmax(r.seconds, m->seconds);
        begin = fmin(begin, m->begin);
        end = fmax(end, m->end);
    }
    r.span = end - begin;
    return r;
}

void team_once(struct team *t, team_work *work, void *ctx) {
    t->work = work;
    t->ctx = ctx;
    run_round(t);
}

/* Shares that ran one after the other had the memory for themselves. */
static bool ran_together(const struct team *t, const struct round *r) {
    return t->n_threads == 1 || r->span <= 1.1 * r->seconds + 50e-6;
}

double team_seconds(struct team *t, team_work *work, void *ctx, bool *apart) {
    double together = INFINITY, any = INFINITY, begin = now(CLOCK_MONOTONIC), passed = 0.0;
    team_once(t, work, ctx); /* warms up */
    for (int i = 0; i < MIN_ROUNDS || (i < MAX_ROUNDS && passed < MIN_SECONDS) ||
                    (isinf(together) && passed < MAX_SECONDS);
         i++) {
        struct round r = run_round(t);
        any = fmin(any, r.seconds);
        if (ran_together(t, &r)) together = fmin(together, r.seconds);
        passed = now(CLOCK_MONOTONIC) - begin;
    }
    *apart = isinf(together);
    return *apart ? any : together;
}
