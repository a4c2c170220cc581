/* Expressions. Loosest first: if-else, or, and, not, comparisons, + -, ~, * / // %, **, unary, postfix,
 * filters. */
#include "text/jinja_filters.h"
#include "text/jinja_methods.h"
#include "text/jinja_parse.h"
#include "text/jinja_tests.h"

#include <string.h>

enum precedence { PREC_SUM, PREC_CONCAT, PREC_PRODUCT, PREC_POW, PREC_UNARY };

int jinja_parse_name_node(struct jinja_parser *p, const struct jinja_token *tok, struct jinja_node **out) {
    struct jinja_node *n = jinja_parse_node(p, JINJA_N_NAME, tok->pos);
    if (!n) return QUIRE_ENOMEM;
    n->name.id = jinja_template_intern(p->t, tok->text.data, tok->text.len);
    if (n->name.id == UINT32_MAX) return jinja_syntax_memory(p->t, p->err);
    *out = n;
    return 0;
}

static int const_node(struct jinja_parser *p, uint32_t pos, struct jinja_value v, struct jinja_node **out) {
    struct jinja_node *n = jinja_parse_node(p, JINJA_N_CONST, pos);
    if (!n) return QUIRE_ENOMEM;
    n->constant = v;
    *out = n;
    return 0;
}

/* Adjacent string literals are one. */
static int parse_string(struct jinja_parser *p, struct jinja_node **out) {
    uint32_t pos = p->tok->pos;
    size_t total = 0, n = 0;
    for (; p->tok[n].type == JINJA_T_STRING; n++) total += p->tok[n].text.len;
    const char *data = p->tok->text.data;
    if (n > 1) {
        char *joined = arena_alloc(&p->t->arena, total);
        if (!joined) return jinja_syntax_memory(p->t, p->err);
        size_t at = 0;
        for (size_t i = 0; i < n; i++) {
            if (p->tok[i].text.len) memcpy(joined + at, p->tok[i].text.data, p->tok[i].text.len);
            at += p->tok[i].text.len;
        }
        data = joined;
    }
    p->tok += n;
    const struct jinja_str *s = jinja_parse_str(p, data, total);
    return s ? const_node(p, pos, jinja_of_str(s), out) : QUIRE_ENOMEM;
}

static int parse_list(struct jinja_parser *p, struct jinja_node **out) {
    struct jinja_node *n = jinja_parse_node(p, JINJA_N_LIST, p->tok->pos);
    if (!n) return QUIRE_ENOMEM;
    p->tok++;
    while (p->tok->type != JINJA_T_RBRACKET) {
        struct jinja_node *item;
        if (n->list.n) JINJA_TRY(jinja_parse_expect(p, JINJA_T_COMMA));
        if (p->tok->type == JINJA_T_RBRACKET) break;
        JINJA_TRY(jinja_parse_expr(p, true, &item));
        JINJA_TRY(jinja_parse_push(p, &n->list, item));
    }
    *out = n;
    return jinja_parse_expect(p, JINJA_T_RBRACKET);
}

static int parse_dict(struct jinja_parser *p, struct jinja_node **out) {
    struct jinja_node *n = jinja_parse_node(p, JINJA_N_DICT, p->tok->pos);
    if (!n) return QUIRE_ENOMEM;
    p->tok++;
    while (p->tok->type != JINJA_T_RBRACE) {
        struct jinja_node *key, *value;
        if (n->list.n) JINJA_TRY(jinja_parse_expect(p, JINJA_T_COMMA));
        if (p->tok->type == JINJA_T_RBRACE) break;
        JINJA_TRY(jinja_parse_expr(p, true, &key));
        JINJA_TRY(jinja_parse_expect(p, JINJA_T_COLON));
        JINJA_TRY(jinja_parse_expr(p, true, &value));
        JINJA_TRY(jinja_parse_push(p, &n->list, key));
        JINJA_TRY(jinja_parse_push(p, &n->list, value));
    }
    *out = n;
    return jinja_parse_expect(p, JINJA_T_RBRACE);
}

