#include "base/gauge.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

/* Full cells, and that the others are dots: whatever the share, it stays within its brackets. */
static size_t full(double share) {
    char text[GAUGE_BYTES];
    assert_ptr_equal(gauge_draw(text, share), text);
    assert_int_equal(strlen(text), GAUGE_CELLS + 2);
    size_t n = strspn(text + 1, "#");
    assert_int_equal(n + strspn(text + 1 + n, "."), GAUGE_CELLS);
    assert_true(text[0] == '[' && text[GAUGE_CELLS + 1] == ']');
    return n;
}

static void cells(void **state) {
    assert_int_equal(full(0), 0);
    assert_int_equal(full(0.5), GAUGE_CELLS / 2);
    assert_int_equal(full(1 - 1e-9), GAUGE_CELLS - 1);
    assert_int_equal(full(1), GAUGE_CELLS);
    assert_int_equal(full(1e300), GAUGE_CELLS);
    assert_int_equal(full(-0.1), 0);
    assert_int_equal(full(NAN), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(cells)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
