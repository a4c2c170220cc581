/* The rows of an ablation for people and programs. */
#include "load/ablation.h"

#include "load/json_member.h"
#include "load/report.h"
#include "load/svg.h"

#include <math.h>
#include <string.h>
#include <time.h>

static const struct point *best_of(const struct ablation_result *r) {
    return r->best >= 0 ? &r->plan->points[r->best] : NULL;
}

static double price_of(const struct ablation *a) {
    return a->results[0].plan ? a->results[0].plan->price : 0;
}

/* Of a million useful tokens; without a price in percent of the first row's. 0: not known. */
static double cost_of(const struct ablation *a, const struct ablation_result *r) {
    double price = price_of(a), first = a->results[0].useful_per_s;
    if (!(r->useful_per_s > 0)) return 0;
    if (price > 0) return price / 3600 / r->useful_per_s * 1e6;
    return 100 * first / r->useful_per_s;
}

static void describe(const struct ablation_result *r, char *text, size_t cap) {
    const char *answers = !r->row->answers_stay ? ""
                          : !r->asked           ? "answers not compared"
                          : r->same_answers     ? "answers: the same"
                                                : "ANSWERS DIFFER";
    snprintf(text, cap, "%s%s%s", answers, *answers && *r->row->quality ? "; " : "", r->row->quality);
}

static void percent(char *text, size_t cap, double share) {
    if (isnan(share))
        snprintf(text, cap, "-");
    else
        snprintf(text, cap, "%+.1f %%", -100 * share);
}

/* ---- text ---- */

void ablation_line(const struct ablation *a, const struct ablation_result *r, FILE *out) {
    fprintf(out, "%-24s", r->row->name);
    for (size_t i = 0; r->plan && i < r->plan->n_points; i++) {
        const struct point *k = &r->plan->points[i];
        if (k->n_runs)
            fprintf(out, "  %zu: %.1f tok/s, %.0f %% within", k->concurrency, k->all.useful_per_s,
                    100 * k->all.good_share);
    }
    fprintf(out, "\n");
    fflush(out);
}

void ablation_table(const struct ablation *a, FILE *out) {
    bool priced = price_of(a) > 0;
    fprintf(out, "\n%s, %s\n", a->model, a->machine);
    fprintf(out, "SLA %s for %.0f %% of the requests\n\n", a->slo_text, 100 * a->within);
    fprintf(out, "%-24s %7s %12s %9s %9s %7s %9s %10s %9s %9s  %s\n", "", "streams", "useful tok/s",
            "TTFT P95", "TPOT P95", "within", "tok/CPU s", priced ? "cost/1M" : "cost, %", "own", "in all",
            "quality");
    for (size_t i = 0; i < a->n_rows; i++) {
        const struct ablation_result *r = &a->results[i];
        const struct point *k = best_of(r);
        char own[20], total[20], quality[240];
        if (!r->plan) continue;
        describe(r, quality, sizeof quality);
        percent(own, sizeof own, r->gain);
        percent(total, sizeof total, r->total);
        if (k)
            fprintf(out, "%-24s %7zu %12.1f %9.0f %9.1f %5.0f %% %9.1f %10.4g %9s %9s  %s\n", r->row->name,
                    k->concurrency, r->useful_per_s, k->all.ms[LATENCY_TTFT].p95, k->all.ms[LATENCY_TPOT].p95,
                    100 * k->all.good_share, k->all.useful_per_cpu_s, cost_of(a, r), own, total, quality);
        else
            fprintf(out, "%-24s %7s %12s  %s\n", r->row->name, "-", "-", r->why);
    }
    fprintf(out, "\n");
    for (size_t i = 0; i < a->n_rows; i++)
        if (a->results[i].plan) fprintf(out, "%s: %s\n", a->rows[i].name, a->rows[i].about);
    for (size_t i = 0; i < sizeof a->notes / sizeof *a->notes; i++)
        if (*a->notes[i]) fprintf(out, "note: %s\n", a->notes[i]);
    fflush(out);
}

/* ---- CSV ---- */

static void field(struct buf *out, const char *s) {
    buf_putc(out, '"');
    for (; *s; s++) {
        if (*s == '"') buf_putc(out, '"');
        buf_putc(out, *s);
    }
    buf_putc(out, '"');
}

static void figure(struct buf *out, bool known, double v) {
    if (known)
        buf_printf(out, ",%.6g", v);
    else
        buf_putc(out, ',');
}

