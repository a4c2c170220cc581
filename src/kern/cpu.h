/* What the processor and the operating system offer (private to src/kern), besides kern_cpu_has. Apart from
 * the choice of a table, so that tests can put another processor in its place. */
#ifndef KERN_CPU_H
#define KERN_CPU_H

#include "kern/kern.h"

/* Whether there is AVX512_BF16, next to what KERN_ISA_AVX512 stands for; and whether it gains anything. */
bool cpu_has_bf16_dot(void);
bool cpu_has_fast_bf16_dot(void);

#endif
