#!/usr/bin/env python3
"""Writes tests/data/load/stats.txt: quantiles, slopes and distributions as numpy computes them.

usage: load_stats.py > ../data/load/stats.txt   (needs numpy)"""

import numpy as np

rng = np.random.default_rng(7)
for n in (1, 2, 3, 10, 101, 1000):
    v = np.round(rng.lognormal(3, 1, n), 3)
    q = [float(np.quantile(v, p)) for p in (0.5, 0.9, 0.95, 0.99)]
    print("quantiles", n, *[f"{x:.3f}" for x in v], *[f"{x:.9g}" for x in [v.mean(), *q, v.min(), v.max()]])
for n in (3, 4, 20, 100):
    x = np.round(np.sort(rng.uniform(0, 50, n)), 3)
    y = np.round(2 * x + rng.normal(0, 5, n), 3)
    slope, rest = np.polyfit(x, y, 1)
    e = y - slope * x - rest
    t = slope / np.sqrt((e @ e) / (n - 2) / ((x - x.mean()) @ (x - x.mean())))
    print("slope", n, *[f"{a:.3f}" for a in x], *[f"{a:.3f}" for a in y], f"{slope:.9g} {t:.9g}")
