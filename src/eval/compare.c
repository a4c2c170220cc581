/* Two results of one kind, item by item: what got worse, how sure that is, and whether it is within the
 * limits. */
#include "base/error.h"
#include "base/files.h"
#include "base/json_out.h"
#include "base/stats.h"
#include "eval/eval.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define CONFIDENCE 0.95

/* A figure that both results have. It is sum(value) / sum(weight) over the items that both have. */
struct figure {
    const char *kind, *name, *value, *weight; /* columns; weight NULL: 1 for each item */
    const char *only;      /* items where this column is above 0 (or is 0, with only_zero); NULL: all */
    bool only_zero, rises; /* rises: more is worse */
    bool perplexity;       /* shown as exp, its change as a share */
    double scale;          /* of what is shown: 100 for shares */
    const char *unit;
    size_t threshold; /* offset in struct eval_thresholds */
};

#define LIMIT(member) offsetof(struct eval_thresholds, member)
static const struct figure FIGURES[] = {
    {"perplexity", "perplexity", "nll", "tokens", NULL, false, true, true, 100, "%", LIMIT(ppl_increase)},
    {"kl", "perplexity", "nll", "tokens", NULL, false, true, true, 100, "%", LIMIT(ppl_increase)},
    {"kl", "mean KL", "kl", "tokens", NULL, false, true, false, 1, "nats", LIMIT(kl_increase)},
    {"kl", "same top-1", "top1", "tokens", NULL, false, false, false, 100, "points", LIMIT(top1_drop)},
    {"tasks", "multiple choice", "correct", NULL, "choices", false, false, false, 100, "points",
     LIMIT(accuracy_drop)},
    {"tasks", "length-normalized", "correct_normalized", NULL, "choices", false, false, false, 100, "points",
     LIMIT(accuracy_drop)},
    {"tasks", "exact match", "correct", NULL, "choices", true, false, false, 100, "points",
     LIMIT(accuracy_drop)},
    {"needle", "needles found", "found", NULL, NULL, false, false, false, 100, "points",
     LIMIT(accuracy_drop)},
};
#define N_FIGURES (sizeof FIGURES / sizeof *FIGURES)

struct row {
    const struct figure *f;
    double a, b, worse, limit;      /* worse, limit: in units of the threshold; negative = better */
    struct stats_interval interval; /* of worse */
    size_t n;
    enum eval_verdict verdict;
};

struct comparison {
    json_t *a, *b, *by_id; /* by_id: items of b */
    struct row rows[N_FIGURES];
    size_t n_rows, n_a, n_b, n_both;
    enum eval_verdict verdict;
};

static const char *const VERDICTS[] = {"pass", "FAIL", "unclear"};

/* ---- reading ---- */

static int load(const char *path, json_t **out, struct error *err) {
    json_error_t e;
    FILE *f = fopen(path, "rb");
    if (!f) return error_set(err, QUIRE_ENOTFOUND, "%s: %s", path, strerror(errno));
    *out = json_loadf(f, JSON_REJECT_DUPLICATES, &e);
    fclose(f);
    if (!*out)
        return error_set(err, QUIRE_EFORMAT, "%s: line %d, column %d: %s", path, e.line, e.column, e.text);
    if (json_integer_value(json_object_get(*out, "format")) != 1 ||
        !json_is_string(json_object_get(*out, "kind")) || !json_is_object(json_object_get(*out, "setup")) ||
        !json_is_array(json_object_get(*out, "items")))
        return error_set(err, QUIRE_EFORMAT, "%s is not a result of quire eval", path);
    return 0;
}

static const char *kind_of(const json_t *result) {
    return json_string_value(json_object_get(result, "kind"));
}

static int check_setups(const struct comparison *c, struct error *err) {
    const json_t *a = json_object_get(c->a, "setup"), *b = json_object_get(c->b, "setup");
    const char *key;
    json_t *value;
    if (strcmp(kind_of(c->a), kind_of(c->b)))
        return error_set(err, QUIRE_EINVAL, "one result is of %s, the other of %s", kind_of(c->a),
                         kind_of(c->b));
    json_object_foreach((json_t *)a, key, value) {
        if (json_equal(value, json_object_get(b, key))) continue;
        char *x = json_dumps(value, JSON_ENCODE_ANY),
             *y = json_dumps(json_object_get(b, key), JSON_ENCODE_ANY);
        error_set(err, QUIRE_EINVAL,
                  "the results cannot be compared: %s is %.60s in one and %.60s in the other", key,
                  x ? x : "?", y ? y : "absent");
        free(x);
        free(y);
        return err->code;
    }
    json_object_foreach((json_t *)b, key, value) if (!json_object_get(a, key)) return error_set(
        err, QUIRE_EINVAL, "the results cannot be compared: %s is absent in one", key);
    return 0;
}

