#include "cli/tune_judge.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/size.h"
#include "eval/eval.h"
#include "model/spec.h"
#include "weights/weights.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CONTEXT       512
#define MOST_BYTES    ((size_t)256 << 20) /* of the file of the defaults' distributions */
#define LEAST_WINDOWS 2

/* ---- forms of one model ---- */

struct form {
    struct model_spec spec;
    struct hash128 tokenizer;
    size_t tensor_bytes;
};

static int read_form(const struct judge_state *s, const char *argument, struct form *out, struct error *err) {
    struct loaded_model m = {0};
    int rc = model_find(argument, &m.path, err);
    if (!rc) rc = weights_open(m.path, &m.weights, err);
    if (!rc) rc = model_spec_read(m.weights, &out->spec, err);
    if (!rc)
        rc = s->engine->tokenizer
                 ? tokenizer_file_open("--tokenizer", s->engine->tokenizer, m.weights, &m.tokenizer, err)
                 : loaded_model_tokenizer(&m, s->engine->tokenizer_pre, err);
    if (!rc) rc = eval_tokenizer_hash(m.tokenizer, &out->tokenizer, err);
    if (!rc) out->tensor_bytes = weights_tensor_bytes(m.weights);
    loaded_model_close(&m);
    return rc;
}

static int check_number(const char *file, const char *what, size_t is, size_t wanted, struct error *err) {
    if (is == wanted) return 0;
    return error_set(err, QUIRE_EINVAL, "--weights %.200s is not of the same model: it has %zu %s, not %zu",
                     file, is, what, wanted);
}

static int same_model(const struct form *a, const struct form *b, const char *file, struct error *err) {
    const struct model_spec *x = &a->spec, *y = &b->spec;
    if (strcmp(x->family, y->family))
        return error_set(err, QUIRE_EINVAL, "--weights %.200s is not of the same model: it is a %s, not a %s",
                         file, y->family, x->family);
    int rc = check_number(file, "layers", y->n_layers, x->n_layers, err);
    if (!rc) rc = check_number(file, "elements in a row", y->n_embd, x->n_embd, err);
    if (!rc) rc = check_number(file, "elements in a feed-forward block", y->n_ff, x->n_ff, err);
    if (!rc) rc = check_number(file, "heads", y->n_heads, x->n_heads, err);
    if (!rc) rc = check_number(file, "KV heads", y->n_kv_heads, x->n_kv_heads, err);
    if (!rc) rc = check_number(file, "elements in a head", y->head_dim, x->head_dim, err);
    if (!rc) rc = check_number(file, "experts", y->experts.n, x->experts.n, err);
    if (!rc) rc = check_number(file, "tokens in its vocabulary", y->n_vocab, x->n_vocab, err);
    if (!rc && !hash128_equal(a->tokenizer, b->tokenizer))
        rc = error_set(err, QUIRE_EINVAL,
                       "--weights %.200s is not of the same model: it has another tokenizer", file);
    return rc;
}

/* Cuts the list at commas. */
static int split(char *list, const char *out[TUNE_WEIGHTS_MAX], size_t *n, struct error *err) {
    for (char *p = list, *end; p; p = end) {
        if ((end = strchr(p, ','))) *end++ = 0;
        if (!*p) return error_set(err, QUIRE_EINVAL, "--weights has an empty name; FILE,FILE,... is allowed");
        if (*n == TUNE_WEIGHTS_MAX)
            return error_set(err, QUIRE_EINVAL, "--weights has more than %d names", TUNE_WEIGHTS_MAX - 1);
        for (size_t i = 0; i < *n; i++)
            if (!strcmp(out[i], p))
                return error_set(
                    err, QUIRE_EINVAL,
                    i ? "--weights has %.200s twice" : "--weights has %.200s, which is the model itself", p);
        out[(*n)++] = p;
    }
    return 0;
}

int judge_list(const char *model, const char *list, char **text, const char *out[TUNE_WEIGHTS_MAX], size_t *n,
               struct error *err) {
    out[0] = model;
    *n = 1;
    *text = NULL;
    if (!list) return 0;
    *text = strdup(list);
    return *text ? split(*text, out, n, err) : error_set(err, QUIRE_ENOMEM, "out of memory");
}

int judge_forms(struct judge_state *s, const char *const *weights, size_t n, struct error *err) {
    struct form *forms = calloc(2, sizeof *forms);
    int rc = forms ? read_form(s, s->model, &forms[0], err) : error_set(err, QUIRE_ENOMEM, "out of memory");
    if (!rc) {
        size_t most = s->engine->max_model_len ? (size_t)s->engine->max_model_len : forms[0].spec.context_len;
        s->context = size_min(CONTEXT, size_min(most, forms[0].spec.context_len));
        s->family = forms[0].spec.family;
        s->tensor_bytes = forms[0].tensor_bytes;
    }
    for (size_t i = 1; !rc && i < n; i++) {
        if ((rc = read_form(s, weights[i], &forms[1], err)))
            error_prefix(err, "--weights %.200s", weights[i]);
        else
            rc = same_model(&forms[0], &forms[1], weights[i], err);
    }
    free(forms);
    return rc;
}

