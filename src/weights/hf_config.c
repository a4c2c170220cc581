/* config.json to metadata: what GGUF has for the same model. */
#include "base/error.h"
#include "base/size.h"
#include "weights/hf_impl.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- single keys ---- */

bool hf_is_neutral(const json_t *v) {
    if (!v) return true;
    if (json_is_string(v)) return !json_string_length(v);
    if (json_is_array(v)) return !json_array_size(v);
    if (json_is_object(v)) return !json_object_size(v);
    return !json_is_true(v) && json_number_value(v) == 0;
}

static void unsupported(struct hf_reader *r, const char *name, const json_t *v, const char *allowed) {
    char says[128];
    snprintf(says, sizeof says, "not supported for %s, only %s is", r->family->architecture, allowed);
    hf_fail_value(r, QUIRE_EUNSUPPORTED, name, v, says);
}

static bool is_word(const char *words, const char *s) {
    size_t n = strlen(s);
    for (const char *at = words; n && (at = strstr(at, s)); at += n)
        if ((at == words || at[-1] == ' ') && (at[n] == ' ' || !at[n])) return true;
    return false;
}

static void check_text(struct hf_reader *r, const struct hf_key *k, const json_t *v) {
    if (v && !(json_is_string(v) && is_word(k->key, json_string_value(v))))
        unsupported(r, k->name, v, k->key);
}

static void check_number(struct hf_reader *r, const struct hf_key *k, const json_t *v) {
    char allowed[32];
    snprintf(allowed, sizeof allowed, "%g", k->preset);
    double d = json_is_true(v) ? 1 : json_number_value(v);
    if (v && d != k->preset) unsupported(r, k->name, v, allowed);
}

static void read_real(struct hf_reader *r, const struct hf_key *k, const json_t *v) {
    double d = hf_real(r, r->config, k->name, k->preset);
    if (!v && k->preset == 0) return;
    if (k->use == HF_RSQRT && !r->rc && !(d > 0))
        hf_fail(r, QUIRE_EFORMAT, "%s = %g: must be more than 0", k->name, d);
    hf_put_f64(r, k->key, k->name, k->use == HF_RSQRT ? 1 / sqrt(d) : d);
}

static void read_key(struct hf_reader *r, const struct hf_key *k) {
    const json_t *v = hf_get(r->config, k->name);
    uint64_t preset = k->preset > 0 ? (uint64_t)k->preset : 0;
    switch (k->use) {
    case HF_SIZE:
        if (v || preset)
            hf_put_u64(r, k->key, k->name, hf_size(r, r->config, k->name, 0, UINT32_MAX, preset));
        break;
    case HF_REAL:
    case HF_RSQRT: read_real(r, k, v); break;
    case HF_FLAG: hf_put_bool(r, k->key, k->name, hf_flag(r, r->config, k->name, k->preset != 0)); break;
    case HF_TEXT: check_text(r, k, v); break;
    case HF_NONE:
        if (!hf_is_neutral(v)) unsupported(r, k->name, v, "0, false or nothing");
        break;
    case HF_NUMBER: check_number(r, k, v); break;
    case HF_BIAS:
    case HF_OWN:
    case HF_IGNORED: break;
    }
}

/* Keys that nobody knows would be without effect, and the model another than its makers meant. Keys with an
 * underscore in front are private to the program that wrote the file. */
static void check_known(struct hf_reader *r) {
    const char *name;
    json_t *v;
    json_object_foreach((json_t *)r->config, name, v) {
        if (name[0] == '_' || json_is_null(v) || hf_key(r->family, name)) continue;
        hf_fail(r, QUIRE_EUNSUPPORTED, "%.64s: not known for %s, so its effect would be lost", name,
                r->family->architecture);
    }
}

/* ---- layers ---- */

/* windowed: [n_layers]; false if layer_types is not there. */
static bool read_layer_types(struct hf_reader *r, size_t n_layers, bool *windowed) {
    const json_t *list = hf_get(r->config, "layer_types");
    if (!list || r->rc) return false;
    if (json_array_size(list) != n_layers) {
        hf_fail(r, QUIRE_EFORMAT, "layer_types: must be a list of %zu, one for each layer", n_layers);
        return false;
    }
    for (size_t i = 0; i < n_layers; i++) {
        const char *type = json_string_value(json_array_get(list, i));
        windowed[i] = type && !strcmp(type, "sliding_attention");
        if (!windowed[i] && (!type || strcmp(type, "full_attention")))
            hf_fail(r, QUIRE_EUNSUPPORTED,
                    "layer_types[%zu] = \"%.32s\": full_attention and sliding_attention are supported", i,
                    type ? type : "?");
    }
    return true;
}

