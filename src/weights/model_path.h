/* From what a user names to a model file. */
#ifndef WEIGHTS_MODEL_PATH_H
#define WEIGHTS_MODEL_PATH_H

#include <quire/error.h>

/* path itself, or when it is a folder the one .gguf file in it, or one of the parts of the one split model in
 * it (see split.h); malloc'd. QUIRE_ENOTFOUND lists what the folder holds. */
int model_path_resolve(const char *path, char **out, struct error *err);

/* folder/name, malloc'd; NULL: out of memory. */
char *model_path_join(const char *folder, const char *name);

#endif
