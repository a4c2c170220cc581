/* The points of `quire bench engine` as a table and as JSON, in the form that `bench compare` reads. */
#include "bench/engine_run.h"

#include "base/json_out.h"

void engine_title(const struct engine_point *k, char *text, size_t cap) {
    snprintf(text, cap, "%s, batch %zu, context %zu", k->decode ? "decode" : "prefill", k->batch, k->context);
}

void engine_head(FILE *out) {
    fprintf(out, "%-34s %9s %19s %9s %9s %9s %9s  %s\n", "", "tok/s", "[least, most]", "step, ms", "prepare",
            "sample", "outside", "share of the limit");
}

static double ms(double seconds, size_t steps) {
    return steps ? 1000 * seconds / (double)steps : 0;
}

void engine_line(const struct engine_run *r, const struct engine_point *k, FILE *out) {
    const struct engine_figures *f = &k->all;
    char title[64], spread[40], share[80] = "not known";
    engine_title(k, title, sizeof title);
    snprintf(spread, sizeof spread, "[%.1f, %.1f]", k->low, k->high);
    if (r->costs.unknown)
        snprintf(share, sizeof share, "not known: %s", r->costs.unknown);
    else if (k->decode && f->memory_share > 0)
        snprintf(share, sizeof share, "%.1f %% of reading", 100 * f->memory_share);
    else if (!k->decode && f->arithmetic_share > 0)
        snprintf(share, sizeof share, "%.1f %% of %s", 100 * f->arithmetic_share,
                 limit_infos[r->costs.ops_limit].about);
    fprintf(out, "%-34s %9.1f %19s %9.3f %9.3f %9.3f %7.2f %%  %s\n", title, f->tokens_per_s, spread,
            ms(f->seconds, f->steps), ms(f->prepare_s, f->steps), ms(f->sample_s, f->steps),
            100 * f->outside_share, share);
    fflush(out);
}

/* ---- JSON ---- */

static void number_if(struct json_out *j, const char *key, bool known, double v) {
    json_out_key(j, key);
    if (known)
        json_out_f64(j, v);
    else
        json_out_null(j);
}

static void summary(struct json_out *j, const struct engine_figures *f) {
    json_out_key(j, "summary");
    json_out_obj(j);
    json_out_put_f64(j, "tokens", (double)f->tokens);
    json_out_put_f64(j, "steps", (double)f->steps);
    json_out_put_f64(j, "duration_s", f->seconds);
    json_out_put_f64(j, "tokens_per_s", f->tokens_per_s);
    json_out_put_f64(j, "prepare_s", f->prepare_s);
    json_out_put_f64(j, "forward_s", f->forward_s);
    json_out_put_f64(j, "sample_s", f->sample_s);
    json_out_put_f64(j, "outside_share", f->outside_share);
    number_if(j, "memory_share", f->memory_share > 0, f->memory_share);
    number_if(j, "arithmetic_share", f->arithmetic_share > 0, f->arithmetic_share);
    json_out_obj_end(j);
}

static void point(struct json_out *j, const struct engine_point *k) {
    char title[64];
    engine_title(k, title, sizeof title);
    json_out_obj(j);
    json_out_put_str(j, "title", title);
    json_out_put_str(j, "phase", k->decode ? "decode" : "prefill");
    json_out_put_f64(j, "batch", (double)k->batch);
    json_out_put_f64(j, "context", (double)k->context);
    json_out_put_f64(j, "tokens_per_s_least", k->low);
    json_out_put_f64(j, "tokens_per_s_most", k->high);
    summary(j, &k->all);
    json_out_key(j, "repeats");
    json_out_arr(j);
    for (size_t i = 0; i < k->n; i++) {
        json_out_obj(j);
        summary(j, &k->repeats[i]);
        json_out_obj_end(j);
    }
    json_out_arr_end(j);
    json_out_obj_end(j);
}

static void machine(struct json_out *j, const struct engine_run *r) {
    const struct quire_info *i = quire_info(r->engine);
    char name[64];
    cpu_name(name);
    json_out_key(j, "machine");
    json_out_obj(j);
    json_out_put_str(j, "cpu", name);
    json_out_put_str(j, "path", i->cpu_path);
    json_out_put_f64(j, "threads", (double)i->n_threads);
    json_out_put_str(j, "dtype", i->dtype_name);
    json_out_key(j, "limits");
    json_out_arr(j);
    for (int l = 0; l < LIMITS; l++) {
        if (!(r->limits[l].per_s > 0)) continue;
        json_out_obj(j);
        json_out_put_str(j, "name", limit_infos[l].name);
        json_out_put_str(j, "unit", limit_infos[l].is_read ? "bytes/s" : "ops/s");
        json_out_put_f64(j, "value", r->limits[l].per_s);
        json_out_obj_end(j);
    }
    json_out_arr_end(j);
    json_out_obj_end(j);
}

void engine_json(const struct engine_run *r, struct buf *out) {
    const struct engine_costs *c = &r->costs;
    struct json_out j;
    json_out_init(&j, out);
    json_out_obj(&j);
    json_out_put_str(&j, "format", "quire-bench-engine");
    json_out_put_u64(&j, "version", 1);
    json_out_key(&j, "created");
    json_out_i64(&j, r->created_unix_s);
    json_out_put_str(&j, "label", r->label);
    json_out_put_str(&j, "model", r->model);
    machine(&j, r);
    json_out_key(&j, "least_costs");
    json_out_obj(&j);
    json_out_put_f64(&j, "weight_bytes", c->weight_bytes);
    json_out_put_f64(&j, "kv_bytes_per_position", c->kv_bytes);
    json_out_put_f64(&j, "ops_per_row", c->row_ops);
    json_out_put_f64(&j, "ops_per_row_of_logits", c->logit_ops);
    json_out_put_f64(&j, "ops_per_position_attended", c->attended_ops);
    json_out_put_str(&j, "arithmetic_limit", c->unknown ? NULL : limit_infos[c->ops_limit].name);
    json_out_put_str(&j, "shares_unknown", c->unknown);
    json_out_obj_end(&j);
    json_out_put_str(&j, "ended_early", *r->ended ? r->ended : NULL);
    json_out_key(&j, "notes");
    json_out_arr(&j);
    if (*r->note) json_out_str(&j, r->note);
    json_out_arr_end(&j);
    json_out_key(&j, "points");
    json_out_arr(&j);
    for (size_t i = 0; i < r->n_points; i++)
        if (r->points[i].n) point(&j, &r->points[i]);
    json_out_arr_end(&j);
    json_out_obj_end(&j);
    buf_putc(out, '\n');
}
