/* What stands beside the tensors in a folder as Hugging Face has it: chat template, end tokens, sampling
 * defaults. Which file is looked at first is transformers' order. */
#include "cli/cli.h"

#include "base/error.h"
#include "base/files.h"
#include "weights/hf.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_TEMPLATE_MIB 1
#define MAX_JSON_MIB     16

/* ---- files ---- */

static int path_of(const char *folder, const char *name, struct buf *out, struct error *err) {
    size_t n = strlen(folder);
    buf_printf(out, "%s%s%s", folder, n && folder[n - 1] == '/' ? "" : "/", name);
    return buf_ok(out) ? 0 : error_set(err, QUIRE_ENOMEM, "out of memory");
}

int folder_json(const char *folder, const char *name, json_t **out, struct error *err) {
    struct buf path = BUF_INIT, text = BUF_INIT;
    *out = NULL;
    int rc = path_of(folder, name, &path, err);
    if (!rc) rc = file_read(NULL, path.data, MAX_JSON_MIB, &text, err);
    if (!rc && (rc = hf_json_parse(text.data ? text.data : "", text.len, out, err)))
        error_prefix(err, "%s", path.data);
    buf_free(&path);
    buf_free(&text);
    return rc == QUIRE_ENOTFOUND ? 0 : rc;
}

static int wrong(struct error *err, const char *folder, const char *name, const char *what) {
    return error_set(err, QUIRE_EFORMAT, "%s/%s: %s", folder, name, what);
}

/* ---- chat template ---- */

/* One of several named ones: the one for ordinary conversations. */
static const json_t *default_template(const json_t *v) {
    const json_t *entry;
    size_t i;
    if (!json_is_array(v)) return v;
    json_array_foreach(v, i, entry) {
        const char *name = json_string_value(json_object_get(entry, "name"));
        if (name && !strcmp(name, "default")) return json_object_get(entry, "template");
    }
    return NULL;
}

/* The key chat_template of a file. */
static int template_of(const char *folder, const char *name, struct buf *out, struct error *err) {
    json_t *root = NULL;
    int rc = folder_json(folder, name, &root, err);
    const json_t *v = json_object_get(root, "chat_template");
    if (!rc && v && !json_is_null(v)) {
        const json_t *s = default_template(v);
        if (!json_is_string(s))
            rc = wrong(err, folder, name,
                       "chat_template must be a string, or a list with one named \"default\"");
        else
            buf_append(out, json_string_value(s), json_string_length(s));
    }
    json_decref(root);
    return rc;
}

int folder_template(const char *folder, struct buf *out, struct error *err) {
    static const char *const files[] = {"chat_template.json", "tokenizer_config.json"};
    struct buf path = BUF_INIT;
    int rc = path_of(folder, "chat_template.jinja", &path, err);
    if (!rc) rc = file_read(NULL, path.data, MAX_TEMPLATE_MIB, out, err);
    buf_free(&path);
    if (rc != QUIRE_ENOTFOUND) return rc;
    rc = 0;
    for (size_t i = 0; i < sizeof files / sizeof *files && !rc && !out->len; i++)
        rc = template_of(folder, files[i], out, err);
    return rc;
}

/* ---- tokens that end an answer ---- */

/* An id that no token has cannot be generated; some files have the preset of their family. */
static int add_stop(struct loaded_model *m, const json_t *id, const char *folder, const char *name,
                    struct log *log, struct error *err) {
    json_int_t v = json_integer_value(id);
    if (!json_is_integer(id) || v < 0)
        return wrong(err, folder, name, "eos_token_id must be an id, or a list of ids");
    if ((uint64_t)v >= tokenizer_n_vocab(m->tokenizer)) {
        log_write(log, LOG_WARN, "%s: eos_token_id %lld is no token of this model: ignored", name,
                  (long long)v);
        return 0;
    }
    for (size_t i = 0; i < m->n_stop_tokens; i++)
        if (m->stop_tokens[i] == (uint32_t)v) return 0;
    if (m->n_stop_tokens == MAX_STOP_TOKENS)
        return wrong(err, folder, name, "eos_token_id has too many ids; 16 are supported");
    m->stop_tokens[m->n_stop_tokens++] = (uint32_t)v;
    return 0;
}

static int add_stops(struct loaded_model *m, const json_t *v, const char *folder, const char *name,
                     struct log *log, struct error *err) {
    const json_t *id;
    size_t i;
    int rc = 0;
    if (!json_is_array(v)) return add_stop(m, v, folder, name, log, err);
    json_array_foreach(v, i, id) if (!rc) rc = add_stop(m, id, folder, name, log, err);
    return rc;
}

