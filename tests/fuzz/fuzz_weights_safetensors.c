/* Opens the input as a safetensors file in memory; whatever is accepted is walked to its last byte. */
#include "weights/hf.h"

#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void expect(int truth) {
    if (!truth) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct weights *w = NULL;
    struct error err = {0};
    int rc = hf_open_tensors(data, size, &w, &err);
    if (rc) {
        expect(rc < 0 && !w && err.code == rc && err.text[0]);
        return 0;
    }
    uint64_t bytes = 0;
    for (size_t i = 0; i < weights_n_tensors(w); i++) {
        const struct tensor *t = weights_tensor_at(w, i);
        uint8_t *copy = malloc(t->bytes);
        expect(weights_tensor(w, t->name) == t);
        expect(t->bytes > 0 && t->row_bytes * tensor_rows(t) == t->bytes && t->bytes <= size);
        expect(copy && weights_read(w, t, 0, t->bytes, copy, &err) == 0);
        free(copy);
        bytes += t->bytes;
    }
    expect(bytes == weights_tensor_bytes(w) && bytes <= size);
    weights_close(w);
    return 0;
}
