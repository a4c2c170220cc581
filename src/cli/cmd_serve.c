/* quire serve MODEL: plan, load, open the port, serve until SIGTERM or SIGINT, drain. */
#include "cli/cli.h"

#include "backend/cpu/cores.h"
#include "base/clock.h"
#include "base/error.h"
#include "kern/kern.h"
#include "model/spec.h"
#include "weights/weights.h"

#include <errno.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct serve_options {
    struct engine_options engine;
    const char *host, *cert, *key, *log_level, *config, *model, *task;
    int64_t port, shutdown_timeout, max_connections, max_body, max_logprobs, loops, workers, comment_s;
    struct option_list names, keys, origins;
    bool access_log, prompt_statistics;
};

#define AT(member) offsetof(struct serve_options, member)
#define FIXED(name, values)                                                                                  \
    { name, OPTION_FIXED, 0, "vLLM flags without effect here", NULL, NULL, 0, 0, values, NULL, "Already so." }

static const struct option own_rows[] = {
    {"config", OPTION_STRING, AT(config), "Server", "FILE", NULL, 0, 0, NULL, NULL,
     "Options as `name: value` lines; flags win over it."},
    {"model", OPTION_STRING, AT(model), "Server", "MODEL", NULL, 0, 0, NULL, NULL,
     "The model, if not given as an argument."},
    {"task", OPTION_CHOICE, AT(task), "Vectors", "TASK", "auto", 0, 0,
     "auto|generate|embed|embedding|score|classify", NULL,
     "Older spelling of --runner: all but auto and generate are pooling."},
    {"host", OPTION_STRING, AT(host), "Server", "ADDRESS", "127.0.0.1", 0, 0, NULL, NULL,
     "Address or name to listen on; 0.0.0.0 or :: for all of IPv4 or IPv6."},
    {"port", OPTION_INT, AT(port), "Server", "N", "8000", 0, 65535, NULL, NULL,
     "TCP port; 0 takes a free one."},
    {"served-model-name", OPTION_LIST, AT(names), "Server", "NAME", NULL, 0, 0, NULL, NULL,
     "Name of the model in the API, may be given several times; the model argument if unset."},
    {"api-key", OPTION_LIST, AT(keys), "Server", "KEY", NULL, 0, 0, NULL, "QUIRE_API_KEY",
     "Key that requests must bring, may be given several times. All routes but /health ask for it."},
    {"allowed-origins", OPTION_LIST, AT(origins), "Server", "ORIGIN", NULL, 0, 0, NULL, NULL,
     "Origins that browsers may call from (CORS), or *; may be given several times."},
    {"ssl-certfile", OPTION_STRING, AT(cert), "Server", "FILE", NULL, 0, 0, NULL, NULL,
     "TLS certificate chain, PEM."},
    {"ssl-keyfile", OPTION_STRING, AT(key), "Server", "FILE", NULL, 0, 0, NULL, NULL,
     "TLS private key, PEM."},
    {"shutdown-timeout", OPTION_INT, AT(shutdown_timeout), "Server", "SECONDS", "30", 0, 86400, NULL, NULL,
     "How long running requests may go on after SIGTERM."},
    {"max-connections", OPTION_INT, AT(max_connections), "Server", "N", "4096", 1, 1 << 20, NULL, NULL,
     "Open connections; more are answered 503."},
    {"max-request-bytes", OPTION_INT, AT(max_body), "Server", "BYTES", "8Mi", 1024, 1 << 30, NULL, NULL,
     "Largest request body; more is answered 413."},
    {"max-logprobs", OPTION_INT, AT(max_logprobs), "Server", "N", "20", 0, QUIRE_MAX_LOGPROBS, NULL, NULL,
     "Most log probabilities a request may ask for per token."},
    {"sse-keep-alive-interval", OPTION_INT, AT(comment_s), "Server", "SECONDS", "15", 1, 3600, NULL, NULL,
     "A comment is sent on streams that have been silent this long."},
    {"loops", OPTION_INT, AT(loops), "Server", "N", "1", 1, 64, NULL, NULL, "Threads that own connections."},
    {"renderer-num-workers", OPTION_INT, AT(workers), "Server", "N", "2", 1, 64, NULL, NULL,
     "Threads that read requests, render templates and tokenize."},
    {"log-level", OPTION_CHOICE, AT(log_level), "Server", "LEVEL", "info", 0, 0, CLI_LOG_LEVELS, NULL,
     "What is written to standard error."},
    {"access-log", OPTION_BOOL, AT(access_log), "Server", NULL, "true", 0, 0, NULL, NULL,
     "One line for each request: times, tokens, reason; never its text."},
    {"prompt-statistics", OPTION_BOOL, AT(prompt_statistics), "Server", NULL, "false", 0, 0, NULL, NULL,
     "Compare keyed hashes of prompts, to count tokens that come again behind text that changes "
     "(docs/advise.md); counts only, the key is new for each process."},
    FIXED("tensor-parallel-size", "1"),
    FIXED("pipeline-parallel-size", "1"),
    FIXED("data-parallel-size", "1"),
    FIXED("nnodes", "1"),
    FIXED("node-rank", "0"),
    FIXED("api-server-count", "1"),
    FIXED("device", "auto|cpu"),
    FIXED("load-format", "auto|gguf|safetensors"),
    FIXED("quantization", "gguf"),
    FIXED("kv-cache-dtype", "auto"),
    FIXED("tokenizer-mode", "auto"),
    FIXED("convert", "auto"),
    FIXED("model-impl", "auto"),
    FIXED("logprobs-mode", "raw_logprobs"),
    FIXED("chat-template-content-format", "auto|string"),
    FIXED("response-role", "assistant"),
    FIXED("stream-interval", "1"),
    FIXED("swap-space", "0"),
    FIXED("cpu-offload-gb", "0"),
    FIXED("enforce-eager", "true|false"),
    FIXED("trust-remote-code", "true|false"),
    FIXED("async-scheduling", "true|false"),
    FIXED("use-tqdm-on-load", "true|false"),
    FIXED("disable-custom-all-reduce", "true|false"),
    FIXED("disable-cascade-attn", "true|false"),
    FIXED("disable-fastapi-docs", "true|false"),
    FIXED("disable-sliding-window", "false"),
    FIXED("disable-log-stats", "false"),
    FIXED("disable-log-requests", "true"),
    FIXED("enable-log-requests", "false"),
    FIXED("enable-log-outputs", "false"),
    FIXED("enable-prompt-tokens-details", "true"),
    FIXED("enable-request-id-headers", "true"),
    FIXED("enable-lora", "false"),
    FIXED("enable-expert-parallel", "false"),
    FIXED("enable-auto-tool-choice", "false"),
    FIXED("enable-sleep-mode", "false"),
    FIXED("enable-prompt-embeds", "false"),
    FIXED("skip-tokenizer-init", "false"),
    {0},
};

