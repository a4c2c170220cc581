/* The law of the simulator: given the times that the real engine's steps took, the simulated engine runs the
 * same steps: the same rows by phase, positions attended to, sequences, logit rows and queue lengths, one
 * step after the other. So what a simulation can get wrong is time alone. */
#include "model/spec.h"
#include "sim/replica.h"
#include "util/tiny_model.h"
#include "weights/weights.h"

#include <quire/quire.h>
#include <quire/stats.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#define REQUESTS   60
#define STEPS      20000
#define MAX_LEN    700
#define MAX_OUTPUT 60
#define WAIT_US    120000000u

struct asked {
    uint32_t tokens[MAX_LEN], answer[MAX_OUTPUT + 1];
    size_t n, n_output, at_step; /* submitted after so many steps */
};

struct recorder {
    struct asked asked[REQUESTS];
    size_t n_asked;
    _Atomic size_t n_submitted;
    struct quire_engine *engine;
    struct quire_stream *streams[REQUESTS];
    struct quire_step steps[STEPS];
    _Atomic size_t n_steps, n_failed;
};

static uint32_t draw(uint64_t *state, uint32_t below) {
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15)); /* SplitMix64 */
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return (uint32_t)((z ^ z >> 31) >> 32) % below;
}

static void submit(struct recorder *r, size_t i) {
    struct asked *a = &r->asked[i];
    struct error err;
    struct quire_request q = {.prompt = a->tokens,
                              .n_prompt = a->n,
                              .sampling = {.top_p = 1,
                                           .repetition_penalty = 1,
                                           .max_tokens = a->n_output,
                                           .ignore_eos = true,
                                           .n_logprobs = -1,
                                           .n_prompt_logprobs = -1}};
    if (quire_submit(r->engine, &q, &r->streams[i], &err)) atomic_fetch_add(&r->n_failed, 1);
}

/* On the engine thread between two steps: what is submitted here is there for the next. */
static void after_step(void *ctx, const struct quire_step *step) {
    struct recorder *r = ctx;
    size_t n = atomic_load(&r->n_steps);
    if (n < STEPS) r->steps[n] = *step;
    atomic_store(&r->n_steps, ++n);
    for (size_t i = atomic_load(&r->n_submitted); i < r->n_asked && r->asked[i].at_step <= n;) {
        submit(r, i++);
        atomic_store(&r->n_submitted, i);
    }
}

/* Prompts that share prefixes of several lengths (also within a block), repeat others, come while others run.
 */
static void make_requests(struct recorder *r, uint64_t seed, bool deep) {
    size_t at = 0;
    r->n_asked = REQUESTS;
    for (size_t i = 0; i < REQUESTS; i++) {
        struct asked *a = &r->asked[i];
        uint64_t own = seed * 1000 + i, shared = seed * 1000 + 500 + i % 3;
        size_t prefix = draw(&seed, 3) ? draw(&seed, 200) : 0;
        a->n = prefix + 1 + draw(&seed, draw(&seed, 4) ? 60 : 400);
        a->n_output = i ? 1 + draw(&seed, deep ? MAX_OUTPUT : 30) : MAX_OUTPUT;
        for (size_t k = 0; k < a->n; k++) a->tokens[k] = 3 + draw(k < prefix ? &shared : &own, 290);
        if (i > 5 && !draw(&seed, 6)) *a = r->asked[i - 1 - draw(&seed, 5)];
        a->at_step = at;
        at = i ? at + draw(&seed, deep ? 3 : 8)
               : 1; /* the first runs alone, so that all others come in a known step */
    }
}

static void wait_a_little(void) {
    struct timespec pause = {0, 2000000};
    nanosleep(&pause, NULL);
}

/* Memory that is still being made ready would be one more thing that decides what is scheduled. */
static void wait_for_memory(const struct quire_engine *e) {
    const struct quire_stats *s = quire_stats(e);
    for (int i = 0; i < 20000 && atomic_load(&s->blocks_resident) < quire_info(e)->n_blocks; i++)
        wait_a_little();
    assert_int_equal(atomic_load(&s->blocks_resident), quire_info(e)->n_blocks);
}

