/* The table of routes. Whether a key is needed is decided on the routed handler, deny by default: a route is
 * open only if its row says so. */
#include "serve/internal.h"

#include "base/error.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

enum access { ACCESS_KEY, ACCESS_OPEN };

struct route {
    enum http_method method;
    const char *path; /* a trailing "*" takes any rest */
    enum access access;
    void (*handle)(struct serve *s, struct exchange *x);
};

static const struct route routes[] = {
    {HTTP_POST, "/v1/chat/completions", ACCESS_KEY, handle_chat},
    {HTTP_POST, "/v1/completions", ACCESS_KEY, handle_completion},
    {HTTP_GET, "/v1/models", ACCESS_KEY, handle_models},
    {HTTP_GET, "/v1/models/*", ACCESS_KEY, handle_model},
    {HTTP_POST, "/tokenize", ACCESS_KEY, handle_tokenize},
    {HTTP_POST, "/detokenize", ACCESS_KEY, handle_detokenize},
    {HTTP_GET, "/version", ACCESS_KEY, handle_version},
    {HTTP_GET, "/metrics", ACCESS_KEY, handle_metrics},
    {HTTP_GET, "/health", ACCESS_OPEN, handle_health},
};
#define N_ROUTES (sizeof routes / sizeof *routes)

static bool path_matches(const char *pattern, const char *path) {
    size_t n = strlen(pattern);
    if (n && pattern[n - 1] == '*') return !strncmp(pattern, path, n - 1) && path[n - 1];
    return !strcmp(pattern, path);
}

/* ---- keys ---- */

/* The presented key, or NULL: "Authorization: Bearer KEY" or "X-Api-Key: KEY". */
static const char *presented_key(const struct exchange *x) {
    const char *h = exchange_header(x, "authorization");
    if (h && !strncasecmp(h, "bearer ", 7)) {
        for (h += 7; *h == ' ';) h++;
        return h;
    }
    return exchange_header(x, "x-api-key");
}

/* Compares keyed digests of fixed length, all of them, without an early exit: time tells nothing about a key.
 */
static bool key_accepted(const struct serve *s, const char *key) {
    struct hash128 digest = hash128_sip(s->key_secret, key ? key : "", key ? strlen(key) : 0);
    uint64_t accepted = 0;
    for (size_t i = 0; i < s->config.n_api_keys; i++) {
        uint64_t diff = (digest.lo ^ s->key_digests[i].lo) | (digest.hi ^ s->key_digests[i].hi);
        accepted |= 1 ^ ((diff | (0 - diff)) >> 63);
    }
    return key && accepted;
}

/* ---- CORS ---- */

static const char *allowed_origin(const struct serve *s, const char *origin) {
    for (size_t i = 0; origin && i < s->config.n_allowed_origins; i++) {
        const char *allowed = s->config.allowed_origins[i];
        if (!strcmp(allowed, "*")) return "*";
        if (!strcmp(allowed, origin)) return origin;
    }
    return NULL;
}

size_t route_cors_headers(const struct serve *s, const struct exchange *x, struct http_header out[3]) {
    const char *origin = allowed_origin(s, exchange_header(x, "origin"));
    if (!origin) return 0;
    out[0] = (struct http_header){"Access-Control-Allow-Origin", origin};
    out[1] = (struct http_header){"Access-Control-Expose-Headers", "X-Request-Id, Retry-After"};
    out[2] = (struct http_header){"Vary", "Origin"};
    return 3;
}

static void methods_of(const char *path, char *out, size_t n) {
    out[0] = 0;
    for (size_t i = 0; i < N_ROUTES; i++) {
        if (!path_matches(routes[i].path, path)) continue;
        size_t used = strlen(out);
        snprintf(out + used, n - used, "%s%s%s", used ? ", " : "", http_method_name(routes[i].method),
                 routes[i].method == HTTP_GET ? ", HEAD" : "");
    }
    size_t used = strlen(out);
    snprintf(out + used, n - used, "%sOPTIONS", used ? ", " : "");
}

