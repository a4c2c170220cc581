#include "fetch/hub_impl.h"

#include "base/error.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PUBLIC_ENDPOINT "https://huggingface.co"
#define MAX_ERROR_BYTES ((uint64_t)1 << 20) /* of an answer that says no; more is not waited for */
#define MAX_TRIES       4
#define MAX_REDIRECTS   8
#define STALL_S         60
#define FIRST_PAUSE_US  500000 /* doubled after each try */

int hub_client_open(const struct hub_options *options, struct hub_client *out, struct error *err) {
    const char *endpoint = options->endpoint && *options->endpoint ? options->endpoint : PUBLIC_ENDPOINT;
    size_t n = strlen(endpoint);
    *out = (struct hub_client){.token = options->token && *options->token ? options->token : NULL};
    if (strncmp(endpoint, "http://", 7) != 0 && strncmp(endpoint, "https://", 8) != 0)
        return error_set(err, QUIRE_EINVAL,
                         "HF_ENDPOINT is \"%.200s\": it must begin with http:// or https://", endpoint);
    while (endpoint[n - 1] == '/') n--;
    out->endpoint = strndup(endpoint, n);
    struct http_config config = {
        .bearer = out->token, .stall_s = STALL_S, .redirects = MAX_REDIRECTS, .n_at_once = 1};
    int rc =
        out->endpoint ? http_new(&config, &out->http, err) : error_set(err, QUIRE_ENOMEM, "out of memory");
    if (rc) hub_client_close(out);
    return rc;
}

void hub_client_close(struct hub_client *client) {
    http_free(client->http);
    free((char *)client->endpoint);
    *client = (struct hub_client){0};
}

void hub_url_add(struct buf *url, const char *text, bool keep_slashes) {
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                     strchr("-._~", c) || (c == '/' && keep_slashes);
        if (plain)
            buf_putc(url, (char)c);
        else
            buf_printf(url, "%%%02X", c);
    }
}

/* ---- one answer ---- */

struct reception {
    struct buf *body; /* or */
    uint64_t skip;    /* of it, at its beginning; to_bytes: where it ends, 0: at the answer's end */
    uint64_t to_bytes;
    FILE *file;
    uint64_t bytes, max_bytes; /* in the file */
    uint64_t error_bytes;
    struct progress *progress;
    int failed; /* errno of a write, or -1: more came than was announced */
    struct http_answer answer;
};

static bool succeeded(const struct http_answer *a) {
    return a->status == 200 || a->status == 206;
}

/* A server that has no ranges sends all from the beginning. */
static bool keep_part(struct reception *r, const struct http_answer *answer, const char *data, size_t n) {
    uint64_t skip = answer->status == 200 && r->to_bytes ? r->skip : 0;
    if (r->bytes < skip) {
        uint64_t over = skip - r->bytes < n ? skip - r->bytes : n;
        r->bytes += over;
        data += over;
        n -= (size_t)over;
    }
    uint64_t left = r->to_bytes ? r->to_bytes - r->skip - r->body->len : n;
    buf_append(r->body, data, n < left ? n : (size_t)left);
    return buf_ok(r->body) && (!r->to_bytes || r->body->len < r->to_bytes - r->skip);
}

static bool receive(void *user, const struct http_answer *answer, const char *data, size_t n) {
    struct reception *r = user;
    if (!succeeded(answer)) { /* what an error says is not kept */
        r->error_bytes += n;
        return r->error_bytes <= MAX_ERROR_BYTES;
    }
    if (r->body) return keep_part(r, answer, data, n);
    if (n > r->max_bytes - r->bytes) {
        r->failed = -1;
        return false;
    }
    if (fwrite(data, 1, n, r->file) != n) {
        r->failed = errno;
        return false;
    }
    r->bytes += n;
    progress_show(r->progress, r->bytes);
    return true;
}

static int status_error(const struct hub_client *client, unsigned status, const char *what,
                        struct error *err) {
    const char *token =
        client->token ? "HF_TOKEN may not read it" : "set HF_TOKEN to a token that may read it";
    switch (status) {
    case 401:
        return error_set(err, QUIRE_ENOTFOUND,
                         "%s: %s answers 401: there is none, or it is private or gated: %s", what,
                         client->endpoint, token);
    case 403:
        return error_set(err, QUIRE_ENOTFOUND,
                         "%s: %s answers 403: it is gated; accept its conditions on its page: %s", what,
                         client->endpoint, token);
    case 404:
        return error_set(err, QUIRE_ENOTFOUND, "%s: %s answers 404: there is none", what, client->endpoint);
    default: return error_set(err, QUIRE_EIO, "%s: %s answers %u", what, client->endpoint, status);
    }
}

