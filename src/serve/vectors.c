/* Embeddings, and scores of pairs of texts: by a cross-encoder, or as the cosine of two embeddings. */
#include "serve/internal.h"

#include "base/error.h"
#include "base/size.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Texts beyond the model's length are counted exactly up to this, so that the error tells the true number. */
#define COUNT_TOKENS_UP_TO ((size_t)1 << 20)

int vectors_purpose(const struct serve *s, enum request_kind kind, struct error *err) {
    const struct quire_info *i = s->info;
    if (kind & REQUEST_GENERATES && i->encoder)
        return error_set(err, QUIRE_EUNSUPPORTED,
                         "this model (%s) is an encoder: it makes vectors, not text; use %s", i->family,
                         i->pooling == QUIRE_POOLING_RANK ? "/v1/rerank" : "/v1/embeddings");
    if (kind & REQUEST_GENERATES && i->pooling)
        return error_set(err, QUIRE_EUNSUPPORTED,
                         "this model was started to make vectors; the operator can start it with "
                         "--runner generate for text");
    if (kind & REQUEST_POOLS && !i->pooling)
        return error_set(err, QUIRE_EUNSUPPORTED,
                         "this model was started to generate text; the operator can start it with "
                         "--runner pooling for vectors");
    if (kind == REQUEST_EMBEDDING && i->pooling == QUIRE_POOLING_RANK)
        return error_set(
            err, QUIRE_EUNSUPPORTED,
            "this model scores pairs of texts: use /v1/rerank or /v1/score; the operator can start "
            "it with --pooling-type cls for embeddings");
    return 0;
}

/* ---- prompts ---- */

struct builder {
    const struct serve *s;
    const struct request *r;
    struct error *err;
};

/* The longest that is taken: what is cut to, and what may not be exceeded. */
static size_t cut_to(const struct builder *b) {
    size_t k = b->r->truncate_tokens;
    return k ? size_min(k, b->s->limits.max_model_len) : b->s->limits.max_model_len;
}

static int too_long(const struct builder *b, const char *name, size_t i, size_t n, bool exact) {
    if (b->r->truncate_tokens != SIZE_MAX)
        return error_param(
            b->err, QUIRE_ELIMIT, name,
            "%s[%zu] has more than %zu tokens, which is the most that is read of a text to cut "
            "(truncate_prompt_tokens); send a shorter one",
            name, i, n);
    return error_param(b->err, QUIRE_ELIMIT, name,
                       "%s[%zu] has %s%zu tokens, the model takes at most %zu (max_model_len); "
                       "truncate_prompt_tokens: -1 cuts it",
                       name, i, exact ? "" : "more than ", n, b->s->limits.max_model_len);
}

static int too_short(const struct builder *b, size_t n_added) {
    return error_param(b->err, QUIRE_EINVAL, "truncate_prompt_tokens",
                       "truncate_prompt_tokens is %zu: %zu of the tokens are added to every text", cut_to(b),
                       n_added);
}

static size_t count_limit(const struct builder *b) {
    return size_max(COUNT_TOKENS_UP_TO, b->s->limits.max_model_len);
}

static void remove_ids(struct token_buf *ids, size_t at, size_t n) {
    memmove(ids->ids + at, ids->ids + at + n, (ids->n - at - n) * sizeof *ids->ids);
    ids->n -= n;
}

/* Cuts the end of the text, keeping what is added after it. */
static int truncate_text(const struct builder *b, struct token_buf *ids, bool added) {
    size_t before = 0, after = 0, most = cut_to(b);
    if (b->r->truncate_tokens == SIZE_MAX || ids->n <= most) return 0;
    if (added) tokenizer_n_added(b->s->text.tokenizer, &before, &after);
    if (before + after >= most) return too_short(b, before + after);
    remove_ids(ids, most - after, ids->n - most);
    return 0;
}

static int check_length(const struct builder *b, const char *name, size_t i, struct token_prompt *p) {
    p->n_tokens = p->ids.n;
    if (!p->n_tokens) return error_param(b->err, QUIRE_EINVAL, name, "%s[%zu] has no tokens", name, i);
    return p->n_tokens > b->s->limits.max_model_len ? too_long(b, name, i, p->n_tokens, true) : 0;
}

