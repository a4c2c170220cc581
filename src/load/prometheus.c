#include "load/prometheus.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool is_name(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == ':';
}

/* Behind the brace that closes the labels, which may hold escaped quotes and braces; NULL: it is not there.
 */
static const char *skip_labels(const char *p, const char *end) {
    bool quoted = false;
    for (; p < end && (quoted || *p != '}'); p++) {
        if (*p == '\\' && p + 1 < end)
            p++;
        else if (*p == '"')
            quoted = !quoted;
    }
    return p < end ? p + 1 : NULL;
}

static bool read_line(const char *line, const char *end, struct prometheus_sample *out) {
    const char *p = line;
    while (p < end && is_name(*p)) p++;
    *out = (struct prometheus_sample){.name = line, .name_n = (size_t)(p - line), .labels = p};
    if (p == line) return false;
    if (p < end && *p == '{') {
        const char *behind = skip_labels(p + 1, end);
        if (!behind) return false;
        out->labels = p + 1;
        out->labels_n = (size_t)(behind - 1 - out->labels);
        p = behind;
    }
    if (p == end || *p != ' ') return false;
    char *stop;
    out->value = strtod(p, &stop);
    return stop > p && stop <= end && isfinite(out->value);
}

bool prometheus_next(const char **p, struct prometheus_sample *out) {
    while (**p) {
        const char *line = *p, *end = strchr(line, '\n');
        if (!end) end = line + strlen(line);
        *p = *end ? end + 1 : end;
        if (read_line(line, end, out)) return true;
    }
    return false;
}

bool prometheus_is(const struct prometheus_sample *s, const char *name) {
    size_t n = strlen(name);
    return s->name_n == n && !memcmp(s->name, name, n);
}

/* Copies a value up to its closing quote; returns what is behind it, NULL when it does not fit or end. */
static const char *copy_value(const char *p, const char *end, char *out, size_t size, bool *fits) {
    size_t n = 0;
    *fits = true;
    for (; p < end && *p != '"'; p++) {
        char c = *p;
        if (c == '\\' && p + 1 < end) {
            p++;
            c = *p == 'n' ? '\n' : *p;
        }
        if (n + 1 < size)
            out[n++] = c;
        else
            *fits = false;
    }
    out[n] = 0;
    return p < end ? p + 1 : NULL;
}

bool prometheus_label(const struct prometheus_sample *s, const char *name, char *out, size_t size) {
    const char *p = s->labels, *end = s->labels + s->labels_n;
    size_t n = strlen(name);
    while (p && p < end) {
        while (p < end && (*p == ',' || *p == ' ')) p++;
        const char *key = p;
        while (p < end && is_name(*p)) p++;
        bool wanted = (size_t)(p - key) == n && !memcmp(key, name, n), fits;
        if (p + 1 >= end || p[0] != '=' || p[1] != '"') return false;
        p = copy_value(p + 2, end, out, size, &fits);
        if (wanted) return p && fits;
    }
    return false;
}
