/* What the files of the hub client share. */
#ifndef FETCH_HUB_IMPL_H
#define FETCH_HUB_IMPL_H

#include "base/buf.h"
#include "fetch/digest.h"
#include "fetch/hub.h"
#include "http/http.h"

#include <stddef.h>
#include <stdint.h>

struct hub_file {
    char *path; /* relative, '/' between folders, checked: it stays within a folder */
    uint64_t bytes;
    enum digest_kind kind;
    char digest[DIGEST_HEX_BYTES];
};

/* One commit of a repository. */
struct hub_repo {
    char commit[DIGEST_HEX_BYTES];
    struct hub_file *files;
    size_t n_files;
};

/* ---- hub_list.c: the hub's description of a repository ---- */

#define HUB_LIST_MAX_BYTES ((size_t)32 << 20)
#define HUB_LIST_MAX_FILES 20000

/* QUIRE_EFORMAT names the field or the file. */
int hub_list_parse(const char *json, size_t len, struct hub_repo *out, struct error *err);
void hub_list_free(struct hub_repo *repo);

/* ---- hub_pick.c: which of them ---- */

struct hub_choice {
    const struct hub_file **files; /* into the repo */
    size_t n;
    const char *gguf; /* path of the (first) .gguf file; NULL: it is a folder */
};

/* QUIRE_ENOTFOUND lists what there is. */
int hub_pick(const struct hub_repo *repo, const char *pick, struct hub_choice *out, struct error *err);
void hub_choice_free(struct hub_choice *choice);

/* ---- hub_get.c: HTTP ---- */

struct hub_client {
    const char *endpoint; /* without a '/' at its end */
    const char *token;    /* or NULL */
    struct http *http;
};

int hub_client_open(const struct hub_options *options, struct hub_client *out, struct error *err);
void hub_client_close(struct hub_client *client);

/* Appends to url, all but letters, digits and "-._~" (and '/', if asked) in percent form. */
void hub_url_add(struct buf *url, const char *text, bool keep_slashes);

/* The body of an answer of status 200, up to out->limit_bytes. what: for messages. */
int hub_get(struct hub_client *client, const char *url, const char *what, struct buf *out, struct error *err);

/* Bytes [from, to) of a file that has them. */
int hub_get_range(struct hub_client *client, const char *url, const char *what, uint64_t from, uint64_t to,
                  struct buf *out, struct error *err);

/* Where a file of the commit comes from; buf_ok says whether there was memory. */
void hub_file_url(const struct hub_client *client, const struct hub_ref *ref, const struct hub_repo *repo,
                  const struct hub_file *file, struct buf *url);

/* To a file that may hold the first bytes already; it ends with all of them or an error, and what has come
 * stays. */
int hub_get_file(struct hub_client *client, const char *url, const struct hub_file *file, const char *path,
                 struct error *err);

/* ---- hub_headers.c: beginnings of files ---- */

/* *path: the first of the choice's files, malloc'd. folder: the model's, locked. */
int hub_headers(struct hub_client *client, const struct hub_ref *ref, const struct hub_repo *repo,
                const struct hub_choice *choice, const char *folder, const struct hub_options *options,
                char **path, struct error *err);

/* ---- progress.c: a bar on a terminal, a line a file elsewhere ---- */

struct progress {
    const char *name;
    uint64_t total_bytes, first_bytes; /* first: those that were there before */
    uint64_t start_us, shown_us;
    bool terminal;
};

void progress_start(struct progress *p, const char *name, uint64_t first_bytes, uint64_t total_bytes);
void progress_show(struct progress *p, uint64_t bytes);
void progress_end(struct progress *p, uint64_t bytes);

#endif
