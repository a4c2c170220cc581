/* Traces of real traffic: when a request came, and how long it and its answer were.
 *   azure     CSV TIMESTAMP,ContextTokens,GeneratedTokens (Azure LLM inference traces, 2023 and 2024)
 *   burstgpt  CSV Timestamp,[Session ID,Elapsed time,]Model,Request tokens,Response tokens,Total tokens,Log
 * Type mooncake  JSON lines {"timestamp": ms, "input_length", "output_length", "hash_ids": [one for 512
 * tokens]} */
#include "load/workload.h"

#include "base/error.h"
#include "base/utf8.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

struct place {
    const char *path;
    size_t line;
};

#define FIELDS_MAX       16
#define TIMESTAMP_MAX_MS 1e15

/* Cuts a line of CSV in place. These files have no quotes. */
static size_t cut(char *line, char *fields[FIELDS_MAX]) {
    size_t n = 0;
    char *next = line;
    while (next && n < FIELDS_MAX) {
        fields[n] = next;
        next = strchr(next, ',');
        if (next) *next++ = 0;
        while (*fields[n] == ' ') fields[n]++;
        n++;
    }
    return n;
}

/* "2023-11-16 18:17:03.9799600", with or without a zone of +00:00, to seconds. */
static bool read_date(const char *text, double *out) {
    struct tm t = {0};
    double seconds = 0;
    int used = 0;
    if (sscanf(text, "%4d-%2d-%2d%*[ T]%2d:%2d:%lf%n", &t.tm_year, &t.tm_mon, &t.tm_mday, &t.tm_hour,
               &t.tm_min, &seconds, &used) != 6 ||
        !used)
        return false;
    const char *rest = text + used;
    if (*rest && strcmp(rest, "Z") != 0 && strcmp(rest, "+00:00") != 0) return false;
    if (!(seconds >= 0 && seconds < 61) || t.tm_hour > 23 || t.tm_min > 59 || t.tm_year < 1970) return false;
    t.tm_year -= 1900;
    t.tm_mon -= 1;
    struct tm given = t;
    *out = (double)timegm(&t) + seconds; /* which makes a day that there is of any */
    return t.tm_mday == given.tm_mday && t.tm_mon == given.tm_mon && t.tm_hour == given.tm_hour;
}

static int field_tokens(struct place at, const char *name, const char *text, uint32_t *out,
                        struct error *err) {
    double v;
    if (!number_read(text, strlen(text), 0, LENGTH_MAX_TOKENS, &v) || v != floor(v))
        return error_set(err, QUIRE_EFORMAT, "%.200s:%zu: %s is \"%.40s\", not a number of tokens up to %d",
                         at.path, at.line, name, text, LENGTH_MAX_TOKENS);
    *out = (uint32_t)v;
    return 0;
}

/* Which columns a CSV has: by its header. */
struct columns {
    bool known, dates;
    size_t at, input, output, least;
};

static bool column(char *const *fields, size_t n, const char *name, size_t *out) {
    for (size_t i = 0; i < n; i++)
        if (!strcasecmp(fields[i], name)) {
            *out = i;
            return true;
        }
    return false;
}

static int csv_header(struct place at, char *line, bool azure, struct columns *c, struct error *err) {
    char *fields[FIELDS_MAX];
    size_t n = cut(line, fields);
    bool found = column(fields, n, "timestamp", &c->at) &&
                 column(fields, n, azure ? "ContextTokens" : "Request tokens", &c->input) &&
                 column(fields, n, azure ? "GeneratedTokens" : "Response tokens", &c->output);
    if (!found)
        return error_set(err, QUIRE_EFORMAT, "%.200s:%zu: the header is not that of %s", at.path, at.line,
                         azure ? "TIMESTAMP,ContextTokens,GeneratedTokens (azure)"
                               : "Timestamp,...,Request tokens,Response tokens (burstgpt)");
    c->known = true;
    c->dates = azure;
    c->least = 1 + (c->at > c->input ? c->at : c->input);
    if (c->output + 1 > c->least) c->least = c->output + 1;
    return 0;
}

static int csv_row(struct place at, char *line, const struct columns *c, struct item *item,
                   struct error *err) {
    char *fields[FIELDS_MAX];
    size_t n = cut(line, fields);
    if (n < c->least)
        return error_set(err, QUIRE_EFORMAT, "%.200s:%zu: %zu fields, at least %zu are needed", at.path,
                         at.line, n, c->least);
    if (!(c->dates ? read_date(fields[c->at], &item->at_s)
                   : number_read(fields[c->at], strlen(fields[c->at]), 0, 1e12, &item->at_s)))
        return error_set(err, QUIRE_EFORMAT, "%.200s:%zu: the timestamp \"%.40s\" is not %s", at.path,
                         at.line, fields[c->at],
                         c->dates ? "YYYY-MM-DD HH:MM:SS.fff" : "a number of seconds");
    int rc = field_tokens(at, "the input", fields[c->input], &item->input, err);
    return rc ? rc : field_tokens(at, "the output", fields[c->output], &item->output, err);
}

