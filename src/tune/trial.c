#include "tune/trial.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/files.h"
#include "load/child.h"
#include "load/report.h"
#include "tune/knobs.h"
#include "tune/state.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define ARGS_MAX      128
#define LEAST         24 /* requests of a run */
#define STREAM_ROUNDS 4  /* requests of each stream, at least */
#define GRACE_S       10
#define ENOUGH        0.5 /* share of its requests with which a run that was cut counts */
#define BEGUN         0.7 /* a run is begun if there is time for so much of it */
#define PATH_MOST     900 /* bytes of the folder's path */

static double now_s(void) {
    return (double)clock_us() / 1e6;
}

/* ---- the server of a candidate ---- */

struct command {
    const char *argv[ARGS_MAX];
    size_t n;
    char *text; /* of --command, cut into words */
    char flags[KNOBS][64];
    char path[1024];
};

static void add(struct command *c, const char *arg) {
    if (c->n + 1 < ARGS_MAX) c->argv[c->n++] = arg;
}

/* execv does not look into PATH. */
static const char *find_program(const char *name, char *path, size_t size) {
    const char *dirs = getenv("PATH");
    if (strchr(name, '/')) return name;
    for (; dirs && *dirs; dirs += strcspn(dirs, ":"), dirs += *dirs == ':') {
        snprintf(path, size, "%.*s/%s", (int)strcspn(dirs, ":"), dirs, name);
        if (!access(path, X_OK)) return path;
    }
    return name;
}

static void add_knobs(struct command *c, const struct tune_options *o, const struct candidate *v) {
    for (int k = KNOB_CONCURRENCY + 1; k < KNOBS; k++) {
        char value[40];
        if (k == KNOB_WEIGHTS || (k == KNOB_DTYPE && o->command && !(o->given & 1u << k))) continue;
        knob_print(o, (enum knob)k, v->v[k], value, sizeof value);
        if (knob_rows[k].kind == KNOB_SWITCH)
            snprintf(c->flags[k], sizeof c->flags[k], "--%s%s", v->v[k] > 0 ? "" : "no-", knob_rows[k].name);
        else
            snprintf(c->flags[k], sizeof c->flags[k], "--%s=%s", knob_rows[k].name, value);
        add(c, c->flags[k]);
    }
}

static const char *build_command(struct command *c, const struct tune_options *o, const struct candidate *v) {
    const char *program = NULL;
    *c = (struct command){0};
    if (o->command) {
        c->text = strdup(o->command);
        for (char *word = c->text ? strtok(c->text, " ") : NULL; word; word = strtok(NULL, " ")) add(c, word);
        if (c->n) program = find_program(c->argv[0], c->path, sizeof c->path);
    } else {
        add(c, "quire");
        add(c, "serve");
        add(c, o->weights[(size_t)v->v[KNOB_WEIGHTS]]);
        add(c, "--port=0");
        add(c, "--no-access-log");
        add(c, "--log-level=warning");
    }
    for (const char *const *a = o->server_args; a && *a; a++) add(c, *a);
    add_knobs(c, o, v);
    return program;
}

/* ---- a run ---- */

struct load_options trial_load(const struct tune_options *o, const struct candidate *c, unsigned repeat,
                               double part, char streams[24]) {
    struct load_options l = o->load;
    if (!o->open_loop) {
        snprintf(streams, 24, "%.0f", c->v[KNOB_CONCURRENCY]);
        l.concurrency = streams;
        double least = fmax(LEAST, STREAM_ROUNDS * c->v[KNOB_CONCURRENCY]);
        l.requests = (int64_t)ceil(fmax(l.requests ? (double)l.requests : LEAST, least) * part);
    } else if (l.requests) {
        l.requests = (int64_t)ceil((double)l.requests * part);
    } else {
        l.duration_s = (l.duration_s > 0 ? l.duration_s : 30) * part;
    }
    l.seed += repeat;
    l.json = l.csv = l.html = NULL;
    l.repeat = 1;
    l.progress = false;
    return l;
}

void figures_of(const struct summary *s, const struct slo *slo, struct figures *out) {
    *out = (struct figures){.good_per_s = s->good_per_s,
                            .good_share = s->good_share,
                            .excess = slo_excess(slo, s),
                            .output_per_s = s->output_per_s,
                            .total_per_s = s->total_per_s,
                            .ttft_p50 = s->ms[LATENCY_TTFT].p50,
                            .ttft_p95 = s->ms[LATENCY_TTFT].p95,
                            .tpot_p50 = s->ms[LATENCY_TPOT].p50,
                            .tpot_p95 = s->ms[LATENCY_TPOT].p95,
                            .e2e_p95 = s->ms[LATENCY_E2E].p95,
                            .n_ok = s->n_ok,
                            .n_failed = s->n_failed};
}

static int by_due(const void *a, const void *b) {
    const struct record *x = *(const struct record *const *)a, *y = *(const struct record *const *)b;
    return x->due_us < y->due_us ? -1 : x->due_us > y->due_us;
}

