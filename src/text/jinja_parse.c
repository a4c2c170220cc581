/* Statements, and what both halves of the parser share. */
#include "text/jinja_parse.h"
#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int jinja_parse_fail(struct jinja_parser *p, uint32_t pos, int code, const char *fmt, ...) {
    char text[QUIRE_ERROR_TEXT_BYTES];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return jinja_syntax_error(p->t, p->err, code, pos, "%s", text);
}

static int no_memory(struct jinja_parser *p) {
    return jinja_syntax_memory(p->t, p->err);
}

int jinja_parse_enter(struct jinja_parser *p) {
    if (jinja_guard_enter(&p->guard)) return 0;
    return jinja_parse_fail(p, p->tok->pos, QUIRE_ELIMIT, "nested too deeply");
}

bool jinja_parse_is_name(const struct jinja_token *tok, const char *name) {
    return tok->type == JINJA_T_NAME && tok->text.len == strlen(name) &&
           memcmp(tok->text.data, name, tok->text.len) == 0;
}

bool jinja_parse_skip(struct jinja_parser *p, enum jinja_token_type type) {
    if (p->tok->type != type) return false;
    p->tok++;
    return true;
}

bool jinja_parse_skip_name(struct jinja_parser *p, const char *name) {
    if (!jinja_parse_is_name(p->tok, name)) return false;
    p->tok++;
    return true;
}

static int unexpected(struct jinja_parser *p, const char *expected) {
    const struct jinja_token *tok = p->tok;
    if (tok->type == JINJA_T_NAME)
        return jinja_parse_fail(p, tok->pos, QUIRE_EFORMAT, "expected %s, got '%.*s'", expected,
                                (int)(tok->text.len < 60 ? tok->text.len : 60), tok->text.data);
    return jinja_parse_fail(p, tok->pos, QUIRE_EFORMAT, "expected %s, got '%s'", expected,
                            jinja_token_name((enum jinja_token_type)tok->type));
}

int jinja_parse_expect(struct jinja_parser *p, enum jinja_token_type type) {
    char expected[24];
    if (jinja_parse_skip(p, type)) return 0;
    snprintf(expected, sizeof expected, "'%s'", jinja_token_name(type));
    return unexpected(p, expected);
}

static int expect_name(struct jinja_parser *p, const char *name) {
    char expected[24];
    if (jinja_parse_skip_name(p, name)) return 0;
    snprintf(expected, sizeof expected, "'%s'", name);
    return unexpected(p, expected);
}

const struct jinja_str *jinja_parse_str(struct jinja_parser *p, const char *data, size_t len) {
    struct jinja_str *s = arena_alloc(&p->t->arena, sizeof *s);
    if (!s) {
        no_memory(p);
        return NULL;
    }
    jinja_str_init(s, data, len, JINJA_BY_TEMPLATE);
    return s;
}

int jinja_parse_identifier(struct jinja_parser *p, const struct jinja_str **name) {
    const struct jinja_token *tok = p->tok;
    JINJA_TRY(jinja_parse_expect(p, JINJA_T_NAME));
    *name = jinja_parse_str(p, tok->text.data, tok->text.len);
    return *name ? 0 : QUIRE_ENOMEM;
}

struct jinja_node *jinja_parse_node(struct jinja_parser *p, enum jinja_kind kind, uint32_t pos) {
    struct jinja_node *n = arena_zalloc(&p->t->arena, sizeof *n);
    if (!n) {
        no_memory(p);
        return NULL;
    }
    n->kind = (uint8_t)kind;
    n->pos = pos;
    return n;
}

/* Grows whenever n is a power of two, so that no capacity has to be kept. */
int jinja_parse_push(struct jinja_parser *p, struct jinja_nodes *list, struct jinja_node *node) {
    if ((list->n & (list->n - 1)) == 0) {
        struct jinja_node **items = arena_array(&p->t->arena, list->n ? list->n * 2 : 1, sizeof *items);
        if (!items) return no_memory(p);
        if (list->n) memcpy(items, list->items, list->n * sizeof *items);
        list->items = items;
    }
    list->items[list->n++] = node;
    return 0;
}

