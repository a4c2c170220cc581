/* quire bench engine MODEL: prefill and decode in this process, and their share of what the machine can do.
 */
#include "cli/bench.h"

#include "backend/cpu/cores.h"
#include "base/error.h"
#include "base/files.h"
#include "bench/engine_run.h"
#include "engine/meminfo.h"
#include "load/length.h"
#include "model/spec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LISTED_MAX 16
#define STEPS_MAX  ((size_t)1 << 16)

struct engine_bench_options {
    struct engine_options engine;
    const char *batch, *context, *json, *label;
    int64_t tokens, repeat;
    bool limits, progress;
};

#define AT(member) offsetof(struct engine_bench_options, member)

static const struct option own_rows[] = {
    {"batch", OPTION_STRING, AT(batch), "What", "N,...", NULL, 0, 0, NULL, NULL,
     "Sequences at a time. 1,8,32 if not given, as far as they fit."},
    {"context", OPTION_STRING, AT(context), "What", "N,...", NULL, 0, 0, NULL, NULL,
     "Tokens of each prompt; decoding goes on behind it. 128,1024 if not given, as far as they fit and take "
     "less "
     "than a minute."},
    {"tokens", OPTION_INT, AT(tokens), "What", "N", "32", 2, 1 << 20, NULL, NULL,
     "Steps of decoding that are measured."},
    {"repeat", OPTION_INT, AT(repeat), "What", "N", "3", 1, ENGINE_REPEATS_MAX, NULL, NULL,
     "How often each point is measured, with new prompts; the median is shown, the least and the most."},
    {"limits", OPTION_BOOL, AT(limits), "What", NULL, "true", 0, 0, NULL, NULL,
     "Measure what the machine can do first, for the shares; some seconds."},
    {"json", OPTION_STRING, AT(json), "Report", "FILE", NULL, 0, 0, NULL, NULL,
     "The figures as JSON, for `quire bench compare` too; docs/bench.md says what the fields are."},
    {"label", OPTION_STRING, AT(label), "Report", "TEXT", NULL, 0, 0, NULL, NULL,
     "A name for this measurement, shown in comparisons."},
    {"progress", OPTION_BOOL, AT(progress), "Report", NULL, "true", 0, 0, NULL, NULL,
     "Show progress where standard error is a terminal."},
};
#define N_OWN (sizeof own_rows / sizeof *own_rows)

static const char ABOUT[] =
    "Prefill and decode of MODEL in this process, at batch sizes and context lengths, with the "
    "times of a step's phases and the share of the machine's limits.";

/* ---- what a step takes at least ---- */

static bool is_quantized(const struct tensor *t) {
    return tensor_type_info(t->type)->block_elems > 1;
}

static enum bench_limit arithmetic_of(const struct kern *kern, bool quantized, const struct limit *limits) {
    if (kern->isa >= KERN_ISA_AMX) return quantized ? LIMIT_AMX_INT8 : LIMIT_AMX_BF16;
    if (quantized) return LIMIT_INT8;
    return limits[LIMIT_BF16_DOT].per_s > limits[LIMIT_F32].per_s ? LIMIT_BF16_DOT : LIMIT_F32;
}

/* Matrices as the file has them; of an embedding that is no output matrix a step reads only some rows. */
static struct engine_costs costs_of(const struct loaded_model *m, const struct model_spec *spec,
                                    const struct kern *kern, const struct limit *limits) {
    const struct quire_info *info = quire_info(m->engine);
    struct engine_costs c = {.kv_bytes = (double)info->kv_bytes_per_token,
                             .attended_ops = 4.0 * (double)(spec->n_heads * spec->head_dim * spec->n_layers)};
    double quantized = 0, all = 0;
    for (size_t i = 0; i < weights_n_tensors(m->weights); i++) {
        const struct tensor *t = weights_tensor_at(m->weights, i);
        bool embedding = !strcmp(t->name, "token_embd.weight"), output = !strcmp(t->name, "output.weight");
        double ops = 2.0 * (double)t->dims[0] * (double)tensor_rows(t);
        if (embedding && !spec->tied_output) continue;
        c.weight_bytes += (double)t->bytes;
        if (t->n_dims < 2) continue;
        all += ops;
        if (is_quantized(t)) quantized += ops;
        if (embedding || output)
            c.logit_ops += ops;
        else
            c.row_ops += ops;
    }
    c.ops_limit = arithmetic_of(kern, 2 * quantized > all, limits);
    if (spec->experts.n) c.unknown = "what a step reads of experts depends on its rows";
    for (size_t g = 0; g < spec->n_kv_groups; g++)
        if (spec->kv_groups[g].window && spec->kv_groups[g].window < info->max_model_len)
            c.unknown = "windows: positions attended are not counted";
    return c;
}

/* ---- the run ---- */

static int read_lists(const struct engine_bench_options *o, double *batches, double *contexts,
                      struct engine_run *r, struct error *err) {
    int rc = numbers_parse("--batch", o->batch ? o->batch : "1,8,32", 1, 4096, true, batches, LISTED_MAX,
                           &r->n_batches, err);
    if (!rc)
        rc = numbers_parse("--context", o->context ? o->context : "128,1024", 1, 1 << 24, true, contexts,
                           LISTED_MAX, &r->n_contexts, err);
    r->batches = batches;
    r->contexts = contexts;
    r->chosen = o->batch || o->context;
    return rc;
}

