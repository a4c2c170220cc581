/* Members of an object, as the reports write them. */
#ifndef LOAD_JSON_MEMBER_H
#define LOAD_JSON_MEMBER_H

#include "base/json_out.h"

static inline void json_text(struct json_out *j, const char *key, const char *v) {
    json_out_key(j, key);
    json_out_str(j, v);
}

static inline void json_number(struct json_out *j, const char *key, double v) {
    json_out_key(j, key);
    json_out_f64(j, v);
}

static inline void json_count(struct json_out *j, const char *key, uint64_t v) {
    json_out_key(j, key);
    json_out_u64(j, v);
}

static inline void json_number_or_null(struct json_out *j, const char *key, bool known, double v) {
    json_out_key(j, key);
    if (known)
        json_out_f64(j, v);
    else
        json_out_null(j);
}

/* NULL and "" are null. */
static inline void json_text_or_null(struct json_out *j, const char *key, const char *v) {
    json_text(j, key, v && *v ? v : NULL);
}

#endif
