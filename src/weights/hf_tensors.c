/* Tensors of safetensors files under the names and in the shapes that GGUF has for them. */
#include "base/error.h"
#include "base/size.h"
#include "weights/hf_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME_BYTES  128
#define MAX_EXPERTS 4096
#define MX_BYTES    16 /* of a block's elements */
#define MX_ELEMS    32

/* One of an expert's, until all are there. */
struct expert {
    char *name; /* the tensor's that it becomes a part of */
    size_t index;
    const struct tensor *t;
};

struct translation {
    struct hf_reader *r;
    const struct weights *file; /* the one whose tensors are read */
    unsigned i_file;
    bool tied;
    struct expert *experts;
    size_t n_experts, cap;
};

static void fail(struct hf_reader *r, int code, const struct tensor *t, const char *what) {
    if (!r->rc) r->rc = error_set(r->err, code, "tensor \"%.128s\": %s", t->name, what);
}

/* ---- names ---- */

/* "layers.12.rest", if that is what stands in front of numbers: the layer and the rest. */
static const char *split_layer(const char *front, const char *name, size_t *layer) {
    size_t n_front = strlen(front), n = 0;
    if (strncmp(name, front, n_front)) return NULL;
    const char *digits = name + n_front, *s = digits;
    for (; *s >= '0' && *s <= '9' && n < HF_MAX_LAYERS; s++) n = n * 10 + (size_t)(*s - '0');
    if (s == digits || *s != '.' || (*digits == '0' && s > digits + 1)) return NULL;
    *layer = n;
    return s + 1;
}

/* rest against a pattern in which * stands for a number. */
static bool matches(const char *pattern, const char *rest, size_t *index) {
    const char *star = strchr(pattern, '*');
    if (!star) return !strcmp(pattern, rest);
    size_t n = (size_t)(star - pattern);
    if (strncmp(pattern, rest, n)) return false;
    const char *s = rest + n;
    *index = 0;
    for (; *s >= '0' && *s <= '9' && *index < MAX_EXPERTS; s++) *index = *index * 10 + (size_t)(*s - '0');
    return s > rest + n && !(rest[n] == '0' && s > rest + n + 1) && !strcmp(star + 1, s);
}

static const struct hf_name *find_rule(const struct hf_name *names, size_t n, const char *rest,
                                       size_t *index) {
    for (size_t i = 0; i < n; i++)
        if (matches(names[i].theirs, rest, index)) return &names[i];
    return NULL;
}

#define POST_ATTENTION "post_attention_layernorm.weight"

static const char *post_attention(const struct hf_family *f) {
    return f->post_attention_norm ? "post_attention_norm.weight" : "ffn_norm.weight";
}

static bool begins(const char *name, const char *front) {
    return !strncmp(name, front, strlen(front));
}

/* Without what stands in front of all names of the text model, which a file may leave out. */
static const char *strip(const struct hf_family *f, const char *name) {
    static const char *const of_text[] = {"language_model.model.", "model.language_model.",
                                          "language_model."};
    static const char *const of_encoder[] = {"bert.", "roberta.", "distilbert."};
    for (size_t i = 0; f->text_config && i < sizeof of_text / sizeof *of_text; i++)
        if (begins(name, of_text[i])) return name + strlen(of_text[i]);
    for (size_t i = 0; f->encoder && i < sizeof of_encoder / sizeof *of_encoder; i++)
        if (begins(name, of_encoder[i])) return name + strlen(of_encoder[i]);
    return f->encoder || !begins(name, "model.") ? name : name + 6;
}

/* "cls." or "cls.output." and the rest, of a name that begins as a head's does; NULL: it does not. */
static const char *of_head(const struct hf_family *f, const char *name, char buf[NAME_BYTES]) {
    static const char *const ours[] = {"cls.", "cls.output."};
    for (size_t i = 0; i < 2; i++) {
        if (!f->head[i] || !begins(name, f->head[i])) continue;
        snprintf(buf, NAME_BYTES, "%s%s", ours[i], name + strlen(f->head[i]));
        return buf;
    }
    return NULL;
}

