#include "load/load.h"

#include "base/error.h"
#include "load/outputs.h"
#include "load/plan.h"
#include "load/report.h"

#include <stdlib.h>

static int write_files(const struct plan *p, const struct outputs *f, struct error *err) {
    struct output_texts t = OUTPUT_TEXTS_INIT;
    if (f->json) report_json(p, &t.json);
    if (f->csv) report_csv(p, &t.csv);
    if (f->html) report_html(p, &t.html);
    return outputs_write(f, p->o, &t, err);
}

int load_perform(const struct load_options *o, const struct performer *performer,
                 const volatile int *interrupted, FILE *out, bool *measured, struct error *err) {
    struct plan *p = calloc(1, sizeof *p);
    struct outputs files = {0};
    *measured = false;
    if (!p) return error_set(err, QUIRE_ENOMEM, "out of memory");
    int rc = plan_options(o, p, err);
    p->performer = performer;
    if (!rc) rc = outputs_open(&files, o, err);
    if (!rc) rc = plan_measure(p, interrupted, out, err);
    if (plan_measured(p)) {
        struct error late = {0};
        *measured = true;
        report_table(p, out);
        int written = write_files(p, &files, &late);
        if (written && !rc) {
            rc = written;
            *err = late;
        }
    }
    if (!rc && performer && performer->conclude) rc = performer->conclude(performer->ctx, p, out, err);
    if (!rc && *p->ended) rc = error_set(err, QUIRE_ECANCELED, "%s", p->ended);
    if (!rc) rc = plan_check_answers(p, err);
    outputs_close(&files);
    plan_free(p);
    free(p);
    return rc;
}

int load_serve(const struct load_options *o, const volatile int *interrupted, FILE *out, bool *measured,
               struct error *err) {
    return load_perform(o, NULL, interrupted, out, measured, err);
}
