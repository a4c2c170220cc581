/* Config files of any content: refused with one line, or all values within their ranges. */
#define _GNU_SOURCE /* memfd_create */
#include "base/options.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct values {
    bool on;
    int64_t count;
    double share;
    const char *host, *policy, *config;
    struct option_list names;
};

#define AT(field) offsetof(struct values, field)

static const struct option table[] = {
    {"host", OPTION_STRING, AT(host), "A", "HOST", "::", 0, 0, NULL, NULL, "Text."},
    {"names", OPTION_LIST, AT(names), "A", "NAME", NULL, 0, 0, NULL, NULL, "List."},
    {"count", OPTION_INT, AT(count), "A", "N", "1", 1, 4096, NULL, NULL, "Whole number."},
    {"share", OPTION_FLOAT, AT(share), "A", "N", "0.5", 0.01, 1, NULL, NULL, "Number."},
    {"on", OPTION_BOOL, AT(on), "A", NULL, NULL, 0, 0, NULL, NULL, "Switch."},
    {"policy", OPTION_CHOICE, AT(policy), "A", "P", "fcfs", 0, 0, "fcfs|priority", NULL, "Choice."},
    {"size", OPTION_FIXED, 0, "A", "N", NULL, 0, 0, "1|true", NULL, "Fixed."},
    {"config", OPTION_STRING, AT(config), "A", "FILE", NULL, 0, 0, NULL, NULL, "File."},
    {0}};

static void check_values(const struct values *v) {
    if (v->count < 1 || v->count > 4096) abort();
    if (!(v->share >= 0.01 && v->share <= 1)) abort();
    if (strcmp(v->policy, "fcfs") && strcmp(v->policy, "priority")) abort();
    if (v->names.n > OPTION_LIST_MAX || !v->host) abort();
    size_t n = strlen(v->host);
    for (size_t i = 0; i < v->names.n; i++) n += strlen(v->names.items[i]);
    if (n > 1u << 20) abort();
}

static void check_error(const struct error *err, int code) {
    if (err->code != code || !err->text[0]) abort();
    for (const char *c = err->text; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char path[64];
    int fd = memfd_create("config", 0), n_positional;
    if (fd < 0) return 0;
    if (write(fd, data, size) == (ssize_t)size) {
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        char *argv[] = {(char[]){"--config"}, path};
        struct values v;
        struct options_state *state;
        struct error err = {0};
        int code = options_parse(table, 2, argv, &n_positional, &v, NULL, &state, &err);
        if (code == QUIRE_OK)
            check_values(&v);
        else
            check_error(&err, code);
        options_free(state);
    }
    close(fd);
    return 0;
}
