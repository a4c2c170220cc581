/* Models by their id on a Hugging Face hub: "org/name[@revision][:file or quantization]".
 *
 * What is fetched: with a name after ':', that .gguf file, or the one whose name says so ("Q4_K_M"), all
 * parts of a split one. Without: the folder that transformers would load (config, tokenizer, safetensors), or
 * where there is none the one .gguf file, Q4_K_M among several.
 *
 * In the cache: hub/ORG/NAME/COMMIT/ holds the files, hub/ORG/NAME/refs/ what a reference led to when it was
 * last pulled. A file gets its name when its size and digest are those the hub gave; until then it is
 * NAME.part, which a later pull goes on with. Pulls of one model wait for each other. headers/COMMIT/ has
 * .gguf files of which only the beginning was fetched, to be described.
 *
 * The API: https://huggingface.co/docs/hub/api (model info with blobs, resolve). */
#ifndef FETCH_HUB_H
#define FETCH_HUB_H

#include <quire/error.h>

#include <stdbool.h>
#include <stdint.h>

#define HUB_PART_BYTES 97 /* of an id: at most 96 characters on each side */
#define HUB_NAME_BYTES 256

struct hub_ref {
    char org[HUB_PART_BYTES], name[HUB_PART_BYTES];
    char revision[HUB_NAME_BYTES]; /* "main" if none is given */
    char pick[HUB_NAME_BYTES];     /* "" if none is given */
};

struct hub_options {
    const char *endpoint; /* NULL or "": the public one */
    const char *token;    /* NULL or "": none; sent to the endpoint's host only */
    bool description;     /* all but weights: a folder's small files, the beginnings of .gguf files. A later
                             pull fetches the rest */
    uint64_t *left_bytes; /* with description: of the weights that were not fetched; may be NULL */
    /* With description: whether a .gguf file (the first of a split one) of which n_bytes are there says all
     * that it has to say: 1, or 0 and why not; negative: more of it would not say more either. The others are
     * beside it. */
    int (*is_enough)(void *ctx, const char *path, uint64_t n_bytes, struct error *err);
    void *ctx;
};

/* Whether a text has the form of an id, well written or not: something before and after its one '/'. */
bool hub_ref_is(const char *text);

/* QUIRE_EINVAL says what is wrong with it. */
int hub_ref_parse(const char *text, struct hub_ref *out, struct error *err);

/* What an earlier pull of this reference left: a .gguf file or a folder, malloc'd; *path stays NULL if there
 * is none. No network. */
int hub_cached(const struct hub_ref *ref, char **path, struct error *err);

/* Asks the hub, fetches what the cache lacks, checks it; progress on standard error. */
int hub_pull(const struct hub_ref *ref, const struct hub_options *options, char **path, struct error *err);

#endif
