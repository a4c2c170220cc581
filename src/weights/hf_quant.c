/* quantization_config, and 8-bit floats with scales: quant_method "fp8" as DeepSeek-V3 and Qwen3 have it
 * (blocks, weight_scale_inv) and "compressed-tensors" in the format float-quantized (a scale for a tensor, a
 * row or a block, weight_scale). A weight is its element times its scale; what the configuration says of
 * activations is left out: nothing here rounds them to 8-bit floats. */
#include "base/error.h"
#include "weights/hf_impl.h"

#include <stdio.h>
#include <string.h>

#define INSTEAD "; use the model's unquantized safetensors, or a GGUF file"

static void refuse(struct hf_reader *r, const char *key, const json_t *v, const char *allowed) {
    char name[160], says[160];
    snprintf(name, sizeof name, "quantization_config.%.96s", key);
    snprintf(says, sizeof says, "%s" INSTEAD, allowed);
    hf_fail_value(r, QUIRE_EUNSUPPORTED, name, v, says);
}

static bool is_one_of(const char *s, const char *const *words) {
    for (; *words; words++)
        if (!strcmp(s, *words)) return true;
    return false;
}

/* front: what stands before the keys in messages, "" or with a dot at its end. */
static void check_known(struct hf_reader *r, const json_t *object, const char *front,
                        const char *const *known) {
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)object, key, v) {
        char name[128];
        snprintf(name, sizeof name, "%s%.64s", front, key);
        if (!json_is_null(v) && !is_one_of(key, known))
            refuse(r, name, v, "not known, so its effect would be lost");
    }
}

/* Absent, or one of the words. */
static void check_word(struct hf_reader *r, const json_t *object, const char *front, const char *key,
                       const char *const *words, const char *allowed) {
    const json_t *v = hf_get(object, key);
    char name[128];
    snprintf(name, sizeof name, "%s%s", front, key);
    if (v && !(json_is_string(v) && is_one_of(json_string_value(v), words))) refuse(r, name, v, allowed);
}

static void check_neutral(struct hf_reader *r, const json_t *object, const char *front, const char *key) {
    const json_t *v = hf_get(object, key);
    char name[128];
    snprintf(name, sizeof name, "%s%s", front, key);
    if (!hf_is_neutral(v)) refuse(r, name, v, "not supported");
}

static void read_block(struct hf_reader *r, const char *key, const json_t *v) {
    for (size_t i = 0; i < 2 && v; i++) {
        const json_t *n = json_array_get(v, i);
        bool fits = json_is_integer(n) && json_integer_value(n) >= (i ? PIECES_MIN_BLOCK : 1) &&
                    json_integer_value(n) <= 1 << 20 && json_array_size(v) == 2;
        if (!fits) {
            refuse(r, key, v, "must be two integers, rows from 1 and columns from 16 to 1048576");
            return;
        }
        r->block[i] = (size_t)json_integer_value(n);
    }
}

/* ---- fp8 ---- */

static void read_fp8(struct hf_reader *r, const json_t *q) {
    static const char *const known[] = {"quant_method",
                                        "fmt",
                                        "scale_fmt",
                                        "activation_scheme",
                                        "weight_block_size",
                                        "modules_to_not_convert",
                                        "ignored_layers",
                                        "dequantize",
                                        NULL};
    static const char *const formats[] = {"e4m3", "e5m2", "float8_e4m3fn", "float8_e5m2", NULL};
    static const char *const schemes[] = {"dynamic", "static", NULL};
    static const char *const scales[] = {"float", "ue8m0", NULL};
    check_known(r, q, "", known);
    check_word(r, q, "", "fmt", formats, "only e4m3 and e5m2 are supported");
    check_word(r, q, "", "activation_scheme", schemes, "only dynamic and static are known");
    check_word(r, q, "", "scale_fmt", scales, "only float and ue8m0 are supported");
    read_block(r, "weight_block_size", hf_get(q, "weight_block_size"));
}

