/* Whether prompts repeat text that the prefix cache cannot find, because something in front of it changes: a
 * date or a user's name at the start of a system prompt, a history that is cut in front, passages in another
 * order.
 *
 * Of the first PROMPT_STATS_TOKENS tokens of a prompt two kinds of keyed hashes are looked up and then kept:
 * of its prefixes, at every PROMPT_STATS_BLOCK tokens, which say how much a prefix cache without limit would
 * find; and of its chunks, whose ends are where a hash of the last four tokens says so (content-defined
 * chunking; Muthitacharoen et al., A Low-bandwidth Network File System, SOSP 2001), so that the same text
 * makes the same chunks wherever it stands. Chunks that are known, behind the known prefix, are displaced.
 *
 * Privacy: the key is random for each process and never leaves it; no token, text or hash does. What can be
 * read is counts over all prompts. Requests with different cache_salt have different hashes, as in the prefix
 * cache. The table has a fixed size and forgets the oldest first. Any thread. */
#ifndef SERVE_PROMPT_STATS_H
#define SERVE_PROMPT_STATS_H

#include <quire/error.h>

#include <stddef.h>
#include <stdint.h>

#define PROMPT_STATS_TOKENS 8192
#define PROMPT_STATS_BLOCK  16

/* Why text is displaced, by three quarters of its tokens: `field`: they have moved by a few tokens or not at
 * all, so that something short in front has changed; `cut`: they have moved by the same larger amount;
 * `order`: they have moved differently. */
enum prompt_cause { PROMPT_FIELD, PROMPT_CUT, PROMPT_ORDER, PROMPT_CAUSES };

struct prompt_figures { /* all of them only rise */
    uint64_t prompts, tokens, prefix_tokens;
    uint64_t displaced_prompts[PROMPT_CAUSES], displaced_tokens[PROMPT_CAUSES];
    uint64_t difference_tokens[PROMPT_CAUSES]; /* in front of the first difference, of displaced prompts */
};

struct prompt_stats;

int prompt_stats_new(struct prompt_stats **out, struct error *err);
size_t prompt_stats_bytes(void);                /* what prompt_stats_new takes */
void prompt_stats_free(struct prompt_stats *p); /* NULL allowed */
/* salt: of the request, NULL = none. p NULL: nothing is done. */
void prompt_stats_note(struct prompt_stats *p, const uint32_t *tokens, size_t n, const char *salt);
void prompt_stats_read(struct prompt_stats *p, struct prompt_figures *out); /* p NULL: zeros */

#endif
