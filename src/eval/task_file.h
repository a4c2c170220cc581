/* Tasks from a file: JSON Lines, an object a line; docs/eval.md has the fields. */
#ifndef EVAL_TASK_FILE_H
#define EVAL_TASK_FILE_H

#include "base/arena.h"
#include "base/buf.h"
#include "eval/eval.h"

#define TASK_MAX_CHOICES  64
#define TASK_MAX_ACCEPTED 64

struct task {
    char *where; /* "tasks.jsonl:12" */
    char *id;    /* its id, or the number of its line */
    struct text_span prompt;
    struct text_span *choices;  /* [n_choices]; none: an answer is generated and must match exactly */
    size_t n_choices, right;    /* right: index of the right choice */
    struct text_span *accepted; /* [n_accepted] answers that count as right */
    size_t n_accepted;
    struct quire_str *stop; /* [n_stop] */
    size_t n_stop;
    size_t max_tokens; /* 0 = not given */
};

struct task_file {
    struct arena arena;
    struct task *list;
    size_t n;
};

/* Up to `limit` tasks (0 = all). What is wrong is named with file, line and field: QUIRE_EFORMAT,
 * QUIRE_EINVAL, QUIRE_ELIMIT, QUIRE_ENOMEM. name: for messages. */
int task_file_read(const char *name, const char *text, size_t len, size_t limit, struct task_file *out,
                   struct error *err);
void task_file_free(struct task_file *f);

#endif