static void fill_by_family(struct hf_reader *r, size_t n_layers, bool *windowed) {
    size_t first = 0, period = r->family->window_period;
    bool by_period = r->family->windows == WINDOWS_PERIOD;
    if (r->family->windows == WINDOWS_UPPER)
        first = (size_t)hf_size(r, r->config, "max_window_layers", 0, HF_MAX_LAYERS,
                                (uint64_t)hf_key(r->family, "max_window_layers")->preset);
    if (hf_key(r->family, "sliding_window_pattern")) {
        period = (size_t)hf_size(r, r->config, "_sliding_window_pattern", 1, HF_MAX_LAYERS, period);
        period = (size_t)hf_size(r, r->config, "sliding_window_pattern", 1, HF_MAX_LAYERS, period);
    }
    if (by_period && !period)
        hf_fail(r, QUIRE_EUNSUPPORTED, "use_sliding_window: only supported with layer_types");
    for (size_t i = 0; i < n_layers; i++)
        windowed[i] = i >= first && (!by_period || (period && i % period < period - 1));
}

static void read_windows(struct hf_reader *r, size_t n_layers) {
    bool windowed[HF_MAX_LAYERS] = {false}, any = false;
    const struct hf_family *f = r->family;
    const struct hf_key *k = hf_key(f, "sliding_window");
    bool on = f->windows != WINDOWS_NONE;
    if (on && f->window_switch) on = hf_flag(r, r->config, "use_sliding_window", false);
    uint64_t preset = k && json_object_get(r->config, "sliding_window") == NULL ? (uint64_t)k->preset : 0;
    uint64_t window = k ? hf_size(r, r->config, "sliding_window", 0, UINT32_MAX, preset) : 0;
    if (!on || !window || r->rc) {
        if (!f->windows && read_layer_types(r, n_layers, windowed))
            for (size_t i = 0; i < n_layers; i++)
                if (windowed[i])
                    hf_fail(r, QUIRE_EUNSUPPORTED, "layer_types[%zu]: only full_attention is supported", i);
        return;
    }
    if (!read_layer_types(r, n_layers, windowed)) fill_by_family(r, n_layers, windowed);
    for (size_t i = 0; i < n_layers; i++) any |= windowed[i];
    if (!any || r->rc) return;
    hf_put_u64(r, "attention.sliding_window", "sliding_window", window);
    hf_put_bools(r, "attention.sliding_window_pattern", "layer_types", windowed, n_layers);
}

/* Which layers rotate is the family's: others are refused. */
static void check_no_rope(struct hf_reader *r, size_t n_layers) {
    const json_t *list = hf_get(r->config, "no_rope_layers");
    if (!r->family->no_rope_layers || !list) return;
    if (json_array_size(list) != n_layers)
        hf_fail(r, QUIRE_EFORMAT, "no_rope_layers: must be a list of %zu, one for each layer", n_layers);
    for (size_t i = 0; i < n_layers && !r->rc; i++)
        if (json_number_value(json_array_get(list, i)) != (i % 4 != 3))
            hf_fail(r, QUIRE_EUNSUPPORTED,
                    "no_rope_layers[%zu]: only 1, and 0 for each fourth layer, are supported", i);
}

/* ---- the whole ---- */

static const char *architecture_of(struct hf_reader *r) {
    const json_t *list = hf_get(r->top, "architectures");
    if (!list) return NULL;
    const char *name = json_string_value(json_array_get(list, 0));
    if (!name || json_array_size(list) != 1)
        hf_fail(r, QUIRE_EFORMAT, "architectures: must be a list of one name");
    return name;
}

static const char *text_type_of(const struct hf_reader *r) {
    return json_string_value(hf_get(hf_get(r->top, "text_config"), "model_type"));
}

static void find_family(struct hf_reader *r) {
    const char *name = architecture_of(r), *type = json_string_value(hf_get(r->top, "model_type"));
    if (!r->rc && !name && !type) hf_fail(r, QUIRE_EFORMAT, "architectures is missing");
    if (r->rc) return;
    r->family = hf_family(name, type, text_type_of(r));
    r->bare = r->family && name && r->family->trunk && !strcmp(name, r->family->trunk);
    if (r->family) return;
    char known[HF_NAMES_BYTES];
    hf_family_names(known, sizeof known);
    hf_fail(r, QUIRE_EUNSUPPORTED, "%s = \"%.64s\": known are those of %s",
            name ? "architectures" : "model_type", name ? name : type, known);
}

