#include "load/ablation.h"

#include "base/error.h"
#include "base/json_out.h"
#include "load/outputs.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define READY_S     1800
#define GRACE_S     10
#define GROWS       1.03 /* more streams are worth trying while they give that much more */
#define BISECTIONS  1
#define REPEAT_SALT 1000000 /* beyond those of loads that are tried */

/* ---- answers ---- */

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
        json_out_put_str(&j, "model", t->model);
        json_out_put_str(&j, "prompt", prompts[i]);
        json_out_put_u64(&j, "max_tokens", 24);
        json_out_put_u64(&j, "temperature", 0);
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

/* ---- sessions ---- */

/* Answers and questions are not all of one length: a batch has to wait for its longest. Questions' answers
 * have the long tail of recorded ones; turns have a spread that does not make the longest conversation, which
 * memory is reserved for, one that never comes. docs/metrics.md has the figures. */
static void vary(struct workload_spec *s, double longer) {
    s->output = length_scale(s->output, longer);
    if (s->turns > 1) {
        s->input = (struct length){LENGTH_UNIFORM, ceil(s->input.a / 4), ceil(s->input.a * 7 / 4)};
        s->output = (struct length){LENGTH_UNIFORM, ceil(s->output.a / 4), ceil(s->output.a * 7 / 4)};
    } else {
        s->output = (struct length){LENGTH_LOGNORMAL, s->output.a, 0.8};
    }
    s->think_s = 0; /* a stream is a request in flight */
}

int ablation_mix_make(const struct plan *p, const char *rag, double answer_scale, struct ablation_mix *out,
                      struct error *err) {
    const char *const names[ABLATION_PARTS] = {rag, "agent", "chat"};
    struct workload_spec whole;
    int rc = plan_spec(p, "rag20", 0, 0, &whole, err);
    *out = (struct ablation_mix){.n = ABLATION_PARTS};
    for (size_t i = 0; i < ABLATION_PARTS && !rc; i++) {
        rc = plan_spec(p, names[i], 0, 0, &out->specs[i], err);
        vary(&out->specs[i], answer_scale / p->o->scale);
    }
    struct workload_spec *r = &out->specs[0];
    r->left_out_tokens = whole.chunks * whole.chunk_tokens - r->chunks * r->chunk_tokens;
    return rc;
}

/* The server's model, its tokens, and the sessions as it can hold them. */
static int learn(struct ablation *a, struct ablation_result *r, struct error *err) {
    struct plan *p = r->plan;
    struct error chat = {0};
    int rc = target_open(&p->tc, &p->target, err);
    if (!rc) rc = ablation_mix_make(p, r->row->workload, a->answer_scale, &r->mix, err);
    if (!rc) rc = target_learn_tokens(&p->tc, &p->target, false, err);
    if (rc) return rc;
    p->target.n_words = p->target.n_ids = 0;
    if (target_learn_tokens(&p->tc, &p->target, true, &chat)) {
        r->mix.n = 1; /* no chat with this model: back to what prompts need */
        snprintf(a->notes[4], sizeof a->notes[4], "all sessions are rag: %.200s", chat.text);
        p->target.n_words = p->target.n_ids = 0;
        rc = target_learn_tokens(&p->tc, &p->target, false, err);
    }
    return rc || r->answers ? rc : ask_for_answers(r, err);
}

/* ---- a server ---- */

static int start_server(struct ablation *a, struct ablation_result *r, struct child *child,
                        const volatile int *interrupted, struct error *err) {
    struct child_config config = {NULL, r->row->argv, READY_S, interrupted};
    int rc = child_start(&config, child, err);
    if (rc) return rc;
    memcpy(r->url, child->url, sizeof r->url);
    if (r->plan->o) {
        target_free(&r->plan->target);
        r->plan->target = (struct target){0};
    } else {
        r->options = *a->o;
        r->options.url = r->url;
        r->options.slo = *a->slo_text ? a->slo_text : NULL;
        rc = plan_options(&r->options, r->plan, err);
    }
    return rc ? rc : learn(a, r, err);
}

static void stop_server(struct ablation *a, struct ablation_result *r, struct child *child) {
    if (*r->plan->ended) {
        bool gone = !child_alive(child);
        char words[300] = "";
        child_last_words(child, words, sizeof words);
        snprintf(r->why, sizeof r->why, "%.250s%s%.250s", r->plan->ended,
                 gone ? "; the server ended, its last words: " : "", gone ? words : "");
        snprintf(a->ended, sizeof a->ended, "%s", r->plan->ended);
    }
    child_stop(child, GRACE_S);
    r->server_cpu_s += child->cpu_s;
    if (child->peak_bytes > r->peak_bytes) r->peak_bytes = child->peak_bytes;
}

/* ---- one load ---- */

