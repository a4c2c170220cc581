/* quire chat MODEL|URL: a conversation with history, the answer streamed, a line of figures after each. */
#include "cli/terminal.h"

#include "base/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* False: not UTF-8, or out of memory. */
static bool add_message(json_t *messages, const char *role, const char *content) {
    return !json_array_append_new(messages, json_pack("{s:s, s:s}", "role", role, "content", content));
}

static json_t *new_conversation(const struct talk_options *o) {
    json_t *messages = json_array();
    if (messages && o->system) add_message(messages, "system", o->system);
    return messages;
}

/* False: there was no answer. */
static bool one_turn(struct talker *t, json_t *messages, const char *line) {
    struct buf text = BUF_INIT;
    struct talk_figures f = {0};
    struct error err = {0};
    if (!add_message(messages, "user", line)) {
        fprintf(stderr, "quire chat: this line is not valid UTF-8\n");
        return false;
    }
    bool failed = t->answer(t, messages, stdout, &text, &f, &err) != 0;
    if (failed) {
        fprintf(stderr, "quire chat: %s\n", err.text);
        json_array_remove(messages,
                          json_array_size(messages) - 1); /* the question is not part of the history */
    } else {
        putchar('\n');
        fflush(stdout);
        talk_print_figures(&f);
        add_message(messages, "assistant", text.data ? text.data : "");
    }
    buf_free(&text);
    return !failed;
}

/* False: a line had no answer. */
static bool converse(struct talker *t) {
    bool tty = isatty(0), all = true;
    char *line = NULL;
    size_t cap = 0;
    json_t *messages = new_conversation(t->options);
    if (tty) fprintf(stderr, "/clear starts anew, /exit or ctrl-D ends\n");
    for (;;) {
        if (tty) fprintf(stderr, "> ");
        ssize_t n = getline(&line, &cap, stdin);
        if (n < 0) break;
        if (n && line[n - 1] == '\n') line[n - 1] = 0;
        if (!strcmp(line, "/exit") || !strcmp(line, "/quit")) break;
        if (!strcmp(line, "/clear")) {
            json_decref(messages);
            messages = new_conversation(t->options);
        } else if (*line) {
            all &= one_turn(t, messages, line);
        }
    }
    json_decref(messages);
    free(line);
    return all;
}

int cmd_chat(int argc, char **argv) {
    struct talk_options o = {0};
    struct option table[TALK_OPTION_ROWS + ENGINE_OPTION_ROWS + 1] = {0};
    size_t n = talk_option_rows(table, true);
    engine_option_rows(table + n, offsetof(struct talk_options, engine));
    struct options_state *state = NULL;
    int n_args = 0;
    int rc = cli_options("chat", "MODEL|URL",
                         "A conversation with a model in this process, or with a server (http://...).", table,
                         argc, argv, &n_args, &o, &state);
    if (rc >= 0) return rc;
    struct error err = {0};
    struct loaded_model m = {0};
    struct log log = {stderr, LOG_WARN};
    struct talker t = {.answer = talk_local, .options = &o, .model = &m};
    o.engine.max_num_seqs = 1;
    if (n_args != 1) {
        error_set(&err, QUIRE_EINVAL, "usage: quire chat MODEL|URL");
    } else if (!strncmp(argv[1], "http://", 7) || !strncmp(argv[1], "https://", 8)) {
        if (!talk_options_check(&o, state, true, &err)) talk_remote_open(&t, argv[1], &err);
    } else {
        if (!talk_options_check(&o, state, false, &err))
            loaded_model_open(argv[1], &o.engine, &log, &m, &err);
    }
    if (err.code)
        rc = cli_fail("chat", &err);
    else
        rc = converse(&t) ? EXIT_OK : EXIT_FAILED;
    http_free(t.http);
    loaded_model_close(&m);
    options_free(state);
    return rc;
}
