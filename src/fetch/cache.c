#include "fetch/cache.h"

#include "base/error.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int cache_path(char **out, struct error *err, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    int n = vasprintf(out, fmt, args);
    va_end(args);
    if (n >= 0) return 0;
    *out = NULL;
    return error_set(err, QUIRE_ENOMEM, "out of memory");
}

/* Relative XDG paths are to be ignored (XDG base directory specification). */
int cache_folder(char **out, struct error *err) {
    const char *own = getenv("QUIRE_CACHE"), *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (own && *own) return cache_path(out, err, "%s", own);
    if (xdg && *xdg == '/') return cache_path(out, err, "%s/quire", xdg);
    if (home && *home == '/') return cache_path(out, err, "%s/.cache/quire", home);
    return error_set(err, QUIRE_ENOTFOUND, "no cache folder: set QUIRE_CACHE, XDG_CACHE_HOME or HOME");
}

int cache_make_folders(const char *path, struct error *err) {
    char *p = strdup(path);
    if (!p) return error_set(err, QUIRE_ENOMEM, "out of memory");
    int rc = 0;
    for (char *s = p + 1; !rc; s++) {
        if (*s && *s != '/') continue;
        char end = *s;
        *s = 0;
        if (mkdir(p, 0755) && errno != EEXIST)
            rc = error_set(err, QUIRE_EIO, "cannot make the folder %s: %s", p, strerror(errno));
        *s = end;
        if (!end) break;
    }
    free(p);
    return rc;
}