/* ---- looks ---- */

struct look {
    const struct judge_state *s;
    uint64_t end_us;
};

static bool stopped(void *ctx) {
    const struct look *l = ctx;
    return *l->s->interrupted || clock_us() > l->end_us;
}

/* An engine that has room for windows only. */
static struct engine_options engine_for(const struct judge_state *s, const char *dtype) {
    struct engine_options o = *s->engine;
    o.dtype = dtype;
    o.max_model_len = (int64_t)s->context;
    o.max_num_seqs = (int64_t)eval_in_flight(s->context, 2048);
    o.max_num_batched_tokens = (int64_t)size_max(2048, (size_t)o.max_num_seqs);
    o.long_prefill = o.kv_bytes = 0;
    o.chunked_prefill = true;
    o.baseline_static = "none";
    return o;
}

static int measure(const struct judge_state *s, const struct loaded_model *m, const char *name, double most_s,
                   const char *save, const char *reference, struct eval_distance *out, struct error *err) {
    const struct model_text *t = &m->text;
    struct eval_local local = {m->engine, t->tokenizer, t->chat_template, t->bos_token, t->eos_token};
    struct look look = {s, clock_us() + (uint64_t)(most_s * 1e6)};
    struct eval_context c = {.model = name, .local = &local, .stopped = stopped, .stopped_ctx = &look};
    size_t windows = MOST_BYTES / eval_window_bytes(s->context, quire_info(m->engine)->n_vocab);
    struct eval_kl job = {.windows = {.text = eval_default_text(),
                                      .context = s->context,
                                      .max_windows = size_max(windows, LEAST_WINDOWS)},
                          .save = save,
                          .reference = reference,
                          .distance = out};
    if (!(c.out = fopen("/dev/null", "w")))
        return error_set(err, QUIRE_EIO, "/dev/null: %s", strerror(errno));
    int rc = eval_kl(&c, &job, err);
    fclose(c.out);
    if (rc < 0) return rc;
    if (*s->interrupted) return error_set(err, QUIRE_ECANCELED, "interrupted");
    if (!out->windows)
        return error_set(err, QUIRE_ELIMIT,
                         "%.0f s are not enough for a part of the text (--quality-seconds)", most_s);
    return 0;
}

static int look_at(const struct judge_state *s, const char *weights, const char *dtype, double most_s,
                   const char *save, const char *reference, struct eval_distance *out, struct error *err) {
    struct engine_options o = engine_for(s, dtype);
    struct log log = {stderr, LOG_ERROR};
    struct loaded_model m;
    int rc = loaded_model_open(weights, &o, &log, &m, err);
    if (rc) return rc;
    rc = *s->interrupted ? error_set(err, QUIRE_ECANCELED, "interrupted")
                         : measure(s, &m, weights, most_s, save, reference, out, err);
    loaded_model_close(&m);
    return rc;
}

static void reference_path(const struct judge_state *s, char out[1100]) {
    snprintf(out, 1100, "%s/reference.kld", s->folder);
}

void judge_clean(const struct judge_state *s) {
    char path[1100];
    reference_path(s, path);
    unlink(path);
}

/* The defaults' distributions, unless they are there: a file is put in its place when it is whole. */
static int get_reference(const struct judge_state *s, const char *path, double most_s, struct error *err) {
    char beside[1110];
    struct eval_distance d = {0};
    if (!access(path, R_OK)) return 0;
    snprintf(beside, sizeof beside, "%s.new", path);
    int rc = look_at(s, s->model, s->dtype, most_s, beside, NULL, &d, err);
    if (!rc && rename(beside, path))
        rc = error_set(err, QUIRE_EIO, "%.200s cannot be replaced: %s", path, strerror(errno));
    if (rc) unlink(beside);
    return rc;
}

int judge_look(void *ctx, const char *weights, const char *dtype, double most_s, struct tune_quality *out,
               struct error *err) {
    const struct judge_state *s = ctx;
    char path[1100];
    struct eval_distance d = {0};
    reference_path(s, path);
    int rc = get_reference(s, path, most_s, err);
    if (!rc) rc = look_at(s, weights, dtype, most_s, NULL, path, &d, err);
    if (rc) return rc == QUIRE_ECANCELED ? rc : error_prefix(err, "its answers cannot be looked at");
    *out = (struct tune_quality){.tokens = d.tokens,
                                 .ppl_increase = d.perplexity / d.reference_perplexity - 1,
                                 .kl = d.kl,
                                 .top1 = d.top1};
    return 0;
}
