/* quire eval tasks, quire eval needle */
#include "cli/eval_run.h"

#include "base/files.h"
#include "base/error.h"
#include "base/size.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define AT(member)    offsetof(struct eval_options, member)
#define MAX_TASKS_MIB 1024
#define MAX_LENGTH    (1 << 24)
#define TASKS_FLIGHT  8 /* sequences at a time: KV memory is taken for each */
#define NEEDLE_FLIGHT 4 /* these are long */

static const struct option task_rows[] = {
    {"file", OPTION_STRING, AT(file), "Tasks", "FILE", NULL, 0, 0, NULL, NULL,
     "JSON Lines, a task a line: {\"prompt\", \"choices\", \"answer\": index} or {\"prompt\", \"answer\": "
     "text or texts}; "
     "docs/eval.md."},
    {"limit", OPTION_INT, AT(limit), "Tasks", "N", "0", 0, 1 << 30, NULL, NULL,
     "Only the first N tasks; 0 is all."},
    {"chat", OPTION_BOOL, AT(chat), "Tasks", NULL, "false", 0, 0, NULL, NULL,
     "Put each prompt through the chat template, as a message of a user."},
    {"temperature", OPTION_FLOAT, AT(temperature), "Tasks", "T", "0", 0, 2, NULL, NULL,
     "Of generated answers; 0 is greedy."},
    {"task-seed", OPTION_INT, AT(task_seed), "Tasks", "N", "0", 0, 9.2e18, NULL, NULL,
     "Seed of the first task's answer; each further task has the next one."},
    {"max-tokens", OPTION_INT, AT(max_tokens), "Tasks", "N", "64", 1, 1 << 20, NULL, NULL,
     "Longest answer, where the task says nothing."},
    {"normalize", OPTION_CHOICE, AT(normalize), "Tasks", "HOW", "spaces", 0, 0, "none|spaces|loose", NULL,
     "How answers are made alike before they are compared: not at all, white space, or also case, "
     "punctuation and articles."},
    {"extract", OPTION_CHOICE, AT(extract), "Tasks", "WHAT", "whole", 0, 0, "whole|first-line|last-number",
     NULL, "The part of an answer that is compared."},
    {"api-key", OPTION_STRING, AT(api_key), "Server", "KEY", NULL, 0, 0, NULL, "QUIRE_API_KEY",
     "Key for a server."},
    {"ca-cert", OPTION_STRING, AT(ca_cert), "Server", "FILE", NULL, 0, 0, NULL, NULL,
     "Authorities (PEM) that an https server's certificate must come from; those of the system if not "
     "given."},
    {"insecure", OPTION_BOOL, AT(insecure), "Server", NULL, "false", 0, 0, NULL, NULL,
     "Accept any certificate of an https server."},
    {"model", OPTION_STRING, AT(served_name), "Server", "NAME", NULL, 0, 0, NULL, NULL,
     "Model name to ask a server for; the first that it names if unset."},
    {"concurrency", OPTION_INT, AT(concurrency), "Server", "N", "8", 1, 1024, NULL, NULL,
     "Requests to a server at a time."},
    {"timeout", OPTION_FLOAT, AT(timeout_s), "Server", "SECONDS", "600", 0.001, 1e6, NULL, NULL,
     "Of one request."},
};
static const struct option needle_rows[] = {
    {"lengths", OPTION_STRING, AT(lengths), "Needle", "LIST", "1k,4k", 0, 0, NULL, NULL,
     "Tokens of the prompts, with commas: 1k,4k,16k (k is 1024)."},
    {"depths", OPTION_STRING, AT(depths), "Needle", "LIST", "0,25,50,75,100", 0, 0, NULL, NULL,
     "Where the needle is, in percent of the text."},
    {"repeats", OPTION_INT, AT(repeats), "Needle", "N", "2", 1, 1000, NULL, NULL,
     "Needles for each length and depth."},
    {"text", OPTION_STRING, AT(text), "Needle", "FILE", NULL, 0, 0, NULL, NULL,
     "The haystack, repeated as needed; a text is built in."},
    {"chat", OPTION_BOOL, AT(chat), "Needle", NULL, NULL, 0, 0, NULL, NULL,
     "Ask through the chat template; the default where the model has one."},
    {"task-seed", OPTION_INT, AT(task_seed), "Needle", "N", "0", 0, 9.2e18, NULL, NULL,
     "Decides cities and numbers."},
};
#define N(rows) (sizeof(rows) / sizeof *(rows))

static int choice_of(const char *value, const char *const *names) {
    int i = 0;
    while (strcmp(value, names[i])) i++; /* the table has checked it */
    return i;
}

/* ---- tasks ---- */

