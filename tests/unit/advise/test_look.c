/* Pages of metrics to figures: each by its definition, from numbers that can be checked by hand. */
#include "advise/look.h"
#include "advise/report.h"
#include "base/buf.h"
#include "base/files.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#define near(a, b) assert_true(fabs((a) - (double)(b)) <= 1e-9 * (1 + fabs((double)(b))))

static struct figures between(const char *first, const char *last, double seconds) {
    struct look *looks = calloc(2, sizeof *looks);
    struct look_gauges gauges = {0};
    struct figures f;
    struct error err;
    assert_non_null(looks);
    if (first) look_read(first, &looks[0]);
    look_read(last, &looks[1]);
    look_gauges_add(&gauges, &looks[1]);
    assert_int_equal(look_figures(first ? &looks[0] : NULL, &looks[1], &gauges, seconds, &f, &err), 0);
    free(looks);
    return f;
}

static void counters_and_ratios(void **state) {
    static const char first[] = "vllm:request_success_total{finished_reason=\"stop\"} 10\n"
                                "vllm:request_success_total{finished_reason=\"length\"} 2\n"
                                "vllm:generation_tokens_total 100\nquire_held_steps_total{lack=\"kv\"} 5\n"
                                "quire_phase_seconds_total{phase=\"decode\"} 1\n"
                                "quire_phase_seconds_total{phase=\"prefill\"} 1\n"
                                "quire_phase_steps_total{phase=\"decode\"} 0\n"
                                "quire_phase_steps_total{phase=\"prefill\"} 0\n"
                                "process_cpu_seconds_total 4\n";
    static const char last[] =
        "vllm:request_success_total{finished_reason=\"stop\"} 16\n"
        "vllm:request_success_total{finished_reason=\"length\"} 4\n"
        "vllm:generation_tokens_total 900\nquire_held_steps_total{lack=\"kv\"} 25\n"
        "quire_phase_seconds_total{phase=\"decode\"} 4\n"
        "quire_phase_seconds_total{phase=\"prefill\"} 3\n"
        "quire_phase_steps_total{phase=\"decode\"} 60\n"
        "quire_phase_steps_total{phase=\"prefill\"} 40\n"
        "process_cpu_seconds_total 13\n"
        "vllm:num_requests_running{engine=\"0\"} 3\nvllm:num_requests_running{engine=\"1\"} 4\n"
        "vllm:kv_cache_usage_perc{engine=\"0\"} 0.5\nvllm:kv_cache_usage_perc{engine=\"1\"} 0.7\n"
        "quire_build_info{version=\"1.2\",cpu_path=\"avx2\",cpu_best=\"amx\"} 1\n"
        "quire_model_parameters 1000\nquire_memory_plan_bytes{row=\"weights\"} 2000\n";
    struct figures f = between(first, last, 10);
    near(f.v[F_REQUESTS], 8);
    near(f.v[F_LENGTH_SHARE], 0.25);
    near(f.v[F_OUTPUT_TOKENS], 800);
    near(f.v[F_OUTPUT_MEAN], 100);
    near(f.v[F_HELD_KV], 0.2);
    near(f.v[F_BUSY], 0.5);
    near(f.v[F_PREFILL_SHARE], 0.4);
    near(f.v[F_CPU_USED], 0.9);
    near(f.v[F_RUNNING], 7);
    near(f.v[F_KV_USAGE], 0.6);
    near(f.v[F_PATH], 1);
    near(f.v[F_PATH_BEST], 3);
    near(f.v[F_WEIGHT_BITS], 16);
    assert_string_equal(f.software, "quire 1.2");
    assert_false(f.has[F_HIT_RATE] || f.has[F_THREADS] || f.has[F_TTFT_P95] || f.has[F_COMPARED_TOKENS]);
}