static struct point *add_load(struct ablation_result *r, size_t streams, size_t repeats) {
    struct plan *p = r->plan;
    struct point *k = &p->points[p->n_points];
    *k = (struct point){.spec = r->mix.specs[0],
                        .n_others = r->mix.n - 1,
                        .arrival = {.kind = ARRIVAL_CLOSED},
                        .concurrency = streams,
                        .max_active = streams,
                        .runs = calloc(repeats, sizeof *k->runs),
                        .repeats = calloc(repeats, sizeof *k->repeats)};
    memcpy(k->others, &r->mix.specs[1], (r->mix.n - 1) * sizeof *k->others);
    snprintf(k->title, sizeof k->title, "%.40s, %zu stream%s", r->row->name, streams,
             streams == 1 ? "" : "s");
    if (!k->runs || !k->repeats) {
        free(k->runs);
        free(k->repeats);
        return NULL;
    }
    p->n_points++;
    return k;
}

static int no_memory(struct error *err) {
    return error_set(err, QUIRE_ENOMEM, "out of memory for a run");
}

static bool holds(const struct ablation *a, const struct point *k) {
    return k->all.n_good && k->all.good_share >= a->within;
}

/* ---- limits ---- */

/* Two significant digits, upwards. */
static double limit_of(double ms) {
    if (!(ms > 0)) return 1;
    double unit = pow(10, floor(log10(ms)) - 1);
    return ceil(ms / unit) * unit;
}

/* From what an untrimmed question needs of a server that has nothing else to do. */
static int derive_limits(struct ablation *a, struct ablation_result *r, const volatile int *interrupted,
                         struct error *err) {
    struct plan *p = r->plan;
    struct point *k = add_load(r, 1, 1);
    if (!k) return no_memory(err);
    k->spec.output = (struct length){LENGTH_FIXED, k->spec.output.a, 0};
    k->n_others = 0;
    k->n_sessions = ABLATION_QUESTIONS;
    k->salt = 1;
    snprintf(k->title, sizeof k->title, "questions alone");
    int rc = plan_run(p, p->n_points - 1, 0, interrupted, err);
    if (rc || *p->ended) return rc;
    double ttft = k->all.ms[LATENCY_TTFT].p50, tpot = k->all.ms[LATENCY_TPOT].p50, f = a->headroom;
    if (!k->all.n_ok || !(tpot > 0))
        return error_set(err, QUIRE_EIO,
                         "no question alone was answered well, so there is nothing to derive --slo from");
    snprintf(a->slo_text, sizeof a->slo_text, "ttft:%.6g,tpot:%.6g,itl:%.6g", limit_of(f * ttft),
             limit_of(f * tpot), limit_of(ABLATION_ITL * f * tpot));
    snprintf(a->notes[3], sizeof a->notes[3],
             "limits: a question with 20 documents alone has TTFT %.6g ms and TPOT %.6g ms on the first row "
             "(medians of "
             "%zu); TTFT and TPOT may be %g times that, and the longest ITL %g times TPOT",
             ttft, tpot, k->all.n_ok, f, ABLATION_ITL * f);
    return slo_parse(a->slo_text, &p->slo, err);
}

/* ---- the load that counts ---- */

/* Returns the point, or NULL with *rc: an error, an interruption (p->ended), a lost server. */
static struct point *try_load(struct ablation *a, struct ablation_result *r, size_t streams,
                              const volatile int *interrupted, int *rc, struct error *err) {
    struct plan *p = r->plan;
    if (p->n_points == ABLATION_LOADS) return NULL;
    struct point *k = add_load(r, streams, 1);
    *rc = no_memory(err);
    if (!k) return NULL;
    k->duration_s = a->look_s;
    k->salt = 1 + streams; /* one server sees all loads of a row: nothing is to be found that another left */
    *rc = plan_run(p, p->n_points - 1, 0, interrupted, err);
    if (*rc || *p->ended) return NULL;
    if (holds(a, k) && k->all.useful_per_s > r->useful_per_s) {
        r->useful_per_s = k->all.useful_per_s;
        r->best = (int)(k - p->points);
    }
    return k;
}

/* Doubles the streams from `start` on (which is halved where it does not hold) and looks between the last
 * that held and the first that did not. */
