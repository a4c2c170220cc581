/* What sentence-transformers puts beside a model: the input is modules.json, 1_Pooling/config.json,
 * sentence_bert_config.json, tokenizer_config.json and config_sentence_transformers.json, each behind a NUL
 * but the first; an empty one is not there. The folder has a config.json and no tensors, which is what is
 * wrong with it if nothing else is. */
#include "weights/hf.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const NAMES[] = {"modules.json", "1_Pooling/config.json", "sentence_bert_config.json",
                                    "tokenizer_config.json", "config_sentence_transformers.json"};
#define N_NAMES (sizeof NAMES / sizeof *NAMES)
static const char CONFIG[] = "{\"architectures\":[\"BertModel\"],\"hidden_size\":64,\"num_hidden_layers\":2,"
                             "\"num_attention_heads\":4,\"intermediate_size\":80,\"vocab_size\":100}";

static void expect(bool truth) {
    if (!truth) abort();
}

static void put(const char *folder, const char *name, const void *data, size_t n) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    unlink(path);
    if (!n) return;
    FILE *f = fopen(path, "wb");
    expect(f && fwrite(data, 1, n, f) == n && !fclose(f));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char folder[64], path[256];
    struct weights *w;
    struct error err = {0};
    snprintf(folder, sizeof folder, "/tmp/quire-fuzz-sentence-%d", (int)getpid());
    snprintf(path, sizeof path, "%s/1_Pooling", folder);
    mkdir(folder, 0700);
    mkdir(path, 0700);
    put(folder, "config.json", CONFIG, sizeof CONFIG - 1);
    for (size_t i = 0; i < N_NAMES; i++) {
        const uint8_t *end = size ? memchr(data, 0, size) : NULL;
        size_t n = end && i + 1 < N_NAMES ? (size_t)(end - data) : size;
        put(folder, NAMES[i], data, n);
        data += n + (n < size);
        size -= n + (n < size);
    }
    int rc = weights_inspect(folder, &w, &err);
    expect(rc < 0 && !w && err.code == rc && strstr(err.text, folder));
    expect(rc != QUIRE_ENOTFOUND || strstr(err.text, "neither model.safetensors"));
    for (size_t i = 0; i < N_NAMES; i++) put(folder, NAMES[i], NULL, 0);
    put(folder, "config.json", NULL, 0);
    rmdir(path);
    rmdir(folder);
    return 0;
}
