/* Processes that say they are ready, and those that do not; none of them may be left. */
#include "load/child.h"

#include "base/clock.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

static int start(const char *script, double ready_s, const volatile int *interrupted, struct child *c,
                 struct error *err) {
    const char *argv[] = {"sh", "-c", script, NULL};
    struct child_config config = {"/bin/sh", argv, ready_s, interrupted};
    return child_start(&config, c, err);
}

static bool gone(pid_t pid) {
    return kill(pid, 0) < 0 && errno == ESRCH;
}

/* Ended, though nobody may have waited for it yet. */
static bool ended(pid_t pid) {
    char path[40], text[200] = "";
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *f = fopen(path, "r");
    if (!f) return true;
    size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    const char *state = n ? strrchr(text, ')') : NULL;
    return !state || state[2] == 'Z' || state[2] == 'X';
}

/* Waits, bounded, for a process that is not our child. */
static bool goes(pid_t pid) {
    for (int i = 0; i < 1000; i++) {
        if (ended(pid)) return true;
        usleep(10000);
    }
    return false;
}

static void ready_and_stopped(void **state) {
    struct child c;
    struct error err = {0};
    assert_int_equal(start("echo one >&2; echo two >&2; echo ready http://127.0.0.1:1; exec sleep 100", 30,
                           NULL, &c, &err),
                     0);
    pid_t pid = c.pid;
    char words[40];
    assert_string_equal(c.url, "http://127.0.0.1:1");
    assert_true(child_alive(&c));
    child_last_words(&c, words, sizeof words);
    assert_string_equal(words, "two");
    assert_false(child_stop(&c, 30)); /* by the signal, not by itself */
    assert_true(WIFSIGNALED(c.status) && WTERMSIG(c.status) == SIGTERM);
    assert_true(gone(pid) && c.pid == 0);
    assert_false(child_stop(&c, 0)); /* again does nothing */
}

static void ends_well(void **state) {
    struct child c;
    struct error err = {0};
    assert_int_equal(start("trap 'exit 0' TERM; echo ready http://[::1]:65535; while :; do sleep 0.01; done",
                           30, NULL, &c, &err),
                     0);
    assert_true(child_stop(&c, 30));
    assert_true(c.peak_bytes > 0);
}

static void who_will_not_end_is_killed(void **state) {
    struct child c;
    struct error err = {0};
    assert_int_equal(
        start("trap '' TERM; echo ready http://x:1; while :; do sleep 0.01; done", 30, NULL, &c, &err), 0);
    pid_t pid = c.pid;
    assert_false(child_stop(&c, 0.1));
    assert_true(WIFSIGNALED(c.status) && WTERMSIG(c.status) == SIGKILL && gone(pid));
}

static void never_ready(void **state) {
    static const volatile int interrupted = 1;
    struct child c;
    struct error err = {0};
    assert_int_equal(start("echo more >&2; echo no such model >&2; exit 2", 30, NULL, &c, &err), QUIRE_EIO);
    assert_non_null(strstr(err.text, "no such model"));
    assert_int_equal(c.pid, 0);
    assert_int_equal(start("echo hello; exec sleep 100", 30, NULL, &c, &err), QUIRE_EIO);
    assert_int_equal(c.pid, 0);
    assert_int_equal(start("exec sleep 100", 0.2, NULL, &c, &err), QUIRE_ELIMIT);
    assert_non_null(strstr(err.text, "not ready within"));
    assert_int_equal(start("exec sleep 100", 30, &interrupted, &c, &err), QUIRE_ECANCELED);
    assert_int_equal(c.pid, 0);
    const char *argv[] = {"x", NULL};
    struct child_config config = {"/no/such/program", argv, 30, NULL};
    assert_int_equal(child_start(&config, &c, &err), QUIRE_EIO);
    assert_non_null(strstr(err.text, "cannot be executed"));
}

static void it_ends_by_itself(void **state) {
    struct child c;
    struct error err = {0};
    assert_int_equal(start("echo ready http://x:1; exit 3", 30, NULL, &c, &err), 0);
    for (int i = 0; i < 1000 && child_alive(&c); i++) usleep(10000);
    assert_false(child_alive(&c));
    assert_true(WIFEXITED(c.status) && WEXITSTATUS(c.status) == 3);
    assert_false(child_stop(&c, 1));
}

/* A process that starts a server and is killed: the server goes with it, and a ctrl-C of its group does not
 * reach the server. */
static void no_orphan(void **state) {
    int tell[2];
    assert_int_equal(pipe(tell), 0);
    pid_t middle = fork();
    assert_true(middle >= 0);
    if (!middle) {
        struct child c;
        struct error err = {0};
        signal(SIGINT, SIG_IGN);
        if (start("echo ready http://x:1; exec sleep 100", 30, NULL, &c, &err)) _exit(1);
        if (write(tell[1], &c.pid, sizeof c.pid) != sizeof c.pid) _exit(1);
        for (;;) pause();
    }
    pid_t server = 0;
    assert_int_equal(read(tell[0], &server, sizeof server), sizeof server);
    assert_int_equal(getpgid(server), server);
    assert_false(gone(server));
    kill(middle, SIGKILL);
    assert_int_equal(waitpid(middle, NULL, 0), middle);
    assert_true(goes(server));
    close(tell[0]);
    close(tell[1]);
}

/* A script that starts the server and is stopped takes it along, also one that does not listen to SIGTERM. */
static void what_it_started_ends_too(void **state) {
    static const char *const scripts[] = {
        "sleep 1000 & echo ready $!; wait",
        "(trap '' TERM; exec sleep 1000) & echo ready $!; wait",
    };
    for (size_t i = 0; i < sizeof scripts / sizeof *scripts; i++) {
        struct child c;
        struct error err = {0};
        assert_int_equal(start(scripts[i], 10, NULL, &c, &err), 0);
        pid_t started = (pid_t)atoi(c.url);
        assert_true(started > 1 && !ended(started));
        child_stop(&c, 5);
        for (int k = 0; k < 1000 && !ended(started); k++) usleep(5000); /* whoever adopts it reaps it */
        assert_true(ended(started));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_it_started_ends_too),
        cmocka_unit_test(ready_and_stopped),
        cmocka_unit_test(ends_well),
        cmocka_unit_test(who_will_not_end_is_killed),
        cmocka_unit_test(never_ready),
        cmocka_unit_test(it_ends_by_itself),
        cmocka_unit_test(no_orphan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
