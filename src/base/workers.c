#include "base/error.h"
#include "base/size.h"
#include "base/thread.h"
#include "base/workers.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct workers {
    pthread_mutex_t lock; /* guards everything below but the threads */
    pthread_cond_t wake;
    struct work *first, *last;
    size_t n_queued, max_queued;
    bool stopping;
    size_t n_threads;
    pthread_t threads[];
};

static void *worker(void *arg) {
    struct workers *w = arg;
    pthread_mutex_lock(&w->lock);
    for (;;) {
        while (!w->first && !w->stopping) pthread_cond_wait(&w->wake, &w->lock);
        struct work *work = w->first;
        if (!work) break;
        w->first = work->next;
        if (!w->first) w->last = NULL;
        w->n_queued--;
        pthread_mutex_unlock(&w->lock);
        work->run(work); /* may free work */
        pthread_mutex_lock(&w->lock);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

int workers_start(struct workers **out, size_t n_threads, size_t max_queued, struct error *err) {
    size_t bytes;
    *out = NULL;
    if (n_threads == 0) return error_set(err, QUIRE_EINVAL, "a worker pool needs at least one thread");
    if (!size_mul(n_threads, sizeof(pthread_t), &bytes) || !size_add(bytes, sizeof(struct workers), &bytes))
        return error_set(err, QUIRE_EINVAL, "%zu worker threads are too many", n_threads);
    struct workers *w = calloc(1, bytes);
    if (!w) return error_set(err, QUIRE_ENOMEM, "out of memory for %zu worker threads", n_threads);
    w->max_queued = max_queued;
    pthread_mutex_init(&w->lock, NULL); /* with default attributes these two cannot fail */
    pthread_cond_init(&w->wake, NULL);
    for (; w->n_threads < n_threads; w->n_threads++) {
        int status = thread_start(&w->threads[w->n_threads], "quire-worker", 0, worker, w);
        if (!status) continue;
        size_t started = w->n_threads;
        workers_stop(w);
        return error_set(err, QUIRE_EIO, "cannot start worker thread %zu of %zu: %s", started + 1, n_threads,
                         strerror(status));
    }
    *out = w;
    return QUIRE_OK;
}

int workers_submit(struct workers *w, struct work *work) {
    int code = QUIRE_OK;
    pthread_mutex_lock(&w->lock);
    if (w->stopping) {
        code = QUIRE_ECANCELED;
    } else if (w->n_queued >= w->max_queued) {
        code = QUIRE_EBUSY;
    } else {
        work->next = NULL;
        if (w->last)
            w->last->next = work;
        else
            w->first = work;
        w->last = work;
        w->n_queued++;
        pthread_cond_signal(&w->wake);
    }
    pthread_mutex_unlock(&w->lock);
    return code;
}

void workers_stop(struct workers *w) {
    if (!w) return;
    pthread_mutex_lock(&w->lock);
    w->stopping = true;
    pthread_cond_broadcast(&w->wake);
    pthread_mutex_unlock(&w->lock);
    for (size_t i = 0; i < w->n_threads; i++) pthread_join(w->threads[i], NULL);
    pthread_cond_destroy(&w->wake);
    pthread_mutex_destroy(&w->lock);
    free(w);
}
