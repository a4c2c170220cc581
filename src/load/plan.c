#include "load/plan.h"

#include "base/error.h"
#include "base/files.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#define SWEEP_MAX     16
#define OPEN_MOST     8192 /* requests in flight in an open loop, unless --max-concurrency says */
#define OPEN_SECONDS  30
#define SHAREGPT_MOST 1000 /* conversations used when no number is given */
#define FILE_MAX_MIB  1024
#define TRACE_MOST_S  1e7 /* as --duration */

/* ---- options ---- */

static int read_extra(const char *text, char **out, struct error *err) {
    json_error_t e;
    json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, &e);
    if (!json_is_object(root) || !json_object_size(root)) {
        json_decref(root);
        return error_set(err, QUIRE_EINVAL,
                         "--extra-body is not a JSON object with members, like {\"top_p\": 0.9}");
    }
    *out = json_dumps(root, JSON_COMPACT | JSON_EMBED);
    json_decref(root);
    return *out ? 0 : error_set(err, QUIRE_ENOMEM, "out of memory");
}

static int check_together(const struct load_options *o, struct error *err) {
    bool ramp = !strcmp(o->arrival, "ramp"), gamma = !strcmp(o->arrival, "gamma");
    const char *w = o->workload;
    if (o->rate && o->concurrency)
        return error_set(err, QUIRE_EINVAL,
                         "--rate (an open loop) and --concurrency (a closed one) cannot be given together");
    if (o->suite && (o->input_tokens || o->output_tokens || w || o->rate || o->file))
        return error_set(err, QUIRE_EINVAL,
                         "--suite has its own workload: leave out --workload, --file, --input-tokens, "
                         "--output-tokens and --rate");
    if (o->suite && !suite_find(o->suite))
        return error_set(err, QUIRE_EINVAL, "--suite \"%.20s\" is not A, B, C or D", o->suite);
    bool file = w && (!strcmp(w, "sharegpt") || !strcmp(w, "batch") || !strcmp(w, "trace"));
    if (file != (o->file != NULL))
        return error_set(err, QUIRE_EINVAL,
                         file ? "--workload %s needs a --file"
                              : "--file is for the workloads "
                                "sharegpt, batch and trace, not %s",
                         w ? w : "random");
    if (ramp != (o->ramp_to > 0))
        return error_set(err, QUIRE_EINVAL, "--arrival ramp and --ramp-to RATE go together");
    if (o->burstiness != 1 && !gamma)
        return error_set(err, QUIRE_EINVAL, "--burstiness is for --arrival gamma");
    if (!o->rate && (ramp || gamma))
        return error_set(err, QUIRE_EINVAL, "--arrival %s needs a --rate", o->arrival);
    if (o->max_concurrency && o->concurrency)
        return error_set(err, QUIRE_EINVAL, "--max-concurrency is for an open loop (--rate)");
    return 0;
}

static struct http_config http_options(const struct load_options *o) {
    return (struct http_config){
        .bearer = o->api_key, .ca_cert = o->ca_cert, .insecure = o->insecure, .timeout_s = o->timeout_s};
}

int plan_options(const struct load_options *o, struct plan *p, struct error *err) {
    *p = (struct plan){.o = o, .tc = {o->url, o->model, http_options(o)}};
    p->created_unix_s = (int64_t)time(NULL);
    int rc = check_together(o, err);
    if (!rc && o->url) rc = http_check_trust(&p->tc.http, o->url, err);
    if (!rc && o->slo) rc = slo_parse(o->slo, &p->slo, err);
    if (!rc && o->price) rc = price_parse(o->price, &p->price, err);
    if (!rc && o->extra_body) rc = read_extra(o->extra_body, &p->extra_members, err);
    return rc;
}

/* ---- the workload ---- */