/* ---- compressed-tensors ---- */

static void read_group_weights(struct hf_reader *r, const json_t *w) {
    static const char *const known[] = {
        "num_bits",        "type",     "strategy",        "symmetric",   "dynamic",  "group_size", "observer",
        "observer_kwargs", "actorder", "block_structure", "scale_dtype", "zp_dtype", NULL};
    static const char *const types[] = {"float", NULL};
    static const char *const strategies[] = {"tensor", "channel", "block", NULL};
    const char *front = "config_groups.weights.";
    const json_t *bits = hf_get(w, "num_bits"), *symmetric = hf_get(w, "symmetric");
    if (!json_is_object(w)) {
        refuse(r, "config_groups.weights", w, "must be an object");
        return;
    }
    check_known(r, w, front, known);
    check_word(r, w, front, "type", types, "only float is supported");
    check_word(r, w, front, "strategy", strategies, "only tensor, channel and block are supported");
    check_neutral(r, w, front, "dynamic");
    check_neutral(r, w, front, "actorder");
    check_neutral(r, w, front, "group_size");
    if (json_number_value(bits) != 8)
        refuse(r, "config_groups.weights.num_bits", bits, "only 8 is supported");
    if (symmetric && !json_is_true(symmetric))
        refuse(r, "config_groups.weights.symmetric", symmetric, "only true is supported");
    read_block(r, "config_groups.weights.block_structure", hf_get(w, "block_structure"));
}

static void read_compressed(struct hf_reader *r, const json_t *q) {
    static const char *const known[] = {"quant_method",
                                        "format",
                                        "config_groups",
                                        "ignore",
                                        "kv_cache_scheme",
                                        "sparsity_config",
                                        "transform_config",
                                        "version",
                                        "global_compression_ratio",
                                        "quantization_status",
                                        NULL};
    static const char *const of_group[] = {
        "weights", "input_activations", "output_activations", "targets", "format", NULL};
    static const char *const formats[] = {"float-quantized", NULL};
    static const char *const states[] = {"compressed", "frozen", NULL};
    const char *name, *only = "only float-quantized is supported";
    json_t *group;
    check_known(r, q, "", known);
    if (!hf_get(q, "format")) refuse(r, "format", hf_get(q, "format"), only);
    check_word(r, q, "", "format", formats, only);
    check_word(r, q, "", "quantization_status", states, "only compressed is supported");
    check_neutral(r, q, "", "kv_cache_scheme");
    check_neutral(r, q, "", "sparsity_config");
    check_neutral(r, q, "", "transform_config");
    json_object_foreach(hf_get(q, "config_groups"), name, group) {
        check_known(r, group, "config_groups.", of_group);
        check_word(r, group, "config_groups.", "format", formats, only);
        check_neutral(r, group, "config_groups.", "output_activations");
        read_group_weights(r, hf_get(group, "weights"));
    }
}

void hf_read_quantization(struct hf_reader *r) {
    const json_t *q = hf_get(r->config, "quantization_config");
    if (!q) q = hf_get(r->top, "quantization_config");
    if (q && !json_is_object(q))
        hf_fail_value(r, QUIRE_EFORMAT, "quantization_config", q, "must be an object with quant_method");
    if (r->rc) return;
    const json_t *v = hf_get(q, "quant_method");
    const char *method = json_is_string(v) ? json_string_value(v) : "";
    if (!q || (!strcmp(method, "mxfp4") && r->family->turned_experts)) return;
    r->scaled = true;
    if (!strcmp(method, "fp8"))
        read_fp8(r, q);
    else if (!strcmp(method, "compressed-tensors"))
        read_compressed(r, q);
    else
        refuse(r, "quant_method", v, "only fp8 and compressed-tensors are supported here");
}

/* ---- tensors ---- */

static bool ends(const char *name, const char *end) {
    size_t n = strlen(name), n_end = strlen(end);
    return n > n_end && !strcmp(name + n - n_end, end);
}

