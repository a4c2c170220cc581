/* Reading every tensor of a model file once, on several threads. */
#include "cli/inspect.h"

#include "base/error.h"
#include "base/size.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define PIECE_BYTES ((size_t)4 << 20)
#define MAX_THREADS 256

/* Pieces of all tensors are numbered in a row: those of tensor i are first_piece[i] to first_piece[i + 1]. */
struct check {
    const struct weights *w;
    size_t *first_piece;
    size_t n_tensors, n_pieces;
    _Atomic size_t next;
    struct first_error failure;
    pthread_mutex_t lock; /* for faults */
    struct float_faults *faults;
    bool show; /* how far it is, by the thread that asked */
};

static size_t piece_bytes(const struct tensor *t) {
    size_t block = tensor_type_info(t->type)->block_bytes;
    return PIECE_BYTES / block * block;
}

/* The tensor of a piece. */
static size_t find_tensor(const struct check *c, size_t piece) {
    size_t low = 0, high = c->n_tensors;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (c->first_piece[middle] <= piece)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static int check_piece(struct check *c, size_t piece, void *buffer, struct error *err) {
    size_t i = find_tensor(c, piece);
    const struct tensor *t = weights_tensor_at(c->w, i);
    size_t offset = (piece - c->first_piece[i]) * piece_bytes(t);
    size_t n = size_min(piece_bytes(t), t->bytes - offset);
    struct float_faults sum = {0};
    int rc = weights_read(c->w, t, offset, n, buffer, err);
    if (rc) return rc;
    check_floats(t->type, buffer, n / tensor_type_info(t->type)->block_bytes, &sum);
    if (!sum.n_nan && !sum.n_inf) return QUIRE_OK;
    pthread_mutex_lock(&c->lock);
    c->faults[i].n_nan += sum.n_nan;
    c->faults[i].n_inf += sum.n_inf;
    pthread_mutex_unlock(&c->lock);
    return QUIRE_OK;
}

static void work(struct check *c, bool show) {
    struct error err = {0};
    size_t piece, shown = 0;
    void *buffer = malloc(PIECE_BYTES);
    if (!buffer) {
        int rc = error_set(&err, QUIRE_ENOMEM, "out of memory");
        first_error_note(&c->failure, rc, &err);
        return;
    }
    while (!c->failure.status && (piece = c->next++) < c->n_pieces) {
        int rc = check_piece(c, piece, buffer, &err);
        if (rc) first_error_note(&c->failure, rc, &err);
        size_t percent = 100 * piece / c->n_pieces;
        if (!show || percent == shown) continue;
        fprintf(stderr, "\rreading %3zu %%", percent);
        shown = percent;
    }
    if (shown) fprintf(stderr, "\r\033[K");
    free(buffer);
}

static void *work_beside(void *ctx) {
    work(ctx, false);
    return NULL;
}

/* As many threads as there can be; this one is always there. */
static void run(struct check *c, size_t n_threads) {
    pthread_t threads[MAX_THREADS];
    size_t n = 0;
    n_threads = size_min(size_min(n_threads, MAX_THREADS), c->n_pieces);
    while (n + 1 < n_threads && !pthread_create(&threads[n], NULL, work_beside, c)) n++;
    work(c, c->show);
    while (n) pthread_join(threads[--n], NULL);
}

static void number_pieces(struct check *c) {
    for (size_t i = 0; i < c->n_tensors; i++) {
        const struct tensor *t = weights_tensor_at(c->w, i);
        c->first_piece[i] = c->n_pieces;
        c->n_pieces += size_div_up(t->bytes, piece_bytes(t));
    }
}

int inspection_check(struct inspection *i, size_t n_threads, struct error *err) {
    struct check c = {.w = i->model.weights,
                      .n_tensors = weights_n_tensors(i->model.weights),
                      .failure = {.err = err},
                      .show = isatty(2)};
    int rc = check_gaps(c.w, &i->gaps);
    if (rc && rc != QUIRE_EFORMAT) {
        *err = i->gaps;
        return rc;
    }
    pthread_mutex_init(&c.lock, NULL);
    i->faults = c.faults = calloc(c.n_tensors + 1, sizeof *c.faults);
    c.first_piece = calloc(c.n_tensors + 1, sizeof *c.first_piece);
    if (c.faults && c.first_piece) {
        number_pieces(&c);
        run(&c, n_threads);
    } else {
        c.failure.status = error_set(err, QUIRE_ENOMEM, "out of memory");
    }
    for (size_t k = 0; !c.failure.status && k < c.n_tensors; k++)
        i->n_bad_tensors += c.faults[k].n_nan || c.faults[k].n_inf;
    i->checked = !c.failure.status;
    free(c.first_piece);
    pthread_mutex_destroy(&c.lock);
    return c.failure.status;
}
