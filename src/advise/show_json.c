#include "advise/show.h"
#include "base/json_out.h"

#include <string.h>

/* A path by its name, a flag as true or false. */
static void figure(struct json_out *j, const struct figures *f, enum figure which) {
    const struct figure_info *i = &figure_infos[which];
    json_out_key(j, i->key);
    if (!f->has[which])
        json_out_null(j);
    else if (i->unit == UNIT_PATH)
        json_out_str(j, figures_path_name((int)f->v[which]));
    else if (i->unit == UNIT_FLAG)
        json_out_bool(j, f->v[which] > 0);
    else
        json_out_f64(j, f->v[which]);
}

static void known_or_null(struct json_out *j, const char *key, double v) {
    json_out_key(j, key);
    if (v > 0)
        json_out_f64(j, v);
    else
        json_out_null(j);
}

static void verdict(struct json_out *j, const struct shown *s, const struct verdict *v) {
    json_out_obj(j);
    json_out_put_str(j, "kind", verdict_names[v->kind]);
    json_out_put_f64(j, "gain", v->gain);
    json_out_put_str(j, "gain_from", v->simulated ? "simulation" : "estimate");
    json_out_put_str(j, "what", v->what);
    json_out_put_str(j, "expected", v->expected);
    json_out_put_str(j, "try", v->attempt);
    json_out_put_str(j, "wrong_if", v->falsified);
    json_out_key(j, "figures");
    json_out_obj(j);
    for (size_t i = 0; i < v->n_rests; i++) figure(j, s->f, v->rests[i]);
    json_out_obj_end(j);
    known_or_null(j, "tokens_a_day", v->tokens_a_day);
    known_or_null(j, "money_a_day", v->money_a_day);
    json_out_obj_end(j);
}

static void slo(struct json_out *j, const struct shown *s) {
    static const char *const names[] = {"ttft", "tpot", "e2e"};
    const double limits[] = {s->w->slo.ttft_ms, s->w->slo.tpot_ms, s->w->slo.e2e_ms};
    json_out_key(j, "slo");
    json_out_obj(j);
    for (int i = 0; i < 3; i++) {
        if (!(limits[i] > 0)) continue;
        json_out_key(j, names[i]);
        json_out_obj(j);
        json_out_put_f64(j, "limit_ms", limits[i]);
        json_out_key(j, "kept");
        if (s->a->slo_known[i])
            json_out_bool(j, s->a->slo_met[i]);
        else
            json_out_null(j);
        json_out_obj_end(j);
    }
    json_out_obj_end(j);
}

static void not_seen(struct json_out *j, const struct shown *s) {
    json_out_key(j, "not_seen");
    json_out_arr(j);
    for (int k = 0; k < VERDICTS; k++) {
        enum figure missing = advise_missing(s->f, (enum verdict_kind)k);
        if (missing == FIGURES) continue;
        json_out_obj(j);
        json_out_put_str(j, "kind", verdict_names[k]);
        json_out_put_str(j, "missing", figure_infos[missing].key);
        json_out_obj_end(j);
    }
    json_out_arr_end(j);
}

/* null without --calibration. */
static void simulation(struct json_out *j, const struct gain_base *b) {
    json_out_key(j, "simulation");
    if (!b) {
        json_out_null(j);
        return;
    }
    json_out_obj(j);
    json_out_put_str(j, "source", b->source);
    json_out_put_str(j, "not_done", *b->why_not ? b->why_not : NULL);
    if (b->done) {
        json_out_put_f64(j, "input_tokens", b->load.input);
        json_out_put_f64(j, "output_tokens", b->load.output);
        json_out_put_f64(j, "cached_tokens", b->load.cached);
        known_or_null(j, "in_flight", b->load.in_flight);
        known_or_null(j, "requests_per_s", b->load.rate);
        json_out_put_f64(j, "steps_longer", b->load.slow);
        json_out_put_f64(j, "measured_output_tokens_per_s", b->measured_output_per_s);
        json_out_put_f64(j, "simulated_output_tokens_per_s", b->simulated_output_per_s);
    }
    json_out_obj_end(j);
}

/* What has changed since the window before, of the figures that both know. */
static void changes(struct json_out *j, const struct shown *s) {
    json_out_key(j, "changes");
    if (!s->f_before) {
        json_out_null(j);
        return;
    }
    json_out_obj(j);
    for (int i = 0; i < FIGURES; i++)
        if (s->f->has[i] && s->f_before->has[i] && figure_infos[i].unit != UNIT_PATH)
            json_out_put_f64(j, figure_infos[i].key, s->f->v[i] - s->f_before->v[i]);
    json_out_obj_end(j);
}

void show_json(const struct shown *s, struct buf *out) {
    struct json_out j;
    json_out_init(&j, out);
    json_out_obj(&j);
    json_out_put_str(&j, "format", "quire-advise");
    json_out_put_u64(&j, "version", 1);
    json_out_put_str(&j, "server", s->f->server);
    json_out_put_str(&j, "software", *s->f->software ? s->f->software : NULL);
    json_out_put_str(&j, "title", s->title);
    json_out_put_bool(&j, "traffic", s->a->traffic);
    json_out_put_str(&j, "full", bound_names[s->a->bound]);
    slo(&j, s);
    simulation(&j, s->base);
    json_out_key(&j, "verdicts");
    json_out_arr(&j);
    for (size_t i = 0; i < s->a->n; i++) verdict(&j, s, &s->a->verdicts[i]);
    json_out_arr_end(&j);
    not_seen(&j, s);
    json_out_key(&j, "figures");
    json_out_obj(&j);
    for (int i = 0; i < FIGURES; i++) figure(&j, s->f, (enum figure)i);
    json_out_obj_end(&j);
    changes(&j, s);
    json_out_obj_end(&j);
    buf_putc(out, '\n');
}
