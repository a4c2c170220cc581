#include "engine/stop.h"

void stop_prepare(struct stop_string *s) {
    size_t k = 0;
    s->matched = 0;
    s->border[0] = 0;
    for (size_t i = 1; i < s->len; i++) {
        while (k && s->text[i] != s->text[k]) k = s->border[k - 1];
        k += s->text[i] == s->text[k];
        s->border[i] = (uint16_t)k;
    }
}

/* True when the byte completes the string; the automaton then goes on with its longest border. */
static bool feed_byte(struct stop_string *s, char byte) {
    size_t k = s->matched;
    while (k && s->text[k] != byte) k = s->border[k - 1];
    k += s->text[k] == byte;
    bool complete = k == s->len;
    s->matched = complete ? s->border[k - 1] : k;
    return complete;
}

bool stop_feed(struct stop_matcher *m, const uint8_t *bytes, size_t n, bool mute, struct stop_hit *hit) {
    for (size_t i = 0; m->n && i < n; i++) {
        size_t best_len = 0;
        for (size_t j = 0; j < m->n; j++) {
            struct stop_string *s = &m->strings[j];
            if (!feed_byte(s, (char)bytes[i]) || mute || s->len <= best_len) continue;
            best_len = s->len;
            *hit = (struct stop_hit){j, n - i - 1};
        }
        if (best_len) return true;
    }
    return false;
}

size_t stop_held(const struct stop_matcher *m) {
    size_t most = 0;
    for (size_t j = 0; j < m->n; j++)
        if (m->strings[j].matched > most) most = m->strings[j].matched;
    return most;
}
