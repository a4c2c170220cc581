/* A needle in a haystack (Kamradt 2023): a sentence with a number, somewhere in a long text; the model is
 * asked for the number. */
#include "base/error.h"
#include "base/rng.h"
#include "base/size.h"
#include "eval/ask.h"
#include "eval/bar.h"
#include "eval/results.h"
#include "eval/windows.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define ANSWER_TOKENS 24
#define FIT_TRIES     12
#define FIT_TOKENS    4 /* so many fewer than asked for are near enough */

enum { LENGTH, DEPTH, TOKENS, FOUND, N_COLUMNS };
static const char *const COLUMNS[] = {"length", "depth", "tokens", "found"};

static const char *const CITIES[] = {"Lisbon", "Kyoto",  "Nairobi", "Oslo",   "Lima",   "Prague",
                                     "Tunis",  "Quito",  "Perth",   "Dublin", "Hanoi",  "Riga",
                                     "Havana", "Ankara", "Geneva",  "Manila", "Bogota", "Vienna",
                                     "Cairo",  "Turin",  "Chicago", "Seoul",  "Naples", "Boston"};

struct cell {
    size_t length;
    double depth;
    size_t repeat;
    char id[64], number[12];
    const char *city;
    struct buf prompt;
    size_t tokens;
};

struct needle_run {
    const struct eval_context *c;
    const struct eval_needle *o;
    struct cell *cells; /* [n] by length, depth, repeat */
    size_t n;
    struct results items;
    struct ask *asks;
    size_t *cell; /* [n_asks] of each ask */
    size_t n_asks;
    struct bar bar;
};

/* ---- the prompt ---- */

static void name_cell(const struct eval_needle *o, struct cell *c) {
    struct rng_block r =
        rng_philox(o->seed, (uint32_t)c->length, (uint32_t)(c->depth * 1000), (uint32_t)c->repeat, 0);
    c->city = CITIES[r.v[0] % (sizeof CITIES / sizeof *CITIES)];
    snprintf(c->number, sizeof c->number, "%u", 1000000 + r.v[1] % 9000000);
    snprintf(c->id, sizeof c->id, "%zu@%g#%zu", c->length, c->depth, c->repeat);
}

static char text_at(const struct eval_text *t, size_t i) {
    return t->data[i % t->len];
}

/* Behind the first sentence that ends at or after `at`; the end of the text if none does within reach. */
static size_t sentence_end(const struct eval_text *t, size_t at, size_t n) {
    if (!at) return 0;
    for (size_t i = at; i + 1 < n; i++)
        if (strchr(".!?\"", text_at(t, i)) && strchr(" \n", text_at(t, i + 1))) return i + 1;
    return n;
}

/* No character is cut in two. */
static size_t whole_characters(const struct eval_text *t, size_t n) {
    while (n && ((unsigned char)text_at(t, n) & 0xc0) == 0x80) n--;
    return n;
}

static void put_text(struct buf *out, const struct eval_text *t, size_t begin, size_t end) {
    while (begin < end) {
        size_t at = begin % t->len, n = size_min(t->len - at, end - begin);
        buf_append(out, t->data + at, n);
        begin += n;
    }
}

/* With n bytes of the text, which repeats. */
static void put_prompt(const struct eval_needle *o, struct cell *c, size_t n) {
    n = whole_characters(&o->text, n);
    size_t at = sentence_end(&o->text, (size_t)(c->depth / 100 * (double)n), n);
    buf_clear(&c->prompt);
    buf_puts(&c->prompt, "Here is a long text. One sentence in it tells a secret number.\n\n");
    put_text(&c->prompt, &o->text, 0, at);
    buf_printf(&c->prompt, "%sThe secret number of %s is %s.%s", at ? " " : "", c->city, c->number,
               at < n ? " " : "");
    put_text(&c->prompt, &o->text, at, n);
    if (o->chat)
        buf_printf(&c->prompt, "\n\nWhat is the secret number of %s? Answer with the number only.", c->city);
    else
        buf_printf(&c->prompt,
                   "\n\nQuestion: What is the secret number of %s?\nAnswer: The secret number of %s is",
                   c->city, c->city);
}

