/* Codes of the engine to statuses, and errors as JSON whatever their text holds. */
#include "base/error.h"
#include "serve/internal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static void test_statuses(void **state) {
    static const struct {
        int code;
        unsigned status;
        enum serve_outcome outcome;
    } rows[] = {{QUIRE_EINVAL, 400, OUTCOME_INVALID},       {QUIRE_EFORMAT, 400, OUTCOME_INVALID},
                {QUIRE_EUNSUPPORTED, 400, OUTCOME_INVALID}, {QUIRE_ELIMIT, 400, OUTCOME_INVALID},
                {QUIRE_ENOTFOUND, 404, OUTCOME_INVALID},    {QUIRE_EBUSY, 503, OUTCOME_OVERLOADED},
                {QUIRE_ECANCELED, 503, OUTCOME_OVERLOADED}, {QUIRE_ENOMEM, 500, OUTCOME_FAILED},
                {QUIRE_EIO, 500, OUTCOME_FAILED},           {QUIRE_EINTERNAL, 500, OUTCOME_FAILED}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct error e = {.code = rows[i].code};
        assert_int_equal(api_error_status(&e), rows[i].status);
        assert_int_equal(api_error_outcome(rows[i].status), rows[i].outcome);
    }
    assert_int_equal(api_error_outcome(200), OUTCOME_OK);
    assert_int_equal(api_error_outcome(401), OUTCOME_REFUSED);
    assert_int_equal(api_error_outcome(429), OUTCOME_OVERLOADED);
}

static void body_is(unsigned status, const struct error *e, const char *wanted) {
    struct buf b = BUF_INIT;
    api_error_body(&b, status, e);
    assert_true(buf_ok(&b));
    assert_string_equal(b.data, wanted);
    buf_free(&b);
}

static void test_bodies(void **state) {
    struct error e;
    (void)state;
    error_param(&e, QUIRE_EINVAL, "n", "n is \"%s\"", "a\n\x01\xff");
    body_is(
        400, &e,
        "{\"error\":{\"message\":\"n is \\\"a\\\\x0a\\\\x01\\\\xff\\\"\",\"type\":\"invalid_request_error\","
        "\"param\":\"n\",\"code\":null}}");
    error_param(&e, QUIRE_ELIMIT, "prompt", "too long");
    body_is(400, &e,
            "{\"error\":{\"message\":\"too "
            "long\",\"type\":\"invalid_request_error\",\"param\":\"prompt\",\"code\":"
            "\"context_length_exceeded\"}}");
    error_param(&e, QUIRE_ENOTFOUND, "model", "none");
    body_is(404, &e,
            "{\"error\":{\"message\":\"none\",\"type\":\"not_found_error\",\"param\":\"model\",\"code\":"
            "\"model_not_found\"}}");
    error_set(&e, QUIRE_EBUSY, "full");
    body_is(503, &e,
            "{\"error\":{\"message\":\"full\",\"type\":\"overloaded_error\",\"param\":null,\"code\":null}}");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_statuses), cmocka_unit_test(test_bodies)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
