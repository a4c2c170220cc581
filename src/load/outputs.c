#include "load/outputs.h"

#include "base/error.h"
#include "base/files.h"

int outputs_open(struct outputs *f, const struct load_options *o, struct error *err) {
    *f = (struct outputs){0};
    int rc = file_open_result("--json", o->json, &f->json, err);
    if (!rc) rc = file_open_result("--csv", o->csv, &f->csv, err);
    if (!rc) rc = file_open_result("--html", o->html, &f->html, err);
    const struct file_option files[] = {
        {"--json", o->json}, {"--csv", o->csv}, {"--html", o->html}, {"--file", o->file}};
    return rc ? rc : file_check_apart(files, 3, 4, err);
}

/* Tells the first error, and keeps it. */
static void write_one(FILE *f, const char *option, const char *path, struct buf *text, int *rc,
                      struct error *err) {
    struct error own = {0};
    int failed = buf_ok(text) ? file_write_result(f, option, path, text, &own)
                              : error_set(&own, QUIRE_ENOMEM, "out of memory for the report");
    if (failed && !*rc) {
        *rc = failed;
        *err = own;
    }
    buf_free(text);
}

int outputs_write(const struct outputs *f, const struct load_options *o, struct output_texts *t,
                  struct error *err) {
    int rc = 0; /* where one cannot be written, the others still are */
    write_one(f->json, "--json", o->json, &t->json, &rc, err);
    write_one(f->csv, "--csv", o->csv, &t->csv, &rc, err);
    write_one(f->html, "--html", o->html, &t->html, &rc, err);
    return rc;
}

void outputs_close(struct outputs *f) {
    if (f->json) fclose(f->json);
    if (f->csv) fclose(f->csv);
    if (f->html) fclose(f->html);
}