static int parse_primary(struct jinja_parser *p, bool with_namespace, struct jinja_node **out) {
    const struct jinja_token *tok = p->tok;
    switch (tok->type) {
    case JINJA_T_NAME:
        p->tok++;
        if (jinja_parse_is_name(tok, "true") || jinja_parse_is_name(tok, "True"))
            return const_node(p, tok->pos, jinja_bool(true), out);
        if (jinja_parse_is_name(tok, "false") || jinja_parse_is_name(tok, "False"))
            return const_node(p, tok->pos, jinja_bool(false), out);
        if (jinja_parse_is_name(tok, "none") || jinja_parse_is_name(tok, "None"))
            return const_node(p, tok->pos, jinja_none(), out);
        JINJA_TRY(jinja_parse_name_node(p, tok, out));
        if (with_namespace && jinja_parse_skip(p, JINJA_T_DOT)) {
            uint32_t id = (*out)->name.id;
            (*out)->kind = JINJA_N_NSREF;
            (*out)->nsref.id = id;
            return jinja_parse_identifier(p, &(*out)->nsref.attr);
        }
        return 0;
    case JINJA_T_STRING: return parse_string(p, out);
    case JINJA_T_INT: p->tok++; return const_node(p, tok->pos, jinja_int(tok->i), out);
    case JINJA_T_FLOAT: p->tok++; return const_node(p, tok->pos, jinja_float(tok->f), out);
    case JINJA_T_LPAREN:
        p->tok++;
        JINJA_TRY(jinja_parse_tuple(p, true, NULL, true, out));
        return jinja_parse_expect(p, JINJA_T_RPAREN);
    case JINJA_T_LBRACKET: return parse_list(p, out);
    case JINJA_T_LBRACE: return parse_dict(p, out);
    default:
        return jinja_parse_fail(p, tok->pos, QUIRE_EFORMAT, "expected an expression, got '%s'",
                                jinja_token_name((enum jinja_token_type)tok->type));
    }
}

static bool is_tuple_end(const struct jinja_parser *p, const char *end_word) {
    enum jinja_token_type type = p->tok->type;
    return type == JINJA_T_VARIABLE_END || type == JINJA_T_BLOCK_END || type == JINJA_T_RPAREN ||
           (end_word && jinja_parse_is_name(p->tok, end_word));
}

int jinja_parse_tuple(struct jinja_parser *p, bool with_cond, const char *end_word, bool parenthesized,
                      struct jinja_node **out) {
    uint32_t pos = p->tok->pos;
    struct jinja_nodes items = {0};
    bool is_tuple = false;
    *out = NULL;
    for (;;) {
        struct jinja_node *item;
        if (items.n) JINJA_TRY(jinja_parse_expect(p, JINJA_T_COMMA));
        if (is_tuple_end(p, end_word)) break;
        JINJA_TRY(jinja_parse_expr(p, with_cond, &item));
        if (items.n == 0) *out = item;
        if (p->tok->type != JINJA_T_COMMA) {
            if (is_tuple) JINJA_TRY(jinja_parse_push(p, &items, item));
            break;
        }
        is_tuple = true;
        JINJA_TRY(jinja_parse_push(p, &items, item));
    }
    if (!is_tuple && *out) return 0;
    if (!is_tuple && !parenthesized)
        return jinja_parse_fail(p, pos, QUIRE_EFORMAT, "expected an expression, got '%s'",
                                jinja_token_name((enum jinja_token_type)p->tok->type));
    struct jinja_node *n = jinja_parse_node(p, JINJA_N_TUPLE, pos);
    if (!n) return QUIRE_ENOMEM;
    n->list = items;
    *out = n;
    return 0;
}

static int check_target(struct jinja_parser *p, struct jinja_node *n) {
    if (n->kind == JINJA_N_NAME || n->kind == JINJA_N_NSREF) return 0;
    if (n->kind != JINJA_N_TUPLE) return jinja_parse_fail(p, n->pos, QUIRE_EFORMAT, "cannot assign to this");
    JINJA_TRY(jinja_parse_enter(p));
    for (size_t i = 0; i < n->list.n; i++) JINJA_TRY(check_target(p, n->list.items[i]));
    p->guard.depth--;
    return 0;
}

