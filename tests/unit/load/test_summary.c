/* Figures of made-up records: each by its definition. */
#include "load/summary.h"

#include "load/workload.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static struct record record(uint64_t due_ms, uint64_t first_ms, uint64_t last_ms, int64_t input,
                            int64_t output) {
    return (struct record){.due_us = due_ms * 1000,
                           .sent_us = due_ms * 1000,
                           .first_us = first_ms * 1000,
                           .last_us = last_ms * 1000,
                           .end_us = last_ms * 1000,
                           .want_input = input,
                           .input = input,
                           .output = output,
                           .cached = -1,
                           .want_output = (uint32_t)output,
                           .n_events = (uint32_t)output};
}

/* $2 an hour at 1,000 tok/s is $0.56 for a million. */
static void cost(void **state) {
    struct record k = record(0, 100, 10000, 0, 10000);
    struct run run = {.records = &k, .n = 1, .duration_s = 10, .client_cpu_s = 8};
    struct slo slo = {0};
    struct summary s;
    summarize(&run, 1, &slo, 2.00, false, &s);
    assert_true(s.output_per_s == 1000 && fabs(s.cost_output - 0.5556) < 1e-4 &&
                fabs(s.cost_total - 0.5556) < 1e-4);
    assert_true(s.generator_bound && s.client_cpu == 0.8);
    run.client_cpu_s = 4; /* and it may want to run where others do */
    run.client_wait_s = 2.9;
    summarize(&run, 1, &slo, 0, false, &s);
    assert_false(s.generator_bound);
    run.client_wait_s = 3.1;
    summarize(&run, 1, &slo, 0, false, &s);
    assert_true(s.generator_bound);
    assert_false(s.kv_usage.known || s.hit_rate.known || s.joules.known || s.cpu.known || s.cached_known);
    k.input = 10000;
    summarize(&run, 1, &slo, 2.00, false, &s);
    assert_true(fabs(s.cost_total - 0.2778) < 1e-4 && s.n_input_wrong == 1 && s.input_off == 10000);
}

