/* From a model argument to an open engine and the text side that serves it. */
#include "cli/cli.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/files.h"
#include "base/thread.h"
#include "weights/weights.h"

#include <errno.h>
#include <inttypes.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int no_memory(struct error *err) {
    return error_set(err, QUIRE_ENOMEM, "out of memory while opening the model");
}

/* ---- tokenizer ---- */

static int64_t token_id(const struct weights *w, const char *key, size_t n_vocab, int *rc,
                        struct error *err) {
    uint64_t id = 0;
    if (*rc) return -1;
    *rc = weights_get_u64(w, key, 0, n_vocab - 1, &id, err);
    if (!*rc) return (int64_t)id;
    if (*rc == QUIRE_ENOTFOUND) *rc = 0;
    if (!*rc) *err = (struct error){0};
    return -1;
}

/* An optional boolean. */
static int flag(const struct weights *w, const char *key, bool *out, struct error *err) {
    int rc = weights_get_bool(w, key, out, err);
    return rc == QUIRE_ENOTFOUND ? 0 : rc;
}

static int string_array(const struct weights *w, const char *key, const struct meta **out,
                        struct error *err) {
    const struct meta *m = weights_meta(w, key);
    if (!m) return error_set(err, QUIRE_EFORMAT, "%s: the key %s is missing", weights_path(w), key);
    if (m->type != META_ARRAY || m->elem != META_STRING || !m->n)
        return error_set(err, QUIRE_EFORMAT, "%s: %s must be an array of strings that is not empty",
                         weights_path(w), key);
    *out = m;
    return 0;
}

static struct text_span *spans_of(const struct meta *m) {
    struct text_span *s = calloc(m->n, sizeof *s);
    for (size_t i = 0; s && i < m->n; i++) s[i] = (struct text_span){m->strings[i].data, m->strings[i].len};
    return s;
}

static int types_of(const struct weights *w, size_t n_vocab, int32_t **out, struct error *err) {
    const char *key = "tokenizer.ggml.token_type";
    const struct meta *m = weights_meta(w, key);
    if (!m) return 0;
    if (m->type != META_ARRAY || m->n != n_vocab || (m->elem != META_I32 && m->elem != META_U32))
        return error_set(err, QUIRE_EFORMAT, "%s: %s must be an array of %zu integers", weights_path(w), key,
                         n_vocab);
    *out = calloc(n_vocab, sizeof **out);
    if (!*out) return no_memory(err);
    for (size_t i = 0; i < n_vocab; i++) (*out)[i] = (int32_t)meta_array_int(m, i);
    return 0;
}

static int scores_of(const struct weights *w, size_t n_vocab, float **out, struct error *err) {
    const char *key = "tokenizer.ggml.scores";
    const struct meta *m = weights_meta(w, key);
    if (!m) return 0;
    if (m->type != META_ARRAY || m->n != n_vocab || (m->elem != META_F32 && m->elem != META_F64))
        return error_set(err, QUIRE_EFORMAT, "%s: %s must be an array of %zu numbers", weights_path(w), key,
                         n_vocab);
    *out = calloc(n_vocab, sizeof **out);
    if (!*out) return no_memory(err);
    for (size_t i = 0; i < n_vocab; i++) (*out)[i] = (float)meta_array_float(m, i);
    return 0;
}

static int charsmap_of(const struct weights *w, struct text_span *out, struct error *err) {
    const char *key = "tokenizer.ggml.precompiled_charsmap";
    const struct meta *m = weights_meta(w, key);
    if (!m) return 0;
    if (m->type != META_ARRAY || (m->elem != META_U8 && m->elem != META_I8))
        return error_set(err, QUIRE_EFORMAT, "%s: %s must be an array of bytes", weights_path(w), key);
    *out = (struct text_span){m->raw, m->n};
    return 0;
}

/* An optional boolean of which the spec has the opposite. */
static int not_flag(const struct weights *w, const char *key, bool *out, struct error *err) {
    bool v = !*out;
    int rc = flag(w, key, &v, err);
    *out = !v;
    return rc;
}

