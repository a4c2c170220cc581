#include "text/jinja_globals.h"
#include "base/error.h"
#include "text/jinja_dict.h"
#include "text/jinja_ops.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#define MAX_RANGE 100000 /* of Jinja's sandbox */

static int g_range(struct jinja *j, struct jinja_value self, const struct jinja_value *arg,
                   const struct jinja_args *args, struct jinja_value *out) {
    int64_t v[3] = {0, 0, 1};
    if (args->n_kw) return jinja_fail(j, QUIRE_EINVAL, "range takes no keyword arguments");
    if (args->n_pos < 1 || args->n_pos > 3)
        return jinja_fail(j, QUIRE_EINVAL, "range expects 1 to 3 arguments, got %zu", args->n_pos);
    for (size_t i = 0; i < args->n_pos; i++)
        JINJA_TRY(jinja_need_int(j, "an argument of range", args->pos[i], &v[args->n_pos == 1 ? 1 : i]));
    if (v[2] == 0) return jinja_fail(j, QUIRE_EINVAL, "range: the step must not be zero");
    uint64_t span = 0, stride = v[2] < 0 ? 0 - (uint64_t)v[2] : (uint64_t)v[2];
    if (v[2] > 0 && v[1] > v[0]) span = (uint64_t)v[1] - (uint64_t)v[0];
    if (v[2] < 0 && v[1] < v[0]) span = (uint64_t)v[0] - (uint64_t)v[1];
    uint64_t n = span ? (span - 1) / stride + 1 : 0;
    if (n > MAX_RANGE)
        return jinja_fail(j, QUIRE_ELIMIT, "range too big: at most %d items are allowed", MAX_RANGE);
    struct jinja_range *r = jinja_alloc(j, sizeof *r);
    if (!r) return QUIRE_ENOMEM;
    *r = (struct jinja_range){.start = v[0], .stop = v[1], .step = v[2], .n = (size_t)n};
    *out = (struct jinja_value){.type = JINJA_RANGE, .range = r};
    return 0;
}

/* dict(mapping or pairs, **more) */
static int make_dict(struct jinja *j, const char *what, const struct jinja_args *args,
                     struct jinja_dict **out) {
    JINJA_TRY(jinja_dict_new(j, out));
    if (args->n_pos > 1)
        return jinja_fail(j, QUIRE_EINVAL, "%s expects at most 1 argument, got %zu", what, args->n_pos);
    if (args->n_pos) JINJA_TRY(jinja_dict_update(j, *out, args->pos[0]));
    for (size_t i = 0; i < args->n_kw; i++)
        JINJA_TRY(jinja_dict_set_name(j, *out, args->kw[i].name, args->kw[i].value));
    return 0;
}

static int g_dict(struct jinja *j, struct jinja_value self, const struct jinja_value *arg,
                  const struct jinja_args *args, struct jinja_value *out) {
    *out = (struct jinja_value){.type = JINJA_DICT};
    return make_dict(j, "dict", args, &out->dict);
}

static int g_namespace(struct jinja *j, struct jinja_value self, const struct jinja_value *arg,
                       const struct jinja_args *args, struct jinja_value *out) {
    struct jinja_dict *d;
    JINJA_TRY(make_dict(j, "namespace", args, &d));
    for (size_t i = 0; i < d->n; i++) {
        struct jinja_value key = d->entries[i].key;
        if (key.type == JINJA_STR && key.s->len && key.s->data[0] == '_')
            return jinja_fail(j, QUIRE_EINVAL, "a namespace cannot have attributes that start with '_'");
    }
    *out = (struct jinja_value){.type = JINJA_NAMESPACE, .dict = d};
    return 0;
}

static int g_cycler(struct jinja *j, struct jinja_value self, const struct jinja_value *arg,
                    const struct jinja_args *args, struct jinja_value *out) {
    if (args->n_kw) return jinja_fail(j, QUIRE_EINVAL, "cycler takes no keyword arguments");
    if (!args->n_pos) return jinja_fail(j, QUIRE_EINVAL, "cycler needs at least one item");
    struct jinja_cycler *c = jinja_array(j, 1, sizeof *c);
    if (!c) return QUIRE_ENOMEM;
    *c = (struct jinja_cycler){.items = args->pos, .n = args->n_pos};
    *out = (struct jinja_value){.type = JINJA_CYCLER, .cycler = c};
    return 0;
}

