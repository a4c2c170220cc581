/* Runs a fuzz target over files or folders of files, without libFuzzer: the kept corpus is a test in every build. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay_file(const char *path) {
    FILE *f = fopen(path, "rb");
    if (!f) return -1;
    fseek(f, 0, SEEK_END);
    long n = ftell(f);
    rewind(f);
    uint8_t *data = malloc(n > 0 ? (size_t)n : 1);
    int ok = data && n >= 0 && fread(data, 1, (size_t)n, f) == (size_t)n;
    fclose(f);
    if (ok) LLVMFuzzerTestOneInput(data, (size_t)n);
    free(data);
    return ok ? 0 : -1;
}

int main(int argc, char **argv) {
    size_t n_files = 0;
    for (int i = 1; i < argc; i++) {
        DIR *dir = opendir(argv[i]);
        if (!dir) {
            if (replay_file(argv[i])) return fprintf(stderr, "cannot read %s\n", argv[i]), 1;
            n_files++;
            continue;
        }
        for (struct dirent *e; (e = readdir(dir));) {
            char path[4096];
            struct stat st;
            snprintf(path, sizeof path, "%s/%s", argv[i], e->d_name);
            if (stat(path, &st) || !S_ISREG(st.st_mode)) continue;
            if (replay_file(path)) return fprintf(stderr, "cannot read %s\n", path), 1;
            n_files++;
        }
        closedir(dir);
    }
    printf("replayed %zu inputs\n", n_files);
    return n_files ? 0 : 1; /* an empty corpus is a mistake */
}
