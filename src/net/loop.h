/* Event loop threads. Each loop owns its connections and their exchanges; other threads reach it by posting
 * nodes. Everything but loop_post, loop_index and loop_count is for the loop's own thread. */
#ifndef NET_LOOP_H
#define NET_LOOP_H

#include "base/mpsc.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

struct loop;

/* Embedded in whatever is posted; zero but for `run`. From the moment that `run` is called, on the loop
 * thread, the node is its owner's again: run may free it or post it again. */
struct loop_node {
    struct mpsc_node queue; /* first, so that it is the node */
    atomic_bool posted;     /* waits to be run */
    void (*run)(struct loop *loop, struct loop_node *node);
};

/* Any thread; never blocks or allocates. A node that is posted already is not posted twice: it runs once,
 * after the last of these posts, and sees what was written before them. Nodes of one thread run in order.
 * Wakes are coalesced: however many nodes are posted while the loop is busy, it is woken once; and what the
 * nodes of one batch write to a stream leaves in one write. After server_stop a node is accepted and never
 * run; after server_free nothing may be posted. */
void loop_post(struct loop *loop, struct loop_node *node);

size_t loop_index(const struct loop *loop); /* 0 .. loop_count - 1: index for the user's own state per loop */
size_t loop_count(const struct loop *loop);

/* A timer of one loop. Create it in on_loop_start or later, free it in on_loop_stop or earlier. */
struct loop_timer;
struct loop_timer *loop_timer_new(struct loop *loop, void (*fire)(void *user),
                                  void *user);                    /* NULL: no memory */
void loop_timer_arm(struct loop_timer *timer, unsigned delay_ms); /* once; arming again replaces the time */
void loop_timer_disarm(struct loop_timer *timer);
void loop_timer_free(struct loop_timer *timer); /* NULL allowed; also from its own fire */

#endif
