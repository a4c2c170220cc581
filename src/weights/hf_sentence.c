/* What sentence-transformers puts beside a model: modules.json, the chain of steps from a text to its vector;
 * how the tokens' vectors become one (1_Pooling/config.json); how long texts are (sentence_bert_config.json);
 * prompts (config_sentence_transformers.json). Keys are those of its versions 2 to 6. */
#include "base/error.h"
#include "base/size.h"
#include "weights/hf_impl.h"

#include <stdio.h>
#include <string.h>

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

enum { POOL_MEAN = 1, POOL_CLS, POOL_LAST }; /* GGUF's numbers */

static const struct {
    const char *flag, *mode; /* a boolean of its own, or the value of pooling_mode */
    unsigned pooling;        /* 0: not supported */
} MODES[] = {
    {"pooling_mode_cls_token", "cls", POOL_CLS},
    {"pooling_mode_mean_tokens", "mean", POOL_MEAN},
    {"pooling_mode_lasttoken", "lasttoken", POOL_LAST},
    {"pooling_mode_max_tokens", "max", 0},
    {"pooling_mode_mean_sqrt_len_tokens", "mean_sqrt_len_tokens", 0},
    {"pooling_mode_weightedmean_tokens", "weightedmean", 0},
};

/* A file that may be missing: NULL then, and after a failure. r->file is its name from here on. */
static json_t *open_json(struct hf_reader *r, const char *name, bool list) {
    json_t *root = NULL;
    if (r->rc) return NULL;
    r->file = name;
    int rc = hf_read_json(r->w->path, name, &root, r->err);
    if (rc == QUIRE_ENOTFOUND) {
        *r->err = (struct error){0};
        return NULL;
    }
    r->rc = rc;
    if (!rc && !(list ? json_is_array(root) : json_is_object(root)))
        hf_fail(r, QUIRE_EFORMAT, "it must be a JSON %s", list ? "array" : "object");
    if (!r->rc) return root;
    json_decref(root);
    return NULL;
}

/* ---- pooling ---- */

#define POOLINGS "supported are cls, mean and lasttoken"

static void put_pooling(struct hf_reader *r, size_t mode, const char *key) {
    if (MODES[mode].pooling)
        hf_put_u64(r, "pooling_type", key, MODES[mode].pooling);
    else
        hf_fail(r, QUIRE_EUNSUPPORTED, "%s (%s): not supported; " POOLINGS, key, MODES[mode].mode);
}

static void read_mode(struct hf_reader *r, const json_t *v) {
    const char *name = json_string_value(json_array_size(v) == 1 ? json_array_get(v, 0) : v);
    for (size_t i = 0; name && i < COUNT(MODES); i++)
        if (!strcmp(MODES[i].mode, name)) {
            put_pooling(r, i, "pooling_mode");
            return;
        }
    hf_fail_value(r, QUIRE_EUNSUPPORTED, "pooling_mode", v, "must be one mode; " POOLINGS);
}

/* One boolean for each mode; with several, vectors would be joined. The mean is the preset. */
static void read_flags(struct hf_reader *r, const json_t *config) {
    size_t found = COUNT(MODES);
    for (size_t i = 0; i < COUNT(MODES); i++) {
        if (!hf_flag(r, config, MODES[i].flag, MODES[i].pooling == POOL_MEAN)) continue;
        if (found < COUNT(MODES))
            hf_fail(r, QUIRE_EUNSUPPORTED, "%s and %s: only one mode is supported", MODES[found].flag,
                    MODES[i].flag);
        found = i;
    }
    if (found == COUNT(MODES))
        hf_fail(r, QUIRE_EFORMAT,
                "none of pooling_mode_cls_token, pooling_mode_mean_tokens, "
                "pooling_mode_lasttoken is true");
    if (!r->rc) put_pooling(r, found, MODES[found].flag);
}

static bool is_pooling_key(const char *name) {
    static const char *const known[] = {"pooling_mode", "include_prompt", "word_embedding_dimension",
                                        "embedding_dimension"};
    for (size_t i = 0; i < COUNT(known); i++)
        if (!strcmp(known[i], name)) return true;
    for (size_t i = 0; i < COUNT(MODES); i++)
        if (!strcmp(MODES[i].flag, name)) return true;
    return false;
}

static void check_width(struct hf_reader *r, const json_t *config, const char *key, uint64_t width) {
    uint64_t v = hf_size(r, config, key, 1, UINT32_MAX, width);
    if (!r->rc && v != width)
        hf_fail(r, QUIRE_EFORMAT, "%s = %u: hidden_size of config.json is %u", key, (unsigned)v,
                (unsigned)width);
}

static void read_pooling(struct hf_reader *r, const char *path, uint64_t width) {
    char *name = arena_zalloc(&r->w->arena, strlen(path) + sizeof "/config.json");
    if (!name) {
        hf_no_memory(r);
        return;
    }
    memcpy(name, path, strlen(path));
    strcat(name, "/config.json");
    json_t *config = open_json(r, name, false), *v;
    const char *key;
    if (!config && !r->rc) hf_fail(r, QUIRE_EFORMAT, "is missing, and modules.json names it");
    json_object_foreach(config, key, v) {
        if (!is_pooling_key(key))
            hf_fail(r, QUIRE_EUNSUPPORTED, "%.64s: not known, so its effect would be lost", key);
    }
    if (!r->rc) check_width(r, config, "word_embedding_dimension", width);
    if (!r->rc) check_width(r, config, "embedding_dimension", width);
    if (!r->rc && hf_get(config, "pooling_mode"))
        read_mode(r, hf_get(config, "pooling_mode"));
    else if (!r->rc)
        read_flags(r, config);
    r->pooled = !r->rc;
    json_decref(config);
}

