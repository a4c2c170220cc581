#include "cli/ablation_rows.h"

#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FLAGS_MAX 4

/* One change a row: what is not said is as in the row before. */
static const struct step {
    const char *name, *about;
    const char *flags[FLAGS_MAX]; /* of serve; they replace the same ones of the rows before */
    const char *workload;         /* the RAG part */
    bool quantized;               /* from here on the quantized model */
} steps[] = {
    {"static batching",
     "a batch is admitted together and nothing more until all of it have ended; KV for the longest sequence "
     "is "
     "reserved for each; prompts are computed whole; nothing is shared",
     {"--baseline-static=batch,reserve", "--no-enable-chunked-prefill", "--no-enable-prefix-caching"},
     "rag20",
     false},
    {"+ continuous batching",
     "a sequence comes in when one has ended",
     {"--baseline-static=reserve"},
     NULL,
     false},
    {"+ paged KV", "blocks are taken as sequences grow", {"--baseline-static=none"}, NULL, false},
    {"+ chunked prefill",
     "long prompts are computed in parts beside running answers, and a step is no longer than it should be",
     {"--enable-chunked-prefill"},
     NULL,
     false},
    {"+ prefix caching",
     "blocks of equal prefixes are computed once",
     {"--enable-prefix-caching"},
     NULL,
     false},
    {"+ quantized weights", "the quantized model in place of the bfloat16 one", {NULL}, NULL, true},
    {"+ 6 chunks of 20", "a question comes with the 6 best of its 20 documents", {NULL}, "rag6", false},
    {"+ compressed to 3 K",
     "the 6 documents are compressed to two thirds: 3,000 tokens in all",
     {NULL},
     "rag3k",
     false},
};
#define N_STEPS (sizeof steps / sizeof *steps)

/* Length of what a flag sets: "--no-x" and "--x=1" are one. */
static const char *key_of(const char *flag, size_t *n) {
    flag += strncmp(flag, "--no-", 5) ? 2 : 5;
    *n = strcspn(flag, "=");
    return flag;
}

struct flags {
    const char *v[4 * FLAGS_MAX];
    size_t n;
};

static void set_flag(struct flags *f, const char *flag) {
    size_t n, m, i = 0;
    const char *key = key_of(flag, &n);
    for (; i < f->n; i++) {
        const char *other = key_of(f->v[i], &m);
        if (n == m && !memcmp(key, other, n)) break;
    }
    if (i == f->n) f->n++;
    f->v[i] = flag;
}

static bool has_flag(const struct flags *f, const char *flag) {
    for (size_t i = 0; i < f->n; i++)
        if (!strcmp(f->v[i], flag)) return true;
    return false;
}

static bool add(char **args, size_t *n, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static bool add(char **args, size_t *n, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    bool ok = *n + 1 < ABLATION_ARGS_MAX && vasprintf(&args[*n], fmt, ap) >= 0;
    va_end(ap);
    *n += ok;
    return ok;
}

/* Without chunked prefill a step holds the longest prompt there may be. */
static bool make_args(const struct ablation_servers *s, const char *model, const struct flags *f,
                      char **args) {
    size_t n = 0, budget = s->budget;
    if (has_flag(f, "--no-enable-chunked-prefill") && budget < s->max_model_len) budget = s->max_model_len;
    bool ok = add(args, &n, "quire") && add(args, &n, "serve") && add(args, &n, "%s", model) &&
              add(args, &n, "--port=0") && add(args, &n, "--no-access-log") &&
              add(args, &n, "--log-level=warning") && add(args, &n, "--served-model-name=%s", s->name) &&
              add(args, &n, "--max-model-len=%zu", s->max_model_len) &&
              add(args, &n, "--max-num-batched-tokens=%zu", budget);
    if (s->kv_bytes) ok = ok && add(args, &n, "--kv-cache-memory-bytes=%zu", s->kv_bytes);
    for (char *const *p = s->common; ok && *p; p++) ok = add(args, &n, "%s", *p);
    for (size_t i = 0; ok && i < f->n; i++) ok = add(args, &n, "%s", f->v[i]);
    return ok;
}

int ablation_rows_make(const struct ablation_servers *s, struct ablation_rows *out, struct error *err) {
    struct flags flags = {.n = 0};
    const char *workload = NULL;
    bool quantized = false;
    *out = (struct ablation_rows){.n = 0};
    for (size_t i = 0; i < N_STEPS; i++) {
        const struct step *k = &steps[i];
        if (k->quantized && !s->plain) continue;
        for (size_t f = 0; f < FLAGS_MAX && k->flags[f]; f++) set_flag(&flags, k->flags[f]);
        if (k->workload) workload = k->workload;
        quantized |= k->quantized;
        struct ablation_row *r = &out->rows[out->n];
        *r = (struct ablation_row){.name = k->name,
                                   .about = k->about,
                                   .argv = (const char *const *)out->args[out->n],
                                   .workload = workload,
                                   .answers_stay = i && *k->flags};
        out->quantized[out->n] = quantized;
        out->trimmed[out->n] = i && k->workload;
        if (!make_args(s, quantized || !s->plain ? s->quantized : s->plain, &flags, out->args[out->n++])) {
            ablation_rows_free(out);
            return error_set(err, QUIRE_ENOMEM, "out of memory for the servers' arguments");
        }
    }
    return 0;
}

void ablation_rows_free(struct ablation_rows *r) {
    for (size_t i = 0; i < r->n; i++)
        for (size_t k = 0; k < ABLATION_ARGS_MAX; k++) free(r->args[i][k]);
    r->n = 0;
}
