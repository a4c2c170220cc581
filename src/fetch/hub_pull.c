#include "fetch/hub_impl.h"

#include "base/error.h"
#include "fetch/cache.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* ---- places in the cache ---- */

static int model_folder(const struct hub_ref *ref, char **out, struct error *err) {
    char *cache = NULL;
    int rc = cache_folder(&cache, err);
    if (!rc) rc = cache_path(out, err, "%s/hub/%s/%s", cache, ref->org, ref->name);
    free(cache);
    return rc;
}

/* refs/REVISION or refs/REVISION:PICK, as one file name. */
static int ref_path(const struct hub_ref *ref, const char *folder, char **out, struct error *err) {
    struct buf name = BUF_INIT;
    hub_url_add(&name, ref->revision, false);
    if (*ref->pick) {
        buf_putc(&name, ':');
        hub_url_add(&name, ref->pick, false);
    }
    int rc = !buf_ok(&name)        ? error_set(err, QUIRE_ENOMEM, "out of memory")
             : name.len > NAME_MAX ? error_set(err, QUIRE_ELIMIT, "the reference is too long for a file name")
                                   : cache_path(out, err, "%s/refs/%s", folder, name.data);
    buf_free(&name);
    return rc;
}

/* What the reference leads to: "COMMIT" or "COMMIT/FILE", below the model's folder. */
static int read_ref(const char *path, char *out, size_t size) {
    FILE *f = fopen(path, "r");
    size_t n = f ? fread(out, 1, size - 1, f) : 0;
    if (f) fclose(f);
    out[n] = 0;
    out[strcspn(out, "\n")] = 0;
    return n ? 0 : QUIRE_ENOTFOUND;
}

static int write_ref(const char *path, const char *target, struct error *err) {
    char *temp = NULL;
    int rc = cache_path(&temp, err, "%s.part", path);
    FILE *f = rc ? NULL : fopen(temp, "w");
    bool ok = f && fprintf(f, "%s\n", target) > 0;
    if (f) ok = !fclose(f) && ok;
    if (!rc && (!ok || rename(temp, path)))
        rc = error_set(err, QUIRE_EIO, "cannot write %s: %s", path, strerror(errno));
    free(temp);
    return rc;
}

int hub_cached(const struct hub_ref *ref, char **path, struct error *err) {
    char *folder = NULL, *link = NULL, *found = NULL;
    char target[1024];
    struct stat st;
    *path = NULL;
    int rc = model_folder(ref, &folder, err);
    if (!rc) rc = ref_path(ref, folder, &link, err);
    if (!rc && !read_ref(link, target, sizeof target)) rc = cache_path(&found, err, "%s/%s", folder, target);
    if (found && !stat(found, &st)) {
        *path = found;
        found = NULL;
    }
    free(found);
    free(link);
    free(folder);
    return rc;
}

/* ---- pulling ---- */

struct pull {
    struct hub_client client;
    const struct hub_ref *ref;
    struct hub_repo repo;
    struct hub_choice choice;
    char *folder; /* of the model */
    int lock;     /* -1: none */
};

static int take_lock(struct pull *p, struct error *err) {
    char *path = NULL;
    int rc = cache_path(&path, err, "%s/refs", p->folder);
    if (!rc) rc = cache_make_folders(path, err);
    free(path);
    path = NULL;
    if (!rc) rc = cache_path(&path, err, "%s/.lock", p->folder);
    if (!rc && (p->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644)) < 0)
        rc = error_set(err, QUIRE_EIO, "cannot write %s: %s", path, strerror(errno));
    free(path);
    if (rc || !flock(p->lock, LOCK_EX | LOCK_NB)) return rc;
    fprintf(stderr, "waiting for another pull of %s/%s\n", p->ref->org, p->ref->name);
    while (flock(p->lock, LOCK_EX))
        if (errno != EINTR)
            return error_set(err, QUIRE_EIO, "cannot lock the folder %s: %s", p->folder, strerror(errno));
    return 0;
}

