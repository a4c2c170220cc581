/* What the parts of the tokenizer.json loader share. */
#ifndef TEXT_TOKENIZER_JSON_INTERNAL_H
#define TEXT_TOKENIZER_JSON_INTERNAL_H

#include "base/arena.h"
#include "text/tokenizer_internal.h"

#include <jansson.h>

#include <stdbool.h>
#include <stddef.h>

enum { JSON_MAX_STEPS = 32 };

struct json_loader {
    json_t *root, *config;
    struct arena arena; /* what the pipeline points to besides the JSON itself */
    struct error *err;
    struct tokenizer_spec spec;
    struct tokenizer_pipeline pipeline;
    struct norm_step norm[JSON_MAX_STEPS], prep[JSON_MAX_STEPS];
    struct pretok_step chain[PRETOK_MAX_STEPS];
    bool byte_level;
};

/* Pipeline parts: each reads one key of the file. 0 or an error set in l->err. */
int json_read_normalizer(struct json_loader *l, const json_t *j, const char *path);
int json_read_pre_tokenizer(struct json_loader *l, const json_t *j, const char *path);
int json_read_decoder(struct json_loader *l, const json_t *j, const char *path);

/* An optional boolean member. */
int json_read_bool(struct json_loader *l, const json_t *j, const char *key, bool fallback, bool *out);
/* "type" of an object. */
int json_read_type(struct json_loader *l, const json_t *j, const char *path, const char **type);
int json_unsupported(struct json_loader *l, const char *path, const char *type, const char *known);
struct text_span json_span(const json_t *string);

#endif