/* Opens the engine, runs the requests, keeps steps and answers. Returns how often something was preempted. */
static uint64_t record(struct recorder *r, const struct quire_config *config, struct sim_options *o) {
    struct quire_step_reader reader = {after_step, r};
    struct quire_config c = *config;
    struct error err = {0};
    c.step_reader = &reader;
    if (quire_open(&c, &r->engine, &err)) fail_msg("%s", err.text);
    wait_for_memory(r->engine);
    o->n_blocks = quire_info(r->engine)->n_blocks;
    atomic_store(&r->n_submitted, 1);
    submit(r, 0);
    for (int i = 0; i < 60000 && atomic_load(&r->n_submitted) < r->n_asked; i++) wait_a_little();
    assert_int_equal(atomic_load(&r->n_submitted), r->n_asked); /* the engine was never without work */
    assert_int_equal(atomic_load(&r->n_failed), 0);
    for (size_t i = 0; i < r->n_asked; i++) {
        struct quire_event event = {0};
        for (size_t n = 0; event.finish == QUIRE_RUNNING; n++) {
            assert_true(quire_wait(r->streams[i], &event, WAIT_US));
            r->asked[i].answer[n] = event.chosen.token;
        }
        assert_int_equal(event.finish, QUIRE_LENGTH);
        quire_close(r->streams[i]);
    }
    uint64_t preempted = atomic_load(&quire_stats(r->engine)->preemptions);
    quire_shutdown(r->engine);
    return preempted;
}

/* ---- the same, simulated ---- */

struct replay {
    const struct recorder *r;
    size_t step, n_ended;
};

