/* The compute pool and the count of cores. */
#include "backend/cpu/cores.h"
#include "backend/cpu/pool.h"

#include "util/alloc_fail.h"

#include <quire/error.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define MAX_ITEMS 5000

struct tally {
    _Atomic unsigned char seen[MAX_ITEMS];
    _Atomic size_t wrong_thread;
    size_t n_threads;
};

static void mark(void *ctx, size_t item, size_t thread) {
    struct tally *t = ctx;
    atomic_fetch_add(&t->seen[item], 1);
    if (thread >= t->n_threads) atomic_fetch_add(&t->wrong_thread, 1);
}

/* Plain memory: what comes first is seen by what comes after, by the pool's own synchronisation. */
struct stages {
    size_t first[64], n_first, then[64], round;
};

static void prepare(void *ctx, size_t item, size_t thread) {
    struct stages *s = ctx;
    s->first[item] = s->round + item;
}

static void add_up(void *ctx, size_t item, size_t thread) {
    struct stages *s = ctx;
    size_t sum = item;
    for (size_t i = 0; i < s->n_first; i++) sum += s->first[i];
    s->then[item] = sum;
}

static struct pool *open_pool(size_t n) {
    struct pool *p = NULL;
    struct error err = {0};
    if (pool_open(n, NULL, &p, &err)) fail_msg("%s", err.text);
    return p;
}

static void each_item_runs_once(void **state) {
    static struct tally t;
    for (size_t threads = 1; threads <= 5; threads++) {
        struct pool *p = open_pool(threads);
        assert_int_equal(pool_threads(p), threads);
        for (size_t n = 0; n < 300; n++) {
            size_t items = n < 290 ? n % 20 : MAX_ITEMS;
            memset(&t, 0, sizeof t);
            t.n_threads = threads;
            pool_run(p, items, mark, &t);
            for (size_t i = 0; i < MAX_ITEMS; i++) assert_int_equal(t.seen[i], i < items);
            assert_int_equal(t.wrong_thread, 0);
        }
        pool_close(p);
    }
}

static void first_items_come_first(void **state) {
    for (size_t threads = 1; threads <= 5; threads++) {
        struct pool *p = open_pool(threads);
        for (size_t round = 1; round < 4000; round++) {
            struct stages s = {.n_first = round % 7 * (round % 5), .round = round};
            size_t n_then = round % 9;
            pool_run_after(p, s.n_first, prepare, n_then, add_up, &s);
            size_t sum = s.n_first * round + s.n_first * (s.n_first - 1) / 2;
            for (size_t i = 0; i < 64; i++) {
                assert_int_equal(s.first[i], i < s.n_first ? round + i : 0);
                assert_int_equal(s.then[i], i < n_then ? sum + i : 0);
            }
        }
        pool_close(p);
    }
}

/* Results of one region are visible to the next, whoever computes it: no synchronisation but the pool's. */
struct relay {
    size_t values[64], from;
};

static void pass_on(void *ctx, size_t item, size_t thread) {
    struct relay *r = ctx;
    r[1].values[item] = r[0].values[(item * 7 + 1) % 64] + 1;
}

static void regions_follow_one_another(void **state) {
    struct relay r[2] = {0};
    struct pool *p = open_pool(4);
    for (size_t i = 0; i < 20000; i++) {
        pool_run(p, 64, pass_on, r);
        r[0] = r[1];
    }
    for (size_t i = 0; i < 64; i++) assert_int_equal(r[0].values[i], 20000);
    pool_close(p);
}

