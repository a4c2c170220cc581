#include "load/run.h"

#include "base/clock.h"
#include "base/due.h"
#include "base/error.h"
#include "load/ticker.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define LOST_CONNECTS 10 /* failed connections in a row that mean that the server is gone */
#define LOST_ANSWERS  20 /* failures, with no success ever, after which there is no point in going on */
#define TICK_US       50000
#define WARMUP_IDS    (UINT64_C(1) << 48)
#define NEVER_S       1e9 /* --duration ends before */

struct flight {
    struct runner *runner;
    struct session *session;
    struct request request;
    struct record record;
    struct flight *next;
};

struct runner {
    const struct run_config *c;
    struct run *run;
    struct workload workloads[1 + RUN_OTHERS_MAX]; /* of sessions in turn */
    size_t n_workloads;
    struct client *client;
    struct device *device;
    struct flight *flights, *free;
    struct due_heap due; /* sessions whose next turn is due */
    size_t n_active, concurrency;
    uint64_t start_us, stop_us, n_sessions, next_id, first_id; /* stop: of sending, UINT64_MAX: none */
    struct arrival arrival;
    uint64_t next_arrival_us; /* UINT64_MAX: no more */
    bool recording, stopping, scraping;
    size_t n_ok, n_failed, n_refused_in_row;
    struct sample pending; /* the sample that waits for the server's figures */
    uint64_t next_sample_us;
    struct ticker ticker;
    struct error *err;
    int rc;
};

static const struct workload *workload_of(const struct runner *r, uint64_t session) {
    return &r->workloads[session % r->n_workloads];
}

static int no_memory(struct runner *r) {
    if (!r->rc) r->rc = error_set(r->err, QUIRE_ENOMEM, "out of memory for the record of the run");
    r->stopping = true;
    return r->rc;
}

/* ---- what is due ---- */

static void session_free(struct session *s) {
    if (!s) return;
    buf_free(&s->history);
    free(s);
}

static bool more_sessions(const struct runner *r) {
    return !r->stopping && (!r->n_sessions || r->next_id - r->first_id < r->n_sessions);
}

static void new_session(struct runner *r, uint64_t due) {
    struct session *s = calloc(1, sizeof *s);
    if (s) {
        s->id = r->next_id++;
        s->n_turns = workload_turns(workload_of(r, s->id), s->id);
    }
    if (!s || !due_push(&r->due, due, s)) {
        session_free(s);
        no_memory(r);
    }
}

static void plan_arrival(struct runner *r) {
    double at;
    if (!more_sessions(r)) {
        r->next_arrival_us = UINT64_MAX;
        return;
    }
    if (r->arrival.kind == ARRIVAL_TRACE) {
        uint64_t i = r->next_id - r->first_id;
        if (i >= r->c->items->n) {
            r->next_arrival_us = UINT64_MAX;
            return;
        }
        at = fmin(r->c->items->v[i].at_s / r->c->time_scale, NEVER_S);
    } else {
        at = arrival_next(&r->arrival);
    }
    r->next_arrival_us = r->start_us + (uint64_t)(at * 1e6);
    if (r->next_arrival_us >= r->stop_us) r->next_arrival_us = UINT64_MAX;
}

/* ---- what became of a request ---- */

static void note_failure(struct run *run, const struct answer *a) {
    size_t i = 0;
    while (i < run->n_failures &&
           (run->failures[i].outcome != a->outcome || run->failures[i].status != a->status))
        i++;
    if (i == FAILURES_MAX) i--; /* so many kinds are counted as the last one */
    if (i == run->n_failures) {
        run->failures[i] = (struct failure){.outcome = a->outcome, .status = a->status};
        memcpy(run->failures[i].example, a->message, sizeof a->message);
        run->n_failures++;
    }
    run->failures[i].n++;
}

static void judge_server(struct runner *r, const struct answer *a) {
    bool ok = a->outcome == OUTCOME_OK;
    r->n_ok += ok;
    r->n_failed += !ok;
    r->n_refused_in_row = a->outcome == OUTCOME_CONNECT ? r->n_refused_in_row + 1
                          : ok                          ? 0
                                                        : r->n_refused_in_row;
    bool gone = r->n_refused_in_row >= LOST_CONNECTS, useless = !r->n_ok && r->n_failed >= LOST_ANSWERS;
    if (r->stopping || (!gone && !useless)) return;
    r->stopping = r->run->lost = true;
    char text[FAILURE_BYTES];
    failure_describe(a->outcome, a->status, a->message, text, sizeof text);
    if (gone)
        snprintf(r->run->why, sizeof r->run->why, "the server is gone: %s", text);
    else
        snprintf(r->run->why, sizeof r->run->why, "the first %d requests all failed: %s", LOST_ANSWERS, text);
}

