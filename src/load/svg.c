#include "load/svg.h"

#include <math.h>
#include <string.h>

#define WIDTH  400
#define HEIGHT 250
#define LEFT   48
#define RIGHT  20
#define TOP    12
#define BOTTOM 40

void html_text(struct buf *out, const char *s) {
    for (size_t left = strlen(s), n = 1; left; s += n, left -= n, n = 1) {
        if (*s == '<')
            buf_puts(out, "&lt;");
        else if (*s == '>')
            buf_puts(out, "&gt;");
        else if (*s == '&')
            buf_puts(out, "&amp;");
        else if (*s == '"')
            buf_puts(out, "&quot;");
        else
            n = buf_put_char(out, s, left);
    }
}

#define TICKS_MAX 24

struct axis {
    double min, max;
    double ticks[TICKS_MAX];
    size_t n_ticks;
    bool log;
};

/* The step to about five ticks among 1, 2, 5 times a power of ten. */
static double nice_step(double span) {
    double raw = span / 5, power = pow(10, floor(log10(raw))), f = raw / power;
    return (f < 1.5 ? 1 : f < 3.5 ? 2 : f < 7.5 ? 5 : 10) * power;
}

static struct axis linear_axis(double max) {
    struct axis a = {0};
    if (!(max > 0)) max = 1;
    double step = nice_step(max);
    a.max = ceil(max / step - 1e-9) * step;
    for (int i = 0; i * step < a.max + step / 2 && a.n_ticks < TICKS_MAX; i++)
        a.ticks[a.n_ticks++] = i * step;
    return a;
}

/* Ticks at 1, 2 and 5 times powers of ten; of many decades at the powers alone. */
static struct axis log_axis(double min, double max) {
    static const double parts[] = {1, 2, 5};
    struct axis a = {.min = min, .max = max, .log = true};
    bool wide = max > 2000 * min;
    double below = 0;
    for (double power = pow(10, floor(log10(min))); power < 10 * max; power *= 10)
        for (int i = 0; i < (wide ? 1 : 3); i++) {
            double v = power * parts[i];
            if (v <= min) below = v;
            bool beyond = a.n_ticks && a.ticks[a.n_ticks - 1] >= max;
            if (v > min && !beyond && a.n_ticks < TICKS_MAX) a.ticks[a.n_ticks++] = v;
        }
    if (a.n_ticks < TICKS_MAX && below > 0) {
        memmove(a.ticks + 1, a.ticks, a.n_ticks * sizeof *a.ticks);
        a.ticks[0] = below;
        a.n_ticks++;
    }
    if (a.n_ticks) {
        a.min = a.ticks[0];
        a.max = a.ticks[a.n_ticks - 1];
    }
    return a;
}

static double place(const struct axis *a, double v) {
    double share = a->log ? log(v / a->min) / log(a->max / a->min) : (v - a->min) / (a->max - a->min);
    return share < 0 ? 0 : share > 1 ? 1 : share;
}

static double at_x(const struct axis *a, double v) {
    return LEFT + place(a, v) * (WIDTH - LEFT - RIGHT);
}

static double at_y(const struct axis *a, double v) {
    return HEIGHT - BOTTOM - place(a, v) * (HEIGHT - TOP - BOTTOM);
}

static void tick_text(struct buf *out, double v, double max) {
    if (max >= 1e6 && v >= 1e5)
        buf_printf(out, "%.3gM", v / 1e6);
    else if (max >= 1e4 && v >= 1e3)
        buf_printf(out, "%.3gk", v / 1e3);
    else
        buf_printf(out, "%.4g", v);
}

