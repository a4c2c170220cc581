#include "load/workload.h"

#include "base/error.h"
#include "base/json_out.h"
#include "base/rng.h"

#include <stdlib.h>
#include <string.h>

#define RAG_CORPUS 1000 /* documents that the chunks are drawn from */
#define ADDED_MOST 64   /* tokens that a chat template may add, for workload_most_tokens */

static uint32_t draw(const struct workload *w, enum part part, uint64_t id, uint32_t i, uint32_t n) {
    struct rng_block b = rng_philox(w->spec->seed ^ w->salt * UINT64_C(0x9e3779b97f4a7c15), i / 4,
                                    (uint32_t)id, (uint32_t)(id >> 32), (uint32_t)part);
    return b.v[i % 4] % n;
}

static double uniform(const struct workload *w, uint64_t id, uint32_t turn, uint32_t which) {
    return rng_uniform(w->spec->seed ^ UINT64_C(0x6c656e67), (uint32_t)id, turn, which);
}

static uint32_t input_length(const struct workload *w, const struct session *s) {
    return length_draw(&w->spec->input, uniform(w, s->id, s->turn, 0), uniform(w, s->id, s->turn, 1));
}

static uint32_t output_length(const struct workload *w, const struct session *s) {
    return length_draw(&w->spec->output, uniform(w, s->id, s->turn, 2), uniform(w, s->id, s->turn, 3));
}

/* ---- content ---- */

static bool by_ids(const struct workload *w) {
    return !w->spec->chat && w->target->takes_ids;
}

/* n tokens of a part from its `from`th on; "word word " or "id,id,". */
static void content(const struct workload *w, struct buf *out, enum part part, uint64_t id, uint32_t from,
                    uint32_t n) {
    const struct target *t = w->target;
    bool ids = by_ids(w);
    uint32_t pool = (uint32_t)(ids ? t->n_ids : t->n_words);
    for (uint32_t i = from; i < from + n; i++) {
        uint32_t k = draw(w, part, id, i, pool);
        if (ids) {
            char digits[12];
            size_t at = sizeof digits;
            uint32_t v = t->ids[k];
            digits[--at] = ',';
            do digits[--at] = (char)('0' + v % 10);
            while (v /= 10);
            buf_append(out, digits + at, sizeof digits - at);
        } else {
            buf_puts(out, t->words[k]);
            buf_putc(out, ' ');
        }
    }
}

/* A prompt's first word has no space before it; it is the same everywhere, so what the server adds is known.
 */
static void start(const struct workload *w, struct buf *out, uint32_t *left) {
    if (by_ids(w)) {
        buf_putc(out, '[');
    } else {
        buf_printf(out, "\"%s ", w->target->words[0]);
        if (*left) --*left;
    }
}

static void finish(const struct workload *w, struct buf *out) {
    if (out->len && (out->data[out->len - 1] == ' ' || out->data[out->len - 1] == ',')) out->len--;
    buf_putc(out, by_ids(w) ? ']' : '"');
}

static int64_t added(const struct workload *w) {
    const struct target *t = w->target;
    struct added a = w->spec->chat ? t->chat : by_ids(w) ? t->id_prompt : t->text;
    return a.known ? a.tokens : -1;
}

/* ---- lengths and stretches ---- */

static const struct item *item_of(const struct workload *w, const struct session *s) {
    return w->items ? &w->items->v[s->id % w->items->n] : NULL;
}

/* Tokens of a single request's prompt without what the server adds, and of its answer. */
static uint32_t single_length(const struct workload *w, const struct session *s, uint32_t *output) {
    const struct workload_spec *o = w->spec;
    const struct item *item = item_of(w, s);
    uint32_t n = item ? item->input : input_length(w, s);
    *output = item ? item->output : output_length(w, s);
    /* instructions and question share --input-tokens; the chunks come on top */
    if (o->kind == WORKLOAD_RAG) n += o->chunks * o->chunk_tokens;
    return n + o->prefix_tokens;
}

/* Up to *left tokens of a part. */
static void take(const struct stretch_visitor *to, uint32_t *left, enum part part, uint64_t id, uint32_t n) {
    if (n > *left) n = *left;
    if (n) to->visit(to->ctx, part, id, n, false);
    *left -= n;
}

