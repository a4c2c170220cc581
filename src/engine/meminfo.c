#include "engine/meminfo.h"

#include <quire/error.h>

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PATH_BYTES 1024

/* A file that holds one number; false when it is absent or says "max". */
static bool read_number(const char *path, uint64_t *out) {
    FILE *f = fopen(path, "re");
    if (!f) return false;
    bool ok = fscanf(f, "%" SCNu64, out) == 1;
    fclose(f);
    return ok;
}

/* The value behind a key at the start of a line ("MemAvailable:", "inactive_file"). */
static bool read_field(const char *path, const char *key, uint64_t *out) {
    char line[256];
    size_t n = strlen(key);
    bool found = false;
    FILE *f = fopen(path, "re");
    if (!f) return false;
    while (!found && fgets(line, sizeof line, f))
        found = !strncmp(line, key, n) && sscanf(line + n, " %" SCNu64, out) == 1;
    fclose(f);
    return found;
}

/* Where the files of a control group's memory are. */
struct group_files {
    const char *mount, *limit, *usage, *inactive;
};

static const struct group_files VERSION_1 = {"/sys/fs/cgroup/memory", "memory.limit_in_bytes",
                                             "memory.usage_in_bytes", "total_inactive_file"};
static const struct group_files VERSION_2 = {"/sys/fs/cgroup", "memory.max", "memory.current",
                                             "inactive_file"};

/* What one group still allows; UINT64_MAX when it sets no limit or is not there. */
static uint64_t group_room(const char *root, const struct group_files *v, const char *group) {
    char path[PATH_BYTES];
    uint64_t limit, usage = 0, inactive = 0;
    snprintf(path, sizeof path, "%s%s%s/%s", root, v->mount, group, v->limit);
    if (!read_number(path, &limit) || limit >= UINT64_C(1) << 60) return UINT64_MAX; /* version 1's "none" */
    snprintf(path, sizeof path, "%s%s%s/%s", root, v->mount, group, v->usage);
    if (!read_number(path, &usage)) return UINT64_MAX;
    snprintf(path, sizeof path, "%s%s%s/memory.stat", root, v->mount, group);
    read_field(path, v->inactive, &inactive);
    usage -= inactive < usage ? inactive : usage;
    return usage < limit ? limit - usage : 0;
}

/* The least over a group and those it is in. group: "/a/b" or "/"; cut from the end. */
static uint64_t least_room(const char *root, const struct group_files *v, char *group) {
    uint64_t least = UINT64_MAX;
    for (;;) {
        size_t n = strlen(group);
        while (n && group[n - 1] == '/') group[--n] = 0;
        uint64_t room = group_room(root, v, group);
        if (room < least) least = room;
        char *slash = strrchr(group, '/');
        if (!slash) return least;
        *slash = 0;
    }
}

static uint64_t groups_room(const char *root) {
    char path[PATH_BYTES], line[PATH_BYTES];
    uint64_t least = UINT64_MAX;
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    FILE *f = fopen(path, "re");
    if (!f) return least;
    while (fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = 0;
        char *controllers = strchr(line, ':'), *group = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!group) continue;
        *controllers++ = *group++ = 0;
        bool v2 = !strcmp(line, "0") && !*controllers;
        if (!v2 && strcmp(controllers, "memory")) continue;
        uint64_t room = least_room(root, v2 ? &VERSION_2 : &VERSION_1, group);
        if (room < least) least = room;
    }
    fclose(f);
    return least;
}

int meminfo_read(const char *root, struct meminfo *out) {
    char path[PATH_BYTES];
    uint64_t kib;
    snprintf(path, sizeof path, "%s/proc/meminfo", root);
    if (!read_field(path, "MemAvailable:", &kib)) return QUIRE_EIO;
    *out = (struct meminfo){kib * 1024, "the machine"};
    uint64_t room = groups_room(root);
    if (room < out->available_bytes) *out = (struct meminfo){room, "the control group"};
    return 0;
}

uint64_t meminfo_resident_bytes(void) {
    uint64_t size, resident;
    FILE *f = fopen("/proc/self/statm", "re");
    if (!f) return 0;
    bool ok = fscanf(f, "%" SCNu64 " %" SCNu64, &size, &resident) == 2;
    fclose(f);
    return ok ? resident * (uint64_t)sysconf(_SC_PAGESIZE) : 0;
}
