/* The Jinja that model files carry, as transformers runs it: trim_blocks, lstrip_blocks, loop controls, the
 * `generation` tag, `raise_exception`, `strftime_now`, `tojson` without HTML escapes. Rendering gives the bytes that
 * Python's jinja2 gives. There is no host access, no import, no include; steps, depth and output are bounded.
 *
 * Compiled once, immutable, rendered from any thread. */
#ifndef TEXT_CHAT_TEMPLATE_H
#define TEXT_CHAT_TEMPLATE_H

#include "base/buf.h"
#include "text/tokenizer.h" /* struct content_span */

#include <quire/error.h>

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct chat_template;

/* Errors give line and column. The source is copied. */
int chat_template_compile(const char *source, size_t len, struct chat_template **out, struct error *err);
void chat_template_free(struct chat_template *t); /* NULL allowed */

struct chat_template_input {
    json_t *messages;  /* array of objects; borrowed, as all here */
    json_t *tools;     /* array or NULL */
    json_t *documents; /* array or NULL */
    json_t *kwargs;    /* object of further variables (chat_template_kwargs) or NULL; cannot replace those here */
    bool add_generation_prompt;
    const char *bos_token, *eos_token; /* spellings; NULL = undefined */
    int64_t now_unix_s;                /* for strftime_now, local time */
    /* budgets; 0 = the default */
    size_t max_steps, max_depth, max_output_bytes;
};

struct chat_rendering {
    struct buf text;
    struct content_span *content; /* stretches that stem from messages, tools, documents or kwargs, not the template */
    size_t n_content;
};

/* QUIRE_EINVAL with the message of raise_exception or of an evaluation error (line); QUIRE_ELIMIT for a budget. On success the
 * rendering is the caller's until chat_rendering_free. */
int chat_template_render(const struct chat_template *t, const struct chat_template_input *in,
                         struct chat_rendering *out, struct error *err);
void chat_rendering_free(struct chat_rendering *r);

#endif
