#include "eval/results.h"

#include "base/error.h"
#include "base/files.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FORMAT 1

static int no_memory(struct error *err) {
    return error_set(err, QUIRE_ENOMEM, "out of memory for the results");
}

json_t *results_model(const struct eval_context *c) {
    if (c->remote) return json_pack("{s:s, s:s}", "name", c->model, "url", c->remote->url);
    const struct quire_info *info = quire_info(c->local->engine);
    return json_pack("{s:s, s:s, s:s, s:s, s:s}", "name", c->model, "family", info->family, "dtype",
                     info->dtype_name, "cpu", info->cpu_path, "numerics", info->numerics_id);
}

/* ---- the journal ---- */

static json_t *first_line(const struct results *s) {
    return json_pack("{s:s, s:O, s:O}", "kind", s->kind, "model", s->model, "setup", s->setup);
}

/* What two objects do not agree in; NULL: nothing. */
static const char *difference(const json_t *a, const json_t *b) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)a, key, value) {
        json_t *other = json_object_get(b, key);
        if (json_is_object(value) && json_is_object(other)) {
            const char *inner = difference(value, other);
            if (inner) return inner;
        } else if (!json_equal(value, other)) {
            return key;
        }
    }
    return json_object_size(a) == json_object_size(b) ? NULL : "setup";
}

static int take_line(struct results *s, const char *line, size_t len, size_t number, struct error *err) {
    json_t *root = json_loadb(line, len, 0, NULL), *v = json_object_get(root, "v");
    const json_t *d = json_object_get(root, "d");
    json_int_t i =
        json_is_integer(json_object_get(root, "i")) ? json_integer_value(json_object_get(root, "i")) : -1;
    double values[ITEMS_MAX_COLUMNS];
    float *detail = NULL;
    size_t n_detail = json_array_size(d);
    int rc = 0;
    bool numbers = json_array_size(v) == s->n_columns;
    for (size_t k = 0; numbers && k < s->n_columns; k++) numbers = json_is_number(json_array_get(v, k));
    if (i < 0 || !numbers) {
        rc = error_set(err, QUIRE_EFORMAT, "%s:%zu is not a line of results", s->partial, number);
    } else if ((size_t)i < s->n && !s->items[i].done) {
        for (size_t k = 0; k < s->n_columns; k++) values[k] = json_number_value(json_array_get(v, k));
        if (n_detail && !(detail = calloc(n_detail, sizeof *detail))) rc = no_memory(err);
        for (size_t k = 0; !rc && k < n_detail; k++)
            detail[k] = (float)json_number_value(json_array_get(d, k));
        if (!rc)
            rc = results_put(s, (size_t)i, values, detail, n_detail, err); /* no journal yet: memory only */
    }
    json_decref(root);
    return rc;
}

/* A last line without its end was being written when the run ended: it does not count. */
static int read_journal(struct results *s, struct error *err) {
    FILE *f = fopen(s->partial, "rb");
    char *line = NULL;
    size_t cap = 0, number = 0;
    int rc = 0;
    if (!f && errno == ENOENT) return 0;
    if (!f) return error_set(err, QUIRE_EIO, "%s cannot be read: %s", s->partial, strerror(errno));
    for (ssize_t n; !rc && (n = getline(&line, &cap, f)) > 0;) {
        if (line[n - 1] != '\n') break;
        if (++number > 1) {
            rc = take_line(s, line, (size_t)n, number, err);
            continue;
        }
        json_t *had = json_loadb(line, (size_t)n, 0, NULL), *want = first_line(s);
        const char *what = !had ? "everything" : want ? difference(want, had) : NULL;
        if (!want)
            rc = no_memory(err);
        else if (what)
            rc = error_set(err, QUIRE_EINVAL,
                           "--resume: %s is of another run: %s differs (delete it to start anew)", s->partial,
                           what);
        json_decref(had);
        json_decref(want);
    }
    free(line);
    fclose(f);
    return rc;
}

static int write_item(struct results *s, size_t i, struct error *err) {
    struct buf text = BUF_INIT;
    struct json_out j;
    json_out_init(&j, &text);
    json_out_obj(&j);
    json_out_key(&j, "i");
    json_out_u64(&j, i);
    json_out_key(&j, "v");
    json_out_arr(&j);
    for (size_t k = 0; k < s->n_columns; k++) json_out_f64(&j, s->items[i].values[k]);
    json_out_arr_end(&j);
    if (s->items[i].n_detail) {
        json_out_key(&j, "d");
        json_out_arr(&j);
        for (size_t k = 0; k < s->items[i].n_detail; k++) {
            char number[32];
            int n = snprintf(number, sizeof number, "%.9g", (double)s->items[i].detail[k]);
            json_out_raw(&j, number, (size_t)n);
        }
        json_out_arr_end(&j);
    }
    json_out_obj_end(&j);
    buf_putc(&text, '\n');
    int rc = buf_ok(&text) ? 0 : no_memory(err);
    if (!rc && (fwrite(text.data, 1, text.len, s->journal) != text.len || fflush(s->journal)))
        rc = error_set(err, QUIRE_EIO, "%s cannot be written: %s", s->partial, strerror(errno));
    buf_free(&text);
    return rc;
}

/* Starts with what is there already, under another name until it is whole. */
static int start_journal(struct results *s, struct error *err) {
    struct buf path = BUF_INIT;
    json_t *root = first_line(s);
    char *head = root ? json_dumps(root, JSON_COMPACT) : NULL;
    buf_printf(&path, "%s.new", s->partial);
    int rc = head && buf_ok(&path) ? 0 : no_memory(err);
    if (!rc && (!(s->journal = fopen(path.data, "wb")) || fprintf(s->journal, "%s\n", head) < 0 ||
                fflush(s->journal)))
        rc = error_set(err, QUIRE_EINVAL, "--json %.200s: %.200s cannot be written: %s", s->json, path.data,
                       strerror(errno));
    for (size_t i = 0; !rc && i < s->n; i++)
        if (s->items[i].done) rc = write_item(s, i, err);
    if (!rc && rename(path.data, s->partial))
        rc = error_set(err, QUIRE_EIO, "%s cannot be written: %s", s->partial, strerror(errno));
    free(head);
    json_decref(root);
    buf_free(&path);
    return rc;
}

