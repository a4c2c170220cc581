/* What was found: for the terminal, as a file that `quire serve --config` reads, and as a page. */
#include "base/error.h"
#include "base/files.h"
#include "load/report.h"
#include "load/svg.h"
#include "tune/knobs.h"
#include "tune/search.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const verdict_names[] = {"better",    "worse",         "no difference",
                                            "ruled out", "other answers", "failed"};

/* ---- terminal ---- */

static void change_text(const struct search *s, const struct tune_step *step, char *out, size_t size) {
    char v[80];
    if (step->matrix) {
        candidate_print(s->o, &step->c, out, size);
        return;
    }
    knob_print(s->o, step->knob, step->c.v[step->knob], v, sizeof v);
    snprintf(out, size, "%s %s", knob_rows[step->knob].name, v);
}

void report_step(const struct search *s, const struct tune_step *step) {
    char change[300];
    change_text(s, step, change, sizeof change);
    fprintf(s->out, "%-36s %s", change, verdict_names[step->verdict]);
    if (step->verdict >= VERDICT_RULED_OUT) {
        fprintf(s->out, ": %s\n", step->why);
        fflush(s->out);
        return;
    }
    fprintf(s->out, ": goodput %.3f -> %.3f/s", step->before.good_per_s, step->after.good_per_s);
    if (step->low != 0 || step->high != 0)
        fprintf(s->out, " (%+.1f %% to %+.1f %%)", 100 * step->low, 100 * step->high);
    fprintf(s->out, ", SLO at %.2f -> %.2f, TTFT P95 %.0f ms, TPOT P95 %.1f ms, %.1f output tok/s\n",
            step->before.excess, step->after.excess, step->after.ttft_p95, step->after.tpot_p95,
            step->after.output_per_s);
    if (step->q.tokens) {
        quality_print(&step->q, change, sizeof change);
        fprintf(s->out, "%-36s answers against the defaults', %zu tokens: %s\n", "", step->q.tokens, change);
    }
    fflush(s->out);
}

/* What was seen of the best one's answers; false: they are the defaults'. */
static bool quality_of_best(const struct search *s, char *out, size_t size) {
    for (size_t i = 0; i < s->n_steps; i++) {
        const struct tune_step *step = &s->steps[i];
        if (!step->q.tokens || !changes_answers(s->o, &s->best) ||
            step->c.v[KNOB_DTYPE] != s->best.v[KNOB_DTYPE] ||
            step->c.v[KNOB_WEIGHTS] != s->best.v[KNOB_WEIGHTS])
            continue;
        quality_print(&step->q, out, size);
        return true;
    }
    return false;
}

void report_end(const struct search *s) {
    char text[300];
    const struct figures *a = &s->base_figures, *b = &s->best_figures;
    candidate_print(s->o, &s->best, text, sizeof text);
    fprintf(s->out, "\n%zu runs%s", s->trials.n, s->trials.spent ? ", the budget is spent" : "");
    if (s->trials.n_old) fprintf(s->out, " (%zu of them earlier)", s->trials.n_old);
    fprintf(s->out, "\nbest: %s\n", text);
    if (quality_of_best(s, text, sizeof text))
        fprintf(s->out, "its answers against the defaults': %s\n", text);
    if (s->unconfirmed)
        fprintf(s->out, "there was no time to measure it and the defaults once more: it may have had luck\n");
    if (s->reverted)
        fprintf(s->out, "measured again, what had seemed best was no better than the defaults: they stay\n");
    fprintf(s->out, "%-10s %12s %12s %12s %12s %14s\n", "", "goodput/s", "TTFT P95 ms", "TPOT P95 ms",
            "SLO at", "output tok/s");
    fprintf(s->out, "%-10s %12.3f %12.0f %12.1f %12.2f %14.1f\n", "defaults", a->good_per_s, a->ttft_p95,
            a->tpot_p95, a->excess, a->output_per_s);
    fprintf(s->out, "%-10s %12.3f %12.0f %12.1f %12.2f %14.1f\n", "best", b->good_per_s, b->ttft_p95,
            b->tpot_p95, b->excess, b->output_per_s);
    if (b->excess > 1)
        fprintf(
            s->out,
            "the SLO is not held: the nearest that was found has its worst quantile at %.2f of its limit\n",
            b->excess);
}

