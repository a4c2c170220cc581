#include "text/jinja_dict.h"
#include "text/jinja_iter.h"
#include "text/jinja_ops.h"

#include <math.h>
#include <string.h>

#define SMALL 8 /* entries that are searched one by one */

static uint64_t mix(uint64_t h) {
    h ^= h >> 33;
    h *= 0xff51afd7ed558ccdu;
    h ^= h >> 33;
    h *= 0xc4ceb9fe1a85ec53u;
    return h ^ h >> 33;
}

static uint64_t hash_bytes(const char *data, size_t len) {
    uint64_t h = 0x9e3779b97f4a7c15u ^ len;
    for (; len >= 8; data += 8, len -= 8) {
        uint64_t w;
        memcpy(&w, data, 8);
        h = mix(h ^ w);
    }
    uint64_t w = 0;
    memcpy(&w, data, len);
    return mix(h ^ w);
}

static uint64_t hash_float(double f) {
    if (f >= -0x1p63 && f < 0x1p63 && f == floor(f))
        return mix((uint64_t)(int64_t)f); /* equals that integer */
    uint64_t bits;
    memcpy(&bits, &f, sizeof bits);
    return mix(bits);
}

bool jinja_is_hashable(struct jinja_value v) {
    return !jinja_is_list(v) && !jinja_is_dict(v) && v.type != JINJA_VIEW && v.type != JINJA_MISSING;
}

static int hash_value(struct jinja *j, struct jinja_value v, uint64_t *out) {
    switch ((enum jinja_type)v.type) {
    case JINJA_STR:
        if (v.s->len >= 256) JINJA_TRY(jinja_steps(j, v.s->len / 256));
        *out = hash_bytes(v.s->data, v.s->len);
        return 0;
    case JINJA_BOOL:
    case JINJA_INT: *out = mix((uint64_t)jinja_as_int(v)); return 0;
    case JINJA_FLOAT: *out = hash_float(v.f); return 0;
    case JINJA_NONE:
    case JINJA_UNDEFINED: *out = mix(0x1000 + v.type); return 0;
    case JINJA_RANGE: *out = mix(0x2000 + v.range->n); return 0; /* equal ranges may be written differently */
    case JINJA_TUPLE: {
        uint64_t h = 0x3000;
        JINJA_TRY(jinja_enter(j));
        JINJA_TRY(jinja_steps(j, v.list->n));
        for (size_t i = 0; i < v.list->n; i++) {
            uint64_t item;
            JINJA_TRY(hash_value(j, v.list->items[i], &item));
            h = mix(h ^ item);
        }
        jinja_leave(j);
        *out = h;
        return 0;
    }
    default:
        if (!jinja_is_hashable(v))
            return jinja_fail(j, QUIRE_EINVAL, "unhashable type: '%s'", jinja_type_name(v));
        *out = mix(
            (uint64_t)(uintptr_t)v.json); /* by identity: every other member of the union is a pointer too */
        return 0;
    }
}

int jinja_dict_new(struct jinja *j, struct jinja_dict **out) {
    *out = jinja_array(j, 1, sizeof **out);
    return *out ? 0 : QUIRE_ENOMEM;
}

static int entry_matches(struct jinja *j, const struct jinja_entry *e, uint64_t hash, struct jinja_value key,
                         bool *same) {
    *same = false;
    if (e->hash != hash) return 0;
    if (e->key.type == JINJA_STR && key.type == JINJA_STR) {
        *same = jinja_str_equal(e->key.s, key.s);
        return 0;
    }
    if (jinja_same(e->key, key)) {
        *same = true;
        return 0;
    }
    return jinja_equal(j, e->key, key, same);
}

/* The number of the entry with this key, or d->n. */
static int find(struct jinja *j, const struct jinja_dict *d, uint64_t hash, struct jinja_value key,
                size_t *at) {
    bool same;
    if (!d->index) {
        for (*at = 0; *at < d->n; ++*at) {
            JINJA_TRY(entry_matches(j, &d->entries[*at], hash, key, &same));
            if (same) return 0;
        }
        return 0;
    }
    for (size_t i = hash;; i++) {
        uint32_t cell = d->index[i & (d->index_cap - 1)];
        *at = cell ? cell - 1 : d->n;
        if (!cell) return 0;
        JINJA_TRY(entry_matches(j, &d->entries[*at], hash, key, &same));
        if (same) return 0;
        JINJA_TRY(jinja_steps(j, 1)); /* colliding keys may have been chosen to collide */
    }
}

static void index_put(struct jinja_dict *d, size_t at) {
    size_t i = d->entries[at].hash;
    while (d->index[i & (d->index_cap - 1)]) i++;
    d->index[i & (d->index_cap - 1)] = (uint32_t)at + 1;
}

