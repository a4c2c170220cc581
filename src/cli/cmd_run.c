/* quire run MODEL "prompt": one answer on standard output, a line of figures on standard error. */
#include "cli/terminal.h"

#include "base/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct run_options {
    struct talk_options talk;
    bool raw;
    const char *log_level;
};

static int read_prompt(struct buf *out, struct error *err) {
    char piece[4096];
    out->limit_bytes = (size_t)64 << 20;
    for (size_t n; (n = fread(piece, 1, sizeof piece, stdin)) > 0;) buf_append(out, piece, n);
    if (!buf_ok(out))
        return error_set(err, QUIRE_ELIMIT, "the prompt on standard input is larger than 64 MiB");
    return 0;
}

static int answer(const struct run_options *o, struct loaded_model *m, const char *prompt,
                  struct error *err) {
    struct talker t = {.answer = talk_local, .options = &o->talk, .model = m};
    struct talk_figures f = {0};
    struct buf text = BUF_INIT;
    json_t *messages = json_array();
    json_t *user = json_pack("{s:s, s:s}", "role", "user", "content", prompt);
    int rc = 0;
    if (!messages || !user) rc = error_set(err, QUIRE_EINVAL, "the prompt is not valid UTF-8");
    if (o->talk.system)
        json_array_append_new(messages, json_pack("{s:s, s:s}", "role", "system", "content", o->talk.system));
    json_array_append_new(messages, user);
    if (!rc && (o->raw || !m->chat_template))
        rc = talk_local_raw(&t, prompt, stdout, &text, &f, err);
    else if (!rc)
        rc = talk_local(&t, messages, stdout, &text, &f, err);
    json_decref(messages);
    buf_free(&text);
    if (rc) return rc;
    putchar('\n');
    fflush(stdout);
    talk_print_figures(&f);
    return 0;
}

int cmd_run(int argc, char **argv) {
    struct run_options o = {0};
    struct option table[TALK_OPTION_ROWS + ENGINE_OPTION_ROWS + 3] = {0};
    size_t n = talk_option_rows(table, false);
    table[n++] = (struct option){"raw",
                                 OPTION_BOOL,
                                 offsetof(struct run_options, raw),
                                 "Sampling",
                                 NULL,
                                 NULL,
                                 0,
                                 0,
                                 NULL,
                                 NULL,
                                 "Continue the text itself, without the chat template."};
    table[n++] = (struct option){"log-level",
                                 OPTION_CHOICE,
                                 offsetof(struct run_options, log_level),
                                 "Machine",
                                 "LEVEL",
                                 "warning",
                                 0,
                                 0,
                                 CLI_LOG_LEVELS,
                                 NULL,
                                 "What is written to standard error; debug says what a start takes."};
    engine_option_rows(table + n, offsetof(struct run_options, talk.engine));
    struct options_state *state = NULL;
    int n_args = 0;
    int rc = cli_options("run", "MODEL [PROMPT]", "Answers PROMPT, or what comes on standard input.", table,
                         argc, argv, &n_args, &o, &state);
    if (rc >= 0) return rc;
    struct error err = {0};
    struct buf prompt = BUF_INIT;
    struct loaded_model m = {0};
    struct log log = {stderr, LOG_WARN};
    o.talk.engine.max_num_seqs = 1;
    log.level = cli_log_level(o.log_level);
    if (n_args < 1 || n_args > 2) error_set(&err, QUIRE_EINVAL, "usage: quire run MODEL [PROMPT]");
    if (!err.code) talk_options_check(&o.talk, state, false, &err);
    if (!err.code && n_args == 2 && strcmp(argv[2], "-"))
        buf_puts(&prompt, argv[2]);
    else if (!err.code)
        read_prompt(&prompt, &err);
    if (!err.code && !loaded_model_open(argv[1], &o.talk.engine, &log, &m, &err))
        answer(&o, &m, prompt.data ? prompt.data : "", &err);
    rc = err.code ? cli_fail("run", &err) : EXIT_OK;
    loaded_model_close(&m);
    buf_free(&prompt);
    options_free(state);
    return rc;
}
