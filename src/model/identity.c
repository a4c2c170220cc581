/* The numerics id: a hash of everything that decides bits. */
#include "model/model_impl.h"

#include "base/size.h"

#define PART_BYTES ((size_t)1 << 20)

size_t model_digest_parts(size_t bytes) {
    return size_max(size_div_up(bytes, PART_BYTES), 1);
}

struct digest_job {
    const char *data;
    size_t bytes;
    struct hash128 *digests;
};

static void digest_part(void *ctx, size_t part) {
    const struct digest_job *j = ctx;
    size_t first = part * PART_BYTES;
    j->digests[part] = hash128_bulk(j->data + first, size_min(PART_BYTES, j->bytes - first));
}

struct hash128 model_digest(struct backend *b, const void *data, size_t bytes, struct hash128 *digests) {
    struct digest_job j = {.data = data, .bytes = bytes, .digests = digests};
    size_t n = model_digest_parts(bytes);
    b->ops->host_run(b, n, digest_part, &j);
    return hash128_bulk(digests, n * sizeof *digests);
}