/* What the reference makes no use of: of encoders the parts for training, and lists of numbers. */
static bool is_left_out(const struct hf_family *f, const char *name) {
    static const char *const others[] = {"vision_tower.", "multi_modal_projector."};
    static const char *const of_encoder[] = {
        "embeddings.position_ids", "embeddings.token_type_ids", "pooler.",         "cls.", "lm_head.",
        "vocab_transform.",        "vocab_layer_norm.",         "vocab_projector."};
    char buf[NAME_BYTES];
    const char *end = strrchr(name, '.');
    if (f->encoder) {
        name = strip(f, name);
        for (size_t i = 0; i < sizeof of_encoder / sizeof *of_encoder; i++)
            if (begins(name, of_encoder[i])) return !of_head(f, name, buf);
        return false;
    }
    name = begins(name, "model.") ? name + 6 : name;
    for (size_t i = 0; f->text_config && i < sizeof others / sizeof *others; i++)
        if (begins(name, others[i])) return true;
    return end && !strcmp(end, ".inv_freq"); /* made from rope_theta */
}

/* Norms as TensorFlow calls what they hold; in buf. */
static const char *modern(const struct hf_family *f, const char *name, char buf[NAME_BYTES]) {
    static const char *const theirs[] = {"LayerNorm.gamma", "LayerNorm.beta"};
    static const char *const ours[] = {"LayerNorm.weight", "LayerNorm.bias"};
    size_t n = strlen(name);
    for (size_t i = 0; f->encoder && i < 2; i++) {
        size_t n_end = strlen(theirs[i]);
        if (n < n_end || n >= NAME_BYTES || strcmp(name + n - n_end, theirs[i])) continue;
        snprintf(buf, NAME_BYTES, "%.*s%s", (int)(n - n_end), name, ours[i]);
        return buf;
    }
    return name;
}

static const char *their_layer_name(const struct hf_family *f, const char *name) {
    const struct hf_names *names = hf_names(f);
    if (!f->encoder && !f->names && !strcmp(name, post_attention(f))) return POST_ATTENTION;
    for (size_t i = 0; i < names->n_of_layer; i++) {
        const struct hf_name *n = &names->of_layer[i];
        if ((n->name && !strcmp(n->name, name)) || (n->second && !strcmp(n->second, name))) return n->theirs;
    }
    return NULL;
}

const char *hf_tensor_name(const struct weights *w, const char *name, char *buf, size_t size) {
    const struct hf_family *f = w->hf_family;
    if (!f) return NULL;
    const struct hf_names *names = hf_names(f);
    const char *front = f->encoder ? "" : "model.";
    for (size_t i = 0; i < names->n_of_model; i++) {
        const struct hf_name *n = &names->of_model[i];
        if (strcmp(n->name, name)) continue;
        snprintf(buf, size, "%s%s", n->op == HF_OUTPUT ? "" : front, n->theirs);
        return buf;
    }
    const char *rest = strncmp(name, "blk.", 4) ? NULL : strchr(name + 4, '.');
    const char *theirs = rest ? their_layer_name(f, rest + 1) : NULL;
    if (!theirs) return NULL;
    snprintf(buf, size, "%s%s%.*s.%s", front, names->layer, (int)(rest - name - 4), name + 4, theirs);
    return buf;
}

/* ---- tensors ---- */

static char *keep(struct hf_reader *r, const char *text) {
    char *copy = arena_strndup(&r->w->arena, text, strlen(text));
    if (!copy) hf_no_memory(r);
    return copy;
}

/* A tensor under a name of ours; label: the file's. NULL after a failure. */
static struct tensor *add(struct translation *tr, const char *name, const struct tensor *t) {
    struct hf_reader *r = tr->r;
    char *copy = r->rc ? NULL : keep(r, name);
    char *label = copy ? keep(r, t->name) : NULL;
    struct tensor *out = label ? weights_add_tensor(r->w) : NULL;
    if (!out) {
        hf_no_memory(r);
        return NULL;
    }
    *out = *t;
    out->name = copy;
    out->label = label;
    out->file = tr->i_file;
    out->plus_one = r->family->norms_plus_one && strstr(name, "norm");
    return out;
}

static struct tensor_parts *add_parts(struct hf_reader *r, struct tensor *t, enum tensor_pieces kind,
                                      size_t n) {
    struct tensor_parts *p = t ? arena_zalloc(&r->w->arena, sizeof *p + n * sizeof p->pieces[0]) : NULL;
    if (!p) {
        hf_no_memory(r);
        return NULL;
    }
    *p = (struct tensor_parts){.kind = kind, .step = 1, .n = n};
    t->data = NULL;
    t->parts = p;
    return p;
}