static void note_code(struct hf_reader *r) {
    if (!hf_get(r->top, "auto_map")) return;
    r->w->notices[r->w->n_notices++] =
        "config.json: auto_map is ignored: no code of a model folder is ever run";
}

/* How many texts may have; the rest of the table is no text's. */
static void read_positions(struct hf_reader *r) {
    uint64_t preset = (uint64_t)hf_key(r->family, "max_position_embeddings")->preset;
    uint64_t n = hf_size(r, r->config, "max_position_embeddings", 1, HF_MAX_LENGTH, preset), first = 0;
    if (r->family->numbered_positions) first = 1 + hf_size(r, r->config, "pad_token_id", 0, HF_MAX_LENGTH, 1);
    if (!r->rc && n <= first)
        hf_fail(r, QUIRE_EFORMAT,
                "max_position_embeddings = %u: must be more than %u, which pad_token_id takes away",
                (unsigned)n, (unsigned)first);
    r->first_position = (size_t)first;
    hf_put_u64(r, "context_length", "max_position_embeddings", n - first);
}

/* Scores of cross-encoders go through a sigmoid, or are given as they are. */
static void read_activation(struct hf_reader *r) {
    const json_t *v = hf_get(hf_get(r->config, "sentence_transformers"), "activation_fn");
    if (!v) v = hf_get(r->config, "sbert_ce_default_activation_function");
    const char *name = json_string_value(v), *last = name ? strrchr(name, '.') : NULL;
    if (!v || !r->family->head[0]) return;
    last = last ? last + 1 : name;
    r->w->raw_scores = last && !strcmp(last, "Identity");
    if (!last || (!r->w->raw_scores && strcmp(last, "Sigmoid")))
        hf_fail_value(r, QUIRE_EUNSUPPORTED, "sentence_transformers.activation_fn", v,
                      "only torch's Identity and Sigmoid are supported");
}

static void read_decoder(struct hf_reader *r, size_t n_layers) {
    if (r->family->latent)
        hf_read_latent(r);
    else if (hf_get(r->config, "head_dim"))
        hf_put_u64(r, "attention.value_length", "head_dim",
                   hf_size(r, r->config, "head_dim", 1, UINT32_MAX, 0));
    read_windows(r, n_layers);
    check_no_rope(r, n_layers);
    hf_read_rope(r);
}

/* Keys get their usual names; which had others is remembered for messages. */
static void rename_keys(struct hf_reader *r) {
    const struct hf_alias *a = r->family->aliases;
    if (a && !(r->aliased = json_object())) hf_no_memory(r);
    for (; a && a->theirs && !r->rc; a++) {
        json_t *v = json_object_get(r->top, a->theirs);
        if (!v || hf_get(r->top, a->name)) continue;
        if (json_object_set(r->top, a->name, v) || json_object_set(r->aliased, a->theirs, v)) hf_no_memory(r);
        json_object_del(r->top, a->theirs);
    }
}

/* Of a model that does more than write: what it writes with. */
static void find_text(struct hf_reader *r) {
    char known[64];
    r->config = hf_get(r->top, "text_config");
    if (!json_is_object(r->config)) hf_fail(r, QUIRE_EFORMAT, "text_config must be an object");
    const json_t *type = hf_get(r->config, "model_type");
    const char *name = text_type_of(r);
    hf_text_types(r->family, known, sizeof known);
    if (!r->rc && type && (!name || strcmp(name, r->family->text_config)))
        unsupported(r, "text_config.model_type", type, known);
}

void hf_read_config(struct hf_reader *r) {
    const struct hf_key *k;
    r->config = r->top;
    find_family(r);
    if (!r->rc) rename_keys(r);
    if (r->rc) return;
    if (r->family->text_config) find_text(r);
    hf_read_quantization(r);
    if (!r->rc) check_known(r);
    if (r->rc) return;
    note_code(r);
    hf_put_str(r, ".general.architecture", "architectures", r->family->family);
    for (size_t i = 0; (k = hf_key_at(r->family, i)) && !r->rc; i++) read_key(r, k);
    size_t n_layers = (size_t)hf_size(r, r->config, "num_hidden_layers", 1, HF_MAX_LAYERS, 0);
    if (!r->rc && !n_layers) hf_fail(r, QUIRE_EFORMAT, "num_hidden_layers is missing");
    if (r->rc) return;
    r->n_layers = n_layers;
    if (!r->family->encoder) {
        read_decoder(r, n_layers);
        return;
    }
    if (r->family->rotates)
        hf_read_rope(r);
    else
        read_positions(r);
    if (r->family->relu_head) hf_put_bool(r, "classifier.relu", "architectures", true);
    read_activation(r);
}
