/* The filters of the template language: Jinja's built-in ones that make sense for a chat template, and
 * transformers' `tojson`. Left out on purpose: random, pprint, urlize, striptags. */
#ifndef TEXT_JINJA_FILTERS_H
#define TEXT_JINJA_FILTERS_H

#include "text/jinja_call.h"

struct jinja_filter {
    struct jinja_method method;
};

const struct jinja_filter *jinja_filter_find(const struct jinja_str *name); /* NULL if there is none */
int jinja_filter_call(struct jinja *j, const struct jinja_filter *f, struct jinja_value value,
                      const struct jinja_args *args, struct jinja_value *out);

/* Which member of an item a filter looks at: "a.b.0", 3, or nothing: the item itself. */
struct jinja_getter {
    struct jinja_value *parts;
    size_t n;
    struct jinja_value or_else; /* instead of undefined; MISSING or none: nothing */
    bool lower;                 /* strings are compared without case */
};
int jinja_getter_init(struct jinja *j, struct jinja_getter *g, struct jinja_value attribute, bool lower);
int jinja_getter_get(struct jinja *j, const struct jinja_getter *g, struct jinja_value item,
                     struct jinja_value *out);

/* jinja_filters_seq.c */
jinja_builtin jinja_f_attr;
jinja_builtin jinja_f_batch;
jinja_builtin jinja_f_dictsort;
jinja_builtin jinja_f_first;
jinja_builtin jinja_f_groupby;
jinja_builtin jinja_f_items;
jinja_builtin jinja_f_last;
jinja_builtin jinja_f_length;
jinja_builtin jinja_f_list;
jinja_builtin jinja_f_map;
jinja_builtin jinja_f_max;
jinja_builtin jinja_f_min;
jinja_builtin jinja_f_reject;
jinja_builtin jinja_f_rejectattr;
jinja_builtin jinja_f_reverse;
jinja_builtin jinja_f_select;
jinja_builtin jinja_f_selectattr;
jinja_builtin jinja_f_slice;
jinja_builtin jinja_f_sort;
jinja_builtin jinja_f_sum;
jinja_builtin jinja_f_unique;
/* jinja_filters_text.c */
jinja_builtin jinja_f_capitalize;
jinja_builtin jinja_f_center;
jinja_builtin jinja_f_escape;
jinja_builtin jinja_f_filesizeformat;
jinja_builtin jinja_f_forceescape;
jinja_builtin jinja_f_format;
jinja_builtin jinja_f_indent;
jinja_builtin jinja_f_join;
jinja_builtin jinja_f_lower;
jinja_builtin jinja_f_replace;
jinja_builtin jinja_f_safe;
jinja_builtin jinja_f_string;
jinja_builtin jinja_f_title;
jinja_builtin jinja_f_tojson;
jinja_builtin jinja_f_trim;
jinja_builtin jinja_f_truncate;
jinja_builtin jinja_f_upper;
jinja_builtin jinja_f_urlencode;
jinja_builtin jinja_f_wordcount;
jinja_builtin jinja_f_xmlattr;
/* jinja_wordwrap.c */
jinja_builtin jinja_f_wordwrap;

#endif
