/* Is the device as fast as it can be, and do we get it? */
#include "advise/tree_impl.h"

#include <math.h>

/* How many times as fast a path is as the one before it, roughly (prefill of SmolLM2-135M;
 * docs/benchmarks.md). */
static double path_speed(int rank) {
    static const double factors[] = {1, 4, 1.5, 1.5};
    double speed = 1;
    for (int i = 1; i <= rank && i < 4; i++) speed *= factors[i];
    return speed;
}

static void path(struct tree *t) {
    int now = (int)fig(t, F_PATH), best = (int)fig(t, F_PATH_BEST);
    if (!known(t, F_PATH) || !known(t, F_PATH_BEST) || now >= best) return;
    static const enum figure rests[] = {F_PATH, F_PATH_BEST, F_DECODE_STEP_MS, F_PREFILL_STEP_MS, FIGURES};
    double factor = path_speed(best) / path_speed(now);
    struct verdict *v = tree_say(t, VERDICT_CPU_PATH, 1 - 1 / factor, rests);
    v->change = (struct verdict_change){.any = true, .step_factor = 1 / factor};
    tree_write(v->what, "kernels run on the path \"%s\" although the processor has \"%s\"",
               figures_path_name(now), figures_path_name(best));
    tree_write(v->expected, "steps in %.0f %% of the time: \"%s\" is about %.1f times as fast as \"%s\"",
               100 / factor, figures_path_name(best), factor, figures_path_name(now));
    tree_write(v->attempt, "start the server without QUIRE_CPU and --cpu (answers then have another "
                           "system_fingerprint)");
    tree_write(v->falsified,
               "quire bench kernels shows no faster kernels with QUIRE_CPU=%s than with QUIRE_CPU=%s",
               figures_path_name(best), figures_path_name(now));
}

static bool used(const struct tree *t) {
    return t->pressed || t->busy >= 0.2;
}

static void too_few_threads(struct tree *t, double threads, double cores) {
    double others = fig(t, F_CPU_OTHERS);
    if (cores - threads - others < 0.5) return; /* nobody would be there to run them */
    static const enum figure rests[] = {F_THREADS, F_CORES, F_CPU_USED, F_CPU_OTHERS, F_BUSY, FIGURES};
    struct verdict *v = tree_say(t, VERDICT_THREADS, 1 - threads / fmin(cores, cores - others + 0.5), rests);
    v->change = (struct verdict_change){.any = true, .step_factor = 1 - v->gain};
    tree_write(v->what, "%.0f of %.0f cores compute (--threads)", threads, cores);
    tree_write(v->expected, "steps in down to %.0f %% of the time: threads / cores that are free",
               100 * (1 - v->gain));
    tree_write(v->attempt, "--threads 0 (as many as there are cores) or --threads %.0f", cores);
    tree_write(v->falsified,
               "a decode step (now %.2f ms) is no shorter: then memory, not arithmetic, is the limit",
               fig(t, F_DECODE_STEP_MS));
}

/* At the end of each operation all threads wait for the last: with c cores, n threads take ceil(n / c) turns.
 */
static void too_many_threads(struct tree *t, double threads, double cores) {
    static const enum figure rests[] = {F_THREADS, F_CORES, F_CPU_WAIT, FIGURES};
    double gain = fmax(0.05, 1 - threads / cores / ceil(threads / cores));
    struct verdict *v = tree_say(t, VERDICT_THREADS, gain, rests);
    v->change = (struct verdict_change){.any = true, .step_factor = 1 - v->gain};
    tree_write(v->what,
               "%.0f threads share %.0f cores (--threads): each operation waits for those without one",
               threads, cores);
    tree_write(v->expected, "%.0f %% less time a step: 1 - (threads / cores) / turns, 5 %% at least",
               100 * v->gain);
    tree_write(v->attempt, "--threads 0 (as many as there are cores)");
    tree_write(v->falsified, "the time that threads wait for a core (now %.2f) stays", fig(t, F_CPU_WAIT));
}

static void threads(struct tree *t) {
    double n = fig(t, F_THREADS), cores = fig(t, F_CORES);
    if (!known(t, F_THREADS) || !known(t, F_CORES) || !used(t)) return;
    if (n < cores)
        too_few_threads(t, n, cores);
    else if (n > cores)
        too_many_threads(t, n, cores);
}

/* Ready threads without a core, while others have them; throttling; a host that takes them. */
static void starved(struct tree *t) {
    double wait = fig(t, F_CPU_WAIT), have = fig(t, F_CPU_USED), cores = fmax(1, fig(t, F_CORES));
    double lost = wait + have > 0 ? wait / (wait + have) : 0, throttled = fig(t, F_THROTTLED_SHARE);
    double others = fig(t, F_CPU_OTHERS), stolen = fig(t, F_CPU_STEAL) / cores;
    if (lost < 0.25 || others < 0.35 || others < 0.15 * cores || wait < 0.05) lost = 0;
    if (throttled < 0.05) throttled = 0;
    if (stolen < 0.05) stolen = 0;
    double gain = fmax(lost, fmax(fmin(throttled, 1), stolen));
    if (!(gain > 0)) return;
    static const enum figure rests[] = {F_CPU_WAIT,  F_CPU_USED,        F_CPU_OTHERS, F_CORES,
                                        F_CPU_STEAL, F_THROTTLED_SHARE, F_BUSY,       FIGURES};
    struct verdict *v = tree_say(t, VERDICT_CPU_STARVED, gain, rests);
    v->change = (struct verdict_change){.any = true, .step_factor = 1 - v->gain};
    if (gain == throttled)
        tree_write(v->what, "the control group's quota stops the server for %.0f %% of the time",
                   100 * throttled);
    else if (gain == stolen)
        tree_write(v->what, "the host takes %.1f of %.0f cores away (steal)", fig(t, F_CPU_STEAL), cores);
    else
        tree_write(v->what,
                   "other processes take the cores: they use %.2f of them, and threads that are ready wait "
                   "for %.0f %% of their time",
                   others, 100 * lost);
    tree_write(v->expected, "%.0f %% less time a step: the time lost over the time lost and used",
               100 * v->gain);
    tree_write(v->attempt, "%s",
               gain == throttled
                   ? "raise the group's CPU quota (CPUQuota=, limits.cpu), or --threads of no more than it"
               : gain == stolen
                   ? "a machine with cores of its own (dedicated, not shared)"
                   : "stop or move the other processes, give the server its own cores (taskset, cpuset), or "
                     "lower --threads to those that are left");
    tree_write(v->falsified, "the server is as slow when nothing else runs");
}

void tree_device(struct tree *t) {
    starved(t);
    path(t);
    threads(t);
}
