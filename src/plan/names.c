#include "plan/names.h"

#include "base/error.h"

#include <stdio.h>
#include <strings.h>

int names_find(const char *option, const char *name, const char *(*name_at)(size_t row), size_t n,
               size_t *out, struct error *err) {
    char known[256];
    size_t len = 0;
    for (size_t i = 0; i < n; i++) {
        if (!strcasecmp(name_at(i), name)) {
            *out = i;
            return 0;
        }
        if (len < sizeof known)
            len += (size_t)snprintf(known + len, sizeof known - len, "%s%s", i ? ", " : "", name_at(i));
    }
    return error_set(err, QUIRE_EINVAL, "--%s \"%.40s\" is not known; known are %s", option, name, known);
}
