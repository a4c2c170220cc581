/* docs/plan.md says what the fields are. */
#include "plan/forecast.h"

#include "base/json_out.h"
#include "model/spec.h"

#define FORMAT 1

static void put_u64(struct json_out *j, const char *key, uint64_t v) {
    json_out_key(j, key);
    json_out_u64(j, v);
}

static void put_f64(struct json_out *j, const char *key, double v) {
    json_out_key(j, key);
    json_out_f64(j, v);
}

static void put_str(struct json_out *j, const char *key, const char *v) {
    json_out_key(j, key);
    json_out_str(j, v);
}

static void put_bool(struct json_out *j, const char *key, bool v) {
    json_out_key(j, key);
    json_out_bool(j, v);
}

static void put_model(struct json_out *j, const struct forecast_ask *ask, const struct forecast *f) {
    const struct model_spec *s = &f->o.spec;
    json_out_key(j, "model");
    json_out_obj(j);
    put_str(j, "name", ask->model);
    put_u64(j, "hub_bytes", ask->hub_bytes);
    put_str(j, "weight_format", ask->weight_format);
    put_str(j, "family", s->family);
    put_u64(j, "layers", s->n_layers);
    put_u64(j, "parameters", f->n_params);
    put_u64(j, "active_parameters", f->n_params_used);
    put_u64(j, "tensor_bytes", f->tensor_bytes);
    put_u64(j, "context_length", s->context_len);
    put_bool(j, "encoder", s->encoder);
    json_out_obj_end(j);
}

static void put_machine(struct json_out *j, const struct forecast *f) {
    const struct outlook *o = &f->o;
    json_out_key(j, "machine");
    json_out_obj(j);
    put_str(j, "path", o->path);
    put_u64(j, "threads", o->n_threads);
    put_u64(j, "available_bytes", o->available_bytes);
    put_u64(j, "allowed_bytes", o->allowed_bytes);
    put_u64(j, "taken_bytes", o->taken_bytes);
    put_str(j, "limited_by", o->limited_by);
    json_out_obj_end(j);
}

static void put_kv(struct json_out *j, const struct forecast *f) {
    const struct outlook *o = &f->o;
    json_out_key(j, "kv");
    json_out_obj(j);
    json_out_key(j, "groups");
    json_out_arr(j);
    for (size_t g = 0; g < f->n_groups; g++) {
        const struct forecast_group *group = &f->groups[g];
        json_out_obj(j);
        put_str(j, "kind", group->kind);
        put_u64(j, "layers", group->n_layers);
        put_u64(j, "heads", group->n_heads);
        put_u64(j, "kv_heads", group->n_kv_heads);
        put_u64(j, "head_dim", group->head_dim);
        put_u64(j, "window", group->window);
        put_u64(j, "bytes_per_token", group->token_bytes);
        json_out_obj_end(j);
    }
    json_out_arr_end(j);
    put_u64(j, "element_bytes", f->elem_bytes);
    put_u64(j, "bytes_per_token", f->token_bytes);
    put_u64(j, "block_tokens", o->block_tokens);
    put_u64(j, "block_bytes", o->page_bytes);
    put_u64(j, "blocks", o->n_blocks);
    put_u64(j, "sequence_tokens", o->max_model_len);
    put_u64(j, "sequence_blocks", outlook_blocks(o, o->max_model_len));
    put_u64(j, "sequence_bytes", f->sequence_bytes);
    json_out_obj_end(j);
}

/* The rows that serve reports; null where it would refuse to start. */
static void put_memory(struct json_out *j, const struct forecast *f) {
    const struct outlook *o = &f->o;
    json_out_key(j, "memory");
    if (f->refusal.code) {
        json_out_null(j);
        return;
    }
    json_out_obj(j);
    for (size_t i = 0; i < QUIRE_MEMORY_ROWS; i++) put_u64(j, o->memory[i].name, o->memory[i].bytes);
    json_out_obj_end(j);
}

static void put_fit(struct json_out *j, const struct forecast *f) {
    json_out_key(j, "fit");
    json_out_obj(j);
    put_bool(j, "starts", !f->refusal.code);
    put_str(j, "refusal", f->refusal.code ? f->refusal.text : NULL);
    put_f64(j, "sequences", f->n_fit);
    put_u64(j, "concurrency", f->concurrency);
    put_bool(j, "all_fit", f->all_fit);
    put_u64(j, "longest_tokens", f->longest);
    put_u64(j, "wanted_kv_bytes", f->wanted_bytes);
    json_out_obj_end(j);
}

static void put_known(struct json_out *j, const char *key, double v) {
    json_out_key(j, key);
    if (v > 0)
        json_out_f64(j, v);
    else
        json_out_null(j);
}