/* ---- the chain ---- */

/* The class without its module: what a step is. */
static const char *step_name(const json_t *step) {
    const char *type = json_string_value(json_object_get(step, "type"));
    const char *dot = type ? strrchr(type, '.') : NULL;
    return dot ? dot + 1 : type ? type : "?";
}

static bool is_plain_folder(const char *path) {
    return *path && *path != '.' && strlen(path) < 128 && !strchr(path, '/');
}

static void read_step(struct hf_reader *r, const json_t *step, size_t i, uint64_t width) {
    static const char *const chain[] = {"Transformer", "Pooling", "Normalize"};
    const char *path = json_string_value(json_object_get(step, "path"));
    if (i >= COUNT(chain) || strcmp(step_name(step), chain[i])) {
        hf_fail(
            r, QUIRE_EUNSUPPORTED,
            "[%zu].type \"%.64s\": not supported; supported are Transformer, Pooling and Normalize, in this "
            "order",
            i, step_name(step));
        return;
    }
    if (!path || (i == 0 ? *path != '\0' : !is_plain_folder(path)))
        hf_fail(r, QUIRE_EUNSUPPORTED, "[%zu].path = \"%.64s\": must be %s", i, path ? path : "?",
                i ? "the name of a folder in it" : "\"\", this folder");
    if (!r->rc && i == 1) read_pooling(r, path, width);
    r->file = "modules.json";
}

/* ---- how long texts are ---- */

/* What else is there must be empty: it would change what the tokenizer or the model does. */
static void check_sentence_keys(struct hf_reader *r, const json_t *config) {
    static const char *const known[] = {"max_seq_length", "modality_config", "module_output_name",
                                        "unpad_inputs", "transformer_task"};
    static const char *const empty[] = {"do_lower_case",   "processing_kwargs", "query_length",
                                        "document_length", "query_expansion",   "model_args",
                                        "model_kwargs",    "tokenizer_args",    "processor_kwargs",
                                        "config_args",     "config_kwargs",     "tokenizer_name_or_path"};
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)config, key, v) {
        bool is_known = json_is_null(v), must_be_empty = false;
        for (size_t i = 0; i < COUNT(known); i++) is_known |= !strcmp(known[i], key);
        for (size_t i = 0; i < COUNT(empty); i++) must_be_empty |= !strcmp(empty[i], key);
        if (!is_known && !must_be_empty)
            hf_fail(r, QUIRE_EUNSUPPORTED, "%.64s: not known, so its effect would be lost", key);
        if (!is_known && !hf_is_neutral(v))
            hf_fail_value(r, QUIRE_EUNSUPPORTED, key, v, "not supported, only false or nothing is");
    }
    const char *task = json_string_value(hf_get(config, "transformer_task"));
    if (task && strcmp(task, "feature-extraction") && strcmp(task, "sequence-classification"))
        hf_fail(r, QUIRE_EUNSUPPORTED,
                "transformer_task = \"%.32s\": supported are feature-extraction and sequence-classification",
                task);
}

static uint64_t context_length(const struct hf_reader *r) {
    char key[64];
    uint64_t v = 0;
    snprintf(key, sizeof key, "%s.context_length", r->family->family);
    for (size_t i = 0; i < r->w->n_metas; i++)
        if (!strcmp(r->w->metas[i].key, key)) memcpy(&v, r->w->metas[i].raw, sizeof v);
    return v;
}

/* max_seq_length, or, of newer folders, what the tokenizer's configuration says. */
static void read_length(struct hf_reader *r) {
    static const char *const names[] = {"sentence_bert_config.json",       "sentence_roberta_config.json",
                                        "sentence_distilbert_config.json", "sentence_camembert_config.json",
                                        "sentence_albert_config.json",     "sentence_xlm-roberta_config.json",
                                        "sentence_xlnet_config.json"};
    uint64_t n = 0, context = context_length(r);
    json_t *config = NULL;
    for (size_t i = 0; i < COUNT(names) && !config && !r->rc; i++) config = open_json(r, names[i], false);
    if (config) {
        check_sentence_keys(r, config);
        n = hf_size(r, config, "max_seq_length", 2, HF_MAX_LENGTH, 0);
        json_decref(config);
    }
    config = n ? NULL : open_json(r, "tokenizer_config.json", false);
    double said = json_number_value(hf_get(config, "model_max_length")); /* 1e30 where there is no limit */
    if (said >= 2 && said <= HF_MAX_LENGTH) n = (uint64_t)said;
    json_decref(config);
    r->w->usual_tokens = n < context ? (size_t)n : (size_t)context;
}

/* Words in front of texts are the client's: it knows which text is a query. */
static void note_prompts(struct hf_reader *r) {
    json_t *config = open_json(r, "config_sentence_transformers.json", false), *v;
    const char *name;
    bool any = false;
    json_object_foreach(hf_get(config, "prompts"), name, v) any |= json_string_length(v) > 0;
    if (any && r->w->n_notices < WEIGHTS_MAX_NOTICES)
        r->w->notices[r->w->n_notices++] =
            "config_sentence_transformers.json: prompts are not put in front of "
            "texts: send them as part of each";
    json_decref(config);
}

void hf_read_sentence(struct hf_reader *r) {
    uint64_t width = hf_size(r, r->config, "hidden_size", 1, UINT32_MAX, 0);
    json_t *modules = open_json(r, "modules.json", true), *step;
    size_t i;
    if (modules) {
        json_array_foreach(modules, i, step) if (!r->rc) read_step(r, step, i, width);
        read_length(r);
        note_prompts(r);
    }
    json_decref(modules);
    r->file = NULL;
}
