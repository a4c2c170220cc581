#!/usr/bin/env python3
"""How the cost of a request grows: with its prompt, with what it has behind it, and with what runs beside it.

usage: growth.py MODEL [--quire build/quire] [--threads 2] [--lengths 512,1024,...] [--contexts 128,8192] [--streams 1,2,4,...]
                 [--rounds 3] [--serve-args "--kv-cache-memory-bytes 2Gi"] [--keep NAME]

Prefill: time to the first token of one prompt of n random tokens, medians, fitted by a n + b n^2 (least squares of relative
errors); the residual is the largest relative error of the fit. Decode: time between tokens of one stream with so many tokens
behind it. Throughput: output tokens of N streams of 128 in / 64 out over the time of the whole run. Everything over HTTP;
prefix caching is off. --keep NAME writes bench/results/NAME.json."""

import argparse
import datetime
import json
import os
import pathlib
import random
import statistics
import sys

from machine import processor

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts" / "peers"))
from quire_server import Server  # noqa: E402


def prompts(n_streams, n_in, vocab, rng):
    return [[rng.randrange(1000, vocab) for _ in range(n_in)] for _ in range(n_streams)]


def medians(server, keys, rounds, measure):
    """Round by round, so that a disturbance does not fall on one of them alone."""
    runs = {key: [] for key in keys}
    for number in range(rounds):
        for key in keys:
            runs[key].append(measure(key, random.Random(f"{key}/{number}")))
            print(f"{key:>8} {runs[key][-1]:12.5f}", file=sys.stderr, flush=True)
    return {key: statistics.median(values) for key, values in runs.items()}


def first_token_s(server, n, rng):
    return server.run(prompts(1, n, server.vocab, rng), 1).total_s


def token_s(server, n, rng, n_out=64):
    run = server.run(prompts(1, n, server.vocab, rng), n_out)
    return (run.total_s - run.first_s) / (n_out - 1)


def tokens_per_s(server, n_streams, rng):
    return n_streams * 64 / server.run(prompts(n_streams, 128, server.vocab, rng), 64).total_s


def fit(seconds):
    """a and b of a n + b n^2 with the least sum of squared relative errors: normal equations of 2 unknowns."""
    xx = xy = yy = x1 = y1 = 0.0
    for n, s in seconds.items():
        x, y = n / s, n * n / s
        xx, xy, yy, x1, y1 = xx + x * x, xy + x * y, yy + y * y, x1 + x, y1 + y
    det = xx * yy - xy * xy
    a, b = (x1 * yy - y1 * xy) / det, (xx * y1 - xy * x1) / det
    return a, b, max(abs((a * n + b * n * n) / s - 1) for n, s in seconds.items())


def numbers(text):
    return [int(n) for n in text.split(",")]


def main():
    p = argparse.ArgumentParser(usage=__doc__)
    p.add_argument("model")
    p.add_argument("--quire", default=str(ROOT / "build" / "quire"))
    p.add_argument("--dtype")
    p.add_argument("--serve-args", default="", metavar="ARGS")
    p.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    p.add_argument("--lengths", type=numbers, default=[512, 1024, 2048, 4096, 8192, 16000])
    p.add_argument("--contexts", type=numbers, default=[128, 8192])
    p.add_argument("--streams", type=numbers, default=[1, 2, 4, 8, 16, 32, 64])
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--vocab", type=int, default=40000)
    p.add_argument("--keep", default="")
    args = p.parse_args()
    server = Server(args)
    try:
        first_token_s(server, 64, random.Random(0))  # warm
        prefill = medians(server, args.lengths, args.rounds, lambda n, rng: first_token_s(server, n, rng))
        decode = medians(server, args.contexts, args.rounds, lambda n, rng: token_s(server, n, rng))
        throughput = medians(server, args.streams, args.rounds, lambda n, rng: tokens_per_s(server, n, rng))
    finally:
        server.stop()
    a, b, residual = fit(prefill)
    record = {"kind": "growth", "date": datetime.date.today().isoformat(), **processor(), "threads": args.threads,
              "settings": server.settings, "rounds": args.rounds, "first_token_s": prefill, "token_s": decode, "tok_s": throughput,
              "fit": {"a_us": a * 1e6, "b_ns": b * 1e9, "residual": residual}}
    print(json.dumps(record, indent=1))
    if args.keep:
        (ROOT / "bench" / "results" / f"{args.keep}.json").write_text(json.dumps(record, indent=1) + "\n")


main()
