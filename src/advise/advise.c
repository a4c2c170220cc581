#include "advise/advise.h"

#include "advise/look.h"
#include "advise/report.h"
#include "advise/show.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/url.h"
#include "load/device.h"
#include "load/target.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LOOKS_OF_A_WINDOW 20
#define LEAST_GAP_S       0.2

/* A server that is looked at. */
struct watched {
    char *base, *url;
    struct target_config tc;
    struct device *device; /* NULL: it is elsewhere */
    double gpu_sum;
    size_t n_gpu;
};

/* Two windows: the one before, for what has changed. */
struct state {
    const struct advise_options *o;
    struct wishes wishes;
    const volatile int *interrupted;
    FILE *out;
    struct figures f, f_before;
    struct advice a, a_before;
    bool has_before;
};

static bool stopped(const struct state *s) {
    return s->interrupted && *s->interrupted;
}

/* ---- looking at a server ---- */

bool advise_is_url(const char *source) {
    return !strncmp(source, "http://", 7) || !strncmp(source, "https://", 8);
}

static struct http_config http_options(const struct advise_options *o) {
    return (struct http_config){
        .bearer = o->api_key, .ca_cert = o->ca_cert, .insecure = o->insecure, .timeout_s = o->timeout_s};
}

static int watched_open(const struct advise_options *o, struct watched *w, struct error *err) {
    struct buf base = BUF_INIT, url = BUF_INIT;
    bool local =
        strstr(o->source, "://127.") || strstr(o->source, "://localhost") || strstr(o->source, "://[::1]");
    size_t n = url_server_len(o->source), tail = strlen("/metrics");
    if (n > tail && !memcmp(o->source + n - tail, "/metrics", tail)) n -= tail;
    buf_append(&base, o->source, n);
    buf_append(&url, o->source, n);
    buf_puts(&url, "/metrics");
    *w = (struct watched){.base = base.data, .url = url.data};
    w->tc = (struct target_config){.url = o->source, .http = http_options(o)};
    if (!buf_ok(&base) || !buf_ok(&url)) return error_set(err, QUIRE_ENOMEM, "out of memory");
    if (local) w->device = device_open();
    return 0;
}

static void watched_close(struct watched *w) {
    device_close(w->device);
    free(w->base);
    free(w->url);
}

static int ask_page(struct watched *w, struct ask *ask, struct error *err) {
    int rc = target_ask(&w->tc, ask, 1, err);
    const struct answer *a = &ask->answer;
    if (rc) return rc;
    if (a->outcome == OUTCOME_HTTP && a->status == 401)
        return error_set(err, QUIRE_EIO, "%.200s wants a key: give it with --api-key or QUIRE_API_KEY",
                         w->url);
    if (a->outcome == OUTCOME_HTTP)
        return error_set(err, QUIRE_EIO, "%.200s answers %u: %s", w->url, a->status, a->message);
    if (a->outcome != OUTCOME_OK)
        return error_set(err, QUIRE_EIO, "%.200s cannot be reached: %s", w->base, a->message);
    return 0;
}

static int look_once(struct watched *w, struct look *l, uint64_t *at_us, struct error *err) {
    struct ask ask = {.url = w->url, .plain = true};
    struct device_sample d;
    *at_us = clock_us();
    int rc = ask_page(w, &ask, err);
    if (!rc) look_read(ask.answer.text.data ? ask.answer.text.data : "", l);
    if (!rc && !(l->has[L_RUNNING] || l->has[L_OUTPUT_TOKENS]))
        rc = error_set(
            err, QUIRE_EFORMAT,
            "%.200s is no page of metrics of a language model's server (%zu samples, none under the names "
            "of vLLM, Quire, SGLang or llama.cpp)",
            w->url, l->n_samples);
    if (!rc && w->device) {
        device_read(w->device, &d);
        if (d.has_gpu) w->n_gpu++, w->gpu_sum += d.gpu_utilization;
    }
    asks_free(&ask, 1);
    return rc;
}

static void sleep_until(const struct state *s, uint64_t due_us) {
    for (uint64_t now; (now = clock_us()) < due_us && !stopped(s);) {
        uint64_t left = due_us - now < 100000 ? due_us - now : 100000;
        struct timespec t = {0, (long)left * 1000};
        nanosleep(&t, NULL);
    }
}

struct window {
    struct look first, last;
    uint64_t first_us, last_us;
    struct look_gauges gauges;
    bool has_first;
};

/* From the first look (that of the window before, if there was one) to one window_s later, with some between.
 */
static int look_on(struct state *s, struct watched *w, struct window *win, struct error *err) {
    int rc = 0;
    if (win->has_first) {
        win->first = win->last;
        win->first_us = win->last_us;
    } else {
        rc = look_once(w, &win->first, &win->first_us, err);
    }
    win->has_first = true;
    win->gauges = (struct look_gauges){0};
    w->n_gpu = 0, w->gpu_sum = 0;
    double gap = s->o->window_s / LOOKS_OF_A_WINDOW;
    if (gap < LEAST_GAP_S) gap = LEAST_GAP_S;
    uint64_t end = win->first_us + (uint64_t)(s->o->window_s * 1e6), due = win->first_us;
    do {
        due += (uint64_t)(gap * 1e6);
        sleep_until(s, due < end ? due : end);
        if (!rc) rc = look_once(w, &win->last, &win->last_us, err);
        look_gauges_add(&win->gauges, &win->last);
    } while (!rc && win->last_us < end && !stopped(s));
    return rc;
}

