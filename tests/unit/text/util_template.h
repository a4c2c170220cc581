/* What the tests of the template interpreter share. */
#ifndef UTIL_TEMPLATE_H
#define UTIL_TEMPLATE_H

#include "text/chat_template.h"

/* Compiles and renders; the error text is kept. With rc != 0 there is no rendering. */
struct template_run {
    int rc;
    struct chat_rendering r;
    struct error err;
    double ms; /* processor time of both */
};
struct template_run template_run(const char *source, size_t len, const struct chat_template_input *in);
void template_run_free(struct template_run *run);

/* An input with these messages as JSON text; free the messages with json_decref. */
struct chat_template_input template_input(const char *messages_json);

#endif
