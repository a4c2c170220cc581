/* Devices by name, with what their makers publish of them; docs/plan.md has the sources. */
#ifndef PLAN_MACHINE_H
#define PLAN_MACHINE_H

#include "backend/backend.h"

#include <quire/error.h>

#include <stdbool.h>
#include <stdint.h>

struct machine {
    const char *name, *label;
    uint64_t memory_bytes; /* 0: of a processor, which has what is put into it */
    double read_per_s;     /* bytes, from its memory */
    double ops_per_s;      /* of bfloat16 products, dense; a multiply and an add are 2 */
    bool is_cpu;
};

/* QUIRE_EINVAL lists the names; case does not matter. */
int machine_find(const char *name, const struct machine **out, struct error *err);

/* A device that has only sizes: matrices as the files have them (unquantized ones of 2 bytes an element, or
 * 4), KV pages without gaps. What its driver takes of its memory is a guess, on the high side. */
extern const struct backend machine_paper;
#define MACHINE_CONTEXT_BYTES ((uint64_t)512 << 20)

#endif
