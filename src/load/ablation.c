#include "load/ablation.h"

#include "base/error.h"
#include "base/json_out.h"
#include "load/child.h"
#include "load/outputs.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define READY_S    1800
#define GRACE_S    10
#define GROWS      1.03 /* more streams are worth trying while they give that much more */
#define BISECTIONS 2

/* ---- a server ---- */

/* Three greedy answers, so that rows that must not change them can be seen not to. */
static int ask_for_answers(struct ablation_result *r, struct error *err) {
    static const char *const prompts[] = {"The first thing that is worth knowing about the sea is",
                                          "Here is a list of the planets:", "def fibonacci(n):"};
    struct ask asks[3] = {0};
    struct buf bodies[3] = {0}, all = BUF_INIT;
    const struct target *t = &r->plan->target;
    for (int i = 0; i < 3; i++) {
        struct json_out j;
        json_out_init(&j, &bodies[i]);
        json_out_obj(&j);
        json_out_key(&j, "model");
        json_out_str(&j, t->model);
        json_out_key(&j, "prompt");
        json_out_str(&j, prompts[i]);
        json_out_key(&j, "max_tokens");
        json_out_u64(&j, 24);
        json_out_key(&j, "temperature");
        json_out_u64(&j, 0);
        json_out_obj_end(&j);
        asks[i] = (struct ask){.url = t->url_completions, .body = &bodies[i], .plain = true};
    }
    int rc = target_ask(&r->plan->tc, asks, 3, err);
    for (int i = 0; i < 3 && !rc; i++) {
        const struct answer *k = &asks[i].answer;
        const char *from = k->text.data ? strstr(k->text.data, "\"text\":") : NULL;
        const char *to = from ? strstr(from, "\"finish_reason\"") : NULL;
        if (k->outcome == OUTCOME_OK && to) buf_append(&all, from, (size_t)(to - from));
    }
    r->asked = !rc && all.len && buf_ok(&all);
    r->answers = all.data;
    asks_free(asks, 3);
    for (int i = 0; i < 3; i++) buf_free(&bodies[i]);
    return rc;
}

/* The server's model, its tokens, and the workloads as it can hold them. */
static int learn(struct ablation *a, struct ablation_result *r, struct workload_spec *rag,
                 struct workload_spec *agent, struct error *err) {
    struct plan *p = r->plan;
    struct workload_spec whole;
    int rc = target_open(&p->tc, &p->target, err);
    if (!rc) rc = plan_spec(p, "rag20", 0, 0, &whole, err);
    if (!rc) rc = plan_spec(p, r->row->workload, 0, 0, rag, err);
    if (!rc) rc = plan_spec(p, "agent", 0, 0, agent, err);
    if (!rc) rag->left_out_tokens = whole.chunks * whole.chunk_tokens - rag->chunks * rag->chunk_tokens;
    if (!rc) rc = target_learn_tokens(&p->tc, &p->target, false, err);
    if (!rc) {
        struct error chat = {0};
        p->target.n_words = p->target.n_ids = 0;
        if (target_learn_tokens(&p->tc, &p->target, true, &chat)) {
            agent->name = NULL; /* no chat with this model: back to what prompts need */
            snprintf(a->notes[3], sizeof a->notes[3], "all sessions are rag: %.200s", chat.text);
        }
    }
    if (!rc && !agent->name) rc = target_learn_tokens(&p->tc, &p->target, false, err);
    return rc ? rc : ask_for_answers(r, err);
}

/* ---- one load ---- */

static struct point *add_load(struct ablation *a, struct ablation_result *r, const struct workload_spec *rag,
                              const struct workload_spec *agent, size_t streams) {
    struct plan *p = r->plan;
    struct point *k = &p->points[p->n_points];
    *k = (struct point){.spec = *rag,
                        .second = *agent,
                        .salt = 1 + streams,
                        .arrival = {.kind = ARRIVAL_CLOSED},
                        .concurrency = streams,
                        .max_active = streams,
                        .duration_s = r->options.duration_s,
                        .runs = calloc(1, sizeof *k->runs),
                        .repeats = calloc(1, sizeof *k->repeats)};
    snprintf(k->title, sizeof k->title, "%.40s, %zu stream%s", r->row->name, streams,
             streams == 1 ? "" : "s");
    if (!k->runs || !k->repeats) return NULL;
    p->n_points++;
    return k;
}

static bool holds(const struct ablation *a, const struct point *k) {
    return k->all.n_good && k->all.good_share >= a->within;
}

