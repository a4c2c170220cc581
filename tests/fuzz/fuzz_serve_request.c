/* A request body: first byte picks the endpoint. Whatever comes, it is taken or refused with a message, and
 * freed. */
#include "serve/request.h"

#include <assert.h>
#include <stdint.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const struct request_limits limits = {.n_vocab = 49152, .max_model_len = 8192, .max_logprobs = 20};
    struct request r;
    struct error err = {0};
    if (!size) return 0;
    enum request_kind kind = 1u << (data[0] % 7);
    int rc = request_parse(kind, (const char *)data + 1, size - 1, &limits, &r, &err);
    if (rc) {
        assert(err.code == rc && *err.text);
        return 0;
    }
    assert(r.sampling.temperature >= 0 && r.sampling.temperature <= 2 && r.sampling.top_p > 0);
    assert(r.n >= 1 && r.n <= REQUEST_MAX_CHOICES && r.n * r.n_prompts <= REQUEST_MAX_STREAMS);
    for (size_t i = 0; i < r.n_prompts; i++)
        for (size_t k = 0; k < r.prompts[i].n_ids; k++) assert(r.prompts[i].ids[k] < limits.n_vocab);
    assert(r.n_queries <= REQUEST_MAX_STREAMS);
    for (size_t i = 0; i < r.n_queries; i++) assert(r.queries[i].text);
    request_free(&r);
    return 0;
}
