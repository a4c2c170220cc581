"""The workloads that every other engine is measured with, and the record of a measurement.

An engine is a class with
    name, settings       for the record: what it is, which versions, formats and flags
    vocab                prompts are random ids below it
    pids                 processes that work for it, beside its own one
    run(prompts, n_out)  generates exactly n_out tokens for each prompt, all handed over at once; returns struct Run

A workload's figure is tokens per second:
    prefill_512       one prompt of 512 tokens, until its first token
    prefill_32x512    32 such prompts together, until all are done
    decode_1          tokens after the first, 16 in / 128 out, one stream
    streams_N         N streams, 128 in / 64 out: output tokens over the time of the whole run, prefill included
    long_32           the same for 32 streams of 512 in / 256 out

With --turns an engine stays loaded, reads a workload's name and a seed a line and answers a line of JSON for each: so
versus.py lets several engines take turns. Otherwise it measures by itself:

Every prompt of every repeat is new, so nothing can be taken from a prefix cache. The repeats go round the workloads, so
that a disturbance of the machine does not fall on one of them alone; beside each figure stands what share of the machine
other processes took meanwhile, and --quiet repeats a measurement until that is small."""

import argparse
import collections
import json
import os
import random
import statistics
import sys
import time

import quiet

Run = collections.namedtuple("Run", "first_s total_s counts")  # all streams have a first token; all done; tokens of each
Workload = collections.namedtuple("Workload", "name streams n_in n_out rate")


def clock(args):
    return time.process_time if args.cpu_time else time.perf_counter


def of_prefill(run, w):
    return w.streams * w.n_in / run.total_s


def of_decode(run, w):
    return w.streams * (w.n_out - 1) / (run.total_s - run.first_s)


def of_output(run, w):
    return w.streams * w.n_out / run.total_s


ALL = [Workload("prefill_512", 1, 512, 1, of_prefill), Workload("prefill_32x512", 32, 512, 1, of_prefill),
       Workload("decode_1", 1, 16, 128, of_decode),
       *(Workload(f"streams_{n}", n, 128, 64, of_output) for n in (1, 8, 32, 64)),
       Workload("long_32", 32, 512, 256, of_output)]


def parser(description):
    p = argparse.ArgumentParser(description=description, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--repeats", type=int, default=5)
    p.add_argument("--only", default=",".join(w.name for w in ALL), metavar="NAME,...", help="workloads to run")
    p.add_argument("--quiet", type=float, default=1, metavar="SHARE",
                   help="measure again while others take more than this share of the machine, such as 0.05")
    p.add_argument("--patience", type=float, default=120, metavar="SECONDS", help="how long --quiet tries, for each figure")
    p.add_argument("--cpu-time", action="store_true",
                   help="count processor time of this process, not the time of day: to rank settings with --threads 1 on a "
                        "busy machine")
    p.add_argument("--out", metavar="FILE", help="write the JSON there too")
    p.add_argument("--turns", action="store_true", help="measure what standard input asks for, a line each")
    return p


def chosen(args):
    known = {w.name: w for w in ALL}
    names = args.only.split(",")
    for name in names:
        if name not in known:
            sys.exit(f"--only: no workload {name!r}; there are {', '.join(known)}")
    return [known[name] for name in names]


def prompts_for(w, seed, vocab):
    rng = random.Random(f"{w.name}/{seed}")
    return [[rng.randrange(1000, vocab) for _ in range(w.n_in)] for _ in range(w.streams)]


def checked(engine, w, run):
    """The rate of a run that gave what was asked."""
    if list(run.counts) != [w.n_out] * w.streams:
        sys.exit(f"{engine.name}, {w.name}: wanted {w.n_out} tokens for each of {w.streams} streams, got {run.counts}")
    return w.rate(run, w)


def warm(engine, todo):
    for w in todo:
        if w.streams > 1 and w.n_out > 1:
            w = w._replace(n_out=4)  # the shapes matter, not the length
        checked(engine, w, engine.run(prompts_for(w, "warm", engine.vocab), w.n_out))


def measure_all(engine, measure_once, args):
    """measure_once(workload, seed) gives tokens per second. Returns lists of (that, share of others) by workload."""
    todo = chosen(args)
    results = {w.name: [] for w in todo}
    for repeat in range(args.repeats):
        for w in todo:
            attempt = iter(range(1000))
            rate, others = quiet.tries(lambda: measure_once(w, f"{repeat}/{next(attempt)}"), args.quiet, args.patience, engine.pids)
            results[w.name].append((rate, others))
            print(f"{w.name:<15} {repeat:>3} {rate:10.1f} tok/s, others {100 * others:3.0f} %", file=sys.stderr, flush=True)
    return results


def take_turns(engine, measure_once, args):
    """The record of the engine in one line, then a line for each that is read; see versus.py."""
    print(json.dumps({"engine": engine.name, "threads": args.threads, "settings": engine.settings}), flush=True)
    known = {w.name: w for w in chosen(args)}
    for line in sys.stdin:
        name, seed = line.split()
        watch = quiet.Watch(engine.pids)
        rate = measure_once(known[name], seed)
        print(json.dumps({"tok_s": rate, "others": watch.others()}), flush=True)


def measure(engine, measure_once, args):
    if args.turns:
        take_turns(engine, measure_once, args)
    else:
        report(engine, measure_all(engine, measure_once, args), args)


def report(engine, results, args):
    figures = {}
    for name, pairs in results.items():
        rates = [rate for rate, _ in pairs]
        figures[name] = {"tok_s": round(statistics.median(rates), 1), "range": [round(min(rates), 1), round(max(rates), 1)],
                         "others": round(statistics.median(share for _, share in pairs), 3)}
    record = {"engine": engine.name, "threads": args.threads, "repeats": args.repeats, "load": os.getloadavg(), "cpu_time": args.cpu_time,
              "settings": engine.settings, "figures": figures,
              "all": {name: [[round(r, 1), round(o, 3)] for r, o in pairs] for name, pairs in results.items()}}
    text = "{\n" + ",\n".join(f" {json.dumps(key)}: {lines(value)}" for key, value in record.items()) + "\n}"
    print(text)
    if args.out:
        with open(args.out, "w") as f:
            f.write(text + "\n")


def lines(value):
    """JSON with a line for each member of a dictionary."""
    if not isinstance(value, dict):
        return json.dumps(value)
    return "{\n" + ",\n".join(f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in value.items()) + "\n }"


def main(engine, args):
    warm(engine, chosen(args))
    measure(engine, lambda w, seed: checked(engine, w, engine.run(prompts_for(w, seed, engine.vocab), w.n_out)), args)
