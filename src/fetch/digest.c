#include "fetch/digest.h"

#include "base/error.h"

#include <errno.h>
#include <openssl/evp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define PIECE_BYTES ((size_t)1 << 18)

static bool start(EVP_MD_CTX *md, enum digest_kind kind, FILE *f) {
    if (kind == DIGEST_SHA256) return EVP_DigestInit_ex(md, EVP_sha256(), NULL);
    struct stat st;
    char head[40];
    if (fstat(fileno(f), &st)) return false;
    int n = snprintf(head, sizeof head, "blob %ju", (uintmax_t)st.st_size);
    return EVP_DigestInit_ex(md, EVP_sha1(), NULL) && EVP_DigestUpdate(md, head, (size_t)n + 1);
}

static bool add_all(EVP_MD_CTX *md, FILE *f) {
    unsigned char *piece = malloc(PIECE_BYTES);
    bool ok = piece;
    for (size_t n; ok && (n = fread(piece, 1, PIECE_BYTES, f)) > 0;) ok = EVP_DigestUpdate(md, piece, n);
    free(piece);
    return ok && !ferror(f);
}

int digest_file(const char *path, enum digest_kind kind, char hex[DIGEST_HEX_BYTES], struct error *err) {
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned n_digest = 0;
    FILE *f = fopen(path, "rb");
    if (!f) return error_set(err, QUIRE_EIO, "cannot open %s: %s", path, strerror(errno));
    EVP_MD_CTX *md = EVP_MD_CTX_new();
    bool ok = md && start(md, kind, f) && add_all(md, f) && EVP_DigestFinal_ex(md, digest, &n_digest);
    EVP_MD_CTX_free(md);
    fclose(f);
    if (!ok) return error_set(err, QUIRE_EIO, "cannot read %s", path);
    for (unsigned i = 0; i < n_digest; i++) snprintf(hex + 2 * i, 3, "%02x", digest[i]);
    return 0;
}

int digest_check(const char *path, enum digest_kind kind, const char *expected, const char *name,
                 struct error *err) {
    char hex[DIGEST_HEX_BYTES];
    int rc = digest_file(path, kind, hex, err);
    if (rc || !strcmp(hex, expected)) return rc;
    return error_set(err, QUIRE_EFORMAT, "%s has %s %s, expected %s: it was not kept", name,
                     kind == DIGEST_SHA256 ? "SHA-256" : "git hash", hex, expected);
}
