/* quire bench serve and quire bench compare: load on a server, and two measurements beside each other. */
#include "cli/bench.h"

#include "base/error.h"
#include "load/load.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#define AT(member) offsetof(struct load_options, member)

const struct option load_option_table[] = {
    {"concurrency", OPTION_STRING, AT(concurrency), "Load", "N,...", NULL, 0, 0, NULL, NULL,
     "Closed loop: this many streams at once, each sending when its answer has ended; several values are a "
     "sweep. 1 "
     "when neither this nor --rate is given."},
    {"rate", OPTION_STRING, AT(rate), "Load", "R,...", NULL, 0, 0, NULL, NULL,
     "Open loop: this many requests a second, whatever the server does; latencies count from when a request "
     "was due. "
     "Several values are a sweep."},
    {"arrival", OPTION_CHOICE, AT(arrival), "Load", "KIND", "poisson", 0, 0, "constant|poisson|gamma|ramp",
     NULL,
     "How the requests of --rate come: evenly, at random, in bursts (--burstiness), or from --rate to "
     "--ramp-to."},
    {"burstiness", OPTION_FLOAT, AT(burstiness), "Load", "K", "1", 0.01, 1000, NULL, NULL,
     "Shape of the gamma distribution of gaps: below 1 in bursts, above 1 more evenly."},
    {"ramp-to", OPTION_FLOAT, AT(ramp_to), "Load", "R", "0", 0, 1e6, NULL, NULL,
     "The rate at the end of --arrival ramp."},
    {"max-concurrency", OPTION_INT, AT(max_concurrency), "Load", "N", "0", 0, 65536, NULL, NULL,
     "Most requests in flight in an open loop; what is due beyond waits, and the wait counts. 0 is 8192."},
    {"requests", OPTION_INT, AT(requests), "Load", "N", "0", 0, 1e9, NULL, NULL,
     "Requests to send, or conversations where the workload has turns. Without this and --duration: four for "
     "each "
     "stream and at least 16, or 30 seconds of an open loop."},
    {"duration", OPTION_FLOAT, AT(duration_s), "Load", "SECONDS", "0", 0, 1e7, NULL, NULL,
     "Send for this long; what is in flight then is waited for. Whichever of this and --requests comes first "
     "ends it."},
    {"warmup", OPTION_INT, AT(warmup), "Load", "N", "0", 0, 1e6, NULL, NULL,
     "Requests before each run that are not counted."},
    {"repeat", OPTION_INT, AT(repeat), "Load", "N", "1", 1, 100, NULL, NULL,
     "How often everything is measured, with new prompts each time; `quire bench compare` takes its "
     "intervals from it."},
    {"seed", OPTION_INT, AT(seed), "Load", "N", "0", 0, 9e15, NULL, NULL,
     "The same seed makes the same requests at the same times."},
    {"suite", OPTION_CHOICE, AT(suite), "Workload", "NAME", NULL, 0, 0, "A|B|C|D", NULL,
     "A: 512 in, 256 out, 1, 8, 32 and 64 streams. B: 4096/512, 8, 32, 64. C: 16384/1024, 8, 16, 32. D: RAG, "
     "agent, tool "
     "calling and multi-turn, 8 streams."},
    {"scale", OPTION_FLOAT, AT(scale), "Workload", "F", "1", 0.001, 100, NULL, NULL,
     "Factor on all lengths in tokens, for small machines and contexts."},
    {"workload", OPTION_CHOICE, AT(workload), "Workload", "NAME", NULL, 0, 0,
     "random|chat|rag20|rag6|rag3k|agent|agent-last|tools|json|sharegpt|batch|trace", NULL,
     "What is asked; docs/bench.md describes each. random when not given."},
    {"input-tokens", OPTION_STRING, AT(input_tokens), "Workload", "LENGTH", NULL, 0, 0, NULL, NULL,
     "Prompt, or each turn of a conversation: N, uniform:MIN:MAX, normal:MEAN:DEVIATION or "
     "lognormal:MEDIAN:SIGMA. 512 "
     "for random."},
    {"output-tokens", OPTION_STRING, AT(output_tokens), "Workload", "LENGTH", NULL, 0, 0, NULL, NULL,
     "max_tokens of each answer, in the same ways. 128 for random."},
    {"prefix-tokens", OPTION_INT, AT(prefix_tokens), "Workload", "N", "-1", -1, 1e7, NULL, NULL,
     "Tokens ahead of the prompt that all requests of a group share (the stable part of an agent); -1 is "
     "what the "
     "workload has, 0 for random."},
    {"prefix-groups", OPTION_INT, AT(prefix_groups), "Workload", "K", "1", 1, 1e6, NULL, NULL,
     "Different shared prefixes."},
    {"turns", OPTION_INT, AT(turns), "Workload", "N", "0", 0, 1000, NULL, NULL,
     "Turns of a conversation (chat: 5, agent: 8)."},
    {"think-time", OPTION_FLOAT, AT(think_s), "Workload", "SECONDS", "-1", -1, 1e5, NULL, NULL,
     "Between an answer and the next turn; -1 is what the workload has (chat: 1)."},
    {"file", OPTION_STRING, AT(file), "Workload", "FILE", NULL, 0, 0, NULL, NULL,
     "The file of sharegpt (JSON), batch (OpenAI's JSON lines) or trace."},
    {"trace-format", OPTION_CHOICE, AT(trace_format), "Workload", "NAME", "auto", 0, 0,
     "auto|azure|mooncake|burstgpt", NULL, "Format of a trace; auto looks at its first line."},
    {"time-scale", OPTION_FLOAT, AT(time_scale), "Workload", "F", "1", 1e-6, 1e6, NULL, NULL,
     "A trace is replayed this many times as fast."},
    {"model", OPTION_STRING, AT(model), "Requests", "NAME", NULL, 0, 0, NULL, NULL,
     "Model to ask for; the first of /v1/models if not given."},
    {"api-key", OPTION_STRING, AT(api_key), "Requests", "KEY", NULL, 0, 0, NULL, "QUIRE_API_KEY",
     "Key that requests bring."},
    {"ca-cert", OPTION_STRING, AT(ca_cert), "Requests", "FILE", NULL, 0, 0, NULL, NULL,
     "Authorities (PEM) that an https server's certificate must come from; those of the system if not "
     "given."},
    {"insecure", OPTION_BOOL, AT(insecure), "Requests", NULL, "false", 0, 0, NULL, NULL,
     "Accept any certificate of an https server."},
    {"endpoint", OPTION_CHOICE, AT(endpoint), "Requests", "NAME", NULL, 0, 0, "chat|completions", NULL,
     "Which API is used; completions for random, rag and trace, chat for the others."},
    {"ignore-eos", OPTION_BOOL, AT(ignore_eos), "Requests", NULL, "true", 0, 0, NULL, NULL,
     "Ask for answers of exactly the length, past the end-of-sequence token (ignore_eos of vLLM, SGLang, "
     "llama.cpp and "
     "Quire). Not for tools, json and batch."},
    {"temperature", OPTION_FLOAT, AT(temperature), "Requests", "T", "0", 0, 10, NULL, NULL,
     "Sampling temperature; the server's own if not given."},
    {"extra-body", OPTION_STRING, AT(extra_body), "Requests", "JSON", NULL, 0, 0, NULL, NULL,
     "A JSON object whose members are added to each request."},
    {"timeout", OPTION_FLOAT, AT(timeout_s), "Requests", "SECONDS", "3600", 0.1, 1e6, NULL, NULL,
     "A request that takes longer has failed."},
    {"slo", OPTION_STRING, AT(slo), "Report", "LIST", NULL, 0, 0, NULL, NULL,
     "What makes a request good, in milliseconds: ttft:1000,tpot:50,itl:200,e2e:30000 or some of them; itl "
     "is the longest time between two messages of an answer."},
    {"price", OPTION_STRING, AT(price), "Report", "P/h", NULL, 0, 0, NULL, NULL,
     "Price of the server for an hour, like 2.00/h; gives the cost of a million tokens."},
    {"json", OPTION_STRING, AT(json), "Report", "FILE", NULL, 0, 0, NULL, NULL,
     "All figures and requests as JSON; docs/bench.md says what the fields are."},
    {"csv", OPTION_STRING, AT(csv), "Report", "FILE", NULL, 0, 0, NULL, NULL,
     "A row for each point and repeat."},
    {"html", OPTION_STRING, AT(html), "Report", "FILE", NULL, 0, 0, NULL, NULL,
     "One page with charts; it needs no network."},
    {"label", OPTION_STRING, AT(label), "Report", "TEXT", NULL, 0, 0, NULL, NULL,
     "A name for this measurement, shown in reports and comparisons."},
    {"records", OPTION_BOOL, AT(records), "Report", NULL, "true", 0, 0, NULL, NULL,
     "Put every request into the JSON."},
    {"interval", OPTION_FLOAT, AT(interval_s), "Report", "SECONDS", "1", 0.01, 3600, NULL, NULL,
     "Time between two looks at the server's metrics and at this machine."},
    {"progress", OPTION_BOOL, AT(progress), "Report", NULL, "true", 0, 0, NULL, NULL,
     "Show progress where standard error is a terminal."},
    {0},
};