int jinja_parse_target(struct jinja_parser *p, const char *end_word, bool with_namespace,
                       struct jinja_node **out) {
    uint32_t pos = p->tok->pos;
    struct jinja_nodes items = {0};
    bool is_tuple = false;
    *out = NULL;
    for (;;) {
        struct jinja_node *item;
        if (items.n) JINJA_TRY(jinja_parse_expect(p, JINJA_T_COMMA));
        if (is_tuple_end(p, end_word)) break;
        JINJA_TRY(parse_primary(p, with_namespace, &item));
        JINJA_TRY(jinja_parse_push(p, &items, item));
        if (p->tok->type != JINJA_T_COMMA) break;
        is_tuple = true;
    }
    if (is_tuple) {
        *out = jinja_parse_node(p, JINJA_N_TUPLE, pos);
        if (!*out) return QUIRE_ENOMEM;
        (*out)->list = items;
    } else if (items.n) {
        *out = items.items[0];
    } else {
        return jinja_parse_fail(p, pos, QUIRE_EFORMAT, "expected a name to assign to");
    }
    return check_target(p, *out);
}

static int push_kwarg(struct jinja_parser *p, struct jinja_call_args *args, const struct jinja_token *tok,
                      struct jinja_node *value) {
    for (size_t i = 0; i < args->kw.n; i++)
        if (args->kw_names[i]->len == tok->text.len &&
            memcmp(args->kw_names[i]->data, tok->text.data, tok->text.len) == 0)
            return jinja_parse_fail(p, tok->pos, QUIRE_EFORMAT, "keyword argument '%.*s' is repeated",
                                    (int)tok->text.len, tok->text.data);
    if (args->kw.n == JINJA_MAX_NAMED)
        return jinja_parse_fail(p, tok->pos, QUIRE_ELIMIT, "more than %d keyword arguments", JINJA_MAX_NAMED);
    const struct jinja_str **names = arena_array(&p->t->arena, args->kw.n + 1, sizeof *names);
    if (!names) return jinja_syntax_memory(p->t, p->err);
    if (args->kw.n) memcpy(names, args->kw_names, args->kw.n * sizeof *names);
    args->kw_names = names;
    names[args->kw.n] = jinja_parse_str(p, tok->text.data, tok->text.len);
    if (!names[args->kw.n]) return QUIRE_ENOMEM;
    return jinja_parse_push(p, &args->kw, value);
}

static int parse_argument(struct jinja_parser *p, struct jinja_call_args *args) {
    const struct jinja_token *tok = p->tok;
    struct jinja_node *value;
    bool ok;
    if (jinja_parse_skip(p, JINJA_T_MUL)) {
        ok = !args->star && !args->star_star;
        if (ok) return jinja_parse_expr(p, true, &args->star);
    } else if (jinja_parse_skip(p, JINJA_T_POW)) {
        ok = !args->star_star;
        if (ok) return jinja_parse_expr(p, true, &args->star_star);
    } else if (tok->type == JINJA_T_NAME && tok[1].type == JINJA_T_ASSIGN) {
        p->tok += 2;
        ok = !args->star_star;
        JINJA_TRY(jinja_parse_expr(p, true, &value));
        if (ok) return push_kwarg(p, args, tok, value);
    } else {
        ok = !args->star && !args->star_star && !args->kw.n;
        JINJA_TRY(jinja_parse_expr(p, true, &value));
        if (ok) return jinja_parse_push(p, &args->pos, value);
    }
    return jinja_parse_fail(p, tok->pos, QUIRE_EFORMAT,
                            "positional arguments must come before keyword arguments, * and **");
}

static int parse_args(struct jinja_parser *p, struct jinja_call_args **out) {
    struct jinja_call_args *args = arena_zalloc(&p->t->arena, sizeof *args);
    if (!args) return jinja_syntax_memory(p->t, p->err);
    *out = args;
    JINJA_TRY(jinja_parse_expect(p, JINJA_T_LPAREN));
    for (bool first = true; p->tok->type != JINJA_T_RPAREN; first = false) {
        if (!first) {
            JINJA_TRY(jinja_parse_expect(p, JINJA_T_COMMA));
            if (p->tok->type == JINJA_T_RPAREN) break;
        }
        JINJA_TRY(parse_argument(p, args));
    }
    return jinja_parse_expect(p, JINJA_T_RPAREN);
}

