/* The other half of the codec: heads of responses. */
#include "net/http1.h"

#include "base/error.h"

#include <string.h>
#include <strings.h>

const char *http_status_text(unsigned status) {
    switch (status) {
    case 200: return "OK";
    case 201: return "Created";
    case 202: return "Accepted";
    case 204: return "No Content";
    case 304: return "Not Modified";
    case 400: return "Bad Request";
    case 401: return "Unauthorized";
    case 403: return "Forbidden";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 406: return "Not Acceptable";
    case 408: return "Request Timeout";
    case 409: return "Conflict";
    case 411: return "Length Required";
    case 413: return "Content Too Large";
    case 414: return "URI Too Long";
    case 415: return "Unsupported Media Type";
    case 417: return "Expectation Failed";
    case 422: return "Unprocessable Content";
    case 429: return "Too Many Requests";
    case 431: return "Request Header Fields Too Large";
    case 500: return "Internal Server Error";
    case 501: return "Not Implemented";
    case 502: return "Bad Gateway";
    case 503: return "Service Unavailable";
    case 504: return "Gateway Timeout";
    case 505: return "HTTP Version Not Supported";
    default: return "Unknown";
    }
}

static bool is_token(const char *s) {
    size_t n = strspn(s, "!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz");
    return n && !s[n];
}

static bool is_value(const char *s) {
    for (; *s; s++)
        if (((unsigned char)*s < 0x20 && *s != '\t') || *s == 0x7f) return false;
    return true;
}

static bool is_framing(const char *name) {
    static const char *const framing[] = {"connection", "content-length", "transfer-encoding", "date",
                                          "trailer",    "upgrade",        "keep-alive"};
    for (size_t i = 0; i < sizeof framing / sizeof *framing; i++)
        if (!strcasecmp(framing[i], name)) return true;
    return false;
}

static int check_headers(const struct http_header *headers, size_t n, struct error *err) {
    for (size_t i = 0; i < n; i++) {
        if (!is_token(headers[i].name))
            return error_set(err, QUIRE_EINVAL, "response header name \"%s\" is not a token",
                             headers[i].name);
        if (is_framing(headers[i].name))
            return error_set(err, QUIRE_EINVAL, "response header %s is set by the server", headers[i].name);
        if (!is_value(headers[i].value))
            return error_set(err, QUIRE_EINVAL, "response header %s has a control character",
                             headers[i].name);
    }
    return 0;
}

int http1_put_headers(struct buf *out, const struct http_header *headers, size_t n, struct error *err) {
    int rc = check_headers(headers, n, err);
    if (rc) return rc;
    for (size_t i = 0; i < n; i++) {
        buf_puts(out, headers[i].name);
        buf_puts(out, ": ");
        buf_puts(out, headers[i].value);
        buf_puts(out, "\r\n");
    }
    return buf_ok(out) ? 0 : error_set(err, QUIRE_ENOMEM, "out of memory for a response head");
}

int http1_put_head(struct buf *out, unsigned status, const struct http_header *headers, size_t n,
                   struct error *err) {
    if (status < 200 || status > 599)
        return error_set(err, QUIRE_EINVAL, "response status %u: 200 to 599 is allowed", status);
    int rc = check_headers(headers, n, err);
    if (rc) return rc;
    buf_printf(out, "HTTP/1.1 %u %s\r\n", status, http_status_text(status));
    return http1_put_headers(out, headers, n, err);
}
