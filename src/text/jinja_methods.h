/* Methods of strings, lists, dicts, numbers that templates may call. */
#ifndef TEXT_JINJA_METHODS_H
#define TEXT_JINJA_METHODS_H

#include "text/jinja_call.h"

/* The method of this name that Python's type has. unsafe: Python has it, but the sandbox refuses it
 * (list.append, ...). */
const struct jinja_method *jinja_method_find(struct jinja_value self, const struct jinja_str *name,
                                             bool *unsafe);

/* Do Python's dicts have an attribute of this name? */
bool jinja_is_dict_attribute(const struct jinja_str *name);

/* String methods, by name, for the filters that are the same. */
extern const struct jinja_method jinja_str_methods[];
extern const size_t jinja_str_methods_n;

/* str.strip and friends: which sides, and the characters to take (NULL: whitespace). */
int jinja_str_strip(struct jinja *j, const struct jinja_str *s, const struct jinja_str *chars, bool left,
                    bool right, const struct jinja_str **out);
int jinja_str_replace(struct jinja *j, const struct jinja_str *s, const struct jinja_str *old,
                      const struct jinja_str *new_, int64_t count, const struct jinja_str **out);
enum jinja_change {
    JINJA_TO_UPPER,
    JINJA_TO_LOWER,
    JINJA_TO_TITLE,
    JINJA_TO_FOLD,
    JINJA_TO_CAPITAL,
    JINJA_TO_SWAPPED
};
int jinja_str_change(struct jinja *j, const struct jinja_str *s, enum jinja_change how,
                     const struct jinja_str **out);
int jinja_str_splitlines(struct jinja *j, const struct jinja_str *s, bool keep_ends, struct jinja_vec *out);
int jinja_str_center(struct jinja *j, const struct jinja_str *s, int64_t width, const struct jinja_str *fill,
                     const struct jinja_str **out);
bool jinja_str_all(const struct jinja_str *s, unsigned props, bool or_underscore);
bool jinja_str_is_cased(const struct jinja_str *s, bool upper);

#endif
