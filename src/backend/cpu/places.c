#include "backend/cpu/places.h"

#include "backend/cpu/memory.h"
#include "base/size.h"

#include <hwloc.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Each part that lies apart is a mapping to the kernel, which allows 65,530 of them. */
#define MAX_SPLIT 4096

struct places_node {
    hwloc_obj_t obj;
    size_t first_thread;
};

struct places {
    hwloc_topology_t topology;
    enum places_bind bind;
    size_t n_threads, n_nodes, n_split;
    hwloc_bitmap_t *cpus;      /* [n_threads]; NULL before they are made */
    struct places_node *nodes; /* [n_nodes], by their first thread */
    hwloc_nodeset_t all;       /* of nodes */
    _Atomic size_t n_refused;
    char text[96];
};

bool places_bind_of(const char *name, enum places_bind *out) {
    static const char *const names[] = {
        [PLACES_NONE] = "none", [PLACES_NODE] = "node", [PLACES_CORE] = "core"};
    *out = PLACES_NONE;
    for (size_t i = 0; name && i < sizeof names / sizeof *names; i++)
        if (!strcmp(name, names[i])) {
            *out = (enum places_bind)i;
            return true;
        }
    return !name;
}

/* The memory node of a set of CPUs: of several (fast and large ones, say) the first. */
static hwloc_obj_t node_of(hwloc_topology_t t, hwloc_const_cpuset_t cpus) {
    hwloc_obj_t node = NULL;
    while ((node = hwloc_get_next_obj_by_type(t, HWLOC_OBJ_NUMANODE, node)))
        if (hwloc_bitmap_intersects(node->cpuset, cpus)) return node;
    return NULL;
}

/* Of each node with CPUs, the object of the machine's tree that stands for them. */
static unsigned node_roots(hwloc_topology_t t, hwloc_obj_t *roots) {
    unsigned n = 0;
    hwloc_obj_t node = NULL;
    while ((node = hwloc_get_next_obj_by_type(t, HWLOC_OBJ_NUMANODE, node))) {
        hwloc_obj_t root = hwloc_get_obj_covering_cpuset(t, node->cpuset);
        if (root && !hwloc_bitmap_iszero(node->cpuset) && (!n || roots[n - 1] != root)) roots[n++] = root;
    }
    return n;
}

/* Threads spread over nodes, and over the cores of a node, as evenly as their numbers allow; several CPUs of
 * one core are used once all cores have a thread. */
static bool distribute(struct places *p) {
    int n_nodes = hwloc_get_nbobjs_by_type(p->topology, HWLOC_OBJ_NUMANODE);
    if (n_nodes < 1 || p->n_threads > UINT_MAX) return false;
    hwloc_obj_t *roots = calloc((size_t)n_nodes, sizeof *roots);
    unsigned n = roots ? node_roots(p->topology, roots) : 0;
    bool done = n && !hwloc_distrib(p->topology, roots, n, p->cpus, (unsigned)p->n_threads, INT_MAX, 0);
    free(roots);
    return done;
}

static bool place_threads(struct places *p) {
    if (!distribute(p)) return false;
    for (size_t i = 0; i < p->n_threads; i++) {
        hwloc_obj_t node = node_of(p->topology, p->cpus[i]);
        if (!node) return false;
        if (!p->n_nodes || p->nodes[p->n_nodes - 1].obj != node) {
            p->nodes[p->n_nodes++] = (struct places_node){node, i};
            hwloc_bitmap_or(p->all, p->all, node->nodeset);
        }
        if (p->bind == PLACES_CORE)
            hwloc_bitmap_singlify(p->cpus[i]);
        else
            hwloc_bitmap_copy(p->cpus[i], node->cpuset);
    }
    return true;
}

static bool read_machine(struct places *p) {
    if (hwloc_topology_init(&p->topology)) return false;
    hwloc_topology_set_all_types_filter(p->topology, HWLOC_TYPE_FILTER_KEEP_NONE);
    hwloc_topology_set_type_filter(p->topology, HWLOC_OBJ_CORE, HWLOC_TYPE_FILTER_KEEP_ALL);
    hwloc_topology_set_type_filter(p->topology, HWLOC_OBJ_GROUP, HWLOC_TYPE_FILTER_KEEP_STRUCTURE);
    hwloc_topology_set_flags(p->topology, HWLOC_TOPOLOGY_FLAG_RESTRICT_TO_CPUBINDING |
                                              HWLOC_TOPOLOGY_FLAG_RESTRICT_TO_MEMBINDING);
    return !hwloc_topology_load(p->topology);
}

