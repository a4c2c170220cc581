/* Files of weights tests. A failure to read or write fails the running test. */
#ifndef UTIL_FILE_H
#define UTIL_FILE_H

#include <stddef.h>
#include <stdint.h>

/* A whole file, malloc'd, with a NUL behind it. name: below TEST_DATA/weights. */
uint8_t *file_data(const char *name, size_t *n);

/* A fresh folder; file_folder_remove takes it away with the files in it. */
#define FILE_FOLDER_BYTES 64
void file_folder_make(char folder[FILE_FOLDER_BYTES]);
void file_folder_remove(const char *folder);
/* folder/name with these bytes; the path is in a buffer that the next call overwrites. */
const char *file_put(const char *folder, const char *name, const void *data, size_t n);

#endif