/* A single request's prompt of n_tokens. */
static void single_stretches(const struct workload *w, const struct session *s, uint32_t n_tokens,
                             const struct stretch_visitor *to) {
    const struct workload_spec *o = w->spec;
    const struct item *item = item_of(w, s);
    uint32_t left = n_tokens;
    if (o->prefix_tokens) take(to, &left, PART_PREFIX, s->id % o->prefix_groups, o->prefix_tokens);
    for (uint32_t b = 0; item && b < item->n_blocks; b++)
        take(to, &left, PART_BLOCK, item->blocks[b], TRACE_BLOCK_TOKENS);
    if (o->kind == WORKLOAD_RAG) {
        take(to, &left, PART_STABLE, 0, o->input.kind == LENGTH_FIXED ? (uint32_t)o->input.a / 2 : 50);
        for (uint32_t c = 0; c < o->chunks; c++)
            take(to, &left, PART_CHUNK, draw(w, PART_OWN, s->id, 1u << 30 | c, RAG_CORPUS), o->chunk_tokens);
    }
    take(to, &left, PART_OWN, s->id, left);
}

static uint64_t turn_id(const struct session *s) {
    return s->id << 12 | s->turn;
}

static void turn_stretches(const struct workload *w, const struct session *s,
                           const struct stretch_visitor *to) {
    const struct workload_spec *o = w->spec;
    bool last = o->kind == WORKLOAD_AGENT_LAST, agent = last || o->kind == WORKLOAD_AGENT;
    if (!s->turn && o->prefix_tokens && !last)
        to->visit(to->ctx, agent ? PART_STABLE : PART_PREFIX, agent ? 0 : s->id % o->prefix_groups,
                  o->prefix_tokens, false);
    to->visit(to->ctx, PART_TURN, turn_id(s), input_length(w, s), false);
    if (last && o->prefix_tokens) to->visit(to->ctx, PART_STABLE, 0, o->prefix_tokens, true);
}

uint32_t workload_stretches(const struct workload *w, const struct session *s,
                            const struct stretch_visitor *visitor) {
    uint32_t output;
    if (workload_turns(w, s->id) > 1) {
        turn_stretches(w, s, visitor);
        return output_length(w, s);
    }
    uint32_t n = single_length(w, s, &output);
    single_stretches(w, s, n, visitor);
    return output;
}

/* ---- bodies ---- */

static void member_raw(struct json_out *j, const char *key, const char *json) {
    json_out_key(j, key);
    json_out_raw(j, json, strlen(json));
}

static void body_start(const struct workload *w, struct json_out *j, struct request *r) {
    json_out_init(j, &r->body);
    json_out_obj(j);
    json_out_key(j, "model");
    json_out_str(j, w->target->model);
    member_raw(j, "stream", "true");
    member_raw(j, "stream_options", "{\"include_usage\":true}");
    if (r->output_tokens) {
        json_out_key(j, "max_tokens");
        json_out_u64(j, r->output_tokens);
    }
    if (r->exact_output) member_raw(j, "ignore_eos", "true");
    if (w->spec->has_temperature) {
        json_out_key(j, "temperature");
        json_out_f64(j, w->spec->temperature);
    }
}

static int body_end(const struct workload *w, struct json_out *j, struct request *r, struct error *err) {
    if (w->spec->extra_members) {
        buf_putc(&r->body, ',');
        buf_puts(&r->body, w->spec->extra_members);
    }
    json_out_obj_end(j);
    return buf_ok(&r->body) ? 0 : error_set(err, QUIRE_ENOMEM, "out of memory for a prompt");
}

static void message_start(struct buf *out, const char *role) {
    buf_printf(out, "{\"role\":\"%s\",\"content\":", role);
}

/* Opens the prompt of a single request: `prompt` or one user message. */
static void prompt_start(const struct workload *w, struct json_out *j, struct buf *out) {
    if (w->spec->chat) {
        json_out_key(j, "messages");
        buf_putc(out, '[');
        message_start(out, "user");
    } else {
        json_out_key(j, "prompt");
    }
}

static void prompt_end(const struct workload *w, struct json_out *j, struct buf *out) {
    if (w->spec->chat) buf_puts(out, "}]");
    j->after_value[j->depth] = true;
}

struct content_sink {
    const struct workload *w;
    struct buf *out;
};

static void put_content(void *ctx, enum part part, uint64_t id, uint32_t n, bool passing) {
    const struct content_sink *sink = ctx;
    content(sink->w, sink->out, part, id, 0, n);
}

