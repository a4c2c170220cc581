#include "engine/sampler.h"

#include <string.h>

size_t sampler_slots(size_t n) {
    size_t slots = 16;
    while (slots < 2 * n) slots *= 2;
    return slots;
}

void sampler_note(struct sampler *s, uint32_t token, bool in_prompt) {
    if (!s->counting) return;
    size_t i = (token * UINT32_C(0x9e3779b1)) & s->mask;
    while (s->slots[i] && s->counts[s->slots[i] - 1].token != token) i = (i + 1) & s->mask;
    if (!s->slots[i]) {
        s->counts[s->n_counts++] = (struct sample_count){.token = token};
        s->slots[i] = (uint32_t)s->n_counts;
    }
    struct sample_count *c = &s->counts[s->slots[i] - 1];
    if (in_prompt)
        c->in_prompt = true;
    else
        c->n_output++;
}

void sampler_row(const struct sampler *s, size_t n_output, size_t position, struct sample_row *out) {
    *out = s->row;
    out->counts = s->counts;
    out->n_counts = s->n_counts;
    out->banned = s->bans;
    out->n_banned = n_output < s->min_tokens ? s->n_bans : 0;
    out->allow_mask = s->allow;
    out->position = (uint32_t)position;
}

void sampler_score_row(uint32_t target, int n_top, struct sample_row *out) {
    memset(out, 0, sizeof *out);
    out->repetition_penalty = out->top_p = 1;
    out->score_only = true;
    out->target = target;
    out->n_top = n_top;
}
