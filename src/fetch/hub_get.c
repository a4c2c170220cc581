#include "fetch/hub_impl.h"

#include "base/error.h"

#include <curl/curl.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PUBLIC_ENDPOINT "https://huggingface.co"
#define MAX_ERROR_BYTES ((uint64_t)1 << 20) /* of an answer that says no; more is not waited for */
#define MAX_TRIES       4
#define FIRST_PAUSE_US  500000 /* doubled after each try */

int hub_client_open(const struct hub_options *options, struct hub_client *out, struct error *err) {
    const char *endpoint = options->endpoint && *options->endpoint ? options->endpoint : PUBLIC_ENDPOINT;
    size_t n = strlen(endpoint);
    *out = (struct hub_client){.token = options->token && *options->token ? options->token : NULL};
    if (strncmp(endpoint, "http://", 7) != 0 && strncmp(endpoint, "https://", 8) != 0)
        return error_set(err, QUIRE_EINVAL,
                         "HF_ENDPOINT is \"%.200s\": it must begin with http:// or https://", endpoint);
    while (endpoint[n - 1] == '/') n--;
    char *own = strndup(endpoint, n);
    out->endpoint = own;
    out->curl = curl_easy_init();
    if (own && out->curl) return 0;
    hub_client_close(out);
    return error_set(err, QUIRE_ENOMEM, "out of memory");
}

void hub_client_close(struct hub_client *client) {
    if (client->curl) curl_easy_cleanup(client->curl);
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

struct answer {
    CURL *curl;
    struct buf *body; /* or */
    FILE *file;
    uint64_t bytes, max_bytes; /* in the file */
    uint64_t error_bytes;
    struct progress *progress;
    int failed; /* errno of a write, or -1: more came than was announced */
};

static size_t receive(char *data, size_t size, size_t n, void *user) {
    struct answer *a = user;
    long status = 0;
    n *= size;
    curl_easy_getinfo(a->curl, CURLINFO_RESPONSE_CODE, &status);
    if (status != 200 && status != 206) { /* what an error says is not kept */
        a->error_bytes += n;
        return a->error_bytes <= MAX_ERROR_BYTES ? n : 0;
    }
    if (a->body) {
        buf_append(a->body, data, n);
        return buf_ok(a->body) ? n : 0;
    }
    if (n > a->max_bytes - a->bytes) {
        a->failed = -1;
        return 0;
    }
    if (fwrite(data, 1, n, a->file) != n) {
        a->failed = errno;
        return 0;
    }
    a->bytes += n;
    progress_show(a->progress, a->bytes);
    return n;
}

static void set_up(const struct hub_client *client, const char *url, struct answer *a, char *why) {
    CURL *curl = client->curl;
    a->curl = curl;
    curl_easy_reset(curl);
    curl_easy_setopt(curl, CURLOPT_URL, url);
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, why);
    curl_easy_setopt(curl, CURLOPT_USERAGENT, "quire");
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, 30L);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1L); /* nothing for a minute */
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, 60L);
    curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 1L);
    curl_easy_setopt(curl, CURLOPT_MAXREDIRS, 8L);
    bool secure = !strncmp(url, "https:", 6); /* and stays so */
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(curl, CURLOPT_REDIR_PROTOCOLS_STR, secure ? "https" : "http,https");
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, receive);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, a);
    if (client->token) { /* curl does not send it on to other hosts */
        curl_easy_setopt(curl, CURLOPT_HTTPAUTH, CURLAUTH_BEARER);
        curl_easy_setopt(curl, CURLOPT_XOAUTH2_BEARER, client->token);
    }
}

static int status_error(const struct hub_client *client, long status, const char *what, struct error *err) {
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
    default: return error_set(err, QUIRE_EIO, "%s: %s answers %ld", what, client->endpoint, status);
    }
}