/* *again: another try may do better. */
static int judge(const struct hub_client *client, const struct reception *r, const char *what, bool *again,
                 struct error *err) {
    const struct http_answer *a = &r->answer;
    if (r->failed > 0)
        return error_set(err, QUIRE_EIO, "%s cannot be written: %s", what, strerror(r->failed));
    if (r->failed)
        return error_set(err, QUIRE_EFORMAT, "%s: more than the %ju bytes announced came", what,
                         (uintmax_t)r->max_bytes);
    if (r->body && !buf_ok(r->body))
        return error_set(err, QUIRE_ELIMIT, "%s: the answer is larger than %zu MiB", what,
                         r->body->limit_bytes >> 20);
    if (a->status >= 400 || r->error_bytes > MAX_ERROR_BYTES || (a->end == HTTP_COMPLETE && !succeeded(a))) {
        *again = a->status == 429 || a->status >= 500;
        return status_error(client, a->status, what, err);
    }
    if (r->to_bytes && r->body->len == r->to_bytes - r->skip) return 0;
    if (r->to_bytes && a->end == HTTP_COMPLETE) {
        *again = true;
        return error_set(err, QUIRE_EIO, "%s: ended after %zu of %ju bytes", what, r->body->len,
                         (uintmax_t)(r->to_bytes - r->skip));
    }
    if (a->end == HTTP_COMPLETE) return 0;
    *again = a->end == HTTP_CONNECT || a->end == HTTP_TIMEOUT || a->end == HTTP_CUT;
    return error_set(err, QUIRE_EIO, "%s: %s", what, a->why);
}

/* One try, from r->bytes on. */
static int get(const struct hub_client *client, const char *url, const char *what, struct reception *r,
               bool *again, struct error *err) {
    struct http_request q = {.url = url,
                             .from_bytes = r->to_bytes ? r->skip : r->bytes,
                             .to_bytes = r->to_bytes,
                             .receive = receive,
                             .user = r};
    *again = false;
    int rc = http_perform(client->http, &q, &r->answer, err);
    return rc ? rc : judge(client, r, what, again, err);
}

static void pause_before(unsigned n_tries, const char *what) {
    useconds_t us = FIRST_PAUSE_US << (n_tries - 1);
    fprintf(stderr, "  %s: interrupted, again in %.1f s\n", what, us / 1e6);
    usleep(us);
}

int hub_get(struct hub_client *client, const char *url, const char *what, struct buf *out,
            struct error *err) {
    return hub_get_range(client, url, what, 0, 0, out, err);
}

int hub_get_range(struct hub_client *client, const char *url, const char *what, uint64_t from, uint64_t to,
                  struct buf *out, struct error *err) {
    bool again;
    for (unsigned n_tries = 1;; n_tries++) {
        struct reception r = {.body = out, .skip = from, .to_bytes = to};
        buf_clear(out);
        int rc = get(client, url, what, &r, &again, err);
        if (!rc || !again || n_tries == MAX_TRIES) return rc;
        pause_before(n_tries, what);
    }
}

/* ---- files ---- */

/* Goes on after r->bytes. The file is cut back where the server does not go on. */
static int get_rest(struct hub_client *client, const char *url, const char *name, struct reception *r,
                    bool *again, struct error *err) {
    int rc = get(client, url, name, r, again, err);
    unsigned status = r->answer.status;
    bool starts_over =
        status == 416 || (status == 200 && rc && r->progress->first_bytes == r->bytes && r->bytes);
    if (starts_over && !fflush(r->file) && !ftruncate(fileno(r->file), 0)) {
        rewind(r->file);
        r->bytes = 0;
        *again = true;
    }
    if (!rc && r->bytes < r->max_bytes) {
        *again = true;
        rc = error_set(err, QUIRE_EIO, "%s: ended after %ju of %ju bytes", name, (uintmax_t)r->bytes,
                       (uintmax_t)r->max_bytes);
    }
    return rc;
}

int hub_get_file(struct hub_client *client, const char *url, const struct hub_file *file, const char *path,
                 struct error *err) {
    struct stat st;
    struct progress progress;
    FILE *f = fopen(path, "ab");
    if (!f || fstat(fileno(f), &st)) {
        if (f) fclose(f);
        return error_set(err, QUIRE_EIO, "cannot write %s: %s", path, strerror(errno));
    }
    struct reception r = {
        .file = f, .bytes = (uint64_t)st.st_size, .max_bytes = file->bytes, .progress = &progress};
    if (r.bytes > r.max_bytes && !ftruncate(fileno(f), 0)) r.bytes = 0;
    bool again = false;
    int rc = 0;
    for (unsigned n_tries = 1; r.bytes < r.max_bytes; n_tries++) {
        progress_start(&progress, file->path, r.bytes, r.max_bytes);
        r.error_bytes = 0;
        r.failed = 0;
        rc = get_rest(client, url, file->path, &r, &again, err);
        progress_end(&progress, r.bytes);
        if (!rc || !again || n_tries == MAX_TRIES) break;
        pause_before(n_tries, file->path);
    }
    if (fclose(f) && !rc) rc = error_set(err, QUIRE_EIO, "cannot write %s: %s", path, strerror(errno));
    return rc;
}