#define N_OWN_ROWS (sizeof own_rows / sizeof *own_rows)

static int check_readable(const char *flag, const char *path, struct error *err) {
    if (!path || !access(path, R_OK)) return 0;
    return error_set(err, QUIRE_ENOTFOUND, "--%s %.200s cannot be read: %s", flag, path, strerror(errno));
}

static const char *runner_of_task(const char *task) {
    return !strcmp(task, "auto") || !strcmp(task, "generate") ? task : "pooling";
}

/* What can be known to be wrong before the model is loaded. */
static int check_options(const struct serve_options *o, struct error *err) {
    int64_t b = o->engine.block_size;
    if (b & (b - 1))
        return error_set(err, QUIRE_EINVAL, "--block-size is %d; allowed are 16, 32, 64, 128 and 256",
                         (int)b);
    if (strcmp(o->task, "auto") && strcmp(o->engine.runner, "auto") &&
        strcmp(o->engine.runner, runner_of_task(o->task)))
        return error_set(err, QUIRE_EINVAL, "--task %s and --runner %s contradict each other", o->task,
                         o->engine.runner);
    if (!o->cert != !o->key)
        return error_set(err, QUIRE_EINVAL, "--ssl-certfile and --ssl-keyfile go together");
    for (size_t i = 0; i < o->keys.n; i++)
        if (!*o->keys.items[i]) return error_set(err, QUIRE_EINVAL, "--api-key may not be empty");
    for (size_t i = 0; i < o->names.n; i++)
        if (!*o->names.items[i]) return error_set(err, QUIRE_EINVAL, "--served-model-name may not be empty");
    if (check_readable("ssl-certfile", o->cert, err) || check_readable("ssl-keyfile", o->key, err) ||
        check_readable("chat-template", o->engine.chat_template, err))
        return err->code;
    return port_check(o->host, (uint16_t)o->port, err);
}

/* ---- what a person sees ---- */

