/* A tokenizer from Hugging Face's files instead of the model file's. */
#include "cli/cli.h"

#include "base/error.h"
#include "text/tokenizer_json.h"
#include "weights/weights.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define MAX_TOKENIZER_MIB 256
#define MAX_CONFIG_MIB    16

int cli_read_file(const char *option, const char *path, size_t max_mib, struct buf *out, struct error *err) {
    char piece[65536];
    FILE *f = fopen(path, "rb");
    if (!f) return error_set(err, QUIRE_ENOTFOUND, "%s %s: %s", option, path, strerror(errno));
    out->limit_bytes = max_mib << 20;
    for (size_t n; (n = fread(piece, 1, sizeof piece, f)) > 0;) buf_append(out, piece, n);
    bool failed = ferror(f);
    fclose(f);
    if (failed) return error_set(err, QUIRE_EIO, "%s %s cannot be read", option, path);
    if (!buf_ok(out))
        return error_set(err, QUIRE_ELIMIT, "%s %s is larger than %zu MiB", option, path, max_mib);
    return 0;
}

/* tokenizer_config.json beside the tokenizer, if there is one. */
static int read_config(const char *tokenizer_path, struct buf *out, struct error *err) {
    struct buf path = BUF_INIT;
    const char *slash = strrchr(tokenizer_path, '/');
    buf_append(&path, tokenizer_path, slash ? (size_t)(slash - tokenizer_path) + 1 : 0);
    buf_printf(&path, "tokenizer_config.json");
    int rc = buf_ok(&path) ? cli_read_file("--tokenizer", path.data, MAX_CONFIG_MIB, out, err)
                           : error_set(err, QUIRE_ENOMEM, "out of memory");
    buf_free(&path);
    return rc == QUIRE_ENOTFOUND ? 0 : rc;
}

static int check_vocabulary(const struct tokenizer *t, const struct weights *w, const char *path,
                            struct error *err) {
    const struct tensor *rows = weights_tensor(w, "token_embd.weight");
    if (!rows || tokenizer_n_vocab(t) <= rows->dims[1]) return 0;
    return error_set(err, QUIRE_EFORMAT, "--tokenizer %s has %zu tokens, but tensor \"%s\" has %zu rows",
                     path, tokenizer_n_vocab(t), rows->name, rows->dims[1]);
}

int tokenizer_file_open(const char *path, const struct weights *w, struct tokenizer **out,
                        struct error *err) {
    struct buf file = BUF_INIT, json = BUF_INIT, config = BUF_INIT;
    struct stat st;
    bool folder = !stat(path, &st) && S_ISDIR(st.st_mode);
    buf_printf(&file, "%s%s", path, folder ? "/tokenizer.json" : "");
    int rc = buf_ok(&file) ? cli_read_file("--tokenizer", file.data, MAX_TOKENIZER_MIB, &json, err)
                           : error_set(err, QUIRE_ENOMEM, "out of memory");
    if (!rc) rc = read_config(file.data, &config, err);
    if (!rc && (rc = tokenizer_from_json(json.data ? json.data : "", json.len,
                                         config.len ? config.data : NULL, config.len, out, err)))
        error_prefix(err, "--tokenizer %s", path);
    if (!rc) rc = check_vocabulary(*out, w, path, err);
    buf_free(&file);
    buf_free(&json);
    buf_free(&config);
    return rc;
}
