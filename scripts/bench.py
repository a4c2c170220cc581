#!/usr/bin/env python3
"""Measures the kernels and the server; with LLAMA_SERVER=PATH also llama.cpp's server, in the same run on the same file.

usage: bench.py [--model MODEL] [--streams 1,8,32] [--rounds 5] [--threads N] [--shape 128,64] [--no-kernels] [--require 1:0.7,32:2]
                [--keep NAME]

Each request has prompt tokens of its own (random ids, so that nothing is shared): 128 in and 64 out unless --shape says
otherwise; a run is 4 requests for each stream, at least 8, sent by `quire bench serve`. The servers take turns, round by round, and medians are shown: output tokens over the time of the
whole run, time to the first token, time between tokens. --require makes a smaller ratio to llama.cpp a failure.
The figures also go to build/bench.json; --keep NAME puts them, with what the machine is, into bench/results/NAME.json, from
which scripts/bench_docs.py makes the tables of docs/benchmarks.md."""

import argparse
import datetime
import http.client
import json
import os
import pathlib
import random
import re
import socket
import statistics
import subprocess
import sys
import time

from machine import limits_text, processor

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts" / "peers"))
from drive import drive  # noqa: E402


class Server:
    """A server process and how a request to it looks."""

    def __init__(self, name, command, extra):
        self.name, self.extra, self.port = name, extra, free_port()
        self.log = open(ROOT / "build" / f"bench-{name}.log", "wb")
        self.process = subprocess.Popen([*command, "--port", str(self.port)], stdin=subprocess.DEVNULL, stdout=self.log,
                                        stderr=subprocess.STDOUT)

    def wait(self, limit_s=300):
        start = time.monotonic()
        while time.monotonic() - start < limit_s:
            if self.process.poll() is not None:
                break
            try:
                connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
                connection.request("GET", "/health")
                if connection.getresponse().status == 200:
                    return
            except OSError:
                pass
            time.sleep(0.1)
        sys.exit(f"{self.name} did not become ready: see build/bench-{self.name}.log")

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def measure(server, streams, shape, seed):
    n_in, n_out = shape
    rng = random.Random(seed)
    prompts = [[rng.randrange(1000, 40000) for _ in range(n_in)] for _ in range(max(8, 4 * streams))]
    summary, _ = drive("build/quire", f"http://127.0.0.1:{server.port}", prompts, n_out, streams, server.extra)
    return {"tok_s": summary["output_tokens_per_s"], "ttft_ms": summary["ttft_ms"]["p50"], "tpot_ms": summary["tpot_ms"]["p50"]}


def start_servers(model, threads):
    quire = ["build/quire", "serve", model, "--threads", str(threads), "--served-model-name", "bench", "--no-access-log"]
    servers = [Server("quire", quire, {})]
    llama = os.environ.get("LLAMA_SERVER")
    if llama:
        command = [llama, "-m", model, "-t", str(threads), "-tb", str(threads), "-np", "32", "-c", "32768", "-cb", "-fa", "off",
                   "-ub", "2048", "--cache-ram", "0", "--host", "127.0.0.1"]
        servers.append(Server("llama.cpp", command, {"cache_prompt": False}))
    else:
        print("LLAMA_SERVER is not set: quire alone is measured")
    return servers


def model_file(name):
    """llama.cpp needs the file; quire pull prints where it is."""
    if pathlib.Path(name).exists():
        return str(pathlib.Path(name).resolve())
    out = subprocess.run(["build/quire", "pull", name], stdout=subprocess.PIPE, text=True, check=True).stdout.split()
    return next((word for word in reversed(out) if word.endswith(".gguf")), name)


def bench_kernels():
    """What the program itself measures. Returns the limits in one line, then a line for each kernel."""
    path = ROOT / "build" / "bench-kernels.json"
    out = subprocess.run(["build/quire", "bench", "kernels", "--json", path], stdout=subprocess.PIPE, text=True, check=True).stdout
    print(out, end="", flush=True)
    measured = json.loads(path.read_text())
    return [f"limits, {measured['threads']} threads: {limits_text(measured)}", *out[out.index("\nkernel "):].strip().splitlines()]