/* Runs it. *again: another try may do better. */
static int perform(const struct hub_client *client, const struct answer *a, const char *what, const char *why,
                   bool *again, struct error *err) {
    CURLcode rc = curl_easy_perform(a->curl);
    long status = 0;
    curl_easy_getinfo(a->curl, CURLINFO_RESPONSE_CODE, &status);
    *again = false;
    if (a->failed > 0)
        return error_set(err, QUIRE_EIO, "%s cannot be written: %s", what, strerror(a->failed));
    if (a->failed)
        return error_set(err, QUIRE_EFORMAT, "%s: more than the %ju bytes announced came", what,
                         (uintmax_t)a->max_bytes);
    if (a->body && !buf_ok(a->body))
        return error_set(err, QUIRE_ELIMIT, "%s: the answer is larger than %zu MiB", what,
                         a->body->limit_bytes >> 20);
    if (status >= 400 || a->error_bytes > MAX_ERROR_BYTES || (!rc && status != 200 && status != 206)) {
        *again = status == 429 || status >= 500;
        return status_error(client, status, what, err);
    }
    if (!rc) return 0;
    *again = rc != CURLE_UNSUPPORTED_PROTOCOL && rc != CURLE_URL_MALFORMAT &&
             rc != CURLE_COULDNT_RESOLVE_HOST && rc != CURLE_PEER_FAILED_VERIFICATION &&
             rc != CURLE_TOO_MANY_REDIRECTS;
    return error_set(err, QUIRE_EIO, "%s: %s", what, *why ? why : curl_easy_strerror(rc));
}

static void pause_before(unsigned n_tries, const char *what) {
    useconds_t us = FIRST_PAUSE_US << (n_tries - 1);
    fprintf(stderr, "  %s: interrupted, again in %.1f s\n", what, us / 1e6);
    usleep(us);
}

int hub_get(struct hub_client *client, const char *url, const char *what, struct buf *out,
            struct error *err) {
    char why[CURL_ERROR_SIZE];
    bool again;
    for (unsigned n_tries = 1;; n_tries++) {
        struct answer a = {.body = out};
        *why = 0;
        buf_clear(out);
        set_up(client, url, &a, why);
        int rc = perform(client, &a, what, why, &again, err);
        if (!rc || !again || n_tries == MAX_TRIES) return rc;
        pause_before(n_tries, what);
    }
}

/* ---- files ---- */

/* Goes on after a->bytes. The file is cut back where the server does not go on. */
static int get_rest(struct hub_client *client, const char *url, const char *name, struct answer *a,
                    bool *again, struct error *err) {
    char why[CURL_ERROR_SIZE] = "";
    long status = 0;
    set_up(client, url, a, why);
    curl_easy_setopt(a->curl, CURLOPT_RESUME_FROM_LARGE, (curl_off_t)a->bytes);
    int rc = perform(client, a, name, why, again, err);
    curl_easy_getinfo(a->curl, CURLINFO_RESPONSE_CODE, &status);
    bool starts_over =
        status == 416 || (status == 200 && rc && a->progress->first_bytes == a->bytes && a->bytes);
    if (starts_over && !fflush(a->file) && !ftruncate(fileno(a->file), 0)) {
        rewind(a->file);
        a->bytes = 0;
        *again = true;
    }
    if (!rc && a->bytes < a->max_bytes) {
        *again = true;
        rc = error_set(err, QUIRE_EIO, "%s: ended after %ju of %ju bytes", name, (uintmax_t)a->bytes,
                       (uintmax_t)a->max_bytes);
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
    struct answer a = {
        .file = f, .bytes = (uint64_t)st.st_size, .max_bytes = file->bytes, .progress = &progress};
    if (a.bytes > a.max_bytes && !ftruncate(fileno(f), 0)) a.bytes = 0;
    bool again = false;
    int rc = 0;
    for (unsigned n_tries = 1; a.bytes < a.max_bytes; n_tries++) {
        progress_start(&progress, file->path, a.bytes, a.max_bytes);
        rc = get_rest(client, url, file->path, &a, &again, err);
        progress_end(&progress, a.bytes);
        if (!rc || !again || n_tries == MAX_TRIES) break;
        pause_before(n_tries, file->path);
    }
    if (fclose(f) && !rc) rc = error_set(err, QUIRE_EIO, "cannot write %s: %s", path, strerror(errno));
    return rc;
}