static void print_plan(const struct quire_info *info) {
    fprintf(stderr, "\n%-12s %14s\n", "memory", "bytes");
    for (size_t i = 0; i < QUIRE_MEMORY_ROWS; i++)
        fprintf(stderr, "%-12s %14llu  %s\n", info->memory[i].name, (unsigned long long)info->memory[i].bytes,
                info->memory[i].detail);
    fprintf(stderr, "\n%s, %s, %zu thread%s, %s, up to %zu tokens a sequence\n", info->family, info->cpu_path,
            info->n_threads, info->n_threads == 1 ? "" : "s", info->dtype_name, info->max_model_len);
    if (info->pooling == QUIRE_POOLING_RANK)
        fprintf(stderr, "scores of pairs of texts\n");
    else if (info->pooling)
        fprintf(stderr, "vectors of %zu numbers, pooling %s\n", info->vector_floats,
                model_pooling_name((enum model_pooling)info->pooling));
}

/* Where this machine reaches what listens on all addresses. */
static const char *reachable(const char *host) {
    if (!strcmp(host, "0.0.0.0")) return "127.0.0.1";
    return strcmp(host, "::") ? host : "::1";
}

/* Survives JSON in single quotes as it is. */
static bool is_plain(const char *name) {
    for (; *name; name++)
        if (*name < ' ' || strchr("'\"\\", *name)) return false;
    return true;
}

/* A route of what the model was opened for, and the fields of a request to it: an answer of a few seconds,
 * and one that a small model gives too, which at temperature 1 may wander until its context ends. */
static const char *example_of(const struct loaded_model *m, const char **fields) {
    enum quire_pooling pooling = quire_info(m->engine)->pooling;
    *fields = "\"query\": \"Why is the sky blue?\", \"documents\": [\"Rayleigh scattering\", \"Bread\"]";
    if (pooling == QUIRE_POOLING_RANK) return "rerank";
    *fields = "\"input\": \"Why is the sky blue?\"";
    if (pooling) return "embeddings";
    *fields = "\"messages\": [{\"role\": \"user\", \"content\": \"Why is the sky blue?\"}], "
              "\"temperature\": 0, \"max_tokens\": 100";
    if (m->chat_template) return "chat/completions";
    *fields = "\"prompt\": \"The sky is\", \"temperature\": 0";
    return "completions";
}

static void print_ready(const struct serve_options *o, const char *name, unsigned port,
                        const struct loaded_model *m, uint64_t start_us) {
    const char *host = reachable(o->host), *fields, *route = example_of(m, &fields);
    bool v6 = strchr(host, ':') != NULL;
    char url[512];
    snprintf(url, sizeof url, "%s://%s%s%s:%u", o->cert ? "https" : "http", v6 ? "[" : "", host,
             v6 ? "]" : "", port);
    fprintf(
        stderr,
        "ready after %.2f s. Try:\n\n  curl %s%s/v1/%s -H 'Content-Type: application/json' %s\\\n    -d '{",
        (double)(clock_us() - start_us) / 1e6, o->cert ? "-k " : "", url, route,
        o->keys.n ? "-H 'Authorization: Bearer KEY' " : "");
    if (is_plain(name)) fprintf(stderr, "\"model\": \"%s\", ", name);
    fprintf(stderr, "%s}'\n\n", fields);
    printf("ready %s\n", url);
    fflush(stdout);
}

/* ---- run ---- */

/* Blocks the two signals in this thread and those it will start, so that sigwait gets them. */
static void block_signals(sigset_t *set) {
    sigemptyset(set);
    sigaddset(set, SIGTERM);
    sigaddset(set, SIGINT);
    pthread_sigmask(SIG_BLOCK, set, NULL);
}

static struct serve_config config_of(const struct serve_options *o, struct log *log) {
    struct serve_config c;
    serve_config_init(&c);
    c.host = o->host;
    c.port = (uint16_t)o->port;
    c.tls_cert_file = o->cert;
    c.tls_key_file = o->key;
    c.model_names = o->names.items;
    c.n_model_names = o->names.n;
    c.api_keys = o->keys.items;
    c.n_api_keys = o->keys.n;
    c.allowed_origins = o->origins.items;
    c.n_allowed_origins = o->origins.n;
    c.n_loops = (size_t)o->loops;
    c.n_workers = (size_t)o->workers;
    c.max_connections = (size_t)o->max_connections;
    c.max_body_bytes = (size_t)o->max_body;
    c.max_logprobs = (size_t)o->max_logprobs;
    c.keep_alive_comment_ms = (unsigned)o->comment_s * 1000;
    c.access_log = o->access_log;
    c.prompt_statistics = o->prompt_statistics;
    c.cpu_best = kern_select(NULL)->name;
    c.n_cores = cores_available();
    c.version = QUIRE_VERSION;
    c.log = log;
    return c;
}

