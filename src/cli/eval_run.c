#include "cli/eval_run.h"

#include "base/files.h"
#include "base/error.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#define MAX_TEXT_MIB 256

size_t eval_common_rows(struct option *table) {
#define AT(member) offsetof(struct eval_options, member)
    const struct option rows[EVAL_COMMON_ROWS] = {
        {"json", OPTION_STRING, AT(json), "Result", "FILE", NULL, 0, 0, NULL, NULL,
         "The result as JSON, for compare too; while it is measured, FILE.partial keeps what there is."},
        {"resume", OPTION_BOOL, AT(resume), "Result", NULL, "false", 0, 0, NULL, NULL,
         "Go on from FILE.partial of an interrupted run with the same settings."},
    };
    memcpy(table, rows, sizeof rows);
    return EVAL_COMMON_ROWS;
}

void eval_hold_signals(void) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
}

static bool stopped(void *ctx) {
    sigset_t set;
    return !sigpending(&set) && (sigismember(&set, SIGINT) || sigismember(&set, SIGTERM));
}

static void fill_context(struct eval_run *r, const char *name, const struct eval_options *o) {
    r->context = (struct eval_context){
        .model = name, .json = o->json, .resume = o->resume, .stopped = stopped, .out = stdout};
}

static int check_result(const struct eval_options *o, struct error *err) {
    if (o->json && !*o->json) return error_set(err, QUIRE_EINVAL, "--json may not be empty");
    if (o->resume && !o->json) return error_set(err, QUIRE_EINVAL, "--resume goes with --json FILE");
    const struct file_option files[] = {{"--json", o->json},
                                        {"--save", o->save},
                                        {"--reference", o->reference},
                                        {"--text", o->text},
                                        {"--file", o->file}};
    return file_check_apart(files, 2, sizeof files / sizeof *files, err);
}

int eval_run_open(struct eval_run *r, const char *argument, struct eval_options *o,
                  const struct options_state *given, size_t max_model_len, const char *flag,
                  size_t max_num_seqs, struct error *err) {
    struct log log = {stderr, LOG_WARN};
    int rc = check_result(o, err);
    if (rc) return rc;
    bool own_length = max_model_len && !options_given(given, "max-model-len");
    if (own_length) o->engine.max_model_len = (int64_t)max_model_len;
    if (max_num_seqs && !options_given(given, "max-num-seqs")) o->engine.max_num_seqs = (int64_t)max_num_seqs;
    eval_hold_signals();
    if ((rc = loaded_model_open(argument, &o->engine, &log, &r->model, err)))
        return own_length && err->param && !strcmp(err->param, "max-model-len")
                   ? error_prefix(err, "--%s", flag)
                   : rc;
    const struct model_text *t = &r->model.text;
    r->local =
        (struct eval_local){r->model.engine, t->tokenizer, t->chat_template, t->bos_token, t->eos_token};
    fill_context(r, argument, o);
    r->context.local = &r->local;
    return 0;
}

int eval_run_remote(struct eval_run *r, const char *url, const struct eval_options *o,
                    const struct options_state *given, struct error *err) {
    struct option rows[ENGINE_OPTION_ROWS];
    size_t n = engine_option_rows(rows, 0);
    int rc = check_result(o, err);
    if (rc) return rc;
    for (size_t i = 0; i < n; i++)
        if (!rows[i].env && strcmp(rows[i].name, "seed") && options_given(given, rows[i].name))
            return error_set(err, QUIRE_EINVAL, "--%s is the server's to set; it has no effect on a URL",
                             rows[i].name);
    r->remote = (struct eval_remote){
        .url = url,
        .model = o->served_name,
        .concurrency = (size_t)o->concurrency,
        .http = {
            .bearer = o->api_key, .ca_cert = o->ca_cert, .insecure = o->insecure, .timeout_s = o->timeout_s}};
    if ((rc = http_check_trust(&r->remote.http, url, err))) return rc;
    eval_hold_signals();
    fill_context(r, o->served_name ? o->served_name : url, o);
    r->context.remote = &r->remote;
    return 0;
}

void eval_run_close(struct eval_run *r) {
    if (r->model.engine) loaded_model_close(&r->model);
    buf_free(&r->text);
}

int eval_run_text(struct eval_run *r, const char *path, struct eval_text *out, struct error *err) {
    *out = eval_default_text();
    if (!path) return 0;
    int rc = file_read("--text", path, MAX_TEXT_MIB, &r->text, err);
    if (rc) return rc;
    *out = (struct eval_text){path, r->text.data ? r->text.data : "", r->text.len};
    return 0;
}

int eval_exit(const char *command, int rc, const struct error *err) {
    if (rc < 0) return cli_fail(command, err);
    if (rc == EVAL_STOPPED) fprintf(stderr, "quire %s: interrupted; this is what was measured\n", command);
    return rc == EVAL_STOPPED ? EXIT_INTERRUPTED : EXIT_OK;
}
