/* The commands, and what they share. */
#ifndef CLI_CLI_H
#define CLI_CLI_H

#include "base/buf.h"
#include "base/log.h"
#include "base/options.h"
#include "serve/serve.h"

#include <quire/quire.h>

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

/* Exit codes of every command. */
enum { EXIT_OK = 0, EXIT_FAILED = 1, EXIT_USAGE = 2 };

int cmd_serve(int argc, char **argv);
int cmd_run(int argc, char **argv);
int cmd_chat(int argc, char **argv);
int cmd_pull(int argc, char **argv);
int cmd_inspect(int argc, char **argv);
int cmd_plan(int argc, char **argv);
int cmd_bench(int argc, char **argv);
int cmd_eval(int argc, char **argv);
int cmd_advise(int argc, char **argv);
int cmd_simulate(int argc, char **argv);
int cmd_tune(int argc, char **argv);

/* Prints "quire COMMAND: message" and returns the exit code for it. */
int cli_fail(const char *command, const struct error *err);

#define CLI_LOG_LEVELS "debug|info|warning|error"
enum log_level cli_log_level(const char *name); /* one of them */

/* Handles --help, --help-markdown; parses. Returns -1 to go on, else the exit code. usage: "MODEL [options]".
 */
int cli_options(const char *command, const char *usage, const char *about, const struct option *table,
                int argc, char **argv, int *n_positional, void *values, struct options_state **state);

/* QUIRE_EINVAL when an option was given that means nothing for a model in this process. */
int cli_refuse_server_options(const struct options_state *given, struct error *err);

/* "1%" or "0.01"; QUIRE_EINVAL names the flag. */
int share_read(const char *flag, const char *text, double *out, struct error *err);

/* ---- model_find.c ---- */

/* A file, a folder, a known name or a hub id to a path; malloc'd. What is not in the cache is pulled first,
 * with progress on standard error. */
int model_find(const char *argument, char **path, struct error *err);

/* As model_find, but of a model on a hub that is not in the cache only what describes it is fetched: the small
 * files of a folder, the beginnings of .gguf files (then *path is a file whose tensors are zeros). left_bytes
 * is then what its weights have, else untouched. */
int model_find_description(const char *argument, char **path, uint64_t *left_bytes, struct error *err);

/* As model_find for a known name or a hub id, and a hub is asked what its id means now. */
int model_pull(const char *name, char **path, struct error *err);

/* ---- port.c ---- */

/* QUIRE_EINVAL, with what to do, when nobody could listen there now. */
int port_check(const char *host, uint16_t port, struct error *err);

/* ---- engine_options.c: flags of every command that opens a model ---- */

struct engine_options {
    const char *cpu_bind, *dtype, *policy, *cache_secret, *tokenizer, *tokenizer_pre, *chat_template, *cpu,
        *generation_config, *baseline_static;
    const char *runner, *pooling_type; /* NULL: it generates */
    int64_t max_model_len, max_num_seqs, max_num_batched_tokens, long_prefill, block_size, kv_bytes, seed,
        threads, max_queue;
    double memory_share;
    bool prefix_caching, chunked_prefill, matryoshka;
    const struct quire_step_reader *step_reader; /* no flag: of measurements in this process; NULL: none */
};

/* Rows for a table whose values struct has a struct engine_options at `at`. */
#define ENGINE_OPTION(member) (at + offsetof(struct engine_options, member))

/* Writes the rows into table and returns how many there are. */
size_t engine_option_rows(struct option *table, size_t at);
#define ENGINE_OPTION_ROWS 24
/* Likewise of commands that make vectors, too. */
size_t vector_option_rows(struct option *table, size_t at);
#define VECTOR_OPTION_ROWS 3

/* What the options ask of an engine for these weights; the text side and callbacks are left empty. */
void engine_config_of(const struct engine_options *o, const struct weights *w, struct quire_config *out);

/* ---- tokenizer_file.c ---- */

/* The tokenizer of a tokenizer.json, tokenizer.model (SentencePiece) or vocab.txt (BERT's WordPiece), or of a
 * folder that holds one, looked for in this order; tokenizer_config.json and special_tokens_map.json are read
 * beside it. Refused when it has more tokens than the model has rows, unless those are special tokens.
 * option: what named it, for messages, or NULL. */
int tokenizer_file_open(const char *option, const char *path, const struct weights *w, struct tokenizer **out,
                        struct error *err);

/* Every token has a row of the embedding; more rows than tokens are padding. t: markers that no text is made
 * of may be without; NULL: none may. what: what has the tokens, for messages. */
int vocabulary_check(const struct weights *w, const char *what, size_t n_tokens, const struct tokenizer *t,
                     struct error *err);

/* ---- model_open.c: file to text and engine ---- */

#define MAX_STOP_TOKENS 16

struct loaded_model {
    char *path;
    struct weights *weights;
    struct tokenizer *tokenizer;
    struct chat_template *chat_template;
    char *bos, *eos;
    uint32_t stop_tokens[MAX_STOP_TOKENS];
    size_t n_stop_tokens;
    struct model_sampling sampling; /* of a folder */
    struct quire_token_bytes token_bytes;
    struct model_text text;
    struct quire_engine *engine;
};

/* Resolves, reads, checks, loads. progress: a line on standard error while it takes long. */
int loaded_model_open(const char *argument, const struct engine_options *o, struct log *log,
                      struct loaded_model *out, struct error *err);
void loaded_model_close(struct loaded_model *m);
/* Only the tokenizer, for m->path and m->weights that are there; pre_override as the flag, NULL = none. */
int loaded_model_tokenizer(struct loaded_model *m, const char *pre_override, struct error *err);

/* ---- template_tokens.c ---- */

/* Tokens that the chat template adds to a conversation whose messages are by these roles, as "sua" for system,
 * user, assistant. 0: it refuses such a one, or there is no template. */
size_t template_tokens(const struct model_text *m, const char *roles);

/* ---- calibrate_model.c ---- */

struct calibration;

/* Opens the model with these options, takes `seconds` for measuring its steps and some more for the API
 * around it. progress: on standard error where that is a terminal. interrupted: raised by a signal handler.
 */
int calibrate_model(const char *argument, const struct engine_options *o, double seconds,
                    const volatile int *interrupted, struct calibration *out, struct error *err);
/* And keeps it in the file that --save names, which is opened first; NULL: nowhere. */
int calibrate_and_save(const char *argument, const struct engine_options *o, double seconds, const char *save,
                       const volatile int *interrupted, struct calibration *out, struct error *err);

/* ---- model_folder.c: what stands beside the tensors in a folder of Hugging Face ---- */

/* An object from a file; *out NULL if there is no such file. */
int folder_json(const char *folder, const char *name, json_t **out, struct error *err);
/* Appends the chat template; nothing if there is none. */
int folder_template(const char *folder, struct buf *out, struct error *err);
/* Stop tokens and sampling defaults of m, whose tokenizer is there; --generation-config vllm: as if there
 * were no generation_config.json. */
int folder_generation(struct loaded_model *m, const struct engine_options *o, struct log *log,
                      struct error *err);

#endif