static int read_tasks(struct eval_run *r, const struct eval_options *o, struct eval_tasks *job,
                      struct error *err) {
    *job =
        (struct eval_tasks){.file = o->file,
                            .limit = (size_t)o->limit,
                            .chat = o->chat,
                            .temperature = o->temperature,
                            .seed = (uint64_t)o->task_seed,
                            .max_tokens = (size_t)o->max_tokens,
                            .normalize = (enum eval_normalize)choice_of(o->normalize, EVAL_NORMALIZE_NAMES),
                            .extract = (enum eval_extract)choice_of(o->extract, EVAL_EXTRACT_NAMES)};
    if (!o->file) return error_set(err, QUIRE_EINVAL, "--file TASKS.jsonl is needed");
    int rc = file_read("--file", o->file, MAX_TASKS_MIB, &r->text, err);
    job->text = (struct eval_text){o->file, r->text.data ? r->text.data : "", r->text.len};
    return rc ? rc : eval_tasks_check(job, err);
}

static int tasks(const char *argument, struct eval_options *o, const struct options_state *given,
                 struct error *err) {
    struct eval_run r = {0};
    struct eval_tasks job;
    char *name = NULL;
    int rc = read_tasks(&r, o, &job, err);
    if (!rc && strstr(argument, "://")) {
        rc = eval_run_remote(&r, argument, o, given, err);
        if (!rc) rc = eval_remote_open(&r.remote, &name, err);
        r.remote.model = r.context.model = name;
    } else if (!rc) {
        rc = cli_refuse_server_options(given, err);
        if (!rc) rc = eval_run_open(&r, argument, o, given, 0, NULL, TASKS_FLIGHT, err);
    }
    if (!rc) rc = eval_tasks(&r.context, &job, err);
    eval_run_close(&r);
    free(name);
    return rc;
}

/* ---- needle ---- */

/* Numbers with commas between; k and K are 1024. */
static int read_list(const char *flag, const char *text, double min, double max, double *out, size_t *n,
                     struct error *err) {
    const char *p = text;
    *n = 0;
    for (;; p++) {
        char *end;
        double v = strtod(p, &end);
        bool number = end > p && *p != ' ';
        if (*end == 'k' || *end == 'K') {
            v *= 1024;
            end++;
        }
        if (!number || !(v >= min && v <= max) || (*end && *end != ','))
            return error_set(err, QUIRE_EINVAL,
                             "--%s is \"%.60s\"; allowed are numbers from %g to %g, with commas", flag, text,
                             min, max);
        if (*n == EVAL_MAX_CELLS)
            return error_set(err, QUIRE_EINVAL, "--%s has more than %d numbers", flag, EVAL_MAX_CELLS);
        out[(*n)++] = v;
        p = end;
        if (!*p) return 0;
    }
}

static int needle(const char *argument, struct eval_options *o, const struct options_state *given,
                  struct error *err) {
    struct eval_run r = {0};
    struct eval_needle job = {.repeats = (size_t)o->repeats, .seed = (uint64_t)o->task_seed};
    double lengths[EVAL_MAX_CELLS];
    size_t longest = 0;
    if (strstr(argument, "://"))
        return error_set(err, QUIRE_EUNSUPPORTED,
                         "needle needs a model in this process: lengths are exact in tokens");
    int rc = read_list("lengths", o->lengths, 64, MAX_LENGTH, lengths, &job.n_lengths, err);
    if (!rc) rc = read_list("depths", o->depths, 0, 100, job.depths, &job.n_depths, err);
    if (rc) return rc;
    for (size_t i = 0; i < job.n_lengths; i++)
        longest = size_max(longest, job.lengths[i] = (size_t)lengths[i]);
    rc = eval_run_text(&r, o->text, &job.text, err);
    if (!rc)
        rc = eval_run_open(&r, argument, o, given, eval_needle_room(longest), "lengths", NEEDLE_FLIGHT, err);
    job.chat = options_given(given, "chat") ? o->chat : r.local.chat_template != NULL;
    if (!rc) rc = eval_needle(&r.context, &job, err);
    eval_run_close(&r);
    return rc;
}

int cmd_eval_questions(bool is_needle, int argc, char **argv) {
    const char *name = is_needle ? "eval needle" : "eval tasks";
    struct eval_options o = {0};
    struct option table[N(task_rows) + N(needle_rows) + EVAL_COMMON_ROWS + ENGINE_OPTION_ROWS + 1] = {0};
    size_t n = is_needle ? N(needle_rows) : N(task_rows);
    memcpy(table, is_needle ? needle_rows : task_rows, n * sizeof *table);
    n += eval_common_rows(table + n);
    engine_option_rows(table + n, AT(engine));
    struct options_state *state = NULL;
    struct error err = {0};
    int n_args = 0,
        rc = cli_options(name, is_needle ? "MODEL [options]" : "MODEL|URL --file TASKS.jsonl [options]",
                         is_needle ? "Hides a sentence in texts of several lengths and asks for it."
                                   : "Accuracy in tasks: multiple choice by log probability, or exact match.",
                         table, argc, argv, &n_args, &o, &state);
    if (rc >= 0) return rc;
    if (n_args != 1)
        rc = error_set(&err, QUIRE_EINVAL, "usage: quire %s %s [options]", name,
                       is_needle ? "MODEL" : "MODEL|URL --file TASKS.jsonl");
    else
        rc = is_needle ? needle(argv[1], &o, state, &err) : tasks(argv[1], &o, state, &err);
    options_free(state);
    return eval_exit(name, rc, &err);
}
