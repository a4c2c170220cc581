/* Opening an engine: settings that are refused and with which words, the memory plan, every allocation and
 * thread failing once, what is available on a machine and in a control group. */
#include "engine/meminfo.h"
#include "util/alloc_fail.h"
#include "util_engine.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

struct fixture {
    struct tiny_model_options options;
    struct test_model model;
    struct quire_config config;
};

static int set_up(void **state) {
    struct fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    f->options = tiny_model_defaults();
    f->options.n_layers = 2;
    f->options.n_vocab = 300;
    f->model = test_model_make(&f->options);
    f->config = test_config(&f->model);
    *state = f;
    return 0;
}

static int tear_down(void **state) {
    struct fixture *f = *state;
    test_model_free(&f->model);
    free(f);
    return 0;
}

/* ---- settings --------------------------------------------------------------------------------------------
 */

static void refused(struct quire_config c, int code, const char *param, const char *words) {
    struct quire_engine *e = (void *)1;
    struct error err = {0};
    assert_int_equal(quire_open(&c, &e, &err), code);
    assert_null(e);
    if (param) {
        assert_non_null(err.param);
        assert_string_equal(err.param, param);
    }
    if (!strstr(err.text, words)) fail_msg("\"%s\" lacks \"%s\"", err.text, words);
    assert_null(strchr(err.text, '\n'));
}

static void test_bad_settings_are_named(void **state) {
    struct fixture *f = *state;
    struct quire_config c;
    static const uint32_t bad_stop[] = {300};
#define REFUSED(field, value, param, words)                                                                  \
    c = f->config;                                                                                           \
    c.field = value;                                                                                         \
    refused(c, QUIRE_EINVAL, param, words)
    REFUSED(max_num_seqs, 0, "max-num-seqs", "not 0");
    REFUSED(max_num_seqs, 257, "max-num-batched-tokens", "less than max-num-seqs 257");
    REFUSED(max_num_seqs, 100000, "max-num-seqs", "100000");
    REFUSED(max_num_batched_tokens, 0, "max-num-batched-tokens", "not 0");
    REFUSED(max_num_batched_tokens, (size_t)1 << 40, "max-num-batched-tokens", "1099511627776");
    REFUSED(max_queue, (size_t)1 << 30, "max-queue", "1073741824");
    REFUSED(block_tokens, 0, "block-size", "not 0");
    REFUSED(block_tokens, 48, "block-size", "16, 32, 64, 128 or 256, not 48");
    REFUSED(block_tokens, 512, "block-size", "512");
    REFUSED(max_model_len, 5000, "max-model-len", "5000, the model was made for at most 4096");
    REFUSED(max_model_len, 1, "max-model-len", "at least 2");
    REFUSED(kv_bytes, 1000, "kv-cache-memory-bytes", "1000");
    REFUSED(cpu_limit, "sse9", "QUIRE_CPU", "sse9");
    c = f->config;
    c.kv_bytes = 0;
    c.memory_share = 0;
    refused(c, QUIRE_EINVAL, "gpu-memory-utilization", "not 0");
    c.memory_share = 1.5;
    refused(c, QUIRE_EINVAL, "gpu-memory-utilization", "1.5");
    c.memory_share = __builtin_nan("");
    refused(c, QUIRE_EINVAL, "gpu-memory-utilization", "nan");
    c = f->config;
    c.chunked_prefill = false;
    refused(c, QUIRE_EINVAL, "max-num-batched-tokens", "at least max-model-len 1024");
    c.max_num_batched_tokens = 1024;
    c.long_prefill_threshold = 100;
    refused(c, QUIRE_EINVAL, "long-prefill-token-threshold", "chunked prefill");
    c = f->config;
    c.stop_tokens = bad_stop;
    refused(c, QUIRE_EINVAL, NULL, "300");
    c = f->config;
    c.weights = NULL;
    refused(c, QUIRE_EINVAL, NULL, "no model");
}

