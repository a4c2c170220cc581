#include "sim/drive.h"

#include "base/due.h"
#include "base/error.h"
#include "base/size.h"
#include "sim/fleet.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WARMUP_IDS (UINT64_C(1) << 48)

/* A conversation with its tokens so far. */
struct talk {
    struct session session;
    uint32_t *tokens;
    size_t n, cap;
};

/* A request on its way. */
struct trip {
    struct talk *talk;
    struct record record;
    double last_us;
    size_t n_tokens;
    struct trip *prev, *next; /* of those under way */
};

struct driver {
    const struct sim_config *s;
    const struct run_config *c;
    struct run *run;
    struct workload workload;
    struct fleet fleet;
    struct due_heap due; /* talks whose next turn is due */
    struct trip trips;   /* head of the ring of trips */
    double now_us, start_us, stop_us, next_arrival_us, next_sample_us;
    uint64_t n_sessions, first_id, next_id;
    size_t n_active, most_active, cap_samples;
    struct arrival arrival;
    bool recording, stopping;
    struct error *err;
    int rc;
};

static void no_memory(struct driver *d) {
    if (!d->rc) d->rc = error_set(d->err, QUIRE_ENOMEM, "out of memory for the record of the run");
}

/* ---- prompts ---- */

static uint64_t scramble(uint64_t v) { /* the finaliser of splitmix64 (Steele, Lea and Flood, 2014) */
    v = (v ^ v >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    v = (v ^ v >> 27) * UINT64_C(0x94d049bb133111eb);
    return v ^ v >> 31;
}

static bool make_space(struct talk *t, size_t n) {
    if (t->n + n <= t->cap) return true;
    size_t cap = 2 * t->cap > t->n + n ? 2 * t->cap : t->n + n;
    uint32_t *tokens = realloc(t->tokens, cap * sizeof *tokens);
    if (!tokens) return false;
    t->tokens = tokens;
    t->cap = cap;
    return true;
}

/* Tokens are a function of what they are part of, so that equal prompts have equal tokens; which they are
 * does not matter. */
static void put(struct driver *d, struct talk *t, uint64_t key, uint32_t n) {
    if (!make_space(t, n)) {
        no_memory(d);
        return;
    }
    uint64_t base = scramble(key ^ scramble(d->c->spec->seed ^ d->c->salt << 32));
    for (uint32_t i = 0; i < n; i++)
        t->tokens[t->n + i] = (uint32_t)scramble(base + i * UINT64_C(0x9e3779b97f4a7c15));
    t->n += n;
}

/* What the chat template puts around the words: at the start, before a message, behind it. About as much
 * stands before a message as behind it. */
struct frame {
    size_t start, before, behind;
};

static struct frame frame_of(const struct driver *d, const struct talk *t) {
    const struct calibration *c = d->s->cal;
    const struct workload_spec *o = d->c->spec;
    if (!o->chat || !c) return (struct frame){0};
    size_t turn = c->chat_turn_tokens ? c->chat_turn_tokens : c->chat_tokens, all = c->chat_tokens;
    bool system = o->prefix_tokens && t->session.n_turns > 1 && o->kind != WORKLOAD_AGENT_LAST;
    if (t->session.turn)
        all = turn;
    else if (system && c->chat_system_tokens)
        all = c->chat_system_tokens;
    turn = size_min(turn, all);
    return (struct frame){all - turn, turn - turn / 2, turn / 2};
}

static void put_frame(struct driver *d, struct talk *t, uint64_t which, size_t n) {
    put(d, t, UINT64_C(0x66726d) + which, (uint32_t)n);
}

struct prompt {
    struct driver *d;
    struct talk *talk;
    size_t kept;   /* tokens that stay with the conversation */
    size_t before; /* of the template, not yet put */
};

static void visit(void *ctx, enum part part, uint64_t id, uint32_t n, bool passing) {
    struct prompt *p = ctx;
    if (part == PART_TURN || part == PART_OWN) {
        put_frame(p->d, p->talk, 1, p->before);
        p->before = 0;
    }
    put(p->d, p->talk, scramble(id * 16 + (uint64_t)part), n);
    if (!passing) p->kept = p->talk->n;
}

/* Writes the present turn's prompt behind the conversation; what is passing is cut off by the caller again.
 */
static uint32_t write_prompt(struct driver *d, struct talk *t, size_t *kept) {
    struct frame f = frame_of(d, t);
    put_frame(d, t, 0, f.start);
    struct prompt p = {d, t, t->n, f.before};
    uint32_t output = workload_stretches(&d->workload, &t->session, &(struct stretch_visitor){visit, &p});
    bool all = p.kept == t->n;
    put_frame(d, t, 2, p.before + f.behind);
    *kept = all ? t->n : p.kept;
    return output;
}

/* ---- sessions ---- */

static void talk_free(struct talk *t) {
    if (!t) return;
    free(t->tokens);
    free(t);
}

static bool more_sessions(const struct driver *d) {
    return !d->stopping && !d->rc && d->now_us < d->stop_us &&
           (!d->n_sessions || d->next_id - d->first_id < d->n_sessions);
}

static void new_session(struct driver *d, double due_us) {
    struct talk *t = calloc(1, sizeof *t);
    if (t) {
        t->session.id = d->next_id++;
        t->session.n_turns = workload_turns(&d->workload, t->session.id);
    }
    if (!t || !due_push(&d->due, (uint64_t)due_us, t)) {
        talk_free(t);
        no_memory(d);
    }
}

static void plan_arrival(struct driver *d) {
    uint64_t i = d->next_id - d->first_id;
    d->next_arrival_us = INFINITY;
    if (d->stopping || (d->n_sessions && i >= d->n_sessions)) return;
    if (d->arrival.kind == ARRIVAL_TRACE && i >= d->c->items->n) return;
    double at = d->arrival.kind == ARRIVAL_TRACE ? d->c->items->v[i].at_s / d->c->time_scale
                                                 : arrival_next(&d->arrival);
    d->next_arrival_us = d->start_us + at * 1e6;
    if (d->next_arrival_us >= d->stop_us) d->next_arrival_us = INFINITY;
}

/* ---- what became of a request ---- */

static uint64_t since(const struct driver *d, double us) {
    return (uint64_t)(us - d->start_us);
}

static void keep_record(struct driver *d, const struct record *k) {
    struct run *run = d->run;
    if (!d->recording) return;
    if (run->n == run->cap) {
        size_t cap = run->cap ? 2 * run->cap : 1024;
        struct record *records = realloc(run->records, cap * sizeof *records);
        if (!records) {
            no_memory(d);
            return;
        }
        run->records = records;
        run->cap = cap;
    }
    run->records[run->n++] = *k;
    run->duration_s = fmax(run->duration_s, (double)k->end_us / 1e6);
}

static void note_failure(struct run *run, unsigned status, const char *what) {
    size_t i = 0;
    while (i < run->n_failures && run->failures[i].status != status) i++;
    if (i == run->n_failures) {
        run->failures[i] = (struct failure){.outcome = OUTCOME_HTTP, .status = status};
        snprintf(run->failures[i].example, sizeof run->failures[i].example, "%s", what);
        run->n_failures++;
    }
    run->failures[i].n++;
}

static void trip_free(struct trip *t) {
    t->prev->next = t->next;
    t->next->prev = t->prev;
    free(t);
}

static struct trip *trip_new(struct driver *d, struct talk *talk) {
    struct trip *t = calloc(1, sizeof *t);
    if (!t) return NULL;
    t->talk = talk;
    t->next = &d->trips;
    t->prev = d->trips.prev;
    t->prev->next = t->next->prev = t;
    return t;
}

static void over(struct driver *d, struct trip *t, double end_us) {
    struct talk *talk = t->talk;
    bool ok = t->record.outcome == OUTCOME_OK, again = false;
    d->n_active--;
    keep_record(d, &t->record);
    if (ok && ++talk->session.turn < talk->session.n_turns && !d->stopping)
        again = due_push(&d->due, (uint64_t)(end_us + d->c->spec->think_s * 1e6), talk);
    trip_free(t);
    if (again) return;
    talk_free(talk);
    if (d->arrival.kind == ARRIVAL_CLOSED && more_sessions(d)) new_session(d, end_us);
}

static void fail(struct driver *d, struct trip *t, unsigned status, const char *what) {
    t->record.outcome = OUTCOME_HTTP;
    t->record.status = (uint16_t)status;
    t->record.end_us = since(d, d->now_us);
    if (d->recording) note_failure(d->run, status, what);
    over(d, t, d->now_us);
}

static void keep_answer(struct driver *d, struct trip *t, const struct job *job) {
    if (t->talk->session.turn + 1 >= t->talk->session.n_turns) return;
    if (!make_space(t->talk, t->n_tokens)) {
        no_memory(d);
        return;
    }
    for (size_t i = 0; i < t->n_tokens; i++) t->talk->tokens[t->talk->n++] = job_answer_token(job->salt, i);
}

static void note_gap(struct driver *d, struct trip *t, uint64_t gap) {
    if (gap > t->record.longest_gap_us) t->record.longest_gap_us = gap;
    if (d->recording) hdr_add(d->run->gaps, gap);
}

static void on_token(void *ctx, struct job *job, bool last) {
    struct driver *d = ctx;
    struct trip *t = job->user;
    double at = d->now_us;
    t->n_tokens++;
    if (!t->record.first_us)
        t->record.first_us = since(d, at);
    else
        note_gap(d, t, (uint64_t)(at - t->last_us));
    t->last_us = at;
    if (!last) return;
    t->record.last_us = t->record.end_us = since(d, at);
    t->record.output = (int64_t)t->n_tokens;
    t->record.n_events = (uint32_t)t->n_tokens;
    t->record.cached = (int64_t)job->n_cached;
    t->record.status = 200;
    t->record.outcome = OUTCOME_OK;
    keep_answer(d, t, job);
    job_free(job);
    over(d, t, at);
}

/* ---- sending ---- */

/* When the engine has it: a server reads one request after the other. */
static double through_front(struct driver *d, struct member *m, size_t n_prompt) {
    const struct calibration *c = d->s->cal;
    if (!c) return d->now_us;
    m->front_us = fmax(m->front_us, d->now_us) + c->request_us + c->prompt_token_us * (double)n_prompt;
    return m->front_us;
}

/* False: the trip is over already. */
static bool submit(struct driver *d, struct trip *t, struct member *m, uint32_t output) {
    struct talk *talk = t->talk;
    if (!replica_fits(m->replica, talk->n + output)) {
        char what[120];
        snprintf(what, sizeof what, "the prompt has %zu tokens and max_tokens is %u: more than fits", talk->n,
                 output);
        fail(d, t, 400, what);
        return false;
    }
    struct job *job = job_new(talk->tokens, talk->n, output, output, d->s->engine.block_tokens);
    if (!job) {
        no_memory(d);
        return false;
    }
    job->user = t;
    job->arrive_us = through_front(d, m, talk->n);
    if (replica_add(m->replica, job)) return true;
    job_free(job);
    fail(d, t, 503, "the queue is full");
    return false;
}

static void send_one(struct driver *d) {
    struct due w = due_pop(&d->due);
    struct talk *talk = w.what;
    struct trip *t = trip_new(d, talk);
    if (!t) {
        talk_free(talk);
        no_memory(d);
        return;
    }
    size_t kept;
    uint32_t output = write_prompt(d, talk, &kept);
    t->record = (struct record){.due_us = since(d, fmin((double)w.us, d->now_us)),
                                .sent_us = since(d, d->now_us),
                                .want_input = (int64_t)talk->n,
                                .input = (int64_t)talk->n,
                                .want_output = output,
                                .left_out = d->c->spec->left_out_tokens,
                                .turn = talk->session.turn};
    d->n_active++;
    if (d->recording) d->run->sending_s = (d->now_us - d->start_us) / 1e6;
    if (submit(d, t, fleet_route(&d->fleet), output)) talk->n = kept;
}

/* ---- samples ---- */

static void set_metric(struct sample *k, enum metric which, double v) {
    k->server.has[which] = true;
    k->server.value[which] = v;
}

static void take_sample(struct driver *d, double at_us) {
    struct run *run = d->run;
    struct replica_figures f;
    if (run->n_samples == run->cap_samples) {
        size_t cap = run->cap_samples ? 2 * run->cap_samples : 64;
        struct sample *samples = realloc(run->samples, cap * sizeof *samples);
        if (!samples) {
            no_memory(d);
            return;
        }
        run->samples = samples;
        run->cap_samples = cap;
    }
    struct sample *k = &run->samples[run->n_samples++];
    fleet_read(&d->fleet, &f);
    *k = (struct sample){
        .t_s = (at_us - d->start_us) / 1e6, .active = d->n_active, .events = run->gaps->n, .scraped = true};
    set_metric(k, METRIC_RUNNING, (double)f.running);
    set_metric(k, METRIC_WAITING, (double)f.waiting);
    set_metric(k, METRIC_KV_USAGE, f.kv_usage);
    set_metric(k, METRIC_PREFIX_QUERIES, (double)f.prefix_queries);
    set_metric(k, METRIC_PREFIX_HITS, (double)f.prefix_hits);
    set_metric(k, METRIC_PREEMPTIONS, (double)f.preemptions);
    set_metric(k, METRIC_QUEUE_SUM, f.queue_us / 1e6);
    set_metric(k, METRIC_QUEUE_COUNT, (double)f.n_started);
}

/* ---- the loop ---- */

static double next_event(const struct driver *d) {
    double next = fmin(d->next_arrival_us, fleet_next_us(&d->fleet));
    if (d->due.n && d->n_active < d->most_active) next = fmin(next, fmax((double)d->due.v[0].us, d->now_us));
    for (size_t i = 0; i < d->fleet.n; i++) {
        const struct member *m = &d->fleet.members[i];
        if (m->replica) next = fmin(next, replica_busy(m->replica) ? m->end_us : replica_next_us(m->replica));
    }
    return next;
}

/* A step that ends now gives its tokens; then the next begins, or one begins because a request has come. */
static void run_members(struct driver *d) {
    for (size_t i = 0; i < d->fleet.n && !d->rc; i++) {
        struct member *m = &d->fleet.members[i];
        if (!m->replica) continue;
        bool ended = replica_busy(m->replica) && m->end_us <= d->now_us;
        if (ended) replica_end(m->replica, on_token, d);
        if (replica_busy(m->replica)) continue;
        if (ended || replica_next_us(m->replica) <= d->now_us)
            if (!replica_begin(m->replica, d->now_us, &m->end_us)) m->end_us = INFINITY;
    }
}

static void stop_sending(struct driver *d) {
    d->stopping = true;
    d->next_arrival_us = INFINITY;
    while (d->due.n) {
        struct due w = due_pop(&d->due);
        if (d->recording && (double)w.us <= d->now_us && d->arrival.kind != ARRIVAL_CLOSED)
            d->run->n_unsent++;
        talk_free(w.what);
    }
}

static void loop(struct driver *d) {
    while (!d->rc) {
        double next = next_event(d);
        if (!isfinite(next)) break;
        if (next >= d->stop_us && !d->stopping) {
            d->now_us = fmax(d->now_us, d->stop_us);
            stop_sending(d);
            continue;
        }
        for (; d->recording && d->next_sample_us <= next && !d->rc;
             d->next_sample_us += d->c->interval_s * 1e6)
            take_sample(d, d->next_sample_us);
        d->now_us = fmax(d->now_us, next);
        if (!d->rc) d->rc = fleet_adjust(&d->fleet, d->n_active, d->now_us, d->err);
        while (!d->rc && d->next_arrival_us <= d->now_us) {
            new_session(d, d->next_arrival_us);
            plan_arrival(d);
        }
        while (!d->rc && !d->stopping && d->due.n && (double)d->due.v[0].us <= d->now_us &&
               d->n_active < d->most_active)
            send_one(d);
        if (!d->rc) run_members(d);
        if (d->c->interrupted && *d->c->interrupted) {
            d->run->interrupted = true;
            break;
        }
    }
}

static void begin(struct driver *d, uint64_t first_id, uint64_t n_sessions, size_t most_active,
                  double duration_s) {
    d->first_id = d->next_id = first_id;
    d->n_sessions = n_sessions;
    d->most_active = most_active;
    d->stopping = false;
    d->next_arrival_us = INFINITY;
    d->start_us = d->next_sample_us = d->now_us;
    d->stop_us = duration_s > 0 ? d->start_us + duration_s * 1e6 : INFINITY;
    if (d->arrival.kind == ARRIVAL_CLOSED)
        for (size_t i = 0; i < most_active && more_sessions(d); i++) new_session(d, d->start_us);
    else
        plan_arrival(d);
}

static void warm_up(struct driver *d) {
    size_t n = d->c->warmup, most = d->c->arrival.kind == ARRIVAL_CLOSED ? d->c->concurrency : 8;
    if (!n) return;
    d->arrival.kind = ARRIVAL_CLOSED;
    begin(d, WARMUP_IDS, n, n < most ? n : most, 0);
    loop(d);
}

static void record(struct driver *d) {
    const struct run_config *c = d->c;
    d->recording = true;
    d->arrival = c->arrival;
    begin(d, 0, c->n_sessions, c->arrival.kind == ARRIVAL_CLOSED ? c->concurrency : c->max_active,
          c->duration_s);
    loop(d);
    if (!d->rc) take_sample(d, d->now_us);
}

int sim_check_workload(const struct workload_spec *spec, struct error *err) {
    enum workload_kind k = spec->kind;
    if (k != WORKLOAD_TOOLS && k != WORKLOAD_JSON && k != WORKLOAD_SHAREGPT && k != WORKLOAD_BATCH) return 0;
    return error_set(
        err, QUIRE_EUNSUPPORTED,
        "the workload %s cannot be simulated, since its lengths are known only to a tokenizer or an answer; "
        "random, chat, rag20, rag6, rag3k, agent, agent-last and trace can",
        spec->name);
}

/* What an error has left on its way; jobs go with their replicas. */
static void abandon(struct driver *d) {
    while (d->trips.next != &d->trips) {
        talk_free(d->trips.next->talk);
        trip_free(d->trips.next);
    }
    while (d->due.n) talk_free(due_pop(&d->due).what);
    due_free(&d->due);
}

int sim_perform(const struct sim_config *s, const struct run_config *config, struct run *run,
                struct sim_outcome *out, struct error *err) {
    struct driver d = {.s = s,
                       .c = config,
                       .run = run,
                       .err = err,
                       .arrival = config->arrival,
                       .workload = {config->spec, config->target, config->items, config->salt}};
    d.trips.next = d.trips.prev = &d.trips;
    *run = (struct run){0};
    *out = (struct sim_outcome){0};
    int rc = sim_check_workload(config->spec, err);
    if (!rc && config->n_others)
        rc = error_set(err, QUIRE_EUNSUPPORTED, "one workload at a time can be simulated");
    if (rc) return rc;
    run->gaps = calloc(1, sizeof *run->gaps);
    if (!run->gaps) return error_set(err, QUIRE_ENOMEM, "out of memory for the record of the run");
    d.rc = fleet_open(&d.fleet, s, config->spec->seed, err);
    if (!d.rc) warm_up(&d);
    if (!d.rc) record(&d);
    struct replica_figures f;
    fleet_read(&d.fleet, &f);
    *out = (struct sim_outcome){f.steps, d.fleet.replica_s, d.fleet.most_up, f.busy_us};
    abandon(&d);
    fleet_close(&d.fleet);
    return d.rc;
}

/* ---- as a performer ---- */

static int describe(void *ctx, struct target *t, struct error *err) {
    const struct sim_target *s = ctx;
    *t = (struct target){.model = strdup(s->model), .base = strdup("simulated"), .tokenizer = "made up"};
    t->max_model_len = s->config.engine.max_model_len;
    snprintf(t->software, sizeof t->software, "quire simulate, %zu replica%s", s->config.fleet.n_replicas,
             s->config.fleet.n_replicas == 1 ? "" : "s");
    return t->model && t->base ? 0 : error_set(err, QUIRE_ENOMEM, "out of memory");
}

static int perform(void *ctx, const struct run_config *config, struct run *run, struct error *err) {
    struct sim_target *s = ctx;
    struct sim_outcome *total = &s->total;
    s->n_runs++;
    s->config.draw = s->steady ? 0 : s->n_runs;
    int rc = sim_perform(&s->config, config, run, &s->outcome, err);
    total->n_steps += s->outcome.n_steps;
    total->replica_s += s->outcome.replica_s;
    total->busy_us += s->outcome.busy_us;
    if (s->outcome.most_up > total->most_up) total->most_up = s->outcome.most_up;
    return rc;
}

static bool again(void *ctx, const struct run *runs, size_t n) {
    const struct sim_target *s = ctx;
    double lasted_s = 0;
    if (s->steady || !s->config.cal || !s->config.cal->steps.wander.n) return false;
    for (size_t i = 0; i < n; i++) lasted_s += runs[i].duration_s;
    return lasted_s < SIM_DRAWN_S;
}

struct performer sim_performer(struct sim_target *t) {
    t->n_runs = 0;
    t->total = (struct sim_outcome){0};
    return (struct performer){describe, perform, NULL, again, t};
}

int sim_measure(struct sim_target *t, const struct load_options *load, struct plan *plan,
                const volatile int *interrupted, struct error *err) {
    struct performer performer = sim_performer(t);
    int rc = plan_options(load, plan, err);
    plan->performer = &performer;
    if (!rc) rc = plan_measure(plan, interrupted, NULL, err);
    if (!rc && *plan->ended) rc = error_set(err, QUIRE_ECANCELED, "%s", plan->ended);
    plan->performer = NULL;
    return rc;
}
