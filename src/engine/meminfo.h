/* How much memory a process may still take: the machine's and every control group's above it (versions 1 and
 * 2). */
#ifndef ENGINE_MEMINFO_H
#define ENGINE_MEMINFO_H

#include <stdint.h>

struct meminfo {
    uint64_t
        available_bytes;    /* the least of all limits; page cache that can be dropped counts as available */
    const char *limited_by; /* "the machine" or "the control group" */
};

/* root: "" for the real system, else a folder that holds proc/ and sys/. 0, or QUIRE_EIO when proc/meminfo
 * cannot be read. */
int meminfo_read(const char *root, struct meminfo *out);

/* Resident bytes of this process; 0 when unknown. */
uint64_t meminfo_resident_bytes(void);

#endif
