/* What each layer does: its window, its rotary table, its experts, and the KV group that it belongs to. */
#include "model/spec_impl.h"

#include "base/error.h"
#include "base/size.h"

#include <string.h>

#define MAX_EXPERTS 4096
#define MAX_FF      (1u << 20)

/* ---- windows ---- */

/* One value for each layer: whether it has a window. */
static void read_pattern(struct spec_reader *r, const struct model_spec *s, const struct meta *m,
                         bool *windowed) {
    bool integers =
        m->elem != META_STRING && m->elem != META_ARRAY && m->elem != META_F32 && m->elem != META_F64;
    if (!integers || m->n != s->n_layers) {
        r->rc = error_set(r->err, QUIRE_EFORMAT,
                          "%s: %zu values of type %s; must be one integer or boolean for each of %zu layers",
                          m->key, m->n, meta_type_name(m->elem), s->n_layers);
        return;
    }
    for (size_t i = 0; i < s->n_layers; i++) /* GGUF stores a boolean in a byte */
        windowed[i] = m->elem == META_BOOL ? ((const uint8_t *)m->raw)[i] != 0 : meta_array_int(m, i) != 0;
}

static void read_windows(struct spec_reader *r, struct model_spec *s) {
    bool windowed[MODEL_MAX_LAYERS];
    char key[SPEC_KEY_BYTES];
    size_t window = spec_size_or(r, "attention.sliding_window", 0, UINT32_MAX, 0);
    spec_full_key(r, "attention.sliding_window_pattern", key);
    const struct meta *m = weights_meta(r->w, key);
    if (r->rc) return;
    if (m && m->type == META_ARRAY) {
        read_pattern(r, s, m, windowed);
    } else {
        size_t period = spec_size_or(r, "attention.sliding_window_pattern", 0, MODEL_MAX_LAYERS,
                                     r->family->window_period);
        for (size_t i = 0; i < s->n_layers; i++) windowed[i] = !period || i % period < period - 1;
    }
    spec_need(r, !window || !s->encoder, "attention.sliding_window", window, "0 in an encoder");
    if (r->rc) return;
    for (size_t i = 0; i < s->n_layers; i++) {
        struct model_layer *l = &s->layers[i];
        size_t step = r->family->no_rope_period;
        bool own = window && windowed[i];
        l->window = own && window < s->context_len ? window : 0; /* no sequence is longer */
        l->rope = own && s->n_ropes > 1 ? 1 : 0;
        if ((step && i % step == step - 1) || !s->n_ropes) l->rope = MODEL_NO_ROPE;
    }
}

/* ---- KV groups ---- */

/* Groups share one page size, that of the group of most layers, so the layers of each kind are spread over as
 * many groups as keep pages small and full. The cost is that of a sequence as long as the model's context. */
static size_t group_layers(const struct model_spec *s, size_t n_full, size_t n_windowed, size_t window) {
    size_t best = size_max(n_full, n_windowed), least = SIZE_MAX;
    for (size_t n = 1; n <= size_max(n_full, n_windowed); n++) {
        size_t full = size_div_up(n_full, n), windowed = size_div_up(n_windowed, n);
        if (full + windowed > BATCH_MAX_GROUPS) continue;
        size_t cost = n * (full * s->context_len + windowed * window);
        if (cost > least) continue; /* of equals the fewer groups */
        least = cost;
        best = n;
    }
    return best;
}

static void fill_groups(struct model_spec *s, bool windowed, size_t n, size_t per_group, size_t window) {
    size_t n_groups = size_div_up(n, per_group), first = s->n_kv_groups, seen = 0;
    for (size_t i = 0; i < s->n_layers; i++) {
        struct model_layer *l = &s->layers[i];
        if ((l->window != 0) != windowed) continue;
        l->kv_group = first + seen++ % n_groups;
        struct model_kv_group *g = &s->kv_groups[l->kv_group];
        g->window = window;
        l->kv_layer = g->n_layers++;
    }
    s->n_kv_groups += n_groups;
}

/* An encoder computes a layer of a whole sequence before the next: all layers use the memory of one. */
static void make_encoder_group(struct model_spec *s) {
    s->n_kv_groups = 1;
    s->kv_groups[0] = (struct model_kv_group){.n_layers = 1};
}

