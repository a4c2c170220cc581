/* Files of traces, conversations and batches: read or refused with a line, rows in order and within limits.
 * The first byte chooses the format. */
#include "load/workload.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void require(bool holds, const char *what) {
    if (holds) return;
    fprintf(stderr, "violated: %s\n", what);
    abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    static const char *const formats[] = {"auto", "azure", "burstgpt", "mooncake"};
    struct items items = {0};
    struct error err = {0};
    if (n < 1) return 0;
    unsigned kind = data[0] % 6;
    char *text = malloc(n); /* the last byte is the NUL that a buffer has */
    if (!text) return 0;
    memcpy(text, data + 1, n - 1);
    text[n - 1] = 0;
    int rc = kind < 4    ? items_trace("file", text, n - 1, formats[kind], &items, &err)
             : kind == 4 ? items_sharegpt("file", text, n - 1, &items, &err)
                         : items_batch("file", text, n - 1, "m", &items, &err);
    if (rc) require(err.code == rc && *err.text && !strchr(err.text, '\n'), "one line says why");
    if (!rc) require(items.n > 0, "a request");
    for (size_t i = 0; !rc && kind < 4 && i < items.n; i++) {
        const struct item *k = &items.v[i];
        require(k->input >= 1 && k->input <= LENGTH_MAX_TOKENS && k->output >= 1, "lengths");
        require(k->at_s >= (i ? items.v[i - 1].at_s : 0), "in order from 0");
    }
    items_free(&items);
    free(text);
    return 0;
}
