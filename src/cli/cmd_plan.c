/* quire plan MODEL: what a model needs, before anything is started. */
#include "cli/cli.h"

#include "base/error.h"
#include "plan/forecast.h"
#include "plan/source.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct plan_options {
    struct engine_options engine;
    int64_t concurrency;
    const char *weight_format;
    bool json;
};

#define AT(member) offsetof(struct plan_options, member)

static const struct option own_rows[] = {
    {"concurrency", OPTION_INT, AT(concurrency), "Plan", "N", "0", 0, 65536, NULL, NULL,
     "Sequences that are to have KV memory at the same time; 0 is max-num-seqs, and that they all have is "
     "not "
     "asked for."},
    {"weight-format", OPTION_STRING, AT(weight_format), "Plan", "FORMAT", NULL, 0, 0, NULL, NULL,
     "Plan for weights in this format: bf16, q8_0, q4_k_m, ...; as the model's files have it if not given, "
     "and bf16 "
     "for a config.json without any."},
    {"json", OPTION_BOOL, AT(json), "Output", NULL, "false", 0, 0, NULL, NULL,
     "As JSON; docs/plan.md says what the fields are."},
    {0},
};
#define N_OWN_ROWS (sizeof own_rows / sizeof *own_rows)

/* Flags of an engine that a plan does not depend on. */
static bool is_of_plan(const struct option *row) {
    static const char *const others[] = {
        "seed",         "chat-template",     "tokenizer",      "tokenizer-pre", "generation-config",
        "cache-secret", "scheduling-policy", "baseline-static"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (!strcmp(row->name, others[i])) return false;
    return true;
}

static size_t table_of(struct option *table) {
    struct option rows[ENGINE_OPTION_ROWS];
    size_t n = 0, n_rows = engine_option_rows(rows, AT(engine));
    for (size_t i = 0; i < n_rows; i++)
        if (is_of_plan(&rows[i])) table[n++] = rows[i];
    n += vector_option_rows(table + n, AT(engine));
    memcpy(table + n, own_rows, sizeof own_rows);
    return n + N_OWN_ROWS;
}

static int write_out(const struct buf *out, struct error *err) {
    if (!buf_ok(out)) return error_set(err, QUIRE_ENOMEM, "out of memory");
    if (fwrite(out->data, 1, out->len, stdout) != out->len || fflush(stdout))
        return error_set(err, QUIRE_EIO, "standard output cannot be written");
    return 0;
}

static int plan_model(const char *argument, struct plan_options *o, struct error *err) {
    char *path = NULL;
    struct plan_source source = {0};
    struct quire_config config;
    struct buf out = BUF_INIT;
    struct forecast *f = malloc(sizeof *f);
    int rc = f ? model_find(argument, &path, err) : error_set(err, QUIRE_ENOMEM, "out of memory");
    if (!rc) rc = plan_source_open(path, o->weight_format, &source, err);
    if (!rc) {
        engine_config_of(&o->engine, source.weights, &config);
        struct forecast_ask ask = {.model = argument,
                                   .weight_format = source.format,
                                   .config = &config,
                                   .concurrency = (size_t)o->concurrency};
        rc = forecast_make(&ask, f, err);
        if (!rc) {
            if (o->json)
                forecast_json(&ask, f, &out);
            else
                forecast_text(&ask, f, &out);
            rc = write_out(&out, err);
        }
        if (!rc && f->refusal.code) {
            *err = f->refusal;
            rc = err->code;
        }
    }
    buf_free(&out);
    plan_source_close(&source);
    free(path);
    free(f);
    return rc;
}

int cmd_plan(int argc, char **argv) {
    struct plan_options o = {.engine = {.policy = "fcfs", .baseline_static = "none"}};
    struct option table[ENGINE_OPTION_ROWS + VECTOR_OPTION_ROWS + N_OWN_ROWS] = {0};
    struct options_state *state = NULL;
    struct error err = {0};
    int n_args = 0;
    table_of(table);
    int rc = cli_options("plan", "MODEL [options]",
                         "Says what a model needs, before anything is started: memory as quire serve would "
                         "report it, and what fits.",
                         table, argc, argv, &n_args, &o, &state);
    if (rc >= 0) return rc;
    rc = n_args == 1
             ? plan_model(argv[1], &o, &err)
             : error_set(&err, QUIRE_EINVAL,
                         n_args ? "one model is planned at a time, \"%.60s\" is one too many"
                                : "no model given: quire plan MODEL, for example quire plan smollm2%s",
                         n_args ? argv[2] : "");
    options_free(state);
    return rc ? cli_fail("plan", &err) : EXIT_OK;
}