static void make_groups(struct model_spec *s) {
    size_t n_windowed = 0, window = 0;
    for (size_t i = 0; i < s->n_layers; i++) {
        if (!s->layers[i].window) continue;
        n_windowed++;
        window = s->layers[i].window;
    }
    size_t n_full = s->n_layers - n_windowed;
    size_t per_group = n_full && n_windowed ? group_layers(s, n_full, n_windowed, window) : s->n_layers;
    s->n_kv_groups = 0;
    if (n_full) fill_groups(s, false, n_full, per_group, 0);
    if (n_windowed) fill_groups(s, true, n_windowed, per_group, window);
}

/* ---- experts ---- */

static void read_gating(struct spec_reader *r, struct model_experts *e) {
    enum { SOFTMAX = 1, SIGMOID, SELECTED }; /* GGUF's values */
    static const enum backend_gating ours[] = {[SOFTMAX] = BACKEND_GATE_SOFTMAX,
                                               [SIGMOID] = BACKEND_GATE_SIGMOID,
                                               [SELECTED] = BACKEND_GATE_SELECTED};
    size_t preset = r->family->gating == BACKEND_GATE_SELECTED ? SELECTED : SOFTMAX;
    size_t gating = spec_size_or(r, "expert_gating_func", 0, 255, preset);
    if (!gating) gating = preset;
    bool sigmoid = r->family->sigmoid_experts;
    spec_need(r, gating <= SELECTED && (gating != SIGMOID || sigmoid), "expert_gating_func", gating,
              sigmoid ? "1 (softmax), 2 (sigmoid) or 3 (softmax over the selected experts)"
                      : "1 (softmax) or 3 (softmax over the selected experts)");
    e->gating = ours[r->rc ? SOFTMAX : gating];
    e->normalise = spec_bool_or(r, "expert_weights_norm", r->family->normalise_experts);
    e->scale = (float)spec_float_or(r, "expert_weights_scale", 0.0, 1e4, 1.0);
    if (e->scale == 0.0f) e->scale = 1.0f; /* as converters write "none" */
}

/* Which groups are best: by their best expert, or as DeepSeek-V3 has it, with sigmoid, by their best two. */
static void read_expert_groups(struct spec_reader *r, struct model_experts *e) {
    e->n_groups = spec_size_or(r, "expert_group_count", 0, BACKEND_MAX_EXPERT_GROUPS, 0);
    if (r->rc || e->n_groups < 2) return;
    e->group_best = e->gating == BACKEND_GATE_SIGMOID ? 2 : 1;
    e->n_groups_used = spec_size(r, "expert_group_used_count", 1, e->n_groups);
    spec_need(r, e->n % e->n_groups == 0 && e->n / e->n_groups >= e->group_best, "expert_group_count",
              e->n_groups, "a divisor of expert_count that leaves a group at least 2 experts");
    spec_need(r, e->n_used <= e->n_groups_used * (e->n / e->n_groups), "expert_group_used_count",
              e->n_groups_used, "as many as have expert_used_count experts");
}

static void read_experts(struct spec_reader *r, struct model_spec *s) {
    struct model_experts *e = &s->experts;
    e->n = spec_size_or(r, "expert_count", 0, MAX_EXPERTS, 0);
    bool dense = false;
    for (size_t i = 0; i < r->family->n_tensors; i++) dense |= r->family->tensors[i].weight == W_FFN_DOWN;
    spec_need(r, e->n || dense, "expert_count", e->n, "at least 1");
    if (r->rc || !e->n) return;
    e->n_used = spec_size(r, "expert_used_count", 1, e->n);
    e->ff = spec_size_or(r, "expert_feed_forward_length", 1, MAX_FF, s->n_ff);
    e->shared_ff = e->ff * spec_size_or(r, "expert_shared_count", 0, 64, 0);
    e->shared_ff = spec_size_or(r, "expert_shared_feed_forward_length", 0, MAX_FF, e->shared_ff);
    read_gating(r, e);
    read_expert_groups(r, e);
    size_t n_dense = spec_size_or(r, "leading_dense_block_count", 0, s->n_layers, 0);
    for (size_t i = 0; i < s->n_layers; i++) s->layers[i].routed = i >= n_dense;
}

void spec_read_layers(struct spec_reader *r, struct model_spec *s) {
    memset(s->layers, 0, sizeof s->layers);
    read_windows(r, s);
    read_experts(r, s);
    if (r->rc) return;
    if (s->encoder)
        make_encoder_group(s);
    else
        make_groups(s);
}
