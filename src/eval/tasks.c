#include "base/error.h"
#include "base/hash.h"
#include "eval/ask.h"
#include "eval/bar.h"
#include "eval/results.h"
#include "eval/match.h"
#include "eval/task_file.h"
#include "eval/windows.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CHOICES, CORRECT, CORRECT_NORMALIZED, CHOSEN, LOGPROB, N_COLUMNS };
static const char *const COLUMNS[] = {"choices", "correct", "correct_normalized", "chosen", "logprob"};

const char *const EVAL_NORMALIZE_NAMES[3] = {"none", "spaces", "loose"};
const char *const EVAL_EXTRACT_NAMES[3] = {"whole", "first-line", "last-number"};

struct tasks_run {
    const struct eval_context *c;
    const struct eval_tasks *o;
    struct task_file file;
    struct results items;
    struct ask *asks;
    size_t *task; /* [n_asks] of each ask */
    size_t n_asks;
    struct bar bar;
};

/* ---- asks ---- */

/* Blanks at the end of a prompt go in front of its continuations: as a token of its own such a blank would be
 * one that the model has hardly seen there. */
static size_t trailing_blanks(struct text_span prompt) {
    size_t n = 0;
    while (n < prompt.len &&
           (prompt.data[prompt.len - 1 - n] == ' ' || prompt.data[prompt.len - 1 - n] == '\t'))
        n++;
    return n < prompt.len ? n : 0;
}

static int put_choice(struct tasks_run *r, struct task *t, size_t k, struct ask *a, struct error *err) {
    size_t blanks = r->o->chat ? 0 : trailing_blanks(t->prompt);
    struct text_span c = t->choices[k];
    if (blanks) {
        struct buf text = BUF_INIT;
        buf_append(&text, t->prompt.data + t->prompt.len - blanks, blanks);
        buf_append(&text, c.data, c.len);
        char *copy = buf_ok(&text) ? arena_strndup(&r->file.arena, text.data, text.len) : NULL;
        c.len = text.len;
        buf_free(&text);
        if (!(c.data = copy)) return error_set(err, QUIRE_ENOMEM, "out of memory for tasks");
    }
    *a = (struct ask){.where = t->where,
                      .prompt = {t->prompt.data, t->prompt.len - blanks},
                      .chat = r->o->chat,
                      .continuation = c};
    return 0;
}

static int put_asks(struct tasks_run *r, struct error *err) {
    size_t most = 0;
    int rc = 0;
    for (size_t i = 0; i < r->file.n; i++) most += r->file.list[i].n_choices ? r->file.list[i].n_choices : 1;
    r->asks = calloc(most, sizeof *r->asks);
    r->task = calloc(most, sizeof *r->task);
    if (!r->asks || !r->task) return error_set(err, QUIRE_ENOMEM, "out of memory for %zu questions", most);
    for (size_t i = 0; !rc && i < r->file.n; i++) {
        struct task *t = &r->file.list[i];
        if (r->items.items[i].done) continue;
        for (size_t k = 0; !rc && k < t->n_choices; k++) {
            r->task[r->n_asks] = i;
            rc = put_choice(r, t, k, &r->asks[r->n_asks++], err);
        }
        if (t->n_choices) continue;
        r->task[r->n_asks] = i;
        r->asks[r->n_asks++] = (struct ask){.where = t->where,
                                            .prompt = t->prompt,
                                            .chat = r->o->chat,
                                            .max_tokens = t->max_tokens ? t->max_tokens : r->o->max_tokens,
                                            .stop = t->stop,
                                            .n_stop = t->n_stop,
                                            .temperature = r->o->temperature,
                                            .seed = r->o->seed + i};
    }
    return rc;
}

/* ---- answers ---- */

/* Characters, without blanks in front: what a choice's log probability is divided by. */
static double choice_length(struct text_span c) {
    size_t n = 0, i = 0;
    while (i < c.len && (c.data[i] == ' ' || c.data[i] == '\t' || c.data[i] == '\n')) i++;
    for (; i < c.len; i++) n += ((unsigned char)c.data[i] & 0xc0) != 0x80;
    return n ? (double)n : 1;
}

static void judge_choices(const struct task *t, const struct ask *asks, double *v) {
    size_t best = 0, best_normalized = 0;
    for (size_t k = 1; k < t->n_choices; k++) {
        if (asks[k].logprob > asks[best].logprob) best = k;
        if (asks[k].logprob / choice_length(t->choices[k]) >
            asks[best_normalized].logprob / choice_length(t->choices[best_normalized]))
            best_normalized = k;
    }
    v[CHOICES] = (double)t->n_choices;
    v[CORRECT] = best == t->right;
    v[CORRECT_NORMALIZED] = best_normalized == t->right;
    v[CHOSEN] = (double)best;
    v[LOGPROB] = asks[t->right].logprob;
}

static int judge_answer(const struct eval_tasks *o, const struct task *t, const struct ask *a, double *v,
                        struct error *err) {
    struct buf number = BUF_INIT, got = BUF_INIT, want = BUF_INIT;
    struct text_span text = {a->text.data ? a->text.data : "", a->text.len};
    match_normalize(match_extract(text, o->extract, &number), o->normalize, &got);
    bool ok = buf_ok(&number) && buf_ok(&got);
    v[CHOSEN] = -1;
    for (size_t i = 0; ok && i < t->n_accepted; i++) {
        buf_clear(&want);
        match_normalize(t->accepted[i], o->normalize, &want);
        ok = buf_ok(&want);
        if (want.len == got.len && (!got.len || !memcmp(want.data, got.data, got.len))) {
            v[CORRECT] = v[CORRECT_NORMALIZED] = 1;
            v[CHOSEN] = (double)i;
            break;
        }
    }
    buf_free(&number);
    buf_free(&got);
    buf_free(&want);
    return ok ? 0 : error_set(err, QUIRE_ENOMEM, "out of memory for an answer");
}

