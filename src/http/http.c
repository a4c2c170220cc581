#include "http/http_impl.h"

#include "base/clock.h"
#include "base/error.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/resource.h>
#include <unistd.h>

#define SPARE_FILES 64 /* descriptors for everything else */
#define CONNECT_S   30L
#define STEP_US     1000000

static int no_memory(struct error *err) {
    return error_set(err, QUIRE_ENOMEM, "out of memory for HTTP requests");
}

/* ---- a request's way through libcurl ---- */

static void note_head(struct transfer *t) {
    const char *type = NULL;
    long status = 0;
    curl_easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &status);
    curl_easy_getinfo(t->easy, CURLINFO_CONTENT_TYPE, &type);
    t->answer.status = (unsigned)status;
    snprintf(t->answer.type, sizeof t->answer.type, "%s", type ? type : "");
    struct curl_header *encoding;
    if (!curl_easy_header(t->easy, "Content-Encoding", 0, CURLH_HEADER, -1, &encoding))
        snprintf(t->answer.encoding, sizeof t->answer.encoding, "%s", encoding->value);
    t->began = true;
}

static size_t receive(char *data, size_t size, size_t n, void *user) {
    struct transfer *t = user;
    n *= size;
    if (!t->began) note_head(t);
    if (t->request.receive) return t->request.receive(t->request.user, &t->answer, data, n) ? n : 0;
    if (!t->request.into) return n;
    buf_append(t->request.into, data, n);
    return buf_ok(t->request.into) ? n : 0;
}

/* The host of a URL is this machine: a proxy would look for it on its own. */
static bool is_local(const char *url) {
    static const char *const hosts[] = {"localhost", "127.", "[::1]"};
    const char *host = strstr(url, "://");
    host = host ? host + 3 : url;
    for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++)
        if (!strncasecmp(host, hosts[i], strlen(hosts[i]))) return true;
    return false;
}