/* The items of a result by their ids; the caller's. */
static int index_items(const json_t *result, const char *path, json_t **by_id, struct error *err) {
    size_t i;
    json_t *item;
    *by_id = json_object();
    json_array_foreach(json_object_get(result, "items"), i, item) {
        const char *id = json_string_value(json_object_get(item, "id"));
        if (!id || json_object_get(*by_id, id))
            return error_set(err, QUIRE_EFORMAT, "%s: item %zu has no id of its own", path, i);
        if (json_object_set(*by_id, id, item)) return error_set(err, QUIRE_ENOMEM, "out of memory");
    }
    return 0;
}

static int index_both(struct comparison *c, const char *path_a, const char *path_b, struct error *err) {
    json_t *of_a = NULL;
    c->n_a = json_array_size(json_object_get(c->a, "items"));
    c->n_b = json_array_size(json_object_get(c->b, "items"));
    int rc = index_items(c->a, path_a, &of_a, err);
    json_decref(of_a);
    return rc ? rc : index_items(c->b, path_b, &c->by_id, err);
}

/* ---- figures ---- */

static bool value_of(const json_t *item, const char *column, double *out) {
    const json_t *v = json_object_get(item, column);
    *out = json_number_value(v);
    return json_is_number(v);
}

static bool takes_part(const struct figure *f, const json_t *item) {
    double v;
    if (!f->only) return true;
    return value_of(item, f->only, &v) && (v > 0) != f->only_zero;
}

/* The pairs of a figure: NULL and *rc 0 when there are none. */
static struct stats_pair *pairs_of(const struct comparison *c, const struct figure *f, size_t *n, int *rc,
                                   struct error *err) {
    struct stats_pair *pairs = calloc(c->n_a + 1, sizeof *pairs);
    size_t i;
    json_t *x;
    *n = 0;
    if (!pairs) {
        *rc = error_set(err, QUIRE_ENOMEM, "out of memory for %zu items", c->n_a);
        return NULL;
    }
    json_array_foreach(json_object_get(c->a, "items"), i, x) {
        const char *id = json_string_value(json_object_get(x, "id"));
        const json_t *y = id ? json_object_get(c->by_id, id) : NULL;
        struct stats_pair p = {.weight = 1};
        double weight = 1;
        if (!y || !takes_part(f, x)) continue;
        if (!value_of(x, f->value, &p.a) || !value_of(y, f->value, &p.b) ||
            (f->weight && (!value_of(x, f->weight, &p.weight) || !value_of(y, f->weight, &weight))) ||
            (f->weight && (p.weight != weight || weight <= 0))) {
            *rc = error_set(err, QUIRE_EFORMAT, "item \"%.60s\" lacks \"%s\" or has another weight", id,
                            f->value);
            break;
        }
        pairs[(*n)++] = p;
    }
    if (*n && !*rc) return pairs;
    free(pairs);
    return NULL;
}

/* In the unit of the threshold, up = worse. */
static double worse_by(const struct figure *f, double difference) {
    double d = f->perplexity ? exp(difference) - 1 : difference;
    return f->rises ? d : 0 - d; /* never a negative zero */
}

static enum eval_verdict judge(const struct row *r) {
    if (!r->interval.known) return EVAL_UNCLEAR;
    if (r->interval.high <= r->limit) return EVAL_PASS;
    return r->interval.low > r->limit ? EVAL_FAIL : EVAL_UNCLEAR;
}

static void measure(const struct figure *f, const struct stats_pair *pairs, size_t n,
                    const struct eval_thresholds *t, size_t n_resamples, uint64_t seed, struct row *r) {
    double a = 0, b = 0, weight = 0;
    for (size_t i = 0; i < n; i++) {
        a += pairs[i].a;
        b += pairs[i].b;
        weight += pairs[i].weight;
    }
    struct stats_interval d = stats_bootstrap_paired(pairs, n, n_resamples, CONFIDENCE, seed);
    *r = (struct row){.f = f, .n = n, .a = a / weight, .b = b / weight};
    r->worse = worse_by(f, stats_difference(pairs, n));
    double low = worse_by(f, d.low), high = worse_by(f, d.high);
    r->interval = (struct stats_interval){d.known, f->rises ? low : high, f->rises ? high : low};
    memcpy(&r->limit, (const char *)t + f->threshold, sizeof r->limit);
    r->verdict = judge(r);
}

static int measure_all(struct comparison *c, const struct eval_thresholds *t, size_t n_resamples,
                       uint64_t seed, struct error *err) {
    int rc = 0;
    for (size_t i = 0; i < N_FIGURES && !rc; i++) {
        size_t n;
        if (strcmp(FIGURES[i].kind, kind_of(c->a))) continue;
        struct stats_pair *pairs = pairs_of(c, &FIGURES[i], &n, &rc, err);
        if (!pairs) continue;
        struct row *r = &c->rows[c->n_rows++];
        measure(&FIGURES[i], pairs, n, t, n_resamples, seed, r);
        free(pairs);
        if (r->verdict == EVAL_FAIL || (r->verdict == EVAL_UNCLEAR && c->verdict == EVAL_PASS))
            c->verdict = r->verdict;
    }
    if (!rc && !c->n_rows) rc = error_set(err, QUIRE_EINVAL, "the results have no item in common");
    return rc;
}

