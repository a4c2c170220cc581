/* Scales beside the weights of a GGUF file: NAME.scale, one number or one for each expert, multiplies the
 * elements of NAME.weight (as llama.cpp writes and reads NVFP4). NAME.input_scale is what inputs would be
 * divided by to be rounded to 4 bits; they are not rounded so, and it has no effect. */
#include "base/error.h"
#include "weights/weights_impl.h"

#include <stdio.h>
#include <string.h>

#define WEIGHT_END ".weight"
#define NAME_BYTES 80 /* GGUF's names have at most 64 */

static struct tensor *beside(struct weights *w, const struct tensor *t, const char *end) {
    char name[NAME_BYTES];
    size_t n = strlen(t->name), n_end = strlen(WEIGHT_END);
    if (n < n_end || strcmp(t->name + n - n_end, WEIGHT_END)) return NULL;
    int len = snprintf(name, sizeof name, "%.*s%s", (int)(n - n_end), t->name, end);
    return len < (int)sizeof name ? (struct tensor *)weights_tensor(w, name) : NULL;
}

static int join(struct tensor *t, struct tensor *scale, struct error *err) {
    size_t experts = t->dims[2];
    bool fits = scale->dims[0] == 1 || (t->n_dims > 2 && scale->dims[0] == experts);
    if (scale->type != TENSOR_F32 || scale->n_dims != 1 || !fits)
        return error_set(err, QUIRE_EFORMAT,
                         "tensor \"%s\": type %s, %u dimensions of %zu; must be F32, one number or one for "
                         "each of %zu experts",
                         scale->name, tensor_type_info(scale->type)->name, scale->n_dims, scale->dims[0],
                         experts);
    t->scale = scale;
    scale->is_scale = true;
    return QUIRE_OK;
}

int gguf_join_scales(struct weights *w, struct error *err) {
    int rc = QUIRE_OK;
    bool inputs = false;
    for (size_t i = 0; i < w->n_tensors && !rc; i++) {
        struct tensor *t = &w->tensors[i];
        if (t->type != TENSOR_NVFP4) continue;
        struct tensor *scale = beside(w, t, ".scale"), *input = beside(w, t, ".input_scale");
        if (scale) rc = join(t, scale, err);
        if (input) inputs = input->is_scale = true;
    }
    if (inputs && w->n_notices < WEIGHTS_MAX_NOTICES)
        w->notices[w->n_notices++] =
            "scales of inputs (.input_scale) have no effect: inputs are not rounded to 4 bits";
    return rc;
}
