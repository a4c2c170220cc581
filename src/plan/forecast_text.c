#include "plan/forecast.h"

#include "model/spec.h"
#include "plan/weight_format.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define MIB       ((double)(1 << 20))
#define GIB       ((double)(1 << 30))
#define BAR_WIDTH 40

/* "22.5 KiB", four digits at most. */
static void put_bytes(struct buf *out, double bytes) {
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
    size_t u = 0;
    while (bytes >= 1024 && u + 1 < sizeof units / sizeof *units) {
        bytes /= 1024;
        u++;
    }
    buf_printf(out, bytes == floor(bytes) || bytes >= 100 ? "%.0f %s" : "%.1f %s", bytes, units[u]);
}

static void put_model(const struct forecast_ask *ask, const struct forecast *f, struct buf *out) {
    const struct model_spec *s = &f->o.spec;
    buf_printf(out, "model     %s: %s, %zu layers of width %zu, %zu tokens of vocabulary, ", ask->model,
               s->family, s->n_layers, s->n_embd, s->n_vocab);
    buf_printf(out, "%.4g M parameters", (double)f->n_params / 1e6);
    if (s->experts.n)
        buf_printf(out, " (%.4g M of a token: %zu of %zu experts)", (double)f->n_params_used / 1e6,
                   s->experts.n_used, s->experts.n);
    buf_puts(out, "\n          ");
    put_bytes(out, (double)f->tensor_bytes);
    if (ask->hub_bytes) {
        buf_puts(out, " (files on the hub: ");
        put_bytes(out, (double)ask->hub_bytes);
        buf_putc(out, ')');
    }
    if (ask->weight_format) buf_printf(out, " as %s", ask->weight_format);
    buf_printf(out, " of tensors, %.2f bits a parameter (16 bits would be %.4g GB, 4 bits %.4g GB)\n",
               f->n_params ? 8 * (double)f->tensor_bytes / (double)f->n_params : 0.0,
               weight_format_plain_bytes((double)f->n_params, 16) / 1e9,
               weight_format_plain_bytes((double)f->n_params, 4) / 1e9);
}

static void put_machine(const struct forecast *f, struct buf *out) {
    const struct outlook *o = &f->o;
    buf_printf(out, "machine   %s, ", o->path);
    if (o->n_threads) buf_printf(out, "%zu thread%s, ", o->n_threads, o->n_threads == 1 ? "" : "s");
    put_bytes(out, (double)o->available_bytes);
    buf_printf(out, " that %s has available\n", o->limited_by);
}

static void put_group(const struct forecast_group *g, size_t elem_bytes, struct buf *out) {
    buf_printf(out, "  %3zu layer%s %-4s %3zu : %-3zu heads of %-4zu", g->n_layers,
               g->n_layers == 1 ? " " : "s", g->kind, g->n_heads, g->n_kv_heads, g->head_dim);
    if (g->window)
        buf_printf(out, " window %-7zu", g->window);
    else
        buf_puts(out, " full attention");
    buf_printf(out, " %3zu x %zu x %3zu x %4zu x %zu = %8llu\n", g->n_layers, g->n_chunks, g->n_kv_heads,
               g->head_dim, elem_bytes, (unsigned long long)g->token_bytes);
}

static void put_kv(const struct forecast *f, struct buf *out) {
    const struct outlook *o = &f->o;
    buf_puts(out, "\nKV of a token: layers x (K and V, or a row of both) x KV heads x elements of a head x "
                  "bytes of one\n");
    for (size_t g = 0; g < f->n_groups; g++) put_group(&f->groups[g], f->elem_bytes, out);
    buf_puts(out, "  together ");
    put_bytes(out, (double)f->token_bytes);
    buf_printf(out, "%s; a sequence of %zu tokens takes ", f->n_groups > 1 ? " until a window is full" : "",
               o->max_model_len);
    put_bytes(out, (double)f->sequence_bytes);
    buf_printf(out, " (%zu blocks of %zu tokens)\n", outlook_blocks(o, o->max_model_len), o->block_tokens);
}