/* Where the forecast comes from: a calibration or published figures; the other's fields are null. */
static void put_source(struct json_out *j, const struct forecast_ask *ask) {
    const struct forecast_machine *m = &ask->machine;
    const struct forecast_player *p = ask->player;
    put_str(j, "source", p ? "calibration" : "roofline");
    put_known(j, "read_bytes_per_s", m->read_per_s);
    put_known(j, "ops_per_s", m->ops_per_s);
    put_known(j, "read_share", m->read_share);
    put_known(j, "ops_share", m->ops_share);
    json_out_key(j, "calibration");
    if (!p) {
        json_out_null(j);
        return;
    }
    json_out_obj(j);
    put_str(j, "file", p->source);
    put_str(j, "model", p->model);
    put_str(j, "cpu_path", p->cpu_path);
    put_u64(j, "threads", p->n_threads);
    put_u64(j, "fit_steps", p->n_steps);
    put_f64(j, "fit_median_error", p->median_error);
    put_f64(j, "fit_p95_error", p->p95_error);
    json_out_obj_end(j);
}

/* null where nothing is known of the machine's speed. */
static void put_speed(struct json_out *j, const struct forecast_ask *ask, const struct forecast *f) {
    const struct forecast_speed *s = &f->speed;
    json_out_key(j, "expected");
    if (!s->known) {
        json_out_null(j);
        return;
    }
    json_out_obj(j);
    put_str(j, "machine", ask->machine.label);
    put_bool(j, "measured", ask->machine.measured);
    put_source(j, ask);
    put_u64(j, "streams", s->streams);
    put_u64(j, "input_tokens", ask->n_input);
    put_u64(j, "output_tokens", ask->n_output);
    put_f64(j, "ttft_ms", s->ttft_s * 1e3);
    put_f64(j, "tpot_ms", s->tpot_s * 1e3);
    put_known(j, "ttft_p95_ms", s->ttft_p95_s * 1e3);
    put_known(j, "tpot_p95_ms", s->tpot_p95_s * 1e3);
    put_f64(j, "output_tokens_per_s", s->output_per_s);
    put_f64(j, "total_tokens_per_s", s->total_per_s);
    put_f64(j, "requests_per_s", s->requests_per_s);
    put_bool(j, "within_slo", s->within_slo);
    put_f64(j, "replicas", s->replicas);
    put_f64(j, "cost_per_1m_output", s->cost_output);
    put_f64(j, "cost_per_1m_total", s->cost_total);
    json_out_obj_end(j);
}

/* null without --check. */
static void put_checks(struct json_out *j, const struct forecast *f) {
    json_out_key(j, "check");
    if (!f->checked) {
        json_out_null(j);
        return;
    }
    json_out_obj(j);
    put_str(j, "report", f->checked);
    json_out_key(j, "figures");
    json_out_arr(j);
    for (size_t i = 0; i < f->n_checks; i++) {
        const struct forecast_check *c = &f->checks[i];
        json_out_obj(j);
        put_str(j, "name", c->name);
        put_str(j, "unit", c->unit);
        put_f64(j, "measured", c->measured);
        put_f64(j, "expected", c->expected);
        put_f64(j, "error", c->error);
        json_out_obj_end(j);
    }
    json_out_arr_end(j);
    json_out_obj_end(j);
}

static void put_knobs(struct json_out *j, const struct forecast *f) {
    json_out_key(j, "knobs");
    json_out_arr(j);
    for (size_t i = 0; i < f->n_knobs; i++) {
        const struct forecast_knob *k = &f->knobs[i];
        json_out_obj(j);
        put_str(j, "knob", k->knob);
        put_str(j, "value", k->value);
        put_bool(j, "chosen", k->chosen);
        put_bool(j, "planned_only", k->planned_only);
        put_u64(j, "weights_bytes", k->weights_bytes);
        put_u64(j, "sequence_bytes", k->sequence_bytes);
        put_f64(j, "sequences", k->n_fit);
        json_out_obj_end(j);
    }
    json_out_arr_end(j);
}

/* What would make it fit; null where all does. */
static void put_advice(struct json_out *j, const struct forecast *f) {
    json_out_key(j, "advice");
    if (!f->advice.n) {
        json_out_null(j);
        return;
    }
    json_out_obj(j);
    put_u64(j, "sequences", f->advice.n);
    put_u64(j, "max_model_len", f->advice.max_model_len);
    put_u64(j, "max_num_seqs", f->advice.max_num_seqs);
    put_str(j, "weight_format", f->advice.weight_format);
    put_u64(j, "memory_bytes", f->advice.memory_bytes);
    json_out_obj_end(j);
}

void forecast_json(const struct forecast_ask *ask, const struct forecast *f, struct buf *out) {
    struct json_out j;
    json_out_init(&j, out);
    json_out_obj(&j);
    put_u64(&j, "format", FORMAT);
    put_model(&j, ask, f);
    put_machine(&j, f);
    put_kv(&j, f);
    put_memory(&j, f);
    put_fit(&j, f);
    put_advice(&j, f);
    put_speed(&j, ask, f);
    put_checks(&j, f);
    put_knobs(&j, f);
    json_out_obj_end(&j);
    buf_putc(out, '\n');
}
