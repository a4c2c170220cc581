/* Tokens to a tree. Grammar and precedence are Jinja's; what cannot be in a chat template (import, include,
 * extends, unknown tags) is refused with line and column. */
#ifndef TEXT_JINJA_PARSE_H
#define TEXT_JINJA_PARSE_H

#include "text/jinja_lex.h"

/* Nesting that a template may have; Python's own compiler gives up at 20 loops and 100 levels of indentation.
 */
#define JINJA_MAX_NESTING 200

/* Keyword arguments of a call, parameters of a macro. */
#define JINJA_MAX_NAMED 255

struct jinja_parser {
    struct jinja_template *t;
    struct error *err;
    const struct jinja_token *tok; /* the current token */
    struct jinja_guard guard;
};

/* Fills in t->body from t->source. */
int jinja_parse(struct jinja_template *t, struct error *err);

/* Shared by the statement and expression halves. */
int jinja_parse_fail(struct jinja_parser *p, uint32_t pos, int code, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
int jinja_parse_enter(struct jinja_parser *p);
bool jinja_parse_skip(struct jinja_parser *p, enum jinja_token_type type);
int jinja_parse_expect(struct jinja_parser *p, enum jinja_token_type type);
bool jinja_parse_is_name(const struct jinja_token *tok, const char *name);
bool jinja_parse_skip_name(struct jinja_parser *p, const char *name);
int jinja_parse_identifier(struct jinja_parser *p, const struct jinja_str **name);
struct jinja_node *jinja_parse_node(struct jinja_parser *p, enum jinja_kind kind, uint32_t pos);
const struct jinja_str *jinja_parse_str(struct jinja_parser *p, const char *data, size_t len);

/* A growing list of nodes. */
int jinja_parse_push(struct jinja_parser *p, struct jinja_nodes *list, struct jinja_node *node);

/* An expression; with_cond: `a if b` is part of it. */
int jinja_parse_expr(struct jinja_parser *p, bool with_cond, struct jinja_node **out);
/* Expressions with commas between them are a tuple, which end_word (NULL: none) ends. */
int jinja_parse_tuple(struct jinja_parser *p, bool with_cond, const char *end_word, bool parenthesized,
                      struct jinja_node **out);
/* What may stand left of `=` or `in`: names, tuples of them, with_namespace: a.b too. */
int jinja_parse_target(struct jinja_parser *p, const char *end_word, bool with_namespace,
                       struct jinja_node **out);
/* `name(args)|name...` behind a pipe, or the first name of a filter block (inline_start). subject may be
 * NULL. */
int jinja_parse_filters(struct jinja_parser *p, struct jinja_node *subject, bool inline_start,
                        struct jinja_node **out);
int jinja_parse_name_node(struct jinja_parser *p, const struct jinja_token *tok, struct jinja_node **out);

#endif