static void put_row(const char *name, uint64_t bytes, const char *detail, double most, struct buf *out) {
    int n = (int)lround((double)bytes / most * BAR_WIDTH);
    n = bytes && !n ? 1 : n > BAR_WIDTH ? BAR_WIDTH : n;
    buf_printf(out, "%-12s %14llu  |%.*s%*s|  %s\n", name, (unsigned long long)bytes, n,
               "########################################", BAR_WIDTH - n, "", detail);
}

/* The rows of serve's table, beside what may be taken. */
static void put_memory(const struct forecast *f, struct buf *out) {
    const struct outlook *o = &f->o;
    double most = (double)(o->allowed_bytes + o->taken_bytes);
    if (most < (double)o->fixed_bytes) most = (double)o->fixed_bytes;
    buf_printf(out, "\n%-12s %14s  ", "memory", "bytes");
    put_bytes(out, most);
    buf_puts(out, " is a full bar\n");
    if (f->refusal.code) {
        put_row("weights", o->weights_bytes, "", most, out);
        put_row("activations", o->activation_bytes, "", most, out);
        put_row("buffers", o->fixed_bytes - o->weights_bytes - o->activation_bytes - o->rest_bytes, "", most,
                out);
        put_row("rest", o->rest_bytes, "", most, out);
        return;
    }
    for (size_t i = 0; i < QUIRE_MEMORY_ROWS; i++)
        put_row(o->memory[i].name, o->memory[i].bytes, o->memory[i].detail, most, out);
}

static void put_fit(const struct forecast *f, struct buf *out) {
    const struct outlook *o = &f->o;
    buf_printf(out, "\nfits      %.1f sequences of %zu tokens at once", f->n_fit, o->max_model_len);
    if (f->longest)
        buf_printf(out, "; %zu of up to %zu tokens each\n", f->concurrency, f->longest);
    else
        buf_printf(out, "; %zu of no length\n", f->concurrency);
}

static void put_times(const char *before, double ttft_s, double tpot_s, struct buf *out) {
    double ms[2] = {ttft_s * 1e3, tpot_s * 1e3};
    buf_puts(out, before);
    for (int i = 0; i < 2; i++)
        buf_printf(out, ms[i] >= 100 ? "%s %.0f ms" : "%s %.3g ms", i ? ", TPOT" : "TTFT", ms[i]);
}

static void put_player(const struct forecast_player *p, const char *label, struct buf *out) {
    buf_printf(
        out,
        "\nexpected  of this machine, %s (simulated with step times measured %s%s: %s, %s, %zu thread%s)\n",
        label, p->source ? "in " : "now", p->source ? p->source : "", p->model, p->cpu_path, p->n_threads,
        p->n_threads == 1 ? "" : "s");
    if (p->n_steps)
        buf_printf(
            out, "          fit of %zu steps: error at most %.1f %% (P50), %.1f %% (P95) of a kind of step\n",
            p->n_steps, 100 * p->median_error, 100 * p->p95_error);
    else
        buf_puts(out, "          the calibration does not tell how well its step times fit\n");
}

static void put_error(double error, struct buf *out) {
    if (isfinite(error))
        buf_printf(out, " %+8.1f %%", 100 * error);
    else
        buf_printf(out, " %9s  ", "");
}

static void put_checks(const struct forecast *f, struct buf *out) {
    bool same_speed = false;
    if (!f->checked) return;
    for (size_t i = 0; i < f->n_checks; i++) same_speed |= isfinite(f->checks[i].same_speed);
    buf_printf(out, "\nbeside %s\n  %-32s %12s %24s %12s %10s%s\n", f->checked, "", "measured", "of repeats",
               "expected", "error", same_speed ? " same speed" : "");
    for (size_t i = 0; i < f->n_checks; i++) {
        const struct forecast_check *c = &f->checks[i];
        char spread[48] = "";
        if (c->n_repeats > 1)
            snprintf(spread, sizeof spread, "%zu: %.2f to %.2f", c->n_repeats, c->low, c->high);
        buf_printf(out, "  %-32s %12.2f %24s %12.2f", c->name, c->measured, spread, c->expected);
        put_error(c->error, out);
        if (same_speed) put_error(c->same_speed, out);
        buf_printf(out, " (%s)\n", c->unit);
    }
    if (same_speed) buf_puts(out, "  same speed: the error with steps as long in all as they were then\n");
}

