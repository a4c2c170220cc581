#include "net/internal.h"

#include "base/error.h"

#include <openssl/err.h>
#include <string.h>

/* A passphrase cannot be asked for: a server starts without a terminal. Notes that one was needed. */
static int no_passphrase(char *to, int size, int writing, void *needed) {
    *(bool *)needed = true;
    return -1;
}

/* RFC 7301: of what the client offers we speak only this; one that offers something else entirely is told so.
 */
static int choose_protocol(SSL *ssl, const unsigned char **out, unsigned char *out_n,
                           const unsigned char *offered, unsigned offered_n, void *user) {
    static const unsigned char ours[] = "\x08http/1.1";
    unsigned char *chosen;
    if (SSL_select_next_proto(&chosen, out_n, ours, sizeof ours - 1, offered, offered_n) !=
        OPENSSL_NPN_NEGOTIATED)
        return SSL_TLSEXT_ERR_ALERT_FATAL;
    *out = chosen;
    return SSL_TLSEXT_ERR_OK;
}

/* What OpenSSL says went wrong first, the cause of the rest; its queue is empty afterwards. */
static const char *reason(void) {
    unsigned long code = ERR_peek_error();
    const char *text = ERR_reason_error_string(code);
    if (ERR_GET_LIB(code) == ERR_LIB_PEM && ERR_GET_REASON(code) == PEM_R_NO_START_LINE)
        text = "there is no PEM certificate in it";
    if (ERR_GET_LIB(code) == ERR_LIB_OSSL_DECODER) text = "there is no PEM private key in it";
    ERR_clear_error();
    return text ? text : "unknown error";
}

static int check_readable(const char *file, const char *param, const char *what, struct error *err) {
    FILE *f = fopen(file, "r");
    if (!f)
        return error_param(err, QUIRE_EIO, param, "cannot read TLS %s %s: %s", what, file, strerror(errno));
    fclose(f);
    return 0;
}

static int mismatch(const char *cert_file, const char *key_file, struct error *err) {
    ERR_clear_error();
    return error_param(err, QUIRE_EINVAL, "tls_key_file", "TLS key %s does not belong to certificate %s",
                       key_file, cert_file);
}

static int load(SSL_CTX *ctx, const char *cert_file, const char *key_file, struct error *err) {
    bool needs_passphrase = false;
    int rc = check_readable(cert_file, "tls_cert_file", "certificate", err);
    if (!rc) rc = check_readable(key_file, "tls_key_file", "key", err);
    if (rc) return rc;
    ERR_clear_error();
    SSL_CTX_set_default_passwd_cb(ctx, no_passphrase);
    SSL_CTX_set_default_passwd_cb_userdata(ctx, &needs_passphrase);
    if (SSL_CTX_use_certificate_chain_file(ctx, cert_file) != 1)
        return error_param(err, QUIRE_EFORMAT, "tls_cert_file", "TLS certificate %s: %s", cert_file,
                           reason());
    if (SSL_CTX_use_PrivateKey_file(ctx, key_file, SSL_FILETYPE_PEM) != 1) {
        if (ERR_GET_LIB(ERR_peek_error()) == ERR_LIB_X509) return mismatch(cert_file, key_file, err);
        const char *why = reason();
        if (needs_passphrase) why = "it is encrypted; a key without a passphrase is needed";
        return error_param(err, QUIRE_EFORMAT, "tls_key_file", "TLS key %s: %s", key_file, why);
    }
    return SSL_CTX_check_private_key(ctx) == 1 ? 0 : mismatch(cert_file, key_file, err);
}

int tls_context_new(SSL_CTX **out, const char *cert_file, const char *key_file, struct error *err) {
    SSL_CTX *ctx = SSL_CTX_new(TLS_server_method());
    if (!ctx || SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION) != 1) {
        SSL_CTX_free(ctx);
        return error_set(err, QUIRE_ENOMEM, "cannot set up TLS: %s", reason());
    }
    SSL_CTX_set_options(ctx, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION |
                                 SSL_OP_CIPHER_SERVER_PREFERENCE |
                                 SSL_OP_IGNORE_UNEXPECTED_EOF); /* a client that just leaves has left */
    SSL_CTX_set_mode(ctx, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE);
    SSL_CTX_set_alpn_select_cb(ctx, choose_protocol, NULL);
    int rc = load(ctx, cert_file, key_file, err);
    if (rc)
        SSL_CTX_free(ctx);
    else
        *out = ctx;
    return rc;
}
