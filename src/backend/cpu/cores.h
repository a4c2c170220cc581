/* How many cores this process may use: its affinity mask, and the CPU quota of its control groups (v1 and
 * v2). */
#ifndef BACKEND_CPU_CORES_H
#define BACKEND_CPU_CORES_H

#include <stddef.h>

size_t cores_available(void); /* at least 1 */

/* The smallest quota on the way from the process's group to the root, in cores rounded up; 0 = none.
 * membership: text of /proc/self/cgroup; mount: where control groups are mounted (/sys/fs/cgroup). */
size_t cores_quota(const char *membership, const char *mount);

#endif
