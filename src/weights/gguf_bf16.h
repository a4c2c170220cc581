/* A quantized model as it would be without: every quantized tensor decoded and written as bfloat16. The
 * metadata and the other tensors stay. What quantizing has taken from a model does not come back, so this
 * shows what quantized weights cost or save in time and memory, not in quality. */
#ifndef WEIGHTS_GGUF_BF16_H
#define WEIGHTS_GGUF_BF16_H

#include "weights/weights.h"

/* How many tensors would change; 0: nothing is quantized. */
size_t gguf_bf16_quantized(const struct weights *w);

/* Writes a GGUF file of version 3 to fd, from its beginning. Of a split model it becomes one file.
 * QUIRE_EUNSUPPORTED: w is a folder of Hugging Face; QUIRE_EIO (a full disk, say); QUIRE_ENOMEM. */
int gguf_bf16_write(const struct weights *w, int fd, struct error *err);

#endif