/* Buckets 10, 20, 40 with 2, 6 and 2 values: P50 is the third of the six between 10 and 20. */
static void quantiles(void **state) {
    struct look_histogram h = {.n = 4,
                               .bound = {10, 20, 40, INFINITY},
                               .count = {2, 8, 10, 10},
                               .total = 10,
                               .sum = 170,
                               .has = true};
    double v;
    assert_true(look_quantile(&h, 0.5, &v));
    near(v, 15);
    assert_true(look_quantile(&h, 0.1, &v));
    near(v, 5);
    assert_true(look_quantile(&h, 1, &v));
    near(v, 40);
    h.count[3] = h.total = 20;
    assert_false(look_quantile(&h, 0.9, &v)); /* beyond all bounds */
    near(v, 40);
    h.total = 0;
    assert_false(look_quantile(&h, 0.5, &v));
}

/* Steps of 1 to 9 tokens that take 5 ms + 2 ms each: the line is found, whatever else is on the page. */
static void line_of_steps(void **state) {
    struct buf page = BUF_INIT;
    double n = 0, tokens = 0, squares = 0, seconds = 0, token_s = 0;
    for (int i = 0; i < 90; i++) {
        double k = 1 + i % 9, s = 0.005 + 0.002 * k;
        n++, tokens += k, squares += k * k, seconds += s, token_s += k * s;
    }
    static const char *const names[] = {"steps", "tokens", "tokens_squared", "seconds", "token_seconds"};
    const double values[] = {n, tokens, squares, seconds, token_s};
    for (int i = 0; i < 5; i++) {
        buf_printf(&page, "quire_phase_%s_total{phase=\"decode\"} %.12g\n", names[i], values[i]);
        buf_printf(&page, "quire_phase_%s_total{phase=\"prefill\"} 0\n", names[i]);
    }
    struct figures f = between(NULL, page.data, 10);
    assert_true(fabs(f.v[F_DECODE_FIXED_MS] - 5) < 1e-6 && fabs(f.v[F_DECODE_TOKEN_MS] - 2) < 1e-6);
    near(f.v[F_DECODE_STEP_TOKENS], 5);
    assert_true(fabs(f.v[F_UTILIZATION] - 0.002 * 450 / 10) < 1e-9);
    assert_false(f.has[F_PREFILL_STEP_MS]);
    buf_free(&page);
}

static void output_beyond(void **state) {
    /* 100 answers of 100 to 200 tokens, 100 of 500 to 1000 (evenly): beyond 256 are those of the second half
     */
    static const char page[] =
        "vllm:request_generation_tokens_bucket{le=\"100\"} 0\n"
        "vllm:request_generation_tokens_bucket{le=\"200\"} 100\n"
        "vllm:request_generation_tokens_bucket{le=\"500\"} 100\n"
        "vllm:request_generation_tokens_bucket{le=\"1000\"} 200\n"
        "vllm:request_generation_tokens_bucket{le=\"+Inf\"} 200\n"
        "vllm:request_generation_tokens_sum 90000\nvllm:request_generation_tokens_count 200\n"
        "vllm:request_success_total 200\n";
    struct figures f = between(NULL, page, 10);
    near(f.v[F_OUTPUT_BEYOND], 100.0 * (750 - 256) / 90000);
}

static void started_anew(void **state) {
    struct look *looks = calloc(2, sizeof *looks);
    struct look_gauges gauges = {0};
    struct figures f;
    struct error err = {0};
    look_read("vllm:generation_tokens_total 100\n", &looks[0]);
    look_read("vllm:generation_tokens_total 99\n", &looks[1]);
    assert_int_equal(look_figures(&looks[0], &looks[1], &gauges, 5, &f, &err), QUIRE_ECANCELED);
    assert_non_null(strstr(err.text, "started anew"));
    assert_int_equal(look_figures(&looks[1], &looks[0], &gauges, 0, &f, &err), QUIRE_EINVAL);
    free(looks);
}