/* ---- statements ---- */

static int parse_body(struct jinja_parser *p, const char *const *ends, struct jinja_nodes *body);

/* The rest of a tag, then the body up to one of the tags in `ends`, whose name is the current token
 * afterwards. */
static int parse_block(struct jinja_parser *p, const char *const *ends, struct jinja_nodes *body) {
    jinja_parse_skip(p, JINJA_T_COLON);
    JINJA_TRY(jinja_parse_expect(p, JINJA_T_BLOCK_END));
    JINJA_TRY(parse_body(p, ends, body));
    if (p->tok->type == JINJA_T_EOF)
        return jinja_parse_fail(p, p->tok->pos, QUIRE_EFORMAT, "unexpected end of template, expected '%s'",
                                ends[0]);
    return 0;
}

/* As above with a single end, which is taken. */
static int parse_until(struct jinja_parser *p, const char *end, struct jinja_nodes *body) {
    const char *const ends[] = {end, NULL};
    JINJA_TRY(parse_block(p, ends, body));
    p->tok++;
    return 0;
}

static int parse_for(struct jinja_parser *p, struct jinja_node *n) {
    static const char *const ends[] = {"endfor", "else", NULL};
    struct jinja_for *f = arena_zalloc(&p->t->arena, sizeof *f);
    if (!f) return no_memory(p);
    n->loop = f;
    const struct jinja_token *target = p->tok;
    JINJA_TRY(jinja_parse_target(p, "in", false, &f->target));
    const struct jinja_token *after = p->tok;
    JINJA_TRY(expect_name(p, "in"));
    JINJA_TRY(jinja_parse_tuple(p, false, "recursive", false, &f->iter));
    if (jinja_parse_skip_name(p, "if")) {
        JINJA_TRY(jinja_parse_expr(p, true, &f->test));
        /* The filter is a function of its own, with its own slots for the target. */
        const struct jinja_token *rest = p->tok;
        p->tok = target;
        JINJA_TRY(jinja_parse_target(p, "in", false, &f->test_target));
        if (p->tok != after)
            return jinja_parse_fail(p, p->tok->pos, QUIRE_EINTERNAL, "target read twice differs");
        p->tok = rest;
    }
    f->recursive = jinja_parse_skip_name(p, "recursive");
    JINJA_TRY(parse_block(p, ends, &f->body));
    bool has_else = jinja_parse_is_name(p->tok++, "else");
    return has_else ? parse_until(p, "endfor", &f->otherwise) : 0;
}

static int parse_if(struct jinja_parser *p, struct jinja_node *n) {
    static const char *const ends[] = {"elif", "else", "endif", NULL};
    size_t cap = 0;
    for (;;) {
        if (n->cond.n == cap) {
            struct jinja_branch *more = arena_array(&p->t->arena, cap ? cap * 2 : 1, sizeof *more);
            if (!more) return no_memory(p);
            if (cap) memcpy(more, n->cond.branches, cap * sizeof *more);
            n->cond.branches = more;
            cap = cap ? cap * 2 : 1;
        }
        struct jinja_branch *b = &n->cond.branches[n->cond.n++];
        JINJA_TRY(jinja_parse_tuple(p, false, NULL, false, &b->test));
        JINJA_TRY(parse_block(p, ends, &b->body));
        if (jinja_parse_skip_name(p, "elif")) continue;
        bool has_else = jinja_parse_is_name(p->tok++, "else");
        return has_else ? parse_until(p, "endif", &n->cond.otherwise) : 0;
    }
}

static int parse_set(struct jinja_parser *p, struct jinja_node *n) {
    JINJA_TRY(jinja_parse_target(p, NULL, true, &n->set.target));
    if (jinja_parse_skip(p, JINJA_T_ASSIGN)) return jinja_parse_tuple(p, true, NULL, false, &n->set.value);
    n->kind = JINJA_N_SET_BLOCK;
    JINJA_TRY(jinja_parse_filters(p, NULL, false, &n->set.value));
    return parse_until(p, "endset", &n->set.body);
}