static int ask(struct pull *p, struct error *err) {
    char what[2 * HUB_PART_BYTES + HUB_NAME_BYTES];
    struct buf url = BUF_INIT, list = {.limit_bytes = HUB_LIST_MAX_BYTES};
    bool is_main = !strcmp(p->ref->revision, "main");
    snprintf(what, sizeof what, "%s/%s%s%s", p->ref->org, p->ref->name, is_main ? "" : "@",
             is_main ? "" : p->ref->revision);
    buf_printf(&url, "%s/api/models/%s/%s/revision/", p->client.endpoint, p->ref->org, p->ref->name);
    hub_url_add(&url, p->ref->revision, false);
    buf_puts(&url, "?blobs=true");
    int rc = buf_ok(&url) ? hub_get(&p->client, url.data, what, &list, err)
                          : error_set(err, QUIRE_ENOMEM, "out of memory");
    if (!rc) {
        rc = hub_list_parse(list.data ? list.data : "", list.len, &p->repo, err);
        if (!rc) rc = hub_pick(&p->repo, p->ref->pick, &p->choice, err);
        if (rc) error_prefix(err, "%s", what);
    }
    buf_free(&url);
    buf_free(&list);
    return rc;
}

/* The place of a file, and of its folder, which is made. */
static int file_place(const struct pull *p, const struct hub_file *f, char **out, struct error *err) {
    int rc = cache_path(out, err, "%s/%s/%s", p->folder, p->repo.commit, f->path);
    if (rc) return rc;
    char *slash = strrchr(*out, '/');
    *slash = 0;
    rc = cache_make_folders(*out, err);
    *slash = '/';
    return rc;
}

void hub_file_url(const struct hub_client *client, const struct hub_ref *ref, const struct hub_repo *repo,
                  const struct hub_file *file, struct buf *url) {
    buf_printf(url, "%s/%s/%s/resolve/%s/", client->endpoint, ref->org, ref->name, repo->commit);
    hub_url_add(url, file->path, true);
}

static int fetch(struct pull *p, const struct hub_file *f, const char *place, struct error *err) {
    char *part = NULL;
    struct buf url = BUF_INIT;
    int rc = cache_path(&part, err, "%s.part", place);
    hub_file_url(&p->client, p->ref, &p->repo, f, &url);
    if (!rc && !buf_ok(&url)) rc = error_set(err, QUIRE_ENOMEM, "out of memory");
    if (!rc) rc = hub_get_file(&p->client, url.data, f, part, err);
    if (!rc) {
        rc = digest_check(part, f->kind, f->digest, f->path, err);
        if (rc == QUIRE_EFORMAT) unlink(part);
    }
    if (!rc && rename(part, place))
        rc = error_set(err, QUIRE_EIO, "cannot write %s: %s", place, strerror(errno));
    buf_free(&url);
    free(part);
    return rc;
}

static bool is_there(const struct hub_file *f, const char *place) {
    struct stat st;
    return !stat(place, &st) && (uint64_t)st.st_size == f->bytes;
}

/* Bytes of f that the cache lacks. */
static uint64_t missing_bytes(const struct hub_file *f, const char *place) {
    struct stat st;
    char *part = NULL;
    uint64_t there = 0;
    if (!cache_path(&part, NULL, "%s.part", place) && !stat(part, &st) && (uint64_t)st.st_size <= f->bytes)
        there = (uint64_t)st.st_size;
    free(part);
    return f->bytes - there;
}

static int check_space(const struct pull *p, uint64_t bytes, struct error *err) {
    struct statvfs fs;
    if (statvfs(p->folder, &fs)) return 0;
    uint64_t free_bytes = (uint64_t)fs.f_bavail * fs.f_frsize;
    if (bytes <= free_bytes) return 0;
    return error_set(err, QUIRE_ELIMIT,
                     "%.1f MB are to be fetched, but %s has %.1f MB free (QUIRE_CACHE moves the cache)",
                     (double)bytes / 1e6, p->folder, (double)free_bytes / 1e6);
}