static double cpu_seconds(void) {
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

/* Helpers that are just leaving a region see that the pool closes. */
static void closing_after_a_region_ends(void **state) {
    struct relay r[2] = {0};
    for (size_t i = 0; i < 4000; i++) {
        struct pool *p = open_pool(3);
        for (size_t n = 0; n <= i % 4; n++) pool_run(p, 3, pass_on, r);
        pool_close(p);
    }
}

static void idle_pool_uses_no_cpu(void **state) {
    static struct tally t = {.n_threads = 4};
    struct pool *p = open_pool(4);
    pool_run(p, 100, mark, &t);
    usleep(50000);
    double before = cpu_seconds();
    usleep(300000);
    assert_true(cpu_seconds() - before < 0.02);
    /* and it wakes again */
    for (int i = 0; i < 20; i++) {
        memset(&t, 0, sizeof t);
        t.n_threads = 4;
        pool_run(p, 1000, mark, &t);
        for (size_t k = 0; k < 1000; k++) assert_int_equal(t.seen[k], 1);
        usleep(2000);
    }
    pool_close(p);
}

static void threads_that_do_not_start_are_an_error(void **state) {
    struct pool *p = NULL;
    struct error err = {0};
    thread_fail_at(3);
    assert_int_equal(pool_open(4, NULL, &p, &err), QUIRE_ENOMEM);
    thread_fail_at(0);
    assert_non_null(strstr(err.text, "thread 4 of 4"));
    assert_int_equal(pool_open(0, NULL, &p, &err), QUIRE_EINVAL);
}

/* ---- control groups ---- */

static char root[64];

static void put(const char *folder, const char *file, const char *text) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", root, folder);
    for (char *s = path + strlen(root) + 1; *s; s++)
        if (*s == '/') {
            *s = '\0';
            mkdir(path, 0700);
            *s = '/';
        }
    mkdir(path, 0700);
    strcat(path, "/");
    strcat(path, file);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void quotas_of_control_groups(void **state) {
    strcpy(root, "/tmp/quire-cores-XXXXXX");
    assert_non_null(mkdtemp(root));
    put("a/b", "cpu.max", "max 100000\n");
    put("a", "cpu.max", "250000 100000\n");
    put("c", "cpu.max", "100000 100000\n");
    put("cpu,cpuacct/job", "cpu.cfs_quota_us", "150000\n");
    put("cpu,cpuacct/job", "cpu.cfs_period_us", "100000\n");
    put("cpu,cpuacct", "cpu.cfs_quota_us", "-1\n");
    put("cpu,cpuacct", "cpu.cfs_period_us", "100000\n");
    put("cpu/old", "cpu.cfs_quota_us", "50000\n");
    put("cpu/old", "cpu.cfs_period_us", "100000\n");
    put("bad", "cpu.max", "lots of it\n");

    assert_int_equal(cores_quota("0::/a/b\n", root), 3); /* the parent's 2.5 */
    assert_int_equal(cores_quota("0::/c\n", root), 1);
    assert_int_equal(cores_quota("0::/\n", root), 0);
    assert_int_equal(cores_quota("0::/elsewhere/a\n", root), 0);
    assert_int_equal(cores_quota("5:memory:/c\n4:cpu,cpuacct:/job\n", root), 2);
    assert_int_equal(cores_quota("4:cpuacct,cpu:/old\n0::/a\n", root), 1);
    assert_int_equal(cores_quota("1:cpuset:/old\n", root), 0);
    assert_int_equal(cores_quota("0::/bad\n", root), 0);
    assert_int_equal(cores_quota("", root), 0);
    assert_int_equal(cores_quota("nonsense\n::\n:\n", root), 0);

    char command[128];
    snprintf(command, sizeof command, "rm -r %s", root);
    assert_int_equal(system(command), 0);
    assert_true(cores_available() >= 1);
    assert_true(cores_available() <= (size_t)sysconf(_SC_NPROCESSORS_CONF));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_item_runs_once),
        cmocka_unit_test(first_items_come_first),
        cmocka_unit_test(regions_follow_one_another),
        cmocka_unit_test(closing_after_a_region_ends),
        cmocka_unit_test(idle_pool_uses_no_cpu),
        cmocka_unit_test(threads_that_do_not_start_are_an_error),
        cmocka_unit_test(quotas_of_control_groups),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
