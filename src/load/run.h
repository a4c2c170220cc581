/* One run: a workload sent in one way, and the record of every request. */
#ifndef LOAD_RUN_H
#define LOAD_RUN_H

#include "load/arrival.h"
#include "load/client.h"
#include "load/device.h"
#include "load/scrape.h"
#include "load/workload.h"

#include <stdio.h>

/* Times in us from the run's start. */
struct record {
    uint64_t due_us, sent_us, first_us, last_us, end_us; /* first, last: 0 if no content came */
    uint64_t longest_gap_us;                             /* between two messages with content */
    int64_t want_input;                                  /* as built; -1: not known */
    int64_t input, output, cached;                       /* by usage; cached -1: not told */
    uint32_t want_output;                                /* 0: any */
    uint32_t left_out;                                   /* of the prompt, by trimming */
    uint32_t n_events;
    uint32_t turn;
    uint16_t status;
    uint8_t outcome; /* enum outcome */
    uint8_t part;    /* of which workload: 0 is `spec`, 1 the first of `others` */
};

struct failure { /* of a kind (and HTTP status): how often, and what it said first */
    enum outcome outcome;
    unsigned status;
    size_t n;
    char example[ANSWER_MESSAGE_BYTES];
};
#define FAILURES_MAX 16

struct sample {
    double t_s;
    size_t active; /* requests in flight here */
    uint64_t events;
    bool scraped;
    struct scrape server;
    struct device_sample device;
};

#define RUN_OTHERS_MAX 3

struct run_config {
    const struct target *target;
    const struct workload_spec *spec;
    const struct workload_spec *others; /* sessions are of spec and of these in turn */
    size_t n_others;                    /* at most RUN_OTHERS_MAX */
    const struct items *items;          /* NULL without a file */
    struct arrival arrival;             /* kind ARRIVAL_CLOSED: `concurrency` at once */
    size_t concurrency;
    size_t max_active;   /* requests in flight at once, at most */
    uint64_t n_sessions; /* 0: until duration_s has passed */
    double duration_s;   /* of sending; 0: until n_sessions are sent */
    size_t warmup;       /* requests before, not recorded */
    size_t point; /* of a plan, which one this is */
    uint64_t salt;
    double time_scale;       /* of a trace: 2 is twice as fast */
    double interval_s;       /* between samples */
    struct http_config http; /* all but n_at_once */
    FILE *progress;          /* NULL: none */
    const char *title;
    const volatile int *interrupted;
    uint64_t end_us; /* clock_us() from which nothing is waited for: what is in flight is given up; 0: none */
};

struct run {
    struct record *records;
    size_t n, cap;
    struct failure failures[FAILURES_MAX];
    size_t n_failures;
    struct sample *samples;
    size_t n_samples, cap_samples;
    struct run_page { /* the server's /metrics, as it was at the first and the last look; NULL: none */
        char *text;
        double t_s;
    } first_page, last_page;
    struct hdr *gaps;  /* between messages with content, us */
    double duration_s; /* from the start to the last end */
    double sending_s;  /* from the start to the last sending */
    double client_cpu_s;
    double client_wait_s;   /* that the generator could have run and had no core */
    uint64_t n_unsent;      /* due before the end, never sent */
    bool interrupted, cut, lost; /* cut: at end_us; lost: the server went away, or answers nothing well */
    char why[FAILURE_BYTES + 80];
};

/* Fills *run even when it fails half way; run_free afterwards in any case. A lost server is no error here. */
int run_perform(const struct run_config *config, struct run *run, struct error *err);
void run_free(struct run *run);

#endif