static uint64_t elements_of(const struct tensor *t) {
    return (uint64_t)t->dims[0] * tensor_rows(t);
}

static uint64_t parameters_of(const struct weights *w) {
    uint64_t n = 0;
    for (size_t i = 0; i < weights_n_tensors(w); i++) n += elements_of(weights_tensor_at(w, i));
    return n;
}

static int serve_until_signal(struct serve_options *o, const char *argument, sigset_t *signals,
                              struct log *log, uint64_t start_us) {
    struct error err = {0};
    struct loaded_model m;
    struct serve *s = NULL;
    if (!o->names.n) o->names.items[o->names.n++] = argument;
    struct serve_config c = config_of(o, log);
    if (loaded_model_open(argument, &o->engine, log, &m, &err)) return cli_fail("serve", &err);
    c.n_parameters = parameters_of(m.weights);
    print_plan(quire_info(m.engine));
    int rc = serve_start(&c, &m.text, m.engine, &s, &err);
    if (rc) {
        loaded_model_close(&m);
        return cli_fail("serve", &err);
    }
    print_ready(o, o->names.items[0], serve_port(s), &m, start_us);
    int sig = 0;
    sigwait(signals, &sig);
    log_write(log, LOG_INFO, "%s: draining for up to %d s", sig == SIGTERM ? "SIGTERM" : "SIGINT",
              (int)o->shutdown_timeout);
    /* A second signal does not wait any longer. */
    pthread_sigmask(SIG_UNBLOCK, signals, NULL);
    serve_stop(s, (unsigned)o->shutdown_timeout * 1000);
    quire_shutdown(m.engine);
    m.engine = NULL;
    serve_free(s);
    loaded_model_close(&m);
    log_write(log, LOG_INFO, "stopped");
    return EXIT_OK;
}

/* Large blocks (bodies, answers) go back to the system when they are freed, and few threads need few heaps.
 * What a chat of a hundred messages takes to render (a megabyte) stays: to get it anew takes nearly as long
 * as to render. */
static void tame_malloc(void) {
    mallopt(M_MMAP_THRESHOLD, 256 << 10);
    mallopt(M_TRIM_THRESHOLD, 2 << 20);
    mallopt(M_ARENA_MAX, 4);
}

/* The tables of docs/api.md. */
static int print_api(void) {
    serve_print_routes(stdout);
    puts("");
    serve_print_fields(stdout);
    return EXIT_OK;
}

int cmd_serve(int argc, char **argv) {
    uint64_t start_us = clock_us();
    if (argc == 2 && !strcmp(argv[1], "--help-api")) return print_api();
    struct serve_options o = {0};
    struct option table[N_OWN_ROWS + ENGINE_OPTION_ROWS + VECTOR_OPTION_ROWS] = {0};
    size_t n = engine_option_rows(table, AT(engine));
    n += vector_option_rows(table + n, AT(engine));
    memcpy(table + n, own_rows, sizeof own_rows);
    struct options_state *state = NULL;
    struct error err = {0};
    int n_args = 0;
    int rc = cli_options(
        "serve", "MODEL [options]",
        "Serves MODEL (a GGUF file, a model folder or a known name) over an OpenAI-compatible API.", table,
        argc, argv, &n_args, &o, &state);
    if (rc >= 0) return rc;
    const char *argument = n_args ? argv[1] : o.model;
    struct log log = {stderr, cli_log_level(o.log_level)};
    sigset_t signals;
    if (n_args > 1 || (n_args && o.model)) {
        error_set(&err, QUIRE_EINVAL, "one model can be served, but \"%s\" was given too",
                  n_args > 1 ? argv[2] : o.model);
        rc = cli_fail("serve", &err);
    } else if (!argument) {
        error_set(&err, QUIRE_EINVAL, "no model given: quire serve MODEL, for example quire serve smollm2");
        rc = cli_fail("serve", &err);
    } else if (check_options(&o, &err)) {
        rc = cli_fail("serve", &err);
    } else {
        if (!strcmp(o.engine.runner, "auto")) o.engine.runner = runner_of_task(o.task);
        tame_malloc();
        block_signals(&signals);
        rc = serve_until_signal(&o, argument, &signals, &log, start_us);
    }
    options_free(state);
    return rc;
}
