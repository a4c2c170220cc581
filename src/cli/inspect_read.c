/* What `quire inspect` says, except for the check of the data: from metadata and descriptions. */
#include "cli/inspect.h"

#include "backend/backend.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/size.h"
#include "text/chat_template.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const tensor_class_names[CLASS_END] = {
    [CLASS_EMBEDDING] = "embedding", [CLASS_ATTENTION] = "attention", [CLASS_FFN] = "ffn",
    [CLASS_EXPERTS] = "experts",     [CLASS_ROUTER] = "router",       [CLASS_NORMS] = "norms",
    [CLASS_OUTPUT] = "output",       [CLASS_OTHER] = "other"};

/* GGUF's keys between "tokenizer.ggml." and "_token_id", spelled as they are there. */
const char *const inspection_specials[] = {"bos",     "eos",       "eot", "eom",  "unknown",
                                           "padding", "seperator", "cls", "mask", "fim_pre",
                                           "fim_suf", "fim_mid",   NULL};

#define KEY_BYTES 128

/* Without the path, which is said elsewhere. */
static void add_reason(struct inspection *i, const struct error *err) {
    size_t n = strlen(i->model.path);
    if (i->n_reasons == INSPECT_REASONS) return;
    struct error *reason = &i->reasons[i->n_reasons++];
    *reason = *err;
    if (!strncmp(reason->text, i->model.path, n) && !strncmp(reason->text + n, ": ", 2))
        memmove(reason->text, reason->text + n + 2, strlen(reason->text + n + 2) + 1);
}

/* ---- tensors ---- */

