/* Metrics of the process and the machine it runs on: what it takes, and what it is not given. */
#include "serve/metrics.h"

#include <dirent.h>
#include <inttypes.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* ---- what was set ---- */

static void flag(struct metrics *w, const char *name, size_t v) {
    char extra[64];
    snprintf(extra, sizeof extra, "flag=\"%s\"", name);
    metrics_sample(w, "quire_flag", extra, (double)v);
}

void metrics_config(struct metrics *w) {
    const struct quire_info *i = w->s->info;
    const struct serve_config *c = &w->s->config;
    metrics_header(w, "quire_flag", "gauge", "Value in effect of a flag; 0 and 1: off and on.");
    flag(w, "max-num-seqs", i->max_num_seqs);
    flag(w, "max-num-batched-tokens", i->max_num_batched_tokens);
    flag(w, "max-model-len", i->max_model_len);
    flag(w, "max-queue", i->max_requests - i->max_num_seqs);
    flag(w, "block-size", i->block_tokens);
    flag(w, "threads", i->n_threads);
    flag(w, "enable-prefix-caching", i->prefix_caching);
    flag(w, "enable-chunked-prefill", i->chunked_prefill);
    flag(w, "prompt-statistics", c->prompt_statistics);
    flag(w, "max-connections", c->max_connections);
    metrics_single(w, "quire_cores", "gauge", "Cores that the process may use.",
                   (double)(c->n_cores ? c->n_cores : i->n_threads));
    metrics_single(w, "quire_model_parameters", "gauge", "Elements of the model's tensors.",
                   (double)c->n_parameters);
    metrics_single(w, "quire_model_context_tokens", "gauge", "Context that the model was made for.",
                   (double)i->model_context_len);
    metrics_single(w, "quire_kv_bytes_per_token", "gauge", "KV memory of a token.",
                   (double)i->kv_bytes_per_token);
}

/* ---- the process ---- */

static double resident_bytes(void) {
    FILE *f = fopen("/proc/self/statm", "re");
    unsigned long long size, resident = 0;
    if (f && fscanf(f, "%llu %llu", &size, &resident) != 2) resident = 0;
    if (f) fclose(f);
    return (double)resident * (double)sysconf(_SC_PAGESIZE);
}

/* Energy of the processor package since boot (Linux powercap), in joules; negative where it cannot be read.
 */
static double package_joules(void) {
    FILE *f = fopen("/sys/class/powercap/intel-rapl:0/energy_uj", "re");
    unsigned long long uj = 0;
    if (!f) return -1;
    int n = fscanf(f, "%llu", &uj);
    fclose(f);
    return n == 1 ? (double)uj / 1e6 : -1;
}

/* Time that the threads which live were ready to run and had no core (second field of schedstat, ns);
 * negative where the kernel does not count it. */
static double run_delay_s(void) {
    DIR *d = opendir("/proc/self/task");
    double sum = -1;
    for (struct dirent *e; d && (e = readdir(d));) {
        char path[64];
        unsigned long long ran, waited;
        if (e->d_name[0] == '.' ||
            snprintf(path, sizeof path, "/proc/self/task/%.20s/schedstat", e->d_name) >= (int)sizeof path)
            continue;
        FILE *f = fopen(path, "re");
        if (f && fscanf(f, "%llu %llu", &ran, &waited) == 2) sum = (sum < 0 ? 0 : sum) + (double)waited / 1e9;
        if (f) fclose(f);
    }
    if (d) closedir(d);
    return sum;
}

/* A thread that ends takes its part along: the figure is kept from falling. */
static double never_less(_Atomic uint64_t *most_us, double seconds) {
    uint64_t us = (uint64_t)(seconds * 1e6), before = atomic_load(most_us);
    while (us > before && !atomic_compare_exchange_weak(most_us, &before, us)) {}
    return (double)atomic_load(most_us) / 1e6;
}

/* One key of a control group's cpu.stat; negative if it has none. */
static double group_value(const char *folder, const char *group, const char *key) {
    char path[1200], line[128];
    unsigned long long v;
    double out = -1;
    size_t n = strlen(key);
    snprintf(path, sizeof path, "/sys/fs/cgroup%s%s/cpu.stat", folder, group);
    FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof line, f))
        if (!strncmp(line, key, n) && sscanf(line + n, " %llu", &v) == 1) out = (double)v;
    if (f) fclose(f);
    return out;
}

/* Time that the process's control group was kept from its cores by its quota. Version 2 counts microseconds,
 * version 1 nanoseconds. Negative: neither tells. */
