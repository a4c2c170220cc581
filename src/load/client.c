#include "load/client.h"

#include "base/clock.h"
#include "base/error.h"
#include "load/stream.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <unistd.h>

#define SPARE_FILES 64 /* descriptors for everything else */
#define MAX_EVENTS  512

struct client {
    CURLM *multi;
    int epoll;
    uint64_t timer_us; /* when libcurl wants to be called; UINT64_MAX: not */
    struct curl_slist *headers;
    struct stream *streams, *free;
    size_t n_streams, n_active;
    uint64_t n_events, n_done;
    long timeout_ms;
};

/* libcurl tells which sockets it waits for. */
static int on_socket(CURL *easy, curl_socket_t fd, int what, void *user, void *known) {
    struct client *c = user;
    struct epoll_event e = {.data.fd = fd};
    if (what == CURL_POLL_REMOVE) {
        epoll_ctl(c->epoll, EPOLL_CTL_DEL, fd, NULL);
        return 0;
    }
    if (what & CURL_POLL_IN) e.events |= EPOLLIN;
    if (what & CURL_POLL_OUT) e.events |= EPOLLOUT;
    if (epoll_ctl(c->epoll, known ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd, &e) && errno == EEXIST)
        epoll_ctl(c->epoll, EPOLL_CTL_MOD, fd, &e);
    if (!known) curl_multi_assign(c->multi, fd, c);
    return 0;
}

static int on_timer(CURLM *multi, long ms, void *user) {
    struct client *c = user;
    c->timer_us = ms < 0 ? UINT64_MAX : clock_us() + (uint64_t)ms * 1000;
    return 0;
}

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

static int make_headers(struct client *c, const char *api_key, struct error *err) {
    struct buf key = BUF_INIT;
    c->headers = curl_slist_append(NULL, "Content-Type: application/json");
    struct curl_slist *more = c->headers ? curl_slist_append(c->headers, "Expect:") : NULL;
    if (more && api_key) {
        buf_printf(&key, "Authorization: Bearer %s", api_key);
        more = buf_ok(&key) ? curl_slist_append(c->headers, key.data) : NULL;
    }
    buf_free(&key);
    return more ? 0 : error_set(err, QUIRE_ENOMEM, "out of memory");
}

int client_new(const struct client_config *config, struct client **out, struct error *err) {
    struct client *c = calloc(1, sizeof *c);
    size_t n = config->max_streams + 1; /* and one for the server's metrics */
    if (!c) return error_set(err, QUIRE_ENOMEM, "out of memory");
    c->epoll = -1;
    c->timer_us = UINT64_MAX;
    c->timeout_ms = (long)(config->timeout_s * 1000);
    int rc = allow_files(n, err);
    if (!rc) rc = make_headers(c, config->api_key, err);
    if (rc) goto fail;
    c->streams = calloc(n, sizeof *c->streams);
    c->multi = curl_multi_init();
    c->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (!c->streams || !c->multi || c->epoll < 0) {
        rc = error_set(err, QUIRE_ENOMEM, "out of memory for %zu streams", n);
        goto fail;
    }
    c->n_streams = n;
    for (size_t i = n; i-- > 0;) {
        c->streams[i].client = c;
        c->streams[i].n_events = &c->n_events;
        c->streams[i].next = c->free;
        c->free = &c->streams[i];
    }
    curl_multi_setopt(c->multi, CURLMOPT_SOCKETFUNCTION, on_socket);
    curl_multi_setopt(c->multi, CURLMOPT_SOCKETDATA, c);
    curl_multi_setopt(c->multi, CURLMOPT_TIMERFUNCTION, on_timer);
    curl_multi_setopt(c->multi, CURLMOPT_TIMERDATA, c);
    curl_multi_setopt(c->multi, CURLMOPT_MAXCONNECTS, (long)n);
    curl_multi_setopt(c->multi, CURLMOPT_PIPELINING, CURLPIPE_NOTHING);
    *out = c;
    return 0;
fail:
    client_free(c);
    return rc;
}

