"""How much of the machine other processes took during a measurement, and measuring only while that is little."""

import os
import sys
import time

TICKS = os.sysconf("SC_CLK_TCK")


def busy_s():
    """Processor time of all processors spent on anything, stolen time included: proc(5), /proc/stat."""
    with open("/proc/stat") as f:
        user, nice, system, _idle, _iowait, irq, softirq, steal = (int(n) for n in f.readline().split()[1:9])
    return (user + nice + system + irq + softirq + steal) / TICKS


class Watch:
    """Starts when made; others() is the share of all processors that went to others since then."""

    def __init__(self):
        self.start = self.now()

    @staticmethod
    def now():
        return busy_s(), sum(os.times()[:4]), time.monotonic()  # own threads, and children that were waited for

    def others(self):
        busy, own, wall = (b - a for a, b in zip(self.start, self.now()))
        return max(0.0, (busy - own) / (wall * os.cpu_count()))


def wait(limit, until):
    """Until others take less than limit, for half a second. False when that does not come."""
    while time.monotonic() < until:
        watch = Watch()
        time.sleep(0.5)
        if watch.others() < limit:
            return True
    return False


def tries(measure_once, limit, patience_s):
    """Calls measure_once until others took less than limit of the machine meanwhile; otherwise the least disturbed of
    all tries counts. Returns what it returned, and the share of others."""
    best, until = None, time.monotonic() + patience_s
    while True:
        if limit < 1 and not wait(limit, until) and best:
            break
        watch = Watch()
        result = measure_once()
        others = watch.others()
        if best is None or others < best[1]:
            best = result, others
        if others < limit or time.monotonic() >= until:
            break
        print(f"    others took {100 * others:.0f} %: again", file=sys.stderr, flush=True)
    return best
