#include "text/pretok.h"

#include "text/pretok_scan.h"
#include "text/pretok_scanners.h"

#include "base/size.h"

#include <string.h>

#define STEPS(...)                                                                                           \
    .steps = (const struct pretok_step[]){__VA_ARGS__},                                                      \
    .n_steps = sizeof((const struct pretok_step[]){__VA_ARGS__}) / sizeof(struct pretok_step)
#define ALIASES(...)                                                                                         \
    .aliases = (const char *const[]) {                                                                       \
        __VA_ARGS__, NULL                                                                                    \
    }

static const struct pretok pretoks[] = {
    {.name = "default", STEPS({.next = pretok_default})},
    {.name = "gpt-2",
     ALIASES("phi-2", "jina-es", "jina-de", "jina-v2-es", "jina-v2-de", "jais", "trillion", "granite-docling",
             "exaone4"),
     STEPS({.next = pretok_gpt2})},
    {.name = "olmo", ALIASES("mpt", "modern-bert"), STEPS({.next = pretok_gpt2}), .nfc = true},
    {.name = "llama-bpe",
     ALIASES("llama3", "llama-v3", "falcon3", "pixtral", "lfm2"),
     STEPS({.next = pretok_llama3}),
     .ignore_merges = true,
     .add_bos = true},
    {.name = "dbrx", ALIASES("smaug-bpe", "chatglm-bpe"), STEPS({.next = pretok_llama3})},
    {.name = "glm4", STEPS({.next = pretok_llama3}), .ignore_merges = true},
    {.name = "qwen2", ALIASES("stablelm2", "megrez"), STEPS({.next = pretok_qwen2}), .nfc = true},
    {.name = "hunyuan", ALIASES("grok-2"), STEPS({.next = pretok_qwen2})},
    {.name = "qwen35", STEPS({.next = pretok_qwen35})},
    {.name = "bailingmoe", ALIASES("bailingmoe2", "llada-moe"), STEPS({.next = pretok_qwen2})},
    {.name = "seed-coder", STEPS({.next = pretok_seed_coder})},
    {.name = "smollm",
     ALIASES("starcoder", "refact", "codeshell", "exaone", "minerva-7b"),
     STEPS({.next = pretok_smollm})},
    {.name = "command-r", STEPS({.next = pretok_smollm}), .nfc = true},
    {.name = "gpt-4o", ALIASES("llama4", "minimax-m2"), STEPS({.next = pretok_gpt4o})},
    {.name = "tekken", STEPS({.next = pretok_tekken}), .ignore_merges = true, .add_bos = true},
    {.name = "kimi-k2", STEPS({.next = pretok_kimi})},
    {.name = "deepseek-v3",
     ALIASES("hunyuan-dense"),
     STEPS({.next = pretok_number_3}, {.next = pretok_cjk_kana}, {.next = pretok_deepseek3})},
    {.name = "deepseek-coder",
     STEPS({.next = pretok_newline}, {.next = pretok_spaced_letters}, {.next = pretok_spaced_punctuation},
           {.next = pretok_cjk_wide}, {.next = pretok_digits})},
    {.name = "falcon", STEPS({.next = pretok_falcon}, {.next = pretok_gpt2}, {.next = pretok_three_digits})},
    {.name = "bloom", ALIASES("poro-chat", "gpt3-finnish"), STEPS({.next = pretok_bloom})},
    {.name = "viking", STEPS({.next = pretok_bloom}, {.next = pretok_digits})},
};

static bool equal(const char *a, const char *name, size_t len) {
    return strlen(a) == len && !memcmp(a, name, len);
}

const struct pretok *pretok_find(const char *name, size_t len) {
    for (size_t i = 0; i < sizeof pretoks / sizeof *pretoks; i++) {
        if (equal(pretoks[i].name, name, len)) return &pretoks[i];
        for (const char *const *a = pretoks[i].aliases; a && *a; a++)
            if (equal(*a, name, len)) return &pretoks[i];
    }
    return NULL;
}

const char *pretok_known_names(void) {
    return "default, gpt-2, llama-bpe, qwen2, smollm, deepseek-v3, deepseek-coder, gpt-4o, tekken, kimi-k2, "
           "glm4, "
           "falcon, bloom, command-r, dbrx, hunyuan, olmo, qwen35, bailingmoe, seed-coder, viking and their "
           "other "
           "names";
}

/* --- walking --- */

static size_t find_literal(const struct pretok_step *step, const uint8_t *s, size_t i, size_t n) {
    const struct text_span l = step->literal;
    while (n - i >= l.len) {
        const uint8_t *p = memchr(s + i, (uint8_t)l.data[0], n - i - l.len + 1);
        if (!p) break;
        i = (size_t)(p - s);
        if (!memcmp(p, l.data, l.len)) return i;
        i++;
    }
    return n;
}

size_t pretok_literal_next(const struct pretok_step *step, const uint8_t *s, size_t i, size_t n) {
    size_t at = find_literal(step, s, i, n), len = step->literal.len;
    switch (step->behavior) {
    case SPLIT_WITH_PREVIOUS: return at == n ? n : at + len;
    case SPLIT_WITH_NEXT: return at == i ? find_literal(step, s, i + len, n) : at;
    case SPLIT_CONTIGUOUS:
        if (at > i) return at;
        for (; i < n && find_literal(step, s, i, size_min(n, i + len)) == i; i += len) {}
        return i;
    default: return at == i ? i + len : at;
    }
}

bool pretok_dropped(const struct pretok_step *step, const uint8_t *s, size_t i, size_t n) {
    if (step->behavior == SPLIT_REMOVED)
        return n - i >= step->literal.len &&
               find_literal(step, s, i, size_min(n, i + step->literal.len)) == i;
    return at(s, i, n, UNICODE_SPACE);
}
