/* Diagnostics to standard error, one line each: "level time message". No prompt text, no keys. Thread-safe. */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include <stdio.h>

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR };

struct log {
    FILE *sink; /* NULL: nothing is written */
    enum log_level level;
};

/* A NULL log writes nothing. */
void log_write(struct log *log, enum log_level level, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

#endif
