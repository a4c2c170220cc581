#include "load/outputs.h"

#include "base/error.h"
#include "base/files.h"

int outputs_open(struct outputs *f, const struct load_options *o, struct error *err) {
    *f = (struct outputs){0};
    int rc = file_open_result("--json", o->json, &f->json, err);
    if (!rc) rc = file_open_result("--csv", o->csv, &f->csv, err);
    if (!rc) rc = file_open_result("--html", o->html, &f->html, err);
    return rc;
}

int outputs_write(const struct outputs *f, const struct load_options *o, struct output_texts *t,
                  struct error *err) {
    int rc = 0;
    if (!buf_ok(&t->json) || !buf_ok(&t->csv) || !buf_ok(&t->html))
        rc = error_set(err, QUIRE_ENOMEM, "out of memory for the report");
    if (!rc) rc = file_write_result(f->json, "--json", o->json, &t->json, err);
    if (!rc) rc = file_write_result(f->csv, "--csv", o->csv, &t->csv, err);
    if (!rc) rc = file_write_result(f->html, "--html", o->html, &t->html, err);
    buf_free(&t->json);
    buf_free(&t->csv);
    buf_free(&t->html);
    return rc;
}

void outputs_close(struct outputs *f) {
    if (f->json) fclose(f->json);
    if (f->csv) fclose(f->csv);
    if (f->html) fclose(f->html);
}