static int build_single(const struct workload *w, struct session *s, struct request *r, struct error *err) {
    const struct workload_spec *o = w->spec;
    struct json_out j;
    uint32_t total = single_length(w, s, &r->output_tokens);
    r->exact_output = o->ignore_eos;
    int64_t over = added(w);
    /* a prompt of N tokens has N as the server counts them, with what it adds, as far as there is room */
    if (over > 0 && !o->chat && total > over + 1) {
        uint32_t own = total - o->prefix_tokens;
        own = own > over ? own - (uint32_t)over : 1;
        total = own + o->prefix_tokens;
    }
    uint32_t left = total;
    body_start(w, &j, r);
    prompt_start(w, &j, &r->body);
    start(w, &r->body, &left);
    struct content_sink sink = {w, &r->body};
    single_stretches(w, s, left, &(struct stretch_visitor){put_content, &sink});
    finish(w, &r->body);
    prompt_end(w, &j, &r->body);
    r->input_tokens = over < 0 ? -1 : (int64_t)total + over;
    return body_end(w, &j, r, err);
}

/* Words as a JSON string. */
static void words(const struct workload *w, struct buf *out, enum part part, uint64_t id, uint32_t n) {
    uint32_t left = n;
    start(w, out, &left);
    content(w, out, part, id, 0, left);
    finish(w, out);
}

/* The new user message goes into the history at once; the answer joins it later. */
static int build_turn(const struct workload *w, struct session *s, struct request *r, struct error *err) {
    const struct workload_spec *o = w->spec;
    bool last = o->kind == WORKLOAD_AGENT_LAST, agent = last || o->kind == WORKLOAD_AGENT;
    struct json_out j;
    r->output_tokens = output_length(w, s);
    r->exact_output = o->ignore_eos;
    r->input_tokens = -1;
    if (!s->turn && o->prefix_tokens && !last) {
        message_start(&s->history, "system");
        words(w, &s->history, agent ? PART_STABLE : PART_PREFIX, agent ? 0 : s->id % o->prefix_groups,
              o->prefix_tokens);
        buf_puts(&s->history, "},");
    }
    message_start(&s->history, "user");
    words(w, &s->history, PART_TURN, turn_id(s), input_length(w, s));
    buf_puts(&s->history, "},");
    body_start(w, &j, r);
    json_out_key(&j, "messages");
    buf_putc(&r->body, '[');
    if (!buf_ok(&s->history)) return error_set(err, QUIRE_ENOMEM, "out of memory for a conversation");
    if (last) { /* the last message, with the stable part behind it for this time only */
        buf_append(&r->body, s->history.data, s->history.len - 3);
        buf_putc(&r->body, ' ');
        content(w, &r->body, PART_STABLE, 0, 0, o->prefix_tokens);
        if (o->prefix_tokens) r->body.len--;
        buf_puts(&r->body, "\"}");
    } else {
        buf_append(&r->body, s->history.data, s->history.len - 1);
    }
    buf_putc(&r->body, ']');
    j.after_value[j.depth] = true;
    return body_end(w, &j, r, err);
}

static const char *const functions[][2] = {
    {"get_weather", "The weather of a place now."},
    {"search_flights", "Flights between two places on a day."},
    {"book_room", "Books a room for a number of nights."},
    {"convert_currency", "An amount in another currency."},
    {"find_contact", "The address of a person."},
    {"send_mail", "Sends a message to a person."},
    {"list_events", "What is in the calendar on a day."},
    {"run_query", "Rows of a table that match."},
};

static void tools(struct buf *out) {
    buf_puts(out, ",\"tools\":[");
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        buf_printf(
            out,
            "%s{\"type\":\"function\",\"function\":{\"name\":\"%s\",\"description\":\"%s\",\"parameters\":"
            "{\"type\":\"object\",\"properties\":{\"subject\":{\"type\":\"string\"},\"day\":{\"type\":"
            "\"string\"},\"count\":{\"type\":\"integer\"}},\"required\":[\"subject\"]}}}",
            i ? "," : "", functions[i][0], functions[i][1]);
    buf_puts(out, "],\"tool_choice\":\"auto\"");
}

