/* Where threads run and memory lies, on made machines (hwloc's synthetic topologies, on which binding does
 * nothing) and on this one. */
#include "backend/cpu/places.h"

#include "backend/cpu/memory.h"
#include "backend/cpu/pool.h"

#include <quire/error.h>

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct places *on_machine(const char *synthetic, enum places_bind bind, size_t n_threads) {
    setenv("HWLOC_SYNTHETIC", synthetic, 1);
    struct places *p = places_open(bind, n_threads);
    unsetenv("HWLOC_SYNTHETIC");
    return p;
}

static int leave(void **state) {
    unsetenv("HWLOC_SYNTHETIC");
    return 0;
}

/* Threads of a node follow each other, their shares are even, and no core has two while another has none. */
static void check_spread(const char *synthetic, size_t n_nodes, size_t n_cores, size_t n_smt,
                         size_t n_threads) {
    struct places *p = on_machine(synthetic, PLACES_CORE, n_threads);
    assert_non_null(p);
    size_t *on_core = calloc(n_nodes * n_cores, sizeof *on_core), *on_node = calloc(n_nodes, sizeof *on_node);
    assert_true(on_core && on_node);
    unsigned last = 0;
    for (size_t t = 0; t < n_threads; t++) {
        struct place at = places_of(p, t);
        assert_true(at.node >= last && at.node < n_nodes);
        assert_int_equal(at.cpu / (n_cores * n_smt), at.node);
        last = at.node;
        on_node[at.node]++;
        on_core[at.cpu / n_smt]++;
    }
    for (size_t i = 0; i < n_nodes; i++) {
        assert_true(on_node[i] >= n_threads / n_nodes);
        assert_true(on_node[i] <= (n_threads + n_nodes - 1) / n_nodes);
    }
    for (size_t i = 0; i < n_nodes * n_cores; i++)
        assert_true(on_core[i] <= (n_threads + n_nodes * n_cores - 1) / (n_nodes * n_cores));
    free(on_core);
    free(on_node);
    places_close(p);
}

static void threads_are_spread_over_nodes_and_cores(void **state) {
    for (size_t n = 2; n <= 40; n++) {
        check_spread("node:2 core:8 pu:1", 2, 8, 1, n);
        check_spread("node:2 core:4 pu:2", 2, 4, 2, n);
    }
    check_spread("node:1 core:4 pu:2", 1, 4, 2, 4);
    check_spread("node:4 core:16 pu:2", 4, 16, 2, 64);
}

static void nothing_to_place(void **state) {
    assert_null(on_machine("node:1 core:8 pu:1", PLACES_NODE, 8));
    assert_null(on_machine("node:2 core:8 pu:1", PLACES_NONE, 8));
    assert_null(on_machine("node:2 core:8 pu:1", PLACES_NODE, 1));
    assert_int_equal(places_nodes(NULL), 1);
    assert_string_equal(places_describe(NULL), "");
    char page[64];
    places_enter(NULL, 3);
    places_interleave(NULL, page, sizeof page);
    places_split(NULL, page, sizeof page);
    places_close(NULL);
}

/* The parts of a matrix are those of the runs that the pool gives the threads of each node. */
static void parts_follow_threads(void **state) {
    struct places *p = on_machine("node:2 core:8 pu:1", PLACES_NODE, 16);
    assert_int_equal(places_nodes(p), 2);
    assert_string_equal(places_describe(p), "threads bound to nodes, 2 memory nodes");
    assert_int_equal(places_part(p, 1000, 0), 0);
    assert_int_equal(places_part(p, 1000, 1), 500);
    assert_int_equal(places_part(p, 1000, 2), 1000);
    places_close(p);

    p = on_machine("node:3 core:2 pu:1", PLACES_NODE, 4); /* 2, 1 and 1 threads */
    assert_int_equal(places_nodes(p), 3);
    assert_int_equal(places_part(p, 1000, 1), 500);
    assert_int_equal(places_part(p, 1000, 2), 750);
    places_close(p);
}

struct seen {
    _Atomic size_t n_wrong;
    const struct places *places;
};

static void compare_cpu(void *ctx, size_t item, size_t thread) {
    struct seen *s = ctx;
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) || CPU_COUNT(&set) != 1 ||
        !CPU_ISSET(places_of(s->places, thread).cpu, &set))
        if (thread) atomic_fetch_add(&s->n_wrong, 1);
}

static void threads_are_bound_on_this_machine(void **state) {
    cpu_set_t before, during;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    if (CPU_COUNT(&before) < 2) skip();
    struct places *places = places_open(PLACES_CORE, 2);
    assert_non_null(places);
    assert_true(CPU_ISSET(places_of(places, 0).cpu, &before) && CPU_ISSET(places_of(places, 1).cpu, &before));
    assert_int_not_equal(places_of(places, 0).cpu, places_of(places, 1).cpu);

    struct pool *pool;
    struct error err = {0};
    struct seen seen = {.places = places};
    if (pool_open(2, places, &pool, &err)) fail_msg("%s", err.text);
    for (int i = 0; i < 50; i++) pool_run(pool, 64, compare_cpu, &seen);
    assert_int_equal(seen.n_wrong, 0);

    assert_int_equal(sched_getaffinity(0, sizeof during, &during), 0);
    assert_true(CPU_EQUAL(&before, &during)); /* the caller's own choice */
    places_enter(places, 0);
    assert_int_equal(sched_getaffinity(0, sizeof during, &during), 0);
    assert_true(CPU_COUNT(&during) == 1 && CPU_ISSET(places_of(places, 0).cpu, &during));
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
    assert_string_equal(places_describe(places), "threads bound to cores, 1 memory node");
    pool_close(pool);
    places_close(places);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(threads_are_spread_over_nodes_and_cores, leave),
        cmocka_unit_test_teardown(nothing_to_place, leave),
        cmocka_unit_test_teardown(parts_follow_threads, leave),
        cmocka_unit_test(threads_are_bound_on_this_machine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