static int count(const struct needle_run *r, struct cell *c, size_t *n, struct error *err) {
    struct ask a = {.prompt = {c->prompt.data, c->prompt.len}, .chat = r->o->chat};
    struct token_buf ids = {0};
    size_t n_scored;
    if (!buf_ok(&c->prompt)) return error_set(err, QUIRE_ENOMEM, "out of memory for a prompt");
    int rc = ask_tokens(r->c->local, &a, &ids, &n_scored, err);
    *n = ids.n;
    token_buf_free(&ids);
    return rc;
}

/* The longest prompt that was found with no more tokens than the cell's length. */
static int fit(const struct needle_run *r, struct cell *c, struct error *err) {
    size_t n = 4 * c->length, best = 0, empty, tokens;
    double each = 4; /* bytes of a token */
    put_prompt(r->o, c, 0);
    int rc = count(r, c, &empty, err);
    if (!rc && empty > c->length)
        rc = error_set(err, QUIRE_EINVAL,
                       "--lengths: %zu tokens are not enough for the question alone, which has %zu",
                       c->length, empty);
    for (int i = 0; !rc && i < FIT_TRIES; i++) {
        put_prompt(r->o, c, n);
        if ((rc = count(r, c, &tokens, err))) break;
        if (tokens <= c->length) best = size_max(best, n);
        if (tokens <= c->length && c->length - tokens <= FIT_TOKENS) break;
        if (tokens > empty) each = (double)n / (double)(tokens - empty);
        double next = (double)n + ((double)c->length - (double)tokens - 1) * each;
        n = next > 0 ? (size_t)next : 0;
    }
    if (rc) return rc;
    put_prompt(r->o, c, best);
    return count(r, c, &c->tokens, err);
}

/* ---- run ---- */

static int make_cells(struct needle_run *r, struct error *err) {
    const struct eval_needle *o = r->o;
    r->n = o->n_lengths * o->n_depths * o->repeats;
    r->cells = calloc(r->n, sizeof *r->cells);
    r->asks = calloc(r->n, sizeof *r->asks);
    r->cell = calloc(r->n, sizeof *r->cell);
    if (!r->cells || !r->asks || !r->cell)
        return error_set(err, QUIRE_ENOMEM, "out of memory for %zu needles", r->n);
    size_t n = 0;
    for (size_t l = 0; l < o->n_lengths; l++)
        for (size_t d = 0; d < o->n_depths; d++)
            for (size_t k = 0; k < o->repeats; k++, n++) {
                r->cells[n].length = o->lengths[l];
                r->cells[n].depth = o->depths[d];
                r->cells[n].repeat = k;
                name_cell(o, &r->cells[n]);
            }
    return 0;
}

static int put_asks(struct needle_run *r, struct error *err) {
    int rc = 0;
    for (size_t i = 0; !rc && i < r->n; i++) {
        struct cell *c = &r->cells[i];
        r->items.items[i].id = c->id;
        if (r->items.items[i].done) continue;
        if ((rc = fit(r, c, err))) break;
        r->cell[r->n_asks] = i;
        r->asks[r->n_asks++] = (struct ask){.where = c->id,
                                            .prompt = {c->prompt.data, c->prompt.len},
                                            .chat = r->o->chat,
                                            .max_tokens = ANSWER_TOKENS,
                                            .seed = r->o->seed};
    }
    return rc;
}

static int answered(void *user, size_t i, struct error *err) {
    struct needle_run *r = user;
    struct cell *c = &r->cells[r->cell[i]];
    struct buf *text = &r->asks[i].text;
    bool found = text->data && memmem(text->data, text->len, c->number, strlen(c->number));
    double v[N_COLUMNS] = {
        [LENGTH] = (double)c->length, [DEPTH] = c->depth, [TOKENS] = (double)c->tokens, [FOUND] = found};
    char note[60];
    buf_free(text);
    buf_free(&c->prompt);
    int rc = results_put(&r->items, r->cell[i], v, NULL, 0, err);
    snprintf(note, sizeof note, "%.0f found", results_sum(&r->items, FOUND));
    bar_show(&r->bar, r->items.n_done, note);
    return rc;
}

/* Share found in a cell of the table; -1 when nothing of it was measured. */
static double share(const struct needle_run *r, size_t length, size_t depth) {
    double found = 0, n = 0;
    for (size_t i = 0; i < r->o->repeats; i++) {
        const struct item *item = &r->items.items[(length * r->o->n_depths + depth) * r->o->repeats + i];
        if (!item->done) continue;
        found += item->values[FOUND];
        n++;
    }
    return n > 0 ? found / n : -1;
}