static int grow(struct jinja *j, struct jinja_dict *d) {
    size_t cap = d->cap ? d->cap * 2 : 4;
    if (cap > UINT32_MAX / 2) return jinja_fail(j, QUIRE_ELIMIT, "a dict has too many keys");
    struct jinja_entry *entries = jinja_array(j, cap, sizeof *entries);
    if (!entries) return QUIRE_ENOMEM;
    if (d->n) memcpy(entries, d->entries, d->n * sizeof *entries);
    d->entries = entries;
    d->cap = cap;
    if (cap <= SMALL) return 0;
    d->index_cap = cap * 2;
    d->index = jinja_array(j, d->index_cap, sizeof *d->index);
    if (!d->index) return QUIRE_ENOMEM;
    for (size_t i = 0; i < d->n; i++) index_put(d, i);
    return 0;
}

int jinja_dict_set(struct jinja *j, struct jinja_dict *d, struct jinja_value key, struct jinja_value value) {
    uint64_t hash;
    size_t at;
    JINJA_TRY(jinja_steps(j, 1));
    JINJA_TRY(hash_value(j, key, &hash));
    JINJA_TRY(find(j, d, hash, key, &at));
    if (at < d->n) {
        d->entries[at].value = value;
        return 0;
    }
    if (d->n == d->cap) JINJA_TRY(grow(j, d));
    d->entries[d->n] = (struct jinja_entry){.hash = hash, .key = key, .value = value};
    d->n++;
    if (d->index) index_put(d, d->n - 1);
    return 0;
}

int jinja_dict_set_name(struct jinja *j, struct jinja_dict *d, const struct jinja_str *name,
                        struct jinja_value value) {
    return jinja_dict_set(j, d, jinja_of_str(name), value);
}

int jinja_dict_get(struct jinja *j, const struct jinja_dict *d, struct jinja_value key,
                   struct jinja_value **out) {
    uint64_t hash;
    size_t at;
    JINJA_TRY(hash_value(j, key, &hash));
    JINJA_TRY(find(j, d, hash, key, &at));
    *out = at < d->n ? &d->entries[at].value : NULL;
    return 0;
}

int jinja_mapping_get(struct jinja *j, struct jinja_value m, struct jinja_value key, struct jinja_value *out,
                      bool *found) {
    if (m.type != JINJA_JSON_OBJECT) {
        struct jinja_value *value;
        JINJA_TRY(jinja_dict_get(j, m.dict, key, &value));
        *found = value != NULL;
        if (value) *out = *value;
        return 0;
    }
    *found = false;
    if (!jinja_is_hashable(key))
        return jinja_fail(j, QUIRE_EINVAL, "unhashable type: '%s'", jinja_type_name(key));
    if (key.type != JINJA_STR) return 0;
    json_t *member = json_object_getn(m.json, key.s->data, key.s->len);
    if (!member) return 0;
    *found = true;
    return jinja_from_member(j, key.s->data, key.s->len, member, out);
}

size_t jinja_mapping_size(struct jinja_value m) {
    return m.type == JINJA_JSON_OBJECT ? json_object_size(m.json) : m.dict->n;
}

int jinja_mapping_next(struct jinja *j, struct jinja_value m, struct jinja_cursor *c, struct jinja_value *key,
                       struct jinja_value *value, bool *done) {
    JINJA_TRY(jinja_steps(j, 1));
    if (m.type != JINJA_JSON_OBJECT) {
        *done = c->i >= m.dict->n;
        if (*done) return 0;
        *key = m.dict->entries[c->i].key;
        *value = m.dict->entries[c->i++].value;
        return 0;
    }
    c->json_iter = c->i++ ? json_object_iter_next(m.json, c->json_iter) : json_object_iter(m.json);
    *done = !c->json_iter;
    if (*done) return 0;
    const char *name = json_object_iter_key(c->json_iter);
    size_t len = json_object_iter_key_len(c->json_iter);
    const struct jinja_str *s = jinja_str_wrap(j, name, len, JINJA_BY_CONTENT);
    if (!s) return QUIRE_ENOMEM;
    *key = jinja_of_str(s);
    return jinja_from_member(j, name, len, json_object_iter_value(c->json_iter), value);
}

int jinja_dict_update(struct jinja *j, struct jinja_dict *d, struct jinja_value from) {
    struct jinja_value key, value;
    bool done;
    if (jinja_is_dict(from)) {
        struct jinja_cursor c = {0};
        for (;;) {
            JINJA_TRY(jinja_mapping_next(j, from, &c, &key, &value, &done));
            if (done) return 0;
            JINJA_TRY(jinja_dict_set(j, d, key, value));
        }
    }
    struct jinja_iter it;
    if (from.type == JINJA_UNDEFINED) return jinja_fail_undefined(j, from);
    JINJA_TRY(jinja_iter_start(j, &it, from));
    for (;;) {
        struct jinja_value item, pair[2];
        JINJA_TRY(jinja_iter_next(j, &it, &item, &done));
        if (done) return 0;
        JINJA_TRY(jinja_unpack(j, item, pair, 2));
        JINJA_TRY(jinja_dict_set(j, d, pair[0], pair[1]));
    }
}