void ablation_csv(const struct ablation *a, struct buf *out) {
    bool priced = price_of(a) > 0;
    buf_puts(out, "row,streams,useful_tokens_per_s,ttft_ms_p95,tpot_ms_p95,good_share,useful_tokens_per_cpu_"
                  "s,cost_per_1m_useful,"
                  "cost_of_first,own_gain,total_gain,perplexity,quality,why\n");
    for (size_t i = 0; i < a->n_rows; i++) {
        const struct ablation_result *r = &a->results[i];
        const struct point *k = best_of(r);
        char quality[240];
        if (!r->plan) continue;
        describe(r, quality, sizeof quality);
        field(out, r->row->name);
        figure(out, k, k ? (double)k->concurrency : 0);
        figure(out, k, r->useful_per_s);
        figure(out, k, k ? k->all.ms[LATENCY_TTFT].p95 : 0);
        figure(out, k, k ? k->all.ms[LATENCY_TPOT].p95 : 0);
        figure(out, k, k ? k->all.good_share : 0);
        figure(out, k && k->all.useful_per_cpu_s > 0, k ? k->all.useful_per_cpu_s : 0);
        figure(out, k && priced, cost_of(a, r));
        figure(out, !isnan(r->total), 1 - r->total);
        figure(out, !isnan(r->gain), r->gain);
        figure(out, !isnan(r->total), r->total);
        figure(out, r->row->perplexity > 0, r->row->perplexity);
        buf_putc(out, ',');
        field(out, quality);
        buf_putc(out, ',');
        field(out, r->why);
        buf_putc(out, '\n');
    }
}

/* ---- JSON: points as of serve, so that compare reads them; and what only an ablation has ---- */

static void row_json(struct json_out *j, const struct ablation *a, const struct ablation_result *r) {
    const struct point *k = best_of(r);
    char quality[240];
    describe(r, quality, sizeof quality);
    json_out_obj(j);
    json_text(j, "title", r->row->name);
    json_text(j, "about", r->row->about);
    json_out_key(j, "server_arguments");
    json_out_arr(j);
    for (const char *const *p = r->row->argv + 1; *p; p++) json_out_str(j, *p);
    json_out_arr_end(j);
    json_text(j, "workload", r->row->workload);
    json_number_or_null(j, "streams", k, k ? (double)k->concurrency : 0);
    json_number_or_null(j, "useful_tokens_per_s", k, r->useful_per_s);
    json_number_or_null(j, "cost_per_1m_useful", k && price_of(a) > 0, cost_of(a, r));
    json_number_or_null(j, "own_gain", !isnan(r->gain), r->gain);
    json_number_or_null(j, "total_gain", !isnan(r->total), r->total);
    json_number_or_null(j, "perplexity", r->row->perplexity > 0, r->row->perplexity);
    json_text_or_null(j, "quality", quality);
    json_out_key(j, "same_answers");
    if (r->row->answers_stay && r->asked)
        json_out_bool(j, r->same_answers);
    else
        json_out_null(j);
    json_text_or_null(j, "why", r->why);
    json_number_or_null(j, "server_cpu_s", r->server_cpu_s > 0, r->server_cpu_s);
    json_number_or_null(j, "server_peak_bytes", r->peak_bytes, (double)r->peak_bytes);
    if (k) {
        report_json_summary(j, r->plan, &k->all);
        json_out_key(j, "repeats");
        json_out_arr(j);
        json_out_obj(j);
        report_json_summary(j, r->plan, &k->repeats[0]);
        json_out_obj_end(j);
        json_out_arr_end(j);
    }
    json_out_key(j, "loads");
    json_out_arr(j);
    for (size_t i = 0; i < r->plan->n_points; i++)
        if (r->plan->points[i].n_runs) report_json_point(j, r->plan, &r->plan->points[i]);
    json_out_arr_end(j);
    json_out_obj_end(j);
}

void ablation_json(const struct ablation *a, struct buf *out) {
    struct json_out j;
    json_out_init(&j, out);
    json_out_obj(&j);
    json_text(&j, "format", "quire-bench-ablation");
    json_count(&j, "version", 1);
    json_out_key(&j, "created");
    json_out_i64(&j, a->created_unix_s);
    json_text_or_null(&j, "label", a->o->label);
    json_text(&j, "model", a->model);
    json_text(&j, "machine", a->machine);
    json_text(&j, "slo", a->slo_text);
    json_number(&j, "within", a->within);
    json_number(&j, "scale", a->o->scale);
    json_number(&j, "seconds", a->o->duration_s);
    json_out_key(&j, "seed");
    json_out_i64(&j, a->o->seed);
    json_number_or_null(&j, "price_per_hour", price_of(a) > 0, price_of(a));
    json_text_or_null(&j, "ended_early", a->ended);
    json_out_key(&j, "notes");
    json_out_arr(&j);
    for (size_t i = 0; i < sizeof a->notes / sizeof *a->notes; i++)
        if (*a->notes[i]) json_out_str(&j, a->notes[i]);
    json_out_arr_end(&j);
    json_out_key(&j, "points");
    json_out_arr(&j);
    for (size_t i = 0; i < a->n_rows; i++)
        if (a->results[i].plan && a->results[i].plan->n_points) row_json(&j, a, &a->results[i]);
    json_out_arr_end(&j);
    json_out_obj_end(&j);
    buf_putc(out, '\n');
}