/* A page as vLLM writes it: waiting behind full KV memory. */
static void page_of_vllm(void **state) {
    struct buf page = BUF_INIT;
    struct error err;
    assert_int_equal(file_read(NULL, TEST_DATA "/advise/vllm.txt", 1, &page, &err), 0);
    struct figures f = between(NULL, page.data, 120);
    near(f.v[F_REQUESTS], 240);
    near(f.v[F_KV_TOKENS], 32000);
    near(f.v[F_HIT_RATE], 0.2);
    near(f.v[F_QUEUE_MS], 2500);
    near(f.v[F_PREFIX_CACHING], 1);
    near(f.v[F_TTFT_P95], 1000 * (1 + 9 * (0.95 * 240 - 90) / 150));
    struct wishes w = {.price = 0};
    struct advice *a = calloc(1, sizeof *a);
    advise(&f, &w, a);
    assert_true(a->n && a->verdicts[0].kind == VERDICT_KV_POOL);
    assert_true(a->unseen[VERDICT_THREADS]);
    free(a);
    buf_free(&page);
}

/* ---- reports ---- */

static int open_report(const char *text, struct report *r, struct error *err) {
    char path[] = "/tmp/quire-report-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    close(fd);
    int rc = report_open(path, r, err);
    unlink(path);
    return rc;
}

#define HEAD                                                                                                 \
    "{\"format\":\"quire-bench-serve\",\"version\":1,\"server\":{\"url\":\"http://x\",\"software\":\"other " \
    "1\"},"

static void reports(void **state) {
    struct report r;
    struct error err = {0};
    struct figures f;
    const char *title;
    static const char good[] =
        HEAD "\"slo\":\"ttft:100\",\"price_per_hour\":2,\"points\":[{\"title\":\"t\",\"summary\":{\"ok\":4,"
             "\"duration_s\":8,"
             "\"input_tokens\":400,\"output_tokens\":80,\"cached_tokens\":null,\"ttft_ms\":{\"mean\":300,"
             "\"p95\":500},"
             "\"e2e_ms\":{\"mean\":900,\"p95\":1000},\"server\":{\"queue_ms_mean\":100,\"kv_usage\":{"
             "\"mean\":0.5,\"max\":0.9}}},"
             "\"repeats\":[{\"metrics\":null,\"errors\":[{\"kind\":\"http\",\"status\":503,\"count\":4}],"
             "\"records\":"
             "{\"output_tokens\":[356,10,10,24],\"outcome\":[\"ok\",\"ok\",\"http\",\"ok\"]}}]}]}";
    assert_int_equal(open_report(good, &r, &err), 0);
    assert_true(r.n_points == 1 && r.wishes.slo.ttft_ms == 100 && r.wishes.price == 2);
    assert_int_equal(report_figures(&r, 0, &f, &title, &err), 0);
    assert_string_equal(title, "t");
    near(f.v[F_PROMPT_MEAN], 100);
    near(f.v[F_TTFT_P95], 500);
    near(f.v[F_PREFILL_MS], 200);
    near(f.v[F_DECODE_MS], 600);
    near(f.v[F_REFUSED_SHARE], 0.5);
    near(f.v[F_KV_USAGE_MAX], 0.9);
    near(f.v[F_OUTPUT_BEYOND], 100.0 / 390);
    assert_false(f.has[F_CACHED_TOKENS] || f.has[F_BUSY]);
    report_close(&r);
    static const char *const wrong[] = {
        "",
        "{}",
        "[1]",
        "{\"format\":\"x\",\"version\":1,\"points\":[1]}",
        HEAD "\"points\":[]}",
        HEAD "\"slo\":\"nonsense\",\"points\":[1]}",
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        err = (struct error){0};
        assert_true(open_report(wrong[i], &r, &err) < 0 && *err.text && !strchr(err.text, '\n'));
    }
    static const char *const points[] = {HEAD "\"points\":[1]}", HEAD "\"points\":[{\"title\":5}]}",
                                         HEAD "\"points\":[{\"title\":\"t\",\"summary\":{},\"repeats\":3}]}"};
    for (size_t i = 0; i < sizeof points / sizeof *points; i++) {
        assert_int_equal(open_report(points[i], &r, &err), 0);
        assert_int_equal(report_figures(&r, 0, &f, &title, &err), QUIRE_EFORMAT);
        report_close(&r);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counters_and_ratios),
        cmocka_unit_test(quantiles),
        cmocka_unit_test(line_of_steps),
        cmocka_unit_test(output_beyond),
        cmocka_unit_test(started_anew),
        cmocka_unit_test(page_of_vllm),
        cmocka_unit_test(reports),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
