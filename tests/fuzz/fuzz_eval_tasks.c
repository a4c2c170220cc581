/* A file of tasks: read or refused with words; what is read keeps its promises. */
#include "eval/task_file.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void expect(int truth) {
    if (!truth) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct task_file f;
    struct error err = {0};
    if (task_file_read("tasks", (const char *)data, size, size % 5, &f, &err)) {
        expect(err.code < 0 && err.text[0] && !f.list);
        return 0;
    }
    expect(f.n > 0);
    for (size_t i = 0; i < f.n; i++) {
        const struct task *t = &f.list[i];
        expect(t->id && t->where && t->prompt.len);
        expect(t->n_choices ? t->n_choices >= 2 && t->right < t->n_choices && !t->n_stop : t->n_accepted > 0);
    }
    task_file_free(&f);
    return 0;
}