static int since_start(struct watched *w, struct look *l, struct figures *f, struct error *err) {
    struct look_gauges gauges = {0}; /* of this moment they say nothing about all that time */
    uint64_t at;
    int rc = look_once(w, l, &at, err);
    if (rc) return rc;
    if (!l->has[L_START_UNIX_S])
        return error_set(
            err, QUIRE_EUNSUPPORTED,
            "%.200s does not tell when it was started (process_start_time_seconds): give a --window of "
            "seconds",
            w->url);
    double seconds = (double)clock_unix_s() - l->v[L_START_UNIX_S];
    return look_figures(NULL, l, &gauges, seconds > 1 ? seconds : 1, f, err);
}

/* ---- saying it ---- */

static int say(struct state *s, const char *title, struct error *err) {
    struct buf text = BUF_INIT;
    struct gain_base base = {0};
    advise(&s->f, &s->wishes, &s->a);
    int rc = s->o->player ? gain_simulate(&s->f, s->o->player, &s->a, &base, err) : 0;
    if (rc) return rc;
    struct shown shown = {title,
                          &s->f,
                          &s->wishes,
                          &s->a,
                          s->has_before ? &s->f_before : NULL,
                          s->has_before ? &s->a_before : NULL,
                          s->o->player ? &base : NULL};
    if (s->o->json)
        show_json(&shown, &text);
    else
        show_text(&shown, &text);
    rc = buf_ok(&text) ? 0 : error_set(err, QUIRE_ENOMEM, "out of memory");
    if (!rc && (fwrite(text.data, 1, text.len, s->out) != text.len || fflush(s->out)))
        rc = error_set(err, QUIRE_EIO, "the advice cannot be written");
    buf_free(&text);
    return rc;
}

static int one_window(struct state *s, struct watched *w, struct window *win, struct error *err) {
    int rc = s->o->window_s > 0 ? look_on(s, w, win, err) : since_start(w, &win->last, &s->f, err);
    if (!rc && s->o->window_s > 0)
        rc = look_figures(&win->first, &win->last, &win->gauges, (double)(win->last_us - win->first_us) / 1e6,
                          &s->f, err);
    if (rc) return rc;
    snprintf(s->f.server, sizeof s->f.server, "%.150s", w->base);
    if (w->n_gpu && !s->f.is_quire) figures_set(&s->f, F_GPU_UTILIZATION, w->gpu_sum / (double)w->n_gpu);
    return say(s, NULL, err);
}

static int of_server(struct state *s, struct error *err) {
    struct watched w;
    struct window *win = calloc(1, sizeof *win);
    int rc = win ? watched_open(s->o, &w, err) : error_set(err, QUIRE_ENOMEM, "out of memory");
    if (!win) return rc;
    for (int64_t round = 1; !rc; round++) {
        rc = one_window(s, &w, win, err);
        if (rc || !s->o->watch || stopped(s) || round == s->o->rounds) break;
        s->f_before = s->f;
        s->a_before = s->a;
        s->has_before = true;
        if (!s->o->json) fputs("\n----\n\n", s->out);
    }
    watched_close(&w);
    free(win);
    return rc;
}

static int of_report(struct state *s, struct error *err) {
    struct report r;
    const char *title;
    int rc = report_open(s->o->source, &r, err);
    if (rc) return rc;
    if (!slo_any(&s->wishes.slo)) s->wishes.slo = r.wishes.slo;
    if (!(s->wishes.price > 0)) s->wishes.price = r.wishes.price;
    for (size_t i = 0; i < r.n_points && !rc; i++) {
        rc = report_figures(&r, i, &s->f, &title, err);
        if (!rc && i && !s->o->json) fputs("\n----\n\n", s->out);
        if (!rc) rc = say(s, title, err);
    }
    report_close(&r);
    return rc;
}

int advise_run(const struct advise_options *o, const volatile int *interrupted, FILE *out,
               struct error *err) {
    struct state *s = calloc(1, sizeof *s);
    if (!s) return error_set(err, QUIRE_ENOMEM, "out of memory");
    s->o = o;
    s->interrupted = interrupted;
    s->out = out;
    int rc = o->slo ? slo_parse(o->slo, &s->wishes.slo, err) : 0;
    if (!rc && s->wishes.slo.itl_ms > 0)
        rc = error_set(err, QUIRE_EINVAL, "--slo \"%.80s\": advice takes ttft, tpot and e2e", o->slo);
    if (!rc && o->price) rc = price_parse(o->price, &s->wishes.price, err);
    bool url = advise_is_url(o->source);
    if (!rc && !url && access(o->source, F_OK) != 0)
        rc = error_set(
            err, QUIRE_ENOTFOUND,
            "\"%.200s\" is neither a URL that begins with http:// or https:// nor a report that is there",
            o->source);
    if (!rc && o->watch && !(o->window_s > 0))
        rc = error_set(err, QUIRE_EINVAL, "--watch needs a --window of more than 0 seconds");
    struct http_config http = http_options(o);
    if (!rc && url) rc = http_check_trust(&http, o->source, err);
    if (!rc) rc = url ? of_server(s, err) : of_report(s, err);
    free(s);
    return rc;
}
