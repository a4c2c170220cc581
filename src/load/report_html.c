#include "load/report.h"
void report_html(const struct plan *p, struct buf *out) {}
