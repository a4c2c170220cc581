/* A file in memory at fixed addresses, part by part either mapped or a private copy. Reading a mapped page of
 * a file that has shrunk raises SIGBUS; reading a private one cannot fail. A copy is read into fresh memory
 * first and then takes the place of the mapped pages at once, so that a reader in another thread sees the
 * file's bytes before, during and after. */
#ifndef WEIGHTS_FILE_MAP_H
#define WEIGHTS_FILE_MAP_H

#include <quire/error.h>

#include <stddef.h>
#include <stdint.h>

struct file_map {
    const uint8_t *base; /* NULL when n is 0 */
    size_t n;            /* the file's size when it was opened */
    int fd;              /* -1: the caller's memory, where copying and dropping do nothing */
    size_t page_bytes;
};

/* A regular file only. QUIRE_ENOTFOUND, QUIRE_EIO, QUIRE_ENOMEM. */
int file_map_open(struct file_map *m, const char *path, struct error *err);
void file_map_borrow(struct file_map *m, const void *data, size_t n);
void file_map_close(struct file_map *m);

/* Makes the pages that hold [offset, offset + n) private. The range lies within the file. QUIRE_EIO when the
 * file now ends before the range does; QUIRE_ENOMEM. Any thread. */
int file_map_copy(const struct file_map *m, size_t offset, size_t n, struct error *err);
/* Gives back the memory of the pages that lie wholly within [offset, offset + n): they are mapped again. */
void file_map_drop(const struct file_map *m, size_t offset, size_t n);

#endif
