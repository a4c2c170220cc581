/* quire bench ablation MODEL: what each step of serving gives, a server for each row. */
#include "cli/ablation_rows.h"
#include "cli/bench.h"

#include "backend/cpu/cores.h"
#include "base/error.h"
#include "bench/limits.h"
#include "eval/eval.h"
#include "model/spec.h"
#include "weights/gguf_bf16.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct ablation_options {
    struct engine_options engine;
    struct load_options load;
    double within, headroom, answer_scale;
    int64_t max_streams, windows, kv_sequences;
    const char *quantized;
};

#define AT(member) offsetof(struct ablation_options, member)

static const struct option own_rows[] = {
    {"seconds", OPTION_FLOAT, AT(load.duration_s), "Load", "S", "20", 0.1, 86400, NULL, NULL,
     "How long requests are sent in each repeat; at each load that is tried on the way half as long."},
    {"repeat", OPTION_INT, AT(load.repeat), "Load", "N", "3", 1, 100, NULL, NULL,
     "How often each row is measured at its load, in rounds over all rows."},
    {"max-streams", OPTION_INT, AT(max_streams), "Load", "N", "64", 1, 4096, NULL, NULL,
     "Most streams that are tried."},
    {"slo", OPTION_STRING, AT(load.slo), "Load", "LIST", NULL, 0, 0, NULL, NULL,
     "The limits, in milliseconds, for all rows: ttft:1000,tpot:50,itl:200,e2e:30000 or some of them. If not "
     "given, they come from what an untrimmed question alone takes on the first row, and --headroom."},
    {"headroom", OPTION_FLOAT, AT(headroom), "Load", "F", "10", 1, 1000, NULL, NULL,
     "Without --slo: TTFT and TPOT may be so many times those of a question alone, and the longest time "
     "between two messages 2.5 times as many times its TPOT."},
    {"within", OPTION_FLOAT, AT(within), "Load", "SHARE", "0.9", 0.01, 1, NULL, NULL,
     "Share of the requests that must be within the limits."},
    {"scale", OPTION_FLOAT, AT(load.scale), "Load", "F", "0", 0, 100, NULL, NULL,
     "Factor on all lengths in tokens; 0 is the largest of 1, 0.5, 0.2, 0.1, 0.05, 0.02 whose prompts the "
     "model's "
     "context holds."},
    {"answer-scale", OPTION_FLOAT, AT(answer_scale), "Load", "F", "0", 0, 100, NULL, NULL,
     "Factor on the lengths of answers; 0 is five times --scale, at most 1."},
    {"seed", OPTION_INT, AT(load.seed), "Load", "N", "0", 0, 9e15, NULL, NULL,
     "The same seed makes the same requests."},
    {"quantized", OPTION_STRING, AT(quantized), "Model", "MODEL", NULL, 0, 0, NULL, NULL,
     "The quantized form of MODEL, for the row of that step. If not given and MODEL is quantized, the rows "
     "before get "
     "a bfloat16 model made from it."},
    {"kv-sequences", OPTION_INT, AT(kv_sequences), "Memory", "N", "4", 1, 4096, NULL, NULL,
     "KV memory of all rows, in sequences of max-model-len, unless --kv-cache-memory-bytes says it."},
    {"quality-windows", OPTION_INT, AT(windows), "Report", "N", "8", 0, 1000000, NULL, NULL,
     "Windows of 512 tokens of the built-in text that perplexity is taken over; 0: none is measured."},
    {"price", OPTION_STRING, AT(load.price), "Report", "P/h", NULL, 0, 0, NULL, NULL,
     "Price of the machine for an hour, like 2.00/h; without it costs are in percent of the first row's."},
    {"json", OPTION_STRING, AT(load.json), "Report", "FILE", NULL, 0, 0, NULL, NULL,
     "All figures as JSON; docs/bench.md says what the fields are."},
    {"csv", OPTION_STRING, AT(load.csv), "Report", "FILE", NULL, 0, 0, NULL, NULL, "A line for each row."},
    {"html", OPTION_STRING, AT(load.html), "Report", "FILE", NULL, 0, 0, NULL, NULL,
     "One page with charts; it needs no network."},
    {"label", OPTION_STRING, AT(load.label), "Report", "TEXT", NULL, 0, 0, NULL, NULL,
     "A name for this measurement, shown in reports."},
    {"progress", OPTION_BOOL, AT(load.progress), "Report", NULL, "true", 0, 0, NULL, NULL,
     "Show progress where standard error is a terminal."},
};
#define N_OWN (sizeof own_rows / sizeof *own_rows)

static const char ABOUT[] = "What each step of serving gives: a server of our own for each row, one change a "
                            "row, the same load and limits.";