/* Rows first, first + step, ... of each of the matrices in t become a tensor: dims[1] / 2 of them. */
static void add_half(struct translation *tr, const char *name, const struct tensor *t, size_t first,
                     size_t step) {
    size_t half = t->dims[1] / 2;
    struct tensor *out = add(tr, name, t);
    struct tensor_parts *p = add_parts(tr->r, out, PIECES_ROWS, t->dims[2]);
    if (!p) return;
    out->dims[1] = half;
    out->bytes = t->bytes / 2;
    p->n_rows = half;
    p->first = first;
    p->step = step;
    for (size_t e = 0; e < p->n; e++)
        p->pieces[e] = (struct tensor_piece){.data = (const uint8_t *)t->data + e * t->dims[1] * t->row_bytes,
                                             .file = tr->i_file};
}

static void add_halves(struct translation *tr, const char *name, const char *second, const struct tensor *t) {
    if (t->dims[1] % 2 || t->dims[3] != 1) {
        fail(tr->r, QUIRE_EFORMAT, t, "its rows must come in two halves");
        return;
    }
    add_half(tr, name, t, 0, 1);
    add_half(tr, second, t, t->dims[1] / 2, 1);
}

/* Columns first, first + step, ... of each of the matrices in t become the rows of a tensor. */
static void add_columns(struct translation *tr, const char *name, const struct tensor *t, size_t first,
                        size_t step) {
    if (t->dims[0] % step || t->dims[3] != 1) {
        fail(tr->r, QUIRE_EFORMAT, t, "its columns must come in pairs");
        return;
    }
    struct tensor *out = add(tr, name, t);
    struct tensor_parts *p = add_parts(tr->r, out, PIECES_COLUMNS, t->dims[2]);
    if (!p) return;
    out->dims[0] = t->dims[1];
    out->dims[1] = t->dims[0] / step;
    out->row_bytes = t->row_bytes / t->dims[0] * t->dims[1];
    out->bytes = t->bytes / step;
    p->n_rows = out->dims[1];
    p->first = first;
    p->step = step;
    p->stride_bytes = t->row_bytes;
    for (size_t e = 0; e < p->n; e++)
        p->pieces[e] = (struct tensor_piece){.data = (const uint8_t *)t->data + e * t->dims[1] * t->row_bytes,
                                             .file = tr->i_file};
}

/* Rows of two biases, whose elements take turns. */
static void add_turns(struct translation *tr, const char *name, const struct tensor *t, size_t first) {
    struct tensor *out = add(tr, name, t);
    struct tensor_parts *p = add_parts(tr->r, out, PIECES_ELEMENTS, t->dims[1]);
    if (!p) return;
    out->dims[0] = t->dims[0] / 2;
    out->row_bytes = t->row_bytes / 2;
    out->bytes = t->bytes / 2;
    p->n_rows = 1;
    p->first = first;
    p->step = 2;
    for (size_t e = 0; e < p->n; e++)
        p->pieces[e] =
            (struct tensor_piece){.data = (const uint8_t *)t->data + e * t->row_bytes, .file = tr->i_file};
}

static void add_bias_turns(struct translation *tr, const char *name, const char *second,
                           const struct tensor *t) {
    if (t->dims[0] % 2 || t->dims[2] * t->dims[3] != 1) {
        fail(tr->r, QUIRE_EFORMAT, t, "its elements must come in pairs");
        return;
    }
    add_turns(tr, name, t, 0);
    add_turns(tr, second, t, 1);
}

/* ---- MXFP4: [experts][rows][blocks][16] bytes, and scales [experts][rows][blocks] ---- */

static const struct tensor *scales_of(struct translation *tr, const struct tensor *blocks, unsigned *file) {
    struct hf_reader *r = tr->r;
    char name[300];
    const struct tensor *s = NULL;
    int n = (int)(strlen(blocks->name) - strlen("blocks"));
    snprintf(name, sizeof name, "%.*sscales", n, blocks->name);
    for (size_t i = 0; i < r->w->n_others && !s; i++)
        if ((s = weights_tensor(r->w->others[i], name))) *file = (unsigned)i;
    if (!s) fail(r, QUIRE_EFORMAT, blocks, "its scales are missing");
    bool fits = s && s->type == TENSOR_U8 && blocks->type == TENSOR_U8 && blocks->dims[0] == MX_BYTES &&
                s->dims[0] == blocks->dims[1] && s->dims[1] == blocks->dims[2] &&
                s->dims[2] == blocks->dims[3];
    if (s && !fits)
        fail(r, QUIRE_EFORMAT, blocks, "it or its scales have a shape or dtype that is not MXFP4's");
    return fits ? s : NULL;
}

