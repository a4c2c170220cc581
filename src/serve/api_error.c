/* Failures as OpenAI-shaped JSON: {"error": {message, type, param, code}}. */
#include "serve/internal.h"

unsigned api_error_status(const struct error *e) {
    switch (e->code) {
    case QUIRE_EINVAL:
    case QUIRE_EFORMAT:
    case QUIRE_EUNSUPPORTED:
    case QUIRE_ELIMIT: return 400;
    case QUIRE_ENOTFOUND: return 404;
    case QUIRE_EBUSY:
    case QUIRE_ECANCELED: return 503;
    default: return 500;
    }
}

static const char *type_name(unsigned status) {
    switch (status) {
    case 401: return "authentication_error";
    case 404: return "not_found_error";
    case 429: return "rate_limit_error";
    case 503: return "overloaded_error";
    default: return status < 500 ? "invalid_request_error" : "server_error";
    }
}

static const char *code_name(unsigned status, const struct error *e) {
    if (e->code == QUIRE_ELIMIT && e->param) return "context_length_exceeded";
    if (e->code == QUIRE_EUNSUPPORTED) return "unsupported";
    if (e->code == QUIRE_ENOTFOUND && e->param) return "model_not_found";
    if (status == 401) return "invalid_api_key";
    return NULL;
}

void api_error_body(struct buf *out, unsigned status, const struct error *e) {
    struct json_out j;
    json_out_init(&j, out);
    json_out_obj(&j);
    json_out_key(&j, "error");
    json_out_obj(&j);
    json_out_key(&j, "message");
    json_out_str(&j, e->text);
    json_out_key(&j, "type");
    json_out_str(&j, type_name(status));
    json_out_key(&j, "param");
    json_out_str(&j, e->param);
    json_out_key(&j, "code");
    json_out_str(&j, code_name(status, e));
    json_out_obj_end(&j);
    json_out_obj_end(&j);
}

enum serve_outcome api_error_outcome(unsigned status) {
    if (status < 400) return OUTCOME_OK;
    if (status == 401) return OUTCOME_REFUSED;
    if (status == 429 || status == 503) return OUTCOME_OVERLOADED;
    return status < 500 ? OUTCOME_INVALID : OUTCOME_FAILED;
}
