/* Who looks at answers for `quire tune`: models opened in this process, over the built-in text. */
#ifndef CLI_TUNE_JUDGE_H
#define CLI_TUNE_JUDGE_H

#include "cli/cli.h"
#include "tune/tune.h"

struct judge_state {
    const char *model, *dtype; /* the defaults' */
    const char *folder;
    const struct engine_options *engine; /* as given */
    size_t context;                      /* tokens of a window */
    const char *family;                  /* of the model, as the next */
    size_t tensor_bytes;
    const volatile int *interrupted;
};

/* "a.gguf,b.gguf" (NULL: none) behind the model itself, as pointers into *text, which is malloc'd. */
int judge_list(const char *model, const char *list, char **text, const char *out[TUNE_WEIGHTS_MAX], size_t *n,
               struct error *err);
/* Each must be a form of the same model: architecture, sizes, tokenizer. QUIRE_EINVAL says what is not. Fills
 * what s has behind its options. */
int judge_forms(struct judge_state *s, const char *const *weights, size_t n, struct error *err);
/* A struct tune_judge's look, with a struct judge_state. The distributions of the defaults are kept in the
 * folder meanwhile. */
int judge_look(void *ctx, const char *weights, const char *dtype, double most_s, struct tune_quality *out,
               struct error *err);
/* Removes what only looks need. */
void judge_clean(const struct judge_state *s);

#endif
