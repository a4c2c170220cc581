/* When an answer counts as the one wanted. */
#ifndef EVAL_MATCH_H
#define EVAL_MATCH_H

#include "base/buf.h"
#include "eval/eval.h"

/* The part of an answer that is compared. EVAL_FIRST_LINE: of the first line that is not blank.
 * EVAL_LAST_NUMBER: the last decimal number, without thousands separators and a final dot; nothing if there
 * is none. */
struct text_span match_extract(struct text_span answer, enum eval_extract how, struct buf *memory);

/* Appends the form that is compared. EVAL_EXACT: as it is. EVAL_SPACES: no blanks around it, single ones
 * within. EVAL_LOOSE: then without ASCII punctuation, in ASCII lower case, and without the words a, an and
 * the (as SQuAD's scorer). */
void match_normalize(struct text_span text, enum eval_normalize how, struct buf *out);

#endif
