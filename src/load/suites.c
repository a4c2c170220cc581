#include "load/plan.h"

#include <string.h>

static const struct preset presets[] = {
    {"random", WORKLOAD_RANDOM, false, false, 512, 128, 0, 1, 0, 0, 0},
    {"chat", WORKLOAD_CHAT, true, true, 64, 128, 128, 5, 0, 0, 1},
    {"rag20", WORKLOAD_RAG, false, false, 200, 256, 0, 1, 20, 700, 0},
    {"rag6", WORKLOAD_RAG, false, false, 200, 256, 0, 1, 6, 700, 0},
    {"rag3k", WORKLOAD_RAG, false, false, 200, 256, 0, 1, 6, 467,
     0}, /* the 6 chunks compressed: 3,002 in all */
    {"agent", WORKLOAD_AGENT, true, true, 300, 100, 3000, 8, 0, 0, 0},
    {"agent-last", WORKLOAD_AGENT_LAST, true, true, 300, 100, 3000, 8, 0, 0, 0},
    {"tools", WORKLOAD_TOOLS, true, true, 128, 128, 0, 1, 0, 0, 0},
    {"json", WORKLOAD_JSON, true, true, 128, 128, 0, 1, 0, 0, 0},
    {"sharegpt", WORKLOAD_SHAREGPT, true, false, 1, 256, 0, 1, 0, 0, 0},
    {"batch", WORKLOAD_BATCH, true, false, 1, 256, 0, 1, 0, 0, 0},
    {"trace", WORKLOAD_TRACE, false, false, 1, 1, 0, 1, 0, 0, 0},
};

const struct preset *preset_find(const char *name) {
    for (size_t i = 0; i < sizeof presets / sizeof *presets; i++)
        if (!strcmp(presets[i].name, name)) return &presets[i];
    return NULL;
}

static const struct suite_row suite_a[] = {{"random", 512, 256, {1, 8, 32, 64}}, {0}};
static const struct suite_row suite_b[] = {{"random", 4096, 512, {8, 32, 64}}, {0}};
static const struct suite_row suite_c[] = {{"random", 16384, 1024, {8, 16, 32}}, {0}};
static const struct suite_row suite_d[] = {
    {"rag20", 0, 0, {8}},      {"rag6", 0, 0, {8}},  {"rag3k", 0, 0, {8}}, {"agent", 0, 0, {8}},
    {"agent-last", 0, 0, {8}}, {"tools", 0, 0, {8}}, {"chat", 0, 0, {8}},  {0},
};

const struct suite_row *suite_find(const char *name) {
    static const struct suite_row *const suites[] = {suite_a, suite_b, suite_c, suite_d};
    return strlen(name) == 1 && *name >= 'A' && *name <= 'D' ? suites[*name - 'A'] : NULL;
}
