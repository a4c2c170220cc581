/* Folders as Hugging Face has them: config.json, and safetensors in one file (model.safetensors) or in
 * several by an index (model.safetensors.index.json). Their keys and tensors become those that GGUF has for
 * the same family, by tables: hf_families.c. What the tables do not name is refused, as are keys whose effect
 * would be lost. A tensor that GGUF has in one piece and the folder in several, or the other way round, is
 * described by its parts (tensor.h) and read from where it lies: nothing is copied. What
 * sentence-transformers puts beside an encoder is read too: hf_sentence.c.
 *
 * Code that a folder brings (auto_map) is never run, and is said to be left out. */
#ifndef WEIGHTS_HF_H
#define WEIGHTS_HF_H

#include "weights/weights.h"

#include <jansson.h>

/* Whether this is such a folder: it has a config.json, and no .gguf file. */
bool hf_is_folder(const char *path);
/* As weights_open, weights_inspect for such a folder. Errors begin with the folder. */
int hf_open(const char *folder, bool any_type, struct weights **out, struct error *err);

/* config.json (as text) alone, for tests: the keys become metadata, and there are no tensors. */
int hf_open_config(const char *text, size_t n, struct weights **out, struct error *err);
/* One safetensors file in memory, its tensors named as they are there; data must outlive *out. */
int hf_open_tensors(const void *data, size_t n, struct weights **out, struct error *err);

/* An object without duplicate keys; *out is the caller's. QUIRE_EFORMAT says where it is wrong. */
int hf_json_parse(const char *text, size_t n, json_t **out, struct error *err);

/* What config.json calls a metadata key; NULL if the family has no name for it. */
struct hf_family;
const char *hf_key_name(const struct hf_family *family, const char *key);

/* What the folder calls a tensor, by its GGUF name, in buf; NULL if it has no name for it. */
const char *hf_tensor_name(const struct weights *w, const char *name, char *buf, size_t size);

#endif