static int make_spec(const struct plan *p, const char *workload, uint32_t input, uint32_t output,
                     struct workload_spec *s, struct error *err) {
    const struct load_options *o = p->o;
    const struct preset *k = preset_find(workload);
    int rc = 0;
    *s = (struct workload_spec){
        .name = k->name,
        .kind = k->kind,
        .input = {LENGTH_FIXED, input ? input : k->input, 0},
        .output = {LENGTH_FIXED, output ? output : k->output, 0},
        .prefix_tokens = o->prefix_tokens >= 0 ? (uint32_t)o->prefix_tokens : k->prefix,
        .prefix_groups = (uint32_t)o->prefix_groups,
        .turns = o->has_turns ? (uint32_t)o->turns : k->turns,
        .think_s = o->think_s >= 0 ? o->think_s : k->think_s,
        .chunks = k->chunks,
        .chunk_tokens = k->chunk_tokens,
        .chat = o->endpoint ? !strcmp(o->endpoint, "chat") : k->chat,
        .ignore_eos = o->ignore_eos,
        .has_temperature = o->has_temperature,
        .temperature = o->temperature,
        .extra_members = p->extra_members,
        .seed = (uint64_t)o->seed,
    };
    if (k->chat_only && !s->chat)
        return error_set(err, QUIRE_EINVAL, "the workload %s is for --endpoint chat", k->name);
    if (o->has_turns && k->turns == 1)
        return error_set(err, QUIRE_EINVAL, "--turns is for conversations (chat, agent), not for %s",
                         k->name);
    if (o->input_tokens) rc = length_parse("--input-tokens", o->input_tokens, &s->input, err);
    if (!rc && o->output_tokens) rc = length_parse("--output-tokens", o->output_tokens, &s->output, err);
    if (rc || o->scale == 1) return rc;
    s->input = length_scale(s->input, o->scale);
    s->output = length_scale(s->output, o->scale);
    s->prefix_tokens = (uint32_t)round(s->prefix_tokens * o->scale);
    s->chunk_tokens = (uint32_t)round(s->chunk_tokens * o->scale);
    return 0;
}

/* Scaled, and without what the model's context cannot hold. */
static int fit_trace(struct plan *p, struct error *err) {
    size_t kept = 0, long_ones = 0, limit = p->target.max_model_len;
    for (size_t i = 0; i < p->items.n; i++) {
        struct item *k = &p->items.v[i];
        k->input = (uint32_t)fmax(1, round(k->input * p->o->scale));
        k->output = (uint32_t)fmax(1, round(k->output * p->o->scale));
        if (limit && (size_t)k->input + k->output > limit) {
            free(k->blocks);
            long_ones++;
            continue;
        }
        p->items.v[kept++] = *k;
    }
    p->items.n = kept;
    if (!kept)
        return error_set(
            err, QUIRE_EINVAL,
            "none of the %zu requests of %.200s fits into the model's %zu tokens; --scale makes them "
            "shorter",
            long_ones, p->o->file, limit);
    size_t last = (p->o->requests && (size_t)p->o->requests < kept ? (size_t)p->o->requests : kept) - 1;
    double span = p->items.v[last].at_s / p->o->time_scale;
    if (span > TRACE_MOST_S && p->o->duration_s <= 0)
        return error_set(err, QUIRE_EINVAL,
                         "the requests of %.200s are spread over %.3g seconds; up to %.0f are replayed "
                         "(--time-scale, --duration, --requests)",
                         p->o->file, span, TRACE_MOST_S);
    if (long_ones)
        snprintf(p->note[0], sizeof p->note[0],
                 "%zu of %zu requests of the trace are longer than the model's %zu tokens and were left out",
                 long_ones, long_ones + kept, limit);
    return 0;
}

static void count_replies(struct plan *p) {
    size_t most = p->o->requests ? (size_t)p->o->requests : SHAREGPT_MOST;
    bool counted = !p->performer;
    if (p->items.n > most) {
        snprintf(p->note[0], sizeof p->note[0], "the first %zu of %zu conversations are used", most,
                 p->items.n);
        for (size_t i = most; i < p->items.n; i++) free(p->items.v[i].text);
        p->items.n = most;
    }
    for (size_t i = 0; i < p->items.n; i++) {
        struct item *k = &p->items.v[i];
        const char *reply = k->text + strlen(k->text) + 1;
        int64_t n = counted ? target_count(&p->tc, &p->target, reply, strlen(reply)) : -1;
        counted = n >= 0;
        k->output = n > 0 ? (uint32_t)n : (uint32_t)(strlen(reply) / 4 + 1);
    }
    if (!counted)
        snprintf(
            p->note[1], sizeof p->note[1],
            "there is no /tokenize to ask, so the length of answers is estimated as a token for 4 bytes");
}

