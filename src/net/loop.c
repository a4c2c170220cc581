#include "net/internal.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/thread.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { POSTS_PER_WAKE = 4096, DRAIN_SWEEP_MS = 20, MAX_SWEEP_MS = 1000 };

size_t loop_index(const struct loop *loop) {
    return loop->index;
}
size_t loop_count(const struct loop *loop) {
    return loop->server->n_loops;
}

/* --- posts --- */

void loop_wake(struct loop *loop) {
    /* Full exchange on both sides: whoever finds the flag set is certain that the loop reads the queue
     * afterwards. */
    if (!atomic_exchange_explicit(&loop->woken, true, memory_order_acq_rel)) eventfd_write(loop->wake_fd, 1);
}

void loop_post(struct loop *loop, struct loop_node *node) {
    if (atomic_exchange_explicit(&node->posted, true, memory_order_acq_rel))
        return; /* run is still to come */
    mpsc_push(&loop->posted, &node->queue);
    loop_wake(loop);
}

/* True when the queue was emptied; otherwise sockets have their turn first. */
static bool run_posts(struct loop *loop) {
    for (size_t n = 0; n < POSTS_PER_WAKE; n++) {
        struct loop_node *node = (struct loop_node *)mpsc_pop(&loop->posted);
        if (!node) return true;
        atomic_exchange_explicit(&node->posted, false, memory_order_acq_rel);
        node->run(loop, node);
    }
    loop_wake(loop);
    return false;
}

/* --- connections with something left to do --- */

static void on_later(evutil_socket_t fd, short what, void *arg) {
    struct loop *loop = arg;
    struct conn *c = loop->due;
    loop->due = NULL;
    while (c) {
        struct conn *next = c->next_due;
        c->is_due = false;
        conn_continue(c);
        c = next;
    }
}

/* --- time-outs, drain, end --- */

static void for_each_conn(struct loop *loop, void (*visit)(struct conn *c)) {
    for (struct conn *c = loop->conns, *next; c; c = next) {
        next = c->next;
        visit(c);
    }
}

static void close_by_force(struct conn *c) {
    conn_close(c, GONE_SHUTDOWN);
}

static int set_sweep(struct loop *loop, unsigned period_ms) {
    struct timeval tv = {.tv_sec = period_ms / 1000, .tv_usec = (suseconds_t)(period_ms % 1000) * 1000};
    return event_add(loop->sweep, &tv);
}

static void follow_drain(struct loop *loop, uint64_t now_us) {
    struct server *s = loop->server;
    if (!loop->draining) {
        loop->draining = true;
        if (loop->index == 0) listeners_close(s);
        for_each_conn(loop, conn_close_idle);
        set_sweep(loop, DRAIN_SWEEP_MS);
    }
    if (now_us >= atomic_load(&s->drain_deadline_us)) for_each_conn(loop, close_by_force);
}

/* The loop ends when no connection can come any more, none is left, and the user has let go of every
 * exchange. */
static void end_if_done(struct loop *loop) {
    struct server *s = loop->server;
    if (!atomic_load(&s->stopping) || atomic_load(&s->listening)) return;
    if (run_posts(loop) && !loop->conns && !loop->n_exchanges) event_base_loopbreak(loop->base);
}

static void tick(struct loop *loop, uint64_t now_us) {
    if (!atomic_load(&loop->server->draining)) return;
    follow_drain(loop, now_us);
    end_if_done(loop);
}

static void on_wake(evutil_socket_t fd, short what, void *arg) {
    struct loop *loop = arg;
    eventfd_t count;
    eventfd_read(fd, &count); /* before the flag is cleared, or a wake in between is lost */
    atomic_exchange_explicit(&loop->woken, false, memory_order_acq_rel);
    run_posts(loop);
    tick(loop, clock_us());
}

static void on_sweep(evutil_socket_t fd, short what, void *arg) {
    struct loop *loop = arg;
    uint64_t now_us = clock_us();
    for (struct conn *c = loop->conns, *next; c; c = next) {
        next = c->next;
        conn_sweep(c, now_us);
    }
    tick(loop, now_us);
}

/* Often enough that no limit is overstepped by more than a quarter. */
static unsigned sweep_period_ms(const struct server_config *c) {
    const unsigned limits_ms[] = {c->head_ms, c->body_ms, c->idle_ms, c->stall_ms, c->linger_ms};
    unsigned period_ms = MAX_SWEEP_MS;
    for (size_t i = 0; i < sizeof limits_ms / sizeof *limits_ms; i++)
        if (limits_ms[i] / 4 < period_ms) period_ms = limits_ms[i] / 4;
    return period_ms ? period_ms : 1;
}