/* One of the parts of [a:b:c], or an index. */
static int parse_subscript_item(struct jinja_parser *p, struct jinja_node **out) {
    struct jinja_node *part[3] = {NULL, NULL, NULL};
    uint32_t pos = p->tok->pos;
    if (p->tok->type != JINJA_T_COLON) {
        JINJA_TRY(jinja_parse_expr(p, true, &part[0]));
        if (p->tok->type != JINJA_T_COLON) {
            *out = part[0];
            return 0;
        }
    }
    p->tok++;
    for (int i = 1; i < 3; i++) {
        enum jinja_token_type type = p->tok->type;
        if (i == 2 && !jinja_parse_skip(p, JINJA_T_COLON)) break;
        if (i == 2) type = p->tok->type;
        if (type != JINJA_T_COLON && type != JINJA_T_RBRACKET && type != JINJA_T_COMMA)
            JINJA_TRY(jinja_parse_expr(p, true, &part[i]));
    }
    struct jinja_node *n = jinja_parse_node(p, JINJA_N_SLICE, pos);
    if (!n) return QUIRE_ENOMEM;
    n->a = part[0], n->b = part[1], n->c = part[2];
    *out = n;
    return 0;
}

static int parse_subscript(struct jinja_parser *p, struct jinja_node *object, struct jinja_node **out) {
    const struct jinja_token *tok = p->tok++;
    struct jinja_node *n, *index;
    if (tok->type == JINJA_T_DOT && p->tok->type == JINJA_T_NAME) {
        n = jinja_parse_node(p, JINJA_N_GETATTR, tok->pos);
        if (!n) return QUIRE_ENOMEM;
        n->attr.object = object;
        *out = n;
        JINJA_TRY(jinja_parse_identifier(p, &n->attr.name));
        n->attr.reserved = jinja_is_dict_attribute(n->attr.name);
        return 0;
    }
    if (tok->type == JINJA_T_DOT) {
        if (p->tok->type != JINJA_T_INT)
            return jinja_parse_fail(p, p->tok->pos, QUIRE_EFORMAT, "expected a name or number behind '.'");
        JINJA_TRY(const_node(p, p->tok->pos, jinja_int(p->tok->i), &index));
        p->tok++;
    } else {
        struct jinja_nodes items = {0};
        while (p->tok->type != JINJA_T_RBRACKET) {
            if (items.n) JINJA_TRY(jinja_parse_expect(p, JINJA_T_COMMA));
            JINJA_TRY(parse_subscript_item(p, &index));
            if (index->kind == JINJA_N_SLICE && (items.n || p->tok->type == JINJA_T_COMMA))
                return jinja_parse_fail(p, index->pos, QUIRE_EUNSUPPORTED,
                                        "slices of several dimensions are not "
                                        "supported");
            JINJA_TRY(jinja_parse_push(p, &items, index));
        }
        p->tok++;
        if (items.n != 1) {
            index = jinja_parse_node(p, JINJA_N_TUPLE, tok->pos);
            if (!index) return QUIRE_ENOMEM;
            index->list = items;
        }
    }
    n = jinja_parse_node(p, JINJA_N_GETITEM, tok->pos);
    if (!n) return QUIRE_ENOMEM;
    n->a = object;
    n->b = index;
    *out = n;
    return 0;
}

static int parse_call(struct jinja_parser *p, struct jinja_node *callee, struct jinja_node **out) {
    struct jinja_node *n = jinja_parse_node(p, JINJA_N_CALL, p->tok->pos);
    if (!n) return QUIRE_ENOMEM;
    n->call.callee = callee;
    *out = n;
    return parse_args(p, &n->call.args);
}

