#include "base/log.h"
#include "base/utf8.h"

#include <stdarg.h>
#include <time.h>

#define LOG_LINE_BYTES 2048

static const char *level_name(enum log_level level) {
    switch (level) {
    case LOG_DEBUG: return "debug";
    case LOG_INFO: return "info";
    case LOG_WARN: return "warn";
    default: return "error";
    }
}

/* "info 2026-01-31T12:00:00.000Z " */
static size_t put_head(char *line, size_t cap, enum log_level level) {
    struct timespec now;
    struct tm utc;
    char day[32];
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    strftime(day, sizeof day, "%Y-%m-%dT%H:%M:%S", &utc);
    int n = snprintf(line, cap, "%s %s.%03ldZ ", level_name(level), day, now.tv_nsec / 1000000);
    return n < 0 ? 0 : (size_t)n;
}

void log_write(struct log *log, enum log_level level, const char *fmt, ...) {
    if (!log || !log->sink || level < log->level) return;
    char raw[LOG_LINE_BYTES], line[LOG_LINE_BYTES];
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(raw, sizeof raw, fmt, args);
    va_end(args);
    if (n < 0) return;
    size_t raw_len = (size_t)n < sizeof raw ? (size_t)n : sizeof raw - 1;
    size_t len = put_head(line, sizeof line, level);
    len += utf8_printable(line + len, sizeof line - len - 1, raw, raw_len);
    line[len++] = '\n';
    fwrite(line, 1, len, log->sink); /* one call: lines of several threads do not mix */
    fflush(log->sink);
}
