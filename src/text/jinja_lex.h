/* Template source to tokens, by Jinja's rules with trim_blocks and lstrip_blocks: a block tag takes the
 * newline behind it and the blanks before it on its line, `-` takes all whitespace on its side, `+` keeps it.
 */
#ifndef TEXT_JINJA_LEX_H
#define TEXT_JINJA_LEX_H

#include "text/jinja_ast.h"

enum jinja_token_type {
    JINJA_T_EOF,
    JINJA_T_DATA, /* text */
    JINJA_T_BLOCK_BEGIN,
    JINJA_T_BLOCK_END,
    JINJA_T_VARIABLE_BEGIN,
    JINJA_T_VARIABLE_END,
    JINJA_T_NAME,   /* text */
    JINJA_T_STRING, /* text, escapes resolved */
    JINJA_T_INT,
    JINJA_T_FLOAT,
    JINJA_T_ADD,
    JINJA_T_SUB,
    JINJA_T_DIV,
    JINJA_T_FLOORDIV,
    JINJA_T_MUL,
    JINJA_T_MOD,
    JINJA_T_POW,
    JINJA_T_TILDE,
    JINJA_T_LBRACKET,
    JINJA_T_RBRACKET,
    JINJA_T_LPAREN,
    JINJA_T_RPAREN,
    JINJA_T_LBRACE,
    JINJA_T_RBRACE,
    JINJA_T_EQ,
    JINJA_T_NE,
    JINJA_T_GT,
    JINJA_T_GE,
    JINJA_T_LT,
    JINJA_T_LE,
    JINJA_T_ASSIGN,
    JINJA_T_DOT,
    JINJA_T_COLON,
    JINJA_T_PIPE,
    JINJA_T_COMMA,
    JINJA_T_SEMICOLON
};

struct jinja_token {
    uint8_t type; /* enum jinja_token_type */
    uint32_t pos;
    union {
        struct {
            const char *data;
            size_t len;
        } text;
        int64_t i;
        double f;
    };
};

/* Tokens of t->source, ended by JINJA_T_EOF, in t's arena. QUIRE_EFORMAT with line and column. */
int jinja_lex(struct jinja_template *t, struct jinja_token **tokens, struct error *err);

/* "chat template, line L, column C: ..." */
int jinja_syntax_error(const struct jinja_template *t, struct error *err, int code, uint32_t pos,
                       const char *fmt, ...) __attribute__((format(printf, 5, 6)));

/* The error of a failed allocation: memory or the limit that a template has. */
int jinja_syntax_memory(const struct jinja_template *t, struct error *err);

/* Spelling of a token type for messages. */
const char *jinja_token_name(enum jinja_token_type type);

#endif
