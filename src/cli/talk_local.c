/* Answers from a model in this process. */
#include "cli/terminal.h"

#include "base/clock.h"
#include "base/error.h"
#include "text/detokenizer.h"

#include <string.h>

size_t talk_option_rows(struct option *table, bool remote) {
#define TALK(member) offsetof(struct talk_options, member)
    const struct option rows[TALK_OPTION_ROWS] = {
        {"temperature", OPTION_FLOAT, TALK(temperature), "Sampling", "T", "0.7", 0, 2, NULL, NULL,
         "0 is greedy."},
        {"top-p", OPTION_FLOAT, TALK(top_p), "Sampling", "P", "1", 0.0001, 1, NULL, NULL,
         "Nucleus sampling."},
        {"top-k", OPTION_INT, TALK(top_k), "Sampling", "K", "0", 0, 1 << 30, NULL, NULL, "0 is off."},
        {"min-p", OPTION_FLOAT, TALK(min_p), "Sampling", "P", "0", 0, 1, NULL, NULL, "0 is off."},
        {"max-tokens", OPTION_INT, TALK(max_tokens), "Sampling", "N", "0", 0, 1 << 30, NULL, NULL,
         "Longest answer; 0 is the room left."},
        {"system", OPTION_STRING, TALK(system), "Sampling", "TEXT", NULL, 0, 0, NULL, NULL,
         "System message."},
        {"api-key", OPTION_STRING, TALK(api_key), "Server", "KEY", NULL, 0, 0, NULL, "QUIRE_API_KEY",
         "Key for a server."},
        {"model", OPTION_STRING, TALK(model), "Server", "NAME", NULL, 0, 0, NULL, NULL,
         "Model name to ask a server for."},
        {"ca-cert", OPTION_STRING, TALK(ca_cert), "Server", "FILE", NULL, 0, 0, NULL, NULL,
         "Authorities (PEM) that an https server's certificate must come from; those of the system if not "
         "given."},
        {"insecure", OPTION_BOOL, TALK(insecure), "Server", NULL, "false", 0, 0, NULL, NULL,
         "Accept any certificate of an https server."},
    };
    size_t n = remote ? 10 : 6; /* the last four are for a server */
    memcpy(table, rows, n * sizeof *table);
    return n;
}

int talk_options_check(struct talk_options *o, const struct options_state *state, bool remote,
                       struct error *err) {
    struct option rows[ENGINE_OPTION_ROWS];
    size_t n = engine_option_rows(rows, 0);
    o->has_seed = options_given(state, "seed");
    for (size_t i = 0; i < n && remote; i++)
        if (strcmp(rows[i].name, "seed") && !rows[i].env && options_given(state, rows[i].name))
            return error_set(err, QUIRE_EINVAL, "--%s is the server's to set; it has no effect on a URL",
                             rows[i].name);
    return remote ? 0 : cli_refuse_server_options(state, err);
}

static struct quire_sampling sampling_of(const struct talk_options *o, size_t room) {
    return (struct quire_sampling){
        .temperature = (float)o->temperature,
        .top_p = (float)o->top_p,
        .min_p = (float)o->min_p,
        .top_k = (int32_t)o->top_k,
        .repetition_penalty = 1,
        .has_seed = true,
        .seed = o->has_seed ? (uint64_t)o->engine.seed : clock_us(),
        .max_tokens = o->max_tokens && (size_t)o->max_tokens < room ? (size_t)o->max_tokens : room,
        .n_logprobs = -1,
        .n_prompt_logprobs = -1};
}

static void show(struct buf *text, size_t *shown, FILE *out) {
    if (text->len == *shown) return;
    fwrite(text->data + *shown, 1, text->len - *shown, out);
    fflush(out);
    *shown = text->len;
}