static void reply_options(struct serve *s, struct exchange *x, const char *methods) {
    struct http_header h[8];
    size_t n = route_cors_headers(s, x, h);
    if (n) {
        const char *asked = exchange_header(x, "access-control-request-headers");
        h[n++] = (struct http_header){"Access-Control-Allow-Methods", methods};
        h[n++] = (struct http_header){"Access-Control-Allow-Headers",
                                      asked ? asked : "Authorization, Content-Type"};
        h[n++] = (struct http_header){"Access-Control-Max-Age", "600"};
    }
    h[n++] = (struct http_header){"Allow", methods};
    exchange_reply(x, 204, NULL, h, n, NULL, 0, NULL);
    exchange_release(x);
}

/* ---- answers ---- */

void route_reply(struct serve *s, struct exchange *x, unsigned status, const char *type,
                 const struct buf *body, unsigned retry_after_s) {
    struct http_header h[8];
    char retry[16];
    size_t n = route_cors_headers(s, x, h);
    const char *id = exchange_header(x, "x-request-id");
    if (id) h[n++] = (struct http_header){"X-Request-Id", id};
    if (retry_after_s) {
        snprintf(retry, sizeof retry, "%u", retry_after_s);
        h[n++] = (struct http_header){"Retry-After", retry};
    }
    if (status == 401) h[n++] = (struct http_header){"WWW-Authenticate", "Bearer"};
    bool ok = buf_ok(body);
    exchange_reply(x, ok ? status : 500, ok ? type : NULL, h, n, ok ? body->data : NULL, ok ? body->len : 0,
                   NULL);
}

static void reply_failure(struct serve *s, struct exchange *x, unsigned status, const char *allow,
                          const struct error *e) {
    struct buf body = BUF_INIT;
    api_error_body(&body, status, e);
    atomic_fetch_add_explicit(&s->outcomes[api_error_outcome(status)], 1, memory_order_relaxed);
    if (allow) {
        struct http_header h[4] = {{"Allow", allow}};
        size_t n = 1 + route_cors_headers(s, x, h + 1);
        exchange_reply(x, status, "application/json", h, n, body.data, body.len, NULL);
    } else {
        route_reply(s, x, status, "application/json", &body, 0);
    }
    exchange_release(x);
    buf_free(&body);
}

void route_request(struct serve *s, struct exchange *x) {
    const char *path = exchange_path(x);
    enum http_method method = exchange_method(x) == HTTP_HEAD ? HTTP_GET : exchange_method(x);
    const struct route *found = NULL;
    bool known_path = false;
    for (size_t i = 0; i < N_ROUTES && !found; i++) {
        if (!path_matches(routes[i].path, path)) continue;
        known_path = true;
        if (routes[i].method == method) found = &routes[i];
    }
    char methods[64];
    methods_of(path, methods, sizeof methods);
    struct error e = {0};
    if (method == HTTP_OPTIONS && (known_path || !strcmp(path, "*"))) {
        reply_options(s, x, methods);
    } else if (s->config.n_api_keys && !(found && found->access == ACCESS_OPEN) &&
               !key_accepted(s, presented_key(x))) {
        error_set(&e, QUIRE_EINVAL, "a valid API key is needed: send \"Authorization: Bearer KEY\"");
        reply_failure(s, x, 401, NULL, &e);
    } else if (!known_path) {
        error_set(&e, QUIRE_ENOTFOUND, "there is no route %.100s", path);
        reply_failure(s, x, 404, NULL, &e);
    } else if (!found) {
        error_set(&e, QUIRE_EINVAL, "%.100s does not take %s; allowed: %s", path, http_method_name(method),
                  methods);
        reply_failure(s, x, 405, methods, &e);
    } else {
        found->handle(s, x);
    }
}