/* The rows' own, and what has no meaning here. */
static bool is_left_out(const char *name) {
    static const char *const names[] = {"baseline-static", "enable-chunked-prefill", "enable-prefix-caching",
                                        "seed", "cache-secret"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(names[i], name)) return true;
    return false;
}

static size_t engine_rows(struct option *table) {
    struct option all[ENGINE_OPTION_ROWS];
    size_t n = engine_option_rows(all, AT(engine)), kept = 0;
    for (size_t i = 0; i < n; i++)
        if (!is_left_out(all[i].name)) table[kept++] = all[i];
    return kept;
}

/* ---- what all servers get ---- */

struct common {
    char *args[ENGINE_OPTION_ROWS + 1]; /* malloc'd, ended by NULL */
};

static int common_args(const struct ablation_options *o, const struct options_state *given, struct common *c,
                       struct error *err) {
    struct option rows[ENGINE_OPTION_ROWS];
    size_t n_rows = engine_rows(rows), n = 0;
    for (size_t i = 0; i < n_rows; i++) {
        const struct option *r = &rows[i];
        const char *at = (const char *)o + r->offset;
        if (!options_given(given, r->name) || !strcmp(r->name, "max-model-len") ||
            !strcmp(r->name, "max-num-batched-tokens"))
            continue;
        int length;
        if (r->type == OPTION_BOOL)
            length = asprintf(&c->args[n], "--%s%s", *(const bool *)at ? "" : "no-", r->name);
        else if (r->type == OPTION_INT)
            length = asprintf(&c->args[n], "--%s=%lld", r->name, (long long)*(const int64_t *)at);
        else if (r->type == OPTION_FLOAT)
            length = asprintf(&c->args[n], "--%s=%.17g", r->name, *(const double *)at);
        else
            length = asprintf(&c->args[n], "--%s=%s", r->name, *(const char *const *)at);
        if (length < 0) return error_set(err, QUIRE_ENOMEM, "out of memory");
        n++;
    }
    return 0;
}

/* ---- the model ---- */

struct models {
    char *path; /* of MODEL */
    struct weights *weights;
    struct model_spec spec;
    FILE *plain; /* bfloat16, made here; has no name, so it goes with this process */
    char plain_path[64];
};

static int make_plain(struct models *m, struct error *err) {
    const char *folder = getenv("TMPDIR");
    char path[512];
    snprintf(path, sizeof path, "%s/quire-bf16-XXXXXX", folder && *folder ? folder : "/tmp");
    int fd = mkstemp(path);
    if (fd >= 0) unlink(path);
    m->plain = fd >= 0 ? fdopen(fd, "r+b") : NULL;
    if (!m->plain)
        return error_set(err, QUIRE_EIO, "no temporary file %.200s (TMPDIR): %s", path, strerror(errno));
    snprintf(m->plain_path, sizeof m->plain_path, "/proc/%d/fd/%d", (int)getpid(), fd);
    fprintf(stderr, "writing the model as bfloat16\n");
    return gguf_bf16_write(m->weights, fd, err);
}

static int open_models(const struct ablation_options *o, const char *argument, struct models *m,
                       struct error *err) {
    int rc = model_find(argument, &m->path, err);
    if (!rc) rc = weights_open(m->path, &m->weights, err);
    if (!rc) rc = model_spec_read(m->weights, &m->spec, err);
    if (!rc && m->spec.encoder)
        rc = error_set(err, QUIRE_EUNSUPPORTED, "%.200s makes vectors; answers are measured here", argument);
    if (!rc && !o->quantized && !weights_folder(m->weights) && gguf_bf16_quantized(m->weights))
        rc = make_plain(m, err);
    return rc;
}

static void close_models(struct models *m) {
    if (m->plain) fclose(m->plain);
    weights_close(m->weights);
    free(m->path);
}

/* ---- lengths ---- */

#define ANSWERS 5 /* times the scale: see docs/metrics.md */

static double answer_scale(const struct ablation_options *o) {
    if (o->answer_scale > 0) return o->answer_scale;
    return o->load.scale < 1.0 / ANSWERS ? ANSWERS * o->load.scale : fmax(1, o->load.scale);
}

/* Tokens that the longest sequence needs at this scale. */
static int needed(const struct ablation_options *a, size_t *tokens, struct error *err) {
    const struct load_options *o = &a->load;
    struct plan *p = calloc(1, sizeof *p);
    struct ablation_mix mix;
    int rc = p ? plan_options(o, p, err) : error_set(err, QUIRE_ENOMEM, "out of memory");
    if (!rc) rc = ablation_mix_make(p, "rag20", answer_scale(a), &mix, err);
    *tokens = 0;
    for (size_t i = 0; i < mix.n && !rc; i++) {
        size_t n = (size_t)workload_most_tokens(&mix.specs[i]) + 64; /* and what a server adds to a prompt */
        if (n > *tokens) *tokens = n;
    }
    if (p) plan_free(p);
    free(p);
    return rc;
}

