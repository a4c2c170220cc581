/* The folder that fetched models live in, and small things about paths that its users share. */
#ifndef FETCH_CACHE_H
#define FETCH_CACHE_H

#include <quire/error.h>

#include <stdarg.h>

/* $QUIRE_CACHE, $XDG_CACHE_HOME/quire or ~/.cache/quire; malloc'd. */
int cache_folder(char **out, struct error *err);

/* The folder and those above it, where they are missing. */
int cache_make_folders(const char *path, struct error *err);

/* A path by a printf format, malloc'd. Returns 0 or QUIRE_ENOMEM with err set. */
int cache_path(char **out, struct error *err, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

#endif
