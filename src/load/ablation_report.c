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

/* A gain as a change of the cost, and what can be said of it. */
static void percent(char *text, size_t cap, double share, const struct stats_interval *range) {
    if (isnan(share))
        snprintf(text, cap, "-");
    else if (!range->known)
        snprintf(text, cap, "%+.1f %%", -100 * share);
    else
        snprintf(text, cap, "%+.1f %% [%+.1f, %+.1f]%s", -100 * share, -100 * range->high, -100 * range->low,
                 ablation_no_difference(range) ? " no difference" : "");
}

/* The median, and from which to which repeat. */
static void rate(char *text, size_t cap, const struct ablation_result *r) {
    if (r->n_repeats > 1)
        snprintf(text, cap, "%.1f (%.1f to %.1f)", r->useful_per_s, r->least, r->most);
    else
        snprintf(text, cap, "%.1f", r->useful_per_s);
}

/* ---- text ---- */

void ablation_line(const struct ablation_result *r, FILE *out) {
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

void ablation_repeat_line(const struct ablation_result *r, FILE *out) {
    const struct point *k = best_of(r);
    if (!k || !r->n_repeats) return;
    const struct summary *s = &k->repeats[k->n_runs - 1];
    fprintf(out, "%-24s  %zu: %.1f tok/s, %.0f %% within\n", r->row->name, k->concurrency, s->useful_per_s,
            100 * s->good_share);
    fflush(out);
}

static void table_row(const struct ablation *a, const struct ablation_result *r, FILE *out) {
    const struct point *k = best_of(r);
    char own[60], total[60], useful[60], quality[240];
    if (!k) {
        fprintf(out, "%-24s %7s %22s  %s\n", r->row->name, "-", "-", r->why);
        return;
    }
    describe(r, quality, sizeof quality);
    rate(useful, sizeof useful, r);
    percent(own, sizeof own, r->gain, &r->gain_range);
    percent(total, sizeof total, r->total, &r->total_range);
    fprintf(out, "%-24s %7zu %22s %9.0f %9.1f %9.0f %5.0f %% %9.1f %10.4g  %-38s  %-24s  %s\n", r->row->name,
            k->concurrency, useful, k->all.ms[LATENCY_TTFT].p95, k->all.ms[LATENCY_TPOT].p95,
            k->all.ms[LATENCY_PAUSE].p95, 100 * k->all.good_share, k->all.useful_per_cpu_s, cost_of(a, r),
            own, total, quality);
}

void ablation_table(const struct ablation *a, FILE *out) {
    bool priced = price_of(a) > 0;
    fprintf(out, "\n%s, %s\n", a->model, a->machine);
    fprintf(out, "SLA %s for %.0f %% of the requests\n\n", a->slo_text, 100 * a->within);
    fprintf(out, "%-24s %7s %22s %9s %9s %9s %7s %9s %10s  %-38s  %-24s  %s\n", "", "streams", "useful tok/s",
            "TTFT P95", "TPOT P95", "pause P95", "within", "tok/CPU s", priced ? "cost/1M" : "cost, %",
            "own change of the cost", "in all", "quality");
    for (size_t i = 0; i < a->n_rows; i++)
        if (a->results[i].plan) table_row(a, &a->results[i], out);
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

static void gain(struct buf *out, double share, const struct stats_interval *range) {
    figure(out, !isnan(share), share);
    figure(out, range->known, range->low);
    figure(out, range->known, range->high);
}

void ablation_csv(const struct ablation *a, struct buf *out) {
    bool priced = price_of(a) > 0;
    buf_puts(
        out,
        "row,streams,repeats,useful_tokens_per_s,useful_tokens_per_s_least,useful_tokens_per_s_most,ttft_ms_"
        "p95,"
        "tpot_ms_p95,longest_itl_ms_p95,good_share,useful_tokens_per_cpu_s,cost_per_1m_useful,cost_of_first,"
        "own_gain,own_gain_low,own_gain_high,total_gain,total_gain_low,total_gain_high,perplexity,quality,"
        "why\n");
    for (size_t i = 0; i < a->n_rows; i++) {
        const struct ablation_result *r = &a->results[i];
        const struct point *k = best_of(r);
        char quality[240];
        if (!r->plan) continue;
        describe(r, quality, sizeof quality);
        field(out, r->row->name);
        figure(out, k, k ? (double)k->concurrency : 0);
        figure(out, k, (double)r->n_repeats);
        figure(out, k, r->useful_per_s);
        figure(out, r->n_repeats, r->least);
        figure(out, r->n_repeats, r->most);
        figure(out, k, k ? k->all.ms[LATENCY_TTFT].p95 : 0);
        figure(out, k, k ? k->all.ms[LATENCY_TPOT].p95 : 0);
        figure(out, k, k ? k->all.ms[LATENCY_PAUSE].p95 : 0);
        figure(out, k, k ? k->all.good_share : 0);
        figure(out, k && k->all.useful_per_cpu_s > 0, k ? k->all.useful_per_cpu_s : 0);
        figure(out, k && priced, cost_of(a, r));
        figure(out, !isnan(r->total), 1 - r->total);
        gain(out, r->gain, &r->gain_range);
        gain(out, r->total, &r->total_range);
        figure(out, r->row->perplexity > 0, r->row->perplexity);
        buf_putc(out, ',');
        field(out, quality);
        buf_putc(out, ',');
        field(out, r->why);
        buf_putc(out, '\n');
    }
}

/* ---- JSON: points as of serve, so that compare reads them; and what only an ablation has ---- */

static void gain_json(struct json_out *j, const char *which, double share,
                      const struct stats_interval *range) {
    char key[40];
    snprintf(key, sizeof key, "%s_gain", which);
    json_number_or_null(j, key, !isnan(share), share);
    snprintf(key, sizeof key, "%s_gain_low", which);
    json_number_or_null(j, key, range->known, range->low);
    snprintf(key, sizeof key, "%s_gain_high", which);
    json_number_or_null(j, key, range->known, range->high);
}

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
    json_number_or_null(j, "useful_tokens_per_s_least", r->n_repeats, r->least);
    json_number_or_null(j, "useful_tokens_per_s_most", r->n_repeats, r->most);
    json_out_key(j, "no_difference");
    if (r->gain_range.known)
        json_out_bool(j, ablation_no_difference(&r->gain_range));
    else
        json_out_null(j);
    json_number_or_null(j, "cost_per_1m_useful", k && price_of(a) > 0, cost_of(a, r));
    gain_json(j, "own", r->gain, &r->gain_range);
    gain_json(j, "total", r->total, &r->total_range);
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
        for (size_t i = 0; i < k->n_runs; i++) {
            json_out_obj(j);
            report_json_summary(j, r->plan, &k->repeats[i]);
            json_out_obj_end(j);
        }
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
    json_number(&j, "answer_scale", a->answer_scale);
    json_number(&j, "seconds", a->o->duration_s);
    json_count(&j, "rounds", (uint64_t)a->o->repeat);
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
        buf_puts(out, "<td colspan=10 class=dim>");
        html_text(out, r->why);
        buf_puts(out, "</td></tr>");
        return;
    }
    buf_printf(out, "<td>%zu</td>", k->concurrency);
    rate(text, sizeof text, r);
    cell(out, text);
    const double figures[] = {k->all.ms[LATENCY_TTFT].p95,  k->all.ms[LATENCY_TPOT].p95,
                              k->all.ms[LATENCY_PAUSE].p95, 100 * k->all.good_share,
                              k->all.useful_per_cpu_s,      cost_of(a, r)};
    static const int digits[] = {0, 1, 0, 0, 1, 2};
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++)
        buf_printf(out, "<td>%.*f</td>", digits[i], figures[i]);
    percent(text, sizeof text, r->gain, &r->gain_range);
    cell(out, text);
    percent(text, sizeof text, r->total, &r->total_range);
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
        "P95 ms<th>TPOT P95 ms<th>longest ITL P95 ms<th>within SLA %%<th>useful tokens a CPU "
        "second<th>%s<th>own<th>in "
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
