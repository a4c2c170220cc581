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
    const char *about;
};

static const struct route routes[] = {
    {HTTP_POST, "/v1/chat/completions", ACCESS_KEY, handle_chat, "answer to a conversation"},
    {HTTP_POST, "/v1/completions", ACCESS_KEY, handle_completion, "continuation of texts or token ids"},
    {HTTP_POST, "/v1/embeddings", ACCESS_KEY, handle_embedding, "vectors of texts or token ids"},
    {HTTP_POST, "/v1/rerank", ACCESS_KEY, handle_rerank, "documents in order of relevance to a query"},
    {HTTP_POST, "/v2/rerank", ACCESS_KEY, handle_rerank, "the same"},
    {HTTP_POST, "/rerank", ACCESS_KEY, handle_rerank, "the same"},
    {HTTP_POST, "/v1/score", ACCESS_KEY, handle_score, "how well pairs of texts go together"},
    {HTTP_POST, "/score", ACCESS_KEY, handle_score, "the same"},
    {HTTP_GET, "/v1/models", ACCESS_KEY, handle_models, "the served names"},
    {HTTP_GET, "/v1/models/*", ACCESS_KEY, handle_model, "one of them"},
    {HTTP_POST, "/tokenize", ACCESS_KEY, handle_tokenize, "text or conversation to token ids"},
    {HTTP_POST, "/detokenize", ACCESS_KEY, handle_detokenize, "token ids to text"},
    {HTTP_GET, "/version", ACCESS_KEY, handle_version, "version of Quire"},
    {HTTP_GET, "/metrics", ACCESS_KEY, handle_metrics, "Prometheus text, see metrics.md"},
    {HTTP_GET, "/health", ACCESS_OPEN, handle_health,
     "200 while requests are served; 503 when draining or stuck"},
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

size_t route_headers(const struct serve *s, const struct exchange *x, const char *id,
                     struct http_header out[ROUTE_HEADERS]) {
    const char *origin = allowed_origin(s, exchange_header(x, "origin"));
    const char *given = exchange_header(x, "x-request-id");
    size_t n = 0;
    if (origin) {
        out[n++] = (struct http_header){"Access-Control-Allow-Origin", origin};
        out[n++] = (struct http_header){"Access-Control-Expose-Headers", "X-Request-Id, Retry-After"};
    }
    if (s->config.n_allowed_origins) out[n++] = (struct http_header){"Vary", "Origin"};
    if (given || id) out[n++] = (struct http_header){"X-Request-Id", given ? given : id};
    return n;
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
    struct http_header h[ROUTE_HEADERS + 4];
    size_t n = route_headers(s, x, NULL, h);
    if (allowed_origin(s, exchange_header(x, "origin"))) {
        const char *asked = exchange_header(x, "access-control-request-headers");
        h[n++] = (struct http_header){"Access-Control-Allow-Methods", methods};
        h[n++] = (struct http_header){"Access-Control-Allow-Headers",
                                      asked ? asked : "Authorization, Content-Type, X-Api-Key"};
        h[n++] = (struct http_header){"Access-Control-Max-Age", "600"};
    }
    h[n++] = (struct http_header){"Allow", methods};
    exchange_reply(x, 204, NULL, h, n, NULL, 0, NULL);
    access_log(s, x, 204);
    exchange_release(x);
}

/* ---- answers ---- */

#define RETRY_AFTER_S "1"

static void reply(struct serve *s, struct exchange *x, unsigned status, const char *type,
                  const struct buf *body, const char *id, const char *allow) {
    struct http_header h[ROUTE_HEADERS + 3];
    size_t n = route_headers(s, x, id, h);
    if (status == 503) h[n++] = (struct http_header){"Retry-After", RETRY_AFTER_S};
    if (status == 401) h[n++] = (struct http_header){"WWW-Authenticate", "Bearer"};
    if (allow) h[n++] = (struct http_header){"Allow", allow};
    bool ok = buf_ok(body);
    exchange_reply(x, ok ? status : 500, ok ? type : NULL, h, n, ok ? body->data : NULL, ok ? body->len : 0,
                   NULL);
}

void route_reply(struct serve *s, struct exchange *x, unsigned status, const char *type,
                 const struct buf *body, const char *id) {
    reply(s, x, status, type, body, id, NULL);
}

static void refuse(struct serve *s, struct exchange *x, unsigned status, const char *allow,
                   const struct error *e) {
    struct buf body = BUF_INIT;
    api_error_body(&body, status, e);
    atomic_fetch_add_explicit(&s->outcomes[api_error_outcome(status)], 1, memory_order_relaxed);
    reply(s, x, status, "application/json", &body, NULL, allow);
    access_log(s, x, status);
    exchange_release(x);
    buf_free(&body);
}

/* ---- what a body may be ---- */

/* The media type of a Content-Type, without its parameters: is it this one? */
static bool is_media_type(const char *value, const char *type) {
    size_t n = strlen(type);
    if (strncasecmp(value, type, n)) return false;
    for (value += n; *value == ' ' || *value == '\t';) value++;
    return !*value || *value == ';';
}

/* A body is JSON in plain bytes. Other types are refused, so that no web page can send a request here without
 * the browser asking first (forms and text/plain need no preflight). */
static bool body_accepted(const struct exchange *x, struct error *e) {
    const char *type = exchange_header(x, "content-type"), *coding = exchange_header(x, "content-encoding");
    if (type && !is_media_type(type, "application/json")) {
        error_set(e, QUIRE_EUNSUPPORTED,
                  "Content-Type is \"%.100s\"; send \"Content-Type: application/json\"", type);
        return false;
    }
    if (coding && strcasecmp(coding, "identity")) {
        error_set(e, QUIRE_EUNSUPPORTED, "Content-Encoding is \"%.100s\"; send the body uncompressed",
                  coding);
        return false;
    }
    return true;
}

/* ---- dispatch ---- */

static const struct route *find_route(const char *path, enum http_method method, bool *known_path) {
    for (size_t i = 0; i < N_ROUTES; i++) {
        if (!path_matches(routes[i].path, path)) continue;
        *known_path = true;
        if (routes[i].method == method) return &routes[i];
    }
    return NULL;
}

void route_request(struct serve *s, struct exchange *x) {
    const char *path = exchange_path(x);
    enum http_method method = exchange_method(x) == HTTP_HEAD ? HTTP_GET : exchange_method(x);
    bool known_path = false;
    const struct route *found = find_route(path, method, &known_path);
    char methods[64];
    struct error e = {0};
    methods_of(path, methods, sizeof methods);
    if (method == HTTP_OPTIONS && (known_path || !strcmp(path, "*"))) {
        reply_options(s, x, methods);
    } else if (s->config.n_api_keys && !(found && found->access == ACCESS_OPEN) &&
               !key_accepted(s, presented_key(x))) {
        error_set(&e, QUIRE_EINVAL, "a valid API key is needed: send \"Authorization: Bearer KEY\"");
        refuse(s, x, 401, NULL, &e);
    } else if (!known_path) {
        error_set(&e, QUIRE_ENOTFOUND, "there is no route %.100s", path);
        refuse(s, x, 404, NULL, &e);
    } else if (!found) {
        error_set(&e, QUIRE_EINVAL, "%.100s does not take %s; allowed: %s", path,
                  http_method_name(exchange_method(x)), methods);
        refuse(s, x, 405, methods, &e);
    } else if (found->method == HTTP_POST && !body_accepted(x, &e)) {
        refuse(s, x, 415, NULL, &e);
    } else {
        found->handle(s, x);
    }
}

void serve_print_routes(FILE *out) {
    fprintf(out, "| method | path | key | |\n|---|---|---|---|\n");
    for (size_t i = 0; i < N_ROUTES; i++) {
        const struct route *r = &routes[i];
        size_t n = strlen(r->path);
        bool rest = n && r->path[n - 1] == '*';
        fprintf(out, "| %s | `%.*s%s` | %s | %s |\n", http_method_name(r->method), (int)(n - rest), r->path,
                rest ? "{id}" : "", r->access == ACCESS_OPEN ? "open" : "needed", r->about);
    }
}
