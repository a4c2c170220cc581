/* Shares as options have them. */
#include "cli/cli.h"

#include "base/error.h"

#include <math.h>
#include <stdlib.h>

int share_read(const char *flag, const char *text, double *out, struct error *err) {
    char *end;
    double v = strtod(text, &end);
    bool percent = *end == '%';
    if (end == text || end[percent] || !isfinite(v) || v < 0 || v > (percent ? 1e4 : 100))
        return error_set(err, QUIRE_EINVAL, "--%s is \"%.60s\"; allowed is a share such as 1%% or 0.01", flag,
                         text);
    *out = percent ? v / 100 : v;
    return 0;
}
