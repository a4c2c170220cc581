/* A file in memory at fixed addresses, part by part either mapped or a private copy. Reading a mapped page of
 * a file that has shrunk raises SIGBUS; reading a private one, or through file_map_read, does not. */
#ifndef WEIGHTS_FILE_MAP_H
#define WEIGHTS_FILE_MAP_H

#include <quire/error.h>

#include <stddef.h>
#include <stdint.h>

struct file_map {
    const uint8_t *base; /* NULL when n is 0 */
    size_t n;            /* the file's size when it was opened */
    int fd;              /* -1: the caller's memory, where copying does nothing */
    size_t page_bytes;
};

/* A regular file only. QUIRE_ENOTFOUND, QUIRE_EIO, QUIRE_ENOMEM. */
int file_map_open(struct file_map *m, const char *path, struct error *err);
void file_map_borrow(struct file_map *m, const void *data, size_t n);
void file_map_close(struct file_map *m);

/* Makes the pages that hold [offset, offset + n) private. The range lies within the file. QUIRE_EIO when the
 * file now ends before the range does; QUIRE_ENOMEM. Any thread. */
int file_map_copy(const struct file_map *m, size_t offset, size_t n, struct error *err);
/* Bytes [offset, offset + n), which lie within the file as it was opened, as they are in it now. Errors as
 * above. Any thread. */
int file_map_read(const struct file_map *m, size_t offset, size_t n, void *dst, struct error *err);

#endif
