#include "base/split_name.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SUFFIX       "-00001-of-00001.gguf"
#define SUFFIX_BYTES (sizeof SUFFIX - 1)
#define PART_AT      1
#define COUNT_AT     10
#define N_DIGITS     5

static bool number_at(const char *digits, unsigned *out) {
    *out = 0;
    for (size_t i = 0; i < N_DIGITS; i++) {
        if (digits[i] < '0' || digits[i] > '9') return false;
        *out = *out * 10 + (unsigned)(digits[i] - '0');
    }
    return true;
}

bool split_name_parse(const char *path, struct split_name *out) {
    size_t n = strlen(path);
    if (n <= SUFFIX_BYTES) return false;
    const char *s = path + n - SUFFIX_BYTES;
    if (s[0] != '-' || strncmp(s + PART_AT + N_DIGITS, "-of-", 4) || strcmp(s + COUNT_AT + N_DIGITS, ".gguf"))
        return false;
    out->stem_len = n - SUFFIX_BYTES;
    return number_at(s + PART_AT, &out->part) && number_at(s + COUNT_AT, &out->count);
}

char *split_name_of(const char *path, const struct split_name *name, unsigned part) {
    size_t n = name->stem_len + SUFFIX_BYTES + 1;
    char *out = malloc(n);
    if (out)
        snprintf(out, n, "%.*s-%05u-of-%05u.gguf", (int)name->stem_len, path, part % 100000,
                 name->count % 100000);
    return out;
}