static void put_speed(const struct forecast_ask *ask, const struct forecast *f, struct buf *out) {
    const struct forecast_speed *s = &f->speed;
    const struct forecast_machine *m = &ask->machine;
    if (!s->known) {
        if (!m->label && !ask->player && !f->refusal.code && !f->o.spec.encoder && !f->o.pooling)
            buf_puts(out,
                     "\nexpected  not known of this machine until it is measured: --calibrate (a minute), or "
                     "--calibration FILE of `quire simulate MODEL --save FILE`\n");
        return;
    }
    if (ask->player)
        put_player(ask->player, m->label, out);
    else
        buf_printf(
            out,
            "\nexpected  of %s (%s: reads %.0f GB/s, %.1f T operations/s; %.0f %% and %.0f %% of that are "
            "counted on)\n",
            m->label ? m->label : "this machine", m->measured ? "measured" : "published", m->read_per_s / 1e9,
            m->ops_per_s / 1e12, 100 * m->read_share, 100 * m->ops_share);
    buf_printf(out, "          %zu stream%s of %zu + %zu tokens: ", s->streams, s->streams == 1 ? "" : "s",
               ask->n_input, ask->n_output);
    put_times("", s->ttft_s, s->tpot_s, out);
    buf_printf(out, ", %.4g tokens/s made, %.4g in all, %.3g requests/s\n", s->output_per_s, s->total_per_s,
               s->requests_per_s);
    if (s->ttft_p95_s > 0) {
        put_times("          P95: ", s->ttft_p95_s, s->tpot_p95_s, out);
        buf_putc(out, '\n');
    }
    if (ask->slo_ttft_s > 0 || ask->slo_tpot_s > 0)
        buf_printf(out, "          %s\n",
                   s->within_slo ? "within the SLO; more streams would not be, or do not fit"
                                 : "not within the SLO with one stream");
    if (s->replicas > 0)
        buf_printf(out, "          %.0f replica%s for %g requests/s\n", s->replicas,
                   s->replicas > 1 ? "s" : "", ask->rate);
    if (s->cost_output > 0)
        buf_printf(out, "          at %g/h: %.4g for 1M tokens made, %.4g for 1M tokens in all\n",
                   ask->price_per_hour, s->cost_output, s->cost_total);
    put_checks(f, out);
}

static void put_knobs(const struct forecast *f, struct buf *out) {
    bool planned = false;
    buf_printf(out, "\nwhat each knob would give %*s %12s %12s %10s\n", 7, "", "weights", "a sequence",
               "sequences");
    for (size_t i = 0; i < f->n_knobs; i++) {
        const struct forecast_knob *k = &f->knobs[i];
        buf_printf(out, "%c %-22s %-9s", k->chosen ? '*' : ' ', k->knob, k->value);
        buf_printf(out, " %8.2f GiB %8.1f MiB %9.1f%s\n", (double)k->weights_bytes / GIB,
                   (double)k->sequence_bytes / MIB, k->n_fit, k->planned_only ? " (planned)" : "");
        planned |= k->planned_only;
    }
    buf_puts(out, "* as asked for");
    if (planned)
        buf_puts(out, "; (planned): not in Quire yet, of tensor-parallel-size what one device holds");
    buf_putc(out, '\n');
}

void forecast_text(const struct forecast_ask *ask, const struct forecast *f, struct buf *out) {
    put_model(ask, f, out);
    put_machine(f, out);
    put_kv(f, out);
    put_memory(f, out);
    put_fit(f, out);
    put_speed(ask, f, out);
    put_knobs(f, out);
}