size_t load_option_rows(struct option *table, const char *const *without) {
    size_t n = 0;
    for (const struct option *row = load_option_table; row->name; row++) {
        const char *const *w = without;
        while (*w && strcmp(*w, row->name)) w++;
        if (!*w) table[n++] = *row;
    }
    return n;
}

int load_option_defaults(struct load_options *o, struct error *err) {
    struct options_state *state = NULL; /* none of the values is its own */
    int n = 0, rc = options_parse(load_option_table, 0, NULL, &n, o, NULL, &state, err);
    options_free(state);
    o->progress = false;
    return rc;
}

static const char ABOUT_SERVE[] = "Puts load on any server with OpenAI's API (Quire, vLLM, SGLang, "
                                  "llama.cpp, ...) and reports latency, throughput, cost.";

static volatile int interrupted;

static void on_interrupt(int signal) {
    if (interrupted) _Exit(130); /* a second time: now */
    interrupted = 1;
}

const volatile int *bench_catch_interrupts(void) {
    struct sigaction action = {.sa_handler = on_interrupt}, ignore = {.sa_handler = SIG_IGN};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGHUP, &action, NULL);
    sigaction(SIGPIPE, &ignore, NULL);
    return &interrupted;
}

static int run_serve(struct load_options *o, struct error *err) {
    bool measured = false;
    return load_serve(o, bench_catch_interrupts(), stdout, &measured, err);
}

