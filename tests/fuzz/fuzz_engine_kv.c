/* The KV block pool against a naive model: each input is a sequence of operations. */
#include "../unit/engine/kv_model.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    model_play(data, size < 4096 ? size : 4096);
    return 0;
}