/* Every step-th row of each expert. */
static void add_mx(struct translation *tr, const char *name, const struct tensor *t, size_t first,
                   size_t step) {
    unsigned file = 0;
    const struct tensor *scales = scales_of(tr, t, &file);
    if (!scales) return;
    if (t->dims[2] % step) {
        fail(tr->r, QUIRE_EFORMAT, t, "its rows must come in pairs");
        return;
    }
    struct tensor *out = add(tr, name, t);
    struct tensor_parts *p = add_parts(tr->r, out, PIECES_MXFP4, t->dims[3]);
    if (!p) return;
    size_t per_row = t->dims[1], rows = t->dims[2];
    out->type = TENSOR_MXFP4;
    out->n_dims = 3;
    out->dims[0] = per_row * MX_ELEMS;
    out->dims[1] = rows / step;
    out->dims[2] = t->dims[3];
    out->dims[3] = 1;
    out->row_bytes = per_row * (MX_BYTES + 1);
    out->bytes = out->row_bytes * out->dims[1] * out->dims[2]; /* about the size of the file's two */
    p->n_rows = out->dims[1];
    p->first = first;
    p->step = step;
    for (size_t e = 0; e < p->n; e++)
        p->pieces[e] = (struct tensor_piece){.data = (const uint8_t *)t->data + e * rows * per_row * MX_BYTES,
                                             .scales = (const uint8_t *)scales->data + e * rows * per_row,
                                             .file = tr->i_file,
                                             .scales_file = file};
}

/* ---- experts, one by one ---- */

static void note_expert(struct translation *tr, const char *name, size_t index, const struct tensor *t) {
    struct hf_reader *r = tr->r;
    if (tr->n_experts == tr->cap) {
        size_t cap = tr->cap ? 2 * tr->cap : 256;
        struct expert *more = realloc(tr->experts, cap * sizeof *more);
        if (!more) {
            hf_no_memory(r);
            return;
        }
        tr->experts = more;
        tr->cap = cap;
    }
    if (t->dims[2] != 1 || t->dims[3] != 1) fail(r, QUIRE_EFORMAT, t, "must be a matrix");
    struct tensor *copy = arena_alloc(&r->w->arena, sizeof *copy); /* of its file, which it remembers here */
    char *kept = copy ? keep(r, name) : NULL;
    if (!kept) {
        hf_no_memory(r);
        return;
    }
    *copy = *t;
    copy->file = tr->i_file;
    tr->experts[tr->n_experts++] = (struct expert){.name = kept, .index = index, .t = copy};
}

static int by_expert(const void *a, const void *b) {
    const struct expert *x = a, *y = b;
    int order = strcmp(x->name, y->name);
    return order ? order : x->index < y->index ? -1 : x->index > y->index;
}

/* n experts of one tensor, in order. */
static void join_experts(struct translation *tr, const struct expert *e, size_t n) {
    struct hf_reader *r = tr->r;
    const struct tensor *first = e->t;
    for (size_t i = 0; i < n && !r->rc; i++) {
        const struct tensor *t = e[i].t;
        if (e[i].index != i)
            r->rc = error_set(r->err, QUIRE_EFORMAT, "tensor \"%.128s\": that of expert %zu is %s",
                              first->name, i, e[i].index < i ? "there twice" : "missing");
        else if (t->type != first->type || !t->parts != !first->parts || t->dims[0] != first->dims[0] ||
                 t->dims[1] != first->dims[1])
            fail(r, QUIRE_EFORMAT, t, "another shape or dtype than that of expert 0");
    }
    if (r->rc) return;
    struct tensor *out = add(tr, e->name, first);
    struct tensor_parts *p = add_parts(r, out, first->parts ? first->parts->kind : PIECES_ROWS, n);
    if (!p) return;
    out->n_dims = 3;
    out->dims[2] = n;
    out->bytes = first->bytes * n; /* all of them are in files */
    p->n_rows = first->dims[1];
    if (first->parts) {
        p->scaled = first->parts->scaled;
        p->stored_bytes = first->parts->stored_bytes * n;
    }
    for (size_t i = 0; i < n; i++)
        p->pieces[i] = e[i].t->parts ? e[i].t->parts->pieces[0]
                                     : (struct tensor_piece){.data = e[i].t->data, .file = e[i].t->file};
}