/* What a single stream needs on the first row, times the headroom: two significant digits, upwards. */
static double limit_of(double ms) {
    if (!(ms > 0)) return 1;
    double unit = pow(10, floor(log10(ms)) - 1);
    return ceil(ms / unit) * unit;
}

static int derive_limits(struct ablation *a, const struct point *k, struct error *err) {
    struct slo *s = &a->results[0].plan->slo;
    if (!k->all.n_ok)
        return error_set(err, QUIRE_EIO,
                         "no request of the first row went well, so there is nothing to derive "
                         "--slo from");
    s->ttft_ms = limit_of(a->headroom * k->all.ms[LATENCY_TTFT].p95);
    s->tpot_ms = limit_of(a->headroom * k->all.ms[LATENCY_TPOT].p95);
    snprintf(a->slo_text, sizeof a->slo_text, "ttft:%.6g,tpot:%.6g", s->ttft_ms, s->tpot_ms);
    return 0;
}

/* Returns the point, or NULL with *rc: an error, an interruption (p->ended), a lost server. */
static struct point *try_load(struct ablation *a, struct ablation_result *r,
                              const struct workload_spec *specs, size_t streams,
                              const volatile int *interrupted, int *rc, struct error *err) {
    struct plan *p = r->plan;
    if (p->n_points == ABLATION_LOADS) return NULL;
    struct point *k = add_load(a, r, &specs[0], &specs[1], streams);
    *rc = k ? plan_run(p, p->n_points - 1, 0, interrupted, err)
            : error_set(err, QUIRE_ENOMEM, "out of memory for a run");
    if (*rc || *p->ended) return NULL;
    if (!*a->slo_text) {
        if ((*rc = derive_limits(a, k, err))) return NULL;
        summarize(k->runs, 1, &p->slo, p->price, false, &k->all);
        summarize(k->runs, 1, &p->slo, p->price, false, &k->repeats[0]);
    }
    if (holds(a, k) && k->all.useful_per_s > r->useful_per_s) {
        r->useful_per_s = k->all.useful_per_s;
        r->best = (int)(k - p->points);
    }
    return k;
}

/* Doubles the streams from `start` on (which is halved where it does not hold) and looks between the last
 * that held and the first that did not. */
static int search(struct ablation *a, struct ablation_result *r, const struct workload_spec *specs,
                  size_t start, const volatile int *interrupted, struct error *err) {
    size_t low = 0, high = a->max_streams + 1, n = start;
    int rc = 0, bisected = 0;
    while (n >= 1 && n <= a->max_streams) {
        double before = r->useful_per_s;
        const struct point *k = try_load(a, r, specs, n, interrupted, &rc, err);
        if (!k) return rc;
        if (holds(a, k)) {
            low = n;
            if (before > 0 && k->all.useful_per_s < GROWS * before && high > a->max_streams) break;
        } else {
            high = n;
        }
        if (!low)
            n /= 2;
        else if (high > a->max_streams)
            n = low < a->max_streams && 2 * low > a->max_streams ? a->max_streams : 2 * low;
        else if (high - low < 2 || bisected++ == BISECTIONS)
            break;
        else
            n = low + (high - low) / 2;
    }
    return 0;
}

/* ---- rows ---- */

static int measure_row(struct ablation *a, size_t i, const volatile int *interrupted, struct error *err) {
    struct ablation_result *r = &a->results[i];
    struct workload_spec specs[2] = {0};
    struct child child;
    struct child_config config = {NULL, r->row->argv, READY_S, interrupted};
    int rc = child_start(&config, &child, err);
    if (rc) return rc;
    r->options = *a->o;
    r->options.url = child.url;
    r->options.slo = *a->slo_text ? a->slo_text : NULL;
    rc = plan_options(&r->options, r->plan, err);
    if (!rc) rc = learn(a, r, &specs[0], &specs[1], err);
    size_t start = 1;
    if (i && a->results[i - 1].best >= 0)
        start = a->results[i - 1].plan->points[a->results[i - 1].best].concurrency;
    if (!rc) rc = search(a, r, specs, start > 2 ? start / 2 : 1, interrupted, err);
    if (*r->plan->ended) {
        bool gone = !child_alive(&child);
        char words[300] = "";
        child_last_words(&child, words, sizeof words);
        snprintf(r->why, sizeof r->why, "%.250s%s%.250s", r->plan->ended,
                 gone ? "; the server ended, its last words: " : "", gone ? words : "");
    }
    child_stop(&child, GRACE_S);
    r->server_cpu_s = child.cpu_s;
    r->peak_bytes = child.peak_bytes;
    return rc;
}