/* ---- report ---- */

static double shown(const struct figure *f, double mean) {
    return f->perplexity ? exp(mean) : mean * f->scale;
}

static void print(const struct comparison *c, FILE *out) {
    fprintf(out, "%-18s %6s %11s %11s %10s %25s %10s  %s\n", "", "items", "first", "second", "worse by",
            "95 % interval", "allowed", "verdict");
    for (size_t i = 0; i < c->n_rows; i++) {
        const struct row *r = &c->rows[i];
        const struct figure *f = r->f;
        char interval[48] = "-";
        if (r->interval.known)
            snprintf(interval, sizeof interval, "%+.4f ... %+.4f", f->scale * r->interval.low,
                     f->scale * r->interval.high);
        fprintf(out, "%-18s %6zu %11.4f %11.4f %+10.4f %25s %10.4g  %s (%s)\n", f->name, r->n, shown(f, r->a),
                shown(f, r->b), f->scale * r->worse, interval, f->scale * r->limit, VERDICTS[r->verdict],
                f->unit);
    }
    if (c->n_both < c->n_a || c->n_both < c->n_b)
        fprintf(out, "only the %zu items that both have (%zu and %zu) are compared\n", c->n_both, c->n_a,
                c->n_b);
    fprintf(out, "verdict: %s\n", VERDICTS[c->verdict]);
}

static void put_rows(const struct comparison *c, struct json_out *j) {
    json_out_obj(j);
    json_out_put_f64(j, "format", 1);
    json_out_put_str(j, "kind", "comparison");
    json_out_put_str(j, "of", kind_of(c->a));
    json_out_put_str(j, "verdict", c->verdict == EVAL_FAIL ? "fail" : VERDICTS[c->verdict]);
    json_out_key(j, "figures");
    json_out_arr(j);
    for (size_t i = 0; i < c->n_rows; i++) {
        const struct row *r = &c->rows[i];
        json_out_obj(j);
        json_out_put_str(j, "name", r->f->name);
        json_out_put_f64(j, "items", (double)r->n);
        json_out_put_f64(j, "first", r->f->perplexity ? exp(r->a) : r->a);
        json_out_put_f64(j, "second", r->f->perplexity ? exp(r->b) : r->b);
        json_out_put_f64(j, "worse_by", r->worse);
        json_out_put_f64(j, "low", r->interval.known ? r->interval.low : NAN);
        json_out_put_f64(j, "high", r->interval.known ? r->interval.high : NAN);
        json_out_put_f64(j, "allowed", r->limit);
        json_out_put_str(j, "verdict", r->verdict == EVAL_FAIL ? "fail" : VERDICTS[r->verdict]);
        json_out_obj_end(j);
    }
    json_out_arr_end(j);
    json_out_obj_end(j);
}

static int write_json(const struct comparison *c, const char *path, struct error *err) {
    struct buf text = BUF_INIT;
    struct json_out j;
    json_out_init(&j, &text);
    put_rows(c, &j);
    buf_putc(&text, '\n');
    FILE *f = fopen(path, "wb");
    bool ok = f && buf_ok(&text) && fwrite(text.data, 1, text.len, f) == text.len;
    if (f && fclose(f)) ok = false;
    buf_free(&text);
    return ok ? 0 : error_set(err, QUIRE_EIO, "--json %.200s cannot be written: %s", path, strerror(errno));
}

int eval_compare(const char *path_a, const char *path_b, const struct eval_thresholds *t, size_t n_resamples,
                 uint64_t seed, const char *json, FILE *out, enum eval_verdict *verdict, struct error *err) {
    struct comparison c = {.verdict = EVAL_PASS};
    const struct file_option files[] = {{"--json", json}, {"a result", path_a}, {"a result", path_b}};
    int rc = file_check_apart(files, 1, 3, err);
    if (!rc) rc = load(path_a, &c.a, err);
    if (!rc) rc = load(path_b, &c.b, err);
    if (!rc) rc = check_setups(&c, err);
    if (!rc) rc = index_both(&c, path_a, path_b, err);
    if (!rc) rc = measure_all(&c, t, n_resamples, seed, err);
    if (!rc) {
        size_t i;
        json_t *x;
        json_array_foreach(json_object_get(c.a, "items"), i, x) {
            const char *id = json_string_value(json_object_get(x, "id"));
            c.n_both += id && json_object_get(c.by_id, id);
        }
        *verdict = c.verdict;
        print(&c, out);
        if (json) rc = write_json(&c, json, err);
    }
    json_decref(c.by_id);
    json_decref(c.a);
    json_decref(c.b);
    return rc;
}