static void goodput(void **state) {
    struct record k[5] = {
        record(0, 100, 300, 5, 5),      /* TTFT 100, TPOT 50, E2E 300 */
        record(1000, 1101, 1301, 5, 5), /* TTFT 101 */
        record(2000, 2100, 2304, 5, 5), /* TPOT 51 */
        record(3000, 3050, 3050, 5, 1), /* one token: no TPOT, and in time */
        record(4000, 4050, 4060, 5, 2),
    };
    k[4].outcome = OUTCOME_CUT;
    struct run run = {.records = k, .n = 5, .duration_s = 5, .sending_s = 4};
    struct slo slo;
    struct summary s;
    struct error err;
    assert_int_equal(slo_parse("ttft:100,tpot:50,e2e:300", &slo, &err), 0);
    summarize(&run, 1, &slo, 0, false, &s);
    assert_true(s.n_good == 2 && s.good_share == 0.4 && s.good_per_s == 0.4);
    assert_true(s.n_requests == 5 && s.n_ok == 4 && s.n_failed == 1 && s.output_tokens == 16);
    assert_true(s.ms[LATENCY_TPOT].n == 3 && s.ms[LATENCY_TTFT].n == 4 && s.ms[LATENCY_TPOT].max == 51);
    k[0].outcome = OUTCOME_CANCELED;
    summarize(&run, 1, &slo, 0, true, &s);
    assert_true(s.n_requests == 4 && s.n_canceled == 1 && s.offered_per_s == 1.25);
    k[0] = record(0, 100, 300, 5, 5);
    k[0].longest_gap_us = 120000;
    k[1].longest_gap_us = 121000;
    k[3].longest_gap_us = 0; /* one message: no time between two */
    assert_int_equal(slo_parse("itl:120", &slo, &err), 0);
    summarize(&run, 1, &slo, 0, false, &s);
    assert_true(s.n_good == 3 && s.ms[LATENCY_PAUSE].n == 3 && s.ms[LATENCY_PAUSE].max == 121);
    assert_int_equal(slo_parse("itl_p99=120", &slo, &err), 0);
    assert_true(slo_told(&slo) && slo_excess(&slo, &s) > 1);
    static const char *const wrong[] = {"",       "ttft",  "ttft:",   "ttft:x",  "ttft:1,ttft:2",
                                        "ttft:0", "foo:1", "ttft:1,", "ttft:-1", ",ttft:1"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(slo_parse(wrong[i], &slo, &err), QUIRE_EINVAL);
}

/* n requests a second for 20 s at a server that takes `service` ms for each, one after the other. */
static bool saturated(unsigned rate, unsigned service, struct summary *s) {
    size_t n = rate * 20;
    struct record *k = calloc(n, sizeof *k);
    uint64_t free_ms = 0;
    for (size_t i = 0; i < n; i++) {
        uint64_t due = i * 1000 / rate, start = due > free_ms ? due : free_ms;
        free_ms = start + service;
        k[i] = record(due, start + service / 2, free_ms, 4, 2);
    }
    struct run run = {.records = k, .n = n, .duration_s = (double)free_ms / 1000, .sending_s = 20};
    struct slo slo = {0};
    summarize(&run, 1, &slo, 0, true, s);
    free(k);
    return *s->saturated;
}

static void saturation(void **state) {
    struct summary s;
    assert_false(saturated(10, 10, &s));
    assert_false(saturated(10, 95, &s));
    assert_true(saturated(10, 120, &s));
    assert_non_null(strstr(s.saturated, "requests came at 10/s and were answered at 8.29/s"));
    assert_true(saturated(50, 200, &s));
    struct record k = record(0, 100, 300, 5, 5);
    struct run run = {.records = &k, .n = 1, .duration_s = 1, .sending_s = 1, .n_unsent = 9};
    summarize(&run, 1, &(struct slo){0}, 0, true, &s);
    assert_non_null(strstr(s.saturated, "9 of the 10 requests"));
}

/* Counters of the server: growth from the first look to the last, over runs, and not across a restart. */
static void counters(void **state) {
    struct sample a[3] = {{.t_s = 0}, {.t_s = 1}, {.t_s = 2}}, b[2] = {{.t_s = 0}, {.t_s = 1}};
    for (int i = 0; i < 3; i++) {
        a[i].server.has[METRIC_PREFIX_QUERIES] = a[i].server.has[METRIC_PREFIX_HITS] = true;
        a[i].server.has[METRIC_PREEMPTIONS] = a[i].server.has[METRIC_KV_USAGE] = true;
        a[i].server.value[METRIC_PREFIX_QUERIES] = 100 + 200 * i;
        a[i].server.value[METRIC_PREFIX_HITS] = 50 + 50 * i;
        a[i].server.value[METRIC_PREEMPTIONS] = i;
        a[i].server.value[METRIC_KV_USAGE] = 0.2 * i;
        a[i].device = (struct device_sample){.has_cpu = true, .cpu_busy_s = i * 1.5, .cpu_total_s = i * 2.0};
        a[i].device.has_energy = true;
        a[i].device.energy_joules = 30 * i;
    }
    b[0].server.has[METRIC_PREEMPTIONS] = b[1].server.has[METRIC_PREEMPTIONS] = true;
    b[0].server.value[METRIC_PREEMPTIONS] = 9;
    struct record k = record(0, 100, 1500, 20, 10);
    struct run runs[2] = {{.records = &k, .n = 1, .duration_s = 1.5, .samples = a, .n_samples = 3},
                          {.samples = b, .n_samples = 2, .duration_s = 1}};
    struct slo slo = {0};
    struct summary s;
    summarize(runs, 2, &slo, 0, false, &s);
    assert_true(s.hit_rate.known && s.hit_rate.value == 0.25);
    assert_true(s.preemptions.known && s.preemptions.value == 2);
    assert_true(fabs(s.kv_usage.mean - 0.1) < 1e-12 &&
                s.kv_usage.max == 0.2); /* the look after the end is left out */
    assert_true(s.cpu.mean == 0.75 && s.joules.value == 60 && s.joules_per_output == 6 &&
                s.joules_per_token == 2);
    assert_string_equal(s.joules_from, "RAPL");
}

static const char *const pool[] = {"aa", "bb", "cc", "dd"};

static size_t count_words(const char *p) {
    size_t n = 0;
    for (const char *w = p; *w && *w != '"'; w++) n += *w != ' ' && (w == p || w[-1] == ' ');
    return n;
}

/* Prompts have the words that they say, of every kind and length; equal prefixes for a group, other content
 * for each. */
static void prompts(void **state) {
    struct target t = {.model = (char *)"m", .n_words = 4, .text = {0, true}, .chat = {5, true}};
    memcpy(t.words, pool, sizeof pool);
    struct workload_spec spec = {.name = "random",
                                 .kind = WORKLOAD_RANDOM,
                                 .output = {LENGTH_FIXED, 3, 0},
                                 .prefix_groups = 2,
                                 .turns = 1,
                                 .chunks = 3,
                                 .chunk_tokens = 7,
                                 .ignore_eos = true};
    struct workload w = {&spec, &t, NULL, 1};
    struct request r = {0};
    struct error err;
    for (int kind = 0; kind < 2; kind++)
        for (uint32_t n = 1; n < 40; n++)
            for (uint32_t prefix = 0; prefix < 20; prefix += 19) {
                spec.kind = kind ? WORKLOAD_RAG : WORKLOAD_RANDOM;
                spec.input = (struct length){LENGTH_FIXED, n, 0};
                spec.prefix_tokens = prefix;
                spec.chat = n % 2;
                struct session s = {.id = n, .n_turns = 1};
                assert_int_equal(workload_build(&w, &s, &r, &err), 0);
                const char *text = strstr(r.body.data, spec.chat ? "\"content\":\"" : "\"prompt\":\"");
                assert_non_null(text);
                uint32_t want = n + prefix + (kind ? 21 : 0);
                assert_int_equal(count_words(text + (spec.chat ? 11 : 10)), want);
                assert_int_equal(r.input_tokens, want + (spec.chat ? 5 : 0));
                assert_int_equal(r.output_tokens, 3);
            }
    spec = (struct workload_spec){.name = "random",
                                  .kind = WORKLOAD_RANDOM,
                                  .input = {LENGTH_FIXED, 50, 0},
                                  .output = {LENGTH_FIXED, 3, 0},
                                  .prefix_tokens = 40,
                                  .prefix_groups = 2};
    char texts[4][400];
    for (uint64_t id = 0; id < 4; id++) {
        struct session s = {.id = id, .n_turns = 1};
        w.salt = 1;
        assert_int_equal(workload_build(&w, &s, &r, &err), 0);
        snprintf(texts[id], sizeof texts[id], "%s", strstr(r.body.data, "\"prompt\":") + 9);
    }
    assert_memory_equal(texts[0], texts[2], 40 * 3); /* of one group */
    assert_memory_equal(texts[1], texts[3], 40 * 3);
    assert_true(memcmp(texts[0], texts[1], 40 * 3) && strcmp(texts[0], texts[2]) &&
                strcmp(texts[1], texts[3]));
    struct session s = {.id = 0, .n_turns = 1};
    w.salt = 2;
    assert_int_equal(workload_build(&w, &s, &r, &err), 0);
    assert_true(memcmp(texts[0], strstr(r.body.data, "\"prompt\":") + 9, 40 * 3)); /* of another repeat */
    buf_free(&r.body);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cost),     cmocka_unit_test(goodput), cmocka_unit_test(saturation),
        cmocka_unit_test(counters), cmocka_unit_test(prompts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
