/* quire eval: how good a model's answers are, and whether another one's are as good. docs/eval.md defines
 * every figure.
 *
 *   windows.c, score.c   a text in token-exact windows, scored with many under way
 *   perplexity.c         perplexity
 *   kl.c, kl_file.c, kl_row.c    distance from saved reference distributions
 *   ask_local.c, ask_remote.c    questions to a model in this process or to a server
 *   tasks.c, task_file.c, match.c    multiple choice and exact match
 *   needle.c             a sentence to be found in a long text
 *   results.c            what was measured, item by item: kept, resumed, written
 *   compare.c            two results, paired
 *
 * Everything runs on the caller's thread; the engine's contract is all that is known of the model. */
#ifndef EVAL_EVAL_H
#define EVAL_EVAL_H

#include "base/hash.h"
#include "http/http.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

#include <quire/quire.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* A model in this process. */
struct eval_local {
    struct quire_engine *engine;
    const struct tokenizer *tokenizer;
    const struct chat_template *chat_template; /* NULL = none */
    const char *bos_token, *eos_token;         /* spellings, NULL = none */
};

/* An OpenAI-compatible server. */
struct eval_remote {
    const char *url;
    const char *model; /* to ask for; NULL: the first that the server names */
    size_t concurrency;
    struct http_config http; /* all but n_at_once */
};

/* Asks the server for its models: the name that requests are to carry, malloc'd. QUIRE_ENOTFOUND when
 * r->model is not one of them, QUIRE_EIO. */
int eval_remote_open(const struct eval_remote *r, char **model, struct error *err);

/* What all measurements have in common. Exactly one of local and remote is there. */
struct eval_context {
    const char *model; /* name, for the report */
    const struct eval_local *local;
    const struct eval_remote *remote;
    const char *json;           /* file of the result, NULL = none */
    bool resume;                /* go on with what an interrupted run has left beside it */
    bool (*stopped)(void *ctx); /* asked several times a second: true ends the run early */
    void *stopped_ctx;
    FILE *out; /* the table */
};

/* How a run ended, if without an error. */
enum eval_end { EVAL_COMPLETE = 0, EVAL_STOPPED = 1 };

struct eval_text {
    const char *name; /* for the report */
    const char *data;
    size_t len;
};
/* The text that is used where none is given: openings of works in the public domain (data/eval). */
struct eval_text eval_default_text(void);

/* Of a window whose context is so long, what a file of reference distributions takes. */
size_t eval_window_bytes(size_t context, size_t n_vocab);
/* What decides how text becomes ids: results of models are comparable where these are equal. */
int eval_tokenizer_hash(const struct tokenizer *t, struct hash128 *out, struct error *err);

/* How many windows are worth having under way, where a step computes so many tokens. */
size_t eval_in_flight(size_t context, size_t max_num_batched_tokens);

/* All return enum eval_end or a negative code; also after an error or a stop what was measured is in the
 * table, the JSON file (marked incomplete) and the file beside it from which to resume. */

struct eval_perplexity {
    struct eval_text text;
    size_t context;     /* tokens of a window, at least 2 */
    size_t stride;      /* 0: windows do not overlap, the second half of each is scored */
    size_t max_windows; /* 0 = all */
};
int eval_perplexity(const struct eval_context *c, const struct eval_perplexity *o, struct error *err);

/* What a comparison with a reference has found; both perplexities are over the same tokens. */
struct eval_distance {
    size_t windows, tokens; /* that were scored */
    double perplexity, reference_perplexity;
    double kl, top1; /* mean, nats; share of equal first choices */
};

struct eval_kl {
    struct eval_perplexity windows;
    const char *save;      /* file to write the reference to; NULL: */
    const char *reference; /* file to compare with; text and windows must be the same */
    struct eval_distance
        *distance; /* filled in the end; after saving but for the reference. NULL: not wanted */
};
int eval_kl(const struct eval_context *c, const struct eval_kl *o, struct error *err);

enum eval_normalize { EVAL_EXACT, EVAL_SPACES, EVAL_LOOSE };
enum eval_extract { EVAL_WHOLE, EVAL_FIRST_LINE, EVAL_LAST_NUMBER };
/* Their names: what --normalize and --extract take. */
extern const char *const EVAL_NORMALIZE_NAMES[3], *const EVAL_EXTRACT_NAMES[3];

struct eval_tasks {
    const char *file;      /* name, for messages */
    struct eval_text text; /* its content */
    size_t limit;          /* most lines; 0 = all */
    bool chat;             /* prompts are messages of a user */
    double temperature;
    uint64_t seed;
    size_t max_tokens; /* of an answer whose line says nothing */
    enum eval_normalize normalize;
    enum eval_extract extract;
};
/* Reads the tasks and forgets them: what is wrong with the file is told before a model is loaded. */
int eval_tasks_check(const struct eval_tasks *o, struct error *err);
int eval_tasks(const struct eval_context *c, const struct eval_tasks *o, struct error *err);

#define EVAL_MAX_CELLS 32 /* lengths, or depths */
struct eval_needle {
    struct eval_text text;
    size_t lengths[EVAL_MAX_CELLS], n_lengths; /* tokens of the whole prompt */
    double depths[EVAL_MAX_CELLS];             /* percent, 0 = at the beginning */
    size_t n_depths;
    size_t repeats; /* needles for each cell */
    bool chat;
    uint64_t seed;
};
size_t eval_needle_room(size_t length); /* tokens of a prompt of that length and its answer */
int eval_needle(const struct eval_context *c, const struct eval_needle *o, struct error *err);

/* Limits of the second result against the first. */
struct eval_thresholds {
    double ppl_increase;             /* share: 0.01 = 1 % */
    double kl_increase;              /* nats */
    double top1_drop, accuracy_drop; /* of shares: 0.01 = one point */
};
enum eval_verdict { EVAL_PASS, EVAL_FAIL, EVAL_UNCLEAR };
/* json: file of the comparison, NULL = none. Refuses results of different kinds, texts, windows or tasks. */
int eval_compare(const char *path_a, const char *path_b, const struct eval_thresholds *t, size_t n_resamples,
                 uint64_t seed, const char *json, FILE *out, enum eval_verdict *verdict, struct error *err);

#endif