static int stream_tokens(struct talker *t, struct quire_stream *stream, FILE *out, struct buf *text,
                         struct talk_figures *f, uint64_t start_us, struct error *err) {
    struct detokenizer d = {0};
    struct quire_event e = {0};
    size_t shown = text->len;
    while (e.finish == QUIRE_RUNNING) {
        if (!quire_wait(stream, &e, 1000000)) continue;
        if (!f->first_us) f->first_us = clock_us() - start_us;
        if (e.has_token && !(e.finish == QUIRE_STOP && e.stop_token >= 0)) {
            size_t n;
            const uint8_t *bytes = tokenizer_bytes(t->model->tokenizer, e.chosen.token, false, &n);
            detokenizer_push(&d, bytes, n, text);
            show(text, &shown, out);
        }
    }
    detokenizer_finish(&d, text);
    show(text, &shown, out);
    struct quire_usage u = quire_usage(stream);
    f->prompt_tokens = u.prompt_tokens;
    f->cached_tokens = u.cached_tokens;
    f->output_tokens = u.completion_tokens;
    f->total_us = clock_us() - start_us;
    if (e.finish != QUIRE_FAILED) return 0;
    *err = *e.error;
    return err->code;
}

static int answer_ids(struct talker *t, const struct token_buf *ids, FILE *out, struct buf *text,
                      struct talk_figures *f, struct error *err) {
    size_t limit = quire_info(t->model->engine)->max_model_len;
    struct quire_stream *stream = NULL;
    uint64_t start_us = clock_us();
    if (ids->n >= limit)
        return error_set(err, QUIRE_ELIMIT, "the conversation has %zu tokens; the model's limit is %zu",
                         ids->n, limit);
    struct quire_request q = {
        .prompt = ids->ids, .n_prompt = ids->n, .sampling = sampling_of(t->options, limit - ids->n)};
    int rc = quire_submit(t->model->engine, &q, &stream, err);
    if (!rc) rc = stream_tokens(t, stream, out, text, f, start_us, err);
    quire_close(stream);
    return rc;
}

int talk_local(struct talker *t, json_t *messages, FILE *out, struct buf *text, struct talk_figures *f,
               struct error *err) {
    const struct model_text *m = &t->model->text;
    struct chat_template_input in = {.messages = messages,
                                     .add_generation_prompt = true,
                                     .bos_token = m->bos_token,
                                     .eos_token = m->eos_token,
                                     .now_unix_s = clock_unix_s()};
    struct chat_rendering r;
    struct token_buf ids = {0};
    if (!m->chat_template)
        return error_set(err, QUIRE_EUNSUPPORTED, "this model has no chat template: --chat-template FILE");
    int rc = chat_template_render(m->chat_template, &in, &r, err);
    if (rc) return rc;
    rc = tokenizer_encode(m->tokenizer, r.text.data, r.text.len, TOKENIZE_SPECIAL, r.content, r.n_content, 0,
                          &ids, err);
    chat_rendering_free(&r);
    if (!rc) rc = answer_ids(t, &ids, out, text, f, err);
    token_buf_free(&ids);
    return rc;
}

int talk_local_raw(struct talker *t, const char *prompt, FILE *out, struct buf *text, struct talk_figures *f,
                   struct error *err) {
    struct token_buf ids = {0};
    int rc = tokenizer_encode(t->model->tokenizer, prompt, strlen(prompt), TOKENIZE_SPECIAL | TOKENIZE_ADD,
                              NULL, 0, 0, &ids, err);
    if (!rc && !ids.n) rc = error_set(err, QUIRE_EINVAL, "the prompt is empty");
    if (!rc) rc = answer_ids(t, &ids, out, text, f, err);
    token_buf_free(&ids);
    return rc;
}

void talk_print_figures(const struct talk_figures *f) {
    double decode_s = (double)(f->total_us - f->first_us) / 1e6;
    fprintf(stderr, "[%zu prompt tokens, %zu cached; %zu out; first after %.0f ms; %.1f tok/s]\n",
            f->prompt_tokens, f->cached_tokens, f->output_tokens, (double)f->first_us / 1e3,
            f->output_tokens > 1 && decode_s > 0 ? (double)(f->output_tokens - 1) / decode_s : 0.0);
}
