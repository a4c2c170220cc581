/* quire eval perplexity, quire eval kl */
#include "cli/eval_run.h"

#include "base/error.h"

#include <string.h>

#define AT(member)  offsetof(struct eval_options, member)
#define MAX_CONTEXT (1 << 24)

static const struct option windows_rows[] = {
    {"text", OPTION_STRING, AT(text), "Text", "FILE", NULL, 0, 0, NULL, NULL,
     "Text to be predicted; a small one of works in the public domain is built in."},
    {"context", OPTION_INT, AT(context), "Text", "N", "512", 2, MAX_CONTEXT, NULL, NULL,
     "Tokens of a window."},
    {"stride", OPTION_INT, AT(stride), "Text", "N", "0", 0, MAX_CONTEXT, NULL, NULL,
     "0: windows side by side, the second half of each scored, as llama-perplexity. Else a window every N "
     "tokens that "
     "scores what none before it has, as transformers' documentation; N = context scores all tokens."},
    {"max-windows", OPTION_INT, AT(max_windows), "Text", "N", "0", 0, 1 << 30, NULL, NULL,
     "Only the first N windows; 0 is all."},
};
static const struct option kl_rows[] = {
    {"save", OPTION_STRING, AT(save), "Reference", "FILE", NULL, 0, 0, NULL, NULL,
     "Write this model's distributions: 2 bytes for each scored token and entry of the vocabulary."},
    {"reference", OPTION_STRING, AT(reference), "Reference", "FILE", NULL, 0, 0, NULL, NULL,
     "Compare this model's distributions with those in FILE."},
};
#define N(rows) (sizeof(rows) / sizeof *(rows))

static int measure(bool kl, const char *argument, struct eval_options *o, const struct options_state *given,
                   struct error *err) {
    struct eval_run r = {0};
    struct eval_kl job = {.windows = {.context = (size_t)o->context,
                                      .stride = (size_t)o->stride,
                                      .max_windows = (size_t)o->max_windows},
                          .save = o->save,
                          .reference = o->reference};
    int rc = 0;
    if (strstr(argument, "://"))
        rc =
            error_set(err, QUIRE_EUNSUPPORTED, "%s needs a model in this process: servers do not tell enough",
                      kl ? "kl" : "perplexity");
    if (!rc && kl && !o->save == !o->reference)
        rc = error_set(err, QUIRE_EINVAL, "one of --save FILE and --reference FILE is needed");
    if (!rc && o->stride > o->context)
        rc = error_set(err, QUIRE_EINVAL, "--stride is %lld; allowed is up to --context %lld",
                       (long long)o->stride, (long long)o->context);
    if (!rc) rc = eval_run_text(&r, o->text, &job.windows.text, err);
    if (!rc)
        rc = eval_run_open(&r, argument, o, given, (size_t)o->context, "context",
                           eval_in_flight((size_t)o->context, (size_t)o->engine.max_num_batched_tokens), err);
    if (!rc && quire_info(r.model.engine)->max_model_len < (size_t)o->context)
        rc = error_set(err, QUIRE_EINVAL, "--context is %lld, more than --max-model-len %zu",
                       (long long)o->context, quire_info(r.model.engine)->max_model_len);
    if (!rc) rc = kl ? eval_kl(&r.context, &job, err) : eval_perplexity(&r.context, &job.windows, err);
    eval_run_close(&r);
    return rc;
}

int cmd_eval_windows(bool kl, int argc, char **argv) {
    const char *name = kl ? "eval kl" : "eval perplexity";
    struct eval_options o = {0};
    struct option table[N(windows_rows) + N(kl_rows) + EVAL_COMMON_ROWS + ENGINE_OPTION_ROWS + 1] = {0};
    size_t n = 0;
    memcpy(table, windows_rows, sizeof windows_rows);
    n += N(windows_rows);
    if (kl) {
        memcpy(table + n, kl_rows, sizeof kl_rows);
        n += N(kl_rows);
    }
    n += eval_common_rows(table + n);
    engine_option_rows(table + n, AT(engine));
    struct options_state *state = NULL;
    struct error err = {0};
    int n_args = 0,
        rc =
            cli_options(name, "MODEL [options]",
                        kl ? "Saves a model's distributions over a text, or compares another one's with them."
                           : "Perplexity: how well MODEL predicts a text. docs/eval.md has the definition.",
                        table, argc, argv, &n_args, &o, &state);
    if (rc >= 0) return rc;
    rc = n_args == 1 ? measure(kl, argv[1], &o, state, &err)
                     : error_set(&err, QUIRE_EINVAL, "usage: quire %s MODEL [options]", name);
    options_free(state);
    return eval_exit(name, rc, &err);
}
