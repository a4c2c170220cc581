#include "base/log.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

static void one_line_with_level_and_time(void **state) {
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    struct log log = {.sink = f, .level = LOG_INFO};
    log_write(&log, LOG_DEBUG, "not shown");
    log_write(&log, LOG_WARN, "port %d is taken\nfake line \x1b[0m", 80);
    fclose(f);
    char level[8], time[32];
    int at = 0;
    assert_int_equal(sscanf(text, "%7s %31s %n", level, time, &at), 2);
    assert_string_equal(level, "warn");
    assert_int_equal(strlen(time), strlen("2026-01-31T12:00:00.000Z"));
    assert_int_equal(time[10], 'T');
    assert_int_equal(time[23], 'Z');
    assert_string_equal(text + at, "port 80 is taken\\x0afake line \\x1b[0m\n");
    free(text);
}

static void levels(void **state) {
    static const char *const names[] = {"debug ", "info ", "warn ", "error "};
    for (int least = LOG_DEBUG; least <= LOG_ERROR; least++) {
        for (int level = LOG_DEBUG; level <= LOG_ERROR; level++) {
            char *text = NULL;
            size_t n = 0;
            FILE *f = open_memstream(&text, &n);
            struct log log = {.sink = f, .level = (enum log_level)least};
            log_write(&log, (enum log_level)level, "x");
            fclose(f);
            if (level < least)
                assert_int_equal(n, 0);
            else
                assert_memory_equal(text, names[level], strlen(names[level]));
            free(text);
        }
    }
    struct log none = {.sink = NULL};
    log_write(NULL, LOG_ERROR, "x"); /* neither crashes */
    log_write(&none, LOG_ERROR, "x");
}

static void long_lines_are_cut(void **state) {
    char *text = NULL, message[5000];
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    struct log log = {.sink = f};
    memset(message, 'm', sizeof message - 1);
    message[sizeof message - 1] = '\0';
    log_write(&log, LOG_ERROR, "%s", message);
    fclose(f);
    assert_in_range(n, 2000, 2048);
    assert_int_equal(text[n - 1], '\n');
    assert_int_equal(text[n - 2], 'm');
    free(text);
}

static void *write_many(void *arg) {
    for (int i = 0; i < 500; i++) log_write(arg, LOG_INFO, "abcdefghijklmnopqrstuvwxyz %d end", i);
    return NULL;
}

static void threads_do_not_mix_lines(void **state) {
    FILE *f = tmpfile();
    assert_non_null(f);
    struct log log = {.sink = f};
    pthread_t threads[4];
    for (size_t i = 0; i < 4; i++) assert_int_equal(pthread_create(&threads[i], NULL, write_many, &log), 0);
    for (size_t i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    rewind(f);
    char line[256], tail[8];
    int n = 0, number;
    for (; fgets(line, sizeof line, f); n++) {
        assert_int_equal(sscanf(line, "info %*s abcdefghijklmnopqrstuvwxyz %d %7s", &number, tail), 2);
        assert_string_equal(tail, "end");
    }
    assert_int_equal(n, 2000);
    fclose(f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_line_with_level_and_time),
        cmocka_unit_test(levels),
        cmocka_unit_test(long_lines_are_cut),
        cmocka_unit_test(threads_do_not_mix_lines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