static int parse_postfix(struct jinja_parser *p, struct jinja_node **node) {
    for (;;) {
        if (p->tok->type == JINJA_T_DOT || p->tok->type == JINJA_T_LBRACKET) {
            JINJA_TRY(parse_subscript(p, *node, node));
        } else if (p->tok->type == JINJA_T_LPAREN) {
            JINJA_TRY(parse_call(p, *node, node));
        } else {
            return 0;
        }
    }
}

/* a.b.c as one name (only filters and tests of other libraries have dots; they end up as unknown). */
static int parse_dotted(struct jinja_parser *p, const struct jinja_str **name) {
    JINJA_TRY(jinja_parse_identifier(p, name));
    while (jinja_parse_skip(p, JINJA_T_DOT)) {
        const struct jinja_str *part;
        JINJA_TRY(jinja_parse_identifier(p, &part));
        char *joined = arena_alloc(&p->t->arena, (*name)->len + 1 + part->len);
        if (!joined) return jinja_syntax_memory(p->t, p->err);
        memcpy(joined, (*name)->data, (*name)->len);
        joined[(*name)->len] = '.';
        memcpy(joined + (*name)->len + 1, part->data, part->len);
        *name = jinja_parse_str(p, joined, (*name)->len + 1 + part->len);
        if (!*name) return QUIRE_ENOMEM;
    }
    return 0;
}

int jinja_parse_filters(struct jinja_parser *p, struct jinja_node *subject, bool inline_start,
                        struct jinja_node **out) {
    *out = subject;
    while (inline_start || jinja_parse_skip(p, JINJA_T_PIPE)) {
        inline_start = false;
        struct jinja_node *n = jinja_parse_node(p, JINJA_N_FILTER, p->tok->pos);
        if (!n) return QUIRE_ENOMEM;
        n->apply.subject = *out;
        JINJA_TRY(parse_dotted(p, &n->apply.name));
        if (p->tok->type == JINJA_T_LPAREN) JINJA_TRY(parse_args(p, &n->apply.args));
        n->apply.filter = jinja_filter_find(n->apply.name);
        *out = n;
    }
    return 0;
}

/* Does this token start the one argument that a test may have without parentheses? */
static bool starts_test_argument(const struct jinja_token *tok) {
    switch (tok->type) {
    case JINJA_T_NAME:
        return !jinja_parse_is_name(tok, "else") && !jinja_parse_is_name(tok, "or") &&
               !jinja_parse_is_name(tok, "and");
    case JINJA_T_STRING:
    case JINJA_T_INT:
    case JINJA_T_FLOAT:
    case JINJA_T_LBRACKET:
    case JINJA_T_LBRACE: return true;
    default: return false;
    }
}

static int parse_test(struct jinja_parser *p, struct jinja_node *subject, struct jinja_node **out) {
    uint32_t pos = p->tok++->pos;
    bool negated = jinja_parse_skip_name(p, "not");
    struct jinja_node *n = jinja_parse_node(p, JINJA_N_TEST, pos);
    if (!n) return QUIRE_ENOMEM;
    n->apply.subject = subject;
    JINJA_TRY(parse_dotted(p, &n->apply.name));
    if (p->tok->type == JINJA_T_LPAREN) {
        JINJA_TRY(parse_args(p, &n->apply.args));
    } else if (starts_test_argument(p->tok)) {
        struct jinja_node *arg;
        if (jinja_parse_is_name(p->tok, "is"))
            return jinja_parse_fail(p, p->tok->pos, QUIRE_EFORMAT, "tests with 'is' cannot be chained");
        n->apply.args = arena_zalloc(&p->t->arena, sizeof *n->apply.args);
        if (!n->apply.args) return jinja_syntax_memory(p->t, p->err);
        JINJA_TRY(parse_primary(p, false, &arg));
        JINJA_TRY(parse_postfix(p, &arg));
        JINJA_TRY(jinja_parse_push(p, &n->apply.args->pos, arg));
    }
    n->apply.test = jinja_test_find(n->apply.name);
    *out = n;
    if (negated) {
        *out = jinja_parse_node(p, JINJA_N_NOT, pos);
        if (!*out) return QUIRE_ENOMEM;
        (*out)->a = n;
    }
    return 0;
}