/* What is the same for all requests. */
static void set_up(struct transfer *t) {
    const struct http_config *c = &t->http->config;
    CURL *e = t->easy;
    curl_easy_setopt(e, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(e, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(e, CURLOPT_USERAGENT, "quire");
    curl_easy_setopt(e, CURLOPT_WRITEFUNCTION, receive);
    curl_easy_setopt(e, CURLOPT_WRITEDATA, t);
    curl_easy_setopt(e, CURLOPT_PRIVATE, t);
    curl_easy_setopt(e, CURLOPT_ERRORBUFFER, t->answer.why);
    curl_easy_setopt(e, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(e, CURLOPT_TCP_KEEPALIVE, 1L);
    curl_easy_setopt(e, CURLOPT_CONNECTTIMEOUT, CONNECT_S);
    curl_easy_setopt(e, CURLOPT_TIMEOUT_MS, (long)(c->timeout_s * 1000));
    if (c->stall_s) {
        curl_easy_setopt(e, CURLOPT_LOW_SPEED_LIMIT, 1L);
        curl_easy_setopt(e, CURLOPT_LOW_SPEED_TIME, (long)c->stall_s);
    }
    curl_easy_setopt(e, CURLOPT_FOLLOWLOCATION, c->redirects ? 1L : 0L);
    curl_easy_setopt(e, CURLOPT_MAXREDIRS, (long)c->redirects);
    if (c->ca_cert) curl_easy_setopt(e, CURLOPT_CAINFO, c->ca_cert);
    if (c->insecure) {
        curl_easy_setopt(e, CURLOPT_SSL_VERIFYPEER, 0L);
        curl_easy_setopt(e, CURLOPT_SSL_VERIFYHOST, 0L);
    }
    if (c->bearer) { /* libcurl does not send it on to other hosts */
        curl_easy_setopt(e, CURLOPT_HTTPAUTH, CURLAUTH_BEARER);
        curl_easy_setopt(e, CURLOPT_XOAUTH2_BEARER, c->bearer);
    }
}

/* What is of this request. */
static void set_request(struct transfer *t) {
    const struct http_request *r = &t->request;
    CURL *e = t->easy;
    bool secure = !strncasecmp(r->url, "https:", 6); /* and stays so */
    curl_easy_setopt(e, CURLOPT_URL, r->url);
    curl_easy_setopt(e, CURLOPT_REDIR_PROTOCOLS_STR, secure ? "https" : "http,https");
    curl_easy_setopt(e, CURLOPT_PROXY, is_local(r->url) ? "" : NULL);
    char range[48];
    snprintf(range, sizeof range, "%llu-%llu", (unsigned long long)r->from_bytes,
             (unsigned long long)r->to_bytes - 1);
    curl_easy_setopt(e, CURLOPT_RANGE, r->to_bytes ? range : NULL); /* is copied */
    curl_easy_setopt(e, CURLOPT_RESUME_FROM_LARGE, r->to_bytes ? 0 : (curl_off_t)r->from_bytes);
    if (r->body) {
        curl_easy_setopt(e, CURLOPT_POST, 1L);
        curl_easy_setopt(e, CURLOPT_HTTPHEADER, t->http->post_headers);
        curl_easy_setopt(e, CURLOPT_POSTFIELDS, r->body->data);
        curl_easy_setopt(e, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)r->body->len);
    } else {
        curl_easy_setopt(e, CURLOPT_HTTPGET, 1L);
        curl_easy_setopt(e, CURLOPT_HTTPHEADER, NULL);
    }
}

int http_start(struct http *h, const struct http_request *r, struct error *err) {
    struct transfer *t = h->free;
    if (!t) return error_set(err, QUIRE_EINTERNAL, "more than %zu requests at once", h->n_transfers);
    if (!t->easy) {
        t->easy = curl_easy_init();
        if (!t->easy) return no_memory(err);
        set_up(t);
    }
    t->request = *r;
    t->answer.status = 0;
    t->answer.type[0] = t->answer.encoding[0] = t->answer.why[0] = 0;
    t->began = false;
    set_request(t);
    CURLMcode rc = curl_multi_add_handle(h->multi, t->easy);
    if (rc) return error_set(err, QUIRE_EIO, "a request could not be started: %s", curl_multi_strerror(rc));
    h->free = t->next;
    t->busy = true;
    h->n_active++;
    return 0;
}

/* ---- ends ---- */

static enum http_end end_of(CURLcode rc) {
    switch (rc) {
    case CURLE_OK: return HTTP_COMPLETE;
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_URL_MALFORMAT:
    case CURLE_TOO_MANY_REDIRECTS: return HTTP_URL;
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY: return HTTP_NAME;
    case CURLE_COULDNT_CONNECT:
    case CURLE_SSL_CONNECT_ERROR: return HTTP_CONNECT;
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_ISSUER_ERROR: return HTTP_UNTRUSTED;
    case CURLE_OPERATION_TIMEDOUT: return HTTP_TIMEOUT;
    case CURLE_WRITE_ERROR: return HTTP_STOPPED;
    default: return HTTP_CUT;
    }
}

/* libcurl tells such an answer as it does a protocol that it does not have. */
static bool is_no_http(struct transfer *t, CURLcode rc) {
    curl_off_t connected_us = 0;
    if (rc != CURLE_UNSUPPORTED_PROTOCOL || t->answer.status) return false;
    curl_easy_getinfo(t->easy, CURLINFO_CONNECT_TIME_T, &connected_us);
    return connected_us > 0;
}

enum http_end http_conclude(struct transfer *t, CURLcode rc) {
    struct http_answer *a = &t->answer;
    if (!t->began) note_head(t);
    if (!rc)
        a->why[0] = 0;
    else if (rc == CURLE_OUT_OF_MEMORY) /* which libcurl also says of this */
        snprintf(a->why, sizeof a->why, "out of memory, or a line of the answer's head above 100 KB");
    else if (!*a->why)
        snprintf(a->why, sizeof a->why, "%s", curl_easy_strerror(rc));
    for (char *p = a->why; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f) *p = ' ';
    return is_no_http(t, rc) ? HTTP_CUT : end_of(rc);
}

void http_finish(struct transfer *t, enum http_end end) {
    struct http *h = t->http;
    curl_multi_remove_handle(h->multi, t->easy);
    t->answer.end = end;
    t->busy = false;
    t->next = h->free;
    h->free = t;
    h->n_active--;
    h->n_done++;
    if (!t->request.done) return;
    struct http_answer answer = t->answer; /* `done` may start a request on this very transfer */
    t->request.done(t->request.user, &answer);
}

void http_cancel_all(struct http *h) {
    for (size_t i = 0; i < h->n_transfers; i++)
        if (h->transfers[i].busy) {
            h->transfers[i].answer.why[0] = 0;
            http_finish(&h->transfers[i], HTTP_CANCELED);
        }
}

size_t http_active(const struct http *h) {
    return h->n_active;
}

int http_check_trust(const struct http_config *c, const char *url, struct error *err) {
    if (c->ca_cert && c->insecure)
        return error_set(err, QUIRE_EINVAL,
                         "--insecure accepts any certificate: --ca-cert would have no effect");
    if ((c->ca_cert || c->insecure) && strncasecmp(url, "https://", 8) != 0)
        return error_set(err, QUIRE_EINVAL, "--%s is for an https:// server, \"%.100s\" has no certificate",
                         c->insecure ? "insecure" : "ca-cert", url);
    return 0;
}

const char *http_advice(const struct http_answer *answer) {
    return answer->end == HTTP_UNTRUSTED
               ? " (--ca-cert FILE names the authority to trust, --insecure accepts any certificate)"
               : "";
}

/* ---- one at a time ---- */

struct single {
    const struct http_request *request;
    struct http_answer *answer;
    bool done;
};

static bool single_receive(void *user, const struct http_answer *answer, const char *data, size_t n) {
    struct single *s = user;
    return s->request->receive(s->request->user, answer, data, n);
}

static void single_done(void *user, const struct http_answer *answer) {
    struct single *s = user;
    *s->answer = *answer;
    s->done = true;
    if (s->request->done) s->request->done(s->request->user, answer);
}

int http_perform(struct http *h, const struct http_request *r, struct http_answer *answer,
                 struct error *err) {
    struct single s = {r, answer, false};
    struct http_request own = *r;
    own.receive = r->receive ? single_receive : NULL;
    own.done = single_done;
    own.user = &s;
    int rc = http_start(h, &own, err);
    while (!rc && !s.done) rc = http_wait(h, clock_us() + STEP_US, err);
    return rc;
}

/* ---- from opening to closing ---- */

static int allow_files(size_t n, struct error *err) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit))
        return error_set(err, QUIRE_EIO, "the limit of open files is unknown");
    if (limit.rlim_cur >= n + SPARE_FILES) return 0;
    limit.rlim_cur = n + SPARE_FILES;
    if (limit.rlim_cur > limit.rlim_max || setrlimit(RLIMIT_NOFILE, &limit))
        return error_set(err, QUIRE_ELIMIT,
                         "%zu streams at once need %zu open files; %llu are allowed here (ulimit -n)", n,
                         n + SPARE_FILES, (unsigned long long)limit.rlim_max);
    return 0;
}