static const char schema[] =
    ",\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"person\",\"schema\":{"
    "\"type\":"
    "\"object\",\"properties\":{\"name\":{\"type\":\"string\"},\"age\":{\"type\":\"integer\"},\"city\":{"
    "\"type\":"
    "\"string\"}},\"required\":[\"name\",\"age\",\"city\"],\"additionalProperties\":false}}}";

static int build_structured(const struct workload *w, struct session *s, struct request *r,
                            struct error *err) {
    struct json_out j;
    r->output_tokens = output_length(w, s);
    r->exact_output = false; /* the answer's end is part of its form */
    r->input_tokens = -1;
    body_start(w, &j, r);
    json_out_key(&j, "messages");
    buf_putc(&r->body, '[');
    message_start(&r->body, "user");
    words(w, &r->body, PART_OWN, s->id, input_length(w, s));
    buf_puts(&r->body, "}]");
    if (w->spec->kind == WORKLOAD_TOOLS)
        tools(&r->body);
    else
        buf_puts(&r->body, schema);
    j.after_value[j.depth] = true;
    return body_end(w, &j, r, err);
}

static int build_text(const struct workload *w, struct request *r, const struct item *item,
                      struct error *err) {
    struct json_out j;
    r->output_tokens = item->output ? item->output : length_most(&w->spec->output);
    r->exact_output = w->spec->ignore_eos;
    r->input_tokens = -1;
    body_start(w, &j, r);
    prompt_start(w, &j, &r->body);
    buf_putc(&r->body, '"');
    json_out_escape(&r->body, item->text, strlen(item->text));
    buf_putc(&r->body, '"');
    prompt_end(w, &j, &r->body);
    return body_end(w, &j, r, err);
}

static int build_batch(const struct workload *w, struct request *r, const struct item *item,
                       struct error *err) {
    r->chat = item->chat;
    r->output_tokens = item->output;
    r->exact_output = false;
    r->input_tokens = -1;
    buf_printf(&r->body, "{%s}", item->text);
    return buf_ok(&r->body) ? 0 : error_set(err, QUIRE_ENOMEM, "out of memory for a request");
}

uint32_t workload_turns(const struct workload *w, uint64_t id) {
    enum workload_kind k = w->spec->kind;
    return k == WORKLOAD_CHAT || k == WORKLOAD_AGENT || k == WORKLOAD_AGENT_LAST ? w->spec->turns : 1;
}

bool workload_keeps_text(const struct workload *w) {
    return workload_turns(w, 0) > 1;
}

int workload_build(const struct workload *w, struct session *s, struct request *r, struct error *err) {
    const struct item *item = item_of(w, s);
    buf_clear(&r->body);
    r->chat = w->spec->chat;
    switch (w->spec->kind) {
    case WORKLOAD_RANDOM:
    case WORKLOAD_TRACE:
    case WORKLOAD_RAG: return build_single(w, s, r, err);
    case WORKLOAD_TOOLS:
    case WORKLOAD_JSON: return build_structured(w, s, r, err);
    case WORKLOAD_SHAREGPT: return build_text(w, r, item, err);
    case WORKLOAD_BATCH: return build_batch(w, r, item, err);
    default: return build_turn(w, s, r, err);
    }
}

int workload_answered(const struct workload *w, struct session *s, const struct buf *answer,
                      struct error *err) {
    s->turn++;
    if (s->turn >= s->n_turns) return 0;
    message_start(&s->history, "assistant");
    buf_putc(&s->history, '"');
    if (answer->len) buf_append(&s->history, answer->data, answer->len);
    buf_puts(&s->history, "\"},");
    return buf_ok(&s->history) && buf_ok(answer)
               ? 0
               : error_set(err, QUIRE_ENOMEM, "out of memory for a conversation");
}

uint64_t workload_most_tokens(const struct workload_spec *o) {
    uint64_t input = length_most(&o->input), output = length_most(&o->output), turns = 1;
    if (o->kind >= WORKLOAD_SHAREGPT) return 0;
    if (o->kind == WORKLOAD_CHAT || o->kind == WORKLOAD_AGENT || o->kind == WORKLOAD_AGENT_LAST)
        turns = o->turns;
    if (o->kind == WORKLOAD_TOOLS) input += 600; /* the functions as a template writes them */
    if (o->kind == WORKLOAD_RAG) input += (uint64_t)o->chunks * o->chunk_tokens;
    return o->prefix_tokens + turns * (input + output + (o->chat ? ADDED_MOST : 0));
}