static int parse_unary(struct jinja_parser *p, bool with_filter, struct jinja_node **out) {
    const struct jinja_token *tok = p->tok;
    JINJA_TRY(jinja_parse_enter(p));
    if (tok->type == JINJA_T_SUB || tok->type == JINJA_T_ADD) {
        struct jinja_node *n =
            jinja_parse_node(p, tok->type == JINJA_T_SUB ? JINJA_N_NEG : JINJA_N_POS, tok->pos);
        if (!n) return QUIRE_ENOMEM;
        p->tok++;
        JINJA_TRY(parse_unary(p, false, &n->a));
        *out = n;
    } else {
        JINJA_TRY(parse_primary(p, false, out));
    }
    p->guard.depth--;
    JINJA_TRY(parse_postfix(p, out));
    while (with_filter) {
        if (p->tok->type == JINJA_T_PIPE) {
            JINJA_TRY(jinja_parse_filters(p, *out, false, out));
        } else if (jinja_parse_is_name(p->tok, "is")) {
            JINJA_TRY(parse_test(p, *out, out));
        } else if (p->tok->type == JINJA_T_LPAREN) {
            JINJA_TRY(parse_call(p, *out, out));
        } else {
            break;
        }
    }
    return 0;
}

struct operator{
    enum jinja_token_type token;
    enum jinja_op op;
    enum precedence prec;
};

/* The arithmetic operator at the current token, or NULL. The entry of ~ has no op: it takes any number of
 * operands. */