static double seconds_of(const struct record *k) {
    return (double)(k->end_us - k->due_us) / 1e6;
}

/* Goodput in batches of consecutive requests (batch means: Law and Kelton, "Simulation modeling and
 * analysis", 9.5.3), by Little's law: requests in flight times good ones for each second that requests took.
 * Counting ends in slices of time instead would see the streams of a closed loop end together. */
static void batch_means(const struct run *run, const struct slo *slo, double out[TRIAL_BATCHES]) {
    const struct record **sorted = calloc(run->n + 1, sizeof *sorted);
    double in_flight = 0;
    memset(out, 0, TRIAL_BATCHES * sizeof *out);
    for (size_t i = 0; sorted && i < run->n; i++) {
        sorted[i] = &run->records[i];
        if (run->duration_s > 0) in_flight += seconds_of(sorted[i]) / run->duration_s;
    }
    if (sorted) qsort(sorted, run->n, sizeof(void *), by_due);
    for (size_t b = 0; sorted && b < TRIAL_BATCHES; b++) {
        double good = 0, took = 0;
        for (size_t i = b * run->n / TRIAL_BATCHES; i < (b + 1) * run->n / TRIAL_BATCHES; i++) {
            good += record_good(sorted[i], slo);
            took += seconds_of(sorted[i]);
        }
        out[b] = took > 0 ? in_flight * good / took : 0;
    }
    free(sorted);
}

/* A server that is not there yet, and could take anything. */
static int describe_any(void *ctx, struct target *t, struct error *err) {
    *t = (struct target){.model = strdup("any"), .base = strdup("any"), .max_model_len = INT32_MAX};
    return t->model && t->base ? 0 : error_set(err, QUIRE_ENOMEM, "out of memory");
}

int load_check(const struct tune_options *o, struct error *err) {
    struct plan *p = calloc(1, sizeof *p);
    struct performer any = {.describe = describe_any};
    char streams[24];
    if (!p) return error_set(err, QUIRE_ENOMEM, "out of memory");
    struct load_options l = trial_load(o, &o->base, 0, 1, streams);
    int rc = plan_options(&l, p, err);
    p->performer = &any;
    if (!rc) rc = plan_points(p, err);
    if (!rc && p->n_points != 1)
        rc = error_set(err, QUIRE_EINVAL, "--rate %.60s is a sweep of %zu loads; one is tuned for",
                       o->load.rate, p->n_points);
    plan_free(p);
    free(p);
    return rc;
}

/* The whole report of a run, for whoever wants to look closer. */
static int keep_report(const struct trials *t, const struct plan *p, struct error *err) {
    char path[1100];
    struct buf json = BUF_INIT;
    FILE *f;
    snprintf(path, sizeof path, "%s/run-%03zu.json", t->o->folder, t->n + 1);
    int rc = file_open_result("--folder", path, &f, err);
    report_json(p, &json);
    if (!rc) rc = file_write_result(f, "--folder", path, &json, err);
    if (!rc) fclose(f);
    buf_free(&json);
    return rc;
}

/* Of what it was to send, how much has been answered. */
static double share_done(const struct plan *p, const struct load_options *l) {
    const struct point *k = &p->points[0];
    double wanted = (double)l->requests * fmax(1, k->spec.turns);
    if (!(wanted > 0)) return k->duration_s > 0 ? k->all.duration_s / k->duration_s : 1;
    return (double)(k->all.n_requests - k->all.n_canceled) / wanted;
}

/* Whether a run says anything: half of one, or the very first with some requests, so that there is one. */
static bool usable(const struct trials *t, const struct trial *r) {
    return !r->cut || r->done >= ENOUGH || (!t->n && r->f.n_ok + r->f.n_failed >= TRIAL_BATCHES);
}

static int load_server(struct trials *t, struct trial *r, const char *url, double end_s, struct error *err) {
    struct plan *p = calloc(1, sizeof *p);
    char streams[24];
    if (!p) return error_set(err, QUIRE_ENOMEM, "out of memory");
    struct load_options l = trial_load(t->o, &r->c, r->repeat, r->part, streams);
    l.url = url;
    int rc = plan_options(&l, p, err);
    p->end_us = isfinite(end_s) ? (uint64_t)(end_s * 1e6) : 0;
    if (!rc) rc = plan_measure(p, t->o->interrupted, NULL, err);
    if (!rc && t->o->interrupted && *t->o->interrupted) rc = error_set(err, QUIRE_ECANCELED, "interrupted");
    if (!rc && *p->ended) rc = error_set(err, QUIRE_EIO, "%s", p->ended);
    if (!rc) {
        figures_of(&p->points[0].all, &t->slo, &r->f);
        batch_means(&p->points[0].runs[0], &t->slo, r->batches);
        r->cut = p->points[0].runs[0].cut;
        r->done = r->cut ? share_done(p, &l) : 1;
        if (usable(t, r)) rc = keep_report(t, p, err);
    }
    plan_free(p);
    free(p);
    return rc;
}

