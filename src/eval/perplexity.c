#include "base/error.h"
#include "eval/figures.h"
#include "eval/score.h"

#include <math.h>
#include <string.h>

static const char *const COLUMNS[] = {"tokens", "nll", "nll_squares"};

static int put(void *user, const struct scored *s, struct error *err) {
    struct results *items = user;
    return results_put(items, s->window, (double[]){(double)s->n, s->nll, s->nll_squares}, NULL, 0, err);
}

static void note(void *user, char *text, size_t cap) {
    const struct results *s = user;
    struct perplexity p = perplexity_of(results_sum(s, 0), results_sum(s, 1), results_sum(s, 2));
    snprintf(text, cap, "perplexity %.4f", p.value);
}

static void summary(const struct results *s, struct json_out *j, void *ctx) {
    struct perplexity p = perplexity_of(results_sum(s, 0), results_sum(s, 1), results_sum(s, 2));
    json_out_key(j, "windows");
    json_out_u64(j, s->n_done);
    json_out_key(j, "tokens");
    json_out_f64(j, results_sum(s, 0));
    json_out_key(j, "perplexity");
    json_out_f64(j, p.value);
    json_out_key(j, "error");
    json_out_f64(j, p.error);
}

static void print(const struct results *s, const struct windows *w, const struct eval_text *text, FILE *out) {
    struct perplexity p = perplexity_of(results_sum(s, 0), results_sum(s, 1), results_sum(s, 2));
    fprintf(out, "%-12s %s, %zu tokens\n", "text", text->name, w->tokens.n);
    if (w->stride)
        fprintf(out, "%-12s %zu of %zu, context %zu, stride %zu\n", "windows", s->n_done, s->n, w->context,
                w->stride);
    else
        fprintf(out, "%-12s %zu of %zu, context %zu, second half of each\n", "windows", s->n_done, s->n,
                w->context);
    fprintf(out, "%-12s %.0f\n", "scored", results_sum(s, 0));
    fprintf(out, "%-12s %.4f +/- %.4f\n", "perplexity", p.value, p.error);
}

int eval_perplexity(const struct eval_context *c, const struct eval_perplexity *o, struct error *err) {
    struct windows w;
    struct results s = {0};
    int rc = windows_make(&w, c->local->tokenizer, o, err);
    if (rc) return rc;
    rc = results_open(&s, c, "perplexity", COLUMNS, 3, w.n, results_model(c), windows_setup(&w), err);
    if (!rc) {
        struct score_job job = {.c = c, .w = &w, .items = &s, .done = put, .note = note, .user = &s};
        rc = score_windows(&job, err);
        if (s.n_done) print(&s, &w, &o->text, c->out);
        rc = results_end(&s, rc, summary, NULL, err);
    }
    results_free(&s);
    windows_free(&w);
    return rc;
}
