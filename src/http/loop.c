/* libcurl's socket interface on epoll: the work of a call follows what happened, not how many requests there
 * are. */
#include "http/http_impl.h"

#include "base/clock.h"
#include "base/error.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define MAX_EVENTS 512

/* libcurl tells which sockets it waits for. */
static int on_socket(CURL *easy, curl_socket_t fd, int what, void *user, void *known) {
    struct http *h = user;
    struct epoll_event e = {.data.fd = fd};
    if (what == CURL_POLL_REMOVE) {
        epoll_ctl(h->epoll, EPOLL_CTL_DEL, fd, NULL);
        return 0;
    }
    if (what & CURL_POLL_IN) e.events |= EPOLLIN;
    if (what & CURL_POLL_OUT) e.events |= EPOLLOUT;
    if (epoll_ctl(h->epoll, known ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd, &e) && errno == EEXIST)
        epoll_ctl(h->epoll, EPOLL_CTL_MOD, fd, &e);
    if (!known) curl_multi_assign(h->multi, fd, h);
    return 0;
}

static int on_timer(CURLM *multi, long ms, void *user) {
    struct http *h = user;
    h->timer_us = ms < 0 ? UINT64_MAX : clock_us() + (uint64_t)ms * 1000;
    return 0;
}

int loop_open(struct http *h) {
    h->timer_us = UINT64_MAX;
    h->multi = curl_multi_init();
    h->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (!h->multi || h->epoll < 0) return QUIRE_ENOMEM;
    curl_multi_setopt(h->multi, CURLMOPT_SOCKETFUNCTION, on_socket);
    curl_multi_setopt(h->multi, CURLMOPT_SOCKETDATA, h);
    curl_multi_setopt(h->multi, CURLMOPT_TIMERFUNCTION, on_timer);
    curl_multi_setopt(h->multi, CURLMOPT_TIMERDATA, h);
    curl_multi_setopt(h->multi, CURLMOPT_MAXCONNECTS, (long)h->n_transfers);
    curl_multi_setopt(h->multi, CURLMOPT_PIPELINING, CURLPIPE_NOTHING);
    return 0;
}

void loop_close(struct http *h) {
    if (h->multi) curl_multi_cleanup(h->multi);
    if (h->epoll >= 0) close(h->epoll);
}

static void collect(struct http *h) {
    CURLMsg *m;
    int left;
    while ((m = curl_multi_info_read(h->multi, &left))) {
        struct transfer *t = NULL;
        if (m->msg != CURLMSG_DONE) continue;
        CURLcode rc = m->data.result;
        curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, &t);
        http_finish(t, http_conclude(t, rc));
    }
}

static int wait_events(struct http *h, uint64_t until_us, struct epoll_event *events) {
    uint64_t now = clock_us(), due = until_us < h->timer_us ? until_us : h->timer_us;
    uint64_t left = due > now ? due - now : 0;
    struct timespec t = {(time_t)(left / 1000000), (long)(left % 1000000) * 1000};
    int n = epoll_pwait2(h->epoll, events, MAX_EVENTS, &t, NULL);
    if (n < 0 && errno == ENOSYS) n = epoll_wait(h->epoll, events, MAX_EVENTS, (int)(left / 1000));
    return n < 0 && errno == EINTR ? 0 : n;
}

int http_wait(struct http *h, uint64_t until_us, struct error *err) {
    struct epoll_event events[MAX_EVENTS];
    uint64_t done = h->n_done;
    int running;
    do {
        int n = wait_events(h, until_us, events);
        if (n < 0) return error_set(err, QUIRE_EIO, "waiting for sockets failed: %s", strerror(errno));
        for (int i = 0; i < n; i++) {
            int what = (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR) ? CURL_CSELECT_IN : 0) |
                       (events[i].events & EPOLLOUT ? CURL_CSELECT_OUT : 0) |
                       (events[i].events & EPOLLERR ? CURL_CSELECT_ERR : 0);
            curl_multi_socket_action(h->multi, events[i].data.fd, what, &running);
        }
        if (h->timer_us <= clock_us()) {
            h->timer_us = UINT64_MAX;
            curl_multi_socket_action(h->multi, CURL_SOCKET_TIMEOUT, 0, &running);
        }
        collect(h);
    } while (h->n_done == done && clock_us() < until_us);
    return 0;
}