/* A server that cannot be had with these options is a result, an interrupt is none. */
static int run_trial(struct trials *t, struct trial *r, struct error *err) {
    struct command c;
    struct child child;
    double start = now_s(), end = start + trials_left_s(t);
    const char *program = build_command(&c, t->o, &r->c);
    struct child_config config = {program, c.argv, fmin(t->o->startup_s, end - start), t->o->interrupted};
    int rc = child_start(&config, &child, err);
    if (!rc) {
        rc = load_server(t, r, child.url, end, err);
        child_stop(&child, GRACE_S);
    } else if (rc == QUIRE_ELIMIT && now_s() >= end) {
        r->cut = true;
        rc = 0;
    }
    free(c.text);
    r->seconds = now_s() - start;
    if (!rc || rc == QUIRE_ECANCELED || rc == QUIRE_ENOMEM || rc == QUIRE_EINVAL) return rc;
    if (!t->n) return rc; /* the first one: nothing can be measured */
    snprintf(r->failed, sizeof r->failed, "%.*s", (int)sizeof r->failed - 1, err->text);
    r->f.excess = INFINITY;
    *err = (struct error){0};
    return 0;
}

/* ---- the folder ---- */

int tune_folder_open(const char *folder, int *lock, struct error *err) {
    *lock = -1;
    if (!*folder) return error_set(err, QUIRE_EINVAL, "--folder may not be empty");
    if (strlen(folder) >= PATH_MOST)
        return error_set(err, QUIRE_EINVAL, "--folder has %zu bytes, up to %d are allowed", strlen(folder),
                         PATH_MOST - 1);
    if (mkdir(folder, 0777) && errno != EEXIST)
        return error_set(err, QUIRE_EIO, "--folder %.200s cannot be made: %s", folder, strerror(errno));
    if ((*lock = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0 || access(folder, W_OK | X_OK))
        return error_set(err, QUIRE_EIO, "--folder %.200s cannot be written to: %s", folder, strerror(errno));
    if (!flock(*lock, LOCK_EX | LOCK_NB)) return 0;
    return errno == EWOULDBLOCK
               ? error_set(err, QUIRE_EBUSY, "--folder %.200s is in use by another quire tune", folder)
               : error_set(err, QUIRE_EIO, "--folder %.200s cannot be locked: %s", folder, strerror(errno));
}

int trials_open(struct trials *t, const struct tune_options *o, struct error *err) {
    *t = (struct trials){.o = o};
    int rc = o->load.slo
                 ? slo_parse(o->load.slo, &t->slo, err)
                 : error_set(err, QUIRE_EINVAL, "which SLO? --slo ttft_p95=1000,tpot_p95=100 or some of it");
    if (rc) return rc;
    t->v = calloc(TRIALS_MAX, sizeof *t->v);
    t->key = state_key(o);
    if (!t->v || !t->key) return error_set(err, QUIRE_ENOMEM, "out of memory");
    rc = state_read(t, err);
    t->n_old = t->n;
    return rc;
}

void trials_close(struct trials *t) {
    free(t->v);
    free(t->key);
}

double trials_left_s(const struct trials *t) {
    if (!(t->o->budget_s > 0)) return INFINITY;
    return fmax(0, (double)t->o->start_us / 1e6 + t->o->budget_s - t->reserve_s - now_s());
}

double trials_seconds(const struct trials *t, const struct candidate *c, double part) {
    const struct trial *like = t->n ? &t->v[t->n - 1] : NULL;
    for (size_t i = 0; i < t->n; i++)
        if (candidate_equal(&t->v[i].c, c) && t->v[i].part >= part) like = &t->v[i];
    return like ? like->seconds * fmin(1, part / like->part) : 0;
}

/* Whether enough of one more run fits. */
static bool affordable(const struct trials *t, const struct candidate *c, double part) {
    const struct tune_options *o = t->o;
    double left = trials_left_s(t);
    if (t->n == TRIALS_MAX || (o->most_runs && t->n + t->reserve_runs >= o->most_runs)) return false;
    return t->n ? BEGUN * trials_seconds(t, c, part) <= left : left > 0;
}

int trials_get(struct trials *t, const struct candidate *c, unsigned repeat, double part,
               const struct trial **out, struct error *err) {
    *out = NULL;
    for (size_t i = 0; i < t->n; i++) {
        const struct trial *r = &t->v[i];
        if (!candidate_equal(&r->c, c) || r->repeat != repeat || r->part != part) continue;
        *out = r;
        return 0;
    }
    t->spent = t->spent || !affordable(t, c, part);
    if (t->spent) return 0;
    struct trial *r = &t->v[t->n];
    *r = (struct trial){.c = *c, .repeat = repeat, .part = part};
    int rc = run_trial(t, r, err);
    if (rc) return rc;
    t->spent = r->cut;
    if (!usable(t, r)) return 0;
    t->n++;
    *out = r;
    return state_write(t, err);
}
