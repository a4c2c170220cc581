#include "load/device.h"

#include "load/nvml.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PACKAGES_MAX 8

struct device {
    struct nvml *nvml;
    /* a package's counter starts again from 0 at `range` */
    struct package {
        double last_uj, range_uj, sum_uj;
        bool there, known;
    } packages[PACKAGES_MAX];
};

static bool read_number(const char *path, double *out) {
    FILE *f = fopen(path, "re");
    bool ok = f && fscanf(f, "%lf", out) == 1;
    if (f) fclose(f);
    return ok;
}

static void read_cpu(struct device_sample *s) {
    FILE *f = fopen("/proc/stat", "re");
    double v[8] = {0};
    /* user nice system idle iowait irq softirq steal; guest time is within user */
    if (f && fscanf(f, "cpu %lf %lf %lf %lf %lf %lf %lf %lf", &v[0], &v[1], &v[2], &v[3], &v[4], &v[5], &v[6],
                    &v[7]) >= 4) {
        double total = 0, tick = (double)sysconf(_SC_CLK_TCK);
        for (int i = 0; i < 8; i++) total += v[i];
        s->has_cpu = true;
        s->cpu_total_s = total / tick;
        s->cpu_busy_s = (total - v[3] - v[4]) / tick;
    }
    if (f) fclose(f);
}

static void read_memory(struct device_sample *s) {
    FILE *f = fopen("/proc/meminfo", "re");
    char line[128];
    double total = 0, available = 0;
    while (f && fgets(line, sizeof line, f)) {
        sscanf(line, "MemTotal: %lf", &total);
        sscanf(line, "MemAvailable: %lf", &available);
    }
    if (f) fclose(f);
    s->has_memory = total > 0 && available > 0;
    s->memory_bytes = (total - available) * 1024;
}

static void read_energy(struct device *d, struct device_sample *s) {
    char path[96];
    for (int i = 0; i < PACKAGES_MAX; i++) {
        struct package *p = &d->packages[i];
        double uj;
        if (!p->there) continue;
        snprintf(path, sizeof path, "/sys/class/powercap/intel-rapl:%d/energy_uj", i);
        if (!read_number(path, &uj)) continue;
        if (p->known) p->sum_uj += uj >= p->last_uj ? uj - p->last_uj : uj + p->range_uj - p->last_uj;
        p->last_uj = uj;
        p->known = true;
        s->has_energy = true;
        s->energy_joules += p->sum_uj / 1e6;
    }
}

struct device *device_open(void) {
    struct device *d = calloc(1, sizeof *d);
    char path[96], name[32];
    for (int i = 0; d && i < PACKAGES_MAX; i++) {
        snprintf(path, sizeof path, "/sys/class/powercap/intel-rapl:%d/name", i);
        FILE *f = fopen(path, "re");
        bool package = f && fgets(name, sizeof name, f) && !strncmp(name, "package", 7);
        if (f) fclose(f);
        snprintf(path, sizeof path, "/sys/class/powercap/intel-rapl:%d/max_energy_range_uj", i);
        d->packages[i].there = package && read_number(path, &d->packages[i].range_uj);
    }
    if (d) d->nvml = nvml_open();
    return d;
}

void device_read(struct device *d, struct device_sample *out) {
    *out = (struct device_sample){0};
    read_cpu(out);
    read_memory(out);
    read_energy(d, out);
    if (d->nvml) nvml_read(d->nvml, out);
}

void device_close(struct device *d) {
    if (!d) return;
    nvml_close(d->nvml);
    free(d);
}