static double throttled_s(void) {
    char line[1024];
    double out = -1;
    FILE *f = fopen("/proc/self/cgroup", "re");
    while (f && out < 0 && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = 0;
        char *controllers = strchr(line, ':'), *group = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!group) continue;
        *controllers++ = *group++ = 0;
        if (!strcmp(group, "/")) group = "";
        if (!*controllers) {
            double us = group_value("", group, "throttled_usec");
            if (us >= 0) out = us / 1e6;
        } else if (!strcmp(controllers, "cpu") || !strncmp(controllers, "cpu,", 4)) {
            double ns = group_value("/cpu", group, "throttled_time");
            if (ns >= 0) out = ns / 1e9;
        }
    }
    if (f) fclose(f);
    return out;
}

static void cpu(struct metrics *w) {
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    double used = (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
                  (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
    double waited = run_delay_s(), throttled = throttled_s();
    metrics_single(w, "process_cpu_seconds_total", "counter", "User and system CPU time.", used);
    metrics_header(w, "quire_context_switches_total", "counter",
                   "Context switches: voluntary (it waited), involuntary (others had their turn).");
    metrics_sample(w, "quire_context_switches_total", "kind=\"voluntary\"", (double)u.ru_nvcsw);
    metrics_sample(w, "quire_context_switches_total", "kind=\"involuntary\"", (double)u.ru_nivcsw);
    if (waited >= 0)
        metrics_single(w, "quire_cpu_wait_seconds_total", "counter",
                       "Time that threads were ready to run and had no core.",
                       never_less(&w->s->cpu_wait_us, waited));
    if (throttled >= 0)
        metrics_single(w, "quire_cpu_throttled_seconds_total", "counter",
                       "Time that the control group was throttled by its quota.", throttled);
}

/* ---- the machine ---- */

static void machine_cpu(struct metrics *w) {
    FILE *f = fopen("/proc/stat", "re");
    double v[8] = {0}, all = 0, tick = (double)sysconf(_SC_CLK_TCK);
    /* user nice system idle iowait irq softirq steal; guest time is within user */
    int n = f ? fscanf(f, "cpu %lf %lf %lf %lf %lf %lf %lf %lf", &v[0], &v[1], &v[2], &v[3], &v[4], &v[5],
                       &v[6], &v[7])
              : 0;
    if (f) fclose(f);
    if (n < 4) return;
    for (int i = 0; i < 8; i++) all += v[i];
    metrics_header(w, "quire_machine_cpu_seconds_total", "counter",
                   "Time of all processors of the machine: busy (stolen time not included), idle, steal.");
    metrics_sample(w, "quire_machine_cpu_seconds_total", "state=\"busy\"", (all - v[3] - v[4] - v[7]) / tick);
    metrics_sample(w, "quire_machine_cpu_seconds_total", "state=\"idle\"", (v[3] + v[4]) / tick);
    metrics_sample(w, "quire_machine_cpu_seconds_total", "state=\"steal\"", v[7] / tick);
}

static void machine_memory(struct metrics *w) {
    FILE *f = fopen("/proc/meminfo", "re");
    char line[128];
    double total = -1, available = -1;
    while (f && fgets(line, sizeof line, f)) {
        sscanf(line, "MemTotal: %lf", &total);
        sscanf(line, "MemAvailable: %lf", &available);
    }
    if (f) fclose(f);
    if (total < 0 || available < 0) return;
    metrics_header(w, "quire_machine_memory_bytes", "gauge", "Memory of the machine: total, available.");
    metrics_sample(w, "quire_machine_memory_bytes", "state=\"total\"", total * 1024);
    metrics_sample(w, "quire_machine_memory_bytes", "state=\"available\"", available * 1024);
}

void metrics_process(struct metrics *w) {
    cpu(w);
    metrics_single(w, "process_resident_memory_bytes", "gauge", "Resident memory.", resident_bytes());
    metrics_single(w, "process_start_time_seconds", "gauge", "Start of the server, Unix time.",
                   (double)w->s->started_unix_s);
    double joules = package_joules();
    if (joules >= 0)
        metrics_single(w, "quire_package_energy_joules_total", "counter", "Energy of the processor package.",
                       joules);
    metrics_header(w, "quire_memory_plan_bytes", "gauge", "Memory planned at start, by row.");
    for (size_t i = 0; i < QUIRE_MEMORY_ROWS; i++) {
        char extra[96];
        snprintf(extra, sizeof extra, "row=\"%s\"", w->s->info->memory[i].name);
        metrics_sample(w, "quire_memory_plan_bytes", extra, (double)w->s->info->memory[i].bytes);
    }
    machine_cpu(w);
    machine_memory(w);
}