static int choose_lengths(struct ablation_options *o, const struct models *m, size_t *max_model_len,
                          struct error *err) {
    static const double scales[] = {1, 0.5, 0.2, 0.1, 0.05, 0.02};
    size_t n = sizeof scales / sizeof *scales, need = 0;
    size_t most = o->engine.max_model_len ? (size_t)o->engine.max_model_len : m->spec.context_len;
    bool given = o->load.scale > 0;
    int rc = 0;
    for (size_t i = 0; i < (given ? 1 : n); i++) {
        if (!given) o->load.scale = scales[i];
        if ((rc = needed(o, &need, err))) return rc;
        if (need <= most) break;
    }
    if (need > most)
        return error_set(err, QUIRE_EINVAL, "--scale %g needs sequences of %zu tokens, %s has %zu",
                         o->load.scale, need, o->engine.max_model_len ? "--max-model-len" : "the model",
                         most);
    *max_model_len = o->engine.max_model_len ? most : need;
    return 0;
}

/* Room for as many of the longest sequences as a device might have, so that reserving it costs something. */
static void choose_kv(const struct ablation_options *o, const struct models *m, struct ablation_servers *s) {
    bool wide = !strcmp(o->engine.dtype, "float32") || !strcmp(o->engine.dtype, "float");
    if (o->engine.kv_bytes) return;
    size_t block = (size_t)o->engine.block_size;
    size_t tokens = (s->max_model_len + block - 1) / block * block * (size_t)o->kv_sequences + block;
    s->kv_bytes = tokens * model_kv_bytes_per_token(&m->spec, wide ? BACKEND_F32 : BACKEND_BF16);
}

/* ---- quality ---- */

static const volatile int *stop_flag;

static bool stopped(void *ctx) {
    return *stop_flag;
}

/* 0 with *value 0 when it was interrupted. */
static int perplexity_of(const struct ablation_options *o, const char *model, double *value,
                         struct error *err) {
    struct engine_options e = o->engine;
    struct loaded_model m;
    struct log log = {stderr, LOG_WARN};
    char *text = NULL;
    size_t size = 0;
    *value = 0;
    if (!o->windows) return 0;
    e.max_model_len = 512;
    e.max_num_batched_tokens = 2048;
    e.chunked_prefill = e.prefix_caching = true;
    e.baseline_static = "none";
    e.kv_bytes = 0;
    e.max_num_seqs = 8;
    int rc = loaded_model_open(model, &e, &log, &m, err);
    if (rc) return rc;
    FILE *out = open_memstream(&text, &size);
    struct eval_local local = {m.engine, m.text.tokenizer, m.text.chat_template, m.text.bos_token,
                               m.text.eos_token};
    struct eval_context c = {.model = "model", .local = &local, .stopped = stopped, .out = out};
    struct eval_perplexity job = {eval_default_text(), 512, 0, (size_t)o->windows};
    rc = out ? eval_perplexity(&c, &job, err) : error_set(err, QUIRE_ENOMEM, "out of memory");
    if (out) fclose(out);
    const char *line = !rc && text ? strstr(text, "perplexity ") : NULL;
    if (line) sscanf(line, "perplexity %lf", value);
    free(text);
    loaded_model_close(&m);
    return rc < 0 ? rc : 0;
}

static int judge(const struct ablation_options *o, const struct models *m, const struct ablation_servers *s,
                 struct ablation_rows *rows, struct error *err) {
    double value[2] = {0};
    int rc = perplexity_of(o, s->quantized, &value[1], err);
    if (!rc && s->plain) rc = perplexity_of(o, s->plain, &value[0], err);
    for (size_t i = 0; i < rows->n && !rc; i++) {
        struct ablation_row *r = &rows->rows[i];
        bool second = rows->quantized[i] || !s->plain,
             first_of_second = s->plain && rows->quantized[i] && (!i || !rows->quantized[i - 1]);
        r->perplexity = value[second];
        char ppl[40] = "";
        if (r->perplexity > 0) snprintf(ppl, sizeof ppl, "perplexity %.3f", r->perplexity);
        const char *more =
            rows->trimmed[i] ? "what trimming costs cannot be shown: the documents are random words"
            : first_of_second && m->plain
                ? "what quantizing took cannot be shown: the bfloat16 model was made from this one"
                : "";
        snprintf(r->quality, sizeof r->quality, "%s%s%s", ppl, *ppl && *more ? "; " : "", more);
    }
    return rc;
}

/* ---- the run ---- */

