/* AMX tile instructions where the processor lacks them: each one traps, and the handler does what it should
 * have done. Slow, but the kernel's own code runs. Written from the Intel SDM, vol. 2. */
#ifndef TESTS_KERN_TILES_H
#define TESTS_KERN_TILES_H

#include <stdbool.h>

/* Takes SIGILL; what is not a tile instruction goes to `other` (NULL: as before, at first nothing), after
 * which the program ends. Returns false where there is nothing to emulate on. */
bool tiles_emulate(void (*other)(int signal));

#endif
