/* An inspection for people. */
#include "cli/inspect.h"

#include "base/utf8.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define SHOWN_BYTES 200 /* of a name or a token */

static void label(struct buf *out, const char *name) {
    buf_printf(out, "%-14s ", name);
}

static void put_safe(struct buf *out, struct meta_str s) {
    char shown[SHOWN_BYTES];
    utf8_printable(shown, sizeof shown, s.data ? s.data : "", s.len);
    buf_puts(out, shown);
}

static void put_size(struct buf *out, uint64_t bytes) {
    static const char *const units[] = {"bytes", "kB", "MB", "GB", "TB"};
    double v = (double)bytes;
    size_t unit = 0;
    for (; v >= 1000 && unit < 4; unit++) v /= 1000;
    buf_printf(out, unit ? "%.1f %s" : "%.0f %s", v, units[unit]);
}

static void put_count(struct buf *out, uint64_t n) {
    if (n >= 1000000000)
        buf_printf(out, "%.2f G", (double)n / 1e9);
    else if (n >= 1000000)
        buf_printf(out, "%.1f M", (double)n / 1e6);
    else
        buf_printf(out, "%" PRIu64, n);
}

/* A line of its own, only if the file says it. */
static void line(struct buf *out, const char *name, uint64_t value) {
    if (!value) return;
    label(out, name);
    buf_printf(out, "%" PRIu64 "\n", value);
}

/* ---- parts ---- */

static void put_files(const struct inspection *i, struct buf *out) {
    const struct weights *w = i->model.weights;
    for (size_t k = 0; k < weights_n_files(w); k++) {
        const char *path = weights_file_path(w, k);
        label(out, k ? "" : "file");
        put_safe(out, (struct meta_str){path, strlen(path)});
        buf_puts(out, ", ");
        put_size(out, weights_bytes_of_file(w, k));
        buf_putc(out, '\n');
    }
    label(out, "tensors");
    buf_printf(out, "%zu, ", i->total.n_tensors);
    put_size(out, i->total.bytes);
    buf_putc(out, '\n');
}

static void put_experts(const struct inspect_sizes *s, struct buf *out) {
    if (!s->experts) return;
    label(out, "experts");
    buf_printf(out, "%" PRIu64 ", %" PRIu64 " for each token", s->experts, s->experts_used);
    if (s->expert_ff) buf_printf(out, ", each %" PRIu64 " wide", s->expert_ff);
    if (s->shared_ff) buf_printf(out, "; shared %" PRIu64 " wide", s->shared_ff);
    buf_putc(out, '\n');
}

static void put_shapes(const struct inspection *i, struct buf *out) {
    const struct inspect_sizes *s = &i->sizes;
    label(out, "parameters");
    put_count(out, i->total.n_elements);
    if (i->active != i->total.n_elements) {
        buf_puts(out, ", active ");
        put_count(out, i->active);
    }
    buf_putc(out, '\n');
    line(out, "layers", s->layers);
    line(out, "width", s->width);
    if (s->heads) {
        label(out, "heads");
        buf_printf(out, "%" PRIu64, s->heads);
        const struct model_latent *l = i->spec ? &i->spec->latent : NULL;
        bool latent = l && l->rank;
        if (latent)
            buf_printf(out, ", one row for all of keys and values: a latent of %zu, %zu rotated", l->rank,
                       l->n_rot);
        else if (s->kv_heads)
            buf_printf(out, ", %" PRIu64 " of keys and values", s->kv_heads);
        if (s->head_size && !latent) buf_printf(out, ", each %" PRIu64 " wide", s->head_size);
        buf_putc(out, '\n');
    }
    line(out, "feed-forward", s->ff);
    put_experts(s, out);
    line(out, "vocabulary", s->vocabulary);
    line(out, "context", s->context);
}

static void put_rope(const struct model_rope *r, const char *name, struct buf *out) {
    label(out, name);
    buf_printf(out, "base %g, %zu of a head", r->base, r->n_rot);
    if (r->scaling != ROPE_NONE) buf_printf(out, ", scaling %s", rope_scaling_name(r->scaling));
    if (r->scaling == ROPE_LINEAR || r->scaling == ROPE_DYNAMIC || r->scaling == ROPE_YARN)
        buf_printf(out, " by %g", r->factor);
    if (r->original_context) buf_printf(out, " from %zu", r->original_context);
    buf_putc(out, '\n');
}

/* "512 tokens in 15 of 18 layers (5 of each 6)" */
static void put_windows(const struct model_spec *s, struct buf *out) {
    size_t n = 0, window = 0;
    for (size_t k = 0; k < s->n_layers; k++) {
        n += s->layers[k].window != 0;
        if (s->layers[k].window) window = s->layers[k].window;
    }
    label(out, "window");
    if (!n) {
        buf_puts(out, "none\n");
        return;
    }
    buf_printf(out, "%zu tokens in %zu of %zu layers: ", window, n, s->n_layers);
    for (size_t k = 0; k < s->n_layers; k++) buf_putc(out, s->layers[k].window ? 'w' : 'F');
    buf_puts(out, "\n");
}

static void put_kv_of(const struct model_spec *s, const char *name, enum backend_dtype dtype,
                      struct buf *out) {
    label(out, name);
    buf_printf(out, "%zu bytes a token, ", model_kv_bytes_per_token(s, dtype));
    put_size(out, inspection_kv_bytes(s, 1000, dtype));
    buf_puts(out, " for 1,000, ");
    put_size(out, inspection_kv_bytes(s, s->context_len, dtype));
    buf_printf(out, " for %zu\n", s->context_len);
}

