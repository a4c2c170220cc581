/* Formats that whole models are kept in, by the names that converters and quantizers give them ("bf16",
 * "q8_0", "q4_k_m"), and which type each tensor has in them. Mixtures (names that end in _s, _m) keep some
 * tensors in a finer type. */
#ifndef PLAN_WEIGHT_FORMAT_H
#define PLAN_WEIGHT_FORMAT_H

#include "model/spec.h"
#include "weights/weights.h"

#include <quire/error.h>

#include <stdint.h>

struct weight_format;

/* QUIRE_EINVAL lists the names; case does not matter. */
int weight_format_find(const char *name, const struct weight_format **out, struct error *err);
/* From the largest to the smallest; NULL at the end. */
const struct weight_format *weight_format_at(size_t i);
const char *weight_format_name(const struct weight_format *f);

/* The model of these weights in another format: tensors as `like` has them, described only. */
int weight_format_apply(const struct weight_format *f, const struct weights *like,
                        const struct model_spec *spec, struct weights **out, struct error *err);
/* The model of a config.json alone (weights/sketch.h) in a format: tensors by the rules of its family. */
int weight_format_draft(const struct weight_format *f, const struct weights *config, struct weights **out,
                        struct error *err);

/* Bytes of so many parameters at so many bits each, with nothing besides. */
static inline double weight_format_plain_bytes(double n_params, double bits) {
    return n_params * bits / 8;
}

#endif
