#include "engine/outlook.h"

#include "base/error.h"
#include "engine/engine.h"

#include <stdlib.h>
#include <string.h>

struct opening {
    const struct outlook_device *device;
};

/* A copy, so that whoever planned may close it as any other. */
static void close_copy(struct backend *b) {
    free((void *)b->ops);
    free(b);
}

static int copy_paper(const struct backend *paper, const struct backend_cpu_options *o, struct backend **out,
                      struct error *err) {
    struct backend *b = malloc(sizeof *b);
    struct backend_ops *ops = malloc(sizeof *ops);
    if (!b || !ops) {
        free(b);
        free(ops);
        return error_set(err, QUIRE_ENOMEM, "out of memory for the plan");
    }
    *ops = *paper->ops;
    ops->close = close_copy;
    *b = *paper;
    b->ops = ops;
    b->max_rows = o->max_rows;
    *out = b;
    return 0;
}

static int open_sizes(void *ctx, const struct backend_cpu_options *o, struct backend **out,
                      size_t *scratch_bytes, struct error *err) {
    const struct opening *opening = ctx;
    struct backend_cpu_options sizes = *o;
    *scratch_bytes = 0; /* of a paper device: small beside the driver's context */
    if (opening->device->paper) return copy_paper(opening->device->paper, o, out, err);
    sizes.sizes_only = true;
    *scratch_bytes = backend_cpu_scratch_bytes(o);
    return backend_cpu_open(&sizes, out, err);
}

static void fill(struct outlook *out, const struct quire_engine *e) {
    const struct plan *p = &e->plan;
    const struct plan_need *n = &p->need;
    *out =
        (struct outlook){.spec = e->spec,
                         .pooling = p->pooling,
                         .weights_bytes = n->weights,
                         .kv_bytes = (uint64_t)p->n_pages * p->page_bytes,
                         .activation_bytes = n->activations,
                         .buffer_bytes = n->buffers,
                         .rest_bytes = n->rest,
                         .fixed_bytes = n->weights + n->activations + n->rest + (n->apart ? 0 : n->buffers),
                         .available_bytes = n->available,
                         .allowed_bytes = n->allowed,
                         .taken_bytes = n->taken,
                         .limited_by = n->limited_by,
                         .layout = p->layout,
                         .dtype = p->model.dtype,
                         .page_bytes = p->page_bytes,
                         .n_blocks = p->n_pages ? p->n_pages - 1 : 0,
                         .room_blocks = n->room_pages ? n->room_pages - 1 : 0,
                         .block_cost_bytes = n->page_bytes,
                         .block_tokens = p->block_tokens,
                         .max_model_len = p->max_model_len,
                         .max_num_seqs = p->max_num_seqs,
                         .max_num_batched_tokens = p->max_num_batched_tokens,
                         .longest = p->n_pages ? plan_longest(e, p->n_pages) : 0,
                         .cache = e->cache};
    memcpy(out->memory, e->info.memory, sizeof out->memory);
    if (!e->backend) return;
    out->path = e->backend->path;
    out->n_threads = e->backend->n_threads;
    out->panel_rows = e->backend->max_rows;
}

int outlook_make(const struct quire_config *c, const struct outlook_device *device, struct outlook *out,
                 struct error *err) {
    struct opening opening = {device};
    struct plan_place place = {.available_bytes = device->memory_bytes,
                               .name = device->name,
                               .apart = device->paper != NULL,
                               .context_bytes = device->context_bytes,
                               .open = open_sizes,
                               .ctx = &opening};
    *out = (struct outlook){0};
    struct quire_engine *e = calloc(1, sizeof *e);
    if (!e) return error_set(err, QUIRE_ENOMEM, "out of memory for the plan");
    e->log = c->log;
    int rc = plan_engine(e, c, &place, err);
    if (!rc || rc == QUIRE_ENOMEM) fill(out, e);
    if (e->backend) e->backend->ops->close(e->backend);
    free(e);
    return rc;
}

size_t outlook_blocks(const struct outlook *o, size_t n_tokens) {
    return kv_peak_blocks(&o->cache, n_tokens);
}

size_t outlook_longest(const struct outlook *o, size_t n_blocks, size_t n_seqs, size_t most) {
    size_t low = 0, high = most;
    while (low < high) {
        size_t mid = low + (high - low + 1) / 2;
        if (outlook_blocks(o, mid) <= n_blocks / n_seqs)
            low = mid;
        else
            high = mid - 1;
    }
    return low;
}
