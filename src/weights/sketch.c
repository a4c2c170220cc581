#include "weights/sketch.h"

#include "base/error.h"
#include "base/size.h"
#include "weights/hf_impl.h"

#include <stdlib.h>
#include <string.h>

/* ---- description ---- */

static int no_memory(struct error *err) {
    return error_set(err, QUIRE_ENOMEM, "out of memory for the description of the model");
}

static bool copy_metas(const struct weights *like, struct weights *w) {
    for (size_t i = 0; i < like->n_metas; i++) {
        struct meta *m = weights_add_meta(w);
        if (!m) return false;
        *m = like->metas[i];
    }
    w->labels = calloc(like->n_labels + 1, sizeof *w->labels);
    if (!w->labels) return false;
    if (like->n_labels) memcpy(w->labels, like->labels, like->n_labels * sizeof *w->labels);
    w->n_labels = like->n_labels;
    return true;
}

static bool copy_made_tensors(const struct weights *like, struct weights *w) {
    for (size_t i = 0; i < like->n_tensors; i++) {
        if (like->tensors[i].file != TENSOR_IN_MEMORY) continue;
        struct tensor *t = weights_add_tensor(w);
        if (!t) return false;
        *t = like->tensors[i];
    }
    return true;
}

int sketch_begin(const struct weights *like, struct weights **out, struct error *err) {
    *out = NULL;
    struct weights *w = calloc(1, sizeof *w);
    if (!w) return no_memory(err);
    w->map.fd = -1;
    arena_init(&w->arena, 16384, 0);
    w->path = strdup(weights_path(like));
    w->is_folder = like->is_folder;
    w->hf_family = like->hf_family;
    w->headless = like->headless;
    w->raw_scores = like->raw_scores;
    w->usual_tokens = like->usual_tokens;
    if (!w->path || !copy_metas(like, w) || !copy_made_tensors(like, w)) {
        weights_close(w);
        return no_memory(err);
    }
    *out = w;
    return 0;
}

int sketch_add(struct weights *w, const char *name, enum tensor_type type, const size_t dims[TENSOR_MAX_DIMS],
               struct error *err) {
    const struct tensor_type_info *info = tensor_type_info(type);
    size_t rows = dims[1] * dims[2] * dims[3], bytes;
    if (dims[0] % info->block_elems)
        return error_set(err, QUIRE_EUNSUPPORTED, "tensor %s: rows of %zu elements; %s has blocks of %zu",
                         name, dims[0], info->name, info->block_elems);
    size_t row_bytes = dims[0] / info->block_elems * info->block_bytes;
    if (!size_mul(row_bytes, rows, &bytes))
        return error_set(err, QUIRE_ELIMIT, "tensor %s is too large", name);
    char *copy = arena_strndup(&w->arena, name, strlen(name));
    struct tensor *t = copy ? weights_add_tensor(w) : NULL;
    if (!t) return no_memory(err);
    *t = (struct tensor){.name = copy, .type = type, .n_dims = 1, .row_bytes = row_bytes, .bytes = bytes};
    memcpy(t->dims, dims, sizeof t->dims);
    while (t->n_dims < TENSOR_MAX_DIMS && dims[t->n_dims] > 1) t->n_dims++;
    w->tensor_bytes += bytes;
    return 0;
}

int sketch_end(struct weights *w, struct error *err) {
    int rc = weights_index_metas(w, err);
    return rc ? rc : weights_index_tensors(w, err);
}

/* ---- config.json alone ---- */

/* What of the description is not metadata. hf_read_config has been. */
static void read_facts(struct hf_reader *r) {
    struct weights_config_facts *f = &r->w->facts;
    const json_t *labels = hf_get(r->config, "id2label");
    f->bare = r->bare;
    f->tied = hf_flag(r, r->top, "tie_word_embeddings",
                      hf_flag(r, r->config, "tie_word_embeddings", r->family->tied));
    const struct hf_key *qkv = hf_key(r->family, "qkv_bias"), *all = hf_key(r->family, "attention_bias"),
                        *mlp = hf_key(r->family, "mlp_bias");
    f->qkv_bias = qkv ? hf_flag(r, r->config, "qkv_bias", qkv->preset != 0)
                      : all && hf_flag(r, r->config, "attention_bias", all->preset != 0);
    f->out_bias = !qkv && f->qkv_bias;
    f->mlp_bias = mlp && hf_flag(r, r->config, "mlp_bias", mlp->preset != 0);
    if (!r->family->encoder) return;
    f->token_types = (size_t)hf_size(r, r->config, "type_vocab_size", 1, 1024, 2);
    /* transformers' preset is two labels */
    f->labels = !r->family->head[0] ? 0
                : labels            ? json_object_size(labels)
                                    : (size_t)hf_size(r, r->config, "num_labels", 1, 1 << 20, 2);
}

bool sketch_expects(const struct weights *config, const char *name) {
    const struct weights_config_facts *f = &config->facts;
    const char *rest = strncmp(name, "blk.", 4) ? NULL : strchr(name + 4, '.');
    rest = rest ? rest + 1 : name;
    if (!strcmp(rest, "output.weight")) return !f->tied && !f->bare;
    if (!strcmp(rest, "token_types.weight")) return f->token_types != 0;
    if (!strncmp(rest, "cls.", 4)) return f->labels != 0;
    if (!strcmp(rest, "attn_output.bias")) return f->out_bias;
    if (!strncmp(rest, "attn_", 5)) return f->qkv_bias;
    if (!strncmp(rest, "ffn_", 4)) return f->mlp_bias;
    return false;
}

size_t sketch_token_types(const struct weights *config) {
    return config->facts.token_types;
}
size_t sketch_labels(const struct weights *config) {
    return config->facts.labels;
}

/* The folder of a file, and its name. */
static char *split_path(const char *path, const char **name) {
    const char *slash = strrchr(path, '/');
    *name = slash ? slash + 1 : path;
    return !slash ? strdup(".") : slash == path ? strdup("/") : strndup(path, (size_t)(slash - path));
}

int sketch_config(const char *path, struct weights **out, struct error *err) {
    const char *name;
    char *folder = split_path(path, &name);
    struct weights *w = folder ? hf_new_folder(folder, false) : NULL;
    struct hf_reader r = {.w = w, .err = err};
    *out = NULL;
    free(folder);
    if (!w) return no_memory(err);
    r.rc = hf_read_json(w->path, name, &r.top, err);
    if (!r.rc && !json_is_object(r.top))
        r.rc = error_set(err, QUIRE_EFORMAT, "%s: it must be a JSON object", name);
    if (!r.rc) hf_read_config(&r);
    if (!r.rc) hf_read_sentence(&r);
    if (!r.rc) read_facts(&r);
    w->hf_family = r.family;
    w->headless = r.bare && !r.rc && !r.family->encoder;
    if (!r.rc) r.rc = weights_index_metas(w, err);
    if (!r.rc) r.rc = weights_index_tensors(w, err);
    json_decref(r.top);
    if (r.rc) {
        weights_prefix(err, w->path);
        weights_close(w);
        return r.rc;
    }
    *out = w;
    return 0;
}
