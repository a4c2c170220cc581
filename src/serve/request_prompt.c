/* Fields that are lists: prompts, stop strings, token ids, biases. */
#include "serve/request.h"

#include "base/error.h"
#include "serve/json_in.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static int no_memory(struct error *err) {
    return error_set(err, QUIRE_ENOMEM, "out of memory while reading the request");
}

/* A token id of the vocabulary. where: "prompt[3]". */
static int check_id(const struct request_parser *p, const char *name, size_t index, const json_t *v,
                    uint32_t *out, struct error *err) {
    int64_t id;
    if (!json_is_integer(v))
        return error_param(err, QUIRE_EINVAL, name, "%s[%zu] must be a token id, not %s", name, index,
                           json_in_type_name(v));
    id = json_integer_value(v);
    if (id < 0 || (uint64_t)id >= p->limits->n_vocab)
        return error_param(err, QUIRE_EINVAL, name, "%s[%zu] is token id %" PRId64 "; allowed is 0 to %zu",
                           name, index, id, p->limits->n_vocab - 1);
    *out = (uint32_t)id;
    return 0;
}

int request_parse_token_ids(struct request_parser *p, const char *name, const json_t *value, uint32_t **ids,
                            size_t *n, struct error *err) {
    size_t count = json_array_size(value);
    uint32_t *out = arena_array(&p->r->arena, count, sizeof *out);
    if (!out) return no_memory(err);
    for (size_t i = 0; i < count; i++) {
        int rc = check_id(p, name, i, json_array_get(value, i), &out[i], err);
        if (rc) return rc;
    }
    *ids = out;
    *n = count;
    return 0;
}

static int one_prompt(struct request_parser *p, const char *name, const json_t *value,
                      struct request_prompt *out, struct error *err) {
    if (json_is_string(value)) {
        out->text = json_string_value(value);
        out->len = json_string_length(value);
        return 0;
    }
    if (!json_is_array(value))
        return error_param(
            err, QUIRE_EINVAL, name,
            "%s must be a string, an array of strings, token ids or an array of token id arrays, not %s",
            name, json_in_type_name(value));
    if (!json_array_size(value))
        return error_param(err, QUIRE_EINVAL, name, "%s holds an empty array of token ids", name);
    return request_parse_token_ids(p, name, value, &out->ids, &out->n_ids, err);
}

int request_parse_prompt(struct request_parser *p, const char *name, const json_t *value, struct error *err) {
    struct request *r = p->r;
    bool many = json_is_array(value) &&
                (json_is_string(json_array_get(value, 0)) || json_is_array(json_array_get(value, 0)));
    if (r->kind == REQUEST_TOKENIZE && !json_is_string(value))
        return error_param(err, QUIRE_EINVAL, name, "%s must be a string, not %s", name,
                           json_in_type_name(value));
    if (json_is_array(value) && !json_array_size(value))
        return error_param(err, QUIRE_EINVAL, name, "%s is an empty array", name);
    r->n_prompts = many ? json_array_size(value) : 1;
    if (r->n_prompts > REQUEST_MAX_STREAMS)
        return error_param(err, QUIRE_EINVAL, name,
                           "%s has %zu prompts; at most %d are allowed in one request", name, r->n_prompts,
                           REQUEST_MAX_STREAMS);
    r->prompts = arena_array(&r->arena, r->n_prompts, sizeof *r->prompts);
    if (!r->prompts) return no_memory(err);
    if (!many) return one_prompt(p, name, value, &r->prompts[0], err);
    for (size_t i = 0; i < r->n_prompts; i++) {
        const json_t *item = json_array_get(value, i);
        if (json_is_string(item) != json_is_string(json_array_get(value, 0)))
            return error_param(err, QUIRE_EINVAL, name, "%s mixes strings and token ids; use one kind", name);
        int rc = one_prompt(p, name, item, &r->prompts[i], err);
        if (rc) return rc;
    }
    return 0;
}