static uint64_t since(const struct runner *r, uint64_t us) {
    return us > r->start_us ? us - r->start_us : 0;
}

static void keep_record(struct runner *r, struct flight *f, const struct answer *a) {
    struct run *run = r->run;
    if (run->n == run->cap) {
        size_t cap = run->cap ? 2 * run->cap : 1024;
        struct record *records = realloc(run->records, cap * sizeof *records);
        if (!records) {
            no_memory(r);
            return;
        }
        run->records = records;
        run->cap = cap;
    }
    struct record *k = &run->records[run->n++];
    *k = f->record;
    k->sent_us = since(r, a->sent_us);
    k->first_us = a->first_us ? since(r, a->first_us) : 0;
    k->last_us = a->last_us ? since(r, a->last_us) : 0;
    k->end_us = since(r, a->end_us);
    k->input = a->prompt_tokens;
    k->output = a->output_tokens;
    k->cached = a->cached_tokens;
    k->n_events = a->n_events;
    k->longest_gap_us = a->longest_gap_us;
    k->status = (uint16_t)a->status;
    k->outcome = (uint8_t)a->outcome;
    if (a->outcome == OUTCOME_CANCELED) return;
    double end = (double)k->end_us / 1e6;
    if (end > run->duration_s) run->duration_s = end;
    if (a->outcome != OUTCOME_OK) note_failure(run, a);
}

static void on_answer(void *user, struct answer *a) {
    struct flight *f = user;
    struct runner *r = f->runner;
    struct session *s = f->session;
    r->n_active--;
    if (r->recording) keep_record(r, f, a);
    if (a->outcome != OUTCOME_CANCELED) judge_server(r, a);
    if (r->recording) ticker_note(&r->ticker, a, f->record.due_us + r->start_us);
    f->session = NULL;
    f->next = r->free;
    r->free = f;
    bool another = false;
    if (a->outcome == OUTCOME_OK && !r->stopping) {
        struct error e;
        const struct workload *w = workload_of(r, s->id);
        if (workload_answered(w, s, &a->text, &e))
            no_memory(r);
        else if (s->turn < s->n_turns)
            another = due_push(&r->due, a->end_us + (uint64_t)(w->spec->think_s * 1e6), s);
    }
    if (another) return;
    session_free(s);
    if (r->arrival.kind == ARRIVAL_CLOSED && more_sessions(r)) new_session(r, clock_us());
}

/* ---- sending ---- */

static int send_one(struct runner *r) {
    struct due w = due_pop(&r->due);
    struct session *s = w.what;
    struct flight *f = r->free;
    r->free = f->next;
    f->session = s;
    const struct workload *load = workload_of(r, s->id);
    int rc = workload_build(load, s, &f->request, r->err);
    if (!rc) {
        f->record = (struct record){.due_us = since(r, w.us),
                                    .want_input = f->request.input_tokens,
                                    .want_output = f->request.exact_output ? f->request.output_tokens : 0,
                                    .left_out = load->spec->left_out_tokens,
                                    .turn = s->turn,
                                    .part = (uint8_t)(s->id % r->n_workloads)};
        struct client_request q = {.url = f->request.chat ? r->c->target->url_chat
                                                          : r->c->target->url_completions,
                                   .body = &f->request.body,
                                   .keep_text = workload_keeps_text(load),
                                   .gaps = r->recording ? r->run->gaps : NULL,
                                   .done = on_answer,
                                   .user = f};
        rc = client_start(r->client, &q, r->err);
    }
    if (rc) {
        session_free(s);
        f->session = NULL;
        f->next = r->free;
        r->free = f;
        return rc;
    }
    r->n_active++;
    if (r->recording) r->run->sending_s = (double)(clock_us() - r->start_us) / 1e6;
    return 0;
}

static int send_due(struct runner *r) {
    int rc = 0;
    uint64_t now = clock_us();
    while (r->next_arrival_us <= now) {
        new_session(r, r->next_arrival_us);
        plan_arrival(r);
        if (r->rc) return r->rc;
    }
    while (!rc && !r->stopping && r->due.n && r->due.v[0].us <= now && r->n_active < r->concurrency)
        rc = send_one(r);
    return rc;
}

