/* A conversation on the terminal: who answers (a model in this process, or a server) behind one function. */
#ifndef CLI_TERMINAL_H
#define CLI_TERMINAL_H

#include "cli/cli.h"
#include "http/http.h"

#include <jansson.h>

struct talk_options {
    struct engine_options engine;
    const char *system, *api_key, *model, *ca_cert;
    double temperature, top_p, min_p;
    int64_t top_k, max_tokens;
    bool insecure;
    bool has_seed; /* --seed was given */
};

/* Rows of sampling options for a table whose values struct has a struct talk_options at offset 0. */
size_t talk_option_rows(struct option *table, bool remote);
#define TALK_OPTION_ROWS 14

/* After options_parse: whether a seed was given; refuses options that have no effect on this kind of talk. */
int talk_options_check(struct talk_options *o, const struct options_state *state, bool remote,
                       struct error *err);

struct talk_figures {
    size_t prompt_tokens, cached_tokens, output_tokens;
    uint64_t first_us, total_us; /* from the question */
};

struct talker {
    /* Streams the answer to `out` and appends it to *text. messages: OpenAI's shape. */
    int (*answer)(struct talker *t, json_t *messages, FILE *out, struct buf *text, struct talk_figures *f,
                  struct error *err);
    const struct talk_options *options;
    struct loaded_model *model; /* of a local one */
    const char *url;            /* of a remote one */
    struct http *http;          /* its connection */
};

int talk_local(struct talker *t, json_t *messages, FILE *out, struct buf *text, struct talk_figures *f,
               struct error *err);
/* To be called first. Sets t->answer, t->url and t->http. */
int talk_remote_open(struct talker *t, const char *url, struct error *err);
int talk_remote(struct talker *t, json_t *messages, FILE *out, struct buf *text, struct talk_figures *f,
                struct error *err);

/* One answer to plain text, without a chat template. */
int talk_local_raw(struct talker *t, const char *prompt, FILE *out, struct buf *text, struct talk_figures *f,
                   struct error *err);

void talk_print_figures(const struct talk_figures *f);

#endif
