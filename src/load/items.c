/* Files of conversations and of batches. */
#include "load/workload.h"

#include "base/error.h"
#include "base/size.h"
#include "base/utf8.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

struct item *items_add(struct items *items) {
    if (items->n == items->cap) {
        size_t cap, bytes;
        if (!size_mul(items->cap ? items->cap : 64, 2, &cap) || !size_mul(cap, sizeof *items->v, &bytes))
            return NULL;
        struct item *v = realloc(items->v, bytes);
        if (!v) return NULL;
        items->v = v;
        items->cap = cap;
    }
    items->v[items->n] = (struct item){0};
    return &items->v[items->n++];
}

void items_free(struct items *items) {
    for (size_t i = 0; i < items->n; i++) {
        free(items->v[i].text);
        free(items->v[i].blocks);
    }
    free(items->v);
    *items = (struct items){0};
}

/* The first human turn is the prompt; the answer to it tells how long ours is to be. Its text is kept behind
 * the prompt's end until it has been counted. */
int items_sharegpt(const char *path, const char *data, size_t n, struct items *out, struct error *err) {
    json_error_t e;
    size_t mark = utf8_mark(data, n);
    json_t *root = json_loadb(data + mark, n - mark, 0, &e), *row;
    size_t i;
    int rc = 0;
    if (!root) return error_set(err, QUIRE_EFORMAT, "%.200s: line %d: not JSON: %s", path, e.line, e.text);
    if (!json_is_array(root)) rc = error_set(err, QUIRE_EFORMAT, "%.200s is no list of conversations", path);
    json_array_foreach(root, i, row) {
        if (rc) break;
        const json_t *turns = json_object_get(row, "conversations");
        if (!json_is_array(turns)) turns = json_object_get(row, "conversation");
        if (!json_is_array(turns)) {
            rc = error_set(err, QUIRE_EFORMAT, "%.200s: entry %zu has no list \"conversations\"", path, i);
            break;
        }
        size_t k = 0, n_turns = json_array_size(turns);
        const char *from = NULL;
        while (k < n_turns &&
               !((from = json_string_value(json_object_get(json_array_get(turns, k), "from"))) &&
                 (!strcmp(from, "human") || !strcmp(from, "user"))))
            k++;
        const char *asked = json_string_value(json_object_get(json_array_get(turns, k), "value"));
        const char *reply = json_string_value(json_object_get(json_array_get(turns, k + 1), "value"));
        if (!asked || !reply || !*asked || !*reply) { /* no pair of turns */
            out->n_left_out++;
            continue;
        }
        struct item *item = items_add(out);
        size_t n_asked = strlen(asked), n_reply = strlen(reply);
        if (item) item->text = malloc(n_asked + n_reply + 2);
        if (!item || !item->text) {
            rc = error_set(err, QUIRE_ENOMEM, "out of memory for %.200s", path);
            break;
        }
        memcpy(item->text, asked, n_asked + 1);
        memcpy(item->text + n_asked + 1, reply, n_reply + 1);
    }
    json_decref(root);
    if (!rc && !out->n)
        rc = error_set(err, QUIRE_EFORMAT, "%.200s has no conversation with a question and an answer", path);
    return rc;
}

static int batch_line(const char *path, size_t line, const char *text, size_t n, const char *model,
                      struct items *out, struct error *err) {
    json_error_t e;
    json_t *root = json_loadb(text, n, JSON_REJECT_DUPLICATES, &e);
    if (!root) return error_set(err, QUIRE_EFORMAT, "%.200s:%zu: not JSON: %s", path, line, e.text);
    json_t *body = json_object_get(root, "body");
    const char *url = json_string_value(json_object_get(root, "url"));
    bool chat = url && !strcmp(url, "/v1/chat/completions");
    int rc = 0;
    if (!json_is_object(body))
        rc = error_set(err, QUIRE_EFORMAT, "%.200s:%zu: no object \"body\"", path, line);
    else if (!url || (!chat && strcmp(url, "/v1/completions") != 0))
        rc = error_set(
            err, QUIRE_EUNSUPPORTED,
            "%.200s:%zu: \"url\" is \"%.60s\"; /v1/chat/completions and /v1/completions can be measured",
            path, line, url ? url : "");
    if (!rc) {
        json_object_set_new(body, "stream", json_true());
        json_object_set_new(body, "stream_options", json_pack("{s:b}", "include_usage", 1));
        json_object_set_new(body, "model", json_string(model));
        struct item *item = items_add(out);
        char *dumped = json_dumps(body, JSON_COMPACT | JSON_EMBED);
        if (item) {
            item->text = dumped;
            item->chat = chat;
        }
        if (!item || !dumped) rc = error_set(err, QUIRE_ENOMEM, "out of memory for %.200s", path);
        if (!item) free(dumped);
    }
    json_decref(root);
    return rc;
}

int items_batch(const char *path, char *data, size_t n, const char *model, struct items *out,
                struct error *err) {
    size_t line = 0;
    for (char *p = data + utf8_mark(data, n), *end = data + n; p < end;) {
        char *newline = memchr(p, '\n', (size_t)(end - p));
        size_t len = (size_t)((newline ? newline : end) - p);
        line++;
        while (len && (p[len - 1] == '\r' || p[len - 1] == ' ' || p[len - 1] == '\t')) len--;
        if (len) {
            int rc = batch_line(path, line, p, len, model, out, err);
            if (rc) return rc;
        }
        p = newline ? newline + 1 : end;
    }
    return out->n ? 0 : error_set(err, QUIRE_EFORMAT, "%.200s has no request", path);
}
