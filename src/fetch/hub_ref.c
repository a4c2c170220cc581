/* The text of a reference, and what the cache holds of it. */
#include "fetch/hub.h"

#include "base/error.h"

#include <stdio.h>
#include <string.h>

bool hub_ref_is(const char *text) {
    const char *slash = strchr(text, '/');
    if (!slash || slash == text || !slash[1]) return false;
    size_t id = strcspn(text, "@:");
    return text[0] != '.' && (size_t)(slash - text) < id &&
           !memchr(slash + 1, '/', id - (size_t)(slash + 1 - text));
}

static bool id_char(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.';
}

static int take_id(const char *text, size_t n, const char *what, char *out, struct error *err) {
    bool ok = n && n < HUB_PART_BYTES && text[0] != '.' && text[0] != '-';
    for (size_t i = 0; ok && i < n; i++) ok = id_char(text[i]);
    if (!ok)
        return error_set(
            err, QUIRE_EINVAL,
            "\"%.*s\" is no %s of a hub id: 1 to 96 letters, digits, '-', '_', '.', the first no '-' or '.'",
            (int)(n < 120 ? n : 120), text, what);
    memcpy(out, text, n);
    out[n] = 0;
    return 0;
}

/* A branch, tag, commit or file name: anything printable that stays within its folder. */
static int take_name(const char *text, size_t n, const char *what, char *out, struct error *err) {
    bool ok = n && n < HUB_NAME_BYTES && text[0] != '/' && text[n - 1] != '/';
    for (size_t i = 0; ok && i < n; i++)
        ok = (unsigned char)text[i] > ' ' && text[i] != 127 && text[i] != '\\' &&
             !(text[i] == '.' && i + 1 < n && text[i + 1] == '.');
    if (!ok)
        return error_set(err, QUIRE_EINVAL,
                         "\"%.*s\" is no %s: 1 to 255 characters, no spaces, no \"..\", no '/' at either end",
                         (int)(n < 120 ? n : 120), text, what);
    memcpy(out, text, n);
    out[n] = 0;
    return 0;
}

int hub_ref_parse(const char *text, struct hub_ref *out, struct error *err) {
    *out = (struct hub_ref){.revision = "main"};
    size_t id = strcspn(text, "@:"), slash = strcspn(text, "/");
    if (slash >= id)
        return error_set(err, QUIRE_EINVAL,
                         "\"%.200s\" is no hub id: ORG/NAME[@REVISION][:FILE or QUANTIZATION]", text);
    int rc = take_id(text, slash, "organisation", out->org, err);
    if (!rc) rc = take_id(text + slash + 1, id - slash - 1, "name", out->name, err);
    const char *at = text + id;
    if (!rc && *at == '@') {
        size_t n = strcspn(at + 1, ":");
        rc = take_name(at + 1, n, "revision", out->revision, err);
        at += 1 + n;
    }
    if (!rc && *at == ':') rc = take_name(at + 1, strlen(at + 1), "file or quantization", out->pick, err);
    return rc;
}