static int parse_with(struct jinja_parser *p, struct jinja_node *n) {
    while (p->tok->type != JINJA_T_BLOCK_END) {
        struct jinja_node *target, *value;
        if (n->with.targets.n) JINJA_TRY(jinja_parse_expect(p, JINJA_T_COMMA));
        JINJA_TRY(jinja_parse_target(p, NULL, false, &target));
        JINJA_TRY(jinja_parse_expect(p, JINJA_T_ASSIGN));
        JINJA_TRY(jinja_parse_expr(p, true, &value));
        JINJA_TRY(jinja_parse_push(p, &n->with.targets, target));
        JINJA_TRY(jinja_parse_push(p, &n->with.values, value));
    }
    return parse_until(p, "endwith", &n->with.body);
}

/* Autoescaping is off and stays off; `autoescape false` is a plain scope. */
static int parse_autoescape(struct jinja_parser *p, struct jinja_node *n) {
    struct jinja_node *value;
    n->kind = JINJA_N_SCOPE;
    JINJA_TRY(jinja_parse_expr(p, true, &value));
    if (value->kind != JINJA_N_CONST || value->constant.type != JINJA_BOOL || value->constant.b)
        return jinja_parse_fail(p, n->pos, QUIRE_EUNSUPPORTED, "autoescape is not supported");
    return parse_until(p, "endautoescape", &n->with.body);
}

/* (a, b=1, ...): names, slots to be and defaults of a macro or call block. */
static int parse_signature(struct jinja_parser *p, struct jinja_macro_def *def) {
    struct jinja_nodes params = {0}, defaults = {0};
    JINJA_TRY(jinja_parse_expect(p, JINJA_T_LPAREN));
    while (p->tok->type != JINJA_T_RPAREN) {
        struct jinja_node *param, *value;
        if (params.n) JINJA_TRY(jinja_parse_expect(p, JINJA_T_COMMA));
        const struct jinja_token *tok = p->tok;
        if (params.n == JINJA_MAX_NAMED)
            return jinja_parse_fail(p, tok->pos, QUIRE_ELIMIT, "more than %d parameters", JINJA_MAX_NAMED);
        JINJA_TRY(jinja_parse_expect(p, JINJA_T_NAME));
        JINJA_TRY(jinja_parse_name_node(p, tok, &param));
        for (size_t i = 0; i < params.n; i++)
            if (params.items[i]->name.id == param->name.id)
                return jinja_parse_fail(p, tok->pos, QUIRE_EFORMAT, "parameter '%.*s' is repeated",
                                        (int)tok->text.len, tok->text.data);
        if (jinja_parse_is_name(tok, "caller")) def->has_caller_param = true;
        if (jinja_parse_skip(p, JINJA_T_ASSIGN)) {
            JINJA_TRY(jinja_parse_expr(p, true, &value));
            JINJA_TRY(jinja_parse_push(p, &defaults, value));
        } else if (defaults.n) {
            return jinja_parse_fail(p, tok->pos, QUIRE_EFORMAT,
                                    "a parameter without default follows one with default");
        }
        JINJA_TRY(jinja_parse_push(p, &params, param));
    }
    p->tok++;
    def->param_nodes = params.items;
    def->n_params = params.n;
    def->defaults = defaults.items;
    def->n_defaults = defaults.n;
    return 0;
}

static struct jinja_macro_def *new_def(struct jinja_parser *p, struct jinja_node *n) {
    struct jinja_macro_def *def = arena_zalloc(&p->t->arena, sizeof *def);
    if (!def) no_memory(p);
    n->macro.def = def;
    return def;
}

static int parse_macro(struct jinja_parser *p, struct jinja_node *n) {
    struct jinja_macro_def *def = new_def(p, n);
    if (!def) return QUIRE_ENOMEM;
    const struct jinja_token *tok = p->tok;
    JINJA_TRY(jinja_parse_identifier(p, &def->name));
    JINJA_TRY(jinja_parse_name_node(p, tok, &n->macro.target));
    JINJA_TRY(parse_signature(p, def));
    return parse_until(p, "endmacro", &def->body);
}

