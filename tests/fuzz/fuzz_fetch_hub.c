/* A hub's list of files, and what is picked from it by a name that stands before it: "pick\0list". */
#include "fetch/hub_impl.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void expect(int truth) {
    if (!truth) abort();
}

static void stays_within(const char *path) {
    expect(path[0] && path[0] != '/' && !strstr(path, "//") && strncmp(path, "../", 3) != 0 &&
           !strstr(path, "/../") && strcmp(path, "..") != 0);
    size_t n = strlen(path);
    expect(path[n - 1] != '/' && (n < 3 || strcmp(path + n - 3, "/..") != 0));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const uint8_t *end = memchr(data, 0, size);
    if (!end) return 0;
    const char *text = (const char *)data, *list = (const char *)end + 1;
    struct error err = {0};
    struct hub_ref ref;
    struct hub_repo repo;
    struct hub_choice choice;
    if (hub_ref_is(text) && !hub_ref_parse(text, &ref, &err)) {
        expect(ref.org[0] && ref.name[0] && ref.revision[0] && ref.org[0] != '.' && ref.name[0] != '.');
        expect(!strchr(ref.org, '/') && !strchr(ref.name, '/') && !strstr(ref.pick, ".."));
    }
    if (hub_list_parse(list, size - (size_t)(list - text), &repo, &err)) {
        expect(err.text[0] && !repo.files);
        return 0;
    }
    for (size_t i = 0; i < repo.n_files; i++) stays_within(repo.files[i].path);
    if (!hub_pick(&repo, text, &choice, &err)) {
        expect(choice.n && choice.n <= repo.n_files);
        hub_choice_free(&choice);
    } else {
        expect(err.code == QUIRE_ENOTFOUND && err.text[0]);
    }
    hub_list_free(&repo);
    return 0;
}