static int read_items(struct plan *p, const struct workload_spec *s, struct error *err) {
    const struct load_options *o = p->o;
    struct buf data = BUF_INIT;
    if (!o->file) return 0;
    int rc = file_read("--file", o->file, FILE_MAX_MIB, &data, err);
    if (!rc && !data.len) rc = error_set(err, QUIRE_EFORMAT, "%.200s is empty", o->file);
    if (!rc && s->kind == WORKLOAD_SHAREGPT)
        rc = items_sharegpt(o->file, data.data, data.len, &p->items, err);
    if (!rc && s->kind == WORKLOAD_BATCH)
        rc = items_batch(o->file, data.data, data.len, p->target.model, &p->items, err);
    if (!rc && s->kind == WORKLOAD_TRACE)
        rc = items_trace(o->file, data.data, data.len, o->trace_format, &p->items, err);
    buf_free(&data);
    if (!rc && s->kind == WORKLOAD_SHAREGPT) count_replies(p);
    if (!rc && s->kind == WORKLOAD_TRACE) rc = fit_trace(p, err);
    if (!rc && p->items.n_left_out)
        snprintf(p->note[2], sizeof p->note[2],
                 "%zu entries of the file without tokens or text were left out", p->items.n_left_out);
    return rc;
}

static int check_context(const struct plan *p, const struct workload_spec *s, struct error *err) {
    uint64_t need = workload_most_tokens(s), have = p->target.max_model_len;
    if (!have || need <= have) return 0;
    double fits = floor(100 * p->o->scale * (double)have / (double)need) / 100;
    char hint[40] = "";
    if (fits > 0) snprintf(hint, sizeof hint, "; --scale %g would fit", fits);
    return error_set(err, QUIRE_EINVAL,
                     "%s%s needs a context of %llu tokens, the model has %llu (max_model_len)%s",
                     p->o->suite ? "suite " : "the workload ", p->o->suite ? p->o->suite : s->name,
                     (unsigned long long)need, (unsigned long long)have, hint);
}

int plan_spec(const struct plan *p, const char *workload, uint32_t input, uint32_t output,
              struct workload_spec *s, struct error *err) {
    int rc = make_spec(p, workload, input, output, s, err);
    return rc ? rc : check_context(p, s, err);
}

/* ---- points ---- */

static int add_point(struct plan *p, const struct workload_spec *s, struct arrival arrival,
                     size_t concurrency, struct error *err) {
    const struct load_options *o = p->o;
    if (p->n_points == POINTS_MAX)
        return error_set(err, QUIRE_EINVAL, "more than %d points are to be measured", POINTS_MAX);
    struct point *k = &p->points[p->n_points++];
    bool closed = arrival.kind == ARRIVAL_CLOSED, trace = arrival.kind == ARRIVAL_TRACE;
    struct rlimit files;
    size_t most = OPEN_MOST;
    if (!getrlimit(RLIMIT_NOFILE, &files) && files.rlim_max < most + 128)
        most = files.rlim_max > 256 ? files.rlim_max - 128 : 128;
    *k = (struct point){.spec = *s, .arrival = arrival, .concurrency = concurrency};
    k->n_sessions = (uint64_t)o->requests;
    k->duration_s = o->duration_s;
    if (!k->n_sessions && k->duration_s <= 0) {
        if (closed)
            k->n_sessions = fmax(s->turns > 1 ? 8 : 16, (s->turns > 1 ? 2 : 4) * (double)concurrency);
        else if (!trace)
            k->duration_s = OPEN_SECONDS;
    }
    if (closed && k->n_sessions && k->n_sessions < k->concurrency) k->concurrency = k->n_sessions;
    k->max_active = o->max_concurrency ? (size_t)o->max_concurrency : most;
    if (k->n_sessions && k->n_sessions < k->max_active) k->max_active = k->n_sessions;
    k->arrival.seed = (uint64_t)o->seed ^ UINT64_C(0x61727269);
    k->arrival.burstiness = o->burstiness;
    k->arrival.ramp_to = o->ramp_to;
    if (arrival.kind == ARRIVAL_RAMP) {
        if (k->duration_s <= 0) /* until the requests are sent: their number over the mean rate */
            k->arrival.ramp_s = (double)k->n_sessions / ((arrival.rate + o->ramp_to) / 2);
        else
            k->arrival.ramp_s = k->duration_s;
    }
    bool file = s->kind >= WORKLOAD_SHAREGPT;
    size_t n = (size_t)snprintf(k->title, sizeof k->title, "%s", s->name);
    if (!file)
        n += (size_t)snprintf(k->title + n, sizeof k->title - n, " %.0f/%.0f", s->input.a, s->output.a);
    if (closed)
        snprintf(k->title + n, sizeof k->title - n, ", %zu stream%s", concurrency,
                 concurrency == 1 ? "" : "s");
    else if (trace)
        snprintf(k->title + n, sizeof k->title - n, " x%g", o->time_scale);
    else if (arrival.kind == ARRIVAL_RAMP)
        snprintf(k->title + n, sizeof k->title - n, ", ramp %g to %g/s", arrival.rate, o->ramp_to);
    else
        snprintf(k->title + n, sizeof k->title - n, ", %s %g/s", o->arrival, arrival.rate);
    return 0;
}

