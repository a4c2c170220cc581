/* Streaming bytes to valid UTF-8: never emits half a character. What comes out does not depend on how the
 * bytes were split. Ill-formed input becomes U+FFFD, one for each maximal subpart (Unicode 15, section 3.9,
 * as Python's errors="replace"); a genuine U+FFFD passes. */
#ifndef TEXT_DETOKENIZER_H
#define TEXT_DETOKENIZER_H

#include "base/buf.h"

#include <stddef.h>
#include <stdint.h>

struct detokenizer {
    uint8_t pending[4]; /* an incomplete but so far valid sequence */
    unsigned n_pending;
};

/* Appends to *out all text that is certain after these bytes. */
void detokenizer_push(struct detokenizer *d, const uint8_t *bytes, size_t n, struct buf *out);
/* End of output: an incomplete character becomes one U+FFFD. */
void detokenizer_finish(struct detokenizer *d, struct buf *out);

#endif