/* ---- configuration ---- */

static void config_text(const struct search *s, struct buf *out) {
    const struct tune_options *o = s->o;
    char quality[120];
    buf_printf(out, "# quire tune: goodput %.3f requests/s under --slo %s; with the defaults %.3f\n",
               s->best_figures.good_per_s, o->load.slo, s->base_figures.good_per_s);
    if (quality_of_best(s, quality, sizeof quality))
        buf_printf(out, "# answers against the defaults': %s\n", quality);
    if (!o->open_loop)
        buf_printf(out,
                   "# with at most %.0f requests in flight: what limits them is in front of the server\n",
                   s->best.v[KNOB_CONCURRENCY]);
    if (o->model) buf_printf(out, "model: \"%s\"\n", o->weights[(size_t)s->best.v[KNOB_WEIGHTS]]);
    for (const char *const *a = o->server_args; a && *a; a++) { /* "--name=value" or "--[no-]name" */
        const char *name = *a + 2, *value = strchr(name, '=');
        if (value)
            buf_printf(out, "%.*s: \"%s\"\n", (int)(value - name), name, value + 1);
        else
            buf_printf(out, "%s: %s\n", strncmp(name, "no-", 3) ? name : name + 3,
                       strncmp(name, "no-", 3) ? "true" : "false");
    }
    for (int k = KNOB_CONCURRENCY + 1; k < KNOBS; k++) {
        char v[80];
        if (k == KNOB_WEIGHTS || (s->best.v[k] == o->base.v[k] && !(o->given & 1u << k))) continue;
        knob_print(o, (enum knob)k, s->best.v[k], v, sizeof v);
        buf_printf(out, "%s: %s\n", knob_rows[k].name,
                   knob_rows[k].kind == KNOB_SWITCH ? s->best.v[k] > 0 ? "true" : "false" : v);
    }
}

/* ---- page ---- */

static void figure_cells(struct buf *out, const struct figures *f) {
    buf_printf(out, "<td>%.3f</td><td>%.1f&nbsp;%%</td><td>%.2f</td><td>%.0f</td><td>%.1f</td><td>%.1f</td>",
               f->good_per_s, 100 * f->good_share, f->excess, f->ttft_p95, f->tpot_p95, f->output_per_s);
}

/* f NULL: nothing was measured. quality NULL: answers are the defaults'. */
static void figure_row(struct buf *out, const char *name, const struct figures *f, const char *verdict,
                       const char *quality) {
    buf_puts(out, "<tr><td>");
    html_text(out, name);
    buf_puts(out, "</td>");
    if (f)
        figure_cells(out, f);
    else
        for (int i = 0; i < 6; i++) buf_puts(out, "<td></td>");
    buf_puts(out, "<td style='text-align:left;white-space:normal;min-width:12em'>");
    html_text(out, verdict);
    if (quality) buf_puts(out, "<br><span class=dim>");
    if (quality) html_text(out, quality);
    buf_puts(out, quality ? "</span></td></tr>" : "</td></tr>");
}

static void step_row(const struct search *s, const struct tune_step *step, struct buf *out) {
    char change[300], quality[120];
    bool measured = step->verdict <= VERDICT_RULED_OUT;
    change_text(s, step, change, sizeof change);
    quality_print(&step->q, quality, sizeof quality);
    figure_row(out, change, measured ? &step->after : NULL, verdict_names[step->verdict],
               step->q.tokens            ? quality
               : *step->why && !measured ? step->why
                                         : NULL);
}