static enum arrival_kind kind_of(const char *name) {
    static const char *const names[] = {"constant", "poisson", "gamma", "ramp"};
    for (int i = 0; i < 4; i++)
        if (!strcmp(names[i], name)) return (enum arrival_kind)(ARRIVAL_CONSTANT + i);
    return ARRIVAL_CONSTANT;
}

static int sweep(struct plan *p, const struct workload_spec *s, const uint32_t *usual, struct error *err) {
    const struct load_options *o = p->o;
    double values[SWEEP_MAX];
    size_t n = 0;
    int rc = 0;
    if (s->kind == WORKLOAD_TRACE && !o->rate && !o->concurrency)
        return add_point(p, s, (struct arrival){.kind = ARRIVAL_TRACE}, 0, err);
    if (o->rate)
        rc = numbers_parse("--rate", o->rate, 0.001, 1e6, false, values, SWEEP_MAX, &n, err);
    else if (o->concurrency)
        rc = numbers_parse("--concurrency", o->concurrency, 1, 65536, true, values, SWEEP_MAX, &n, err);
    else
        for (; n < 4 && usual[n]; n++) values[n] = usual[n];
    for (size_t i = 0; i < n && !rc; i++) {
        struct arrival a = {.kind = o->rate ? kind_of(o->arrival) : ARRIVAL_CLOSED, .rate = values[i]};
        rc = add_point(p, s, a, o->rate ? 0 : (size_t)values[i], err);
    }
    return rc;
}

static int add_workload(struct plan *p, const char *workload, uint32_t input, uint32_t output,
                        const uint32_t *usual, struct error *err) {
    struct workload_spec s;
    int rc = make_spec(p, workload, input, output, &s, err);
    if (!rc) rc = read_items(p, &s, err);
    if (!rc) rc = check_context(p, &s, err);
    return rc ? rc : sweep(p, &s, usual, err);
}

/* What a prompt is made of has to be known for both endpoints when a suite uses both. */
static int learn_tokens(struct plan *p, struct error *err) {
    bool chat = false, plain = false;
    for (size_t i = 0; i < p->n_points; i++) {
        enum workload_kind k = p->points[i].spec.kind;
        if (k == WORKLOAD_SHAREGPT || k == WORKLOAD_BATCH) continue;
        chat |= p->points[i].spec.chat;
        plain |= !p->points[i].spec.chat;
    }
    int rc = plain ? target_learn_tokens(&p->tc, &p->target, false, err) : 0;
    if (!rc && chat) {
        p->target.n_words = p->target.n_ids = 0;
        rc = target_learn_tokens(&p->tc, &p->target, true, err);
    }
    return rc;
}

int plan_points(struct plan *p, struct error *err) {
    static const uint32_t one[4] = {1};
    const struct load_options *o = p->o;
    int rc = p->performer ? p->performer->describe(p->performer->ctx, &p->target, err)
                          : target_open(&p->tc, &p->target, err);
    if (rc) return rc;
    if (o->suite) {
        for (const struct suite_row *row = suite_find(o->suite); row->workload && !rc; row++)
            rc = add_workload(p, row->workload, row->input, row->output, row->concurrency, err);
    } else {
        rc = add_workload(p, o->workload ? o->workload : "random", 0, 0, one, err);
    }
    return rc || p->performer ? rc : learn_tokens(p, err);
}

void plan_free(struct plan *p) {
    for (size_t i = 0; i < p->n_points; i++) {
        for (size_t r = 0; r < p->points[i].n_runs; r++) run_free(&p->points[i].runs[r]);
        free(p->points[i].runs);
        free(p->points[i].repeats);
    }
    items_free(&p->items);
    target_free(&p->target);
    free(p->extra_members);
    *p = (struct plan){0};
}