static void put_spec(const struct model_spec *s, struct buf *out) {
    size_t n_plain = 0;
    for (size_t k = 0; k < s->n_layers; k++) n_plain += s->layers[k].rope == MODEL_NO_ROPE;
    enum model_pooling pooling = model_default_pooling(s, false);
    if (pooling) {
        label(out, "pooling");
        buf_printf(out, "%s%s\n", model_pooling_name(pooling), s->encoder ? ", of an encoder" : "");
    }
    if (s->n_ropes) put_rope(&s->ropes[0], "rope", out);
    if (s->n_ropes > 1) put_rope(&s->ropes[1], "", out);
    if (n_plain) {
        label(out, s->n_ropes ? "" : "rope");
        buf_printf(out, "none in %zu layers\n", n_plain);
    }
    put_windows(s, out);
    put_kv_of(s, "KV, 16 bits", BACKEND_BF16, out);
    put_kv_of(s, "KV, float32", BACKEND_F32, out);
}

static void put_tokenizer(const struct inspection *i, struct buf *out) {
    uint64_t id;
    struct meta_str spelling;
    label(out, "tokenizer");
    if (!i->tokenizer.data) {
        buf_puts(out, "none\n");
        return;
    }
    put_safe(out, i->tokenizer);
    if (i->pre.data) {
        buf_puts(out, ", pre-tokenizer ");
        put_safe(out, i->pre);
    }
    if (i->n_tokens) buf_printf(out, ", %zu tokens", i->n_tokens);
    buf_putc(out, '\n');
    for (size_t k = 0; inspection_specials[k]; k++) {
        if (!inspection_special(i, inspection_specials[k], &id, &spelling)) continue;
        buf_printf(out, "  %-12s %" PRIu64 " ", inspection_specials[k], id);
        put_safe(out, spelling);
        buf_putc(out, '\n');
    }
}

static void put_template(const struct inspection *i, struct buf *out) {
    label(out, "chat template");
    if (!i->template.data) {
        buf_puts(out, "none\n");
        return;
    }
    buf_printf(out, "%zu bytes, SHA-256 %.12s, ", i->template.len, i->template_sha256);
    if (i->template_error.code)
        buf_printf(out, "cannot be used: %s\n", i->template_error.text);
    else if (i->model.tokenizer)
        buf_printf(out, "renders (%zu tokens)\n", i->probe_tokens);
    else
        buf_printf(out, "renders (%zu bytes)\n", i->probe_bytes);
}

static void put_row(const char *class, const char *type, const struct inspect_sum *sum, struct buf *out) {
    buf_printf(out, "%-14s %-8s %7zu %15" PRIu64 " %15" PRIu64 " %9.2f\n", class, type, sum->n_tensors,
               sum->n_elements, sum->bytes, 8.0 * (double)sum->bytes / (double)sum->n_elements);
}

static void put_classes(const struct inspection *i, struct buf *out) {
    if (!i->total.n_tensors) return;
    buf_printf(out, "\n%-14s %-8s %7s %15s %15s %9s\n", "class", "type", "tensors", "parameters", "bytes",
               "bits each");
    for (size_t class = 0; class < CLASS_END; class ++) {
        const char *name = tensor_class_names[class];
        for (uint32_t type = 0; type < TENSOR_TYPE_END; type++) {
            const struct inspect_sum *sum = &i->classes[class][type];
            if (!sum->n_tensors) continue;
            put_row(name, tensor_type_info(type)->name, sum, out);
            name = "";
        }
    }
    put_row("all", "", &i->total, out);
}

static void put_check(const struct inspection *i, struct buf *out) {
    label(out, "check");
    if (!i->checked) {
        buf_puts(out, "not done (--no-check)\n");
        return;
    }
    if (i->gaps.code) buf_printf(out, "%s\n", i->gaps.text);
    if (i->gaps.code && i->n_bad_tensors) label(out, "");
    if (!i->gaps.code && !i->n_bad_tensors)
        buf_puts(out, "whole: tensors without overlaps or gaps, all numbers finite\n");
    if (!i->n_bad_tensors) return;
    buf_printf(out, "%zu tensors hold numbers that are not finite:\n", i->n_bad_tensors);
    for (size_t k = 0; k < i->total.n_tensors; k++) {
        const struct float_faults *f = &i->faults[k];
        if (!f->n_nan && !f->n_inf) continue;
        buf_printf(out, "  %s: %" PRIu64 " NaN, %" PRIu64 " infinite\n",
                   weights_tensor_at(i->model.weights, k)->name, f->n_nan, f->n_inf);
    }
}

static void put_served(const struct inspection *i, struct buf *out) {
    for (size_t k = 0; k < i->n_reasons; k++) buf_printf(out, "cannot be served: %s\n", i->reasons[k].text);
    if (i->n_reasons) return;
    buf_puts(out, "can be served: weights take ");
    put_size(out, i->loaded_bytes);
    buf_putc(out, '\n');
}

void inspection_text(const struct inspection *i, struct buf *out) {
    if (!i->model.weights) {
        put_served(i, out);
        return;
    }
    label(out, "family");
    put_safe(out, i->family.data ? i->family : (struct meta_str){"unknown", 7});
    buf_putc(out, '\n');
    if (i->name.len) {
        label(out, "name");
        put_safe(out, i->name);
        buf_putc(out, '\n');
    }
    put_files(i, out);
    put_shapes(i, out);
    if (i->spec) put_spec(i->spec, out);
    put_tokenizer(i, out);
    put_template(i, out);
    put_classes(i, out);
    buf_putc(out, '\n');
    put_check(i, out);
    put_served(i, out);
}
