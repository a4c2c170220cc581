#include "util_file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <dirent.h>
#include <unistd.h>

#include <cmocka.h>

uint8_t *file_data(const char *name, size_t *n) {
    char path[1024];
    snprintf(path, sizeof path, "%s/weights/%s", TEST_DATA, name);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    fseek(f, 0, SEEK_END);
    long size = ftell(f);
    rewind(f);
    uint8_t *data = malloc((size_t)size + 1);
    assert_non_null(data);
    assert_int_equal(fread(data, 1, (size_t)size, f), size);
    fclose(f);
    data[size] = 0;
    *n = (size_t)size;
    return data;
}

void file_folder_make(char folder[FILE_FOLDER_BYTES]) {
    snprintf(folder, FILE_FOLDER_BYTES, "/tmp/quire-test-XXXXXX");
    assert_non_null(mkdtemp(folder));
}

void file_folder_remove(const char *folder) {
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    for (struct dirent *e; (e = readdir(dir));) {
        char path[1024];
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        if (e->d_name[0] != '.' || strlen(e->d_name) > 2) unlink(path);
    }
    closedir(dir);
    assert_int_equal(rmdir(folder), 0);
}

const char *file_put(const char *folder, const char *name, const void *data, size_t n) {
    static char path[1024];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
    return path;
}