static void print_machine(const struct engine_run *r) {
    const struct quire_info *i = quire_info(r->engine);
    char name[64];
    cpu_name(name);
    fprintf(r->out, "%s: %s, %s, %zu thread%s, %s\n", r->model, name, i->cpu_path, i->n_threads,
            i->n_threads == 1 ? "" : "s", i->dtype_name);
    for (int l = 0; l < LIMITS; l++) {
        bool used = l == (int)r->costs.ops_limit || l == LIMIT_READ_94MB || l == LIMIT_READ_2GB;
        if (!used || !(r->limits[l].per_s > 0)) continue;
        fprintf(r->out, "%s: %.1f %s\n", limit_infos[l].about, r->limits[l].per_s / 1e9,
                limit_infos[l].is_read ? "GB/s" : "GOP/s");
    }
    fprintf(r->out, "\n");
}

static int open_and_run(struct engine_bench_options *o, const char *argument, struct engine_run *r,
                        struct loaded_model *m, struct error *err) {
    struct log log = {stderr, LOG_WARN};
    struct meminfo memory = {0};
    struct model_spec *spec = calloc(1, sizeof *spec);
    const struct kern *kern = kern_select(o->engine.cpu);
    size_t threads = o->engine.threads ? (size_t)o->engine.threads : cores_available();
    int rc = spec ? drive_create(STEPS_MAX, &r->drive, err) : error_set(err, QUIRE_ENOMEM, "out of memory");
    if (!rc) o->engine.step_reader = drive_reader(r->drive);
    if (!rc) rc = loaded_model_open(argument, &o->engine, &log, m, err);
    if (!rc) rc = model_spec_read(m->weights, spec, err);
    if (!rc) {
        r->engine = m->engine;
        r->n_kv_groups = spec->n_kv_groups;
        rc = engine_check(r, err);
    }
    if (!rc && meminfo_read("", &memory)) rc = error_set(err, QUIRE_EIO, "/proc/meminfo cannot be read");
    if (!rc && o->limits)
        rc = engine_limits(kern, o->engine.cpu, threads, memory.available_bytes, r->limits, err);
    if (!rc) {
        r->costs = costs_of(m, spec, kern, r->limits);
        print_machine(r);
        rc = engine_run(r, err);
    }
    free(spec);
    return rc;
}

static int run(struct engine_bench_options *o, const char *argument, struct error *err) {
    double batches[LISTED_MAX], contexts[LISTED_MAX];
    struct engine_run *r = calloc(1, sizeof *r);
    struct loaded_model m = {0};
    struct buf json = BUF_INIT;
    FILE *file = NULL;
    if (!r) return error_set(err, QUIRE_ENOMEM, "out of memory");
    *r = (struct engine_run){.tokens = (size_t)o->tokens,
                             .repeats = (size_t)o->repeat,
                             .max_num_seqs = (size_t)o->engine.max_num_seqs,
                             .seed = (uint64_t)o->engine.seed,
                             .model = argument,
                             .label = o->label,
                             .interrupted = bench_catch_interrupts(),
                             .out = stdout,
                             .progress = o->progress && isatty(STDERR_FILENO) ? stderr : NULL};
    int rc = read_lists(o, batches, contexts, r, err);
    if (!rc) rc = file_open_result("--json", o->json, &file, err);
    if (!rc) rc = open_and_run(o, argument, r, &m, err);
    if (r->n_points && r->points[0].n && file) {
        struct error late = {0};
        engine_json(r, &json);
        int written = file_write_result(file, "--json", o->json, &json, &late);
        if (written && !rc) {
            rc = written;
            *err = late;
        }
    }
    if (!rc && *r->ended) rc = error_set(err, QUIRE_ECANCELED, "%s; this is what was measured", r->ended);
    if (file) fclose(file);
    buf_free(&json);
    loaded_model_close(&m);
    drive_free(r->drive);
    free(r);
    return rc;
}

int bench_engine_command(int argc, char **argv) {
    struct engine_bench_options o = {0};
    struct option table[N_OWN + ENGINE_OPTION_ROWS + 1] = {0};
    struct options_state *state = NULL;
    struct error err = {0};
    int n = 0;
    memcpy(table, own_rows, sizeof own_rows);
    engine_option_rows(table + N_OWN, AT(engine));
    int rc = cli_options("bench engine", "MODEL [options]", ABOUT, table, argc, argv, &n, &o, &state);
    if (rc >= 0) return rc;
    if (n != 1)
        rc = error_set(&err, QUIRE_EINVAL,
                       n ? "one model is measured, \"%.60s\" is one too many"
                         : "which model? quire bench engine MODEL [options]%s",
                       n ? argv[2] : "");
    else
        rc = run(&o, argv[1], &err);
    options_free(state);
    return rc ? cli_fail("bench engine", &err) : EXIT_OK;
}