/* A model that does not fit says by how much, and which flag helps. */
static void test_what_does_not_fit(void **state) {
    struct fixture *f = *state;
    struct quire_config c = f->config;
    struct meminfo m;
    assert_int_equal(meminfo_read("", &m), 0);
    c.kv_bytes = m.available_bytes * 2;
    refused(c, QUIRE_ENOMEM, "kv-cache-memory-bytes", "MiB more than");
    c = f->config;
    c.kv_bytes = 0;
    c.max_model_len = 4096;
    c.memory_share = 1e-6;
    refused(c, QUIRE_ENOMEM, "gpu-memory-utilization", "MiB more than");
    /* Enough for the model, not for a sequence: the length that would fit is named, and does fit. */
    struct quire_engine *e;
    struct error err = {0};
    for (c.memory_share = 1e-4; c.memory_share < 0.5; c.memory_share *= 1.01) {
        int rc = quire_open(&c, &e, &err);
        if (!rc) {
            quire_shutdown(e);
            break;
        }
        if (strcmp(err.param, "max-model-len")) continue;
        const char *flag = strstr(err.text, "--max-model-len ");
        assert_non_null(flag);
        c.max_model_len = strtoul(flag + strlen("--max-model-len "), NULL, 10);
        assert_true(c.max_model_len >= 2 && c.max_model_len < 4096);
        c.max_model_len -= c.max_model_len / 4; /* what is available moves a little */
        if (quire_open(&c, &e, &err)) fail_msg("%s", err.text);
        quire_shutdown(e);
        return;
    }
    print_message(
        "no share of this machine's memory falls between the model and one sequence: not checked\n");
}

static uint64_t row(const struct quire_info *i, const char *name) {
    for (int k = 0; k < QUIRE_MEMORY_ROWS; k++)
        if (!strcmp(i->memory[k].name, name)) return i->memory[k].bytes;
    fail_msg("no row %s", name);
    return 0;
}

static void test_plan_and_info(void **state) {
    struct fixture *f = *state;
    struct quire_config c = f->config;
    c.kv_bytes = 0;
    c.max_model_len = 0;
    struct quire_engine *e = test_open(&c);
    const struct quire_info *i = quire_info(e);
    assert_int_equal(row(i, "total"), row(i, "weights") + row(i, "KV blocks") + row(i, "activations") +
                                          row(i, "buffers") + row(i, "rest"));
    assert_int_equal(i->max_model_len, 4096);
    assert_int_equal(i->model_context_len, 4096);
    assert_int_equal(i->n_vocab, 300);
    assert_int_equal(i->n_threads, 1);
    assert_int_equal(i->block_tokens, 16);
    assert_int_equal(i->kv_bytes_per_token, 2 * 2 * 2 * 32 * 4);
    assert_int_equal(i->n_blocks, 8 * 4096 / 16); /* no more than max_num_seqs full sequences need */
    assert_int_equal(strlen(i->numerics_id), 32);
    assert_string_equal(i->dtype_name, "float32");
    assert_string_equal(i->family, "llama");
    assert_true(row(i, "weights") <= weights_tensor_bytes(f->model.weights) * 1.05);
    assert_true(row(i, "activations") + row(i, "buffers") + row(i, "rest") < (uint64_t)128 << 20);
    assert_int_equal(atomic_load(&quire_stats(e)->blocks_total), i->n_blocks);
    quire_shutdown(e);
    c.kv_bytes = test_kv_bytes(&c, &f->options, 10);
    e = test_open(&c);
    assert_int_equal(quire_info(e)->n_blocks, 10);
    assert_true(row(quire_info(e), "KV blocks") <= c.kv_bytes);
    quire_shutdown(e);
}