static int parse_call_block(struct jinja_parser *p, struct jinja_node *n) {
    struct jinja_macro_def *def = new_def(p, n);
    if (!def) return QUIRE_ENOMEM;
    if (p->tok->type == JINJA_T_LPAREN) JINJA_TRY(parse_signature(p, def));
    JINJA_TRY(jinja_parse_expr(p, true, &n->macro.target));
    if (n->macro.target->kind != JINJA_N_CALL)
        return jinja_parse_fail(p, n->macro.target->pos, QUIRE_EFORMAT, "expected a call behind 'call'");
    return parse_until(p, "endcall", &def->body);
}

/* transformers' tag around what the assistant says: its body is a call block's, called at once. */
static int parse_generation(struct jinja_parser *p, struct jinja_node *n) {
    struct jinja_macro_def *def = new_def(p, n);
    return def ? parse_until(p, "endgeneration", &def->body) : QUIRE_ENOMEM;
}

static int parse_filter_block(struct jinja_parser *p, struct jinja_node *n) {
    JINJA_TRY(jinja_parse_filters(p, NULL, true, &n->set.value));
    return parse_until(p, "endfilter", &n->set.body);
}

static int parse_block_tag(struct jinja_parser *p, struct jinja_node *n) {
    struct jinja_block *b = arena_zalloc(&p->t->arena, sizeof *b);
    if (!b) return no_memory(p);
    n->block = b;
    const struct jinja_token *name = p->tok;
    JINJA_TRY(jinja_parse_identifier(p, &b->name));
    b->scoped = jinja_parse_skip_name(p, "scoped");
    if (b->scoped) p->t->has_scoped_block = true;
    if (jinja_parse_is_name(p->tok, "required"))
        return jinja_parse_fail(p, p->tok->pos, QUIRE_EUNSUPPORTED,
                                "required blocks are not supported: there is no template to inherit from");
    JINJA_TRY(parse_until(p, "endblock", &b->body));
    if (p->tok->type == JINJA_T_NAME && p->tok->text.len == name->text.len &&
        memcmp(p->tok->text.data, name->text.data, name->text.len) == 0)
        p->tok++;
    return 0;
}

static int parse_print(struct jinja_parser *p, struct jinja_node *n) {
    while (p->tok->type != JINJA_T_BLOCK_END) {
        struct jinja_node *item;
        if (n->list.n) JINJA_TRY(jinja_parse_expect(p, JINJA_T_COMMA));
        JINJA_TRY(jinja_parse_expr(p, true, &item));
        JINJA_TRY(jinja_parse_push(p, &n->list, item));
    }
    return 0;
}

static int parse_nothing(struct jinja_parser *p, struct jinja_node *n) {
    return 0;
}

static const struct {
    const char *tag;
    enum jinja_kind kind;
    int (*parse)(struct jinja_parser *p, struct jinja_node *n); /* NULL: known and refused */
} tags[] = {
    {"for", JINJA_N_FOR, parse_for},
    {"if", JINJA_N_IF, parse_if},
    {"set", JINJA_N_SET, parse_set},
    {"macro", JINJA_N_MACRO, parse_macro},
    {"call", JINJA_N_CALL_BLOCK, parse_call_block},
    {"generation", JINJA_N_CALL_BLOCK, parse_generation},
    {"filter", JINJA_N_FILTER_BLOCK, parse_filter_block},
    {"with", JINJA_N_WITH, parse_with},
    {"autoescape", JINJA_N_SCOPE, parse_autoescape},
    {"block", JINJA_N_BLOCK, parse_block_tag},
    {"print", JINJA_N_OUTPUT, parse_print},
    {"break", JINJA_N_BREAK, parse_nothing},
    {"continue", JINJA_N_CONTINUE, parse_nothing},
    {"extends", JINJA_N_OUTPUT, NULL},
    {"include", JINJA_N_OUTPUT, NULL},
    {"import", JINJA_N_OUTPUT, NULL},
    {"from", JINJA_N_OUTPUT, NULL},
    {"do", JINJA_N_OUTPUT, NULL},
    {"debug", JINJA_N_OUTPUT, NULL},
    {"trans", JINJA_N_OUTPUT, NULL},
};

