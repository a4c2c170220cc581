#include "base/error.h"
#include "base/stats.h"
#include "eval/figures.h"
#include "eval/kl_file.h"
#include "eval/score.h"

#include <stdlib.h>
#include <string.h>

struct kl_run {
    const struct windows *w;
    struct results items;
    struct kl_file file;
};

/* ---- saving ---- */

static const char *const SAVED[] = {"tokens", "nll", "nll_squares"};

static void save_row(void *user, void *rows, size_t window, size_t row, const float *logits, size_t n_vocab) {
    struct kl_run *r = user;
    const struct window *w = &r->w->list[window];
    kl_row_encode(kl_file_row(&r->file, window, row), r->w->tokens.ids[w->begin + w->first + row], logits,
                  n_vocab);
}

static int put_saved(void *user, const struct scored *s, struct error *err) {
    struct kl_run *r = user;
    return results_put(&r->items, s->window, (double[]){(double)s->n, s->nll, s->nll_squares}, NULL, 0, err);
}

/* ---- comparing ---- */

enum { TOKENS, NLL, NLL_SQUARES, REFERENCE_NLL, KL, TOP1, N_COMPARED };
static const char *const COMPARED[] = {"tokens", "nll", "nll_squares", "reference_nll", "kl", "top1"};

struct compared {
    float kl, reference_nll;
    bool same_top;
};

static void compare_row(void *user, void *rows, size_t window, size_t row, const float *logits,
                        size_t n_vocab) {
    struct kl_run *r = user;
    const struct kl_row *reference = kl_file_row(&r->file, window, row);
    struct kl_distance d = kl_row_distance(reference, logits, n_vocab);
    ((struct compared *)rows)[row] = (struct compared){
        .kl = d.kl, .reference_nll = -reference->logprob, .same_top = d.top == reference->top};
}

static int put_compared(void *user, const struct scored *s, struct error *err) {
    struct kl_run *r = user;
    const struct compared *c = s->rows;
    double v[N_COMPARED] = {[TOKENS] = (double)s->n, [NLL] = s->nll, [NLL_SQUARES] = s->nll_squares};
    float *kl = calloc(s->n + 1, sizeof *kl);
    if (!kl) return error_set(err, QUIRE_ENOMEM, "out of memory for the results");
    for (size_t i = 0; i < s->n; i++) {
        kl[i] = c[i].kl;
        v[KL] += (double)c[i].kl;
        v[REFERENCE_NLL] += (double)c[i].reference_nll;
        v[TOP1] += c[i].same_top;
    }
    return results_put(&r->items, s->window, v, kl, s->n, err);
}

static void note(void *user, char *text, size_t cap) {
    const struct results *s = &((struct kl_run *)user)->items;
    snprintf(text, cap, "mean KL %.5f", results_sum(s, KL) / results_sum(s, TOKENS));
}

/* ---- figures ---- */

struct kl_figures {
    double n, mean, p50, p90, p99, max, top1;
    struct perplexity own, reference;
};

static int figures_of(const struct results *s, struct kl_figures *f, struct error *err) {
    size_t n = 0, all = 0;
    for (size_t i = 0; i < s->n; i++) all += s->items[i].n_detail;
    double *kl = calloc(all + 1, sizeof *kl);
    if (!kl) return error_set(err, QUIRE_ENOMEM, "out of memory for %zu figures", all);
    for (size_t i = 0; i < s->n; i++)
        for (size_t k = 0; k < s->items[i].n_detail; k++) kl[n++] = (double)s->items[i].detail[k];
    stats_sort(kl, n);
    double tokens = results_sum(s, TOKENS), each = tokens > 0 ? 1 / tokens : 0;
    *f = (struct kl_figures){.n = tokens,
                             .mean = results_sum(s, KL) * each,
                             .p50 = stats_quantile(kl, n, 0.5),
                             .p90 = stats_quantile(kl, n, 0.9),
                             .p99 = stats_quantile(kl, n, 0.99),
                             .max = stats_quantile(kl, n, 1),
                             .top1 = results_sum(s, TOP1) * each,
                             .own = perplexity_of(tokens, results_sum(s, NLL), results_sum(s, NLL_SQUARES)),
                             .reference = perplexity_of(tokens, results_sum(s, REFERENCE_NLL), 0)};
    free(kl);
    return 0;
}