/* The keys that are one id or one flag each. */
static int fill_spec(const struct weights *w, struct tokenizer_spec *s, struct error *err) {
    int rc = 0;
    s->bos = token_id(w, "tokenizer.ggml.bos_token_id", s->n_vocab, &rc, err);
    s->eos = token_id(w, "tokenizer.ggml.eos_token_id", s->n_vocab, &rc, err);
    s->unk = token_id(w, "tokenizer.ggml.unknown_token_id", s->n_vocab, &rc, err);
    s->cls = token_id(w, "tokenizer.ggml.cls_token_id", s->n_vocab, &rc, err);
    s->sep = token_id(w, "tokenizer.ggml.seperator_token_id", s->n_vocab, &rc, err);
    s->add_bos_unset = !weights_meta(w, "tokenizer.ggml.add_bos_token");
    s->add_eos_unset = !weights_meta(w, "tokenizer.ggml.add_eos_token");
    if (!rc) rc = flag(w, "tokenizer.ggml.add_bos_token", &s->add_bos, err);
    if (!rc) rc = flag(w, "tokenizer.ggml.add_eos_token", &s->add_eos, err);
    if (!rc) rc = not_flag(w, "tokenizer.ggml.add_space_prefix", &s->no_space_prefix, err);
    if (!rc) rc = flag(w, "tokenizer.ggml.remove_extra_whitespaces", &s->squeeze_spaces, err);
    if (!rc) rc = not_flag(w, "tokenizer.ggml.normalizer.lowercase", &s->keep_case, err);
    s->keep_accents = s->keep_case;
    if (!rc) rc = not_flag(w, "tokenizer.ggml.normalizer.strip_accents", &s->keep_accents, err);
    return rc ? rc : charsmap_of(w, &s->charsmap, err);
}

int loaded_model_tokenizer(struct loaded_model *m, const char *pre_override, struct error *err) {
    const struct weights *w = m->weights;
    if (weights_folder(w) && pre_override)
        return error_set(err, QUIRE_EINVAL,
                         "--tokenizer-pre is for GGUF files; a folder's tokenizer says its own");
    if (weights_folder(w)) return tokenizer_file_open(NULL, weights_folder(w), w, &m->tokenizer, err);
    struct tokenizer_spec spec = {.pre_override = pre_override};
    const struct meta *pieces = NULL, *merges = NULL;
    struct meta_str model = {0}, pre = {0};
    int32_t *types = NULL;
    float *scores = NULL;
    struct text_span *piece_spans = NULL, *merge_spans = NULL;
    int rc = weights_get_str(w, "tokenizer.ggml.model", &model, err);
    if (rc == QUIRE_ENOTFOUND)
        rc = error_set(err, QUIRE_EFORMAT, "%s: the key tokenizer.ggml.model is missing", m->path);
    if (!rc && (rc = weights_get_str(w, "tokenizer.ggml.pre", &pre, err)) == QUIRE_ENOTFOUND) rc = 0;
    if (!rc) rc = string_array(w, "tokenizer.ggml.tokens", &pieces, err);
    if (!rc && (rc = vocabulary_check(w, pieces->key, pieces->n, NULL, err)))
        error_prefix(err, "%s", m->path);
    if (!rc && weights_meta(w, "tokenizer.ggml.merges"))
        rc = string_array(w, "tokenizer.ggml.merges", &merges, err);
    if (!rc) rc = types_of(w, pieces->n, &types, err);
    if (!rc) rc = scores_of(w, pieces->n, &scores, err);
    if (!rc) {
        piece_spans = spans_of(pieces);
        merge_spans = merges ? spans_of(merges) : NULL;
        if (!piece_spans || (merges && !merge_spans)) rc = no_memory(err);
    }
    if (!rc) {
        spec.model = (struct text_span){model.data, model.len};
        spec.pre = (struct text_span){pre.data, pre.len};
        spec.pieces = piece_spans;
        spec.types = types;
        spec.scores = scores;
        spec.n_vocab = pieces->n;
        spec.merges = merge_spans;
        spec.n_merges = merges ? merges->n : 0;
        rc = fill_spec(w, &spec, err);
    }
    if (!rc && (rc = tokenizer_create(&spec, &m->tokenizer, err))) error_prefix(err, "%s", m->path);
    free(types);
    free(scores);
    free(piece_spans);
    free(merge_spans);
    return rc;
}