/* ---- items ---- */

int results_open(struct results *s, const struct eval_context *c, const char *kind,
                 const char *const *columns, size_t n_columns, size_t n, json_t *model, json_t *setup,
                 struct error *err) {
    *s = (struct results){.kind = kind,
                          .columns = columns,
                          .n_columns = n_columns,
                          .n = n,
                          .model = model,
                          .setup = setup,
                          .json = c->json,
                          .items = calloc(n + 1, sizeof *s->items),
                          .ids = calloc(n + 1, sizeof *s->ids)};
    if (!model || !setup || !s->items || !s->ids) return no_memory(err);
    for (size_t i = 0; i < n; i++) {
        snprintf(s->ids[i], sizeof s->ids[i], "%zu", i);
        s->items[i].id = s->ids[i];
    }
    if (!c->json) return 0;
    struct buf path = BUF_INIT;
    buf_printf(&path, "%s.partial", c->json);
    if (!buf_ok(&path)) return no_memory(err);
    s->partial = path.data;
    int rc = file_check_replaceable("--json", c->json, err);
    if (!rc && c->resume) rc = read_journal(s, err);
    return rc ? rc : start_journal(s, err);
}

int results_put(struct results *s, size_t i, const double *values, float *detail, size_t n_detail,
                struct error *err) {
    struct item *item = &s->items[i];
    memcpy(item->values, values, s->n_columns * sizeof *values);
    item->detail = detail;
    item->n_detail = n_detail;
    item->done = true;
    s->n_done++;
    return s->journal ? write_item(s, i, err) : 0;
}

double results_sum(const struct results *s, size_t column) {
    double sum = 0;
    for (size_t i = 0; i < s->n; i++)
        if (s->items[i].done) sum += s->items[i].values[column];
    return sum;
}

void results_free(struct results *s) {
    for (size_t i = 0; s->items && i < s->n; i++) free(s->items[i].detail);
    free(s->items);
    free(s->ids);
    free(s->partial);
    if (s->journal) fclose(s->journal);
    json_decref(s->model);
    json_decref(s->setup);
    *s = (struct results){0};
}

/* ---- the result file ---- */

static void put_object(struct json_out *j, const char *key, const json_t *value) {
    char *text = json_dumps(value, JSON_COMPACT);
    json_out_key(j, key);
    if (text)
        json_out_raw(j, text, strlen(text));
    else
        j->out->failed = true;
    free(text);
}

static void put_items(const struct results *s, struct json_out *j) {
    json_out_key(j, "items");
    json_out_arr(j);
    for (size_t i = 0; i < s->n; i++) {
        if (!s->items[i].done) continue;
        json_out_obj(j);
        json_out_key(j, "id");
        json_out_str(j, s->items[i].id);
        for (size_t k = 0; k < s->n_columns; k++) {
            json_out_key(j, s->columns[k]);
            json_out_f64(j, s->items[i].values[k]);
        }
        json_out_obj_end(j);
    }
    json_out_arr_end(j);
}

/* Under another name until it is whole: an old result stays until then. */
static int put_file(const char *path, const struct buf *text, struct error *err) {
    struct buf other = BUF_INIT;
    buf_printf(&other, "%s.new", path);
    FILE *f = buf_ok(&other) ? fopen(other.data, "wb") : NULL;
    bool ok = f && fwrite(text->data, 1, text->len, f) == text->len && putc('\n', f) != EOF;
    if (f && fclose(f)) ok = false;
    if (ok) ok = !rename(other.data, path);
    int rc = ok ? 0 : error_set(err, QUIRE_EIO, "--json %.200s cannot be written: %s", path, strerror(errno));
    buf_free(&other);
    return rc;
}

static int write_result(struct results *s,
                        void (*summary)(const struct results *s, struct json_out *j, void *ctx), void *ctx,
                        struct error *err) {
    struct buf text = BUF_INIT;
    struct json_out j;
    json_out_init(&j, &text);
    json_out_obj(&j);
    json_out_key(&j, "format");
    json_out_u64(&j, FORMAT);
    json_out_key(&j, "kind");
    json_out_str(&j, s->kind);
    json_out_key(&j, "complete");
    json_out_bool(&j, s->n_done == s->n);
    put_object(&j, "model", s->model);
    put_object(&j, "setup", s->setup);
    json_out_key(&j, "summary");
    json_out_obj(&j);
    summary(s, &j, ctx);
    json_out_obj_end(&j);
    put_items(s, &j);
    json_out_obj_end(&j);
    int rc = buf_ok(&text) ? put_file(s->json, &text, err) : no_memory(err);
    if (!rc && s->n_done == s->n && unlink(s->partial))
        rc = error_set(err, QUIRE_EIO, "%s cannot be removed: %s", s->partial, strerror(errno));
    buf_free(&text);
    return rc;
}

int results_end(struct results *s, int rc,
                void (*summary)(const struct results *s, struct json_out *j, void *ctx), void *ctx,
                struct error *err) {
    struct error later;
    if (!s->json) return rc;
    if (!s->n_done) {
        unlink(s->partial);
        return rc;
    }
    int written = write_result(s, summary, ctx, rc < 0 ? &later : err);
    return rc >= 0 && written ? written : rc;
}
