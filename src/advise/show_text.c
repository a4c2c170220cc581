#include "advise/show.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define COLUMNS 110

/* Breaks at blanks; lines after the first begin with `indent` blanks. at: the column that is reached. */
static void wrap(struct buf *out, const char *text, size_t indent, size_t at) {
    for (bool first = true; *text; first = false) {
        size_t n = strcspn(text, " ");
        if (!first && at + 1 + n > COLUMNS) {
            buf_printf(out, "\n%*s", (int)indent, "");
            at = indent;
        } else if (!first) {
            buf_putc(out, ' ');
            at++;
        }
        buf_append(out, text, n);
        at += n;
        text += n;
        while (*text == ' ') text++;
    }
    buf_putc(out, '\n');
}

static void labelled(struct buf *out, const char *label, const char *text) {
    buf_printf(out, "   %-9s ", label);
    wrap(out, text, 13, 13);
}

static double get(const struct shown *s, enum figure f) {
    return figures_or(s->f, f, 0);
}

static void heading(const struct shown *s, struct buf *out) {
    const struct figures *f = s->f;
    buf_printf(out, "%s", f->server);
    if (*f->software) buf_printf(out, ", %s", f->software);
    if (s->title) buf_printf(out, ", %s", s->title);
    buf_printf(out, "\nover %.1f s: %.0f requests, %.0f prompt and %.0f output tokens\n", get(s, F_WINDOW_S),
               get(s, F_REQUESTS), get(s, F_PROMPT_TOKENS), get(s, F_OUTPUT_TOKENS));
}

static const enum figure state[] = {F_BUSY,    F_UTILIZATION,  F_GPU_UTILIZATION, F_RUNNING,
                                    F_WAITING, F_KV_USAGE_MAX, F_HIT_RATE};

static void bound_line(const struct shown *s, struct buf *out) {
    static const char *const about[] = {"not known", "neither memory nor computing", "memory, not computing",
                                        "computing, not memory", "memory and computing"};
    char value[32];
    buf_printf(out, "full: %s", about[s->a->bound]);
    for (size_t i = 0; i < sizeof state / sizeof *state; i++) {
        if (!s->f->has[state[i]]) continue;
        figure_text(state[i], s->f->v[state[i]], value, sizeof value);
        buf_printf(out, "; %s %s", figure_infos[state[i]].name, value);
        if (!s->f_before || !s->f_before->has[state[i]]) continue;
        double change = s->f->v[state[i]] - s->f_before->v[state[i]];
        figure_text(state[i], fabs(change), value, sizeof value);
        buf_printf(out, " (%c%s)", change < 0 ? '-' : '+', value);
    }
    buf_putc(out, '\n');
}

static void slo_line(const struct shown *s, struct buf *out) {
    static const char *const names[] = {"TTFT", "TPOT", "E2E"};
    static const enum figure which[] = {F_TTFT_P95, F_TPOT_P95, F_E2E_P95};
    const double limits[] = {s->w->slo.ttft_ms, s->w->slo.tpot_ms, s->w->slo.e2e_ms};
    bool any = false;
    for (int i = 0; i < 3; i++) {
        if (!(limits[i] > 0)) continue;
        buf_printf(out, "%s%s P95 ", any ? "; " : "SLO: ", names[i]);
        any = true;
        if (s->a->slo_known[i])
            buf_printf(out, "%.1f ms of %g: %s", get(s, which[i]), limits[i],
                       s->a->slo_met[i] ? "kept" : "missed");
        else
            buf_printf(out, "not known");
    }
    if (any) buf_putc(out, '\n');
}

static void base_line(const struct shown *s, struct buf *out) {
    const struct gain_base *b = s->base;
    struct buf line = BUF_INIT;
    if (!b) return;
    if (b->done) {
        buf_printf(&line, "simulated: requests of %.0f and %.0f tokens, %.0f %% of a prompt cached, ",
                   b->load.input, b->load.output, 100 * b->load.cached / b->load.input);
        if (b->load.in_flight > 0)
            buf_printf(&line, "%.0f in flight, ", b->load.in_flight);
        else
            buf_printf(&line, "%.2f a second, ", b->load.rate);
        buf_printf(&line, "on the steps of %s, %.2f times as long: %.1f output tok/s; measured %.1f",
                   b->source, b->load.slow, b->simulated_output_per_s, b->measured_output_per_s);
    } else if (*b->why_not) {
        buf_printf(&line, "not simulated: %s", b->why_not);
    }
    if (line.len) wrap(out, line.data, 3, 0);
    out->failed |= !buf_ok(&line);
    buf_free(&line);
}

