/* CRC-32 as zlib has it (polynomial 0xedb88320), for comparing much generated data with a short golden value.
 */
#ifndef UTIL_CRC32_H
#define UTIL_CRC32_H

#include <stddef.h>
#include <stdint.h>

uint32_t crc32_of(const void *data, size_t n);

#endif