static const struct operator* binary_operator(const struct jinja_parser *p) {
    static const struct operator table[] = {
        {JINJA_T_ADD, JINJA_OP_ADD, PREC_SUM},     {JINJA_T_SUB, JINJA_OP_SUB, PREC_SUM},
        {JINJA_T_TILDE, 0, PREC_CONCAT},           {JINJA_T_MUL, JINJA_OP_MUL, PREC_PRODUCT},
        {JINJA_T_DIV, JINJA_OP_DIV, PREC_PRODUCT}, {JINJA_T_FLOORDIV, JINJA_OP_FLOORDIV, PREC_PRODUCT},
        {JINJA_T_MOD, JINJA_OP_MOD, PREC_PRODUCT}, {JINJA_T_POW, JINJA_OP_POW, PREC_POW},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (table[i].token == p->tok->type) return &table[i];
    return NULL;
}

static int make_concat(struct jinja_parser *p, struct jinja_node *left, struct jinja_node *right,
                       uint32_t pos, struct jinja_node **out) {
    *out = left;
    if (left->kind != JINJA_N_CONCAT) {
        *out = jinja_parse_node(p, JINJA_N_CONCAT, pos);
        if (!*out) return QUIRE_ENOMEM;
        JINJA_TRY(jinja_parse_push(p, &(*out)->list, left));
    }
    return jinja_parse_push(p, &(*out)->list, right);
}

/* Operators that bind at least as tightly as min, all from the left (as Jinja has even ** do). */
static int parse_binary(struct jinja_parser *p, enum precedence min, struct jinja_node **out) {
    JINJA_TRY(parse_unary(p, true, out));
    for (const struct operator* o; (o = binary_operator(p)) && o->prec >= min;) {
        uint32_t pos = p->tok++->pos;
        struct jinja_node *right, *n;
        if (o->prec == PREC_POW) {
            JINJA_TRY(parse_unary(p, true, &right));
        } else {
            JINJA_TRY(parse_binary(p, o->prec + 1, &right));
        }
        if (o->prec == PREC_CONCAT) {
            JINJA_TRY(make_concat(p, *out, right, pos, out));
            continue;
        }
        n = jinja_parse_node(p, JINJA_N_BINARY, pos);
        if (!n) return QUIRE_ENOMEM;
        n->op = (uint8_t)o->op;
        n->a = *out;
        n->b = right;
        *out = n;
    }
    return 0;
}

/* Takes a comparison operator, if there is one. */
static bool take_comparison(struct jinja_parser *p, uint8_t *op) {
    static const struct {
        enum jinja_token_type token;
        enum jinja_op op;
    } table[] = {{JINJA_T_EQ, JINJA_OP_EQ}, {JINJA_T_NE, JINJA_OP_NE}, {JINJA_T_LT, JINJA_OP_LT},
                 {JINJA_T_LE, JINJA_OP_LE}, {JINJA_T_GT, JINJA_OP_GT}, {JINJA_T_GE, JINJA_OP_GE}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        if (!jinja_parse_skip(p, table[i].token)) continue;
        *op = (uint8_t)table[i].op;
        return true;
    }
    *op = JINJA_OP_IN;
    if (jinja_parse_skip_name(p, "in")) return true;
    *op = JINJA_OP_NOT_IN;
    if (!jinja_parse_is_name(p->tok, "not") || !jinja_parse_is_name(p->tok + 1, "in")) return false;
    p->tok += 2;
    return true;
}

static int parse_compare(struct jinja_parser *p, struct jinja_node **out) {
    struct jinja_nodes others = {0};
    uint8_t *ops = NULL, op;
    size_t cap = 0;
    JINJA_TRY(parse_binary(p, PREC_SUM, out));
    uint32_t pos = p->tok->pos;
    while (take_comparison(p, &op)) {
        struct jinja_node *right;
        JINJA_TRY(parse_binary(p, PREC_SUM, &right));
        if (others.n == cap) {
            uint8_t *more = arena_zalloc(&p->t->arena, cap = cap ? cap * 2 : 4);
            if (!more) return jinja_syntax_memory(p->t, p->err);
            if (ops) memcpy(more, ops, others.n);
            ops = more;
        }
        ops[others.n] = op;
        JINJA_TRY(jinja_parse_push(p, &others, right));
    }
    if (!others.n) return 0;
    struct jinja_node *n = jinja_parse_node(p, JINJA_N_COMPARE, pos);
    if (!n) return QUIRE_ENOMEM;
    n->compare.first = *out;
    n->compare.ops = ops;
    n->compare.others = others.items;
    n->compare.n = others.n;
    *out = n;
    return 0;
}

static int parse_not(struct jinja_parser *p, struct jinja_node **out) {
    uint32_t pos = p->tok->pos;
    if (!jinja_parse_skip_name(p, "not")) return parse_compare(p, out);
    struct jinja_node *n = jinja_parse_node(p, JINJA_N_NOT, pos);
    if (!n) return QUIRE_ENOMEM;
    JINJA_TRY(jinja_parse_enter(p));
    JINJA_TRY(parse_not(p, &n->a));
    p->guard.depth--;
    *out = n;
    return 0;
}

/* Operands of `or` are `and`s, whose operands may be negated. */
static int parse_logic(struct jinja_parser *p, bool is_or, struct jinja_node **out) {
    JINJA_TRY(is_or ? parse_logic(p, false, out) : parse_not(p, out));
    for (uint32_t pos = p->tok->pos; jinja_parse_skip_name(p, is_or ? "or" : "and"); pos = p->tok->pos) {
        struct jinja_node *n = jinja_parse_node(p, is_or ? JINJA_N_OR : JINJA_N_AND, pos);
        if (!n) return QUIRE_ENOMEM;
        n->a = *out;
        JINJA_TRY(is_or ? parse_logic(p, false, &n->b) : parse_not(p, &n->b));
        *out = n;
    }
    return 0;
}

int jinja_parse_expr(struct jinja_parser *p, bool with_cond, struct jinja_node **out) {
    JINJA_TRY(jinja_parse_enter(p));
    JINJA_TRY(parse_logic(p, true, out));
    while (with_cond && jinja_parse_is_name(p->tok, "if")) {
        struct jinja_node *n = jinja_parse_node(p, JINJA_N_COND, p->tok->pos);
        if (!n) return QUIRE_ENOMEM;
        p->tok++;
        n->b = *out;
        JINJA_TRY(parse_logic(p, true, &n->a));
        if (jinja_parse_skip_name(p, "else")) JINJA_TRY(jinja_parse_expr(p, true, &n->c));
        *out = n;
    }
    p->guard.depth--;
    return 0;
}
