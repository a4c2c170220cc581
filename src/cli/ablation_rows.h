/* The rows of `quire bench ablation` as data, and the servers that they are. */
#ifndef CLI_ABLATION_ROWS_H
#define CLI_ABLATION_ROWS_H

#include "load/ablation.h"

#include <stdbool.h>
#include <stddef.h>

#define ABLATION_ROWS_MAX 16
#define ABLATION_ARGS_MAX 64

struct ablation_rows {
    struct ablation_row rows[ABLATION_ROWS_MAX];
    bool quantized[ABLATION_ROWS_MAX]; /* of the second model */
    bool trimmed[ABLATION_ROWS_MAX];
    size_t n;
    char *args[ABLATION_ROWS_MAX][ABLATION_ARGS_MAX]; /* malloc'd */
};

struct ablation_servers {
    const char *plain, *quantized; /* models; plain NULL: nothing is quantized, and there is no such row */
    const char *name;              /* that it is served by */
    char *const *common;           /* further arguments of all, ended by NULL */
    size_t max_model_len, budget;  /* budget: of a step with chunked prefill */
    size_t kv_bytes;               /* 0: `common` says it */
};

int ablation_rows_make(const struct ablation_servers *s, struct ablation_rows *out, struct error *err);
void ablation_rows_free(struct ablation_rows *r);

#endif
