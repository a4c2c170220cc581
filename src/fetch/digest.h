/* What a file holds, as the places it comes from name it. */
#ifndef FETCH_DIGEST_H
#define FETCH_DIGEST_H

#include <quire/error.h>

enum digest_kind {
    DIGEST_SHA256,
    DIGEST_GIT_BLOB /* SHA-1 of "blob SIZE\0" and the content: git's object id */
};

#define DIGEST_HEX_BYTES 65

/* Reads the file; lower-case hexadecimal. QUIRE_EIO. */
int digest_file(const char *path, enum digest_kind kind, char hex[DIGEST_HEX_BYTES], struct error *err);

/* The file has the digest `expected`; QUIRE_EFORMAT if not. name: the file's, for the message. */
int digest_check(const char *path, enum digest_kind kind, const char *expected, const char *name,
                 struct error *err);

#endif