static void test_numerics_id_names_what_decides_bits(void **state) {
    struct fixture *f = *state;
    char ids[4][33];
    for (int k = 0; k < 4; k++) {
        struct quire_config c = f->config;
        if (k == 1) c.dtype = QUIRE_BFLOAT16;
        if (k == 2) c.cpu_limit = "ref";
        if (k == 3) c.max_num_batched_tokens = 64, c.n_threads = 2, c.max_queue = 3; /* decides nothing */
        struct quire_engine *e = test_open(&c);
        snprintf(ids[k], sizeof ids[k], "%s", quire_info(e)->numerics_id);
        quire_shutdown(e);
    }
    assert_string_not_equal(ids[0], ids[1]);
    assert_string_not_equal(ids[0], ids[2]);
    assert_string_equal(ids[0], ids[3]);
}

/* Ready when one sequence of max-model-len fits; the rest becomes resident in the background. */
static void test_population(void **state) {
    struct fixture *f = *state;
    struct quire_config c = f->config;
    c.kv_bytes = (uint64_t)512 << 20;
    struct quire_engine *e = test_open(&c);
    const struct quire_info *i = quire_info(e);
    uint32_t prompt[1000];
    for (uint32_t k = 0; k < 1000; k++) prompt[k] = 3 + k % 200;
    struct quire_request q = {.prompt = prompt, .n_prompt = 1000, .sampling = test_greedy(24)};
    struct test_result r;
    test_run(e, &q, 1, &f->model, &r);
    test_results_free(&r, 1);
    for (int k = 0; k < 30000 && atomic_load(&quire_stats(e)->blocks_resident) < i->n_blocks; k++)
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    assert_int_equal(atomic_load(&quire_stats(e)->blocks_resident), i->n_blocks);
    uint64_t resident = meminfo_resident_bytes();
    assert_true(resident >= c.kv_bytes);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    assert_true((double)resident <= 1.02 * (double)row(i, "total"));
#endif
    test_baseline(e, 1);
    quire_shutdown(e);
}

/* ---- failures --------------------------------------------------------------------------------------------
 */

static void open_and_run(void *ctx) {
    struct fixture *f = ctx;
    struct quire_engine *e;
    struct error err = {0};
    int rc = quire_open(&f->config, &e, &err);
    if (alloc_fail_hit()) {
        assert_true(rc == QUIRE_ENOMEM || rc == QUIRE_EIO);
        assert_null(e);
        assert_int_equal(err.code, rc);
        assert_true(strlen(err.text) > 5);
        return;
    }
    assert_int_equal(rc, 0);
    quire_shutdown(e);
}

static void test_every_allocation_failing(void **state) {
    struct fixture *f = *state;
    f->config.n_threads = 2;
    size_t n = alloc_fail_each(open_and_run, f);
    printf("%zu allocations of quire_open failed, one each\n", n);
    assert_true(n > 20);
}

static void test_every_thread_failing(void **state) {
    struct fixture *f = *state;
    struct quire_engine *e;
    struct error err = {0};
    f->config.n_threads = 3; /* two more, the engine's and the population's */
    for (size_t n = 1; n <= 4; n++) {
        thread_fail_at(n);
        int rc = quire_open(&f->config, &e, &err);
        thread_fail_at(0);
        assert_true(rc == QUIRE_EIO || rc == QUIRE_ENOMEM);
        assert_null(e);
        assert_non_null(strstr(err.text, "thread"));
    }
    thread_fail_at(5);
    assert_int_equal(quire_open(&f->config, &e, &err), 0);
    thread_fail_at(0);
    quire_shutdown(e);
}

static void test_no_memory_for_a_request(void **state) {
    struct fixture *f = *state;
    f->config.max_num_seqs = 1;
    f->config.max_queue = 0;
    struct quire_engine *e = test_open(&f->config);
    uint32_t prompt[3] = {5, 6, 7};
    struct quire_request q = {.prompt = prompt, .n_prompt = 3, .sampling = test_greedy(3)};
    struct quire_stream *s;
    struct error err = {0};
    alloc_fail_from(1);
    int rc = quire_submit(e, &q, &s, &err);
    alloc_fail_stop();
    assert_int_equal(rc, QUIRE_ENOMEM);
    assert_null(s);
    struct test_result r; /* its place in the queue is free again */
    test_run(e, &q, 1, &f->model, &r);
    test_results_free(&r, 1);
    test_baseline(e, 1);
    quire_shutdown(e);
}

