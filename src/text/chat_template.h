/* The Jinja that model files carry, as transformers runs it: trim_blocks, lstrip_blocks, loop controls, the
 * `generation` tag, `raise_exception`, `strftime_now`, `tojson` without HTML escapes. Rendering gives the
 * bytes that Python's jinja2 gives. There is no host access, no import, no include; steps, depth and output
 * are bounded.
 *
 * Where it differs from Python: integers are 64 bits, arithmetic beyond them is an error; functions and
 * generators print without their address; the filters random, pprint, urlize and striptags, `self`, `super`,
 * complex numbers and str.encode are refused.
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

/* At most 256 KiB of source, which is copied. QUIRE_EFORMAT for a mistake, QUIRE_EUNSUPPORTED for a construct
 * that is not there (include, an unknown filter, ...), QUIRE_ELIMIT; the text gives line and column. */
int chat_template_compile(const char *source, size_t len, struct chat_template **out, struct error *err);
void chat_template_free(struct chat_template *t); /* NULL allowed */

/* Budgets of a render unless it says otherwise. A step is about one operation, 64 bytes of memory or 256
 * bytes of text.
 */
#define CHAT_TEMPLATE_STEPS        1000000
#define CHAT_TEMPLATE_DEPTH        1000
#define CHAT_TEMPLATE_OUTPUT_BYTES (16u << 20)

struct chat_template_input {
    json_t *messages;  /* array of objects; borrowed, as all here */
    json_t *tools;     /* array or NULL: none, as Python passes it */
    json_t *documents; /* array or NULL: none */
    json_t
        *kwargs; /* object of further variables (chat_template_kwargs) or NULL; cannot replace those here */
    bool add_generation_prompt;
    const char *bos_token, *eos_token; /* spellings; NULL = undefined */
    int64_t now_unix_s;                /* for strftime_now, local time */
    /* budgets; 0 = the default. max_output_bytes also bounds each string on the way; one render holds at most
     * eight times as much memory. Whatever max_depth is, no more than 128 KiB of stack is used. */
    size_t max_steps, max_depth, max_output_bytes;
};

struct chat_rendering {
    struct buf text;
    /* Stretches that stem from messages, tools, documents or kwargs, not the template: ascending, not
     * adjacent. What tojson or str() writes around and in a value of the input is content too; so are its
     * numbers and the keys of its objects. A message's `role` is the template's text if it is one of the
     * usual words (system, developer, user, assistant, tool, function, model, ipython, observation,
     * environment), since templates spell control tokens with it
     * ("<|" + role + "|>"); any other role is content. */
    struct content_span *content;
    size_t n_content;
};

/* QUIRE_EINVAL with the message of raise_exception, or "chat template, line N: ..." for an evaluation error;
 * QUIRE_EUNSUPPORTED for what only shows when it is reached; QUIRE_ELIMIT for a budget. On success the
 * rendering is the caller's until chat_rendering_free; on failure there is nothing to free. */
int chat_template_render(const struct chat_template *t, const struct chat_template_input *in,
                         struct chat_rendering *out, struct error *err);
void chat_rendering_free(struct chat_rendering *r);

#endif