static void step_table(const struct search *s, struct buf *out) {
    char best[300], quality[120];
    buf_puts(out,
             "<h2>Steps</h2><p class=dim>Each beside the best before it. Ruled out: by the simulator, whose "
             "figures are shown. Of what changes answers, they are beside those of the defaults.</p>"
             "<div class=scroll><table><tr><th>change</th><th>goodput/s</th><th>within</th><th>SLO "
             "at</th><th>TTFT P95 ms</th><th>TPOT P95 ms</th><th>output tok/s</th><th "
             "style='text-align:left'>verdict</th></tr>");
    figure_row(out, "defaults", &s->trials.v[0].f, "", NULL);
    for (size_t i = 0; i < s->n_steps; i++) step_row(s, &s->steps[i], out);
    candidate_print(s->o, &s->best, best, sizeof best);
    figure_row(out, best, &s->best_figures, s->unconfirmed ? "the best" : "the best, measured again",
               quality_of_best(s, quality, sizeof quality) ? quality : NULL);
    buf_puts(out, "</table></div>");
}

static int by_x(const void *a, const void *b) {
    const double *x = a, *y = b;
    return x[0] < y[0] ? -1 : x[0] > y[0];
}

/* Concurrency against what it gives: measured and, for all values, predicted. */
static void knee(const struct search *s, struct buf *out) {
    double measured[TRIALS_MAX][3], x[2][TRIALS_MAX], good[2][TRIALS_MAX], ttft[2][TRIALS_MAX];
    size_t n[2] = {0};
    for (size_t i = 0; i < s->trials.n && !s->o->open_loop; i++) {
        const struct trial *r = &s->trials.v[i];
        bool other = r->part != 1 || *r->failed;
        for (int k = KNOB_CONCURRENCY + 1; k < KNOBS; k++) other |= r->c.v[k] != s->o->base.v[k];
        if (other) continue;
        measured[n[0]][0] = r->c.v[KNOB_CONCURRENCY];
        measured[n[0]][1] = r->f.good_per_s;
        measured[n[0]++][2] = r->f.ttft_p95;
    }
    qsort(measured, n[0], sizeof *measured, by_x);
    for (size_t i = 0; i < n[0]; i++)
        x[0][i] = measured[i][0], good[0][i] = measured[i][1], ttft[0][i] = measured[i][2];
    for (double c = 1; c <= 128 && !s->o->open_loop; c *= 2) {
        struct candidate v = s->o->base;
        struct figures f;
        v.v[KNOB_CONCURRENCY] = c;
        if (!predict(s->o, &s->trials.slo, &v, &f)) continue;
        x[1][n[1]] = c;
        good[1][n[1]] = f.good_per_s;
        ttft[1][n[1]++] = f.ttft_p95;
    }
    struct series g[2] = {{"measured", x[0], good[0], n[0], false, true},
                          {"simulated", x[1], good[1], n[1], true, false}};
    struct series t[2] = {{"measured", x[0], ttft[0], n[0], false, true},
                          {"simulated", x[1], ttft[1], n[1], true, false}};
    svg_lines(
        out,
        &(struct chart){
            .title = "Goodput", .x_label = "requests in flight", .y_label = "requests/s", .x_log = true},
        g, 2);
    svg_lines(out,
              &(struct chart){.title = "TTFT P95",
                              .x_label = "requests in flight",
                              .y_label = "ms",
                              .x_log = true,
                              .line_y = s->trials.slo.ttft_ms,
                              .line_name = "SLO"},
              t, 2);
}

static const struct trial *cell_of(const struct search *s, double seqs, double tokens) {
    struct candidate c = s->best;
    const struct trial *found = NULL;
    c.v[KNOB_SEQS] = seqs;
    c.v[KNOB_TOKENS] = tokens;
    for (size_t i = 0; i < s->trials.n; i++)
        if (candidate_equal(&s->trials.v[i].c, &c) && (!found || s->trials.v[i].part > found->part))
            found = &s->trials.v[i];
    return found;
}

