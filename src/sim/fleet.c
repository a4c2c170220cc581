#include "sim/fleet.h"

#include "base/error.h"

#include <math.h>
#include <stdlib.h>

static int start(struct fleet *f, struct member *m, struct error *err) {
    struct sim_clock clock = f->c->clock;
    if (f->c->draw && f->c->cal) {
        clock.wander = &f->c->cal->steps.wander;
        clock.wander_us = wander_start_us(clock.wander, f->seed, f->c->draw, (uint32_t)(m - f->members));
    }
    int rc = replica_create(&f->c->engine, &clock, &m->replica, err);
    m->state = MEMBER_READY;
    m->end_us = INFINITY;
    m->front_us = 0;
    return rc;
}

/* What the counters of a replica come to is kept when it goes. */
static void add_counters(struct replica_figures *to, const struct replica_figures *from) {
    to->prefix_queries += from->prefix_queries;
    to->prefix_hits += from->prefix_hits;
    to->preemptions += from->preemptions;
    to->steps += from->steps;
    to->n_started += from->n_started;
    to->queue_us += from->queue_us;
    to->busy_us += from->busy_us;
}

static void stop(struct member *m) {
    struct replica_figures figures;
    if (m->replica) {
        replica_read(m->replica, &figures);
        add_counters(&m->gone, &figures);
    }
    replica_free(m->replica);
    m->replica = NULL;
    m->state = MEMBER_OFF;
}

int fleet_open(struct fleet *f, const struct sim_config *c, uint64_t seed, struct error *err) {
    const struct sim_fleet *o = &c->fleet;
    *f = (struct fleet){.c = c, .n = o->n_replicas, .seed = seed};
    if (!o->n_replicas || (o->growing && !(o->load > 0)))
        return error_set(err, QUIRE_EINVAL, "at least one replica is simulated, and a load above 0 for each");
    f->members = calloc(o->n_replicas, sizeof *f->members);
    if (!f->members) return error_set(err, QUIRE_ENOMEM, "out of memory for %zu replicas", o->n_replicas);
    size_t first = o->growing ? 1 + o->reserve : o->n_replicas;
    int rc = 0;
    for (size_t i = 0; i < f->n && i < first && !rc; i++, f->n_up++) rc = start(f, &f->members[i], err);
    f->most_up = f->n_up;
    return rc;
}

void fleet_close(struct fleet *f) {
    for (size_t i = 0; f->members && i < f->n; i++) replica_free(f->members[i].replica);
    free(f->members);
    f->members = NULL;
}

static void count_up(struct fleet *f, double now_us) {
    f->replica_s += (double)f->n_up * (now_us - f->changed_us) / 1e6;
    f->changed_us = now_us;
}

static void want_more(struct fleet *f, size_t wanted, double now_us) {
    for (size_t i = 0; i < f->n && f->n_up < wanted; i++) {
        struct member *m = &f->members[i];
        if (m->state != MEMBER_OFF) continue;
        m->state = MEMBER_STARTING;
        m->ready_us = now_us + f->c->fleet.startup_s * 1e6;
        f->n_up++;
    }
    if (f->n_up > f->most_up) f->most_up = f->n_up;
}

/* The last ones leave first, when what they have is done; one that is ready always stays. */
static void want_fewer(struct fleet *f, size_t wanted) {
    size_t n_ready = 0, n_staying = 0;
    for (size_t i = 0; i < f->n; i++) {
        n_ready += f->members[i].state == MEMBER_READY;
        n_staying += f->members[i].state == MEMBER_READY || f->members[i].state == MEMBER_STARTING;
    }
    for (size_t i = f->n; i-- > 0 && n_staying > wanted && n_ready > 1;) {
        if (f->members[i].state != MEMBER_READY) continue;
        f->members[i].state = MEMBER_LEAVING;
        n_staying--;
        n_ready--;
    }
}

int fleet_adjust(struct fleet *f, size_t n_active, double now_us, struct error *err) {
    const struct sim_fleet *o = &f->c->fleet;
    if (!o->growing) {
        count_up(f, now_us);
        return 0;
    }
    size_t wanted = (size_t)ceil((double)n_active / o->load) + o->reserve;
    if (wanted < 1) wanted = 1;
    if (wanted > f->n) wanted = f->n;
    count_up(f, now_us);
    for (size_t i = 0; i < f->n; i++) {
        struct member *m = &f->members[i];
        if (m->state == MEMBER_STARTING && m->ready_us <= now_us) {
            int rc = start(f, m, err);
            if (rc) return rc;
        }
        if (m->state == MEMBER_LEAVING && !replica_live(m->replica)) {
            stop(m);
            f->n_up--;
        }
    }
    if (wanted >= f->n_up) f->wanted_us = now_us;
    if (wanted > f->n_up) want_more(f, wanted, now_us);
    if (wanted < f->n_up && now_us - f->wanted_us > o->idle_s * 1e6) {
        want_fewer(f, wanted);
        f->wanted_us = now_us;
    }
    return 0;
}

double fleet_next_us(const struct fleet *f) {
    double next = INFINITY;
    for (size_t i = 0; i < f->n; i++)
        if (f->members[i].state == MEMBER_STARTING) next = fmin(next, f->members[i].ready_us);
    return next;
}

struct member *fleet_route(struct fleet *f) {
    struct member *best = NULL;
    for (size_t k = 0; k < f->n; k++) {
        struct member *m = &f->members[(f->next + k) % f->n];
        if (m->state != MEMBER_READY) continue;
        if (best && replica_live(m->replica) >= replica_live(best->replica)) continue;
        best = m;
        if (f->c->fleet.routing == SIM_ROUND_ROBIN) break;
    }
    f->next = (size_t)(best - f->members + 1) % f->n;
    return best;
}

void fleet_read(const struct fleet *f, struct replica_figures *out) {
    size_t n = 0;
    *out = (struct replica_figures){0};
    for (size_t i = 0; i < f->n; i++) {
        struct replica_figures one = {0};
        add_counters(out, &f->members[i].gone);
        if (!f->members[i].replica) continue;
        replica_read(f->members[i].replica, &one);
        add_counters(out, &one);
        out->running += one.running;
        out->waiting += one.waiting;
        out->kv_usage += (one.kv_usage - out->kv_usage) / (double)++n;
    }
}
