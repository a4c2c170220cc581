/* Files of calibrations: read or refused with a line; what was read is within its limits, is written as a
 * file that is read as the same, and has a time for any step. */
#include "sim/calibration.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void require(bool holds, const char *what) {
    if (holds) return;
    fprintf(stderr, "violated: %s\n", what);
    abort();
}

static void use(const struct calibration *c) {
    struct buf first = BUF_INIT, second = BUF_INIT;
    struct calibration again;
    struct error err = {0};
    struct sim_clock clock = calibration_clock(c);
    struct quire_step s = {.n_prefill_rows = 300,
                           .n_decode_rows = 40,
                           .n_prefill_seqs = 2,
                           .n_decode_seqs = 40,
                           .prefill_attended = UINT64_MAX / 2,
                           .decode_attended = 7,
                           .n_logit_rows = 42};
    clock.time(clock.ctx, &s);
    require(c->n_groups >= 1 && c->n_groups <= BATCH_MAX_GROUPS && c->block_tokens >= 1 && c->n_blocks >= 1,
            "memory");
    calibration_write(c, &first);
    require(!calibration_parse("again", first.data, first.len, &again, &err), "what was written can be read");
    calibration_write(&again, &second);
    require(first.len == second.len && !memcmp(first.data, second.data, first.len), "as the same");
    buf_free(&first);
    buf_free(&second);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    struct calibration c;
    struct error err = {0};
    int rc = calibration_parse("file", (const char *)data, n, &c, &err);
    if (rc)
        require(err.code == rc && *err.text && !strchr(err.text, '\n'), "one line says why");
    else
        use(&c);
    return 0;
}