enum tensor_class tensor_class_of(const char *name) {
    static const struct {
        const char *part;
        enum tensor_class class;
    } parts[] = {{"gate_inp", CLASS_ROUTER}, {"exp_probs_b", CLASS_ROUTER}, {"norm", CLASS_NORMS},
                 {"exps", CLASS_EXPERTS},    {"shexp", CLASS_EXPERTS},      {"attn", CLASS_ATTENTION},
                 {"ffn", CLASS_FFN},         {"embd", CLASS_EMBEDDING},     {"token_types", CLASS_EMBEDDING},
                 {"output", CLASS_OUTPUT}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (strstr(name, parts[i].part)) return parts[i].class;
    return CLASS_OTHER;
}

static uint64_t elements_of(const struct tensor *t) {
    return t->dims[0] * tensor_rows(t);
}

static void add_tensor(struct inspect_sum *sum, const struct tensor *t) {
    sum->n_tensors++;
    sum->n_elements += elements_of(t);
    sum->bytes += tensor_stored_bytes(t);
}

static void read_tensors(struct inspection *i) {
    const struct weights *w = i->model.weights;
    for (size_t k = 0; k < weights_n_tensors(w); k++) {
        const struct tensor *t = weights_tensor_at(w, k);
        enum tensor_class class = tensor_class_of(t->name);
        bool routed = class == CLASS_EXPERTS && !strstr(t->name, "shexp") && i->sizes.experts;
        add_tensor(&i->classes[class][tensor_stored_type(t)], t);
        add_tensor(&i->total, t);
        i->active += routed ? elements_of(t) / i->sizes.experts * i->sizes.experts_used : elements_of(t);
    }
}

/* One reason for each type that cannot be decoded. */
static void check_types(struct inspection *i) {
    const struct weights *w = i->model.weights;
    bool told[TENSOR_TYPE_END] = {false};
    for (size_t k = 0; k < weights_n_tensors(w); k++) {
        const struct tensor *t = weights_tensor_at(w, k);
        const struct tensor_type_info *info = tensor_type_info(t->type);
        struct error err = {0};
        if (info->loadable || told[t->type]) continue;
        told[t->type] = true;
        error_set(&err, QUIRE_EUNSUPPORTED, "tensor \"%s\": type %s is not supported: %s", t->name,
                  info->name, info->instead);
        add_reason(i, &err);
    }
}

/* ---- description ---- */

/* An optional string; none if it is of another type. */
static struct meta_str string_of(const struct weights *w, const char *key) {
    struct meta_str s = {0};
    const struct meta *m = weights_meta(w, key);
    if (m && m->type == META_STRING) weights_get_str(w, key, &s, NULL);
    return s;
}

/* An integer of the family's; 0 if there is none. */
static uint64_t number_of(const struct inspection *i, const char *name) {
    char key[KEY_BYTES];
    uint64_t v = 0;
    struct error ignored;
    snprintf(key, sizeof key, "%.*s.%s", (int)size_min(i->family.len, 64), i->family.data, name);
    return weights_get_u64(i->model.weights, key, 0, UINT64_MAX, &v, &ignored) ? 0 : v;
}

static struct inspect_sizes sizes_of_keys(const struct inspection *i) {
    const struct meta *tokens = weights_meta(i->model.weights, "tokenizer.ggml.tokens");
    struct inspect_sizes s = {.layers = number_of(i, "block_count"),
                              .width = number_of(i, "embedding_length"),
                              .heads = number_of(i, "attention.head_count"),
                              .kv_heads = number_of(i, "attention.head_count_kv"),
                              .head_size = number_of(i, "attention.key_length"),
                              .ff = number_of(i, "feed_forward_length"),
                              .vocabulary = number_of(i, "vocab_size"),
                              .context = number_of(i, "context_length"),
                              .experts = number_of(i, "expert_count"),
                              .experts_used = number_of(i, "expert_used_count"),
                              .expert_ff = number_of(i, "expert_feed_forward_length"),
                              .shared_ff = number_of(i, "expert_shared_feed_forward_length")};
    if (!s.head_size && s.heads) s.head_size = s.width / s.heads;
    if (!s.vocabulary && tokens && tokens->type == META_ARRAY) s.vocabulary = tokens->n;
    return s;
}

static struct inspect_sizes sizes_of_spec(const struct model_spec *s) {
    return (struct inspect_sizes){.layers = s->n_layers,
                                  .width = s->n_embd,
                                  .heads = s->n_heads,
                                  .kv_heads = s->n_kv_heads,
                                  .head_size = s->head_dim,
                                  .ff = s->n_ff,
                                  .vocabulary = s->n_vocab,
                                  .context = s->context_len,
                                  .experts = s->experts.n,
                                  .experts_used = s->experts.n_used,
                                  .expert_ff = s->experts.ff,
                                  .shared_ff = s->experts.shared_ff};
}

/* Whether there are kernels for every tensor, and what the weights take in memory. */
static int plan_weights(struct inspection *i, struct error *err) {
    struct backend_cpu_options cpu = model_cpu_options(i->spec, 1, 1);
    enum model_pooling pooling = model_default_pooling(i->spec, i->spec->encoder);
    struct model_options o = {.max_model_len = 1,
                              .max_logit_rows = !pooling,
                              .max_kept_rows = !pooling,
                              .max_pool_rows = pooling != MODEL_POOL_NONE,
                              .pooling = pooling};
    struct model_memory memory;
    struct backend *b = NULL;
    cpu.n_threads = 1;
    int rc = backend_cpu_open(&cpu, &b, err);
    if (rc) return rc;
    rc = model_memory_plan(i->model.weights, i->spec, b, &o, &memory, err);
    if (!rc) i->loaded_bytes = memory.weights_bytes;
    b->ops->close(b);
    return rc;
}

static int read_description(struct inspection *i, struct error *err) {
    struct error why = {0};
    i->spec = calloc(1, sizeof *i->spec);
    if (!i->spec) return error_set(err, QUIRE_ENOMEM, "out of memory");
    int rc = model_spec_describe(i->model.weights, i->spec, &why);
    i->sizes = rc ? sizes_of_keys(i) : sizes_of_spec(i->spec);
    if (rc) {
        free(i->spec);
        i->spec = NULL;
    } else if (!i->n_reasons) {
        rc = model_spec_read(i->model.weights, i->spec, &why);
        if (!rc) rc = plan_weights(i, &why);
    }
    if (rc == QUIRE_ENOMEM) {
        *err = why;
        return rc;
    }
    /* of a vocabulary that was put into a file of its own; some keys are missing then, too */
    if (rc == QUIRE_EFORMAT && !weights_n_tensors(i->model.weights))
        error_set(&why, QUIRE_EUNSUPPORTED, "the file has no tensors");
    if (rc) add_reason(i, &why);
    return QUIRE_OK;
}

/* ---- text ---- */

static bool folder_special(const struct inspection *i, const char *name, uint64_t *id,
                           struct meta_str *spelling) {
    const struct tokenizer *t = i->model.tokenizer;
    int64_t found = -1;
    if (t && !strcmp(name, "bos")) found = tokenizer_bos(t);
    if (t && !strcmp(name, "eos")) found = tokenizer_eos(t);
    if (found < 0) return false;
    *id = (uint64_t)found;
    spelling->data = (const char *)tokenizer_bytes(t, (uint32_t)found, true, &spelling->len);
    return true;
}

bool inspection_special(const struct inspection *i, const char *name, uint64_t *id,
                        struct meta_str *spelling) {
    char key[KEY_BYTES];
    struct error ignored;
    const struct meta *tokens = weights_meta(i->model.weights, "tokenizer.ggml.tokens");
    if (weights_folder(i->model.weights)) return folder_special(i, name, id, spelling);
    snprintf(key, sizeof key, "tokenizer.ggml.%s_token_id", name);
    if (weights_get_u64(i->model.weights, key, 0, UINT32_MAX, id, &ignored)) return false;
    bool known = tokens && tokens->type == META_ARRAY && tokens->strings && *id < tokens->n;
    *spelling = known ? tokens->strings[*id] : (struct meta_str){0};
    return true;
}

static int hash_template(struct inspection *i, struct error *err) {
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned n = 0;
    if (!EVP_Digest(i->template.data, i->template.len, digest, &n, EVP_sha256(), NULL))
        return error_set(err, QUIRE_ENOMEM, "SHA-256 failed");
    for (unsigned k = 0; k < n; k++) snprintf(i->template_sha256 + 2 * k, 3, "%02x", digest[k]);
    return QUIRE_OK;
}

/* Spelling of a special token; malloc'd, NULL = none. */
static char *special(const struct inspection *i, const char *name) {
    uint64_t id;
    struct meta_str s;
    return inspection_special(i, name, &id, &s) && s.data ? strndup(s.data, s.len) : NULL;
}

static int count_tokens(struct inspection *i, const struct chat_rendering *r, struct error *err) {
    struct token_buf ids = {0};
    int rc = tokenizer_encode(i->model.tokenizer, r->text.data, r->text.len, TOKENIZE_SPECIAL, r->content,
                              r->n_content, 0, &ids, err);
    i->probe_tokens = ids.n;
    token_buf_free(&ids);
    return rc;
}

static int render_probe(struct inspection *i, const struct chat_template *t, struct error *err) {
    json_t *messages =
        json_pack("[{ssss}{ssss}{ssss}]", "role", "user", "content", "Hello", "role", "assistant", "content",
                  "Hello. What can I do?", "role", "user", "content", "Why is the sky blue?");
    char *bos = special(i, "bos"), *eos = special(i, "eos");
    struct chat_template_input in = {.messages = messages,
                                     .add_generation_prompt = true,
                                     .bos_token = bos,
                                     .eos_token = eos,
                                     .now_unix_s = clock_unix_s()};
    struct chat_rendering r = {0};
    int rc = messages ? chat_template_render(t, &in, &r, err) : error_set(err, QUIRE_ENOMEM, "out of memory");
    if (!rc) {
        i->probe_bytes = r.text.len;
        if (i->model.tokenizer) rc = count_tokens(i, &r, err);
        chat_rendering_free(&r);
    }
    json_decref(messages);
    free(bos);
    free(eos);
    return rc;
}

/* What the file says about its tokenizer, and whether one can be made of it. */
static void read_tokenizer(struct inspection *i) {
    const struct weights *w = i->model.weights;
    struct error why = {0};
    const struct meta *tokens = weights_meta(w, "tokenizer.ggml.tokens");
    int rc = loaded_model_tokenizer(&i->model, NULL, &why);
    i->tokenizer = string_of(w, "tokenizer.ggml.model");
    i->pre = string_of(w, "tokenizer.ggml.pre");
    if (tokens && i->tokenizer.data) i->n_tokens = tokens->n;
    if (weights_folder(w) && !rc) {
        i->tokenizer = (struct meta_str){"files of the folder", strlen("files of the folder")};
        i->n_tokens = tokenizer_n_vocab(i->model.tokenizer);
    }
    if (!rc) return;
    /* a file that is no language model at all is not damaged */
    if (!i->tokenizer.data && why.code != QUIRE_EFORMAT) why.code = QUIRE_EUNSUPPORTED;
    if (!weights_folder(w) && !i->tokenizer.data) why.code = QUIRE_EUNSUPPORTED;
    add_reason(i, &why);
}

static int read_template(struct inspection *i, struct error *err) {
    struct chat_template *t = NULL;
    const char *folder = weights_folder(i->model.weights);
    i->template = string_of(i->model.weights, "tokenizer.chat_template");
    if (folder) {
        int failed = folder_template(folder, &i->template_text, err);
        if (failed) return failed;
        i->template = (struct meta_str){i->template_text.data, i->template_text.len};
    }
    if (!i->template.data) return QUIRE_OK;
    int rc = chat_template_compile(i->template.data, i->template.len, &t, &i->template_error);
    if (!rc) render_probe(i, t, &i->template_error);
    chat_template_free(t);
    return hash_template(i, err);
}

int inspection_read(const char *argument, struct inspection *out, struct error *err) {
    *out = (struct inspection){0};
    int rc = model_find(argument, &out->model.path, err);
    if (!rc) rc = weights_inspect(out->model.path, &out->model.weights, err);
    if (rc == QUIRE_EUNSUPPORTED && out->model.path) {
        add_reason(out, err);
        *err = (struct error){0};
        return QUIRE_OK;
    }
    if (rc) return rc;
    out->family = string_of(out->model.weights, "general.architecture");
    out->name = string_of(out->model.weights, "general.name");
    check_types(out);
    rc = read_description(out, err);
    if (rc) return rc;
    read_tensors(out);
    read_tokenizer(out);
    return read_template(out, err);
}

void inspection_free(struct inspection *i) {
    loaded_model_close(&i->model);
    free(i->spec);
    free(i->faults);
    buf_free(&i->template_text);
    *i = (struct inspection){0};
}

/* ---- what follows from it ---- */

uint64_t inspection_kv_bytes(const struct model_spec *s, uint64_t n_tokens, enum backend_dtype dtype) {
    if (s->encoder) return n_tokens * model_kv_bytes_per_token(s, dtype); /* one layer at a time */
    uint64_t of_layer = model_kv_bytes_per_token(s, dtype) / s->n_layers, held = 0;
    for (size_t i = 0; i < s->n_layers; i++) {
        uint64_t window = s->layers[i].window;
        held += window && window < n_tokens ? window : n_tokens;
    }
    return held * of_layer;
}

const char *rope_scaling_name(enum rope_scaling scaling) {
    static const char *const names[] = {
        [ROPE_NONE] = "none", [ROPE_LINEAR] = "linear",   [ROPE_DYNAMIC] = "dynamic",
        [ROPE_YARN] = "yarn", [ROPE_FACTORS] = "factors", [ROPE_LONG] = "longrope"};
    return names[scaling];
}

bool inspection_broken(const struct inspection *i, struct error *err) {
    const char *path = i->model.path;
    for (size_t k = 0; k < i->n_reasons; k++)
        if (i->reasons[k].code == QUIRE_EFORMAT) {
            *err = i->reasons[k];
            error_prefix(err, "%s", path);
            return true;
        }
    if (i->gaps.code) {
        *err = i->gaps;
        return true;
    }
    for (size_t k = 0; i->n_bad_tensors && k < i->total.n_tensors; k++) {
        const struct float_faults *f = &i->faults[k];
        if (!f->n_nan && !f->n_inf) continue;
        error_set(
            err, QUIRE_EFORMAT,
            "%s: %zu tensors hold numbers that are not finite, the first is \"%s\" (%llu NaN, %llu infinite)",
            path, i->n_bad_tensors, weights_tensor_at(i->model.weights, k)->name,
            (unsigned long long)f->n_nan, (unsigned long long)f->n_inf);
        return true;
    }
    return false;
}