/* ---- HTML ---- */

static void cell(struct buf *out, const char *text) {
    buf_puts(out, "<td>");
    html_text(out, text);
    buf_puts(out, "</td>");
}

static void page_row(const struct ablation *a, const struct ablation_result *r, struct buf *out) {
    const struct point *k = best_of(r);
    char text[300];
    buf_puts(out, "<tr>");
    cell(out, r->row->name);
    if (!k) {
        buf_puts(out, "<td colspan=9 class=dim>");
        html_text(out, r->why);
        buf_puts(out, "</td></tr>");
        return;
    }
    const double figures[] = {(double)k->concurrency,
                              r->useful_per_s,
                              k->all.ms[LATENCY_TTFT].p95,
                              k->all.ms[LATENCY_TPOT].p95,
                              100 * k->all.good_share,
                              k->all.useful_per_cpu_s,
                              cost_of(a, r)};
    static const int digits[] = {0, 1, 0, 1, 0, 1, 2};
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++)
        buf_printf(out, "<td>%.*f</td>", digits[i], figures[i]);
    percent(text, sizeof text, r->gain);
    cell(out, text);
    percent(text, sizeof text, r->total);
    cell(out, text);
    describe(r, text, sizeof text);
    cell(out, text);
    buf_puts(out, "</tr>");
}

static void page_bars(const struct ablation *a, struct buf *out) {
    struct bar cost[64], useful[64];
    size_t n = 0;
    for (size_t i = 0; i < a->n_rows && n < 64; i++) {
        const struct ablation_result *r = &a->results[i];
        if (!r->plan || r->best < 0) continue;
        cost[n] = (struct bar){r->row->name, cost_of(a, r)};
        useful[n++] = (struct bar){r->row->name, r->useful_per_s};
    }
    buf_puts(out, "<h2>Step by step</h2><div class=grid>");
    svg_bars(out, "Cost of 1M useful tokens", price_of(a) > 0 ? a->o->price : "% of the first row", cost, n);
    svg_bars(out, "Useful tokens", "a second", useful, n);
    buf_puts(out, "</div>");
}

void ablation_html(const struct ablation *a, struct buf *out) {
    char date[40] = "";
    time_t when = (time_t)a->created_unix_s;
    struct tm t;
    if (gmtime_r(&when, &t)) strftime(date, sizeof date, "%Y-%m-%d %H:%M UTC", &t);
    report_html_style(out);
    buf_puts(out, "<title>");
    html_text(out, a->o->label ? a->o->label : a->model);
    buf_puts(out, " · quire bench ablation</title></head><body><h1>What each step gives</h1><p class=dim>");
    html_text(out, a->model);
    buf_puts(out, " · ");
    html_text(out, a->machine);
    buf_printf(out, " · %s · scale %g</p><p class=dim>SLA ", date, a->o->scale);
    html_text(out, a->slo_text);
    buf_printf(out, " for %.0f %% of the requests</p>", 100 * a->within);
    if (*a->ended) {
        buf_puts(out, "<p class=warn>");
        html_text(out, a->ended);
        buf_puts(out, "</p>");
    }
    buf_printf(
        out,
        "<h2>Rows</h2><div class=scroll><table><tr><th>one change a row<th>streams<th>useful tok/s<th>TTFT "
        "P95 ms<th>TPOT P95 ms<th>within SLA %%<th>useful tokens a CPU second<th>%s<th>own<th>in "
        "all<th>quality</tr>",
        price_of(a) > 0 ? "cost/1M useful" : "cost, % of the first");
    for (size_t i = 0; i < a->n_rows; i++)
        if (a->results[i].plan) page_row(a, &a->results[i], out);
    buf_puts(out, "</table></div>");
    page_bars(a, out);
    buf_puts(out, "<h2>What the rows are</h2>");
    for (size_t i = 0; i < a->n_rows; i++) {
        if (!a->results[i].plan) continue;
        buf_puts(out, "<p><b>");
        html_text(out, a->rows[i].name);
        buf_puts(out, "</b>: ");
        html_text(out, a->rows[i].about);
        buf_puts(out, "</p>");
    }
    for (size_t i = 0; i < sizeof a->notes / sizeof *a->notes; i++) {
        if (!*a->notes[i]) continue;
        buf_puts(out, "<p class=dim>");
        html_text(out, a->notes[i]);
        buf_puts(out, "</p>");
    }
    buf_puts(out, "<p class=dim>Definitions: docs/metrics.md of Quire.</p></body></html>\n");
}