static void recorded_time(void *ctx, struct quire_step *step) {
    struct replay *p = ctx;
    assert_true(p->step < atomic_load(&p->r->n_steps));
    const struct quire_step *was = &p->r->steps[p->step];
#define SAME(field)                                                                                          \
    if (step->field != was->field)                                                                           \
    fail_msg("step %zu: " #field " is %zu, it was %zu", p->step, (size_t)step->field, (size_t)was->field)
    SAME(n_prefill_rows);
    SAME(n_decode_rows);
    SAME(n_prefill_seqs);
    SAME(n_decode_seqs);
    SAME(prefill_attended);
    SAME(decode_attended);
    SAME(n_logit_rows);
    SAME(n_running);
    SAME(n_waiting);
    step->prepare_us = was->prepare_us;
    step->forward_us = was->forward_us;
    step->sample_us = was->sample_us;
    p->step++;
}

static void on_token(void *ctx, struct job *job, bool last) {
    struct replay *p = ctx;
    p->n_ended += last;
    if (last) job_free(job);
}

static void add(struct replica *v, const struct asked *a, size_t block_tokens, double now) {
    struct job *j = job_new(a->tokens, a->n, a->n_output, a->n_output, block_tokens);
    assert_non_null(j);
    j->answer = a->answer;
    j->arrive_us = now;
    assert_true(replica_add(v, j));
}

static void replay(const struct recorder *r, const struct sim_options *o) {
    struct replay p = {r, 0, 0};
    struct sim_clock clock = {.time = recorded_time, .ctx = &p};
    struct replica *v;
    struct error err;
    double now = 0, end;
    size_t next = 1;
    assert_int_equal(replica_create(o, &clock, &v, &err), 0);
    add(v, &r->asked[0], o->block_tokens, now);
    while (replica_begin(v, now, &end)) {
        now = end;
        replica_end(v, on_token, &p);
        for (; next < r->n_asked && r->asked[next].at_step <= p.step; next++)
            add(v, &r->asked[next], o->block_tokens, now);
    }
    assert_int_equal(p.n_ended, r->n_asked);
    assert_int_equal(p.step, atomic_load(&r->n_steps));
    replica_free(v);
}

/* ---- cases ---- */

static struct quire_config config_of(struct weights *w) {
    return (struct quire_config){.weights = w,
                                 .dtype = QUIRE_FLOAT32,
                                 .max_model_len = 1024,
                                 .max_num_seqs = 8,
                                 .max_num_batched_tokens = 256,
                                 .block_tokens = 16,
                                 .memory_share = 0.5,
                                 .kv_bytes = (uint64_t)8 << 20,
                                 .max_queue = 256,
                                 .n_threads = 1,
                                 .prefix_caching = true,
                                 .chunked_prefill = true,
                                 .seed = 7,
                                 .cache_secret = "test"};
}

static struct sim_options options_of(const struct quire_config *c) {
    struct model_spec spec;
    struct error err;
    assert_int_equal(model_spec_read(c->weights, &spec, &err), 0);
    struct sim_options o = {.max_num_seqs = c->max_num_seqs,
                            .max_num_batched_tokens = c->max_num_batched_tokens,
                            .max_model_len = c->max_model_len,
                            .max_queue = c->max_queue,
                            .long_prefill_threshold = c->long_prefill_threshold,
                            .block_tokens = c->block_tokens,
                            .n_groups = spec.n_kv_groups,
                            .prefix_caching = c->prefix_caching,
                            .chunked_prefill = c->chunked_prefill};
    for (size_t g = 0; g < spec.n_kv_groups; g++)
        o.window[g] = spec.kv_groups[g].window < c->max_model_len ? spec.kv_groups[g].window : 0;
    return o;
}

/* change: of the usual configuration. Returns how often something was preempted. */
static uint64_t check(unsigned window, uint64_t seed, bool deep, void (*change)(struct quire_config *c)) {
    struct tiny_model_options t = tiny_model_defaults();
    size_t n;
    struct weights *w;
    struct error err;
    t.n_layers = 2;
    t.n_vocab = 300;
    t.sliding_window = window;
    void *data = tiny_model_memory(&t, &n);
    if (weights_open_memory(data, n, &w, &err)) fail_msg("%s", err.text);
    struct quire_config c = config_of(w);
    if (change) change(&c);
    struct sim_options o = options_of(&c);
    struct recorder *r = calloc(1, sizeof *r);
    assert_non_null(r);
    make_requests(r, seed, deep);
    uint64_t preempted = record(r, &c, &o);
    assert_true(atomic_load(&r->n_steps) > 100 && atomic_load(&r->n_steps) < STEPS);
    replay(r, &o);
    free(r);
    weights_close(w);
    free(data);
    return preempted;
}

static void test_usual(void **state) {
    for (uint64_t seed = 1; seed <= 3; seed++) check(0, seed, false, NULL);
}

static void tight(struct quire_config *c) {
    c->kv_bytes = (uint64_t)3 << 18;
    c->max_num_seqs = 16;
}

static void test_preemption(void **state) {
    uint64_t preempted = 0;
    for (uint64_t seed = 1; seed <= 3; seed++) preempted += check(0, seed, true, tight);
    assert_true(preempted > 0);
}

static void chunks(struct quire_config *c) {
    c->max_num_batched_tokens = 64;
    c->long_prefill_threshold = 24;
    c->block_tokens = 32;
}

static void no_cache(struct quire_config *c) {
    c->prefix_caching = false;
    c->max_num_seqs = 4;
}

static void whole(struct quire_config *c) {
    c->chunked_prefill = false;
    c->max_num_batched_tokens = 1024;
}

static void test_options(void **state) {
    check(0, 11, true, chunks);
    check(0, 12, false, no_cache);
    check(0, 13, false, whole);
}

static void test_window(void **state) {
    check(64, 21, true, NULL);
    check(64, 22, true, tight);
}

/* On the reference kernels steps of many rows take long enough for the pace to limit them. */
static void slow(struct quire_config *c) {
    c->cpu_limit = "ref";
    c->max_num_batched_tokens = 1024;
    c->max_num_seqs = 32;
}

static void test_pace(void **state) {
    check(0, 31, true, slow);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_usual), cmocka_unit_test(test_preemption),
                                       cmocka_unit_test(test_options), cmocka_unit_test(test_window),
                                       cmocka_unit_test(test_pace)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
