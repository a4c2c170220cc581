#include "text/jinja_call.h"
#include "text/jinja_dict.h"

#include <string.h>

/* The next word of a parameter list; its length, or 0 at the end. */
static size_t next_param(const char **params) {
    while (**params == ' ' || **params == '=') ++*params;
    return strcspn(*params, " =");
}

static int find_param(const char *params, const struct jinja_str *name) {
    for (int i = 0;; i++) {
        size_t len = next_param(&params);
        if (!len) return -1;
        if (len == name->len && memcmp(params, name->data, len) == 0) return i;
        params += len;
    }
}

int jinja_bind(struct jinja *j, const char *function, const char *params, const struct jinja_args *args,
               struct jinja_value out[JINJA_MAX_PARAMS]) {
    bool by_keyword = *params != '/';
    if (!by_keyword) params++;
    const char *p = params;
    size_t n = 0;
    for (size_t len; (len = next_param(&p)); p += len) n++;
    if (args->n_pos > n)
        return jinja_fail(j, QUIRE_EINVAL, "%s takes at most %zu argument(s), %zu given", function, n,
                          args->n_pos);
    for (size_t i = 0; i < JINJA_MAX_PARAMS; i++)
        out[i] = i < args->n_pos ? args->pos[i] : (struct jinja_value){.type = JINJA_MISSING};
    for (size_t i = 0; i < args->n_kw; i++) {
        const struct jinja_str *name = args->kw[i].name;
        int at = by_keyword ? find_param(params, name) : -1;
        if (at < 0)
            return jinja_fail(j, QUIRE_EINVAL, "%s takes no keyword argument '%.*s'", function,
                              (int)(name->len < 60 ? name->len : 60), name->data);
        if (jinja_given(out[at]))
            return jinja_fail(j, QUIRE_EINVAL, "%s got two values for the argument '%.*s'", function,
                              (int)name->len, name->data);
        out[at] = args->kw[i].value;
    }
    p = params;
    size_t i = 0;
    for (size_t len; (len = next_param(&p)); p += len, i++)
        if (p[len] != '=' && !jinja_given(out[i]))
            return jinja_fail(j, QUIRE_EINVAL, "%s lacks the argument '%.*s'", function, (int)len, p);
    return 0;
}

int jinja_call_builtin(struct jinja *j, const struct jinja_method *m, struct jinja_value self,
                       const struct jinja_args *args, struct jinja_value *out) {
    struct jinja_value bound[JINJA_MAX_PARAMS];
    if (m->params) JINJA_TRY(jinja_bind(j, m->name, m->params, args, bound));
    return m->call(j, self, bound, args, out);
}
