/* quire plan MODEL: what a model needs, before anything is started. */
#include "cli/bench.h"
#include "cli/cli.h"
#include "cli/plan_player.h"

#include "base/error.h"
#include "load/summary.h"
#include "plan/forecast.h"
#include "plan/machine.h"
#include "plan/source.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct plan_options {
    struct engine_options engine;
    int64_t concurrency, context, device_memory, input, output;
    const char *weight_format, *machine, *device, *slo, *price;
    const char *calibration, *save, *check;
    double rate, calibrate_s;
    bool json, calibrate;
};

#define AT(member) offsetof(struct plan_options, member)

static const struct option own_rows[] = {
    {"concurrency", OPTION_INT, AT(concurrency), "Plan", "N", "0", 0, 4096, NULL, NULL,
     "Sequences that are to have KV memory at the same time, and max-num-seqs unless it is given; 0: that "
     "all "
     "have it is not asked for."},
    {"weight-format", OPTION_STRING, AT(weight_format), "Plan", "FORMAT", NULL, 0, 0, NULL, NULL,
     "Plan for weights in this format: bf16, q8_0, q4_k_m, ...; as the model's files have it if not given, "
     "and bf16 "
     "for a config.json without any."},
    {"context", OPTION_INT, AT(context), "Plan", "N", "0", 0, 1 << 30, NULL, NULL,
     "The same as max-model-len."},
    {"device", OPTION_STRING, AT(device), "Plan", "NAME", NULL, 0, 0, NULL, NULL,
     "Plan for this device instead of this machine: a100, h100, h200, b200, l4, l40s, a10, rtx-4090, mi300x, or a "
     "processor; "
     "docs/plan.md has the table."},
    {"device-memory", OPTION_INT, AT(device_memory), "Plan", "BYTES", "0", 0, 9e18, NULL, NULL,
     "Memory there is to plan for, 80G for example; 0 is the device's, or what is available here."},
    {"machine", OPTION_CHOICE, AT(machine), "Plan", "this", "this", 0, 0, "this", NULL,
     "This machine is planned for unless a device or its memory is named."},
    {"input", OPTION_INT, AT(input), "Speed and cost", "N", "512", 1, 1 << 30, NULL, NULL,
     "Tokens of a prompt."},
    {"output", OPTION_INT, AT(output), "Speed and cost", "N", "256", 1, 1 << 30, NULL, NULL,
     "Tokens of an answer."},
    {"rate", OPTION_FLOAT, AT(rate), "Speed and cost", "R", "0", 0, 1e9, NULL, NULL,
     "Requests a second that replicas are counted for; 0 is none."},
    {"slo", OPTION_STRING, AT(slo), "Speed and cost", "LIST", NULL, 0, 0, NULL, NULL,
     "Most milliseconds to the first token and between tokens: ttft:1000,tpot:50 or one of them. Streams are "
     "as many as keep "
     "to it."},
    {"price", OPTION_STRING, AT(price), "Speed and cost", "P/h", NULL, 0, 0, NULL, NULL,
     "Price of the machine for an hour, like 2.00/h; gives the cost of a million tokens."},
    {"calibration", OPTION_STRING, AT(calibration), "Speed of this machine", "FILE,...", NULL, 0, 0, NULL,
     NULL,
     "Forecast with the step times in this file of `quire simulate MODEL --save FILE` (or of --save here); "
     "of "
     "several the mean."},
    {"calibrate", OPTION_BOOL, AT(calibrate), "Speed of this machine", NULL, "false", 0, 0, NULL, NULL,
     "Measure the step times now; the weights have to be there."},
    {"calibrate-seconds", OPTION_FLOAT, AT(calibrate_s), "Speed of this machine", "SECONDS", "45", 1, 3600,
     NULL, NULL, "How long --calibrate measures the model's steps; the API around them takes about 15 more."},
    {"save", OPTION_STRING, AT(save), "Speed of this machine", "FILE", NULL, 0, 0, NULL, NULL,
     "Keep what --calibrate has measured, for --calibration later."},
    {"check", OPTION_STRING, AT(check), "Speed of this machine", "FILE,...", NULL, 0, 0, NULL, NULL,
     "Reports of `quire bench serve --json` of the same streams and lengths, or one of `quire bench engine "
     "--json`: the median of what was measured, over all repeats, beside what is forecast."},
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

/* Shares of the published figures that are counted on; docs/plan.md says why. */
#define READ_SHARE 0.8
#define OPS_SHARE  0.5

static int read_device(const struct plan_options *o, struct forecast_ask *ask, struct error *err) {
    const struct machine *m = NULL;
    int rc = o->device ? machine_find(o->device, &m, err) : 0;
    if (rc) return rc;
    if (m && m->is_cpu && !o->device_memory)
        return error_set(err, QUIRE_EINVAL,
                         "--device %s has as much memory as is put into it: say --device-memory", m->name);
    ask->device.memory_bytes = o->device_memory ? (uint64_t)o->device_memory : m ? m->memory_bytes : 0;
    ask->device.name = m ? m->label : "--device-memory";
    if (!m) return 0;
    if (!m->is_cpu) {
        ask->device.paper = &machine_paper;
        ask->device.context_bytes = MACHINE_CONTEXT_BYTES;
    }
    ask->machine = (struct forecast_machine){.label = m->label,
                                             .read_per_s = m->read_per_s,
                                             .ops_per_s = m->ops_per_s,
                                             .read_share = READ_SHARE,
                                             .ops_share = OPS_SHARE};
    return 0;
}

static int read_slo(const char *text, struct forecast_ask *ask, struct error *err) {
    struct slo slo = {0};
    int rc = slo_parse(text, &slo, err);
    if (!rc && (slo.e2e_ms > 0 || slo.itl_ms > 0))
        rc = error_set(err, QUIRE_EINVAL, "--slo \"%.80s\": a plan takes ttft and tpot", text);
    ask->slo_ttft_s = slo.ttft_ms / 1e3;
    ask->slo_tpot_s = slo.tpot_ms / 1e3;
    return rc;
}

static bool wants_player(const struct plan_options *o) {
    return o->calibrate || o->calibration;
}

static int read_ask(struct plan_options *o, struct forecast_ask *ask, struct error *err) {
    ask->n_input = (size_t)o->input;
    ask->n_output = (size_t)o->output;
    ask->rate = o->rate;
    ask->concurrency = (size_t)o->concurrency;
    if (o->context && o->engine.max_model_len && o->context != o->engine.max_model_len)
        return error_set(err, QUIRE_EINVAL,
                         "--context is %lld and --max-model-len, which means the same, %lld",
                         (long long)o->context, (long long)o->engine.max_model_len);
    if (o->context) o->engine.max_model_len = o->context;
    int rc = o->slo ? read_slo(o->slo, ask, err) : 0;
    if (!rc && o->price) rc = price_parse(o->price, &ask->price_per_hour, err);
    if (!rc) rc = read_device(o, ask, err);
    if (!rc && !(ask->machine.read_per_s > 0) && !wants_player(o) && (o->slo || o->price || o->rate > 0))
        rc = error_set(err, QUIRE_EINVAL,
                       "--slo, --rate and --price need a --device whose speed is known, or for this machine "
                       "--calibrate or "
                       "--calibration FILE");
    return rc;
}

/* ---- this machine's speed ---- */

static int check_calibration(const struct plan_options *o, const struct options_state *given,
                             struct error *err) {
    if (o->calibration && o->calibrate)
        return error_set(err, QUIRE_EINVAL,
                         "--calibration %.200s is there, so --calibrate is not needed: one of them",
                         o->calibration);
    if (wants_player(o) && o->device)
        return error_set(err, QUIRE_EINVAL, "--%s is of this machine, and --device %.60s is planned",
                         o->calibrate ? "calibrate" : "calibration", o->device);
    if (o->check && !wants_player(o))
        return error_set(err, QUIRE_EINVAL,
                         "--check needs a forecast of this machine: --calibration FILE or --calibrate");
    if (!o->calibrate && (o->save || options_given(given, "calibrate-seconds")))
        return error_set(err, QUIRE_EINVAL, "--%s is for --calibrate",
                         o->save ? "save" : "calibrate-seconds");
    return 0;
}

static int open_player(const char *argument, const struct plan_options *o, const struct plan_source *source,
                       struct forecast_ask *ask, struct plan_player *p, struct error *err) {
    if (!wants_player(o)) return 0;
    const volatile int *interrupted = bench_catch_interrupts();
    if (o->calibrate && source->format)
        return error_set(
            err, QUIRE_EINVAL,
            "--calibrate measures weights that are there; planned is a description of them as %s",
            source->format);
    int rc = o->calibrate ? calibrate_and_save(argument, &o->engine, o->calibrate_s, o->save, interrupted,
                                               &p->cal, err)
                          : calibration_read_all("--calibration", o->calibration, &p->cal, err);
    if (rc) return rc;
    plan_player_init(p, o->calibration, ask, o->slo, interrupted);
    ask->player = &p->player;
    ask->machine = (struct forecast_machine){.label = p->cal.machine, .measured = true};
    return 0;
}

static int check_forecast(const struct plan_options *o, struct plan_player *p, struct forecast *f,
                          struct error *err) {
    if (!o->check || f->refusal.code) return 0; /* what does not fit is told instead */
    if (!f->speed.known)
        return error_set(err, QUIRE_EINVAL,
                         "--check: nothing is forecast, since no stream of %zu + %zu tokens fits",
                         p->ask->n_input, p->ask->n_output);
    return plan_player_check(p, o->check, f, err);
}

static int plan_model(const char *argument, struct plan_options *o, const struct options_state *given,
                      struct error *err) {
    char *path = NULL;
    struct plan_source source = {0};
    struct quire_config config;
    struct buf out = BUF_INIT;
    struct forecast *f = malloc(sizeof *f);
    struct plan_player player = {0};
    struct forecast_ask ask = {.model = argument, .config = &config};
    int rc = f ? check_calibration(o, given, err) : error_set(err, QUIRE_ENOMEM, "out of memory");
    if (!rc) rc = read_ask(o, &ask, err);
    if (!rc) rc = model_find_description(argument, &path, &ask.hub_bytes, err);
    if (!rc) rc = plan_source_open(path, o->weight_format, &source, err);
    if (!rc) rc = open_player(argument, o, &source, &ask, &player, err);
    if (!rc) {
        engine_config_of(&o->engine, source.weights, &config);
        ask.weight_format = source.format;
        rc = forecast_make(&ask, f, err);
        if (!rc) rc = check_forecast(o, &player, f, err);
        if (!rc) {
            if (o->json)
                forecast_json(&ask, f, &out);
            else
                forecast_text(&ask, f, &out);
            rc = write_out(&out, err);
        }
        if (!rc) rc = forecast_refuse(&ask, f, err);
    }
    buf_free(&out);
    plan_source_close(&source);
    free(path);
    free(f);
    return rc;
}

int cmd_plan(int argc, char **argv) {
    struct plan_options o = {
        .engine = {.policy = "fcfs", .baseline_static = "none", .generation_config = "auto"}};
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
    if (o.concurrency && !options_given(state, "max-num-seqs")) o.engine.max_num_seqs = o.concurrency;
    rc = n_args == 1
             ? plan_model(argv[1], &o, state, &err)
             : error_set(&err, QUIRE_EINVAL,
                         n_args ? "one model is planned at a time, \"%.60s\" is one too many"
                                : "no model given: quire plan MODEL, for example quire plan smollm2%s",
                         n_args ? argv[2] : "");
    options_free(state);
    return rc ? cli_fail("plan", &err) : EXIT_OK;
}