static int build_text(const struct builder *b, const char *name, size_t i, const struct request_prompt *text,
                      struct token_prompt *out) {
    unsigned flags = TOKENIZE_SPECIAL | (b->r->add_special_tokens ? TOKENIZE_ADD : 0);
    int rc;
    if (text->text) {
        rc = tokenizer_encode(b->s->text.tokenizer, text->text, text->len, flags, NULL, 0, count_limit(b),
                              &out->ids, b->err);
        if (rc == QUIRE_ELIMIT) rc = too_long(b, name, i, count_limit(b), false);
    } else {
        out->ids.ids = malloc(text->n_ids * sizeof *out->ids.ids);
        if (!out->ids.ids) return error_set(b->err, QUIRE_ENOMEM, "out of memory while reading the input");
        memcpy(out->ids.ids, text->ids, text->n_ids * sizeof *out->ids.ids);
        out->ids.n = out->ids.cap = text->n_ids;
        rc = 0;
    }
    if (!rc) rc = truncate_text(b, &out->ids, text->text && b->r->add_special_tokens);
    return rc ? rc : check_length(b, name, i, out);
}

/* Token by token from the longer of the two texts, as Hugging Face's "longest first" leaves them. */
static int truncate_pair(const struct builder *b, struct token_buf *ids, struct token_pair *p) {
    size_t most = cut_to(b), n_added = ids->n - p->first_len - p->second_len;
    if (b->r->truncate_tokens == SIZE_MAX || ids->n <= most) return 0;
    if (n_added >= most) return too_short(b, n_added);
    size_t room = most - n_added, shorter = size_min(p->first_len, p->second_len);
    size_t longer = shorter > room ? shorter : size_max(shorter, room - shorter);
    if (shorter + longer > room) {
        shorter = room / 2;
        longer = shorter + room % 2;
    }
    bool swapped = p->first_len > p->second_len;
    size_t first = swapped ? longer : shorter, second = swapped ? shorter : longer;
    remove_ids(ids, p->second_at + second, p->second_len - second);
    remove_ids(ids, p->first_at + first, p->first_len - first);
    p->n_first -= p->first_len - first;
    return 0;
}

static int build_pair(const struct builder *b, const char *name, size_t i, struct token_prompt *out) {
    const struct request_prompt *q = &b->r->queries[b->r->n_queries > 1 ? i : 0], *d = &b->r->prompts[i];
    struct token_pair pair;
    int rc =
        tokenizer_encode_pair(b->s->text.tokenizer, (struct text_span){q->text, q->len},
                              (struct text_span){d->text, d->len}, count_limit(b), &out->ids, &pair, b->err);
    if (rc == QUIRE_ELIMIT) return too_long(b, name, i, count_limit(b), false);
    if (!rc) rc = truncate_pair(b, &out->ids, &pair);
    out->n_first = pair.n_first;
    return rc ? rc : check_length(b, name, i, out);
}

int vectors_prompts(struct call *c) {
    const struct request *r = &c->request;
    struct builder b = {c->serve, r, &c->err};
    bool pairs = r->kind != REQUEST_EMBEDDING && c->serve->info->pooling == QUIRE_POOLING_RANK;
    const char *first = r->kind == REQUEST_RERANK ? "query" : "text_1";
    const char *second = request_prompts_field(r);
    c->n_queries = pairs ? 0 : r->n_queries;
    size_t n = c->n_queries + r->n_prompts;
    struct token_prompt *p = calloc(n, sizeof *p);
    if (!p) return error_set(&c->err, QUIRE_ENOMEM, "out of memory while reading the input");
    int rc = 0;
    for (size_t i = 0; i < c->n_queries && !rc; i++) rc = build_text(&b, first, i, &r->queries[i], &p[i]);
    for (size_t i = 0; i < r->n_prompts && !rc; i++)
        rc = pairs ? build_pair(&b, second, i, &p[i])
                   : build_text(&b, second, i, &r->prompts[i], &p[c->n_queries + i]);
    c->prompts = p;
    c->n_prompts = n;
    return rc;
}

/* ---- answers ---- */

#define FLOAT_JSON_BYTES 14

size_t vectors_bytes(const struct call *c) {
    return 64 + c->serve->info->vector_floats * (sizeof(float) + FLOAT_JSON_BYTES);
}

/* RFC 4648, of floats in little-endian order. */
static void put_base64(struct json_out *j, const float *v, size_t n) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    struct buf text = BUF_INIT;
    const uint8_t *bytes = (const uint8_t *)v;
    for (size_t i = 0, len = n * sizeof *v; i < len; i += 3) {
        size_t left = len - i;
        uint32_t word =
            (uint32_t)bytes[i] << 16 | (left > 1 ? bytes[i + 1] : 0u) << 8 | (left > 2 ? bytes[i + 2] : 0u);
        char four[4] = {digits[word >> 18], digits[word >> 12 & 63], left > 1 ? digits[word >> 6 & 63] : '=',
                        left > 2 ? digits[word & 63] : '='};
        buf_append(&text, four, sizeof four);
    }
    json_out_strn(j, text.data ? text.data : "", text.len);
    if (!buf_ok(&text)) j->out->failed = true;
    buf_free(&text);
}