static char *spelling(const struct tokenizer *t, int64_t id) {
    if (id < 0) return NULL;
    size_t n;
    const uint8_t *bytes = tokenizer_bytes(t, (uint32_t)id, true, &n);
    return strndup((const char *)bytes, n);
}

/* Tokens that end an answer: EOS, and what model files name as end of turn or of message. */
static int find_stop_tokens(struct loaded_model *m, const struct engine_options *o, struct log *log,
                            struct error *err) {
    if (weights_folder(m->weights)) return folder_generation(m, o, log, err);
    static const char *const keys[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                       "tokenizer.ggml.eom_token_id"};
    int rc = 0;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        int64_t id = token_id(m->weights, keys[i], tokenizer_n_vocab(m->tokenizer), &rc, err);
        if (rc) return rc;
        bool known = id < 0;
        for (size_t k = 0; k < m->n_stop_tokens; k++) known |= m->stop_tokens[k] == (uint32_t)id;
        if (!known) m->stop_tokens[m->n_stop_tokens++] = (uint32_t)id;
    }
    return 0;
}

/* ---- chat template ---- */

#define MAX_TEMPLATE_MIB 1

/* The model's own; *out NULL if it has none. text: where that of a folder is kept. */
static int find_template(const struct loaded_model *m, struct buf *text, struct meta_str *out,
                         struct error *err) {
    const char *folder = weights_folder(m->weights);
    if (!folder) {
        int rc = weights_get_str(m->weights, "tokenizer.chat_template", out, err);
        return rc == QUIRE_ENOTFOUND ? 0 : rc;
    }
    int rc = folder_template(folder, text, err);
    *out = (struct meta_str){text->data, text->len};
    return rc;
}

static int open_template(struct loaded_model *m, const char *file, struct log *log, struct error *err) {
    struct meta_str s = {0};
    struct buf text = BUF_INIT;
    int rc = 0;
    if (file) {
        rc = file_read("--chat-template", file, MAX_TEMPLATE_MIB, &text, err);
        if (!rc && (rc = chat_template_compile(text.data ? text.data : "", text.len, &m->chat_template, err)))
            error_prefix(err, "--chat-template %s", file);
    } else {
        rc = find_template(m, &text, &s, err); /* completions work without one */
        if (!rc && s.data && (rc = chat_template_compile(s.data, s.len, &m->chat_template, err)) &&
            rc != QUIRE_ENOMEM) {
            /* A template that cannot be read must not keep a model from serving completions. */
            log_write(log, LOG_WARN,
                      "the model's chat template cannot be used: %s; give another with --chat-template FILE",
                      err->text);
            rc = 0;
        }
    }
    buf_free(&text);
    return rc;
}

/* ---- engine ---- */

static enum quire_dtype dtype_of(const char *name) {
    if (!strcmp(name, "float16") || !strcmp(name, "half")) return QUIRE_FLOAT16;
    if (!strncmp(name, "float", 5)) return QUIRE_FLOAT32;
    return QUIRE_BFLOAT16;
}

static enum quire_runner runner_of(const char *name) {
    if (!name || !strcmp(name, "generate")) return QUIRE_RUNNER_GENERATE;
    return strcmp(name, "pooling") ? QUIRE_RUNNER_AUTO : QUIRE_RUNNER_POOLING;
}

