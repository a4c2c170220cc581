/* quire inspect MODEL: what is in a model file, whether it can be served, and whether it is whole. */
#include "cli/inspect.h"

#include "backend/cpu/cores.h"
#include "base/error.h"

#include <stdio.h>

struct inspect_options {
    bool json, check;
    int64_t threads;
};

#define AT(member) offsetof(struct inspect_options, member)

static const struct option table[] = {
    {"json", OPTION_BOOL, AT(json), "Output", NULL, "false", 0, 0, NULL, NULL,
     "As JSON; docs/operations.md says what the fields are."},
    {"check", OPTION_BOOL, AT(check), "Check", NULL, "true", 0, 0, NULL, NULL,
     "Read all tensors: numbers that are not finite, and bytes that belong to nothing, are damage."},
    {"threads", OPTION_INT, AT(threads), "Check", "N", "0", 0, 256, NULL, NULL,
     "Threads to read with; 0 is the cores that the process may use."},
    {0},
};

static int inspect(const char *argument, const struct inspect_options *o, struct error *err) {
    struct inspection i = {0};
    struct buf out = BUF_INIT;
    int rc = inspection_read(argument, &i, err);
    if (!rc && o->check && i.model.weights)
        rc = inspection_check(&i, o->threads ? (size_t)o->threads : cores_available(), err);
    if (!rc) {
        if (o->json)
            inspection_json(&i, &out);
        else
            inspection_text(&i, &out);
        if (!buf_ok(&out))
            rc = error_set(err, QUIRE_ENOMEM, "out of memory");
        else if (fwrite(out.data, 1, out.len, stdout) != out.len || fflush(stdout))
            rc = error_set(err, QUIRE_EIO, "standard output cannot be written");
        else if (inspection_broken(&i, err))
            rc = err->code;
        else
            *err = (struct error){0};
    }
    buf_free(&out);
    inspection_free(&i);
    return rc;
}

int cmd_inspect(int argc, char **argv) {
    struct inspect_options o = {0};
    struct options_state *state = NULL;
    struct error err = {0};
    int n_args = 0;
    int rc = cli_options("inspect", "MODEL [options]",
                         "Says what a model file holds, whether it can be served, and whether it is whole.",
                         table, argc, argv, &n_args, &o, &state);
    if (rc >= 0) return rc;
    rc = n_args == 1 ? inspect(argv[1], &o, &err)
                     : error_set(&err, QUIRE_EINVAL, "usage: quire inspect MODEL [options]");
    options_free(state);
    return rc ? cli_fail("inspect", &err) : EXIT_OK;
}
