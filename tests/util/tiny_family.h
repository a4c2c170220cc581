/* Small random models of each family as GGUF, named by variant: what makes the family differ, at the smallest
 * size that shows it. Weights come from the seed and the tensor's name. tests/golden/model_families.py runs
 * the same files through transformers. */
#ifndef UTIL_TINY_FAMILY_H
#define UTIL_TINY_FAMILY_H

#include <stddef.h>
#include <stdint.h>

/* The variants, NULL-terminated. */
const char *const *tiny_family_variants(void);

/* The file in memory, malloc'd; NULL: no such variant. type: of the matrices, GGUF's id; rows are multiples
 * of 32. */
void *tiny_family_memory(const char *variant, unsigned type, uint64_t seed, size_t *n);
/* 0, or -1 when there is no such variant or path cannot be written. */
int tiny_family_write(const char *path, const char *variant, unsigned type, uint64_t seed);

#endif
