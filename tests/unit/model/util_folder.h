/* Small models in folders as transformers saves them, from tests/data/model/folders.bin: config.json and the
 * description of the tensors are its, weights are a function of their names. Failures fail the running test.
 * Made by tests/golden/model_folders.py, which also says what the file holds. */
#ifndef UTIL_FOLDER_H
#define UTIL_FOLDER_H

#include <stddef.h>
#include <stdint.h>

struct folder_model {
    char variant[24];
    uint32_t n_config, n_header, max_model_len, n_tokens, n_vocab, n_ids;
    const char *config, *header;
    const float *rows; /* [n_tokens or n_rows][1 + n_ids]: log of the sum, logits of tokens folder_id */
};

struct folder_models {
    char *data;
    uint32_t n;
    struct folder_model *models;
};

#define FOLDERS TEST_DATA "/model/folders.bin"
/* n_rows: of each model, where they are not those of all its tokens; else 0. */
void folder_models_open(struct folder_models *f, const char *path, size_t n_rows);
void folder_models_close(struct folder_models *f);
const struct folder_model *folder_model(const struct folder_models *f, const char *variant);

uint32_t folder_token(size_t position, uint32_t n_vocab);
uint32_t folder_id(size_t position, size_t k, uint32_t n_vocab);

#define FOLDER_PATH_BYTES 64
/* Writes the model into a fresh folder; in n_files safetensors files with an index, or one if 1. */
void folder_write(const struct folder_model *m, size_t n_files, char folder[FOLDER_PATH_BYTES]);
void folder_put(const char *folder, const char *name, const void *data, size_t n);
void folder_remove(const char *folder);

#endif