static void join_all(struct translation *tr) {
    if (tr->n_experts) qsort(tr->experts, tr->n_experts, sizeof *tr->experts, by_expert);
    for (size_t i = 0, n; i < tr->n_experts && !tr->r->rc; i += n) {
        for (n = 1; i + n < tr->n_experts && !strcmp(tr->experts[i].name, tr->experts[i + n].name); n++) {}
        tr->i_file = tr->experts[i].t->file;
        join_experts(tr, &tr->experts[i], n);
    }
}

/* ---- all of them ---- */

static void translate_layers(struct translation *tr, const struct tensor *t, const char *rest, size_t layer) {
    const struct hf_family *f = tr->r->family;
    char name[NAME_BYTES], second[NAME_BYTES];
    size_t index = 0;
    const struct hf_names *names = hf_names(f);
    const struct hf_name *rule = find_rule(names->of_layer, names->n_of_layer, rest, &index);
    if (!rule) { /* refused by its own name when the description is read */
        bool known = !f->encoder && !strcmp(rest, POST_ATTENTION);
        snprintf(name, sizeof name, "blk.%zu.%s", layer, post_attention(f));
        add(tr, known ? name : t->name, t);
        return;
    }
    snprintf(name, sizeof name, "blk.%zu.%s", layer, rule->name ? rule->name : "");
    snprintf(second, sizeof second, "blk.%zu.%s", layer, rule->second ? rule->second : "");
    bool unquantized = !strcmp(rest, "mlp.experts.gate_up_proj") || !strcmp(rest, "mlp.experts.down_proj");
    if (t->parts && (rule->op != HF_SAME || (f->turned_experts && unquantized)) && rule->op != HF_EXPERT) {
        fail(tr->r, QUIRE_EUNSUPPORTED, t,
             "has scales, which are not supported where several weights are mixed in a tensor; use the "
             "model's "
             "unquantized safetensors, or a GGUF file");
        return;
    }
    if (f->turned_experts && unquantized) {
        add_columns(tr, name, t, 0, rule->second ? 2 : 1);
        if (rule->second && !tr->r->rc) add_columns(tr, second, t, 1, 2);
        return;
    }
    switch (rule->op) {
    case HF_SAME: add(tr, name, t); break;
    case HF_EXPERT: note_expert(tr, name, index, t); break;
    case HF_HALVES: add_halves(tr, name, second, t); break;
    case HF_MX_TURNS:
        add_mx(tr, name, t, 0, 2);
        if (!tr->r->rc) add_mx(tr, second, t, 1, 2);
        break;
    case HF_MX_BLOCKS: add_mx(tr, name, t, 0, 1); break;
    case HF_MX_SCALES: break;
    case HF_BIAS_TURNS: add_bias_turns(tr, name, second, t); break;
    case HF_OUTPUT:
    case HF_POSITIONS: break; /* of no layer */
    }
}

/* Rows of positions that no text has are not read. */
static void add_positions(struct translation *tr, const char *name, const struct tensor *t) {
    size_t first = tr->r->first_position;
    if (t->dims[1] <= first || t->dims[2] * t->dims[3] != 1) {
        fail(tr->r, QUIRE_EFORMAT, t, "must be a matrix with a row for each position");
        return;
    }
    struct tensor *out = add(tr, name, t);
    if (!out) return;
    out->data = (const uint8_t *)t->data + first * t->row_bytes;
    out->dims[1] -= first;
    out->bytes -= first * t->row_bytes;
}

static void translate_of_model(struct translation *tr, const struct tensor *t, const char *name) {
    const struct hf_names *names = hf_names(tr->r->family);
    char buf[NAME_BYTES];
    size_t index;
    const char *head = of_head(tr->r->family, name, buf);
    const struct hf_name *rule = find_rule(names->of_model, names->n_of_model, name, &index);
    if (rule && rule->op == HF_POSITIONS)
        add_positions(tr, rule->name, t);
    else if (!rule || rule->op != HF_OUTPUT)
        add(tr, rule ? rule->name : head ? head : t->name, t);
    else if (!tr->tied && !tr->r->bare) /* else the reference does not look at it */
        add(tr, rule->name, t);
}