/* ---- samples ---- */

static void keep_sample(struct runner *r) {
    struct run *run = r->run;
    if (run->n_samples == run->cap_samples) {
        size_t cap = run->cap_samples ? 2 * run->cap_samples : 64;
        struct sample *samples = realloc(run->samples, cap * sizeof *samples);
        if (!samples) {
            no_memory(r);
            return;
        }
        run->samples = samples;
        run->cap_samples = cap;
    }
    run->samples[run->n_samples++] = r->pending;
}

static void set_page(struct runner *r, struct run_page *page, const char *text) {
    free(page->text);
    *page = (struct run_page){strdup(text), r->pending.t_s};
    if (!page->text) no_memory(r);
}

static void keep_page(struct runner *r, const char *text) {
    set_page(r, r->run->first_page.text ? &r->run->last_page : &r->run->first_page, text);
}

static void on_scraped(void *user, struct answer *a) {
    struct runner *r = user;
    r->scraping = false;
    if (a->outcome == OUTCOME_OK && a->text.data) {
        r->pending.scraped = true;
        scrape_read(a->text.data, &r->pending.server);
        keep_page(r, a->text.data);
    }
    keep_sample(r);
}

static int start_sample(struct runner *r) {
    if (r->scraping) return 0; /* the server has not answered the last one yet */
    uint64_t now = clock_us();
    r->next_sample_us = now + (uint64_t)(r->c->interval_s * 1e6);
    r->pending = (struct sample){
        .t_s = (double)(now - r->start_us) / 1e6, .active = r->n_active, .events = client_events(r->client)};
    if (r->device && r->c->target->local) device_read(r->device, &r->pending.device);
    struct client_request q = {
        .url = r->c->target->url_metrics, .plain = true, .done = on_scraped, .user = r};
    r->scraping = true;
    return client_start(r->client, &q, r->err);
}

/* One more at the end, which the differences are taken from. */
static int last_sample(struct runner *r) {
    uint64_t end = clock_us() + 2000000;
    int rc = 0;
    while (!rc && r->scraping && clock_us() < end) rc = client_wait(r->client, clock_us() + TICK_US, r->err);
    if (!rc && !r->scraping) rc = start_sample(r);
    while (!rc && r->scraping && clock_us() < end) rc = client_wait(r->client, clock_us() + TICK_US, r->err);
    return rc;
}

/* ---- the loop ---- */

static void stop_sending(struct runner *r) {
    r->stopping = true;
    r->next_arrival_us = UINT64_MAX;
    uint64_t now = clock_us();
    while (r->due.n) {
        struct due w = due_pop(&r->due);
        if (r->recording && w.us <= now && r->arrival.kind != ARRIVAL_CLOSED) r->run->n_unsent++;
        session_free(w.what);
    }
}

static uint64_t until(const struct runner *r) {
    uint64_t at = clock_us() + TICK_US;
    if (r->next_arrival_us < at) at = r->next_arrival_us;
    if (r->stop_us < at) at = r->stop_us;
    if (r->due.n && r->n_active < r->concurrency && r->due.v[0].us < at) at = r->due.v[0].us;
    return at;
}

static int loop(struct runner *r) {
    int rc = 0;
    while (!rc) {
        r->run->interrupted = r->c->interrupted && *r->c->interrupted;
        r->run->cut = r->c->end_us && clock_us() >= r->c->end_us;
        if (r->run->interrupted || r->run->cut) {
            stop_sending(r);
            client_cancel_all(r->client);
            break;
        }
        if (clock_us() >= r->stop_us && !r->stopping) stop_sending(r);
        rc = send_due(r);
        if (!rc) rc = r->rc;
        if (rc || r->run->lost) break;
        if (!r->n_active && !r->due.n && r->next_arrival_us == UINT64_MAX) break;
        if (r->recording && clock_us() >= r->next_sample_us) rc = start_sample(r);
        if (!rc) rc = client_wait(r->client, until(r), r->err);
        if (r->recording) ticker_show(&r->ticker, r->n_active, client_events(r->client), false);
    }
    if (r->stopping || rc) stop_sending(r);
    if (r->run->lost || rc) client_cancel_all(r->client);
    return rc;
}

