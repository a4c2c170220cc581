#include "load/child.h"

#include "base/clock.h"
#include "base/error.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define READY_S     3600.0
#define POLL_MS     50 /* between two looks at `interrupted` */
#define TAIL_MOST   4096
#define CANNOT_EXEC 127

/* The child's side of the fork. */
static _Noreturn void become(const struct child_config *c, pid_t parent, int out, int log) {
    sigset_t none;
    sigemptyset(&none);
    for (int s = 1; s < NSIG; s++) signal(s, SIG_DFL); /* what is ignored would stay so */
    sigprocmask(SIG_SETMASK, &none, NULL);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(CANNOT_EXEC); /* it had ended before the line above */
    int null = open("/dev/null", O_RDONLY);
    if (null < 0 || dup2(null, 0) < 0 || dup2(out, 1) < 0 || dup2(log, 2) < 0) _exit(CANNOT_EXEC);
    const char *program = c->program ? c->program : "/proc/self/exe";
    execv(program, (char *const *)c->argv);
    static const char text[] = "cannot be executed\n";
    ssize_t n = write(2, text, sizeof text - 1);
    (void)n;
    _exit(CANNOT_EXEC);
}

static void reaped(struct child *c, int status, const struct rusage *u) {
    c->pid = 0;
    c->status = status;
    c->cpu_s = (double)(u->ru_utime.tv_sec + u->ru_stime.tv_sec) +
               (double)(u->ru_utime.tv_usec + u->ru_stime.tv_usec) / 1e6;
    c->peak_bytes = (size_t)u->ru_maxrss * 1024;
}

static bool reap(struct child *c, int flags) {
    struct rusage u;
    int status = 0;
    pid_t got;
    do got = wait4(c->pid, &status, flags, &u);
    while (got < 0 && errno == EINTR);
    if (got != c->pid) return false;
    reaped(c, status, &u);
    return true;
}

void child_last_words(const struct child *c, char *out, size_t cap) {
    char tail[TAIL_MOST + 1];
    *out = 0;
    off_t end = lseek(c->log, 0, SEEK_END), from = end > TAIL_MOST ? end - TAIL_MOST : 0;
    ssize_t n = end > 0 ? pread(c->log, tail, TAIL_MOST, from) : 0;
    if (n <= 0) return;
    while (n && (tail[n - 1] == '\n' || tail[n - 1] == '\r')) n--;
    tail[n] = 0;
    const char *line = strrchr(tail, '\n');
    snprintf(out, cap, "%s", line ? line + 1 : tail);
}

/* Until a line is complete, the child has closed its output, or it took too long. */
static int await(struct child *c, const struct child_config *config, struct error *err) {
    uint64_t start = clock_us(), most = (uint64_t)((config->ready_s > 0 ? config->ready_s : READY_S) * 1e6);
    char line[CHILD_URL_BYTES] = ""; /* "ready " and a URL that fits c->url */
    size_t n = 0;
    for (;;) {
        struct pollfd p = {.fd = c->out, .events = POLLIN};
        int ready = poll(&p, 1, POLL_MS);
        if (config->interrupted && *config->interrupted)
            return error_set(err, QUIRE_ECANCELED, "interrupted while the server was started");
        if (ready > 0) {
            ssize_t got = read(c->out, line + n, sizeof line - 1 - n);
            if (got > 0) n += (size_t)got;
            line[n] = 0;
            char *end = strchr(line, '\n');
            if (end && !strncmp(line, "ready ", 6)) {
                *end = 0;
                memcpy(c->url, line + 6, strlen(line + 6) + 1);
                return 0;
            }
            if (end || got == 0 || n == sizeof line - 1)
                return error_set(err, QUIRE_EIO, "ended before it was ready"); /* rewritten by the caller */
        }
        if (clock_us() - start > most)
            return error_set(err, QUIRE_ELIMIT, "the server was not ready within %.0f s", (double)most / 1e6);
    }
}

static void close_files(struct child *c) {
    if (c->out >= 0) close(c->out);
    if (c->log >= 0) close(c->log);
    c->out = c->log = -1;
}

int child_start(const struct child_config *config, struct child *c, struct error *err) {
    int out[2] = {-1, -1};
    pid_t parent = getpid();
    *c = (struct child){.out = -1, .log = memfd_create("server log", MFD_CLOEXEC)};
    if (c->log >= 0 && !pipe2(out, O_CLOEXEC)) {
        c->out = out[0];
        c->pid = fork();
        if (!c->pid) become(config, parent, out[1], c->log);
        close(out[1]);
    }
    if (c->pid <= 0) {
        int why = errno;
        c->pid = 0;
        close_files(c);
        return error_set(err, QUIRE_EIO, "a server cannot be started: %s", strerror(why));
    }
    int rc = await(c, config, err);
    if (!rc) return 0;
    char words[300];
    bool ended = rc == QUIRE_EIO;
    child_last_words(c, words, sizeof words);
    child_stop(c, ended ? 1 : 0);
    if (ended)
        error_set(err, QUIRE_EIO, "the server ended before it was ready%s%s", *words ? ": " : "", words);
    return rc;
}

bool child_alive(struct child *c) {
    return c->pid && !reap(c, WNOHANG);
}

bool child_stop(struct child *c, double grace_s) {
    uint64_t until = clock_us() + (uint64_t)(grace_s * 1e6);
    bool forced = false;
    pid_t group = c->pid;
    if (c->pid && kill(-group, SIGTERM)) kill(c->pid, SIGTERM); /* it has not made its group yet */
    while (c->pid && !reap(c, WNOHANG)) {
        if (clock_us() >= until) {
            forced = true;
            kill(c->pid, SIGKILL);
            reap(c, 0);
            break;
        }
        poll(NULL, 0, 5);
    }
    if (group) kill(-group, SIGKILL); /* a program that starts the server may have left it */
    close_files(c);
    return !forced && WIFEXITED(c->status) && !WEXITSTATUS(c->status);
}