bool hf_is_scale(const struct hf_reader *r, const char *name) {
    return r->scaled && (ends(name, ".weight_scale_inv") || ends(name, ".weight_scale") ||
                         ends(name, ".input_scale") || ends(name, ".activation_scale"));
}

static void fail(struct hf_reader *r, const struct tensor *t, const char *what) {
    if (!r->rc) r->rc = error_set(r->err, QUIRE_EFORMAT, "tensor \"%.128s\": %s", t->name, what);
}

static const struct tensor *scales_of(struct hf_reader *r, const struct tensor *t, unsigned *file) {
    static const char *const ends_of[] = {"_scale_inv", "_scale"};
    const struct tensor *s = NULL;
    for (size_t k = 0; k < 2 && !s; k++) {
        char name[300];
        snprintf(name, sizeof name, "%.256s%s", t->name, ends_of[k]);
        for (size_t i = 0; i < r->w->n_others && !s; i++)
            if ((s = weights_tensor(r->w->others[i], name))) *file = (unsigned)i;
    }
    if (!s) fail(r, t, "its scales are missing");
    return s;
}

static size_t div_up(size_t a, size_t b) {
    return a / b + (a % b != 0);
}

/* Which elements share a scale, by the scales' shape: all, those of a row, or those of a block. */
static bool lay_out(const struct hf_reader *r, const struct tensor *t, const struct tensor *s,
                    struct tensor_scales *out) {
    size_t rows = t->dims[1], cols = t->dims[0], n = s->dims[0] * s->dims[1];
    bool plain = s->type == TENSOR_F32 || s->type == TENSOR_F16 || s->type == TENSOR_BF16;
    *out = (struct tensor_scales){.elem = t->type, .type = s->type, .rows = rows, .cols = cols, .per_row = 1};
    if (!plain || s->dims[2] != 1 || s->dims[3] != 1) return false;
    if (r->block[0] && s->dims[1] == div_up(rows, r->block[0]) && s->dims[0] == div_up(cols, r->block[1])) {
        out->rows = r->block[0];
        out->cols = r->block[1];
        out->per_row = s->dims[0];
        return true;
    }
    if (n == 1) return true;
    out->rows = 1;
    return n == rows && (s->dims[0] == 1 || s->dims[1] == 1);
}

static void scale(struct hf_reader *r, struct tensor *t, unsigned file) {
    unsigned scales_file = 0;
    struct tensor_scales scaled;
    const struct tensor *s = scales_of(r, t, &scales_file);
    if (!s) return;
    if (t->n_dims != 2 || !lay_out(r, t, s, &scaled)) {
        fail(r, t, "it or its scales have a shape or dtype that quantization_config does not give");
        return;
    }
    struct tensor_parts *p = arena_zalloc(&r->w->arena, sizeof *p + sizeof p->pieces[0]);
    if (!p) {
        hf_no_memory(r);
        return;
    }
    *p = (struct tensor_parts){.kind = PIECES_SCALED,
                               .n_rows = t->dims[1],
                               .step = 1,
                               .scaled = scaled,
                               .n = 1,
                               .stored_bytes = t->bytes + s->bytes};
    p->pieces[0] =
        (struct tensor_piece){.data = t->data, .scales = s->data, .file = file, .scales_file = scales_file};
    t->parts = p;
    t->data = NULL;
    t->type = TENSOR_F32;
    t->row_bytes = t->dims[0] * sizeof(float);
    t->bytes = t->row_bytes * t->dims[1];
}

void hf_join_scales(struct hf_reader *r) {
    for (size_t i = 0; i < r->w->n_others && r->scaled; i++) {
        struct weights *file = r->w->others[i];
        for (size_t k = 0; k < file->n_tensors && !r->rc; k++) {
            struct tensor *t = &file->tensors[k];
            if (t->type == TENSOR_F8_E4M3 || t->type == TENSOR_F8_E5M2) scale(r, t, (unsigned)i);
        }
    }
}