static enum quire_pooling pooling_of(const char *name) {
    static const char *const names[] = {[QUIRE_POOLING_MEAN] = "mean",
                                        [QUIRE_POOLING_CLS] = "cls",
                                        [QUIRE_POOLING_LAST] = "last",
                                        [QUIRE_POOLING_RANK] = "rank"};
    for (size_t i = QUIRE_POOLING_MEAN; name && i < sizeof names / sizeof *names; i++)
        if (!strcmp(names[i], name)) return (enum quire_pooling)i;
    return QUIRE_POOLING_NONE;
}

void engine_config_of(const struct engine_options *o, const struct weights *w, struct quire_config *c) {
    bool usual = !o->max_model_len && runner_of(o->runner) != QUIRE_RUNNER_GENERATE;
    *c = (struct quire_config){.weights = w,
                               .runner = runner_of(o->runner),
                               .pooling = pooling_of(o->pooling_type),
                               .matryoshka = o->matryoshka,
                               .dtype = dtype_of(o->dtype),
                               .max_model_len = usual ? weights_usual_tokens(w) : (size_t)o->max_model_len,
                               .max_num_seqs = (size_t)o->max_num_seqs,
                               .max_num_batched_tokens = (size_t)o->max_num_batched_tokens,
                               .long_prefill_threshold = (size_t)o->long_prefill,
                               .block_tokens = (size_t)o->block_size,
                               .memory_share = o->memory_share,
                               .kv_bytes = (uint64_t)o->kv_bytes,
                               .max_queue = (size_t)o->max_queue,
                               .n_threads = (size_t)o->threads,
                               .prefix_caching = o->prefix_caching,
                               .chunked_prefill = o->chunked_prefill,
                               .policy = strcmp(o->policy, "priority") ? QUIRE_FCFS : QUIRE_PRIORITY,
                               .static_batching = !strncmp(o->baseline_static, "batch", 5),
                               .reserve_kv = strstr(o->baseline_static, "reserve") != NULL,
                               .seed = (uint64_t)o->seed,
                               .cache_secret = o->cache_secret,
                               .cpu_bind = o->cpu_bind,
                               .cpu_limit = o->cpu};
}

/* ---- opening ---- */

/* The text side, made while the weights load. */
struct text_side {
    struct loaded_model *m;
    const struct engine_options *o;
    struct log *log;
    struct quire_config *config; /* gets what the engine needs of it */
    pthread_t thread;
    bool joined;
    _Atomic bool failed;
    int rc;
    struct error err;
    uint64_t begin_us, tokenizer_us, rest_us;
    const char *shown; /* the phase that a log has a line of */
};

#define QUICK_US 500000 /* a load that takes no longer has no lines in a log */

static int open_text(struct text_side *t) {
    struct loaded_model *m = t->m;
    const struct engine_options *o = t->o;
    uint64_t start_us = clock_us();
    int rc = o->tokenizer
                 ? tokenizer_file_open("--tokenizer", o->tokenizer, m->weights, &m->tokenizer, &t->err)
                 : loaded_model_tokenizer(m, o->tokenizer_pre, &t->err);
    t->tokenizer_us = clock_us() - start_us;
    if (!rc) rc = find_stop_tokens(m, o, t->log, &t->err);
    if (!rc) rc = open_template(m, o->chat_template, t->log, &t->err);
    if (rc) return rc;
    tokenizer_byte_table(m->tokenizer, &m->token_bytes.bytes, &m->token_bytes.offsets);
    m->token_bytes.n_vocab = tokenizer_n_vocab(m->tokenizer);
    m->bos = spelling(m->tokenizer, tokenizer_bos(m->tokenizer));
    m->eos = spelling(m->tokenizer, tokenizer_eos(m->tokenizer));
    m->text = (struct model_text){m->tokenizer,
                                  m->chat_template,
                                  m->bos,
                                  m->eos,
                                  weights_folder(m->weights) ? &m->sampling : NULL,
                                  weights_raw_scores(m->weights)};
    t->rest_us = clock_us() - start_us - t->tokenizer_us;
    return 0;
}

