#include "load/target.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/url.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define ASKS_AT_ONCE 8

static void ask_done(void *user, struct answer *answer) {
    struct ask *ask = user;
    ask->answer = *answer;
    answer->text = BUF_INIT; /* ours now */
    ask->answer.text.failed |= !buf_ok(&ask->answer.text);
}

int target_ask(const struct target_config *config, struct ask *asks, size_t n, struct error *err) {
    struct client_config cc = {config->http, ASKS_AT_ONCE};
    struct client *client = NULL;
    int rc = client_new(&cc, &client, err);
    for (size_t next = 0; !rc && (next < n || client_active(client));) {
        while (!rc && next < n && client_active(client) < ASKS_AT_ONCE) {
            struct client_request r = {.url = asks[next].url,
                                       .body = asks[next].body,
                                       .plain = asks[next].plain,
                                       .done = ask_done,
                                       .user = &asks[next]};
            rc = client_start(client, &r, err);
            next++;
        }
        if (!rc) rc = client_wait(client, clock_us() + 1000000, err);
    }
    client_free(client);
    return rc;
}

void asks_free(struct ask *asks, size_t n) {
    for (size_t i = 0; i < n; i++) buf_free(&asks[i].answer.text);
}

static char *join(const char *a, const char *b) {
    struct buf out = BUF_INIT;
    buf_puts(&out, a);
    buf_puts(&out, b);
    if (buf_ok(&out)) return out.data;
    buf_free(&out);
    return NULL;
}

/* http://HOST:PORT of what was given: with or without a scheme, /v1 and a slash at the end. */
static int find_urls(const char *given, struct target *t, struct error *err) {
    bool has_scheme = !strncasecmp(given, "http://", 7) || !strncasecmp(given, "https://", 8);
    if (!has_scheme && (strstr(given, "://") || !*given))
        return error_set(err, QUIRE_EINVAL, "the server \"%.100s\" is not a URL of http or https", given);
    t->base = join(has_scheme ? "" : "http://", given);
    if (!t->base) return error_set(err, QUIRE_ENOMEM, "out of memory");
    t->base[url_server_len(t->base)] = 0;
    const char *host = strstr(t->base, "://");
    if (!host || !host[3]) return error_set(err, QUIRE_EINVAL, "the server \"%.100s\" is not a URL", given);
    host += 3;
    t->local = !strncmp(host, "127.", 4) || !strncmp(host, "localhost", 9) || !strncmp(host, "[::1]", 5);
    t->url_chat = join(t->base, "/v1/chat/completions");
    t->url_completions = join(t->base, "/v1/completions");
    t->url_metrics = join(t->base, "/metrics");
    if (!t->url_chat || !t->url_completions || !t->url_metrics)
        return error_set(err, QUIRE_ENOMEM, "out of memory");
    return 0;
}

static json_t *parsed(const struct answer *a) {
    if (a->outcome != OUTCOME_OK || !a->text.data) return NULL;
    return json_loadb(a->text.data, a->text.len, 0, NULL);
}

static size_t positive(const json_t *v) {
    return json_is_integer(v) && json_integer_value(v) > 0 ? (size_t)json_integer_value(v) : 0;
}

static int choose_model(const struct target_config *config, struct target *t, const json_t *models,
                        struct error *err) {
    char names[200] = "";
    const json_t *data = json_object_get(models, "data"), *row;
    size_t i;
    json_array_foreach(data, i, row) {
        const char *id = json_string_value(json_object_get(row, "id"));
        if (!id) continue;
        if (!config->model || !strcmp(config->model, id)) {
            t->model = strdup(id);
            t->max_model_len = positive(json_object_get(row, "max_model_len"));
            const char *owner = json_string_value(json_object_get(row, "owned_by"));
            if (owner) snprintf(t->software, sizeof t->software, "%s", owner);
            return t->model ? 0 : error_set(err, QUIRE_ENOMEM, "out of memory");
        }
        size_t n = strlen(names);
        snprintf(names + n, sizeof names - n, "%s%s", n ? ", " : "", id);
    }
    if (!config->model)
        return error_set(err, QUIRE_ENOTFOUND, "%.200s/v1/models names no model; give one with --model",
                         t->base);
    return error_set(err, QUIRE_ENOTFOUND, "the server has no model \"%.100s\"; it has %s", config->model,
                     *names ? names : "none");
}

/* /version is vLLM's and Quire's; /props is llama.cpp's, and tells the context that a request may have. */
static int learn_more(const struct target_config *config, struct target *t, struct error *err) {
    char *urls[2] = {join(t->base, "/version"), join(t->base, "/props")};
    struct ask asks[2] = {{.url = urls[0], .plain = true}, {.url = urls[1], .plain = true}};
    int rc =
        urls[0] && urls[1] ? target_ask(config, asks, 2, err) : error_set(err, QUIRE_ENOMEM, "out of memory");
    json_t *version = parsed(&asks[0].answer), *props = parsed(&asks[1].answer);
    const char *number = json_string_value(json_object_get(version, "version"));
    if (!number) number = json_string_value(json_object_get(props, "build_info"));
    size_t n = strlen(t->software);
    if (number) snprintf(t->software + n, sizeof t->software - n, "%s%.60s", n ? " " : "", number);
    if (!t->max_model_len)
        t->max_model_len =
            positive(json_object_get(json_object_get(props, "default_generation_settings"), "n_ctx"));
    json_decref(version);
    json_decref(props);
    asks_free(asks, 2);
    free(urls[0]);
    free(urls[1]);
    return rc;
}

int target_open(const struct target_config *config, struct target *t, struct error *err) {
    *t = (struct target){0};
    char *url = NULL;
    struct ask ask = {.plain = true};
    json_t *models = NULL;
    int rc = find_urls(config->url, t, err);
    if (rc) goto out;
    url = join(t->base, "/v1/models");
    if (!url) rc = error_set(err, QUIRE_ENOMEM, "out of memory");
    ask.url = url;
    if (!rc) rc = target_ask(config, &ask, 1, err);
    if (rc) goto out;
    const struct answer *a = &ask.answer;
    if (a->outcome == OUTCOME_HTTP && a->status == 404 && config->model) { /* a server without a list */
        t->model = strdup(config->model);
        if (!t->model) rc = error_set(err, QUIRE_ENOMEM, "out of memory");
        goto out;
    }
    if (a->outcome == OUTCOME_HTTP)
        rc = error_set(err, QUIRE_EIO, "%.200s answers %u: %s", url, a->status, a->message);
    else if (a->outcome != OUTCOME_OK)
        rc = error_set(err, QUIRE_EIO, "%.200s cannot be reached: %s", t->base, a->message);
    if (rc) goto out;
    models = parsed(a);
    if (!json_is_array(json_object_get(models, "data")))
        rc = error_set(err, QUIRE_EIO, "%.200s does not answer with a list of models", url);
    if (!rc) rc = choose_model(config, t, models, err);
    if (!rc) rc = learn_more(config, t, err);
out:
    json_decref(models);
    asks_free(&ask, 1);
    free(url);
    return rc;
}

void target_free(struct target *t) {
    free(t->base);
    free(t->url_chat);
    free(t->url_completions);
    free(t->url_metrics);
    free(t->model);
    *t = (struct target){0};
}
