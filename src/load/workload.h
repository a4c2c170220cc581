/* What is asked: requests, alone or in conversations, made from a seed so that every server gets the same. */
#ifndef LOAD_WORKLOAD_H
#define LOAD_WORKLOAD_H

#include "base/buf.h"
#include "load/length.h"
#include "load/target.h"

#include <quire/error.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum workload_kind {
    WORKLOAD_RANDOM,     /* random words or ids of exact length; a shared prefix ahead of them */
    WORKLOAD_CHAT,       /* conversations that carry the server's own answers on */
    WORKLOAD_RAG,        /* instructions, chunks of a corpus, a question */
    WORKLOAD_AGENT,      /* steps of an agent, its stable part (system, tools, rules) first */
    WORKLOAD_AGENT_LAST, /* the same with the stable part after what changes */
    WORKLOAD_TOOLS,      /* chat with functions */
    WORKLOAD_JSON,       /* chat that must answer by a JSON schema */
    WORKLOAD_SHAREGPT,
    WORKLOAD_BATCH, /* OpenAI's batch files */
    WORKLOAD_TRACE,
};

struct workload_spec {
    const char *name; /* "random", "rag20", ... */
    enum workload_kind kind;
    struct length input, output; /* of a request, or of a turn */
    uint32_t prefix_tokens;      /* shared by all requests of a group */
    uint32_t prefix_groups;
    uint32_t turns;
    double think_s; /* between an answer and the next turn */
    uint32_t chunks, chunk_tokens;
    bool chat; /* the endpoint */
    bool ignore_eos;
    bool has_temperature;
    double temperature;
    uint32_t left_out_tokens;   /* of each prompt, by trimming: they count as answered where useful tokens do */
    const char *extra_members; /* further members of each body, as JSON without braces; NULL: none */
    uint64_t seed;
};

/* What a file gave, one for each request or row. */
struct item {
    double at_s;            /* arrival of a trace, else 0 */
    uint32_t input, output; /* tokens; 0: not told */
    char *text;             /* the prompt, or a body's members without braces; NULL: made from lengths */
    uint32_t *blocks;       /* hash ids of the prompt's blocks of 512 tokens */
    uint32_t n_blocks;
    bool chat; /* of a batch file */
};

struct items {
    struct item *v;
    size_t n, cap;
    bool lengths_estimated; /* of answers, for want of a tokenizer */
    size_t n_left_out;      /* rows without anything to send */
};

#define TRACE_BLOCK_TOKENS 512

/* A row at the end, zeroed; NULL when memory is out. */
struct item *items_add(struct items *items);
void items_free(struct items *items);

/* path: for messages. data is changed (cut into lines). What is malformed is refused with its line. */
int items_sharegpt(const char *path, const char *data, size_t n, struct items *out, struct error *err);
int items_batch(const char *path, char *data, size_t n, const char *model, struct items *out,
                struct error *err);
/* format: "azure", "mooncake", "burstgpt" or "auto". Sorted by arrival, the first at 0. */
int items_trace(const char *path, char *data, size_t n, const char *format, struct items *out,
                struct error *err);

/* A conversation, or a single request. */
struct session {
    uint64_t id;
    uint32_t turn, n_turns;
    struct buf history; /* messages so far, as JSON, with a comma after each */
};

struct request {
    struct buf body;
    bool chat;
    int64_t input_tokens;   /* as the server must count them; -1: it depends on the answers before */
    uint32_t output_tokens; /* max_tokens; 0: none is given */
    bool exact_output;      /* the answer must have exactly these */
};

/* What a stretch of content is; with an id, its tokens are a pure function of the seed. */
enum part { PART_OWN, PART_PREFIX, PART_CHUNK, PART_STABLE, PART_TURN, PART_BLOCK };

/* Sees the first n tokens of a part. passing: in this turn's prompt only, no part of the conversation. */
struct stretch_visitor {
    void (*visit)(void *ctx, enum part part, uint64_t id, uint32_t n, bool passing);
    void *ctx;
};

struct workload {
    const struct workload_spec *spec;
    const struct target *target;
    const struct items *items; /* of a file */
    uint64_t salt;             /* of the repeat: own content is new in each */
};

uint32_t workload_turns(const struct workload *w, uint64_t id);
/* Builds the body of the session's present turn. The body is cleared first. */
int workload_build(const struct workload *w, struct session *s, struct request *out, struct error *err);
/* The same as numbers: what the session's present turn adds to its prompt, in order, and the answer's length.
 * For workloads whose content is made here; a conversation's earlier turns and what the server adds are the
 * caller's to know. */
uint32_t workload_stretches(const struct workload *w, const struct session *s,
                            const struct stretch_visitor *visitor);
/* Adds the answer (with its JSON escapes) to the history and goes to the next turn. */
int workload_answered(const struct workload *w, struct session *s, const struct buf *answer,
                      struct error *err);
bool workload_keeps_text(const struct workload *w);
/* Longest prompt and answer that can come, together; 0 when a file decides. */
uint64_t workload_most_tokens(const struct workload_spec *spec);

#endif
