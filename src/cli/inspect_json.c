/* An inspection as JSON; docs/operations.md says what the fields are. */
#include "cli/inspect.h"

#include "base/json_out.h"

#include <string.h>

#define FORMAT 1

/* null for what the file does not say */
static void put_known(struct json_out *j, const char *key, uint64_t v) {
    json_out_key(j, key);
    if (v)
        json_out_u64(j, v);
    else
        json_out_null(j);
}

static void put_text(struct json_out *j, const char *key, struct meta_str s) {
    json_out_key(j, key);
    if (s.data)
        json_out_strn(j, s.data, s.len);
    else
        json_out_null(j);
}

static void put_null(struct json_out *j, const char *key) {
    json_out_key(j, key);
    json_out_null(j);
}

/* ---- parts ---- */

static void put_files(struct json_out *j, const struct inspection *i) {
    const struct weights *w = i->model.weights;
    json_out_key(j, "files");
    json_out_arr(j);
    for (size_t k = 0; w && k < weights_n_files(w); k++) {
        json_out_obj(j);
        json_out_put_str(j, "path", weights_file_path(w, k));
        json_out_put_u64(j, "bytes", weights_bytes_of_file(w, k));
        json_out_obj_end(j);
    }
    json_out_arr_end(j);
    put_known(j, "file_bytes", w ? weights_file_bytes(w) : 0);
    json_out_put_u64(j, "tensor_bytes", i->total.bytes);
    json_out_put_u64(j, "tensors", i->total.n_tensors);
    json_out_put_u64(j, "parameters", i->total.n_elements);
    json_out_put_u64(j, "active_parameters", i->active);
}

static void put_shapes(struct json_out *j, const struct inspect_sizes *s) {
    json_out_key(j, "shapes");
    json_out_obj(j);
    put_known(j, "layers", s->layers);
    put_known(j, "width", s->width);
    put_known(j, "heads", s->heads);
    put_known(j, "kv_heads", s->kv_heads);
    put_known(j, "head_size", s->head_size);
    put_known(j, "feed_forward", s->ff);
    put_known(j, "vocabulary", s->vocabulary);
    json_out_put_u64(j, "experts", s->experts);
    json_out_put_u64(j, "experts_used", s->experts_used);
    json_out_put_u64(j, "expert_feed_forward", s->expert_ff);
    json_out_put_u64(j, "shared_feed_forward", s->shared_ff);
    json_out_obj_end(j);
    put_known(j, "context_length", s->context);
}

static void put_rope(struct json_out *j, const char *key, const struct model_rope *r) {
    bool by_factor = r->scaling == ROPE_LINEAR || r->scaling == ROPE_YARN;
    json_out_key(j, key);
    json_out_obj(j);
    json_out_put_f64(j, "base", r->base);
    json_out_put_u64(j, "dimensions", r->n_rot);
    json_out_put_str(j, "scaling", rope_scaling_name(r->scaling));
    json_out_key(j, "factor");
    if (by_factor)
        json_out_f64(j, r->factor);
    else
        json_out_null(j);
    put_known(j, "original_context", r->original_context);
    json_out_obj_end(j);
}

static void put_kv(struct json_out *j, const char *key, const struct model_spec *s, uint64_t n_tokens) {
    static const struct {
        const char *name;
        enum backend_dtype dtype;
    } dtypes[] = {{"bfloat16", BACKEND_BF16}, {"float16", BACKEND_F16}, {"float32", BACKEND_F32}};
    json_out_key(j, key);
    json_out_obj(j);
    for (size_t k = 0; k < sizeof dtypes / sizeof *dtypes; k++)
        json_out_put_u64(j, dtypes[k].name, inspection_kv_bytes(s, n_tokens, dtypes[k].dtype));
    json_out_obj_end(j);
}

static void put_spec(struct json_out *j, const struct model_spec *s) {
    static const char *const keys[] = {"rope",
                                       "window_rope",
                                       "layer_windows",
                                       "kv_bytes_per_token",
                                       "kv_bytes_per_1000_tokens",
                                       "kv_bytes_of_context",
                                       "encoder",
                                       "pooling"};
    if (!s) {
        for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) put_null(j, keys[k]);
        return;
    }
    for (size_t k = 0; k < MODEL_ROPES; k++)
        if (k < s->n_ropes)
            put_rope(j, keys[k], &s->ropes[k]);
        else
            put_null(j, keys[k]);
    json_out_key(j, keys[2]);
    json_out_arr(j);
    for (size_t k = 0; k < s->n_layers; k++) json_out_u64(j, s->layers[k].window);
    json_out_arr_end(j);
    put_kv(j, keys[3], s, 1);
    put_kv(j, keys[4], s, 1000);
    put_kv(j, keys[5], s, s->context_len);
    json_out_put_bool(j, keys[6], s->encoder);
    json_out_key(j, keys[7]);
    enum model_pooling pooling = model_default_pooling(s, false);
    json_out_str(j, pooling ? model_pooling_name(pooling) : NULL);
}