/* ---- the machine -----------------------------------------------------------------------------------------
 */

static char root[64];

static void put(const char *path, const char *text) {
    char full[256];
    snprintf(full, sizeof full, "%s/%s", root, path);
    for (char *p = full + strlen(root) + 1; (p = strchr(p, '/')); p++) {
        *p = 0;
        mkdir(full, 0700);
        *p = '/';
    }
    FILE *file = fopen(full, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void clear_root(void) {
    char command[128];
    if (*root) {
        snprintf(command, sizeof command, "rm -rf '%s'", root);
        if (system(command)) fail();
    }
    snprintf(root, sizeof root, "/tmp/quire_meminfo_XXXXXX");
    assert_non_null(mkdtemp(root));
}

static void expect(uint64_t bytes, const char *by) {
    struct meminfo m;
    assert_int_equal(meminfo_read(root, &m), 0);
    assert_int_equal(m.available_bytes, bytes);
    assert_string_equal(m.limited_by, by);
}

static void test_available_memory(void **state) {
    struct meminfo m;
    clear_root();
    assert_int_equal(meminfo_read(root, &m), QUIRE_EIO);
    put("proc/meminfo", "MemTotal:       2000 kB\nMemFree: 100 kB\nMemAvailable:    1000 kB\nCached: 5 kB\n");
    expect(1000 * 1024, "the machine");
    /* version 2: every group up to the root counts, file pages that can be dropped do not */
    put("proc/self/cgroup", "0::/a.slice/b\n");
    put("sys/fs/cgroup/a.slice/b/memory.max", "max\n");
    put("sys/fs/cgroup/a.slice/memory.max", "600000\n");
    put("sys/fs/cgroup/a.slice/memory.current", "400000\n");
    put("sys/fs/cgroup/a.slice/memory.stat", "anon 5\ninactive_file 100000\nactive_file 7\n");
    expect(300000, "the control group");
    put("sys/fs/cgroup/a.slice/b/memory.max", "500000\n");
    put("sys/fs/cgroup/a.slice/b/memory.current", "499999\n");
    expect(1, "the control group");
    put("sys/fs/cgroup/a.slice/b/memory.current", "600000\n"); /* beyond the limit */
    expect(0, "the control group");
    /* in a container the group's own path is not there, its limit is at the mount */
    clear_root();
    put("proc/meminfo", "MemAvailable:    1000 kB\n");
    put("proc/self/cgroup", "0::/docker/1234\n");
    put("sys/fs/cgroup/memory.max", "50000\n");
    put("sys/fs/cgroup/memory.current", "10000\n");
    expect(40000, "the control group");
    /* version 1 */
    clear_root();
    put("proc/meminfo", "MemAvailable:    1000 kB\n");
    put("proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/x/y\n0::/\n");
    put("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    put("sys/fs/cgroup/memory/memory.usage_in_bytes", "123\n");
    expect(1000 * 1024, "the machine");
    put("sys/fs/cgroup/memory/x/y/memory.limit_in_bytes", "70000\n");
    put("sys/fs/cgroup/memory/x/y/memory.usage_in_bytes", "30000\n");
    put("sys/fs/cgroup/memory/x/y/memory.stat", "inactive_file 1\ntotal_inactive_file 10000\n");
    expect(50000, "the control group");
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", root);
    assert_int_equal(system(command), 0);
    assert_true(meminfo_resident_bytes() > 100000);
}

int main(void) {
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
        TEST(test_bad_settings_are_named),
        TEST(test_what_does_not_fit),
        TEST(test_plan_and_info),
        TEST(test_numerics_id_names_what_decides_bits),
        TEST(test_population),
        TEST(test_every_allocation_failing),
        TEST(test_every_thread_failing),
        TEST(test_no_memory_for_a_request),
        cmocka_unit_test(test_available_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
