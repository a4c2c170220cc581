/* Stop strings, matched bytewise while tokens arrive, whatever the split of bytes over tokens.
 *
 * The string that is complete first wins; of several that end at the same byte the longest, which begins
 * first. So the result does not depend on how the text is cut into tokens. Knuth, Morris and Pratt (1977),
 * one automaton a string. */
#ifndef ENGINE_STOP_H
#define ENGINE_STOP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct stop_string {
    const char *text; /* NUL-terminated, len bytes */
    size_t len;       /* 1 ... 65,535 */
    uint16_t *border; /* [len]: longest proper border of text[0 .. i] */
    size_t matched;   /* bytes of text that end what has been fed */
};

struct stop_matcher {
    struct stop_string *strings;
    size_t n;
};

struct stop_hit {
    size_t which;   /* index of the string */
    size_t n_after; /* bytes of the fed piece behind the match */
};

/* Fills border of a string whose text and len are set. */
void stop_prepare(struct stop_string *s);
/* Feeds the bytes of one token. True at the first match; the rest of the piece is then not looked at. With
 * `mute`, matches that end in this piece are passed over. */
bool stop_feed(struct stop_matcher *m, const uint8_t *bytes, size_t n, bool mute, struct stop_hit *hit);
/* Last bytes fed that may turn out to begin a stop string. */
size_t stop_held(const struct stop_matcher *m);

#endif