/* generation: may be NULL. */
static int read_stops(struct loaded_model *m, const json_t *generation, const char *folder, struct log *log,
                      struct error *err) {
    json_t *config = NULL;
    int64_t eos = tokenizer_eos(m->tokenizer);
    const json_t *v = json_object_get(generation, "eos_token_id");
    int rc = 0;
    m->n_stop_tokens = 0;
    if (eos >= 0) m->stop_tokens[m->n_stop_tokens++] = (uint32_t)eos;
    if (v && !json_is_null(v)) return add_stops(m, v, folder, "generation_config.json", log, err);
    rc = folder_json(folder, "config.json", &config, err);
    v = json_object_get(config, "eos_token_id");
    if (!rc && v && !json_is_null(v)) rc = add_stops(m, v, folder, "config.json", log, err);
    json_decref(config);
    return rc;
}

/* ---- sampling defaults ---- */

static int take_number(const json_t *g, const char *folder, const char *key, double min, double max,
                       double *out, struct error *err) {
    const json_t *v = json_object_get(g, key);
    double d = json_number_value(v);
    if (!v || json_is_null(v)) return 0;
    if (!json_is_number(v) || !(d >= min && d <= max))
        return error_set(err, QUIRE_EFORMAT, "%s/generation_config.json: %s must be a number from %g to %g",
                         folder, key, min, max);
    *out = d;
    return 0;
}

/* What vLLM takes from the file; as there, do_sample is not among it. */
static int read_sampling(struct loaded_model *m, const json_t *g, const char *folder, struct error *err) {
    struct model_sampling *s = &m->sampling;
    double temperature = 1, top_p = 1, min_p = 0, repetition = 1, top_k = 0, max_tokens = 0;
    int rc = take_number(g, folder, "temperature", 0, 2, &temperature, err);
    if (!rc) rc = take_number(g, folder, "top_p", 1e-6, 1, &top_p, err);
    if (!rc) rc = take_number(g, folder, "min_p", 0, 1, &min_p, err);
    if (!rc) rc = take_number(g, folder, "repetition_penalty", 1e-6, 10, &repetition, err);
    if (!rc) rc = take_number(g, folder, "top_k", -1, INT32_MAX, &top_k, err);
    if (!rc) rc = take_number(g, folder, "max_new_tokens", 1, 1e9, &max_tokens, err);
    if (!rc && (top_k != floor(top_k) || max_tokens != floor(max_tokens)))
        rc = wrong(err, folder, "generation_config.json", "top_k and max_new_tokens must be integers");
    *s = (struct model_sampling){.temperature = (float)temperature,
                                 .top_p = (float)top_p,
                                 .min_p = (float)min_p,
                                 .repetition_penalty = (float)repetition,
                                 .top_k = (int32_t)top_k,
                                 .max_tokens = (size_t)max_tokens};
    return rc;
}

static void tell(const struct model_sampling *s, struct log *log) {
    struct buf b = BUF_INIT;
    if (s->temperature != 1) buf_printf(&b, ", temperature %g", s->temperature);
    if (s->top_p != 1) buf_printf(&b, ", top_p %g", s->top_p);
    if (s->top_k > 0) buf_printf(&b, ", top_k %d", (int)s->top_k);
    if (s->min_p > 0) buf_printf(&b, ", min_p %g", s->min_p);
    if (s->repetition_penalty != 1) buf_printf(&b, ", repetition_penalty %g", s->repetition_penalty);
    if (s->max_tokens) buf_printf(&b, ", at most %zu tokens", s->max_tokens);
    if (buf_ok(&b) && b.len)
        log_write(log, LOG_INFO,
                  "generation_config.json gives requests that say nothing else: %s "
                  "(--generation-config vllm: as the API has it)",
                  b.data + 2);
    buf_free(&b);
}

int folder_generation(struct loaded_model *m, const struct engine_options *o, struct log *log,
                      struct error *err) {
    const char *folder = weights_folder(m->weights);
    json_t *g = NULL;
    int rc =
        strcmp(o->generation_config, "vllm") ? folder_json(folder, "generation_config.json", &g, err) : 0;
    if (!rc) rc = read_stops(m, g, folder, log, err);
    if (!rc) rc = read_sampling(m, g, folder, err);
    if (!rc && g) tell(&m->sampling, log);
    json_decref(g);
    return rc;
}
