#!/usr/bin/env python3
"""Lets engines take turns on the same workloads in one run, and keeps medians and ratios.

usage: versus.py [--rounds 5] [--only NAME,...] [--quiet SHARE] [--keep NAME] [--quire PATH] ENGINES

ENGINES is a file with a command for each engine and line, '#' begins a comment:

    python3 scripts/peers/quire.py ~/.cache/quire/SmolLM2-135M-Instruct.Q4_1.gguf
    python3 scripts/peers/llama.py llama-batched-bench smollm2-Q4_0.gguf
    ov/bin/python scripts/peers/openvino.py ov-int4 --precision f32 --group-size 192

The first is what the others are compared with. All stay loaded; --turns is added to each command. A round measures each
workload in each engine once, in turn, and again while other processes take more than --quiet of the machine. The first
round is thrown away. Beside each rate stands what share of the cores was left by others on the same hardware. --keep NAME writes bench/results/NAME.json, from which scripts/bench_docs.py makes a table."""

import argparse
import datetime
import json
import pathlib
import shlex
import statistics
import subprocess
import sys
import time

import workloads

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "scripts"))
from machine import bench_kernels, limits_text, processor  # noqa: E402


class Engine:
    def __init__(self, command, only):
        self.process = subprocess.Popen([*shlex.split(command), "--turns", "--only", only], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
        self.record = self.answer()
        self.name = self.record["engine"]

    def answer(self):
        """Engines may print lines of their own."""
        for line in self.process.stdout:
            if line.startswith("{"):
                return json.loads(line)
        sys.exit(f"{' '.join(self.process.args)}: ended")

    def measure(self, workload, seed):
        print(workload, seed, file=self.process.stdin, flush=True)
        return self.answer()

    def stop(self):
        self.process.stdin.close()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()


def core_share(quire):
    """What is left of the cores to this machine: work of others on the other half of a core is seen in no figure of the system,
    and slows engines unequally (docs/benchmarks.md, "Kernels")."""
    return bench_kernels(quire, "--cores")["cores"]["share"]


def measure_quietly(engine, workload, seed, args):
    """The first undisturbed measurement, or the least disturbed one of those that fit the patience."""
    best, until, attempt = None, time.monotonic() + args.patience, 0
    while best is None or (best["others"] > args.quiet and time.monotonic() < until):
        one = engine.measure(workload, f"{seed}/{attempt}")
        attempt += 1
        if best is None or one["others"] < best["others"]:
            best = one
    return best


def rounds(engines, names, args):
    results = {name: [[] for _ in engines] for name in names}
    for number in range(-1, args.rounds):
        for name in names:
            for engine, runs in zip(engines, results[name]):
                before = core_share(args.quire)
                one = measure_quietly(engine, name, number, args)
                one["cores"] = (before + core_share(args.quire)) / 2
                if number >= 0:
                    runs.append(one)
                print(f"{number:>3} {name:<15} {engine.name:<16} {one['tok_s']:10.1f} tok/s, others {100 * one['others']:3.0f} %, "
                      f"cores {100 * one['cores']:3.0f} %",
                      file=sys.stderr, flush=True)
    return results


def summary(runs):
    rates = [one["tok_s"] for one in runs]
    return {"tok_s": round(statistics.median(rates), 1), "range": [round(min(rates), 1), round(max(rates), 1)],
            "others": round(statistics.median(one["others"] for one in runs), 3),
            "runs": [[round(one["tok_s"], 1), round(one["cores"], 2)] for one in runs]}


def show(record):
    names = [engine["engine"] for engine in record["engines"]]
    print(f"{'':<15}" + "".join(f"{name:>24}" for name in names) + "   first : best other")
    for workload, rows in record["figures"].items():
        others = [row["tok_s"] for row in rows[1:]]
        ratio = f"{rows[0]['tok_s'] / max(others):14.2f}" if others else ""
        cells = "".join(f"{row['tok_s']:10.1f} [{row['range'][0]:.0f}-{row['range'][1]:.0f}]".rjust(24) for row in rows)
        print(f"{workload:<15}{cells}{ratio}")


def main():
    p = argparse.ArgumentParser(usage=__doc__)
    p.add_argument("engines")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--only", default=",".join(w.name for w in workloads.ALL))
    p.add_argument("--quiet", type=float, default=0.05)
    p.add_argument("--patience", type=float, default=30)
    p.add_argument("--keep", default="")
    p.add_argument("--quire", default=ROOT / "build" / "quire", help="for `bench kernels --cores`, before and after each measurement")
    args = p.parse_args()
    names = [w.name for w in workloads.chosen(args)]
    lines = [line.strip() for line in pathlib.Path(args.engines).read_text().splitlines()]
    engines = []
    try:
        for line in lines:
            if line and not line.startswith("#"):
                engines.append(Engine(line, args.only))
        results = rounds(engines, names, args)
    finally:
        for engine in engines:
            engine.stop()
    measured = bench_kernels(args.quire, "--limits")
    record = {"kind": "versus", "date": datetime.date.today().isoformat(), **processor(),
              "limits": f"{measured['threads']} threads: {limits_text(measured)}", "rounds": args.rounds,
              "engines": [engine.record for engine in engines],
              "figures": {name: [summary(runs) for runs in row] for name, row in results.items()}}
    show(record)
    if args.keep:
        (ROOT / "bench" / "results" / f"{args.keep}.json").write_text(json.dumps(record, indent=1) + "\n")


main()
