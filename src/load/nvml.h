/* NVIDIA's management library, loaded while running where it is installed. */
#ifndef LOAD_NVML_H
#define LOAD_NVML_H

#include "load/device.h"

struct nvml;

struct nvml *nvml_open(void); /* NULL: no library, or no GPU */
void nvml_read(struct nvml *n, struct device_sample *out);
void nvml_close(struct nvml *n); /* NULL allowed */

#endif