int request_parse_stop(struct request_parser *p, const char *name, const json_t *value, struct error *err) {
    struct quire_sampling *s = &p->r->sampling;
    size_t n = json_is_array(value) ? json_array_size(value) : 1;
    if (n > QUIRE_MAX_STOP_STRINGS)
        return error_param(err, QUIRE_EINVAL, name, "%s has %zu strings; at most %d are allowed", name, n,
                           QUIRE_MAX_STOP_STRINGS);
    struct quire_str *stop = arena_array(&p->r->arena, n, sizeof *stop);
    if (!stop) return no_memory(err);
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_is_array(value) ? json_array_get(value, i) : value;
        if (!json_is_string(v))
            return error_param(err, QUIRE_EINVAL, name, "%s must be a string or an array of strings, not %s",
                               name, json_in_type_name(v));
        stop[i] = (struct quire_str){json_string_value(v), json_string_length(v)};
        if (!stop[i].len || stop[i].len > QUIRE_MAX_STOP_BYTES)
            return error_param(err, QUIRE_EINVAL, name, "%s[%zu] has %zu bytes; allowed is 1 to %d", name, i,
                               stop[i].len, QUIRE_MAX_STOP_BYTES);
    }
    s->stop = stop;
    s->n_stop = n;
    return 0;
}

int request_parse_stop_ids(struct request_parser *p, const char *name, const json_t *value,
                           struct error *err) {
    if (!json_is_array(value))
        return error_param(err, QUIRE_EINVAL, name, "%s must be an array of token ids, not %s", name,
                           json_in_type_name(value));
    if (json_array_size(value) > REQUEST_MAX_STOP_IDS)
        return error_param(err, QUIRE_EINVAL, name, "%s has %zu ids; at most %d are allowed", name,
                           json_array_size(value), REQUEST_MAX_STOP_IDS);
    uint32_t *ids = NULL;
    int rc = request_parse_token_ids(p, name, value, &ids, &p->r->sampling.n_stop_token_ids, err);
    p->r->sampling.stop_token_ids = ids;
    return rc;
}

static bool parse_id_key(const char *key, size_t n_vocab, uint32_t *out) {
    if (key[0] < '0' || key[0] > '9' || strlen(key) > 10) return false;
    if (key[0] == '0' && key[1]) return false; /* one spelling for one token */
    char *end;
    unsigned long long id = strtoull(key, &end, 10);
    if (*end || id >= n_vocab) return false;
    *out = (uint32_t)id;
    return true;
}

int request_parse_bias(struct request_parser *p, const char *name, const json_t *value, struct error *err) {
    if (!json_is_object(value))
        return error_param(err, QUIRE_EINVAL, name, "%s must be an object of token id to bias, not %s", name,
                           json_in_type_name(value));
    size_t n = json_object_size(value);
    if (n > REQUEST_MAX_BIAS)
        return error_param(err, QUIRE_EINVAL, name, "%s has %zu entries; at most %d are allowed", name, n,
                           REQUEST_MAX_BIAS);
    struct quire_bias *bias = arena_array(&p->r->arena, n, sizeof *bias);
    if (!bias) return no_memory(err);
    size_t i = 0;
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)value, key, v) {
        if (!parse_id_key(key, p->limits->n_vocab, &bias[i].token))
            return error_param(err, QUIRE_EINVAL, name,
                               "%s has the key \"%.40s\"; keys are token ids from 0 to %zu", name, key,
                               p->limits->n_vocab - 1);
        double d = json_is_number(v) ? json_number_value(v) : NAN;
        if (!(d >= -100 && d <= 100))
            return error_param(err, QUIRE_EINVAL, name, "%s[\"%s\"] must be a number from -100 to 100", name,
                               key);
        bias[i++].bias = (float)d;
    }
    p->r->sampling.bias = bias;
    p->r->sampling.n_bias = n;
    return 0;
}