static void *text_main(void *arg) {
    struct text_side *t = arg;
    t->rc = open_text(t);
    atomic_store(&t->failed, t->rc != 0);
    return NULL;
}

static void text_join(struct text_side *t) {
    if (!t->joined) pthread_join(t->thread, NULL);
    t->joined = true;
}

static int await_text(void *ctx, struct error *err) {
    struct text_side *t = ctx;
    text_join(t);
    malloc_trim(0); /* what reading the tokenizer has left */
    if (t->rc) return error_set(err, t->rc, "%s", t->err.text);
    log_write(t->log, LOG_DEBUG,
              "start: tokenizer %.0f ms, chat template and tables %.0f ms, beside the weights",
              (double)t->tokenizer_us / 1e3, (double)t->rest_us / 1e3);
    t->config->token_bytes = &t->m->token_bytes;
    t->config->stop_tokens = t->m->stop_tokens;
    t->config->n_stop_tokens = t->m->n_stop_tokens;
    return 0;
}

/* While a model loads, signals are blocked (cmd_serve waits for them later): one that is pending ends the
 * load. */
static bool show_progress(void *ctx, const char *phase, double done) {
    struct text_side *t = ctx;
    sigset_t pending;
    if (!sigpending(&pending) && (sigismember(&pending, SIGTERM) || sigismember(&pending, SIGINT))) {
        fprintf(stderr, "\rquire: interrupted while loading\n");
        _exit(128 + (sigismember(&pending, SIGINT) ? SIGINT : SIGTERM));
    }
    if (!isatty(2)) {
        if (clock_us() - t->begin_us < QUICK_US) return !atomic_load(&t->failed);
        if (!t->shown || strcmp(t->shown, phase)) fprintf(stderr, "%s\n", phase);
        t->shown = phase;
    } else {
        fprintf(stderr, "\r%s %3.0f %%%s", phase, done * 100, done >= 1 ? "\r\033[K" : "");
    }
    return !atomic_load(&t->failed); /* then the rest is not waited for */
}

static int open_parts(struct loaded_model *m, const struct engine_options *o, struct log *log,
                      struct error *err) {
    struct quire_config c;
    struct text_side t = {.m = m, .o = o, .log = log, .config = &c, .begin_us = clock_us()};
    engine_config_of(o, m->weights, &c);
    c.log = log;
    c.step_reader = o->step_reader;
    c.await_tokens = await_text;
    c.progress = show_progress;
    c.open_ctx = &t;
    int status = thread_start(&t.thread, "quire-text", 0, text_main, &t);
    if (status)
        return error_set(err, QUIRE_EIO, "cannot start the thread that reads the tokenizer: %s",
                         strerror(status));
    int rc = quire_open(&c, &m->engine, err);
    text_join(&t);
    if (!t.rc) return rc;
    *err = t.err; /* whatever else there is to say */
    return t.rc;
}

int loaded_model_open(const char *argument, const struct engine_options *o, struct log *log,
                      struct loaded_model *out, struct error *err) {
    uint64_t start_us = clock_us();
    *out = (struct loaded_model){0};
    int rc = model_find(argument, &out->path, err);
    if (!rc) rc = weights_open(out->path, &out->weights, err);
    if (!rc) {
        log_write(log, LOG_DEBUG, "start: model file %.0f ms", (double)(clock_us() - start_us) / 1e3);
        for (size_t i = 0; i < weights_n_notices(out->weights); i++)
            log_write(log, LOG_WARN, "%s", weights_notice(out->weights, i));
        rc = open_parts(out, o, log, err);
    }
    if (rc)
        loaded_model_close(out);
    else
        *err = (struct error){0}; /* what optional keys have left */
    return rc;
}

void loaded_model_close(struct loaded_model *m) {
    quire_shutdown(m->engine);
    chat_template_free(m->chat_template);
    tokenizer_free(m->tokenizer);
    weights_close(m->weights);
    free(m->bos);
    free(m->eos);
    free(m->path);
    *m = (struct loaded_model){0};
}