static void begin(struct runner *r, uint64_t first_id, uint64_t n_sessions, size_t concurrency,
                  double duration_s) {
    r->first_id = r->next_id = first_id;
    r->n_sessions = n_sessions;
    r->concurrency = concurrency;
    r->stopping = false;
    r->next_arrival_us = UINT64_MAX;
    r->start_us = clock_us();
    r->stop_us = duration_s > 0 ? r->start_us + (uint64_t)(duration_s * 1e6) : UINT64_MAX;
    r->next_sample_us = r->start_us;
    if (r->arrival.kind == ARRIVAL_CLOSED)
        for (size_t i = 0; i < concurrency && more_sessions(r); i++) new_session(r, r->start_us);
    else
        plan_arrival(r);
}

static int warm_up(struct runner *r) {
    size_t n = r->c->warmup, most = r->c->arrival.kind == ARRIVAL_CLOSED ? r->c->concurrency : 8;
    if (!n) return 0;
    r->arrival.kind = ARRIVAL_CLOSED;
    begin(r, WARMUP_IDS, n, n < most ? n : most, 0);
    return loop(r);
}

static double process_seconds(void) {
    struct rusage u;
    if (getrusage(RUSAGE_SELF, &u)) return 0;
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

/* That this thread was ready and another ran; 0 where the kernel does not tell.
 * Documentation/scheduler/sched-stats.rst */
static double waiting_seconds(void) {
    unsigned long long ran_ns, waited_ns = 0;
    FILE *f = fopen("/proc/thread-self/schedstat", "r");
    if (f && fscanf(f, "%llu %llu", &ran_ns, &waited_ns) != 2) waited_ns = 0;
    if (f) fclose(f);
    return (double)waited_ns / 1e9;
}

static int record_run(struct runner *r) {
    const struct run_config *c = r->c;
    bool closed = c->arrival.kind == ARRIVAL_CLOSED;
    r->recording = true;
    r->arrival = c->arrival;
    r->n_ok = r->n_failed = r->n_refused_in_row = 0;
    double cpu = process_seconds(), waited = waiting_seconds();
    begin(r, 0, c->n_sessions, closed ? c->concurrency : c->max_active, c->duration_s);
    ticker_start(&r->ticker, c->progress, c->title,
                 c->n_sessions * (uint64_t)workload_turns(&r->workloads[0], 0), c->duration_s);
    int rc = r->rc ? r->rc : loop(r);
    r->run->client_cpu_s = process_seconds() - cpu;
    r->run->client_wait_s = waiting_seconds() - waited;
    ticker_show(&r->ticker, 0, client_events(r->client), true);
    if (!rc && !r->run->lost) rc = last_sample(r);
    return rc;
}

static int set_up(struct runner *r) {
    const struct run_config *c = r->c;
    size_t n = c->arrival.kind == ARRIVAL_CLOSED ? c->concurrency : c->max_active;
    struct client_config cc = {c->http, n < 8 ? 8 : n};
    r->flights = calloc(cc.max_streams, sizeof *r->flights);
    r->device = device_open();
    r->run->gaps = calloc(1, sizeof *r->run->gaps);
    if (!r->flights || !r->run->gaps) return no_memory(r);
    for (size_t i = cc.max_streams; i-- > 0;) {
        r->flights[i].runner = r;
        r->flights[i].next = r->free;
        r->free = &r->flights[i];
    }
    r->arrival = c->arrival;
    return client_new(&cc, &r->client, r->err);
}

int run_perform(const struct run_config *config, struct run *run, struct error *err) {
    struct runner r = {.c = config, .run = run, .err = err, .n_workloads = 1 + config->n_others};
    for (size_t i = 0; i < r.n_workloads; i++)
        r.workloads[i] = (struct workload){i ? &config->others[i - 1] : config->spec, config->target,
                                           config->items, config->salt};
    *run = (struct run){0};
    int rc = set_up(&r);
    if (!rc) rc = warm_up(&r);
    if (!rc && !run->interrupted && !run->cut && !run->lost) rc = record_run(&r);
    size_t n = config->arrival.kind == ARRIVAL_CLOSED ? config->concurrency : config->max_active;
    client_free(r.client);
    device_close(r.device);
    for (size_t i = 0; r.flights && i < (n < 8 ? 8 : n); i++) {
        buf_free(&r.flights[i].request.body);
        session_free(r.flights[i].session);
    }
    free(r.flights);
    due_free(&r.due);
    return rc;
}

void run_free(struct run *run) {
    free(run->records);
    free(run->samples);
    free(run->gaps);
    free(run->first_page.text);
    free(run->last_page.text);
    *run = (struct run){0};
}
