#include "net/http1.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum state {
    START_LINE,
    FIELDS,
    HEAD_DONE,  /* HEAD was given; decide about the body */
    DATA,       /* chunk_left bytes of body (of the whole, or of a chunk) */
    CHUNK_SIZE, /* a size line */
    CHUNK_END,  /* the CRLF behind a chunk's data */
    TRAILERS,
    DONE,
    REFUSED
};

/* Longest request line: the target with room for a method, a version and two spaces. */
#define START_LINE_BYTES (HTTP1_TARGET_BYTES + 32)

/* --- characters --- */

static inline bool is_digit(char c) {
    return c >= '0' && c <= '9';
}
static inline bool is_alnum(char c) {
    return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}
static inline bool is_blank(char c) {
    return c == ' ' || c == '\t';
}
static inline bool is_control(char c) {
    return ((unsigned char)c < 0x20 && c != '\t') || c == 0x7f;
}

/* tchar of RFC 9110, section 5.6.2 */
static inline bool is_token_char(char c) {
    return is_alnum(c) || (c && strchr("!#$%&'*+-.^_`|~", c));
}
/* pchar of RFC 3986, section 3.3, and '/', without '%' */
static inline bool is_path_char(char c) {
    return is_alnum(c) || (c && strchr("/-._~!$&'()*+,;=:@", c));
}
static inline bool is_visible(char c) {
    return c > 0x20 && c < 0x7f;
}

