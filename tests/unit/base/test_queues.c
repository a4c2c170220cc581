/* mpsc and workers. Also built with ThreadSanitizer (make tsan). */
#include "base/mpsc.h"
#include "base/workers.h"
#include "util/alloc_fail.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

/* ---- mpsc ---------------------------------------------------------------------------------------------- */

struct item {
    struct mpsc_node node; /* first member */
    int producer, number;
};

static void mpsc_is_first_in_first_out(void **state) {
    struct mpsc q;
    struct item items[5];
    mpsc_init(&q);
    assert_null(mpsc_pop(&q));
    for (int round = 0; round < 3; round++) {
        for (int n = 1; n <= 5; n++) {
            for (int i = 0; i < n; i++) mpsc_push(&q, &items[i].node);
            for (int i = 0; i < n; i++) assert_ptr_equal(mpsc_pop(&q), &items[i].node);
            assert_null(mpsc_pop(&q));
        }
    }
    mpsc_push(&q, &items[0].node); /* interleaved, and a node again while others wait */
    mpsc_push(&q, &items[1].node);
    assert_ptr_equal(mpsc_pop(&q), &items[0].node);
    mpsc_push(&q, &items[0].node);
    assert_ptr_equal(mpsc_pop(&q), &items[1].node);
    assert_ptr_equal(mpsc_pop(&q), &items[0].node);
    assert_null(mpsc_pop(&q));
}

enum { PRODUCERS = 4, ITEMS = 20000 };

struct producer {
    struct mpsc *q;
    int id;
    pthread_t thread;
};

static void *produce(void *arg) {
    struct producer *p = arg;
    for (int i = 0; i < ITEMS; i++) {
        struct item *item = malloc(sizeof *item);
        if (!item) return NULL;
        item->producer = p->id;
        item->number = i;
        mpsc_push(p->q, &item->node);
        if (i % 512 == 0) sched_yield();
    }
    return p;
}

/* Nothing is lost, and each producer's items keep their order; the consumer frees at once, so a late touch is
 * seen. */
static void mpsc_under_stress(void **state) {
    struct mpsc q;
    struct producer p[PRODUCERS];
    int next[PRODUCERS] = {0};
    mpsc_init(&q);
    for (int i = 0; i < PRODUCERS; i++) {
        p[i] = (struct producer){.q = &q, .id = i};
        assert_int_equal(pthread_create(&p[i].thread, NULL, produce, &p[i]), 0);
    }
    for (int got = 0; got < PRODUCERS * ITEMS;) {
        struct item *item = (struct item *)mpsc_pop(&q);
        if (!item) {
            sched_yield();
            continue;
        }
        assert_int_equal(item->number, next[item->producer]++);
        free(item);
        got++;
    }
    for (int i = 0; i < PRODUCERS; i++) {
        void *ok;
        pthread_join(p[i].thread, &ok);
        assert_non_null(ok);
    }
    assert_null(mpsc_pop(&q));
}

/* ---- workers ------------------------------------------------------------------------------------------- */

struct job {
    struct work work; /* first member */
    atomic_int *done;
    atomic_int *gate; /* waits until it is not 0 */
    struct workers *resubmit_to;
    int times, code;
};

static void run_job(struct work *work) {
    struct job *job = (struct job *)work;
    while (job->gate && !*job->gate) sched_yield();
    if (--job->times > 0)
        job->code = workers_submit(job->resubmit_to, work);
    else
        atomic_fetch_add(job->done, 1);
}

static void workers_run_everything_before_they_stop(void **state) {
    struct workers *w;
    struct error err;
    atomic_int done = 0, gate = 0;
    struct job jobs[100];
    assert_int_equal(workers_start(&w, 3, 100, &err), 0);
    for (size_t i = 0; i < 100; i++) {
        jobs[i] = (struct job){.work.run = run_job, .done = &done, .gate = &gate};
        assert_int_equal(workers_submit(w, &jobs[i].work), 0);
    }
    assert_int_equal(done, 0);
    gate = 1;
    workers_stop(w);
    assert_int_equal(done, 100);
    workers_stop(NULL);
}

static void workers_are_bounded(void **state) {
    struct workers *w;
    struct error err;
    atomic_int done = 0, gate = 0;
    struct job jobs[20];
    int accepted = 0, busy = 0;
    assert_int_equal(workers_start(&w, 2, 5, &err), 0);
    for (size_t i = 0; i < 20; i++) {
        jobs[i] = (struct job){.work.run = run_job, .done = &done, .gate = &gate};
        int code = workers_submit(w, &jobs[i].work);
        accepted += code == 0;
        busy += code == QUIRE_EBUSY;
    }
    assert_int_equal(accepted + busy, 20);
    assert_in_range(accepted, 5, 7); /* 5 wait, up to 2 run */
    gate = 1;
    workers_stop(w);
    assert_int_equal(done, accepted);
}

struct stopper {
    struct job job; /* first member */
};

static void submit_until_refused(struct work *work) {
    struct stopper *s = (struct stopper *)work;
    struct job extra = {.work.run = run_job, .done = s->job.done};
    while ((s->job.code = workers_submit(s->job.resubmit_to, &extra.work)) == QUIRE_EBUSY) sched_yield();
}

