/* Dicts of the template interpreter: insertion order, any hashable key, Python's equality (1, 1.0 and true
 * are one key). A hash index is built once a dict outgrows a handful of entries. */
#ifndef TEXT_JINJA_DICT_H
#define TEXT_JINJA_DICT_H

#include "text/jinja_value.h"

struct jinja_entry {
    uint64_t hash;
    struct jinja_value key, value;
};

struct jinja_dict {
    struct jinja_entry *entries;
    size_t n, cap;
    uint32_t *index; /* [index_cap] entry number + 1, 0 = free; NULL while the dict is small */
    size_t index_cap;
};

int jinja_dict_new(struct jinja *j, struct jinja_dict **out);
/* Unhashable keys (lists, dicts) fail as TypeErrors do. An existing key keeps its place and its spelling. */
int jinja_dict_set(struct jinja *j, struct jinja_dict *d, struct jinja_value key, struct jinja_value value);
int jinja_dict_set_name(struct jinja *j, struct jinja_dict *d, const struct jinja_str *name,
                        struct jinja_value value);
/* NULL in *out if there is none. */
int jinja_dict_get(struct jinja *j, const struct jinja_dict *d, struct jinja_value key,
                   struct jinja_value **out);

/* Lookup in a DICT, JSON_OBJECT or NAMESPACE; *found = false if there is none. Keys that cannot be hashed
 * fail. */
int jinja_mapping_get(struct jinja *j, struct jinja_value m, struct jinja_value key, struct jinja_value *out,
                      bool *found);
size_t jinja_mapping_size(struct jinja_value m);

/* Walk over a DICT or JSON_OBJECT: start with a zeroed cursor. *done = true behind the last. */
struct jinja_cursor {
    size_t i;
    void *json_iter;
};
int jinja_mapping_next(struct jinja *j, struct jinja_value m, struct jinja_cursor *c, struct jinja_value *key,
                       struct jinja_value *value, bool *done);

/* dict.update: the entries of a mapping, or pairs from an iterable. */
int jinja_dict_update(struct jinja *j, struct jinja_dict *d, struct jinja_value from);

bool jinja_is_hashable(struct jinja_value v);

#endif