static void put_sum(struct json_out *j, const struct inspect_sum *sum) {
    json_out_put_u64(j, "tensors", sum->n_tensors);
    json_out_put_u64(j, "parameters", sum->n_elements);
    json_out_put_u64(j, "bytes", sum->bytes);
}

static void put_classes(struct json_out *j, const struct inspection *i) {
    json_out_key(j, "classes");
    json_out_arr(j);
    for (size_t class = 0; class < CLASS_END; class ++)
        for (uint32_t type = 0; type < TENSOR_TYPE_END; type++) {
            const struct inspect_sum *sum = &i->classes[class][type];
            if (!sum->n_tensors) continue;
            json_out_obj(j);
            json_out_put_str(j, "class", tensor_class_names[class]);
            json_out_put_str(j, "type", tensor_type_info(type)->name);
            put_sum(j, sum);
            json_out_obj_end(j);
        }
    json_out_arr_end(j);
}

static void put_special(struct json_out *j, const struct inspection *i) {
    uint64_t id;
    struct meta_str spelling;
    json_out_key(j, "special");
    json_out_obj(j);
    for (size_t k = 0; inspection_specials[k]; k++) {
        if (!inspection_special(i, inspection_specials[k], &id, &spelling)) continue;
        json_out_key(j, inspection_specials[k]);
        json_out_obj(j);
        json_out_put_u64(j, "id", id);
        put_text(j, "text", spelling);
        json_out_obj_end(j);
    }
    json_out_obj_end(j);
}

static void put_tokenizer(struct json_out *j, const struct inspection *i) {
    if (!i->tokenizer.data) {
        put_null(j, "tokenizer");
        return;
    }
    json_out_key(j, "tokenizer");
    json_out_obj(j);
    put_text(j, "kind", i->tokenizer);
    put_text(j, "pre", i->pre);
    put_known(j, "tokens", i->n_tokens);
    put_special(j, i);
    json_out_obj_end(j);
}

static void put_template(struct json_out *j, const struct inspection *i) {
    if (!i->template.data) {
        put_null(j, "chat_template");
        return;
    }
    json_out_key(j, "chat_template");
    json_out_obj(j);
    json_out_put_u64(j, "bytes", i->template.len);
    json_out_put_str(j, "sha256", i->template_sha256);
    json_out_put_bool(j, "renders", !i->template_error.code);
    json_out_put_str(j, "error", i->template_error.code ? i->template_error.text : NULL);
    put_known(j, "probe_tokens", i->probe_tokens);
    json_out_obj_end(j);
}

static void put_check(struct json_out *j, const struct inspection *i) {
    if (!i->checked) {
        put_null(j, "check");
        return;
    }
    json_out_key(j, "check");
    json_out_obj(j);
    json_out_put_str(j, "gap", i->gaps.code ? i->gaps.text : NULL);
    json_out_key(j, "not_finite");
    json_out_arr(j);
    for (size_t k = 0; k < i->total.n_tensors; k++) {
        const struct float_faults *f = &i->faults[k];
        if (!f->n_nan && !f->n_inf) continue;
        json_out_obj(j);
        json_out_put_str(j, "tensor", weights_tensor_at(i->model.weights, k)->name);
        json_out_put_u64(j, "nan", f->n_nan);
        json_out_put_u64(j, "infinite", f->n_inf);
        json_out_obj_end(j);
    }
    json_out_arr_end(j);
    json_out_obj_end(j);
}

void inspection_json(const struct inspection *i, struct buf *out) {
    struct json_out j;
    struct error ignored;
    json_out_init(&j, out);
    json_out_obj(&j);
    json_out_put_u64(&j, "format", FORMAT);
    put_text(&j, "family", i->family);
    put_text(&j, "name", i->name);
    put_files(&j, i);
    put_shapes(&j, &i->sizes);
    put_spec(&j, i->spec);
    put_classes(&j, i);
    put_tokenizer(&j, i);
    put_template(&j, i);
    put_check(&j, i);
    put_known(&j, "loaded_bytes", i->loaded_bytes);
    json_out_key(&j, "cannot_be_served");
    json_out_arr(&j);
    for (size_t k = 0; k < i->n_reasons; k++) json_out_str(&j, i->reasons[k].text);
    json_out_arr_end(&j);
    json_out_put_bool(&j, "whole", !inspection_broken(i, &ignored));
    json_out_obj_end(&j);
    buf_putc(out, '\n');
}
