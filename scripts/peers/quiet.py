"""How much of the machine other processes took during a measurement, and measuring only while that is little."""

import os
import pathlib
import sys
import time

TICKS = os.sysconf("SC_CLK_TCK")


def busy_s():
    """Processor time of all processors spent on anything, stolen time included: proc(5), /proc/stat."""
    with open("/proc/stat") as f:
        user, nice, system, _idle, _iowait, irq, softirq, steal = (int(n) for n in f.readline().split()[1:9])
    return (user + nice + system + irq + softirq + steal) / TICKS


def tree(pid):
    """A running process and all that it started, directly or not: proc(5), /proc/pid/task/tid/children."""
    found = [pid]
    for parent in found:
        for children in pathlib.Path(f"/proc/{parent}/task").glob("*/children"):
            found.extend(int(child) for child in children.read_text().split())
    return found


def process_s(pid):
    """Processor time of a running process: proc(5), /proc/pid/stat, fields 14 and 15."""
    with open(f"/proc/{pid}/stat") as f:
        fields = f.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


class Watch:
    """Starts when made; others() is the share of all processors that went to others since then. pids: running processes that
    are no others, nor are those that they have started by then."""

    def __init__(self, pids=()):
        self.pids = [one for pid in pids for one in tree(pid)]
        self.start = self.now()

    def now(self):
        own = sum(os.times()[:4]) + sum(map(process_s, self.pids))  # own threads, and children that were waited for
        return busy_s(), own, time.monotonic()

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


def tries(measure_once, limit, patience_s, pids=()):
    """Calls measure_once until others took less than limit of the machine meanwhile; otherwise the least disturbed of
    all tries counts. Returns what it returned, and the share of others."""
    best, until = None, time.monotonic() + patience_s
    while True:
        if limit < 1 and not wait(limit, until) and best:
            break
        watch = Watch(pids)
        result = measure_once()
        others = watch.others()
        if best is None or others < best[1]:
            best = result, others
        if others < limit or time.monotonic() >= until:
            break
        print(f"    others took {100 * others:.0f} %: again", file=sys.stderr, flush=True)
    return best