const char *loop_date(struct loop *loop) {
    time_t now = time(NULL);
    if (now != loop->date_unix_s) {
        struct tm tm;
        loop->date_unix_s = now;
        strftime(loop->date, sizeof loop->date, "%a, %d %b %Y %H:%M:%S GMT", gmtime_r(&now, &tm));
    }
    return loop->date;
}

/* --- life --- */

static void *run_loop(void *arg) {
    struct loop *loop = arg;
    const struct server_config *c = &loop->server->config;
    if (c->callbacks.on_loop_start) c->callbacks.on_loop_start(c->user, loop);
    event_base_dispatch(loop->base);
    if (c->callbacks.on_loop_stop) c->callbacks.on_loop_stop(c->user, loop);
    return NULL;
}

static struct event_base *new_base(void) {
    struct event_config *config = event_config_new();
    if (!config) return NULL;
    event_config_set_flag(config, EVENT_BASE_FLAG_NOLOCK); /* other threads only write wake_fd */
    struct event_base *base = event_base_new_with_config(config);
    event_config_free(config);
    return base;
}

int loop_start(struct loop *loop, struct server *server, size_t index, struct error *err) {
    loop->server = server;
    loop->index = index;
    mpsc_init(&loop->posted);
    loop->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (loop->wake_fd < 0) return error_set(err, QUIRE_EIO, "eventfd: %s", strerror(errno));
    loop->base = new_base();
    if (!loop->base) goto no_memory;
    loop->wake = event_new(loop->base, loop->wake_fd, EV_READ | EV_PERSIST, on_wake, loop);
    loop->sweep = event_new(loop->base, -1, EV_PERSIST, on_sweep, loop);
    loop->later = event_new(loop->base, -1, 0, on_later, loop);
    if (!loop->wake || !loop->sweep || !loop->later) goto no_memory;
    if (event_add(loop->wake, NULL) || set_sweep(loop, sweep_period_ms(&server->config))) goto no_memory;
    if (index == 0) {
        int rc = listeners_accept(server, err);
        if (rc) return rc;
    }

    char name[16];
    snprintf(name, sizeof name, "quire-loop-%u", (unsigned)(index % 1000));
    int rc = thread_start(&loop->thread, name, 0, run_loop, loop);
    if (rc) return error_set(err, QUIRE_EIO, "cannot start a loop thread: %s", strerror(rc));
    loop->running = true;
    return 0;

no_memory:
    return error_set(err, QUIRE_ENOMEM, "out of memory for an event loop");
}

void loop_join(struct loop *loop) {
    if (loop->running) pthread_join(loop->thread, NULL);
    loop->running = false;
}

void loop_destroy(struct loop *loop) {
    if (loop->wake) event_free(loop->wake);
    if (loop->sweep) event_free(loop->sweep);
    if (loop->later) event_free(loop->later);
    if (loop->base) event_base_free(loop->base); /* also runs what closed connections left to be freed */
    if (loop->wake_fd >= 0) close(loop->wake_fd);
    buf_free(&loop->scratch);
}

/* --- timers --- */

struct loop_timer {
    struct event *event;
    void (*fire)(void *user);
    void *user;
};

static void on_timer(evutil_socket_t fd, short what, void *arg) {
    struct loop_timer *timer = arg;
    timer->fire(timer->user); /* may free the timer */
}

struct loop_timer *loop_timer_new(struct loop *loop, void (*fire)(void *user), void *user) {
    struct loop_timer *timer = malloc(sizeof *timer);
    if (!timer) return NULL;
    *timer = (struct loop_timer){.fire = fire, .user = user};
    timer->event = event_new(loop->base, -1, 0, on_timer, timer);
    if (timer->event) return timer;
    free(timer);
    return NULL;
}

void loop_timer_arm(struct loop_timer *timer, unsigned delay_ms) {
    struct timeval tv = {.tv_sec = delay_ms / 1000, .tv_usec = (suseconds_t)(delay_ms % 1000) * 1000};
    event_add(timer->event, &tv);
}

void loop_timer_disarm(struct loop_timer *timer) {
    event_del(timer->event);
}

void loop_timer_free(struct loop_timer *timer) {
    if (!timer) return;
    event_free(timer->event);
    free(timer);
}
