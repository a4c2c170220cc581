/* json.dumps, as transformers' `tojson` filter calls it. */
#ifndef TEXT_JINJA_JSON_H
#define TEXT_JINJA_JSON_H

#include "text/jinja_value.h"

struct jinja_json_options {
    bool ensure_ascii; /* beyond ASCII as \uXXXX */
    bool sort_keys;
    const struct jinja_str *indent; /* one level of it; NULL: all on one line */
    const struct jinja_str *item_separator, *key_separator;
};

int jinja_json_dump(struct jinja *j, struct jinja_value v, const struct jinja_json_options *options,
                    const struct jinja_str **out);

#endif
