/* The config file: a flat mapping in a subset of YAML 1.2. "key: value", "key: [a, b]", or "key:" and "- a"
 * lines; plain, 'single' and "double" quoted scalars; comments. Anything else YAML knows is refused by name,
 * never misread. */
#include "base/error.h"
#include "base/options_impl.h"
#include "base/utf8.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define CONFIG_MAX_BYTES (1u << 20)

struct reader {
    struct options_state *s;
    struct error *err;
    size_t line;
    bool list_open, list_has_items; /* after "key:" */
    struct given list;
};

static int refuse(const struct reader *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static int refuse(const struct reader *r, const char *fmt, ...) {
    char text[256];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return error_set(r->err, QUIRE_EFORMAT, "%.120s:%zu: %s", r->s->path, r->line, text);
}

static bool is_space(char c) {
    return c == ' ' || c == '\t';
}

static char *skip_spaces(char *p) {
    while (is_space(*p)) p++;
    return p;
}

/* True at the end of a line or at a comment; p stands after white space or at the start. */
static bool at_end(const char *p) {
    return *p == '\0' || *p == '#';
}

/* ---- scalars ------------------------------------------------------------------------------------------- */

/* A value cut out in place. *end becomes its NUL only after the caller has looked at *next. */
struct scalar {
    char *start, *end, *next;
};

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

/* "\xNN", below U+0080 only: the rest can be written as it is. */
static int hex_escape(const struct reader *r, const char *p, char *out) {
    int high = hex_digit(p[0]), low = high < 0 ? -1 : hex_digit(p[1]);
    if (low < 0 || high > 7 || (high | low) == 0) return refuse(r, "\\x needs two hex digits from 01 to 7f");
    *out = (char)(high << 4 | low);
    return QUIRE_OK;
}

static int double_quoted(const struct reader *r, struct scalar *v) {
    static const char names[] = "\"\\/ntr\t e", values[] = "\"\\/\n\t\r\t \x1b";
    char *in = v->start, *out = v->start;
    for (; *in != '"'; in++) {
        if (!*in) return refuse(r, "a value starts with \" and has no closing \" on its line");
        if (*in != '\\') {
            *out++ = *in;
            continue;
        }
        in++;
        const char *known = *in ? strchr(names, *in) : NULL;
        if (*in == 'x') {
            int code = hex_escape(r, in + 1, out++);
            if (code < 0) return code;
            in += 2;
        } else if (known) {
            *out++ = values[known - names];
        } else {
            return refuse(r, "unknown escape \\%.1s in a quoted value", in);
        }
    }
    v->end = out;
    v->next = in + 1;
    return QUIRE_OK;
}

static int single_quoted(const struct reader *r, struct scalar *v) {
    char *in = v->start, *out = v->start;
    for (;; in++) {
        if (!*in) return refuse(r, "a value starts with ' and has no closing ' on its line");
        if (*in == '\'' && *++in != '\'') break;
        *out++ = *in;
    }
    v->end = out;
    v->next = in;
    return QUIRE_OK;
}

static int plain(const struct reader *r, struct scalar *v, bool in_list) {
    char *p = v->start;
    bool indicator = strchr("{}[]&*!|>%@`,#?:-", *p) && (!strchr("?:-", *p) || is_space(p[1]) || !p[1]);
    if (indicator) return refuse(r, "a value cannot start with %c: put it in quotes", *p);
    for (; *p; p++) {
        if (in_list && strchr(",[]{}", *p)) break;
        if (*p == '#' && is_space(p[-1])) break;
        if (*p == ':' && (is_space(p[1]) || !p[1]))
            return refuse(r, "a value with \":\" in it must be in quotes");
    }
    v->next = p;
    while (is_space(p[-1])) p--;
    v->end = p;
    size_t n = (size_t)(p - v->start);
    if ((n == 4 && !memcmp(v->start, "null", 4)) || (n == 1 && *v->start == '~'))
        return refuse(r, "null is not a value: leave the key out");
    return QUIRE_OK;
}

static int read_scalar(const struct reader *r, char *p, bool in_list, struct scalar *v) {
    bool quoted = *p == '"' || *p == '\'';
    v->start = p + quoted;
    int code = *p == '"' ? double_quoted(r, v) : *p == '\'' ? single_quoted(r, v) : plain(r, v, in_list);
    if (code < 0) return code;
    if (quoted && *v->next == '#') return refuse(r, "a comment needs a space before it");
    v->next = skip_spaces(v->next);
    return QUIRE_OK;
}

/* ---- lines --------------------------------------------------------------------------------------------- */

static int read_one(struct reader *r, char *p, struct given *g) {
    struct scalar v;
    int code = read_scalar(r, p, false, &v);
    if (code < 0) return code;
    if (!at_end(v.next)) return refuse(r, "unexpected text after a quoted value");
    *v.end = '\0';
    g->value = v.start;
    return options_store(r->s, g, r->err);
}

static int read_flow_list(struct reader *r, char *p, struct given *g) {
    for (p = skip_spaces(p + 1); *p != ']';) {
        struct scalar v;
        if (at_end(p)) return refuse(r, "a list starts with [ and has no ] on its line");
        int code = read_scalar(r, p, true, &v);
        if (code < 0) return code;
        char after = *v.next;
        if (after != ',' && after != ']') return refuse(r, "a list needs , or ] after each value");
        *v.end = '\0';
        g->value = v.start;
        code = options_store(r->s, g, r->err);
        if (code < 0) return code;
        p = v.next;
        if (after == ']') break;
        p = skip_spaces(p + 1);
    }
    if (!at_end(skip_spaces(p + 1))) return refuse(r, "unexpected text after a list");
    return QUIRE_OK;
}

static int end_list(struct reader *r) {
    if (r->list_open && !r->list_has_items) {
        r->line = r->list.line;
        return refuse(r, "%.60s has no value", r->s->table[r->list.index].name);
    }
    r->list_open = false;
    return QUIRE_OK;
}

static int read_item(struct reader *r, char *p) {
    if (!r->list_open) return refuse(r, "a \"- value\" line is allowed only below \"key:\"");
    p = skip_spaces(p + 1);
    if (at_end(p)) return refuse(r, "an empty list item");
    r->list_has_items = true;
    r->list.line = r->line;
    return read_one(r, p, &r->list);
}

static int find_key(struct reader *r, char *p, size_t n, struct given *g) {
    if (n == 0 || p[n] != ':' || !(is_space(p[n + 1]) || !p[n + 1]))
        return refuse(r, "expected \"key: value\"");
    int code = options_find(r->s, g, n, r->err);
    if (code < 0) return code;
    if (!strcmp(r->s->table[g->index].name, "config"))
        return refuse(r, "a config file cannot name another one");
    return options_begin(r->s, g, r->err);
}

static int read_key(struct reader *r, char *p) {
    const char *allowed = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-";
    size_t n = strspn(p, allowed);
    struct given g = {.source = OPTIONS_FILE, .name = p, .line = r->line};
    int code = end_list(r);
    if (code == QUIRE_OK) code = find_key(r, p, n, &g);
    if (code < 0) return code;
    const struct option *o = &r->s->table[g.index];
    p = skip_spaces(p + n + 1);
    bool is_list = at_end(p) || *p == '[';
    if (!is_list) return read_one(r, p, &g);
    if (o->type != OPTION_LIST)
        return refuse(r, at_end(p) ? "%.60s has no value" : "%.60s takes one value, not a list", o->name);
    if (*p == '[') return read_flow_list(r, p, &g);
    r->list_open = true;
    r->list_has_items = false;
    r->list = g;
    return QUIRE_OK;
}

static int read_line(struct reader *r, char *line) {
    char *p = skip_spaces(line);
    if (at_end(p)) return QUIRE_OK;
    if (memchr(line, '\t', (size_t)(p - line))) return refuse(r, "a tab in the indentation");
    if (!strcmp(line, "---")) return r->line == 1 ? QUIRE_OK : refuse(r, "only one document is allowed");
    if (*p == '-' && (is_space(p[1]) || !p[1])) return read_item(r, p);
    if (p != line) return refuse(r, "nested values are not supported: a key starts its line");
    return read_key(r, p);
}

/* Cuts the text into lines in place. */
static int read_lines(struct reader *r, char *p, char *end) {
    while (p < end) {
        char *newline = memchr(p, '\n', (size_t)(end - p)), *stop = newline ? newline : end;
        r->line++;
        if (memchr(p, '\0', (size_t)(stop - p))) return refuse(r, "a NUL byte");
        for (char *c = p; c < stop;) {
            size_t n = utf8_sequence(c, (size_t)(stop - c));
            if (n == 0) return refuse(r, "not valid UTF-8");
            c += n;
        }
        *(stop > p && stop[-1] == '\r' ? stop - 1 : stop) = '\0';
        int code = read_line(r, p);
        if (code < 0) return code;
        p = stop + 1;
    }
    return end_list(r);
}

static int read_whole(struct options_state *s, FILE *f, size_t *n, struct error *err) {
    struct stat info;
    if (fstat(fileno(f), &info) < 0)
        return error_param(err, QUIRE_EIO, "config", "%.200s: %s", s->path, strerror(errno));
    if (S_ISDIR(info.st_mode))
        return error_param(err, QUIRE_EINVAL, "config", "%.200s is a directory, not a config file", s->path);
    s->text = malloc(CONFIG_MAX_BYTES + 2);
    if (!s->text) return error_set(err, QUIRE_ENOMEM, "out of memory for the config file");
    *n = fread(s->text, 1, CONFIG_MAX_BYTES + 1, f);
    if (ferror(f))
        return error_param(err, QUIRE_EIO, "config", "cannot read %.200s: %s", s->path, strerror(errno));
    if (*n > CONFIG_MAX_BYTES)
        return error_param(err, QUIRE_ELIMIT, "config", "%.200s is larger than a config file may be (1 MiB)",
                           s->path);
    s->text[*n] = '\0';
    return QUIRE_OK;
}

int options_file(struct options_state *s, const char *path, struct error *err) {
    size_t n = 0;
    s->path = path;
    FILE *f = fopen(path, "rb");
    if (!f)
        return error_param(err, errno == ENOENT ? QUIRE_ENOTFOUND : QUIRE_EIO, "config",
                           "cannot open config file %.200s: %s", path, strerror(errno));
    int code = read_whole(s, f, &n, err);
    fclose(f);
    if (code < 0) return code;
    struct reader r = {.s = s, .err = err};
    size_t mark = utf8_mark(s->text, n);
    return read_lines(&r, s->text + mark, s->text + n);
}
