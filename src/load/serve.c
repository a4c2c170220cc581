#include "load/load.h"

#include "base/error.h"
#include "base/files.h"
#include "load/plan.h"
#include "load/report.h"

#include <stdlib.h>

struct files {
    FILE *json, *csv, *html;
};

static int write_files(const struct plan *p, const struct files *f, struct error *err) {
    const struct load_options *o = p->o;
    struct buf json = BUF_INIT, csv = BUF_INIT, html = BUF_INIT;
    int rc = 0;
    if (f->json) report_json(p, &json);
    if (f->csv) report_csv(p, &csv);
    if (f->html) report_html(p, &html);
    if (!buf_ok(&json) || !buf_ok(&csv) || !buf_ok(&html))
        rc = error_set(err, QUIRE_ENOMEM, "out of memory for the report");
    if (!rc) rc = file_write_result(f->json, "--json", o->json, &json, err);
    if (!rc) rc = file_write_result(f->csv, "--csv", o->csv, &csv, err);
    if (!rc) rc = file_write_result(f->html, "--html", o->html, &html, err);
    buf_free(&json);
    buf_free(&csv);
    buf_free(&html);
    return rc;
}

int load_perform(const struct load_options *o, const struct performer *performer,
                 const volatile int *interrupted, FILE *out, bool *measured, struct error *err) {
    struct plan *p = calloc(1, sizeof *p);
    struct files files = {0};
    *measured = false;
    if (!p) return error_set(err, QUIRE_ENOMEM, "out of memory");
    int rc = plan_options(o, p, err);
    p->performer = performer;
    if (!rc) rc = file_open_result("--json", o->json, &files.json, err);
    if (!rc) rc = file_open_result("--csv", o->csv, &files.csv, err);
    if (!rc) rc = file_open_result("--html", o->html, &files.html, err);
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
    if (files.json) fclose(files.json);
    if (files.csv) fclose(files.csv);
    if (files.html) fclose(files.html);
    plan_free(p);
    free(p);
    return rc;
}

int load_serve(const struct load_options *o, const volatile int *interrupted, FILE *out, bool *measured,
               struct error *err) {
    return load_perform(o, NULL, interrupted, out, measured, err);
}