static void set_up(struct stream *s) {
    struct client *c = s->client;
    CURL *e = s->easy;
    curl_easy_setopt(e, CURLOPT_HTTPHEADER, c->headers);
    curl_easy_setopt(e, CURLOPT_WRITEFUNCTION, stream_receive);
    curl_easy_setopt(e, CURLOPT_WRITEDATA, s);
    curl_easy_setopt(e, CURLOPT_PRIVATE, s);
    curl_easy_setopt(e, CURLOPT_ERRORBUFFER, s->why);
    curl_easy_setopt(e, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(e, CURLOPT_CONNECTTIMEOUT, 30L);
    curl_easy_setopt(e, CURLOPT_TIMEOUT_MS, c->timeout_ms);
    curl_easy_setopt(e, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(e, CURLOPT_PROTOCOLS_STR, "http,https");
}

static void clear(struct stream *s) {
    buf_clear(&s->answer.text);
    s->answer = (struct answer){
        .prompt_tokens = -1, .output_tokens = -1, .cached_tokens = -1, .text = s->answer.text};
    buf_clear(&s->pending);
    buf_clear(&s->whole);
    s->is_stream = s->finished = s->typed = false;
    s->why[0] = 0;
}

int client_start(struct client *c, const struct client_request *r, struct error *err) {
    struct stream *s = c->free;
    if (!s) return error_set(err, QUIRE_EINTERNAL, "more requests than streams");
    if (!s->easy) {
        s->easy = curl_easy_init();
        if (!s->easy) return error_set(err, QUIRE_ENOMEM, "out of memory");
        set_up(s);
    }
    clear(s);
    s->request = *r;
    curl_easy_setopt(s->easy, CURLOPT_URL, r->url);
    if (r->body) {
        curl_easy_setopt(s->easy, CURLOPT_POST, 1L);
        curl_easy_setopt(s->easy, CURLOPT_POSTFIELDS, r->body->data);
        curl_easy_setopt(s->easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)r->body->len);
    } else {
        curl_easy_setopt(s->easy, CURLOPT_HTTPGET, 1L);
    }
    s->answer.sent_us = clock_us();
    CURLMcode rc = curl_multi_add_handle(c->multi, s->easy);
    if (rc) return error_set(err, QUIRE_EIO, "a request could not be started: %s", curl_multi_strerror(rc));
    c->free = s->next;
    s->busy = true;
    c->n_active++;
    return 0;
}

static void finish(struct stream *s) {
    struct client *c = s->client;
    curl_multi_remove_handle(c->multi, s->easy);
    s->busy = false;
    s->next = c->free;
    c->free = s;
    c->n_active--;
    c->n_done++;
    /* `done` may start a request on this very stream, which clears the answer: it gets its own. */
    struct answer answer = s->answer;
    s->answer.text = BUF_INIT;
    s->request.done(s->request.user, &answer);
    if (s->busy || s->answer.text.data)
        buf_free(&answer.text);
    else
        s->answer.text = answer.text;
}

static void collect(struct client *c) {
    CURLMsg *m;
    int left;
    while ((m = curl_multi_info_read(c->multi, &left))) {
        struct stream *s = NULL;
        if (m->msg != CURLMSG_DONE) continue;
        CURLcode rc = m->data.result;
        curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, &s);
        stream_conclude(s, rc);
        finish(s);
    }
}

static int wait_events(struct client *c, uint64_t until_us, struct epoll_event *events) {
    uint64_t now = clock_us(), due = until_us < c->timer_us ? until_us : c->timer_us;
    uint64_t left = due > now ? due - now : 0;
    struct timespec t = {(time_t)(left / 1000000), (long)(left % 1000000) * 1000};
    int n = epoll_pwait2(c->epoll, events, MAX_EVENTS, &t, NULL);
    if (n < 0 && errno == ENOSYS) n = epoll_wait(c->epoll, events, MAX_EVENTS, (int)(left / 1000));
    return n < 0 && errno == EINTR ? 0 : n;
}

int client_wait(struct client *c, uint64_t until_us, struct error *err) {
    struct epoll_event events[MAX_EVENTS];
    uint64_t done = c->n_done;
    int running;
    do {
        int n = wait_events(c, until_us, events);
        if (n < 0) return error_set(err, QUIRE_EIO, "waiting for sockets failed: %s", strerror(errno));
        for (int i = 0; i < n; i++) {
            int what = (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR) ? CURL_CSELECT_IN : 0) |
                       (events[i].events & EPOLLOUT ? CURL_CSELECT_OUT : 0) |
                       (events[i].events & EPOLLERR ? CURL_CSELECT_ERR : 0);
            curl_multi_socket_action(c->multi, events[i].data.fd, what, &running);
        }
        if (c->timer_us <= clock_us()) {
            c->timer_us = UINT64_MAX;
            curl_multi_socket_action(c->multi, CURL_SOCKET_TIMEOUT, 0, &running);
        }
        collect(c);
    } while (c->n_done == done && clock_us() < until_us);
    return 0;
}

size_t client_active(const struct client *c) {
    return c->n_active;
}

uint64_t client_events(const struct client *c) {
    return c->n_events;
}

void client_cancel_all(struct client *c) {
    for (size_t i = 0; i < c->n_streams; i++) {
        struct stream *s = &c->streams[i];
        if (!s->busy) continue;
        s->answer.outcome = OUTCOME_CANCELED;
        s->answer.end_us = clock_us();
        finish(s);
    }
}

void client_free(struct client *c) {
    if (!c) return;
    for (size_t i = 0; i < c->n_streams; i++) {
        struct stream *s = &c->streams[i];
        if (s->busy) curl_multi_remove_handle(c->multi, s->easy);
        curl_easy_cleanup(s->easy);
        buf_free(&s->answer.text);
        buf_free(&s->pending);
        buf_free(&s->whole);
    }
    if (c->multi) curl_multi_cleanup(c->multi);
    if (c->epoll >= 0) close(c->epoll);
    curl_slist_free_all(c->headers);
    free(c->streams);
    free(c);
}