static void print(const struct needle_run *r) {
    FILE *out = r->c->out;
    const struct eval_needle *o = r->o;
    fprintf(out, "found, of %zu in a cell; rows: depth, columns: tokens\n\n%7s", o->repeats, "");
    for (size_t l = 0; l < o->n_lengths; l++) fprintf(out, " %8zu", o->lengths[l]);
    for (size_t d = 0; d < o->n_depths; d++) {
        fprintf(out, "\n%5.4g %%", o->depths[d]);
        for (size_t l = 0; l < o->n_lengths; l++) {
            double s = share(r, l, d);
            if (s < 0)
                fprintf(out, " %8s", "-");
            else
                fprintf(out, " %6.0f %%", 100 * s);
        }
    }
    size_t n = r->items.n_done;
    fprintf(out, "\n\n%zu of %zu needles, %.1f %% found\n", n, r->items.n,
            n ? 100 * results_sum(&r->items, FOUND) / (double)n : 0.0);
}

static void summary(const struct results *s, struct json_out *j, void *ctx) {
    const struct needle_run *r = ctx;
    json_out_key(j, "found");
    json_out_f64(j, s->n_done ? results_sum(s, FOUND) / (double)s->n_done : 0);
    json_out_key(j, "cells");
    json_out_arr(j);
    for (size_t l = 0; l < r->o->n_lengths; l++)
        for (size_t d = 0; d < r->o->n_depths; d++) {
            double found = share(r, l, d);
            if (found < 0) continue;
            json_out_obj(j);
            json_out_key(j, "length");
            json_out_u64(j, r->o->lengths[l]);
            json_out_key(j, "depth");
            json_out_f64(j, r->o->depths[d]);
            json_out_key(j, "found");
            json_out_f64(j, found);
            json_out_obj_end(j);
        }
    json_out_arr_end(j);
}

static json_t *setup_of(const struct eval_needle *o) {
    char hash[33];
    json_t *lengths = json_array(), *depths = json_array();
    hash_hex(hash128_bulk(o->text.data, o->text.len), hash);
    for (size_t i = 0; i < o->n_lengths; i++)
        json_array_append_new(lengths, json_integer((json_int_t)o->lengths[i]));
    for (size_t i = 0; i < o->n_depths; i++) json_array_append_new(depths, json_real(o->depths[i]));
    return json_pack("{s:s, s:o, s:o, s:I, s:b, s:I}", "text", hash, "lengths", lengths, "depths", depths,
                     "repeats", (json_int_t)o->repeats, "chat", o->chat, "seed", (json_int_t)o->seed);
}

static int check(const struct eval_context *c, const struct eval_needle *o, struct error *err) {
    size_t limit = quire_info(c->local->engine)->max_model_len;
    if (!o->text.len) return error_set(err, QUIRE_EINVAL, "%s is empty", o->text.name);
    for (size_t i = 0; i < o->n_lengths; i++)
        if (o->lengths[i] + ANSWER_TOKENS > limit)
            return error_set(err, QUIRE_EINVAL,
                             "--lengths: %zu tokens and an answer of %d are more than --max-model-len %zu",
                             o->lengths[i], ANSWER_TOKENS, limit);
    return 0;
}

size_t eval_needle_room(size_t length) {
    return length + ANSWER_TOKENS;
}

int eval_needle(const struct eval_context *c, const struct eval_needle *o, struct error *err) {
    struct needle_run r = {.c = c, .o = o};
    int rc = check(c, o, err);
    if (!rc) rc = make_cells(&r, err);
    if (!rc)
        rc = results_open(&r.items, c, "needle", COLUMNS, N_COLUMNS, r.n, results_model(c), setup_of(o), err);
    if (!rc) rc = put_asks(&r, err);
    if (!rc) {
        bar_start(&r.bar, "needles", r.items.n_done, r.items.n);
        rc = asks_answer(c, r.asks, r.n_asks, answered, &r, err);
        bar_end(&r.bar);
        if (r.items.n_done) print(&r);
        rc = results_end(&r.items, rc, summary, &r, err);
    }
    for (size_t i = 0; r.cells && i < r.n; i++) buf_free(&r.cells[i].prompt);
    for (size_t i = 0; r.asks && i < r.n_asks; i++) buf_free(&r.asks[i].text);
    free(r.cells);
    free(r.asks);
    free(r.cell);
    results_free(&r.items);
    return rc;
}