/* Files that the cache lacks, and their bytes; the folders of all are made. */
static int count_missing(const struct pull *p, size_t *n, uint64_t *bytes, struct error *err) {
    int rc = 0;
    for (size_t i = 0; i < p->choice.n && !rc; i++) {
        const struct hub_file *f = p->choice.files[i];
        char *place = NULL;
        rc = file_place(p, f, &place, err);
        if (!rc && !is_there(f, place)) {
            *bytes += missing_bytes(f, place);
            ++*n;
        }
        free(place);
    }
    return rc;
}

static int fetch_missing(struct pull *p, struct error *err) {
    int rc = 0;
    for (size_t i = 0; i < p->choice.n && !rc; i++) {
        const struct hub_file *f = p->choice.files[i];
        char *place = NULL;
        rc = file_place(p, f, &place, err);
        if (!rc && !is_there(f, place)) rc = fetch(p, f, place, err);
        free(place);
    }
    return rc;
}

static int fetch_all(struct pull *p, struct error *err) {
    uint64_t bytes = 0;
    size_t n = 0;
    int rc = count_missing(p, &n, &bytes, err);
    if (!rc) rc = check_space(p, bytes, err);
    if (rc || !n) return rc;
    fprintf(stderr, "pulling %s/%s: %zu file%s, %.1f MB\n", p->ref->org, p->ref->name, n, n == 1 ? "" : "s",
            (double)bytes / 1e6);
    return fetch_missing(p, err);
}

static int finish(const struct pull *p, char **path, struct error *err) {
    char *target = NULL, *link = NULL;
    const char *file = p->choice.gguf;
    int rc = cache_path(&target, err, "%s%s%s", p->repo.commit, file ? "/" : "", file ? file : "");
    if (!rc) rc = ref_path(p->ref, p->folder, &link, err);
    if (!rc) rc = write_ref(link, target, err);
    if (!rc) rc = cache_path(path, err, "%s/%s", p->folder, target);
    free(target);
    free(link);
    return rc;
}

/* Only what describes the model in a folder stays chosen. */
static void leave_weights(struct pull *p, const struct hub_options *o) {
    static const char suffix[] = ".safetensors";
    size_t n = 0;
    uint64_t left = 0;
    for (size_t i = 0; i < p->choice.n; i++) {
        const struct hub_file *f = p->choice.files[i];
        size_t len = strlen(f->path);
        if (len >= strlen(suffix) && !strcmp(f->path + len - strlen(suffix), suffix))
            left += f->bytes;
        else if (strcmp(f->path, "model.safetensors.index.json") != 0)
            p->choice.files[n++] = f;
    }
    p->choice.n = n;
    if (o->left_bytes) *o->left_bytes = left;
}

/* With the lock. Files that are there are not described by their beginnings. */
static int describe(struct pull *p, const struct hub_options *o, char **path, struct error *err) {
    uint64_t bytes = 0;
    size_t n = 0;
    int rc = 0;
    if (!p->choice.gguf) {
        leave_weights(p, o);
        rc = fetch_all(p, err);
        return rc ? rc : cache_path(path, err, "%s/%s", p->folder, p->repo.commit);
    }
    rc = count_missing(p, &n, &bytes, err);
    if (rc || !n) return rc ? rc : finish(p, path, err);
    return hub_headers(&p->client, p->ref, &p->repo, &p->choice, p->folder, o, path, err);
}

static int fetch_whole(struct pull *p, char **path, struct error *err) {
    int rc = fetch_all(p, err);
    return rc ? rc : finish(p, path, err);
}

int hub_pull(const struct hub_ref *ref, const struct hub_options *options, char **path, struct error *err) {
    struct pull p = {.ref = ref, .lock = -1};
    int rc = hub_client_open(options, &p.client, err);
    if (!rc) rc = model_folder(ref, &p.folder, err);
    if (!rc) rc = ask(&p, err);
    if (!rc) rc = take_lock(&p, err);
    if (!rc) rc = options->description ? describe(&p, options, path, err) : fetch_whole(&p, path, err);
    if (p.lock >= 0) close(p.lock);
    hub_choice_free(&p.choice);
    hub_list_free(&p.repo);
    hub_client_close(&p.client);
    free(p.folder);
    return rc;
}
