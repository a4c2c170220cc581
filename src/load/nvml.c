/* Functions and structs as NVML's API reference gives them (docs.nvidia.com/deploy/nvml-api). */
#include "load/nvml.h"

#include <dlfcn.h>
#include <stdlib.h>

typedef int nvml_status; /* 0: done */
typedef void *nvml_device;

struct nvml_utilization {
    unsigned gpu, memory; /* percent */
};
struct nvml_memory {
    unsigned long long total, free, used; /* bytes */
};

#define DEVICES_MAX     64
#define TEMPERATURE_GPU 0
#define CLOCK_SM        1

struct nvml {
    void *library;
    unsigned n;
    nvml_device devices[DEVICES_MAX];
    nvml_status (*shutdown)(void);
    nvml_status (*utilization)(nvml_device, struct nvml_utilization *);
    nvml_status (*memory)(nvml_device, struct nvml_memory *);
    nvml_status (*power)(nvml_device, unsigned *milliwatts);
    nvml_status (*temperature)(nvml_device, int sensor, unsigned *celsius);
    nvml_status (*clock)(nvml_device, int clock, unsigned *mhz);
};

static bool find(void *library, const char *name, void *function) {
    *(void **)function = dlsym(library, name);
    return *(void **)function != NULL;
}

struct nvml *nvml_open(void) {
    nvml_status (*init)(void), (*count)(unsigned *), (*handle)(unsigned, nvml_device *);
    struct nvml *n = calloc(1, sizeof *n);
    if (!n) return NULL;
    n->library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!n->library) goto none;
    void *l = n->library;
    bool all =
        find(l, "nvmlInit_v2", &init) && find(l, "nvmlShutdown", &n->shutdown) &&
        find(l, "nvmlDeviceGetCount_v2", &count) && find(l, "nvmlDeviceGetHandleByIndex_v2", &handle) &&
        find(l, "nvmlDeviceGetUtilizationRates", &n->utilization) &&
        find(l, "nvmlDeviceGetMemoryInfo", &n->memory) && find(l, "nvmlDeviceGetPowerUsage", &n->power) &&
        find(l, "nvmlDeviceGetTemperature", &n->temperature) && find(l, "nvmlDeviceGetClockInfo", &n->clock);
    if (!all || init()) goto none;
    unsigned found = 0;
    if (count(&found)) found = 0;
    for (unsigned i = 0; i < found && n->n < DEVICES_MAX; i++)
        if (!handle(i, &n->devices[n->n])) n->n++;
    if (n->n) return n;
    n->shutdown();
none:
    if (n->library) dlclose(n->library);
    free(n);
    return NULL;
}

void nvml_read(struct nvml *n, struct device_sample *s) {
    for (unsigned i = 0; i < n->n; i++) {
        struct nvml_utilization u;
        struct nvml_memory m;
        unsigned v;
        if (n->utilization(n->devices[i], &u)) continue;
        s->has_gpu = true;
        s->gpu_utilization += u.gpu / 100.0 / n->n;
        if (!n->memory(n->devices[i], &m)) s->gpu_memory_bytes += (double)m.used;
        if (!n->power(n->devices[i], &v)) s->gpu_watts += v / 1000.0;
        if (!n->temperature(n->devices[i], TEMPERATURE_GPU, &v) && v > s->gpu_celsius) s->gpu_celsius = v;
        if (!n->clock(n->devices[i], CLOCK_SM, &v)) s->gpu_sm_mhz += (double)v / n->n;
    }
}

void nvml_close(struct nvml *n) {
    if (!n) return;
    n->shutdown();
    dlclose(n->library);
    free(n);
}