int bench_serve_command(int argc, char **argv) {
    struct load_options o = {0};
    struct options_state *state = NULL;
    struct error err = {0};
    int n = 0, rc = cli_options("bench serve", "URL [options]", ABOUT_SERVE, load_option_table, argc, argv,
                                &n, &o, &state);
    if (rc >= 0) return rc;
    if (n != 1) {
        rc = error_set(&err, QUIRE_EINVAL,
                       n ? "one server is measured at a time, \"%.60s\" is one too many"
                         : "which server? quire bench serve URL [options]%s",
                       n ? argv[2] : "");
    } else {
        o.url = argv[1];
        o.has_temperature = options_given(state, "temperature");
        o.has_turns = options_given(state, "turns");
        rc = run_serve(&o, &err);
    }
    options_free(state);
    return rc ? cli_fail("bench serve", &err) : EXIT_OK;
}

struct compare_options {
    const char *json;
};

static const struct option compare_table[] = {
    {"json", OPTION_STRING, offsetof(struct compare_options, json), "Report", "FILE", NULL, 0, 0, NULL, NULL,
     "The comparison as JSON, too; docs/bench.md says what the fields are."},
    {0},
};

static const char ABOUT_COMPARE[] = "Compares measurements of `quire bench serve --json`: the first file is "
                                    "the baseline. Changes have 95 % intervals.";

int bench_compare_command(int argc, char **argv) {
    struct compare_options o = {0};
    struct options_state *state = NULL;
    struct error err = {0};
    int n = 0, rc = cli_options("bench compare", "A.json B.json ... [options]", ABOUT_COMPARE, compare_table,
                                argc, argv, &n, &o, &state);
    if (rc >= 0) return rc;
    rc = n < 2 ? error_set(&err, QUIRE_EINVAL,
                           "two files or more are compared: quire bench compare A.json B.json ...")
               : load_compare((const char *const *)argv + 1, (size_t)n, o.json, stdout, &err);
    options_free(state);
    return rc ? cli_fail("bench compare", &err) : EXIT_OK;
}
