/* What is due when: a binary heap of pointers by time. */
#ifndef BASE_DUE_H
#define BASE_DUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct due {
    uint64_t us;
    void *what;
};

struct due_heap {  /* zeroed: empty */
    struct due *v; /* the first one is due next */
    size_t n, cap;
};

bool due_push(struct due_heap *h, uint64_t us, void *what); /* false: memory is out */
struct due due_pop(struct due_heap *h);                     /* h->n > 0 */
void due_free(struct due_heap *h);                          /* not what the pointers point to */

#endif
