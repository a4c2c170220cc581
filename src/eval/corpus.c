/* The default text, data/eval/classics.txt, as part of the program. */
#include "eval/eval.h"

__asm__(".section .rodata\n"
        ".balign 16\n"
        "eval_classics:\n"
        ".incbin \"" EVAL_CLASSICS "\"\n"
        "eval_classics_end:\n"
        ".previous\n");

extern const char eval_classics[], eval_classics_end[];

struct eval_text eval_default_text(void) {
    return (struct eval_text){"classics.txt (built in)", eval_classics,
                              (size_t)(eval_classics_end - eval_classics)};
}