/* max-num-seqs down, max-num-batched-tokens across: goodput measured, else predicted (paler). */
static void heat_map(const struct search *s, struct buf *out) {
    double seqs[LADDER_MAX], tokens[LADDER_MAX], most = 0, value[LADDER_MAX][LADDER_MAX];
    bool real[LADDER_MAX][LADDER_MAX], any = false;
    size_t n = knob_ladder(s->o, KNOB_SEQS, s->best.v[KNOB_SEQS], seqs);
    size_t m = knob_ladder(s->o, KNOB_TOKENS, s->best.v[KNOB_TOKENS], tokens);
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < m; k++) {
            const struct trial *r = cell_of(s, seqs[i], tokens[k]);
            struct candidate c = s->best;
            struct figures f;
            c.v[KNOB_SEQS] = seqs[i];
            c.v[KNOB_TOKENS] = tokens[k];
            real[i][k] = r != NULL;
            value[i][k] = r ? r->f.good_per_s : predict(s->o, &s->trials.slo, &c, &f) ? f.good_per_s : -1;
            most = fmax(most, value[i][k]);
            any |= value[i][k] >= 0;
        }
    if (!any) return;
    buf_puts(out,
             "<figure><figcaption>Goodput <span>requests/s, the rest as in the best; pale: simulated</span>"
             "</figcaption><div style='overflow-x:auto'><table><tr><th>seqs \\ tokens</th>");
    for (size_t k = 0; k < m; k++) buf_printf(out, "<th>%.0f</th>", tokens[k]);
    for (size_t i = 0; i < n; i++) {
        buf_printf(out, "</tr><tr><td>%.0f</td>", seqs[i]);
        for (size_t k = 0; k < m; k++) {
            double share = most > 0 && value[i][k] > 0 ? value[i][k] / most : 0;
            if (value[i][k] < 0)
                buf_puts(out, "<td></td>");
            else
                buf_printf(out, "<td style='background:hsl(%.0f 70%% 50%% / %s)'>%.2f</td>", 120 * share,
                           real[i][k] ? ".75" : ".25", value[i][k]);
        }
    }
    buf_puts(out, "</tr></table></div></figure>");
}

static void page(const struct search *s, struct buf *out) {
    report_html_style(out);
    buf_puts(out, "<title>quire tune</title></head><body><h1>");
    html_text(out, s->o->model ? s->o->model : s->o->command);
    buf_puts(out, "</h1><p class=dim>quire tune, goodput under --slo ");
    html_text(out, s->o->load.slo);
    buf_printf(out, "; %zu runs</p><div class=grid>", s->trials.n);
    knee(s, out);
    buf_puts(out, "</div>");
    heat_map(s, out);
    step_table(s, out);
    buf_puts(out, "</body></html>\n");
}

/* ---- files ---- */

int report_files_open(struct search *s, struct error *err) {
    int rc = file_open_result("--config-out", s->o->config, &s->files.config, err);
    return rc ? rc : file_open_result("--html", s->o->html, &s->files.html, err);
}

void report_files_close(struct search *s) {
    if (s->files.config) fclose(s->files.config);
    if (s->files.html) fclose(s->files.html);
}

static int write_one(const struct search *s, FILE **f, const char *given, const char *name,
                     const char *option, void (*fill)(const struct search *s, struct buf *out),
                     struct error *err) {
    char path[1100];
    struct buf text = BUF_INIT;
    int rc = 0;
    snprintf(path, sizeof path, "%s/%s", s->o->folder, name);
    if (!*f) rc = file_open_result("--folder", path, f, err);
    fill(s, &text);
    if (!rc) rc = file_write_result(*f, given ? option : "--folder", given ? given : path, &text, err);
    if (!rc) fprintf(s->out, "%s: %s\n", name, given ? given : path);
    buf_free(&text);
    return rc;
}

int report_write(struct search *s, struct error *err) {
    int rc = write_one(s, &s->files.config, s->o->config, "config.yaml", "--config-out", config_text, err);
    return rc ? rc : write_one(s, &s->files.html, s->o->html, "report.html", "--html", page, err);
}