static void summary(const struct results *s, struct json_out *j, void *ctx) {
    const struct kl_figures *f = ctx;
    json_out_put_f64(j, "windows", (double)s->n_done);
    json_out_put_f64(j, "tokens", f->n);
    json_out_put_f64(j, "perplexity", f->own.value);
    json_out_put_f64(j, "error", f->own.error);
    if (s->n_columns != N_COMPARED) return;
    json_out_put_f64(j, "reference_perplexity", f->reference.value);
    json_out_put_f64(j, "kl_mean", f->mean);
    json_out_put_f64(j, "kl_p50", f->p50);
    json_out_put_f64(j, "kl_p90", f->p90);
    json_out_put_f64(j, "kl_p99", f->p99);
    json_out_put_f64(j, "kl_max", f->max);
    json_out_put_f64(j, "top1", f->top1);
}

static void print(const struct kl_run *r, const struct kl_figures *f, const struct eval_kl *o, FILE *out) {
    fprintf(out, "%-12s %s, %zu tokens\n", "text", o->windows.text.name, r->w->tokens.n);
    fprintf(out, "%-12s %zu of %zu, context %zu, %.0f tokens scored\n", "windows", r->items.n_done,
            r->items.n, r->w->context, f->n);
    if (o->save) {
        fprintf(out, "%-12s %.4f +/- %.4f\n%-12s %s, %.1f MB\n", "perplexity", f->own.value, f->own.error,
                "saved", o->save, (double)r->file.bytes / 1e6);
        return;
    }
    const struct kl_header *h = r->file.header;
    fprintf(out, "%-12s %.120s, %.15s, %.15s\n", "reference", h->model, h->dtype, h->cpu);
    fprintf(out, "%-12s %.4f, reference %.4f (%+.3f %%)\n", "perplexity", f->own.value, f->reference.value,
            100 * (f->own.value / f->reference.value - 1));
    fprintf(out, "%-12s mean %.6f, P50 %.6f, P90 %.6f, P99 %.6f, max %.6f nats\n", "KL", f->mean, f->p50,
            f->p90, f->p99, f->max);
    fprintf(out, "%-12s %.3f %%\n", "same top-1", 100 * f->top1);
}

/* ---- run ---- */

/* rc: what the run returned. */
static int report(struct kl_run *r, const struct eval_kl *o, const struct eval_context *c, int rc,
                  struct error *err) {
    struct kl_figures f = {0};
    struct error later, *e = rc < 0 ? &later : err;
    size_t n_first = 0;
    while (n_first < r->items.n && r->items.items[n_first].done) n_first++;
    int more = o->save ? kl_file_finish(&r->file, o->save, n_first, e) : figures_of(&r->items, &f, e);
    if (o->save) {
        f.n = results_sum(&r->items, TOKENS);
        f.own = perplexity_of(f.n, results_sum(&r->items, NLL), results_sum(&r->items, NLL_SQUARES));
    }
    if (r->items.n_done && !more) print(r, &f, o, c->out);
    if (o->distance)
        *o->distance = (struct eval_distance){.windows = r->items.n_done,
                                              .tokens = (size_t)f.n,
                                              .perplexity = f.own.value,
                                              .reference_perplexity = f.reference.value,
                                              .kl = f.mean,
                                              .top1 = f.top1};
    if (rc >= 0 && more) rc = more;
    return results_end(&r->items, rc, summary, &f, err);
}

size_t eval_window_bytes(size_t context, size_t n_vocab) {
    return (context - 1 - context / 2) * kl_row_bytes(n_vocab);
}

int eval_kl(const struct eval_context *c, const struct eval_kl *o, struct error *err) {
    struct windows w;
    struct kl_run r = {.w = &w};
    if (!o->save == !o->reference)
        return error_set(err, QUIRE_EINVAL, "one of --save FILE and --reference FILE is needed");
    int rc = windows_make(&w, c->local->tokenizer, &o->windows, err);
    if (rc) return rc;
    size_t n_vocab = quire_info(c->local->engine)->n_vocab;
    if (o->reference) rc = kl_file_open(o->reference, &w, n_vocab, &r.file, &w.n, err);
    if (!rc)
        rc = results_open(&r.items, c, o->save ? "perplexity" : "kl", o->save ? SAVED : COMPARED,
                          o->save ? 3 : N_COMPARED, w.n, results_model(c), windows_setup(&w), err);
    if (!rc && o->save) rc = kl_file_create(o->save, &w, c, r.items.n_done, &r.file, err);
    if (!rc) {
        struct score_job job = {.c = c,
                                .w = &w,
                                .items = &r.items,
                                .rows_bytes = o->save ? 0 : w.most_scored * sizeof(struct compared),
                                .read = o->save ? save_row : compare_row,
                                .done = o->save ? put_saved : put_compared,
                                .note = o->save ? NULL : note,
                                .user = &r};
        rc = score_windows(&job, err);
        rc = report(&r, o, c, rc, err);
    }
    results_free(&r.items);
    kl_file_close(&r.file);
    windows_free(&w);
    return rc;
}
