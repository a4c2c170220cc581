/* Routes that answer at once, from what is known. */
#include "serve/internal.h"

#include "base/error.h"

#include <string.h>

static void reply(struct serve *s, struct exchange *x, unsigned status, const char *type, struct buf *body) {
    route_reply(s, x, status, type, body, NULL);
    access_log(s, x, buf_ok(body) ? status : 500);
    exchange_release(x);
    buf_free(body);
}

void handle_health(struct serve *s, struct exchange *x) {
    struct buf body = BUF_INIT;
    struct json_out j;
    const char *status = "ok";
    if (server_draining(s->server))
        status = "draining";
    else if (!quire_healthy(s->engine, (uint64_t)s->config.unhealthy_ms * 1000))
        status = "stalled";
    json_out_init(&j, &body);
    json_out_obj(&j);
    json_out_key(&j, "status");
    json_out_str(&j, status);
    json_out_obj_end(&j);
    reply(s, x, strcmp(status, "ok") ? 503 : 200, "application/json", &body);
}

void handle_version(struct serve *s, struct exchange *x) {
    struct buf body = BUF_INIT;
    struct json_out j;
    json_out_init(&j, &body);
    json_out_obj(&j);
    json_out_key(&j, "version");
    json_out_str(&j, s->config.version);
    json_out_obj_end(&j);
    reply(s, x, 200, "application/json", &body);
}

static void model_object(const struct serve *s, const char *name, struct json_out *j) {
    json_out_obj(j);
    json_out_key(j, "id");
    json_out_str(j, name);
    json_out_key(j, "object");
    json_out_str(j, "model");
    json_out_key(j, "created");
    json_out_i64(j, s->started_unix_s);
    json_out_key(j, "owned_by");
    json_out_str(j, "quire");
    json_out_key(j, "root");
    json_out_str(j, s->config.model_names[0]);
    json_out_key(j, "parent");
    json_out_null(j);
    json_out_key(j, "max_model_len");
    json_out_u64(j, s->limits.max_model_len);
    json_out_obj_end(j);
}

void handle_models(struct serve *s, struct exchange *x) {
    struct buf body = BUF_INIT;
    struct json_out j;
    json_out_init(&j, &body);
    json_out_obj(&j);
    json_out_key(&j, "object");
    json_out_str(&j, "list");
    json_out_key(&j, "data");
    json_out_arr(&j);
    for (size_t i = 0; i < s->config.n_model_names; i++) model_object(s, s->config.model_names[i], &j);
    json_out_arr_end(&j);
    json_out_obj_end(&j);
    reply(s, x, 200, "application/json", &body);
}

void handle_model(struct serve *s, struct exchange *x) {
    const char *name = exchange_path(x) + strlen("/v1/models/");
    struct buf body = BUF_INIT;
    struct json_out j;
    for (size_t i = 0; i < s->config.n_model_names; i++) {
        if (strcmp(name, s->config.model_names[i])) continue;
        json_out_init(&j, &body);
        model_object(s, name, &j);
        reply(s, x, 200, "application/json", &body);
        return;
    }
    struct error e = {0};
    error_param(&e, QUIRE_ENOTFOUND, "model", "the model \"%.100s\" is not served here; served: %s", name,
                s->config.model_names[0]);
    api_error_body(&body, 404, &e);
    reply(s, x, 404, "application/json", &body);
}

void handle_metrics(struct serve *s, struct exchange *x) {
    struct buf body = BUF_INIT;
    metrics_write(s, &body);
    reply(s, x, 200, "text/plain; version=0.0.4; charset=utf-8", &body);
}