static void axes(struct buf *out, const struct chart *c, const struct axis *x, const struct axis *y) {
    for (size_t i = 0; i < y->n_ticks; i++) {
        double p = at_y(y, y->ticks[i]);
        buf_printf(out, "<path class=g d='M%d %.1fH%d'/><text class=t x=%d y=%.1f text-anchor=end>", LEFT, p,
                   WIDTH - RIGHT, LEFT - 5, p + 4);
        tick_text(out, y->ticks[i], y->max);
        buf_puts(out, "</text>");
    }
    for (size_t i = 0; i < x->n_ticks; i++) {
        double p = at_x(x, x->ticks[i]);
        buf_printf(out, "<path class=g d='M%.1f %dV%d'/><text class=t x=%.1f y=%d text-anchor=middle>", p,
                   TOP, HEIGHT - BOTTOM, p, HEIGHT - BOTTOM + 15);
        tick_text(out, x->ticks[i], x->max);
        buf_puts(out, "</text>");
    }
    buf_printf(out, "<text class=a x=%d y=%d text-anchor=middle>", (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 5);
    html_text(out, c->x_label);
    buf_puts(out, "</text>");
}

static void line(struct buf *out, const struct series *s, int color, const struct axis *x,
                 const struct axis *y) {
    buf_printf(out, "<path class='l s%d%s' d='", color, s->wide ? " w" : "");
    for (size_t i = 0; i < s->n; i++)
        buf_printf(out, "%c%.1f %.1f", i ? 'L' : 'M', at_x(x, s->x[i]), at_y(y, s->y[i]));
    buf_puts(out, "'/>");
    for (size_t i = 0; i < s->n && s->marks; i++)
        buf_printf(out, "<circle class=f%d r=4 cx=%.1f cy=%.1f><title>%.4g, %.4g</title></circle>", color,
                   at_x(x, s->x[i]), at_y(y, s->y[i]), s->x[i], s->y[i]);
}

static void figure_start(struct buf *out, const char *title, const char *y_label) {
    buf_puts(out, "<figure><figcaption>");
    html_text(out, title);
    if (y_label) {
        buf_puts(out, " <span>");
        html_text(out, y_label);
        buf_puts(out, "</span>");
    }
    buf_puts(out, "</figcaption>");
}

static void legend(struct buf *out, const struct series *series, size_t n) {
    buf_puts(out, "<p class=legend>");
    for (size_t i = 0; i < n; i++) {
        if (!series[i].n) continue;
        buf_printf(out, "<span><i class=b%zu></i>", i % SVG_COLORS);
        html_text(out, series[i].name);
        buf_puts(out, "</span>");
    }
    buf_puts(out, "</p>");
}

void svg_lines(struct buf *out, const struct chart *c, const struct series *series, size_t n) {
    double x_max = 0, y_max = c->line_y, x_min = INFINITY;
    size_t points = 0;
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < series[i].n; k++, points++) {
            x_max = fmax(x_max, series[i].x[k]);
            x_min = fmin(x_min, series[i].x[k]);
            y_max = fmax(y_max, series[i].y[k]);
        }
    if (!points) return;
    struct axis x = c->x_log && x_max > 20 * x_min ? log_axis(fmax(x_min, 1e-3), fmax(x_max, 1e-3))
                                                   : linear_axis(c->x_max > 0 ? c->x_max : x_max);
    struct axis y = linear_axis(c->y_max > 0 ? c->y_max : y_max);
    figure_start(out, c->title, c->y_label);
    buf_printf(out, "<svg viewBox='0 0 %d %d' role=img aria-label=\"", WIDTH, HEIGHT);
    html_text(out, c->title);
    buf_puts(out, "\">");
    axes(out, c, &x, &y);
    if (c->line_y > 0) {
        double p = at_y(&y, c->line_y);
        buf_printf(out, "<path class=slo d='M%d %.1fH%d'/><text class=st x=%d y=%.1f>", LEFT, p,
                   WIDTH - RIGHT, LEFT + 4, p < TOP + 14 ? p + 14 : p - 4);
        html_text(out, c->line_name);
        buf_puts(out, "</text>");
    }
    for (size_t i = 0; i < n; i++)
        if (series[i].n) line(out, &series[i], (int)(i % SVG_COLORS), &x, &y);
    buf_puts(out, "</svg>");
    legend(out, series, n);
    buf_puts(out, "</figure>");
}

#define BAR_HEIGHT 36

void svg_bars(struct buf *out, const char *title, const char *unit, const struct bar *bars, size_t n) {
    double most = 0;
    for (size_t i = 0; i < n; i++) most = fmax(most, bars[i].value);
    if (!(most > 0)) return;
    figure_start(out, title, unit);
    buf_printf(out, "<svg viewBox='0 0 %d %zu' role=img aria-label=\"", WIDTH, n * BAR_HEIGHT + 6);
    html_text(out, title);
    buf_puts(out, "\">");
    for (size_t i = 0; i < n; i++) {
        double y = (double)(i * BAR_HEIGHT), width = bars[i].value / most * (WIDTH - 80);
        buf_printf(out, "<text class=t x=2 y=%.0f>", y + 13);
        html_text(out, bars[i].name);
        buf_printf(out,
                   "</text><rect class=f0 x=2 y=%.0f width=%.1f height=14 rx=2 /><text class=v x=%.1f "
                   "y=%.0f>%.4g</text>",
                   y + 17, fmax(width, 1), fmax(width, 1) + 8, y + 29, bars[i].value);
    }
    buf_puts(out, "</svg></figure>");
}
