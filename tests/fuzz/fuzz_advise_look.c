/* Two pages of metrics (split at a NUL) to figures and advice: whatever they say, figures and gains are
 * finite and in their ranges, and the advice is valid JSON. */
#include "advise/look.h"
#include "advise/show.h"

#include <jansson.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void require(bool holds, const char *what) {
    if (holds) return;
    fprintf(stderr, "violated: %s\n", what);
    abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void judge(const struct figures *f) {
    struct wishes w = {{100, 10, 1000, 0, 0, 0, 0, 0}, 2};
    struct advice *a = calloc(1, sizeof *a);
    struct buf json = BUF_INIT, text = BUF_INIT;
    if (!a) return;
    advise(f, &w, a);
    for (size_t i = 0; i < a->n; i++) {
        const struct verdict *v = &a->verdicts[i];
        require(v->gain >= 0 && v->gain <= 1, "a gain is a share");
        require(isfinite(v->tokens_a_day) && isfinite(v->money_a_day), "finite costs");
        require(!i || v[-1].gain >= v->gain, "in order");
    }
    struct shown s = {.f = f, .w = &w, .a = a};
    show_text(&s, &text);
    show_json(&s, &json);
    json_t *root = buf_ok(&json) ? json_loadb(json.data, json.len, JSON_REJECT_DUPLICATES, NULL) : NULL;
    require(root, "valid JSON");
    json_decref(root);
    buf_free(&json);
    buf_free(&text);
    free(a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    struct look *looks = calloc(2, sizeof *looks);
    char *text = malloc(n + 2);
    struct look_gauges gauges = {0};
    struct figures f;
    struct error err;
    if (looks && text) {
        memcpy(text, data, n);
        text[n] = text[n + 1] = 0;
        look_read(text, &looks[0]);
        look_read(text + strlen(text) + 1, &looks[1]);
        look_gauges_add(&gauges, &looks[1]);
        for (int since_start = 0; since_start < 2; since_start++) {
            if (look_figures(since_start ? NULL : &looks[0], &looks[1], &gauges, 10, &f, &err)) continue;
            for (int i = 0; i < FIGURES; i++)
                require(!f.has[i] || (f.v[i] >= 0 && f.v[i] <= FIGURE_MOST), "a figure is in its range");
            judge(&f);
        }
    }
    free(looks);
    free(text);
    return 0;
}
