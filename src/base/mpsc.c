#include "base/mpsc.h"

/* D. Vyukov, "Intrusive MPSC node-based queue" (1024cores.net). A producer swaps itself in as head, then
 * links the old head to itself; between the two the chain is broken and the consumer sees an empty queue. */

void mpsc_init(struct mpsc *q) {
    atomic_init(&q->stub.next, NULL);
    atomic_init(&q->head, &q->stub);
    q->tail = &q->stub;
}

void mpsc_push(struct mpsc *q, struct mpsc_node *node) {
    atomic_store_explicit(&node->next, NULL, memory_order_relaxed);
    struct mpsc_node *before = atomic_exchange_explicit(&q->head, node, memory_order_acq_rel);
    atomic_store_explicit(&before->next, node, memory_order_release);
}

struct mpsc_node *mpsc_pop(struct mpsc *q) {
    struct mpsc_node *tail = q->tail;
    struct mpsc_node *next = atomic_load_explicit(&tail->next, memory_order_acquire);
    if (tail == &q->stub) {
        if (!next) return NULL;
        q->tail = tail = next;
        next = atomic_load_explicit(&tail->next, memory_order_acquire);
    }
    if (next) {
        q->tail = next;
        return tail;
    }
    if (tail != atomic_load_explicit(&q->head, memory_order_acquire)) return NULL; /* a push is half done */
    mpsc_push(q, &q->stub); /* so that the last real node can leave */
    next = atomic_load_explicit(&tail->next, memory_order_acquire);
    if (!next) return NULL;
    q->tail = next;
    return tail;
}