struct places *places_open(enum places_bind bind, size_t n_threads) {
    if (bind == PLACES_NONE || n_threads < 2) return NULL;
    struct places *p = calloc(1, sizeof *p);
    if (!p) return NULL;
    p->bind = bind;
    p->n_threads = n_threads;
    p->cpus = calloc(n_threads, sizeof *p->cpus);
    p->nodes = calloc(n_threads, sizeof *p->nodes);
    p->all = hwloc_bitmap_alloc();
    if (p->cpus && p->nodes && p->all && read_machine(p) && place_threads(p) &&
        (p->n_nodes > 1 || bind == PLACES_CORE))
        return p;
    places_close(p);
    return NULL;
}

void places_close(struct places *p) {
    if (!p) return;
    for (size_t i = 0; p->cpus && i < p->n_threads; i++) hwloc_bitmap_free(p->cpus[i]);
    if (p->all) hwloc_bitmap_free(p->all);
    if (p->topology) hwloc_topology_destroy(p->topology);
    free(p->cpus);
    free(p->nodes);
    free(p);
}

size_t places_nodes(const struct places *p) {
    return p ? p->n_nodes : 1;
}

const char *places_describe(struct places *p) {
    if (!p) return "";
    size_t refused = atomic_load(&p->n_refused);
    int n = snprintf(p->text, sizeof p->text, "threads bound to %s, %zu memory node%s",
                     p->bind == PLACES_CORE ? "cores" : "nodes", p->n_nodes, p->n_nodes > 1 ? "s" : "");
    if (refused && n > 0)
        snprintf(p->text + n, sizeof p->text - (size_t)n, " (the system refused %zu times)", refused);
    return p->text;
}

static void note(struct places *p, int rc) {
    if (rc) atomic_fetch_add(&p->n_refused, 1);
}

void places_enter(struct places *p, size_t thread) {
    if (p) note(p, hwloc_set_cpubind(p->topology, p->cpus[thread], HWLOC_CPUBIND_THREAD));
}

static void put(struct places *p, char *from, const char *to, hwloc_const_nodeset_t nodes,
                hwloc_membind_policy_t policy) {
    if (to > from)
        note(p, hwloc_set_area_membind(p->topology, from, (size_t)(to - from), nodes, policy,
                                       HWLOC_MEMBIND_BYNODESET));
}

void places_interleave(struct places *p, void *data, size_t bytes) {
    if (places_nodes(p) > 1) put(p, data, (char *)data + bytes, p->all, HWLOC_MEMBIND_INTERLEAVE);
}

size_t places_part(const struct places *p, size_t bytes, size_t node_index) {
    if (node_index >= p->n_nodes) return bytes;
    return (size_t)((double)bytes * (double)p->nodes[node_index].first_thread / (double)p->n_threads);
}

static char *page_after(char *p) {
    return p + (MEMORY_HUGE_BYTES - (size_t)p % MEMORY_HUGE_BYTES) % MEMORY_HUGE_BYTES;
}

void places_split(struct places *p, void *data, size_t bytes) {
    size_t n = places_nodes(p);
    if (n < 2 || bytes < n * MEMORY_HUGE_BYTES || p->n_split == MAX_SPLIT) return;
    p->n_split++;
    for (size_t i = 0; i < n; i++)
        put(p, page_after((char *)data + places_part(p, bytes, i)),
            page_after((char *)data + places_part(p, bytes, i + 1)), p->nodes[i].obj->nodeset,
            HWLOC_MEMBIND_BIND);
}

struct place places_of(const struct places *p, size_t thread) {
    return (struct place){.cpu = (unsigned)hwloc_bitmap_first(p->cpus[thread]),
                          .node = node_of(p->topology, p->cpus[thread])->os_index};
}
