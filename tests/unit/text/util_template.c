#include "util_template.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

struct template_run template_run(const char *source, size_t len, const struct chat_template_input *in) {
    struct template_run run = {0};
    struct chat_template *t = NULL;
    struct timespec a, b;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &a);
    run.rc = chat_template_compile(source, len, &t, &run.err);
    if (!run.rc) run.rc = chat_template_render(t, in, &run.r, &run.err);
    chat_template_free(t);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &b);
    run.ms = (double)(b.tv_sec - a.tv_sec) * 1e3 + (double)(b.tv_nsec - a.tv_nsec) / 1e6;
    return run;
}

void template_run_free(struct template_run *run) {
    if (!run->rc) chat_rendering_free(&run->r);
}

struct chat_template_input template_input(const char *messages_json) {
    json_error_t e;
    struct chat_template_input in = {.messages = json_loads(messages_json, 0, &e)};
    if (!in.messages) abort();
    return in;
}