static void *stop_pool(void *w) {
    workers_stop(w);
    return NULL;
}

static void workers_refuse_once_stopping(void **state) {
    struct workers *w;
    struct error err;
    atomic_int done = 0;
    pthread_t thread;
    struct stopper s = {.job = {.work.run = submit_until_refused, .done = &done}};
    assert_int_equal(workers_start(&w, 1, 0, &err), 0);
    assert_int_equal(workers_submit(w, &s.job.work), QUIRE_EBUSY); /* room for none */
    workers_stop(w);
    assert_int_equal(workers_start(&w, 1, 1, &err), 0);
    atomic_int gate = 0;
    struct job first = {.work.run = run_job, .done = &done, .gate = &gate};
    assert_int_equal(workers_submit(w, &first.work), 0);
    s.job.resubmit_to = w;
    while (workers_submit(w, &s.job.work) == QUIRE_EBUSY) sched_yield(); /* first has left the queue */
    assert_int_equal(pthread_create(&thread, NULL, stop_pool, w), 0);
    struct job probe = {.work.run = run_job, .done = &done};
    while (workers_submit(w, &probe.work) != QUIRE_ECANCELED) sched_yield(); /* until it is stopping */
    gate = 1;
    pthread_join(thread, NULL);
    assert_int_equal(s.job.code, QUIRE_ECANCELED); /* from within the pool too */
    assert_int_equal(done, 1);
}

static void *submit_many(void *arg) {
    struct job *jobs = arg;
    for (int i = 0; i < 2000; i++)
        while (workers_submit(jobs[i].resubmit_to, &jobs[i].work) == QUIRE_EBUSY) sched_yield();
    return NULL;
}

static void workers_under_stress(void **state) {
    struct workers *w;
    struct error err;
    atomic_int done = 0;
    pthread_t threads[3];
    struct job *jobs = calloc(3 * 2000, sizeof *jobs);
    assert_non_null(jobs);
    assert_int_equal(workers_start(&w, 4, 64, &err), 0);
    for (size_t i = 0; i < 3 * 2000; i++)
        jobs[i] = (struct job){.work.run = run_job, .done = &done, .resubmit_to = w, .times = 1};
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, submit_many, jobs + 2000 * i), 0);
    for (size_t i = 0; i < 3; i++) pthread_join(threads[i], NULL);
    workers_stop(w);
    assert_int_equal(done, 3 * 2000);
    free(jobs);
}

static void run_and_free(struct work *work) {
    free(work);
}

static void work_may_free_itself(void **state) {
    struct workers *w;
    struct error err;
    assert_int_equal(workers_start(&w, 2, 1000, &err), 0);
    for (int i = 0; i < 1000; i++) {
        struct work *work = malloc(sizeof *work);
        assert_non_null(work);
        work->run = run_and_free;
        assert_int_equal(workers_submit(w, work), 0);
    }
    workers_stop(w);
}

static void note_signals(struct work *work) {
    sigset_t now;
    pthread_sigmask(SIG_SETMASK, NULL, &now);
    ((struct job *)work)->code = sigismember(&now, SIGTERM) - sigismember(&now, SIGSEGV);
}

static void signals_stay_with_the_starter(void **state) {
    struct workers *w;
    struct error err;
    struct job job = {.work.run = note_signals, .code = -1};
    sigset_t now;
    assert_int_equal(workers_start(&w, 1, 1, &err), 0);
    assert_int_equal(workers_submit(w, &job.work), 0);
    workers_stop(w);
    assert_int_equal(job.code, 1);
    pthread_sigmask(SIG_SETMASK, NULL, &now);
    assert_int_equal(sigismember(&now, SIGTERM), 0);
}

static void workers_that_cannot_start(void **state) {
    struct workers *w;
    struct error err = {0};
    assert_int_equal(workers_start(&w, 0, 1, &err), QUIRE_EINVAL);
    assert_null(w);
    assert_int_equal(workers_start(&w, SIZE_MAX / 4, 1, &err), QUIRE_EINVAL);
    for (size_t n = 1; n <= 4; n++) {
        thread_fail_at(n);
        int code = workers_start(&w, 4, 1, &err);
        thread_fail_at(0);
        assert_int_equal(code, QUIRE_EIO);
        assert_null(w);
        assert_memory_equal(err.text, "cannot start worker thread ", 27);
        assert_int_equal(err.text[27], '0' + (int)n);
    }
    alloc_fail_at(1);
    int code = workers_start(&w, 2, 1, &err);
    alloc_fail_stop();
    assert_int_equal(code, QUIRE_ENOMEM);
    assert_null(w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mpsc_is_first_in_first_out),
        cmocka_unit_test(mpsc_under_stress),
        cmocka_unit_test(workers_run_everything_before_they_stop),
        cmocka_unit_test(workers_are_bounded),
        cmocka_unit_test(workers_refuse_once_stopping),
        cmocka_unit_test(workers_under_stress),
        cmocka_unit_test(work_may_free_itself),
        cmocka_unit_test(signals_stay_with_the_starter),
        cmocka_unit_test(workers_that_cannot_start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