static void rests_on(const struct shown *s, const struct verdict *v, struct buf *out) {
    struct buf line = BUF_INIT;
    char value[32];
    for (size_t i = 0; i < v->n_rests; i++) {
        figure_text(v->rests[i], s->f->v[v->rests[i]], value, sizeof value);
        buf_printf(&line, "%s%s %s", i ? ", " : "", figure_infos[v->rests[i]].name, value);
    }
    buf_printf(&line, " (over %.1f s)", get(s, F_WINDOW_S));
    if (buf_ok(&line)) labelled(out, "measured", line.data);
    out->failed |= !buf_ok(&line);
    buf_free(&line);
}

static bool was_there(const struct advice *a, enum verdict_kind kind) {
    for (size_t i = 0; a && i < a->n; i++)
        if (a->verdicts[i].kind == kind) return true;
    return false;
}

static void one(const struct shown *s, size_t i, struct buf *out) {
    const struct verdict *v = &s->a->verdicts[i];
    char line[VERDICT_TEXT + 80];
    bool is_new = s->a_before && !was_there(s->a_before, v->kind);
    int used =
        snprintf(line, sizeof line, "%zu. [%s%s] ", i + 1, verdict_names[v->kind], is_new ? ", new" : "");
    buf_puts(out, "\n");
    snprintf(line + used, sizeof line - (size_t)used, "%s", v->what);
    wrap(out, line, 3, 0);
    rests_on(s, v, out);
    snprintf(line, sizeof line, "%s: %s", v->simulated ? "simulated" : "estimate", v->expected);
    labelled(out, "expected", line);
    if (v->tokens_a_day > 0 && v->money_a_day > 0)
        snprintf(line, sizeof line, "%.0f tokens and %.2f a day", v->tokens_a_day, v->money_a_day);
    else if (v->tokens_a_day > 0)
        snprintf(line, sizeof line, "%.0f tokens a day", v->tokens_a_day);
    else
        snprintf(line, sizeof line, "%.2f a day", v->money_a_day);
    if (v->tokens_a_day > 0 || v->money_a_day > 0) labelled(out, "costs", line);
    labelled(out, "try", v->attempt);
    labelled(out, "wrong if", v->falsified);
}

static void gone(const struct shown *s, struct buf *out) {
    for (size_t i = 0; s->a_before && i < s->a_before->n; i++)
        if (!was_there(s->a, s->a_before->verdicts[i].kind))
            buf_printf(out, "\nno longer: %s\n", verdict_names[s->a_before->verdicts[i].kind]);
}

static void unseen(const struct shown *s, struct buf *out) {
    struct buf line = BUF_INIT;
    for (int k = 0; k < VERDICTS; k++) {
        enum figure missing = advise_missing(s->f, (enum verdict_kind)k);
        if (missing == FIGURES) continue;
        buf_printf(&line, "%s%s (%s)", line.len ? ", " : "", verdict_names[k], figure_infos[missing].name);
    }
    if (line.len) {
        buf_puts(out, "\nnot looked for, because a figure is missing:");
        buf_puts(out, "\n   ");
        wrap(out, line.data, 3, 3);
    }
    out->failed |= !buf_ok(&line);
    buf_free(&line);
}

void show_text(const struct shown *s, struct buf *out) {
    heading(s, out);
    if (!s->a->traffic) {
        buf_puts(
            out,
            "no request came in this time: nothing can be said (a longer --window, or 0 for all since the "
            "server's start)\n");
        return;
    }
    bound_line(s, out);
    slo_line(s, out);
    base_line(s, out);
    for (size_t i = 0; i < s->a->n; i++) one(s, i, out);
    if (!s->a->n) buf_puts(out, "\nnothing to change\n");
    gone(s, out);
    unseen(s, out);
}