static int json_row(struct place at, const char *line, size_t n, struct item *item, struct error *err) {
    json_error_t e;
    json_t *root = json_loadb(line, n, JSON_REJECT_DUPLICATES, &e);
    if (!root) return error_set(err, QUIRE_EFORMAT, "%.200s:%zu: not JSON: %s", at.path, at.line, e.text);
    const json_t *when = json_object_get(root, "timestamp"), *in = json_object_get(root, "input_length"),
                 *out = json_object_get(root, "output_length"), *ids = json_object_get(root, "hash_ids"), *id;
    json_int_t most = LENGTH_MAX_TOKENS;
    int rc = 0;
    size_t i;
    if (!json_is_number(when) || !(json_number_value(when) >= 0) ||
        json_number_value(when) > TIMESTAMP_MAX_MS || !json_is_integer(in) || json_integer_value(in) < 1 ||
        json_integer_value(in) > most || !json_is_integer(out) || json_integer_value(out) < 0 ||
        json_integer_value(out) > most || (ids && !json_is_array(ids)))
        rc = error_set(
            err, QUIRE_EFORMAT,
            "%.200s:%zu: expected \"timestamp\" (ms), \"input_length\", \"output_length\" (tokens up to "
            "%d) and a list \"hash_ids\"",
            at.path, at.line, LENGTH_MAX_TOKENS);
    if (!rc) {
        item->at_s = json_number_value(when) / 1000;
        item->input = (uint32_t)json_integer_value(in);
        item->output = (uint32_t)json_integer_value(out);
        item->n_blocks = (uint32_t)json_array_size(ids);
        if (item->n_blocks && !(item->blocks = calloc(item->n_blocks, sizeof *item->blocks)))
            rc = error_set(err, QUIRE_ENOMEM, "out of memory for %.200s", at.path);
    }
    json_array_foreach(ids, i, id) {
        if (rc) break;
        if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) > UINT32_MAX)
            rc = error_set(err, QUIRE_EFORMAT,
                           "%.200s:%zu: \"hash_ids\" has a member that is no integer from 0 "
                           "to %u",
                           at.path, at.line, UINT32_MAX);
        else
            item->blocks[i] = (uint32_t)json_integer_value(id);
    }
    json_decref(root);
    return rc;
}

static int by_arrival(const void *a, const void *b) {
    const struct item *x = a, *y = b;
    if (x->at_s != y->at_s) return x->at_s < y->at_s ? -1 : 1;
    return 0;
}

static bool has_name(const char *line, size_t n, const char *name) {
    size_t len = strlen(name);
    for (size_t i = 0; i + len <= n; i++)
        if (!strncasecmp(line + i, name, len)) return true;
    return false;
}

/* By the first line that is not empty; NULL: none of the three. */
static const char *guess_format(const char *data) {
    data += strspn(data, " \t\r\n");
    size_t n = strcspn(data, "\r\n");
    if (*data == '{') return "mooncake";
    if (has_name(data, n, "ContextTokens")) return "azure";
    return has_name(data, n, "Request tokens") ? "burstgpt" : NULL;
}

int items_trace(const char *path, char *data, size_t n, const char *format, struct items *out,
                struct error *err) {
    struct place at = {path, 0};
    struct columns columns = {0};
    size_t mark = utf8_mark(data, n);
    data += mark;
    n -= mark;
    if (!n) return error_set(err, QUIRE_EFORMAT, "%.200s is empty", path);
    if (!strcmp(format, "auto") && !(format = guess_format(data)))
        return error_set(
            err, QUIRE_EFORMAT,
            "%.200s:1: the header is that of no known trace: azure (TIMESTAMP,ContextTokens,"
            "GeneratedTokens), burstgpt (Timestamp,...,Request tokens,Response tokens), mooncake "
            "(JSON lines)",
            path);
    bool csv = strcmp(format, "mooncake") != 0;
    for (char *p = data, *end = data + n; p < end;) {
        char *newline = memchr(p, '\n', (size_t)(end - p));
        size_t len = (size_t)((newline ? newline : end) - p);
        char *line = p;
        p = newline ? newline + 1 : end;
        at.line++;
        if (len && line[len - 1] == '\r') len--;
        line[len] = 0; /* the newline, or the byte that every buffer has behind its end */
        if (!len) continue;
        if (strlen(line) != len)
            return error_set(err, QUIRE_EFORMAT, "%.200s:%zu: a NUL byte", path, at.line);
        int rc = 0;
        if (csv && !columns.known) {
            rc = csv_header(at, line, !strcmp(format, "azure"), &columns, err);
        } else {
            struct item *item = items_add(out);
            rc = !item ? error_set(err, QUIRE_ENOMEM, "out of memory for %.200s", path)
                 : csv ? csv_row(at, line, &columns, item, err)
                       : json_row(at, line, len, item, err);
            /* answers that failed were logged with no tokens: nothing to replay */
            if (!rc && (!item->input || !item->output)) {
                free(item->blocks);
                out->n--;
                out->n_left_out++;
            }
        }
        if (rc) return rc;
    }
    if (!out->n) return error_set(err, QUIRE_EFORMAT, "%.200s has no request", path);
    qsort(out->v, out->n, sizeof *out->v, by_arrival);
    double first = out->v[0].at_s;
    for (size_t i = 0; i < out->n; i++) out->v[i].at_s -= first;
    return 0;
}