/* Costs are as 1 / useful tokens a second: the machine is the same. */
static void compare(struct ablation *a, size_t i) {
    struct ablation_result *r = &a->results[i], *before = i ? &a->results[i - 1] : NULL;
    if (r->useful_per_s > 0 && before && before->useful_per_s > 0)
        r->gain = 1 - before->useful_per_s / r->useful_per_s;
    if (before && r->useful_per_s > 0 && a->results[0].useful_per_s > 0)
        r->total = 1 - a->results[0].useful_per_s / r->useful_per_s;
    r->asked &= before && before->answers;
    r->same_answers = r->asked && !strcmp(r->answers, before->answers);
    if (!r->plan->n_points || *r->why) return;
    if (r->best < 0)
        snprintf(r->why, sizeof r->why,
                 "fewer than %.0f %% of the requests were within the limits, however few "
                 "streams",
                 100 * a->within);
}

static int measure(struct ablation *a, const volatile int *interrupted, FILE *out, struct error *err) {
    int rc = 0;
    for (size_t i = 0; i < a->n_rows && !rc && !*a->ended; i++) {
        struct ablation_result *r = &a->results[i];
        r->plan = calloc(1, sizeof *r->plan);
        if (!r->plan) return error_set(err, QUIRE_ENOMEM, "out of memory");
        rc = measure_row(a, i, interrupted, err);
        if (*r->plan->ended) snprintf(a->ended, sizeof a->ended, "%s", r->plan->ended);
        if (rc == QUIRE_ECANCELED) {
            snprintf(a->ended, sizeof a->ended, "%s", err->text);
            rc = 0;
        }
        compare(a, i);
        ablation_line(a, r, out);
    }
    return rc;
}

/* ---- the whole ---- */

static int write_files(const struct ablation *a, const struct outputs *f, struct error *err) {
    struct output_texts t = OUTPUT_TEXTS_INIT;
    if (f->json) ablation_json(a, &t.json);
    if (f->csv) ablation_csv(a, &t.csv);
    if (f->html) ablation_html(a, &t.html);
    return outputs_write(f, a->o, &t, err);
}

static bool anything(const struct ablation *a) {
    for (size_t i = 0; i < a->n_rows; i++)
        if (a->results[i].plan && plan_measured(a->results[i].plan)) return true;
    return false;
}

static void release(struct ablation *a) {
    for (size_t i = 0; a->results && i < a->n_rows; i++) {
        if (a->results[i].plan) plan_free(a->results[i].plan);
        free(a->results[i].plan);
        free(a->results[i].answers);
    }
    free(a->results);
    a->results = NULL;
}

static int prepare(struct ablation *a, struct outputs *f, struct error *err) {
    struct plan p;
    struct load_options o = *a->o;
    a->created_unix_s = (int64_t)time(NULL);
    a->results = calloc(a->n_rows, sizeof *a->results);
    if (!a->results) return error_set(err, QUIRE_ENOMEM, "out of memory");
    for (size_t i = 0; i < a->n_rows; i++) {
        a->results[i].row = &a->rows[i];
        a->results[i].best = -1;
        a->results[i].gain = a->results[i].total = NAN;
    }
    if (o.slo) snprintf(a->slo_text, sizeof a->slo_text, "%s", o.slo);
    int rc = plan_options(&o, &p, err); /* wrong ones are told before a server is started */
    plan_free(&p);
    if (!rc && o.slo && strlen(o.slo) >= sizeof a->slo_text)
        rc = error_set(err, QUIRE_EINVAL, "--slo is longer than %zu characters", sizeof a->slo_text - 1);
    return rc ? rc : outputs_open(f, &o, err);
}

int load_ablation(struct ablation *a, const volatile int *interrupted, FILE *out, struct error *err) {
    struct outputs files = {0};
    int rc = prepare(a, &files, err);
    if (!rc) rc = measure(a, interrupted, out, err);
    if (a->results && anything(a)) {
        struct error late = {0};
        ablation_table(a, out);
        int written = write_files(a, &files, &late);
        if (written && !rc) {
            rc = written;
            *err = late;
        }
    }
    if (!rc && *a->ended) rc = error_set(err, QUIRE_ECANCELED, "%s", a->ended);
    outputs_close(&files);
    release(a);
    return rc;
}
