/* docs/plan.md says what the fields are. */
#include "plan/forecast.h"

#include "base/json_out.h"
#include "model/spec.h"

#define FORMAT 1

static void put_model(struct json_out *j, const struct forecast_ask *ask, const struct forecast *f) {
    const struct model_spec *s = &f->o.spec;
    json_out_key(j, "model");
    json_out_obj(j);
    json_out_put_str(j, "name", ask->model);
    json_out_put_u64(j, "hub_bytes", ask->hub_bytes);
    json_out_put_str(j, "weight_format", ask->weight_format);
    json_out_put_str(j, "family", s->family);
    json_out_put_u64(j, "layers", s->n_layers);
    json_out_put_u64(j, "parameters", f->n_params);
    json_out_put_u64(j, "active_parameters", f->n_params_used);
    json_out_put_u64(j, "tensor_bytes", f->tensor_bytes);
    json_out_put_u64(j, "context_length", s->context_len);
    json_out_put_bool(j, "encoder", s->encoder);
    json_out_obj_end(j);
}

static void put_machine(struct json_out *j, const struct forecast *f) {
    const struct outlook *o = &f->o;
    json_out_key(j, "machine");
    json_out_obj(j);
    json_out_put_str(j, "path", o->path);
    json_out_put_u64(j, "threads", o->n_threads);
    json_out_put_u64(j, "available_bytes", o->available_bytes);
    json_out_put_u64(j, "allowed_bytes", o->allowed_bytes);
    json_out_put_u64(j, "taken_bytes", o->taken_bytes);
    json_out_put_str(j, "limited_by", o->limited_by);
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
        json_out_put_str(j, "kind", group->kind);
        json_out_put_u64(j, "layers", group->n_layers);
        json_out_put_u64(j, "heads", group->n_heads);
        json_out_put_u64(j, "kv_heads", group->n_kv_heads);
        json_out_put_u64(j, "head_dim", group->head_dim);
        json_out_put_u64(j, "window", group->window);
        json_out_put_u64(j, "bytes_per_token", group->token_bytes);
        json_out_obj_end(j);
    }
    json_out_arr_end(j);
    json_out_put_u64(j, "element_bytes", f->elem_bytes);
    json_out_put_u64(j, "bytes_per_token", f->token_bytes);
    json_out_put_u64(j, "block_tokens", o->block_tokens);
    json_out_put_u64(j, "block_bytes", o->page_bytes);
    json_out_put_u64(j, "blocks", o->n_blocks);
    json_out_put_u64(j, "sequence_tokens", o->max_model_len);
    json_out_put_u64(j, "sequence_blocks", outlook_blocks(o, o->max_model_len));
    json_out_put_u64(j, "sequence_bytes", f->sequence_bytes);
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
    for (size_t i = 0; i < QUIRE_MEMORY_ROWS; i++) json_out_put_u64(j, o->memory[i].name, o->memory[i].bytes);
    json_out_obj_end(j);
}

static void put_fit(struct json_out *j, const struct forecast *f) {
    json_out_key(j, "fit");
    json_out_obj(j);
    json_out_put_bool(j, "starts", !f->refusal.code);
    json_out_put_str(j, "refusal", f->refusal.code ? f->refusal.text : NULL);
    json_out_put_f64(j, "sequences", f->n_fit);
    json_out_put_u64(j, "concurrency", f->concurrency);
    json_out_put_bool(j, "all_fit", f->all_fit);
    json_out_put_u64(j, "longest_tokens", f->longest);
    json_out_put_u64(j, "wanted_kv_bytes", f->wanted_bytes);
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
    json_out_put_str(j, "source", p ? "calibration" : "roofline");
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
    json_out_put_str(j, "file", p->source);
    json_out_put_str(j, "model", p->model);
    json_out_put_str(j, "cpu_path", p->cpu_path);
    json_out_put_u64(j, "threads", p->n_threads);
    json_out_put_u64(j, "fit_steps", p->n_steps);
    json_out_put_f64(j, "fit_median_error", p->median_error);
    json_out_put_f64(j, "fit_p95_error", p->p95_error);
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
    json_out_put_str(j, "machine", ask->machine.label);
    json_out_put_bool(j, "measured", ask->machine.measured);
    put_source(j, ask);
    json_out_put_u64(j, "streams", s->streams);
    json_out_put_u64(j, "input_tokens", ask->n_input);
    json_out_put_u64(j, "output_tokens", ask->n_output);
    json_out_put_f64(j, "ttft_ms", s->ttft_s * 1e3);
    json_out_put_f64(j, "tpot_ms", s->tpot_s * 1e3);
    put_known(j, "ttft_p95_ms", s->ttft_p95_s * 1e3);
    put_known(j, "tpot_p95_ms", s->tpot_p95_s * 1e3);
    json_out_put_f64(j, "output_tokens_per_s", s->output_per_s);
    json_out_put_f64(j, "total_tokens_per_s", s->total_per_s);
    json_out_put_f64(j, "requests_per_s", s->requests_per_s);
    json_out_put_bool(j, "within_slo", s->within_slo);
    json_out_put_f64(j, "replicas", s->replicas);
    json_out_put_f64(j, "cost_per_1m_output", s->cost_output);
    json_out_put_f64(j, "cost_per_1m_total", s->cost_total);
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
    json_out_put_str(j, "report", f->checked);
    json_out_key(j, "figures");
    json_out_arr(j);
    for (size_t i = 0; i < f->n_checks; i++) {
        const struct forecast_check *c = &f->checks[i];
        json_out_obj(j);
        json_out_put_str(j, "name", c->name);
        json_out_put_str(j, "unit", c->unit);
        json_out_put_f64(j, "measured", c->measured);
        json_out_put_f64(j, "expected", c->expected);
        json_out_put_f64(j, "error", c->error);
        json_out_put_u64(j, "repeats", c->n_repeats);
        json_out_put_f64(j, "measured_low", c->low);
        json_out_put_f64(j, "measured_high", c->high);
        json_out_put_f64(j, "error_same_speed", c->same_speed);
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
        json_out_put_str(j, "knob", k->knob);
        json_out_put_str(j, "value", k->value);
        json_out_put_bool(j, "chosen", k->chosen);
        json_out_put_bool(j, "planned_only", k->planned_only);
        json_out_put_u64(j, "weights_bytes", k->weights_bytes);
        json_out_put_u64(j, "sequence_bytes", k->sequence_bytes);
        json_out_put_f64(j, "sequences", k->n_fit);
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
    json_out_put_u64(j, "sequences", f->advice.n);
    json_out_put_u64(j, "max_model_len", f->advice.max_model_len);
    json_out_put_u64(j, "max_num_seqs", f->advice.max_num_seqs);
    json_out_put_str(j, "weight_format", f->advice.weight_format);
    json_out_put_u64(j, "memory_bytes", f->advice.memory_bytes);
    json_out_obj_end(j);
}

void forecast_json(const struct forecast_ask *ask, const struct forecast *f, struct buf *out) {
    struct json_out j;
    json_out_init(&j, out);
    json_out_obj(&j);
    json_out_put_u64(&j, "format", FORMAT);
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
