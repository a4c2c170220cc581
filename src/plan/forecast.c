#include "plan/forecast.h"

#include "base/error.h"
#include "base/size.h"
#include "model/family.h"
#include "plan/knobs.h"
#include "plan/speed.h"
#include "weights/weights.h"

#include <string.h>

/* ---- the model ---- */

static void count_params(const struct weights *w, const struct model_spec *spec, struct forecast *f) {
    const struct model_family *family = model_family(spec->family, strlen(spec->family));
    for (size_t i = 0; i < weights_n_tensors(w); i++) {
        const struct tensor *t = weights_tensor_at(w, i);
        size_t layer;
        const struct tensor_rule *rule = model_tensor_rule(family, spec, t->name, &layer);
        uint64_t n = (uint64_t)t->dims[0] * tensor_rows(t);
        if (!rule || rule->weight >= W_ROPE_FREQS) continue;
        f->n_params += n;
        if (rule->each == EACH_EXPERT) f->n_params_routed += n;
        f->n_params_used += rule->each == EACH_EXPERT ? n / spec->experts.n * spec->experts.n_used : n;
    }
}

static const char *kind_of(size_t n_heads, size_t n_kv_heads, bool rows) {
    return rows ? "MLA" : n_kv_heads == n_heads ? "MHA" : n_kv_heads == 1 ? "MQA" : "GQA";
}

static void describe_groups(struct forecast *f) {
    const struct outlook *o = &f->o;
    f->elem_bytes = o->dtype == BACKEND_F32 ? 4 : 2;
    f->n_groups = o->layout.n_groups;
    for (size_t g = 0; g < f->n_groups; g++) {
        const struct backend_kv_group *l = &o->layout.groups[g];
        f->groups[g] =
            (struct forecast_group){.kind = kind_of(o->spec.n_heads, l->n_kv_heads, o->layout.rows),
                                    .n_chunks = o->layout.rows ? 1 : 2,
                                    .n_layers = l->n_layers,
                                    .n_heads = o->spec.n_heads,
                                    .n_kv_heads = l->n_kv_heads,
                                    .head_dim = l->head_dim,
                                    .window = o->cache.window[g]};
        struct forecast_group *group = &f->groups[g];
        group->token_bytes =
            (uint64_t)l->n_layers * group->n_chunks * l->n_kv_heads * l->head_dim * f->elem_bytes;
        f->token_bytes += group->token_bytes;
    }
}

/* ---- what fits ---- */

bool forecast_holds(const struct outlook *o, size_t n) {
    uint64_t one = outlook_blocks(o, o->max_model_len);
    return n <= o->room_blocks / one;
}

bool forecast_holds_at(const struct forecast_ask *ask, size_t n, size_t len) {
    struct quire_config c = *ask->config;
    struct outlook o;
    struct error err = {0};
    if (!len) return false; /* 0 is the model's own */
    c.max_model_len = len;
    c.log = NULL;
    return !outlook_make(&c, &ask->device, &o, &err) && forecast_holds(&o, n);
}

static size_t longest_of(const struct forecast_ask *ask, const struct forecast *f) {
    size_t low = 1, high = f->o.spec.context_len;
    while (low < high) {
        size_t mid = low + (high - low + 1) / 2;
        if (forecast_holds_at(ask, f->concurrency, mid))
            low = mid;
        else
            high = mid - 1;
    }
    return low < 2 ? 0 : low;
}

static void count_sequences(const struct forecast_ask *ask, struct forecast *f) {
    const struct outlook *o = &f->o;
    uint64_t one = outlook_blocks(o, o->max_model_len);
    f->concurrency = ask->concurrency ? ask->concurrency : o->max_num_seqs;
    f->sequence_bytes = one * o->page_bytes;
    f->wanted_bytes = f->concurrency * f->sequence_bytes;
    f->n_fit = (double)o->room_blocks / (double)one;
    f->all_fit = !f->refusal.code && forecast_holds(o, f->concurrency);
    f->longest = longest_of(ask, f);
}

int forecast_make(const struct forecast_ask *ask, struct forecast *out, struct error *err) {
    *out = (struct forecast){0};
    int rc = outlook_make(ask->config, &ask->device, &out->o, err);
    if (rc && (rc != QUIRE_ENOMEM || !out->o.page_bytes)) return rc;
    if (rc) {
        out->refusal = *err;
        *err = (struct error){0};
    }
    count_params(ask->config->weights, &out->o.spec, out);
    out->tensor_bytes = weights_tensor_bytes(ask->config->weights);
    describe_groups(out);
    count_sequences(ask, out);
    if (out->refusal.code || (ask->concurrency && !out->all_fit))
        knobs_advise(ask, out, ask->concurrency ? ask->concurrency : 1);
    rc = speed_make(ask, out, err);
    return rc ? rc : knobs_make(ask, out, err);
}

int forecast_refuse(const struct forecast_ask *ask, const struct forecast *f, struct error *err) {
    const struct forecast_advice *a = &f->advice;
    struct buf text = BUF_INIT;
    if (!a->n) return 0;
    buf_printf(&text, "KV for %zu sequence%s of %zu tokens does not fit", a->n, a->n == 1 ? "" : "s",
               f->o.max_model_len);
    const char * or = ": it would with ";
    if (a->max_model_len) {
        buf_printf(&text, "%s--max-model-len %zu", or, a->max_model_len);
        or = ", or ";
    }
    if (a->max_num_seqs) {
        buf_printf(&text, "%s--concurrency %zu (--max-num-seqs)", or, a->max_num_seqs);
        or = ", or ";
    }
    if (a->weight_format) {
        buf_printf(&text, "%s--weight-format %s", or, a->weight_format);
        or = ", or ";
    }
    if (ask->config->kv_bytes)
        buf_printf(
            &text, "%s--kv-cache-memory-bytes %llu", or,
            (unsigned long long)((a->n * outlook_blocks(&f->o, f->o.max_model_len) + 1) * f->o.page_bytes));
    else
        buf_printf(&text, "%s%.1f GiB of memory (%.1f GiB more)", or, (double)a->memory_bytes / (1 << 30),
                   ((double)a->memory_bytes - (double)f->o.available_bytes) / (1 << 30));
    int rc =
        error_param(err, QUIRE_ENOMEM, "max-model-len", "%s", buf_ok(&text) ? text.data : "it does not fit");
    buf_free(&text);
    return rc;
}
