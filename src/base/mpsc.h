/* Intrusive multi-producer, single-consumer queue (Vyukov's non-blocking queue). Nodes are owned by whoever holds
 * them; push never blocks and never allocates. */
#ifndef BASE_MPSC_H
#define BASE_MPSC_H

#include <stdatomic.h>
#include <stddef.h>

struct mpsc_node {
    _Atomic(struct mpsc_node *) next;
};

struct mpsc {
    _Atomic(struct mpsc_node *) head; /* producers push here */
    struct mpsc_node *tail;           /* the consumer's */
    struct mpsc_node stub;
};

void mpsc_init(struct mpsc *q);
void mpsc_push(struct mpsc *q, struct mpsc_node *node); /* any thread */
/* Consumer only. NULL when empty, or when a push is half done (its pusher signals afterwards). */
struct mpsc_node *mpsc_pop(struct mpsc *q);

#endif
