/* The access log: one line for each request; times and counts, never text of a prompt or an answer. */
#include "serve/internal.h"

#include "base/clock.h"

#include <string.h>

/* Probes come every few seconds: they are only worth a line when something is wrong. */
static enum log_level level_of(const char *path, unsigned status) {
    bool probe = !strcmp(path, "/health") || !strcmp(path, "/metrics");
    return probe && status == 200 ? LOG_DEBUG : LOG_INFO;
}

static double ms_since(uint64_t from_us) {
    return (double)(clock_us() - from_us) / 1e3;
}

void access_log(const struct serve *s, const struct exchange *x, unsigned status) {
    struct exchange_stats st;
    if (!s->config.access_log) return;
    exchange_stats(x, &st);
    log_write(s->config.log, level_of(exchange_path(x), status), "%s - %s %.200s %u total_ms=%.1f",
              exchange_peer(x), http_method_name(exchange_method(x)), exchange_path(x), status,
              ms_since(st.request_us));
}

void access_log_refused(const struct serve *s, unsigned status, const char *why) {
    if (!s->config.access_log) return;
    log_write(s->config.log, LOG_INFO, "- - refused %u: %s", status, why);
}

static double ms_between(uint64_t from_us, uint64_t to_us) {
    return to_us > from_us ? (double)(to_us - from_us) / 1e3 : 0;
}

void access_log_call(const struct call *c, unsigned status) {
    struct exchange_stats st;
    size_t prompt = 0, cached = 0, completion = 0;
    uint64_t queue_us = 0;
    const char *reason = NULL, *given = exchange_header(c->x, "x-request-id");
    if (!c->serve->config.access_log) return;
    exchange_stats(c->x, &st);
    for (size_t i = 0; i < c->n_answers; i++) {
        const struct answer *a = &c->answers[i];
        struct quire_usage u = a->stream ? quire_usage(a->stream) : a->usage;
        completion += u.completion_tokens;
        cached += a->index % c->request.n ? 0 : u.cached_tokens;
        queue_us = u.queue_us > queue_us ? u.queue_us : queue_us;
        if (response_finish_name(a->finish)) reason = response_finish_name(a->finish);
    }
    for (size_t i = 0; i < c->n_prompts; i++) prompt += c->prompts[i].n_tokens;
    if (exchange_gone(c->x)) reason = "gone";
    log_write(c->serve->config.log, LOG_INFO,
              "%s %s %s %.200s %u queue_ms=%.1f ttft_ms=%.1f total_ms=%.1f prompt=%zu cached=%zu output=%zu "
              "choices=%zu reason=%s%s%.64s",
              exchange_peer(c->x), c->id, http_method_name(exchange_method(c->x)), exchange_path(c->x),
              status, (double)queue_us / 1e3, ms_between(st.request_us, c->first_token_us),
              ms_since(st.request_us), prompt, cached, completion, c->n_answers, reason ? reason : "-",
              given ? " request=" : "", given ? given : "");
}