static void put_vector(const struct call *c, const struct answer *a, struct json_out *j) {
    size_t n;
    const float *v = quire_vector(a->stream, &n);
    if (c->request.base64) {
        put_base64(j, v, n);
        return;
    }
    json_out_arr(j);
    for (size_t i = 0; i < n; i++) json_out_f32(j, v[i]);
    json_out_arr_end(j);
}

static void head(const struct call *c, struct json_out *j, bool list) {
    json_out_obj(j);
    json_out_key(j, "id");
    json_out_str(j, c->id);
    if (list) {
        json_out_key(j, "object");
        json_out_str(j, "list");
        json_out_key(j, "created");
        json_out_i64(j, c->created_unix_s);
    }
    json_out_key(j, "model");
    json_out_str(j, c->request.model ? c->request.model : c->serve->config.model_names[0]);
    json_out_key(j, list ? "data" : "results");
    json_out_arr(j);
}

static void tail(const struct call *c, struct json_out *j) {
    json_out_arr_end(j);
    response_usage(c, j);
    json_out_obj_end(j);
}

static void embeddings(const struct call *c, struct json_out *j) {
    head(c, j, true);
    for (size_t i = 0; i < c->n_answers; i++) {
        json_out_obj(j);
        json_out_key(j, "object");
        json_out_str(j, "embedding");
        json_out_key(j, "index");
        json_out_u64(j, i);
        json_out_key(j, "embedding");
        put_vector(c, &c->answers[i], j);
        json_out_obj_end(j);
    }
    tail(c, j);
}

/* Of pair i: vectors of length 1 have their product for a cosine. */
static float score_of(const struct call *c, size_t i) {
    size_t n, n_queries = c->n_queries;
    const float *d = quire_vector(c->answers[n_queries + i].stream, &n);
    if (!n_queries) return d[0];
    const float *q = quire_vector(c->answers[n_queries > 1 ? i : 0].stream, &n);
    double dot = 0, qq = 0, dd = 0;
    for (size_t k = 0; k < n; k++) {
        dot += (double)q[k] * d[k];
        qq += (double)q[k] * q[k];
        dd += (double)d[k] * d[k];
    }
    return (float)(qq > 0 && dd > 0 ? dot / sqrt(qq * dd) : 0);
}

static void scores(const struct call *c, size_t n, struct json_out *j) {
    head(c, j, true);
    for (size_t i = 0; i < n; i++) {
        json_out_obj(j);
        json_out_key(j, "object");
        json_out_str(j, "score");
        json_out_key(j, "index");
        json_out_u64(j, i);
        json_out_key(j, "score");
        json_out_f32(j, score_of(c, i));
        json_out_obj_end(j);
    }
    tail(c, j);
}

struct ranked {
    size_t index;
    float score;
};

static int by_score(const void *a, const void *b) {
    const struct ranked *x = a, *y = b;
    if (x->score != y->score) return x->score < y->score ? 1 : -1;
    return (x->index > y->index) - (x->index < y->index);
}

static void rerank(const struct call *c, size_t n, struct json_out *j) {
    const struct request *r = &c->request;
    struct ranked *order = calloc(n, sizeof *order);
    if (!order) {
        j->out->failed = true;
        return;
    }
    for (size_t i = 0; i < n; i++) order[i] = (struct ranked){i, score_of(c, i)};
    qsort(order, n, sizeof *order, by_score);
    head(c, j, false);
    for (size_t i = 0; i < n && (!r->top_n || i < r->top_n); i++) {
        json_out_obj(j);
        json_out_key(j, "index");
        json_out_u64(j, order[i].index);
        if (r->return_documents) {
            const struct request_prompt *d = &r->prompts[order[i].index];
            json_out_key(j, "document");
            json_out_obj(j);
            json_out_key(j, "text");
            json_out_strn(j, d->text, d->len);
            json_out_obj_end(j);
        }
        json_out_key(j, "relevance_score");
        json_out_f32(j, order[i].score);
        json_out_obj_end(j);
    }
    tail(c, j);
    free(order);
}

void vectors_response(const struct call *c, struct buf *out) {
    struct json_out j;
    json_out_init(&j, out);
    if (c->kind == REQUEST_EMBEDDING)
        embeddings(c, &j);
    else if (c->kind == REQUEST_RERANK)
        rerank(c, c->n_answers - c->n_queries, &j);
    else
        scores(c, c->n_answers - c->n_queries, &j);
}
