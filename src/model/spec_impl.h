/* What the files that read a description share. */
#ifndef MODEL_SPEC_IMPL_H
#define MODEL_SPEC_IMPL_H

#include "model/family.h"

#define SPEC_KEY_BYTES   96
#define SPEC_MAX_CONTEXT (1u << 26)
#define SPEC_MAX_HEAD    1024u
#define SPEC_MAX_EMBD    (1u << 17)
#define SPEC_HEAD_STEP   8 /* what attention kernels of all devices take */

struct spec_reader {
    const struct weights *w;
    const struct model_family *family;
    struct error *err;
    int rc; /* first failure; later reads do nothing */
};

/* name: what follows "FAMILY.". */
void spec_full_key(const struct spec_reader *r, const char *name, char key[SPEC_KEY_BYTES]);
/* What messages call it: the file's own word, in key. */
const char *spec_label(const struct spec_reader *r, const char *name, char key[SPEC_KEY_BYTES]);
bool spec_has(const struct spec_reader *r, const char *name);
size_t spec_size(struct spec_reader *r, const char *name, uint64_t min, uint64_t max);
size_t spec_size_or(struct spec_reader *r, const char *name, uint64_t min, uint64_t max, size_t preset);
double spec_float_or(struct spec_reader *r, const char *name, double min, double max, double preset);
bool spec_bool_or(struct spec_reader *r, const char *name, bool preset);
/* Fails with "FAMILY.name = value: must be allowed" unless ok. */
void spec_need(struct spec_reader *r, bool ok, const char *name, size_t value, const char *allowed);

void spec_read_latent(struct spec_reader *r, struct model_spec *s); /* spec_latent.c; after the heads */
void spec_read_ropes(struct spec_reader *r, struct model_spec *s);  /* spec_rope.c; after the sizes */
void spec_read_layers(struct spec_reader *r, struct model_spec *s); /* spec_layers.c; after the ropes */
/* spec_tensors.c: every tensor is one of the family's with the right shape, and none is missing. */
int spec_check_tensors(const struct spec_reader *r, const struct model_spec *s);

#endif