static int copy(const char **s, struct error *err) {
    if (!*s) return 0;
    *s = strdup(*s);
    return *s ? 0 : no_memory(err);
}

/* A line end within it would begin another header. */
static int check_bearer(const char *token, struct error *err) {
    for (const char *p = token; p && *p; p++)
        if ((unsigned char)*p <= ' ' || *p == 0x7f)
            return error_set(
                err, QUIRE_EINVAL,
                "the key that requests bring (--api-key, QUIRE_API_KEY, HF_TOKEN) has a blank or "
                "control character at position %zu; visible ones are allowed",
                (size_t)(p - token) + 1);
    return 0;
}

static int copy_config(struct http *h, const struct http_config *config, struct error *err) {
    h->config = *config;
    h->config.ca_cert = h->config.bearer = NULL;
    int rc = check_bearer(config->bearer, err);
    if (!rc) h->config.bearer = config->bearer;
    if (!rc) rc = copy(&h->config.bearer, err);
    if (rc || !config->ca_cert) return rc;
    h->config.ca_cert = config->ca_cert;
    rc = copy(&h->config.ca_cert, err);
    if (!rc && access(config->ca_cert, R_OK))
        rc = error_set(err, QUIRE_ENOTFOUND, "--ca-cert %.200s cannot be read: %s", config->ca_cert,
                       strerror(errno));
    return rc;
}

static int make_headers(struct http *h, struct error *err) {
    h->post_headers = curl_slist_append(NULL, "Content-Type: application/json");
    return h->post_headers && curl_slist_append(h->post_headers, "Expect:") ? 0 : no_memory(err);
}

static int make_transfers(struct http *h, size_t n, struct error *err) {
    h->transfers = calloc(n, sizeof *h->transfers);
    if (!h->transfers) return no_memory(err);
    h->n_transfers = n;
    for (size_t i = n; i-- > 0;) {
        h->transfers[i].http = h;
        h->transfers[i].next = h->free;
        h->free = &h->transfers[i];
    }
    return 0;
}

int http_new(const struct http_config *config, struct http **out, struct error *err) {
    struct http *h = calloc(1, sizeof *h);
    if (!h) return no_memory(err);
    h->epoll = -1;
    h->global = !curl_global_init(CURL_GLOBAL_DEFAULT);
    int rc = h->global ? copy_config(h, config, err) : no_memory(err);
    if (!rc) rc = allow_files(config->n_at_once, err);
    if (!rc) rc = make_headers(h, err);
    if (!rc) rc = make_transfers(h, config->n_at_once, err);
    if (!rc && loop_open(h)) rc = no_memory(err);
    if (rc) {
        http_free(h);
        return rc;
    }
    *out = h;
    return 0;
}

void http_free(struct http *h) {
    if (!h) return;
    for (size_t i = 0; i < h->n_transfers; i++) {
        struct transfer *t = &h->transfers[i];
        if (t->busy) curl_multi_remove_handle(h->multi, t->easy);
        curl_easy_cleanup(t->easy);
    }
    loop_close(h);
    curl_slist_free_all(h->post_headers);
    free((char *)h->config.bearer);
    free((char *)h->config.ca_cert);
    free(h->transfers);
    if (h->global) curl_global_cleanup();
    free(h);
}
