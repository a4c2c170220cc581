#include "backend/cpu/cores.h"

#include "base/size.h"

#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CORES_TEXT_BYTES 8192
#define CORES_PATH_BYTES 4096

static bool read_text(const char *path, char *out, size_t size) {
    FILE *f = fopen(path, "re");
    if (!f) return false;
    size_t n = fread(out, 1, size - 1, f);
    fclose(f);
    out[n] = '\0';
    return n > 0;
}

static size_t in_cores(double quota, double period) {
    if (!(quota > 0) || !(period > 0)) return 0;
    double cores = quota / period;
    if (cores > 1e6) return 0;
    size_t whole = (size_t)cores;
    return whole + ((double)whole < cores);
}

/* Control groups v2: "max 100000" or "150000 100000". */
static size_t quota_v2(const char *folder) {
    char path[CORES_PATH_BYTES], text[128], *end;
    if (snprintf(path, sizeof path, "%s/cpu.max", folder) >= (int)sizeof path) return 0;
    if (!read_text(path, text, sizeof text)) return 0;
    double quota = strtod(text, &end);
    if (end == text) return 0;
    return in_cores(quota, strtod(end, NULL));
}

/* Control groups v1: -1 is no quota. */
static size_t quota_v1(const char *folder) {
    char path[CORES_PATH_BYTES], text[64];
    if (snprintf(path, sizeof path, "%s/cpu.cfs_quota_us", folder) >= (int)sizeof path) return 0;
    if (!read_text(path, text, sizeof text)) return 0;
    double quota = strtod(text, NULL);
    if (snprintf(path, sizeof path, "%s/cpu.cfs_period_us", folder) >= (int)sizeof path) return 0;
    if (!read_text(path, text, sizeof text)) return 0;
    return in_cores(quota, strtod(text, NULL));
}

static size_t smaller(size_t a, size_t b) {
    if (!a || !b) return a ? a : b;
    return size_min(a, b);
}

/* A limit may be set on any group between the process's own and the root. */
static size_t quota_upwards(const char *root, const char *group, size_t (*quota)(const char *folder)) {
    char folder[CORES_PATH_BYTES];
    int n = snprintf(folder, sizeof folder, "%s%s", root, group);
    if (n < 0 || (size_t)n >= sizeof folder) return 0;
    size_t root_len = strlen(root), least = 0;
    for (;;) {
        least = smaller(least, quota(folder));
        char *slash = strrchr(folder, '/');
        if (!slash || (size_t)(slash - folder) < root_len) return least;
        *slash = '\0';
    }
}

static bool names_cpu(const char *controllers) {
    for (const char *s = controllers; s; s = strchr(s, ',')) {
        if (*s == ',') s++;
        if (!strncmp(s, "cpu", 3) && (s[3] == '\0' || s[3] == ',')) return true;
    }
    return false;
}

/* One line of /proc/self/cgroup: "id:controllers:/group". */
static size_t quota_of_line(char *line, const char *mount) {
    char *controllers = strchr(line, ':');
    if (!controllers) return 0;
    char *group = strchr(++controllers, ':');
    if (!group) return 0;
    *group++ = '\0';
    if (group[0] == '/' && group[1] == '\0') group++;
    char root[CORES_PATH_BYTES];
    if (!*controllers) {
        size_t least = quota_upwards(mount, group, quota_v2);
        if (snprintf(root, sizeof root, "%s/unified", mount) < (int)sizeof root)
            least = smaller(least, quota_upwards(root, group, quota_v2));
        return least;
    }
    if (!names_cpu(controllers)) return 0;
    size_t least = 0;
    const char *const names[] = {controllers, "cpu"};
    for (size_t i = 0; i < 2; i++)
        if (snprintf(root, sizeof root, "%s/%s", mount, names[i]) < (int)sizeof root)
            least = smaller(least, quota_upwards(root, group, quota_v1));
    return least;
}

size_t cores_quota(const char *membership, const char *mount) {
    char text[CORES_TEXT_BYTES];
    if (snprintf(text, sizeof text, "%s", membership) < 0) return 0;
    size_t least = 0;
    char *rest = text, *line;
    while ((line = strsep(&rest, "\n"))) least = smaller(least, quota_of_line(line, mount));
    return least;
}

static size_t affinity(void) {
    for (size_t n_cpus = 1024; n_cpus <= 65536; n_cpus *= 4) {
        cpu_set_t *set = CPU_ALLOC(n_cpus);
        if (!set) break;
        size_t bytes = CPU_ALLOC_SIZE(n_cpus);
        int rc = sched_getaffinity(0, bytes, set);
        size_t n = rc ? 0 : (size_t)CPU_COUNT_S(bytes, set);
        CPU_FREE(set);
        if (n) return n;
    }
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (size_t)n : 1;
}

size_t cores_available(void) {
    char membership[CORES_TEXT_BYTES];
    size_t n = affinity(), quota = 0;
    if (read_text("/proc/self/cgroup", membership, sizeof membership))
        quota = cores_quota(membership, "/sys/fs/cgroup");
    return size_max(smaller(n, quota), 1);
}
