#!/usr/bin/env python3
"""From exec to a ready server and to the first token, with the file in the page cache: Quire's server and llama.cpp's, in turn.

usage: load_speed.py MODEL... [--llama-server PATH] [--rounds 5] [--threads 2] [--keep NAME]

MODEL: GGUF files, or folders for Quire alone. A round starts each server once on each model: time until /health answers 200,
until the first token of a prompt of some 30 tokens has come (/v1/completions, one token; asked for at once), the share of that
prompt, and what the process then holds: its peak, anonymous memory and pages of files. llama.cpp runs with its defaults: file
mapped, weights repacked, a warm-up; --mlock and --no-mmap would change that. Both serve one sequence of 4,096 tokens. `run` is
`quire run`: from exec to the first byte on standard output, where there is no server.

Each file is read once before, and of two starts in a row the second counts: memory that a virtual machine's host has taken back
costs many times as much to touch as memory that the same program has just left. The first is other_first_s. --keep NAME writes bench/results/NAME.json, from which
scripts/bench_docs.py makes a table."""

import argparse
import datetime
import http.client
import json
import os
import pathlib
import re
import socket
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "scripts"))
from machine import bench_kernels, processor  # noqa: E402

PROMPT = "The quick brown fox jumps over the lazy dog while the band plays on and the rain falls softly on the old town square as"
CONTEXT = 4096
PATIENCE_S = 600


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def answers(port, method, path, body=None):
    """The answer's body when it is a 200, else None."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    try:
        connection.request(method, path, body, {"Content-Type": "application/json"} if body else {})
        answer = connection.getresponse()
        text = answer.read()
        return text if answer.status == 200 else None
    except OSError:
        return None
    finally:
        connection.close()


def memory_mib(pid):
    fields = dict(re.findall(r"^(\w+):\s+(\d+) kB$", pathlib.Path(f"/proc/{pid}/status").read_text(), re.M))
    return {name: int(fields[key]) / 1024 for name, key in (("peak", "VmHWM"), ("anon", "RssAnon"), ("file", "RssFile"))}


def start_server(command, port, log):
    """One start: seconds to ready, to the first token, of the prompt; memory."""
    begin = time.monotonic()
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        while answers(port, "GET", "/health") is None:
            if process.poll() is not None or time.monotonic() - begin > PATIENCE_S:
                sys.exit(f"{' '.join(command)}: did not start; {log.name} says why")
            time.sleep(0.002)
        ready = time.monotonic()
        body = json.dumps({"model": "bench", "prompt": PROMPT, "max_tokens": 1, "temperature": 0})
        said = answers(port, "POST", "/v1/completions", body)
        done = time.monotonic()
        if said is None:
            sys.exit(f"{' '.join(command)}: no token")
        return {"ready_s": ready - begin, "first_token_s": done - begin, "prompt_s": done - ready,
                "prompt_tokens": json.loads(said)["usage"]["prompt_tokens"], **memory_mib(process.pid)}
    finally:
        process.terminate()
        process.wait(PATIENCE_S)


def start_run(command, log):
    begin = time.monotonic()
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log)
    process.stdout.read(1)
    first = time.monotonic() - begin
    process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{' '.join(command)}: failed")
    return {"first_token_s": first, "peak": usage.ru_maxrss / 1024}


def engines(args, model, log):
    """(name, a function that starts it once)."""
    threads = str(args.threads)

    def quire():
        port = free_port()
        return start_server([args.quire, "serve", model, "--threads", threads, "--port", str(port), "--served-model-name", "bench",
                             "--no-access-log", "--max-model-len", str(CONTEXT), "--max-num-seqs", "1"], port, log)

    def run():
        return start_run([args.quire, "run", model, "--raw", "--max-tokens", "1", "--temperature", "0", "--threads", threads, PROMPT],
                         log)

    def llama():
        port = free_port()
        return start_server([args.llama_server, "-m", model, "-t", threads, "-c", str(CONTEXT), "-np", "1", "--port", str(port)], port,
                            log)

    chosen = [("Quire", quire), ("Quire, run", run)]
    if args.llama_server and not pathlib.Path(model).is_dir():
        chosen.insert(1, ("llama.cpp", llama))
    return chosen


def files_of(model):
    path = pathlib.Path(model)
    return [path] if path.is_file() else sorted(path.glob("*.safetensors"))


def warm(model):
    """Reads the files into the page cache. Their bytes."""
    total = 0
    for path in files_of(model):
        with open(path, "rb") as f:
            while piece := f.read(1 << 24):
                total += len(piece)
    return total


def limits(args):
    """GB/s of reading from memory, as the kernels' own measurement of the machine sees it."""
    limits = bench_kernels(args.quire, "--limits")["limits"]
    return round(next(limit["value"] for limit in limits if limit["name"] == "read_2gb") / 1e9, 1)


def summary(runs):
    figures = {key: statistics.median(run[key] for run in runs) for key in runs[0]}
    figures["first_token_range_s"] = [min(run["first_token_s"] for run in runs), max(run["first_token_s"] for run in runs)]
    return {key: [round(v, 3) for v in value] if isinstance(value, list) else round(value, 3) for key, value in figures.items()}


def measure(args, model, log):
    file_bytes = warm(model)
    chosen = engines(args, model, log)
    runs = {name: [] for name, _ in chosen}
    for number in range(args.rounds):
        turn = number % len(chosen)
        for name, start in chosen[turn:] + chosen[:turn]:
            cold, one = start(), start()
            runs[name].append({**one, "other_first_s": cold["first_token_s"]})
            print(f"{number:>3} {pathlib.Path(model).name:<40} {name:<12} first token after {one['first_token_s']:7.3f} s "
                  f"({cold['first_token_s']:.3f} s before), peak {one['peak']:6.0f} MiB", file=sys.stderr, flush=True)
    return {"model": pathlib.Path(model).name, "file_bytes": file_bytes,
            "engines": {name: summary(rows) for name, rows in runs.items()}}


def main():
    p = argparse.ArgumentParser(usage=__doc__)
    p.add_argument("models", nargs="+")
    p.add_argument("--quire", default=str(ROOT / "build" / "quire"))
    p.add_argument("--llama-server", default="")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    p.add_argument("--log", default=os.devnull, help="what the servers say")
    p.add_argument("--limits", action=argparse.BooleanOptionalAction, default=True, help="measure the machine's memory, too")
    p.add_argument("--keep", default="")
    args = p.parse_args()
    if args.rounds < 1:
        p.error(f"--rounds {args.rounds}: at least 1")
    with open(args.log, "w") as log:
        models = [measure(args, model, log) for model in args.models]
    record = {"kind": "loads", "date": datetime.date.today().isoformat(), **processor(), "threads": args.threads, "rounds": args.rounds,
              "version": subprocess.run([args.quire, "--version"], stdout=subprocess.PIPE, text=True).stdout.strip(),
              "read_gb_s": limits(args) if args.limits else None, "models": models}
    print(json.dumps(record, indent=1))
    if args.keep:
        (ROOT / "bench" / "results" / f"{args.keep}.json").write_text(json.dumps(record, indent=1) + "\n")


main()