struct accuracy {
    double n, correct, normalized;
};

static struct accuracy accuracy_of(const struct results *s, bool choices) {
    struct accuracy a = {0};
    for (size_t i = 0; i < s->n; i++) {
        const struct item *item = &s->items[i];
        if (!item->done || (item->values[CHOICES] > 0) != choices) continue;
        a.n++;
        a.correct += item->values[CORRECT];
        a.normalized += item->values[CORRECT_NORMALIZED];
    }
    return a;
}

static int answered(void *user, size_t i, struct error *err) {
    struct tasks_run *r = user;
    size_t t = r->task[i];
    struct task *task = &r->file.list[t];
    double v[N_COLUMNS] = {0};
    int rc = 0;
    char note[60];
    if (i + 1 < r->n_asks && r->task[i + 1] == t) return 0; /* more choices of this task are to come */
    if (task->n_choices)
        judge_choices(task, &r->asks[i + 1 - task->n_choices], v);
    else
        rc = judge_answer(r->o, task, &r->asks[i], v, err);
    if (!rc) rc = results_put(&r->items, t, v, NULL, 0, err);
    buf_free(&r->asks[i].text);
    snprintf(note, sizeof note, "%.0f right", results_sum(&r->items, CORRECT));
    bar_show(&r->bar, r->items.n_done, note);
    return rc;
}

/* ---- report ---- */

static double share_error(double p, double n) {
    return n > 1 ? sqrt(p * (1 - p) / (n - 1)) : 0;
}

static void put_accuracy(struct json_out *j, const char *name, double right, double n) {
    json_out_key(j, name);
    json_out_f64(j, right / n);
}

static void summary(const struct results *s, struct json_out *j, void *ctx) {
    struct accuracy m = accuracy_of(s, true), e = accuracy_of(s, false);
    json_out_key(j, "multiple_choice");
    json_out_f64(j, m.n);
    if (m.n > 0) {
        put_accuracy(j, "accuracy", m.correct, m.n);
        put_accuracy(j, "accuracy_normalized", m.normalized, m.n);
    }
    json_out_key(j, "exact_match");
    json_out_f64(j, e.n);
    if (e.n > 0) put_accuracy(j, "exact_match_accuracy", e.correct, e.n);
}

static void print_row(FILE *out, const char *what, double right, double n) {
    if (n > 0)
        fprintf(out, "%-22s %6.0f %8.2f %%  +/- %.2f\n", what, n, 100 * right / n,
                100 * share_error(right / n, n));
}

static void print(const struct tasks_run *r) {
    struct accuracy m = accuracy_of(&r->items, true), e = accuracy_of(&r->items, false);
    FILE *out = r->c->out;
    fprintf(out, "%s: %zu of %zu tasks\n\n%-22s %6s %10s\n", r->o->file, r->items.n_done, r->items.n, "",
            "tasks", "right");
    print_row(out, "multiple choice", m.correct, m.n);
    print_row(out, "  length-normalized", m.normalized, m.n);
    print_row(out, "exact match", e.correct, e.n);
}

static json_t *setup_of(const struct eval_tasks *o, const char *text, size_t len) {
    char hash[33];
    hash_hex(hash128_bulk(text, len), hash);
    return json_pack("{s:s, s:b, s:f, s:I, s:I, s:s, s:s}", "tasks", hash, "chat", o->chat, "temperature",
                     o->temperature, "seed", (json_int_t)o->seed, "max_tokens", (json_int_t)o->max_tokens,
                     "normalize", EVAL_NORMALIZE_NAMES[o->normalize], "extract",
                     EVAL_EXTRACT_NAMES[o->extract]);
}

int eval_tasks_check(const struct eval_tasks *o, struct error *err) {
    struct task_file f;
    int rc = task_file_read(o->file, o->text.data, o->text.len, o->limit, &f, err);
    if (!rc) task_file_free(&f);
    return rc;
}

int eval_tasks(const struct eval_context *c, const struct eval_tasks *o, struct error *err) {
    struct tasks_run r = {.c = c, .o = o};
    int rc = task_file_read(o->file, o->text.data, o->text.len, o->limit, &r.file, err);
    if (!rc)
        rc = results_open(&r.items, c, "tasks", COLUMNS, N_COLUMNS, r.file.n, results_model(c),
                          setup_of(o, o->text.data, o->text.len), err);
    for (size_t i = 0; !rc && i < r.file.n; i++) r.items.items[i].id = r.file.list[i].id;
    if (!rc) rc = put_asks(&r, err);
    if (!rc) {
        bar_start(&r.bar, "tasks", r.items.n_done, r.items.n);
        rc = asks_answer(c, r.asks, r.n_asks, answered, &r, err);
        bar_end(&r.bar);
        if (r.items.n_done) print(&r);
        rc = results_end(&r.items, rc, summary, NULL, err);
    }
    for (size_t i = 0; r.asks && i < r.n_asks; i++) buf_free(&r.asks[i].text);
    free(r.asks);
    free(r.task);
    results_free(&r.items);
    task_file_free(&r.file);
    return rc;
}