static int g_joiner(struct jinja *j, struct jinja_value self, const struct jinja_value *arg,
                    const struct jinja_args *args, struct jinja_value *out) {
    struct jinja_joiner *joiner = jinja_array(j, 1, sizeof *joiner);
    if (!joiner) return QUIRE_ENOMEM;
    if (jinja_given(arg[0])) {
        JINJA_TRY(jinja_need_str(j, "the separator", arg[0], &joiner->separator));
    } else if (!(joiner->separator = jinja_str_lit(j, ", "))) {
        return QUIRE_ENOMEM;
    }
    *out = (struct jinja_value){.type = JINJA_JOINER, .joiner = joiner};
    return 0;
}

static int g_raise_exception(struct jinja *j, struct jinja_value self, const struct jinja_value *arg,
                             const struct jinja_args *args, struct jinja_value *out) {
    const struct jinja_str *s;
    JINJA_TRY(jinja_to_str(j, arg[0], &s));
    return error_set(j->err, QUIRE_EINVAL, "%.*s", (int)(s->len < 400 ? s->len : 400), s->data);
}

/* One conversion of strftime, from its % on; *len gets its bytes. */
static int add_time(struct jinja *j, const struct jinja_str *format, size_t at, const struct tm *now,
                    size_t *len, struct jinja_sb *out) {
    char spec[16], text[256];
    size_t n = 1;
    while (at + n < format->len && n < 8 && format->data[at + n] &&
           strchr("_-0^#123456789", format->data[at + n]))
        n++;
    if (at + n < format->len && format->data[at + n] && strchr("EO", format->data[at + n])) n++;
    char c = at + n < format->len ? format->data[at + n] : '\0';
    *len = n + (c != '\0');
    if (!c || (unsigned char)c >= 0x80 || n >= 8) { /* no conversion: text as it stands */
        *len = n;
        jinja_sb_add_sub(out, format, at, n);
        return out->rc;
    }
    uint8_t prov = jinja_str_prov_at(format, at);
    memcpy(spec, format->data + at, n + 1);
    spec[n + 1] = '\0';
    if (c == 'f') { /* Python's own; the clock here counts seconds */
        jinja_sb_add(out, "000000", 6, prov);
    } else if (c != 'z' && c != 'Z') { /* no time zone: empty */
        struct tm t = *now;
        text[0] = '\0';
        jinja_sb_add(out, text, strftime(text, sizeof text, spec, &t), prov);
    }
    return out->rc;
}

static int g_strftime_now(struct jinja *j, struct jinja_value self, const struct jinja_value *arg,
                          const struct jinja_args *args, struct jinja_value *out) {
    const struct jinja_str *s;
    struct jinja_sb b;
    struct tm now;
    time_t t = (time_t)j->now_unix_s;
    JINJA_TRY(jinja_need_str(j, "the format of strftime_now", arg[0], &s));
    if (!localtime_r(&t, &now)) return jinja_fail(j, QUIRE_EINVAL, "the clock is out of range");
    jinja_sb_init(j, &b);
    for (size_t i = 0; i < s->len;) {
        const char *hit = memchr(s->data + i, '%', s->len - i);
        size_t end = hit ? (size_t)(hit - s->data) : s->len, len = 0;
        jinja_sb_add_sub(&b, s, i, end - i);
        JINJA_TRY(jinja_steps(j, 8));
        if (hit) JINJA_TRY(add_time(j, s, end, &now, &len, &b));
        i = end + len;
    }
    JINJA_TRY(jinja_sb_finish(&b, &s));
    *out = jinja_of_str(s);
    return 0;
}

static const struct jinja_function functions[] = {
    {{"range", NULL, g_range}},
    {{"dict", NULL, g_dict}},
    {{"namespace", NULL, g_namespace}},
    {{"cycler", NULL, g_cycler}},
    {{"joiner", "sep=", g_joiner}},
    {{"raise_exception", "message", g_raise_exception}},
    {{"strftime_now", "format", g_strftime_now}},
};

struct jinja_value jinja_global(const struct jinja_str *name) {
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        if (jinja_str_is(name, functions[i].method.name))
            return (struct jinja_value){.type = JINJA_FUNCTION, .function = &functions[i]};
    return (struct jinja_value){.type = JINJA_MISSING};
}