static void describe_machine(const struct ablation_options *o, char *text, size_t cap) {
    char name[64];
    double load[1] = {0};
    const struct kern *kern = kern_select(o->engine.cpu);
    cpu_name(name);
    if (getloadavg(load, 1) < 1) load[0] = NAN;
    size_t threads = o->engine.threads ? (size_t)o->engine.threads : cores_available();
    snprintf(text, cap, "%s, %s, %zu thread%s, %s; load average %.1f at the start", name,
             kern ? kern->name : "?", threads, threads == 1 ? "" : "s", o->engine.dtype, load[0]);
}

static void take_notes(const struct ablation_options *o, const struct ablation_servers *s,
                       const struct models *m, struct ablation *a) {
    char kv[80];
    if (o->engine.kv_bytes)
        snprintf(kv, sizeof kv, "as given: %lld bytes", (long long)o->engine.kv_bytes);
    else
        snprintf(kv, sizeof kv, "for %lld such sequences: %zu bytes", (long long)o->kv_sequences,
                 s->kv_bytes);
    snprintf(
        a->notes[0], sizeof a->notes[0],
        "sessions in turn: a question with 20 documents, an agent of 8 steps, a conversation of 5 turns; "
        "sequences of up to %zu tokens; KV memory %s",
        s->max_model_len, kv);
    if (m->plain)
        snprintf(a->notes[1], sizeof a->notes[1], "the bfloat16 model was made from the quantized one");
    else if (!s->plain)
        snprintf(a->notes[1], sizeof a->notes[1],
                 "no row of quantized weights: the model is not quantized, and --quantized names none");
    snprintf(a->notes[2], sizeof a->notes[2],
             "each row's streams were found first; then all rows were measured in rounds, there and back. "
             "Gains are "
             "between medians; the intervals hold with 95 %%");
}

static int run(struct ablation_options *o, const char *argument, const struct options_state *given,
               struct error *err) {
    struct models m = {0};
    struct common common = {0};
    struct ablation_rows *rows = calloc(1, sizeof *rows);
    char machine[200];
    stop_flag = bench_catch_interrupts();
    struct ablation_servers s = {
        .name = argument, .common = common.args, .budget = (size_t)o->engine.max_num_batched_tokens};
    int rc = rows ? open_models(o, argument, &m, err) : error_set(err, QUIRE_ENOMEM, "out of memory");
    if (!rc) rc = choose_lengths(o, &m, &s.max_model_len, err);
    choose_kv(o, &m, &s);
    if (!rc) rc = common_args(o, given, &common, err);
    s.quantized = o->quantized ? o->quantized : argument;
    s.plain = o->quantized ? argument : m.plain ? m.plain_path : NULL;
    if (!rc) rc = ablation_rows_make(&s, rows, err);
    describe_machine(o, machine, sizeof machine);
    if (!rc) rc = judge(o, &m, &s, rows, err);
    if (!rc && *stop_flag) rc = error_set(err, QUIRE_ECANCELED, "interrupted before the first row");
    if (!rc) {
        struct ablation a = {.rows = rows->rows,
                             .n_rows = rows->n,
                             .o = &o->load,
                             .within = o->within,
                             .headroom = o->headroom,
                             .look_s = o->load.duration_s / 2,
                             .answer_scale = answer_scale(o),
                             .max_streams = (size_t)o->max_streams,
                             .model = argument,
                             .machine = machine};
        take_notes(o, &s, &m, &a);
        rc = load_ablation(&a, stop_flag, stdout, err);
    }
    if (rows) ablation_rows_free(rows);
    free(rows);
    for (size_t i = 0; common.args[i]; i++) free(common.args[i]);
    close_models(&m);
    return rc;
}

int bench_ablation_command(int argc, char **argv) {
    struct ablation_options o = {0};
    struct option table[N_OWN + ENGINE_OPTION_ROWS + 1] = {0};
    struct options_state *state = NULL;
    struct error err = {0};
    int n = 0, rc = load_option_defaults(&o.load, &err);
    if (rc) return cli_fail("bench ablation", &err);
    memcpy(table, own_rows, sizeof own_rows);
    engine_rows(table + N_OWN);
    rc = cli_options("bench ablation", "MODEL [options]", ABOUT, table, argc, argv, &n, &o, &state);
    if (rc >= 0) return rc;
    o.load.has_temperature = true;
    if (n != 1)
        rc = error_set(&err, QUIRE_EINVAL,
                       n ? "one model is measured, \"%.60s\" is one too many"
                         : "which model? quire "
                           "bench ablation MODEL [options]%s",
                       n ? argv[2] : "");
    else
        rc = run(&o, argv[1], state, &err);
    options_free(state);
    return rc ? cli_fail("bench ablation", &err) : EXIT_OK;
}