/* Of a layer behind the model's own; says so once. */
static bool is_unused(struct hf_reader *r, size_t layer) {
    static const char notice[] = "layers for the prediction of further tokens (num_nextn_predict_layers) are "
                                 "left out";
    if (layer < r->n_layers || layer - r->n_layers >= r->n_unused) return false;
    bool said = false;
    for (size_t i = 0; i < r->w->n_notices; i++) said |= r->w->notices[i] == notice;
    if (!said) r->w->notices[r->w->n_notices++] = notice;
    return true;
}

static void translate(struct translation *tr, const struct tensor *t) {
    const struct hf_family *f = tr->r->family;
    char buf[NAME_BYTES];
    size_t layer;
    if (is_left_out(f, t->name)) return;
    const char *name = modern(f, strip(f, t->name), buf),
               *rest = split_layer(hf_names(f)->layer, name, &layer);
    if (rest && is_unused(tr->r, layer)) return;
    if (hf_is_scale(tr->r, name)) return;
    if (strstr(name, "_scale") && strncmp(name + strlen(name) - 7, "_scales", 7)) {
        fail(
            tr->r, QUIRE_EUNSUPPORTED, t,
            "weights with scales are not supported; use the model's unquantized safetensors, or a GGUF file");
        return;
    }
    if (rest)
        translate_layers(tr, t, rest, layer);
    else
        translate_of_model(tr, t, name);
}

/* Whether the layers have the biases that config.json says. */
static void check_biases(struct hf_reader *r) {
    const struct hf_key *k;
    for (size_t i = 0; (k = hf_key_at(r->family, i)) && !r->rc; i++) {
        char name[NAME_BYTES];
        if (k->use != HF_BIAS || !k->key) continue;
        bool said = hf_flag(r, r->config, k->name, k->preset != 0);
        if (!hf_get(r->config, k->name) && k->preset == 0 && hf_key(r->family, "qkv_bias")) continue;
        snprintf(name, sizeof name, "blk.0.%s", k->key);
        const struct tensor *t = weights_tensor(r->w, name);
        char buf[NAME_BYTES];
        if (said != (t != NULL))
            hf_fail(r, QUIRE_EFORMAT, "%s is %s, but tensor \"%s\" is %s", k->name, said ? "true" : "false",
                    hf_tensor_name(r->w, name, buf, sizeof buf), t ? "there" : "missing");
    }
}

/* A model that makes logits has a matrix for them; without it, it makes vectors. */
static void check_output(struct hf_reader *r, bool tied) {
    bool none = !tied && !weights_tensor(r->w, "output.weight");
    r->w->headless = r->bare || (none && r->pooled);
    if (none && !r->w->headless && weights_tensor(r->w, "token_embd.weight"))
        hf_fail(r, QUIRE_EFORMAT, "tie_word_embeddings is false, but tensor \"lm_head.weight\" is missing");
}

static void check_types(struct hf_reader *r) {
    const struct tensor *t = weights_tensor(r->w, "token_types.weight");
    uint64_t said = hf_size(r, r->config, "type_vocab_size", 1, 1024, 2);
    if (!r->rc && t && t->dims[1] != said)
        hf_fail(r, QUIRE_EFORMAT, "type_vocab_size is %u, but tensor \"%s\" has %zu rows", (unsigned)said,
                tensor_label(t), t->dims[1]);
}

void hf_read_tensors(struct hf_reader *r) {
    struct translation tr = {.r = r};
    if (!r->rc) hf_join_scales(r);
    tr.tied = hf_flag(r, r->top, "tie_word_embeddings",
                      hf_flag(r, r->config, "tie_word_embeddings", r->family->tied));
    for (size_t i = 0; i < r->w->n_others && !r->rc; i++) {
        tr.file = r->w->others[i];
        tr.i_file = (unsigned)i;
        for (size_t k = 0; k < tr.file->n_tensors && !r->rc; k++) translate(&tr, &tr.file->tensors[k]);
    }
    if (!r->rc) join_all(&tr);
    free(tr.experts);
    for (size_t i = 0; i < r->w->n_tensors; i++)
        if (r->w->tensors[i].file != TENSOR_IN_MEMORY)
            r->w->tensor_bytes += tensor_stored_bytes(&r->w->tensors[i]);
    if (!r->rc) r->rc = weights_index_tensors(r->w, r->err);
    if (!r->rc && r->family->encoder) check_types(r);
    if (!r->rc && !r->family->encoder) check_output(r, tr.tied);
    if (!r->rc) check_biases(r);
}