static int hex_value(char c) {
    if (is_digit(c)) return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

static bool is_token(const char *s) {
    if (!*s) return false;
    while (is_token_char(*s)) s++;
    return !*s;
}

/* host [":" port]: an IPv6 literal or a name or IPv4 address. Narrower than RFC 3986 (no escapes, no
 * sub-delims): nothing that has a meaning in a path, a list or another URL parser. */
static bool is_authority(const char *s) {
    if (*s == '[') {
        s++;
        if (hex_value(*s) < 0 && *s != ':') return false;
        while (hex_value(*s) >= 0 || *s == ':' || *s == '.') s++;
        if (*s++ != ']') return false;
    } else {
        if (!is_alnum(*s)) return false;
        while (is_alnum(*s) || (*s && strchr("-._~", *s))) s++;
    }
    if (*s == ':') {
        s++;
        while (is_digit(*s)) s++;
    }
    return !*s;
}

/* --- methods --- */

static const char *const methods[] = {"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"};

const char *http_method_name(enum http_method m) {
    return methods[m];
}

static bool find_method(const char *name, enum http_method *out) {
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
        if (!strcmp(methods[i], name)) return *out = (enum http_method)i, true;
    return false;
}

/* --- the parser's own --- */

static enum http1_event refuse(struct http1 *p, unsigned status, const char *reason) {
    p->state = REFUSED;
    p->status = status;
    p->reason = reason;
    return HTTP1_REFUSE;
}

/* The parsing functions return true, or refuse and return false. */
static bool bad(struct http1 *p, unsigned status, const char *reason) {
    refuse(p, status, reason);
    return false;
}

static bool too_large(struct http1 *p) {
    snprintf(p->too_large, sizeof p->too_large, "body larger than the limit of %" PRIu64 " bytes",
             p->body_limit);
    return bad(p, 413, p->too_large);
}

void http1_init(struct http1 *p, char *text, uint64_t body_limit) {
    p->text = text;
    p->body_limit = body_limit;
    http1_reset(p);
}

void http1_reset(struct http1 *p) {
    p->head.n_fields = 0;
    p->status = 0;
    p->reason = NULL;
    p->text_len = p->line_len = p->n_trailers = 0;
    p->body_seen = p->chunk_left = 0;
    p->state = START_LINE;
    p->after_cr = false;
}

bool http1_idle(const struct http1 *p) {
    return p->state == START_LINE && !p->line_len && !p->after_cr;
}

enum line { LINE_MORE, LINE_DONE, LINE_LONG, LINE_BAD };

/* Moves bytes to dst + line_len until CRLF, which becomes one NUL; at most cap bytes with it. */
static enum line take_line(struct http1 *p, char *dst, size_t cap, const char *data, size_t n, size_t *used) {
    while (*used < n) {
        char c = data[(*used)++];
        if (p->after_cr) {
            if (c != '\n') return LINE_BAD;
            p->after_cr = false;
            return LINE_DONE;
        }
        if (p->line_len + 1 > cap) return LINE_LONG;
        if (c == '\r') {
            dst[p->line_len] = '\0';
            p->after_cr = true;
            continue;
        }
        if (is_control(c)) return LINE_BAD;
        if (p->line_len + 2 > cap) return LINE_LONG;
        dst[p->line_len++] = c;
    }
    return LINE_MORE;
}

/* --- request line --- */

/* Decodes the path that starts at s in place. Returns its query or "" and cuts there, or NULL after refusing.
 */
static char *decode_path(struct http1 *p, char *s) {
    char *out = s;
    for (; *s && *s != '?'; s++) {
        char c = *s;
        if (c == '%') {
            int hi = hex_value(s[1]), lo = hi < 0 ? -1 : hex_value(s[2]);
            if (lo < 0) return bad(p, 400, "malformed percent escape in the path"), NULL;
            c = (char)(hi << 4 | lo);
            if (is_control(c) || c == '\t') return bad(p, 400, "control character in the path"), NULL;
            s += 2;
        } else if (!is_path_char(c)) {
            return bad(p, 400, "character not allowed in the path, percent-encode it"), NULL;
        }
        *out++ = c;
    }
    char *query = *s == '?' ? s + 1 : s;
    for (s = query; *s; s++)
        if (!is_visible(*s) || *s == '#') return bad(p, 400, "character not allowed in the query"), NULL;
    *out = '\0';
    return query;
}

static bool has_dot_segment(const char *path) {
    for (const char *s = path; (s = strchr(s, '/'));) {
        s++;
        size_t n = strcspn(s, "/");
        if ((n == 1 && s[0] == '.') || (n == 2 && s[0] == '.' && s[1] == '.')) return true;
    }
    return false;
}

/* Splits absolute-form "http://authority/path" so that both parts end in NUL: the room for it is the
 * scheme's. Returns the path's start, or NULL after refusing. */
static char *split_absolute(struct http1 *p, char *target) {
    size_t scheme = !strncasecmp(target, "http://", 7) ? 7 : !strncasecmp(target, "https://", 8) ? 8 : 0;
    if (!scheme) return bad(p, 400, "request target is neither a path nor an http URL"), NULL;
    char *authority = target + scheme;
    size_t n = strcspn(authority, "/?#");
    char *rest = authority + n;
    memmove(target, authority, n);
    target[n] = '\0';
    if (!is_authority(target)) return bad(p, 400, "malformed authority in the request target"), NULL;
    p->head.authority = (uint16_t)(target - p->text);
    if (*rest != '/') *--rest = '/'; /* "http://host" and "http://host?query" mean the path "/" */
    return rest;
}

static bool parse_target(struct http1 *p, char *target) {
    if (!strcmp(target, "*")) {
        if (p->head.method != HTTP_OPTIONS) return bad(p, 400, "request target \"*\" is for OPTIONS only");
        p->head.path = (uint16_t)(target - p->text);
        return true;
    }
    char *path = *target == '/' ? target : split_absolute(p, target);
    if (!path) return false;
    bool has_query = strchr(path, '?');
    char *query = decode_path(p, path);
    if (!query) return false;
    if (has_dot_segment(path)) return bad(p, 400, "\".\" or \"..\" segment in the path");
    p->head.path = (uint16_t)(path - p->text);
    if (has_query) p->head.query = (uint16_t)(query - p->text);
    return true;
}

static bool parse_version(struct http1 *p, const char *s) {
    if (strncmp(s, "HTTP/", 5) || !is_digit(s[5]) || s[6] != '.' || !is_digit(s[7]) || s[8])
        return bad(p, 400, "malformed request line: METHOD SP target SP HTTP/1.1 is expected");
    if (s[5] != '1' || s[7] > '1') return bad(p, 505, "HTTP/1.1 and HTTP/1.0 are supported");
    p->head.http10 = s[7] == '0';
    return true;
}

static bool parse_start_line(struct http1 *p) {
    char *method = p->text, *target = strchr(method, ' '), *version = target ? strchr(target + 1, ' ') : NULL;
    if (!version) return bad(p, 400, "malformed request line: METHOD SP target SP HTTP/1.1 is expected");
    *target++ = '\0';
    *version++ = '\0';
    if (!is_token(method)) return bad(p, 400, "malformed method");
    if (!parse_version(p, version)) return false;
    if (version - target - 1 > HTTP1_TARGET_BYTES)
        return bad(p, 414, "request target longer than 8192 bytes");
    p->head.path = p->head.query = p->head.authority = 0;
    if (!find_method(method, &p->head.method)) return bad(p, 501, "method not supported");
    return parse_target(p, target);
}

/* --- fields --- */

/* Cuts "name: value" at the colon and trims the value. Returns the value, or NULL after refusing. */
static char *split_field(struct http1 *p, char *line) {
    if (is_blank(*line)) return bad(p, 400, "folded header line"), NULL;
    char *colon = line;
    while (is_token_char(*colon)) colon++;
    if (*colon != ':' || colon == line) return bad(p, 400, "malformed header name"), NULL;
    *colon = '\0';
    char *value = colon + 1;
    while (is_blank(*value)) value++;
    char *end = value + strlen(value);
    while (end > value && is_blank(end[-1])) end--;
    *end = '\0';
    return value;
}

static bool parse_field(struct http1 *p, char *line) {
    if (p->head.n_fields == HTTP1_MAX_FIELDS) return bad(p, 431, "more than 64 header fields");
    char *value = split_field(p, line);
    if (!value) return false;
    p->head.fields[p->head.n_fields++] =
        (struct http1_field){.name = (uint16_t)(line - p->text), .value = (uint16_t)(value - p->text)};
    return true;
}

const char *http1_field(const struct http1_head *head, const char *text, const char *name) {
    for (size_t i = 0; i < head->n_fields; i++)
        if (!strcasecmp(text + head->fields[i].name, name)) return text + head->fields[i].value;
    return NULL;
}

/* A comma-separated list holds the token, in any case. */
static bool list_has(const char *list, const char *token) {
    size_t want = strlen(token);
    while (*list) {
        list += strspn(list, " \t,");
        size_t n = strcspn(list, " \t,");
        if (n == want && !strncasecmp(list, token, n)) return true;
        list += n;
    }
    return false;
}

static bool wants_close(const struct http1 *p) {
    for (size_t i = 0; i < p->head.n_fields; i++)
        if (!strcasecmp(p->text + p->head.fields[i].name, "connection") &&
            list_has(p->text + p->head.fields[i].value, "close"))
            return true;
    return false;
}

/* A field that names the message's frame, target, type or sender must not be there twice: readers differ in
 * which one they take. */
static bool check_single_fields(struct http1 *p) {
    static const struct {
        const char *name, *reason;
    } single[] = {{"host", "Host given more than once"},
                  {"content-length", "Content-Length given more than once"},
                  {"transfer-encoding", "Transfer-Encoding given more than once"},
                  {"content-type", "Content-Type given more than once"},
                  {"content-encoding", "Content-Encoding given more than once"},
                  {"authorization", "Authorization given more than once"},
                  {"expect", "Expect given more than once"}};
    for (size_t s = 0; s < sizeof single / sizeof *single; s++) {
        size_t count = 0;
        for (size_t i = 0; i < p->head.n_fields; i++)
            count += !strcasecmp(p->text + p->head.fields[i].name, single[s].name);
        if (count > 1) return bad(p, 400, single[s].reason);
    }
    return true;
}

static bool check_host(struct http1 *p) {
    const char *host = http1_field(&p->head, p->text, "host");
    if (!host) return p->head.http10 || bad(p, 400, "Host is missing");
    if (*host && !is_authority(host)) return bad(p, 400, "malformed Host");
    if (!p->head.authority) p->head.authority = (uint16_t)(host - p->text);
    return true;
}

/* Digits to a number; UINT64_MAX, more than any limit, stands for all that are larger. */
static bool parse_length(const char *s, uint64_t *out) {
    uint64_t v = 0;
    bool over = false;
    if (!is_digit(*s)) return false;
    for (; is_digit(*s); s++) {
        over |= __builtin_mul_overflow(v, 10, &v);
        over |= __builtin_add_overflow(v, (uint64_t)(*s - '0'), &v);
    }
    *out = over ? UINT64_MAX : v;
    return !*s;
}

static bool check_framing(struct http1 *p) {
    const char *length = http1_field(&p->head, p->text, "content-length");
    const char *coding = http1_field(&p->head, p->text, "transfer-encoding");
    p->head.content_length = 0;
    p->head.chunked = coding;
    if (coding) {
        if (p->head.http10) return bad(p, 400, "Transfer-Encoding in an HTTP/1.0 request");
        if (length) return bad(p, 400, "both Content-Length and Transfer-Encoding");
        if (strcasecmp(coding, "chunked")) return bad(p, 501, "Transfer-Encoding other than \"chunked\"");
    }
    if (length) {
        if (!parse_length(length, &p->head.content_length))
            return bad(p, 400, "Content-Length is not a number");
        if (p->head.content_length > p->body_limit) return too_large(p);
    }
    return true;
}

static bool finish_head(struct http1 *p) {
    if (!check_single_fields(p) || !check_host(p) || !check_framing(p)) return false;
    const char *expect = http1_field(&p->head, p->text, "expect");
    if (expect && strcasecmp(expect, "100-continue"))
        return bad(p, 417, "expectation other than \"100-continue\"");
    p->head.expect_continue = expect && !p->head.http10 && (p->head.chunked || p->head.content_length);
    p->head.keep_alive = !p->head.http10 && !wants_close(p);
    p->head.text_bytes = (uint16_t)p->text_len;
    return true;
}

/* One line of the head was taken: parses it. Sets HEAD_DONE behind the last. */
static bool head_line(struct http1 *p) {
    char *line = p->text + p->text_len;
    bool empty = !p->line_len;
    p->text_len += p->line_len + 1;
    p->line_len = 0;
    if (p->state == START_LINE) {
        if (!parse_start_line(p)) return false;
        p->state = FIELDS;
        return true;
    }
    if (!empty) return parse_field(p, line);
    if (!finish_head(p)) return false;
    p->state = HEAD_DONE;
    return true;
}

static enum http1_event take_head(struct http1 *p, const char *data, size_t n, size_t *used) {
    while (p->state != HEAD_DONE) {
        bool start = p->state == START_LINE;
        size_t cap = start ? START_LINE_BYTES : HTTP1_HEAD_BYTES - p->text_len;
        switch (take_line(p, p->text + p->text_len, cap, data, n, used)) {
        case LINE_MORE: return HTTP1_MORE;
        case LINE_BAD: return refuse(p, 400, "control character or bare CR or LF in the head");
        case LINE_LONG:
            return start ? refuse(p, 414, "request target longer than 8192 bytes")
                         : refuse(p, 431, "head larger than 16384 bytes");
        case LINE_DONE: break;
        }
        if (!head_line(p)) return HTTP1_REFUSE;
    }
    return HTTP1_HEAD;
}

/* --- body --- */

static bool parse_chunk_size(struct http1 *p) {
    const char *s = p->line;
    uint64_t size = 0;
    for (; hex_value(*s) >= 0; s++) size = size >> 60 ? UINT64_MAX : size << 4 | (uint64_t)hex_value(*s);
    /* Extensions mean nothing to us; bytes that end a line elsewhere were refused before. */
    if (s == p->line || (*s && *s != ';')) return bad(p, 400, "malformed chunk size");
    if (size > p->body_limit - p->body_seen) return too_large(p);
    p->body_seen += size;
    p->chunk_left = size;
    p->state = size ? DATA : TRAILERS;
    return true;
}

/* Trailer fields are checked and dropped. */
static bool parse_trailer(struct http1 *p) {
    static const char *const forbidden[] = {"content-length",   "transfer-encoding", "host",
                                            "content-encoding", "content-type",      "authorization",
                                            "trailer"};
    if (!p->line_len) return p->state = DONE, true;
    if (++p->n_trailers > HTTP1_MAX_TRAILERS) return bad(p, 431, "more than 64 trailer fields");
    if (!split_field(p, p->line)) return false;
    for (size_t i = 0; i < sizeof forbidden / sizeof *forbidden; i++)
        if (!strcasecmp(p->line, forbidden[i])) return bad(p, 400, "field not allowed in a trailer");
    return true;
}

static enum http1_event refuse_chunk_line(struct http1 *p, enum line why) {
    if (p->state == CHUNK_END) return refuse(p, 400, "chunk data not followed by CRLF");
    if (why == LINE_BAD) return refuse(p, 400, "control character or bare CR or LF in a chunk line");
    return p->state == TRAILERS ? refuse(p, 431, "trailer field longer than 256 bytes")
                                : refuse(p, 400, "chunk size line longer than 256 bytes");
}

/* Lines between the data of a chunked body. True once there are data or the end; else *event says what. */
static bool take_chunk_lines(struct http1 *p, const char *data, size_t n, size_t *used,
                             enum http1_event *event) {
    while (p->state != DATA && p->state != DONE) {
        /* No room behind a chunk's data: anything but CRLF is refused at its first byte. */
        size_t cap = p->state == CHUNK_END ? 1 : HTTP1_LINE_BYTES;
        enum line got = take_line(p, p->line, cap, data, n, used);
        if (got == LINE_MORE) return *event = HTTP1_MORE, false;
        if (got != LINE_DONE) return *event = refuse_chunk_line(p, got), false;
        if (p->state == CHUNK_END) {
            p->state = CHUNK_SIZE;
        } else if (!(p->state == CHUNK_SIZE ? parse_chunk_size(p) : parse_trailer(p))) {
            return *event = HTTP1_REFUSE, false;
        }
        p->line_len = 0;
    }
    return true;
}

static enum http1_event take_body(struct http1 *p, const char *data, size_t n, size_t *used,
                                  struct http1_span *body) {
    enum http1_event event;
    if (p->state == HEAD_DONE) {
        p->chunk_left = p->head.content_length;
        p->state = p->head.chunked ? CHUNK_SIZE : p->chunk_left ? DATA : DONE;
    }
    if (!take_chunk_lines(p, data, n, used, &event)) return event;
    if (p->state == DONE) return HTTP1_END;

    size_t take = n - *used < p->chunk_left ? n - *used : (size_t)p->chunk_left;
    if (!take) return HTTP1_MORE;
    *body = (struct http1_span){.data = data + *used, .n = take};
    *used += take;
    p->chunk_left -= take;
    if (!p->chunk_left) p->state = p->head.chunked ? CHUNK_END : DONE;
    return HTTP1_BODY;
}

enum http1_event http1_next(struct http1 *p, const char *data, size_t n, size_t *used,
                            struct http1_span *body) {
    *used = 0;
    if (p->state == REFUSED) return HTTP1_REFUSE;
    if (p->state <= FIELDS) return take_head(p, data, n, used);
    return take_body(p, data, n, used, body);
}
