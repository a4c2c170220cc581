/* A tokenizer from Hugging Face's files: the model folder's, or one that is used instead of the model's. */
#include "cli/cli.h"

#include "base/error.h"
#include "base/files.h"
#include "text/sentencepiece.h"
#include "text/tokenizer_json.h"
#include "text/vocab_txt.h"
#include "weights/weights.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define MAX_TOKENIZER_MIB 256

/* ---- what stands beside it ---- */

/* tokenizer_config.json, with the special tokens that only special_tokens_map.json has. NULL if there is
 * neither. */
static int read_config(const char *folder, json_t **out, struct error *err) {
    static const char *const tokens[] = {"bos_token", "eos_token", "unk_token", "cls_token",
                                         "sep_token", "pad_token", "mask_token"};
    json_t *map = NULL;
    int rc = folder_json(folder, "tokenizer_config.json", out, err);
    if (!rc) rc = folder_json(folder, "special_tokens_map.json", &map, err);
    if (!rc && map && !*out) *out = json_object();
    for (size_t i = 0; !rc && map && i < sizeof tokens / sizeof *tokens; i++) {
        json_t *v = json_object_get(map, tokens[i]);
        if (v && !json_object_get(*out, tokens[i])) json_object_set(*out, tokens[i], v);
    }
    json_decref(map);
    return rc;
}

/* A reader of text that takes tokenizer_config.json beside it. */
typedef int from_text(const char *text, size_t n, const char *config, size_t n_config, struct tokenizer **out,
                      struct error *err);

static int with_config(from_text *read, const struct buf *text, const json_t *config, struct tokenizer **out,
                       struct error *err) {
    char *said = config ? json_dumps(config, JSON_COMPACT) : NULL;
    if (config && !said) return error_set(err, QUIRE_ENOMEM, "out of memory while reading the tokenizer");
    int rc = read(text->data ? text->data : "", text->len, said, said ? strlen(said) : 0, out, err);
    free(said);
    return rc;
}

/* The model file of SentencePiece has no tokens that were added later. */
static int from_sentencepiece(const struct buf *text, const json_t *config, struct tokenizer **out,
                              struct error *err) {
    const json_t *bos = json_object_get(config, "add_bos_token"),
                 *eos = json_object_get(config, "add_eos_token");
    struct tokenizer_spec adds = {.add_bos = json_is_true(bos),
                                  .add_bos_unset = !json_is_boolean(bos),
                                  .add_eos = json_is_true(eos),
                                  .add_eos_unset = !json_is_boolean(eos)};
    const char *id;
    json_t *token;
    int rc = tokenizer_from_sentencepiece(text->data, text->len, &adds, out, err);
    if (rc) return rc;
    json_object_foreach(json_object_get(config, "added_tokens_decoder"), id, token) {
        if (strtoull(id, NULL, 10) < tokenizer_n_vocab(*out)) continue;
        tokenizer_free(*out);
        *out = NULL;
        return error_set(
            err, QUIRE_EUNSUPPORTED,
            "tokenizer_config.json: added_tokens_decoder has the token %.20s, which tokenizer.model has not; "
            "a tokenizer.json is needed",
            id);
    }
    return 0;
}

int vocabulary_check(const struct weights *w, const char *what, size_t n_tokens, const struct tokenizer *t,
                     struct error *err) {
    const struct tensor *rows = weights_tensor(w, "token_embd.weight");
    for (size_t id = rows ? rows->dims[1] : SIZE_MAX; id < n_tokens; id++)
        if (!t || !tokenizer_is_control(t, (uint32_t)id))
            return error_set(err, QUIRE_EFORMAT, "%s has %zu tokens, but tensor \"%s\" has %zu rows", what,
                             n_tokens, tensor_label(rows), rows->dims[1]);
    return 0;
}

/* ---- */

static bool is_file(const char *path) {
    struct stat st;
    return !stat(path, &st) && !S_ISDIR(st.st_mode);
}

static bool ends_with(const char *s, const char *end) {
    size_t n = strlen(s), n_end = strlen(end);
    return n >= n_end && !strcmp(s + n - n_end, end);
}

/* What a folder may hold, in the order in which it is looked for. */
static const char *const NAMES[] = {"tokenizer.json", "tokenizer.model", "vocab.txt"};

static int find_in_folder(const char *folder, char **file, struct error *err) {
    static const char *const others[] = {"sentencepiece.bpe.model", "vocab.json", "spiece.model"};
    const char *found = NULL;
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++) {
        if (asprintf(file, "%s/%s", folder, NAMES[i]) < 0) *file = NULL;
        if (!*file) return error_set(err, QUIRE_ENOMEM, "out of memory");
        if (is_file(*file)) return 0;
        free(*file);
        *file = NULL;
    }
    for (size_t i = 0; i < sizeof others / sizeof *others && !found; i++) {
        char *path = NULL;
        if (asprintf(&path, "%s/%s", folder, others[i]) < 0) path = NULL;
        if (path && is_file(path)) found = others[i];
        free(path);
    }
    return error_set(err, QUIRE_ENOTFOUND,
                     "%s: there is no tokenizer: none of tokenizer.json, tokenizer.model, vocab.txt%s%s%s",
                     folder, found ? "; of " : "", found ? found : "",
                     found ? " transformers makes a tokenizer.json (AutoTokenizer, save_pretrained)" : "");
}

/* The file and the folder that it is in; both malloc'd. */
static int find_files(const char *path, char **file, char **folder, struct error *err) {
    struct stat st;
    const char *slash = strrchr(path, '/');
    if (!stat(path, &st) && S_ISDIR(st.st_mode)) {
        *folder = strdup(path);
        return *folder ? find_in_folder(path, file, err) : error_set(err, QUIRE_ENOMEM, "out of memory");
    }
    *file = strdup(path);
    *folder = slash ? strndup(path, (size_t)(slash - path) + 1) : strdup(".");
    return *file && *folder ? 0 : error_set(err, QUIRE_ENOMEM, "out of memory");
}

int tokenizer_file_open(const char *option, const char *path, const struct weights *w, struct tokenizer **out,
                        struct error *err) {
    char *file = NULL, *folder = NULL;
    struct buf text = BUF_INIT;
    json_t *config = NULL;
    bool read = false;
    int rc = find_files(path, &file, &folder, err);
    if (rc == QUIRE_ENOTFOUND && option) error_prefix(err, "%s", option);
    if (!rc) rc = file_read(option, file, MAX_TOKENIZER_MIB, &text, err);
    if (!rc) {
        read = true;
        rc = read_config(folder, &config, err);
    }
    if (!rc)
        rc = ends_with(file, ".model") ? from_sentencepiece(&text, config, out, err)
             : ends_with(file, ".txt") ? with_config(tokenizer_from_vocab, &text, config, out, err)
                                       : with_config(tokenizer_from_json, &text, config, out, err);
    if (!rc) rc = vocabulary_check(w, "the tokenizer", tokenizer_n_vocab(*out), *out, err);
    if (rc && read) error_prefix(err, "%s%s%s", option ? option : "", option ? " " : "", path);
    json_decref(config);
    buf_free(&text);
    free(file);
    free(folder);
    return rc;
}
