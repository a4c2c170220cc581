/* Of .gguf files on a hub only what describes them: their beginnings, by ranges. Each becomes a file of the
 * whole one's length, with nothing behind its beginning (a sparse file: what was not written takes no room). In
 * the cache they are below headers/COMMIT/, apart from files that are whole. */
#include "fetch/hub_impl.h"

#include "base/error.h"
#include "fetch/cache.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FIRST_BYTES ((uint64_t)1 << 20) /* then four times as many, */
#define MOST_BYTES  ((uint64_t)1 << 28) /* up to this */

struct headers {
    struct hub_client *client;
    const struct hub_ref *ref;
    const struct hub_repo *repo;
    const struct hub_choice *choice;
    const char *folder; /* of the model */
    uint64_t fetched;   /* bytes of all files that came */
};

/* The place of a file while its beginning is fetched, or when it is there; its folder is made. */
static int place_of(const struct headers *h, const struct hub_file *f, bool whole, char **out,
                    struct error *err) {
    int rc = cache_path(out, err, "%s/headers/%s%s/%s", h->folder, h->repo->commit, whole ? "" : ".part",
                        f->path);
    if (rc) return rc;
    char *slash = strrchr(*out, '/');
    *slash = 0;
    rc = cache_make_folders(*out, err);
    *slash = '/';
    return rc;
}

static bool all_there(const struct headers *h) {
    bool there = true;
    for (size_t i = 0; i < h->choice->n && there; i++) {
        struct stat st;
        char *place = NULL;
        there = !place_of(h, h->choice->files[i], true, &place, NULL) && !stat(place, &st) &&
                (uint64_t)st.st_size == h->choice->files[i]->bytes;
        free(place);
    }
    return there;
}

static int write_at(const char *place, const struct hub_file *f, uint64_t from, const struct buf *data,
                    struct error *err) {
    int fd = open(place, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    bool ok = fd >= 0 && pwrite(fd, data->data, data->len, (off_t)from) == (ssize_t)data->len &&
              !ftruncate(fd, (off_t)f->bytes);
    int why = errno;
    if (fd >= 0) close(fd);
    return ok ? 0
              : error_set(err, QUIRE_EIO, "cannot write %.200s, of %ju bytes: %s", place,
                          (uintmax_t)f->bytes, strerror(why));
}

/* Bytes [from, to) of a file, or as many as it has. */
static int fetch_range(struct headers *h, const struct hub_file *f, uint64_t from, uint64_t to,
                       struct error *err) {
    struct buf url = BUF_INIT, data = {.limit_bytes = MOST_BYTES};
    char *place = NULL;
    if (to > f->bytes) to = f->bytes;
    if (from && from >= to) return 0;
    hub_file_url(h->client, h->ref, h->repo, f, &url);
    int rc = buf_ok(&url) ? 0 : error_set(err, QUIRE_ENOMEM, "out of memory");
    if (!rc && to) rc = hub_get_range(h->client, url.data, f->path, from, to, &data, err);
    if (!rc) rc = place_of(h, f, false, &place, err);
    if (!rc) rc = write_at(place, f, from, &data, err);
    h->fetched += data.len;
    free(place);
    buf_free(&url);
    buf_free(&data);
    return rc;
}

/* Until the beginnings are enough for who knows what is in such files. */
static int fetch_enough(struct headers *h, const struct hub_options *o, struct error *err) {
    char *first = NULL;
    int rc = place_of(h, h->choice->files[0], false, &first, err);
    int enough = 0;
    for (uint64_t from = 0, to = FIRST_BYTES; !rc && !enough && from < MOST_BYTES; from = to, to *= 4) {
        for (size_t i = 0; i < h->choice->n && !rc; i++)
            rc = fetch_range(h, h->choice->files[i], from, to, err);
        if (!rc) enough = o->is_enough(o->ctx, first, to, err);
    }
    free(first);
    return rc ? rc : enough > 0 ? 0 : err->code;
}

static int keep(const struct headers *h, struct error *err) {
    int rc = 0;
    for (size_t i = 0; i < h->choice->n && !rc; i++) {
        char *from = NULL, *to = NULL;
        rc = place_of(h, h->choice->files[i], false, &from, err);
        if (!rc) rc = place_of(h, h->choice->files[i], true, &to, err);
        if (!rc && rename(from, to))
            rc = error_set(err, QUIRE_EIO, "cannot write %.200s: %s", to, strerror(errno));
        free(from);
        free(to);
    }
    return rc;
}

int hub_headers(struct hub_client *client, const struct hub_ref *ref, const struct hub_repo *repo,
                const struct hub_choice *choice, const char *folder, const struct hub_options *o, char **path,
                struct error *err) {
    struct headers h = {client, ref, repo, choice, folder, 0};
    uint64_t all = 0;
    int rc = 0;
    for (size_t i = 0; i < choice->n; i++) all += choice->files[i]->bytes;
    if (!all_there(&h)) {
        rc = fetch_enough(&h, o, err);
        if (!rc) *err = (struct error){0}; /* of beginnings that were too short */
        if (!rc) rc = keep(&h, err);
        if (!rc)
            fprintf(stderr, "read the descriptions in %s/%s: %.1f MB of %.1f MB\n", ref->org, ref->name,
                    (double)h.fetched / 1e6, (double)all / 1e6);
    }
    if (!rc && o->left_bytes) *o->left_bytes = all;
    return rc ? rc : place_of(&h, choice->files[0], true, path, err);
}