static int parse_statement(struct jinja_parser *p, struct jinja_node **out) {
    const struct jinja_token *tok = p->tok;
    if (tok->type != JINJA_T_NAME) return unexpected(p, "the name of a tag");
    for (size_t i = 0; i < sizeof tags / sizeof *tags; i++) {
        if (!jinja_parse_is_name(tok, tags[i].tag)) continue;
        if (!tags[i].parse)
            return jinja_parse_fail(p, tok->pos, QUIRE_EUNSUPPORTED, "the '%s' tag is not supported",
                                    tags[i].tag);
        p->tok++;
        *out = jinja_parse_node(p, tags[i].kind, tok->pos);
        return *out ? tags[i].parse(p, *out) : QUIRE_ENOMEM;
    }
    return jinja_parse_fail(p, tok->pos, QUIRE_EFORMAT, "unknown or misplaced tag '%.*s'",
                            (int)(tok->text.len < 60 ? tok->text.len : 60), tok->text.data);
}

static bool is_end(const struct jinja_token *tok, const char *const *ends) {
    for (; ends && *ends; ends++)
        if (jinja_parse_is_name(tok, *ends)) return true;
    return false;
}

/* Text and {{ }} between two tags are one OUTPUT. */
static int parse_output(struct jinja_parser *p, struct jinja_nodes *body) {
    struct jinja_node *n = jinja_parse_node(p, JINJA_N_OUTPUT, p->tok->pos);
    if (!n) return QUIRE_ENOMEM;
    for (;;) {
        struct jinja_node *item;
        const struct jinja_token *tok = p->tok;
        if (jinja_parse_skip(p, JINJA_T_DATA)) {
            item = jinja_parse_node(p, JINJA_N_CONST, tok->pos);
            const struct jinja_str *text = jinja_parse_str(p, tok->text.data, tok->text.len);
            if (!item || !text) return QUIRE_ENOMEM;
            item->constant = jinja_of_str(text);
        } else if (jinja_parse_skip(p, JINJA_T_VARIABLE_BEGIN)) {
            JINJA_TRY(jinja_parse_tuple(p, true, NULL, false, &item));
            JINJA_TRY(jinja_parse_expect(p, JINJA_T_VARIABLE_END));
        } else {
            break;
        }
        JINJA_TRY(jinja_parse_push(p, &n->list, item));
    }
    if (!n->list.n) return unexpected(p, "text or a tag");
    return jinja_parse_push(p, body, n);
}

static int parse_body(struct jinja_parser *p, const char *const *ends, struct jinja_nodes *body) {
    JINJA_TRY(jinja_parse_enter(p));
    while (p->tok->type != JINJA_T_EOF) {
        struct jinja_node *n = NULL;
        if (p->tok->type != JINJA_T_BLOCK_BEGIN) {
            JINJA_TRY(parse_output(p, body));
            continue;
        }
        p->tok++;
        if (is_end(p->tok, ends)) break;
        JINJA_TRY(parse_statement(p, &n));
        JINJA_TRY(jinja_parse_push(p, body, n));
        JINJA_TRY(jinja_parse_expect(p, JINJA_T_BLOCK_END));
    }
    p->guard.depth--;
    return 0;
}

int jinja_parse(struct jinja_template *t, struct error *err) {
    struct jinja_token *tokens;
    struct jinja_parser p = {.t = t, .err = err};
    jinja_guard_init(&p.guard, JINJA_MAX_NESTING);
    JINJA_TRY(jinja_lex(t, &tokens, err));
    p.tok = tokens;
    return parse_body(&p, NULL, &t->body);
}
