/* What one machine, one model and one set of options take: measured once, kept as a small file, played
 * through by the simulator. docs/simulate.md says what the fields are. */
#ifndef SIM_CALIBRATION_H
#define SIM_CALIBRATION_H

#include "base/buf.h"
#include "sim/replica.h"
#include "sim/step_model.h"

#include <quire/error.h>

#include <stdint.h>

struct calibration {
    /* what was measured */
    char model[256], numerics_id[65], family[32], dtype[16], cpu_path[16], machine[96];
    size_t n_threads;
    int64_t created_unix_s;
    size_t tensor_bytes; /* of the model's files; 0: not told */
    /* the model and its memory */
    size_t max_model_len, n_groups, window[BATCH_MAX_GROUPS];
    size_t block_tokens, n_blocks; /* KV that the memory had room for, or as much as could be in use */
    size_t kv_bytes_per_token;
    double startup_s; /* from nothing to ready */
    /* the API around the engine: a request takes request_us, and prompt_token_us for each token of its
     * prompt, before the engine has it; gap_us, row_us: what a step takes longer, and for each token, while
     * the server writes it out and a client on the same machine reads it (sim/calibrate.h) */
    double request_us, prompt_token_us, gap_us, row_us;
    /* How much of what is to be measured was: less than 1 when the machine did not get through it in time; 0:
     * not told */
    double measured_share;
    double cpu_share; /* of its threads' cores, that the process had while steps were measured; 0: not told */
    /* That the chat template adds: to a message alone, to a system message and one more together, and with
     * each further turn; 0 of the last two: not told, as of a message alone */
    size_t chat_tokens, chat_system_tokens, chat_turn_tokens;
    struct step_model steps;
};

/* option: what named the file, for messages. */
int calibration_parse(const char *path, const char *text, size_t n, struct calibration *out,
                      struct error *err); /* path: for messages */
int calibration_read(const char *option, const char *path, struct calibration *out, struct error *err);
/* Of several files, separated by commas: the mean of what each has measured, so that moments at which the
 * machine was slow or fast count as often as they came. QUIRE_EINVAL when they are not of the same model,
 * options and machine. */
#define CALIBRATIONS_MAX 16
int calibration_read_all(const char *option, const char *paths, struct calibration *out, struct error *err);
void calibration_write(const struct calibration *c, struct buf *out); /* JSON */

/* All that steps take, times `factor`. */
void calibration_slow(struct calibration *c, double factor);

/* The clock of a simulated engine; c must outlive it. */
struct sim_clock calibration_clock(const struct calibration *c);

#endif