def bench_servers(args):
    results = {}
    servers = start_servers(model_file(args.model), args.threads)
    try:
        for server in servers:
            server.wait()
            measure(server, 1, args.shape, 0)  # warm
        for streams in args.streams:
            rounds = {server.name: [] for server in servers}
            for number in range(args.rounds):
                for server in servers:
                    rounds[server.name].append(measure(server, streams, args.shape, f"{streams}/{number}"))
            for name, runs in rounds.items():
                row = {key: statistics.median(run[key] for run in runs) for key in runs[0]}
                row["tok_s_range"] = [min(run["tok_s"] for run in runs), max(run["tok_s"] for run in runs)]
                results.setdefault(str(streams), {})[name] = row
            show(streams, results[str(streams)])
    finally:
        for server in servers:
            server.stop()
    return results


def ratio(rows):
    return rows["quire"]["tok_s"] / rows["llama.cpp"]["tok_s"] if "llama.cpp" in rows else None


def show(streams, rows):
    for name, row in rows.items():
        low, high = row["tok_s_range"]
        print(f"{streams:>3} streams  {name:<10} {row['tok_s']:8.1f} tok/s [{low:.1f}-{high:.1f}]   "
              f"first token {row['ttft_ms']:8.1f} ms   between tokens {row['tpot_ms']:6.2f} ms")
    if ratio(rows):
        print(f"{'':12} ratio      {ratio(rows):8.2f} x", flush=True)


def first_line(command):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True).stdout.split("\n")[0]


def description(args):
    """Everything needed to read the figures later."""
    log = (ROOT / "build" / "bench-quire.log").read_text()
    path = re.search(r"^\w+, (\w+), \d+ threads, (\w+),", log, re.M)
    llama = os.environ.get("LLAMA_SERVER")
    return {"date": datetime.date.today().isoformat(), **processor(), "path": path[1], "dtype": path[2],
            "model": pathlib.Path(model_file(args.model)).name, "threads": args.threads, "rounds": args.rounds,
            "prompt_tokens": args.shape[0], "output_tokens": args.shape[1],
            "commit": first_line(["git", "rev-parse", "--short", "HEAD"]),
            "versions": {"quire": first_line(["build/quire", "--version"]),
                         **({"llama.cpp": first_line([llama, "--version"])} if llama else {})}}


def keep(args, results, kernel_lines):
    record = {**description(args), "streams": results,
              "limits": [line.split("limits, ")[1] for line in kernel_lines if "limits, " in line], "kernels": kernel_lines}
    path = ROOT / "bench" / "results" / f"{args.keep}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record, indent=1) + "\n")
    print(f"kept in {path.relative_to(ROOT)}")


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--streams", default="1,8,32", type=lambda text: [int(n) for n in text.split(",")])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--shape", default="128,64", type=lambda text: [int(n) for n in text.split(",")])
    parser.add_argument("--keep", default="")
    parser.add_argument("--no-kernels", action="store_true")
    parser.add_argument("--require", default="", type=lambda text: [pair.split(":") for pair in text.split(",") if pair])
    args = parser.parse_args()
    os.chdir(ROOT)
    kernel_lines = [] if args.no_kernels else bench_kernels()
    results = bench_servers(args)
    if args.keep:
        keep(args, results, kernel_lines)
    (ROOT / "build" / "bench.json").write_text(json.dumps(results, indent=1) + "\n")
    missed = [(n, least) for n, least in args.require if (ratio(results[n]) or 0) < float(least)]
    for n, least in missed:
        print(f"at {n} streams the ratio is {ratio(results[n]) or 0:.2f}, required is {least}")
    return 1 if missed else 0


sys.exit(main())
