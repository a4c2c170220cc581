/* Where compute threads run, and where the memory that they read lies, by hwloc's picture of the machine
 * (Broquedis et al., PDP 2010).
 *
 * On a machine of several memory nodes each thread keeps to the CPUs of one node. Items of a parallel region
 * fall to threads in order (pool.h), so threads are numbered node by node: the first part of a matrix's
 * panels is read by threads of the first node, and is put there. What all threads read alike lies on all
 * nodes by turns. Placement never changes a result. */
#ifndef BACKEND_CPU_PLACES_H
#define BACKEND_CPU_PLACES_H

#include <stdbool.h>
#include <stddef.h>

enum places_bind { PLACES_NONE, PLACES_NODE, PLACES_CORE };
bool places_bind_of(const char *name, enum places_bind *out); /* NULL: none; false: no such name */

struct places;

/* NULL where there is nothing to place: nobody asked, one thread, one memory node and no CPU of their own
 * wanted, or the machine does not tell. Functions take NULL for that, and do nothing then. */
struct places *places_open(enum places_bind bind, size_t n_threads);
void places_close(struct places *p);
size_t places_nodes(const struct places *p); /* memory nodes with threads; 1 for NULL */
/* "" for NULL, else for a log; what the system refused so far is in it. Valid until the next call. */
const char *places_describe(struct places *p);

/* The calling thread is compute thread `thread` from now on. */
void places_enter(struct places *p, size_t thread);

/* [data, data + bytes) is not resident yet. Both round to pages; the system may put a page elsewhere when the
 * node of its own is full. */
void places_interleave(struct places *p, void *data, size_t bytes);
/* The part of a matrix that each node's threads read goes to that node; a matrix too small for it stays as it
 * is. */
void places_split(struct places *p, void *data, size_t bytes);

/* For tests: the CPU (in core binding; else the first that it may use) and the node of a thread, by the
 * numbers of the operating system, and the first byte of a node's part of so many. */
struct place {
    unsigned cpu, node;
};
struct place places_of(const struct places *p, size_t thread);
size_t places_part(const struct places *p, size_t bytes, size_t node_index);

#endif
