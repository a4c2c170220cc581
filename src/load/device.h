/* What this machine does meanwhile: processors, memory, energy; GPUs by NVML where its library is. */
#ifndef LOAD_DEVICE_H
#define LOAD_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

struct device_sample {
    bool has_cpu, has_memory, has_energy, has_gpu;
    double cpu_busy_s, cpu_total_s; /* since boot, of all processors */
    double memory_bytes;            /* in use */
    double energy_joules;   /* processor packages, as far as RAPL may be read; only differences count */
    double gpu_utilization; /* 0 to 1, mean of all GPUs; of the last moments */
    double gpu_memory_bytes, gpu_watts, gpu_celsius; /* sums; the hottest */
    double gpu_sm_mhz;                               /* mean */
};

struct device;

struct device *device_open(void); /* NULL: no memory */
void device_read(struct device *d, struct device_sample *out);
void device_close(struct device *d);

#endif