static int search(struct ablation *a, struct ablation_result *r, size_t start,
                  const volatile int *interrupted, struct error *err) {
    size_t low = 0, high = a->max_streams + 1, n = start;
    int rc = 0, bisected = 0;
    while (n >= 1 && n <= a->max_streams) {
        double before = r->useful_per_s;
        const struct point *k = try_load(a, r, n, interrupted, &rc, err);
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

static int look_row(struct ablation *a, size_t i, const volatile int *interrupted, struct error *err) {
    struct ablation_result *r = &a->results[i];
    struct child child = {0};
    size_t start = 1;
    if (i && a->results[i - 1].best >= 0)
        start = a->results[i - 1].plan->points[a->results[i - 1].best].concurrency;
    r->plan = calloc(1, sizeof *r->plan);
    if (!r->plan) return no_memory(err);
    int rc = start_server(a, r, &child, interrupted, err);
    if (!rc && !*a->slo_text) rc = derive_limits(a, r, interrupted, err);
    if (!rc && !*r->plan->ended) rc = search(a, r, start > 2 ? start / 2 : 1, interrupted, err);
    stop_server(a, r, &child);
    if (r->best < 0 && !*r->why && !rc)
        snprintf(r->why, sizeof r->why,
                 "fewer than %.0f %% of the requests were within the limits, however few streams",
                 100 * a->within);
    return rc;
}

/* The figure of each repeat in out[]. */
static size_t figures_of(const struct ablation_result *r, double *out) {
    const struct point *k = &r->plan->points[r->best];
    for (size_t i = 0; i < k->n_runs; i++) out[i] = k->repeats[i].useful_per_s;
    return k->n_runs;
}

static void take_figure(struct ablation_result *r) {
    double v[ABLATION_REPEATS_MAX];
    size_t n = figures_of(r, v);
    stats_sort(v, n);
    r->useful_per_s = stats_quantile(v, n, 0.5);
    r->least = v[0];
    r->most = v[n - 1];
    r->n_repeats = n;
}

/* The last of the row's points. A repeat's content is the same for all rows, and new to the row's server,
 * which is started anew. */
static struct point *load_to_repeat(const struct ablation *a, struct ablation_result *r, size_t repeat) {
    struct point *k = repeat ? &r->plan->points[r->plan->n_points - 1]
                             : add_load(r, r->plan->points[r->best].concurrency, (size_t)a->o->repeat);
    if (!k) return NULL;
    k->duration_s = a->o->duration_s;
    k->salt = REPEAT_SALT + repeat;
    return k;
}

static int repeat_row(struct ablation *a, size_t i, size_t repeat, const volatile int *interrupted,
                      struct error *err) {
    struct ablation_result *r = &a->results[i];
    struct child child = {0};
    struct point *k = NULL;
    if (!r->plan || r->best < 0) return 0;
    int rc = start_server(a, r, &child, interrupted, err);
    if (!rc && !(k = load_to_repeat(a, r, repeat))) rc = no_memory(err);
    if (!rc) rc = plan_run(r->plan, r->plan->n_points - 1, repeat, interrupted, err);
    if (!rc && !*r->plan->ended) {
        r->best = (int)(k - r->plan->points);
        take_figure(r);
    }
    stop_server(a, r, &child);
    return rc;
}

bool ablation_no_difference(const struct stats_interval *range) {
    return range->known && range->low <= 0 && range->high >= 0;
}

/* Costs are as 1 / useful tokens a second: the machine is the same. The gain over `before` and its interval,
 * where both have several repeats. */
static double gain_over(const struct ablation_result *before, const struct ablation_result *r,
                        struct stats_interval *range) {
    double x[ABLATION_REPEATS_MAX], y[ABLATION_REPEATS_MAX];
    *range = (struct stats_interval){0};
    if (!(r->useful_per_s > 0) || !(before->useful_per_s > 0)) return NAN;
    if (r->n_repeats > 1 && before->n_repeats > 1) {
        struct stats_interval dearer = stats_bootstrap(x, figures_of(r, x), y, figures_of(before, y), 0.5, 1);
        *range = (struct stats_interval){dearer.known, -dearer.high, -dearer.low};
    }
    return 1 - before->useful_per_s / r->useful_per_s;
}

static void compare(struct ablation *a) {
    for (size_t i = 1; i < a->n_rows; i++) {
        struct ablation_result *r = &a->results[i], *before = r - 1;
        if (!r->plan) continue;
        r->gain = gain_over(before, r, &r->gain_range);
        r->total = gain_over(&a->results[0], r, &r->total_range);
        r->asked &= before->answers != NULL;
        r->same_answers = r->asked && !strcmp(r->answers, before->answers);
    }
}

/* An interruption while a server starts is no error. */
static int settle(struct ablation *a, int rc, const struct error *err) {
    if (rc != QUIRE_ECANCELED) return rc;
    snprintf(a->ended, sizeof a->ended, "%s", err->text);
    return 0;
}

static int measure(struct ablation *a, const volatile int *interrupted, FILE *out, struct error *err) {
    int rc = 0;
    for (size_t i = 0; i < a->n_rows && !rc && !*a->ended; i++) {
        rc = settle(a, look_row(a, i, interrupted, err), err);
        ablation_line(&a->results[i], out);
    }
    for (size_t repeat = 0; repeat < (size_t)a->o->repeat && !rc && !*a->ended; repeat++) {
        fprintf(out, "round %zu of %lld\n", repeat + 1, (long long)a->o->repeat);
        for (size_t i = 0; i < a->n_rows && !rc && !*a->ended; i++) {
            size_t row = repeat & 1 ? a->n_rows - 1 - i : i; /* there and back: a drift falls on all */
            rc = settle(a, repeat_row(a, row, repeat, interrupted, err), err);
            ablation_repeat_line(&a->results[row], out);
        }
    }
    compare(a);
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
