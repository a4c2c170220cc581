#!/usr/bin/env python3
"""Lets `quire bench serve` and aiperf measure the same server in turn, with the same requests, and holds their figures together.

usage: load_tools.py URL --aiperf PATH --tokenizer FOLDER [--streams 4] [--requests 60] [--words 64] [--output-tokens 50]
                     [--rounds 3] [--quire build/quire] [--json FILE]

The server must not keep prompts (quire serve --no-enable-prefix-caching): both tools send the same ones. Requests are chats
with answers of an exact length. Each tool's figures are medians over the rounds; a difference counts from aiperf's."""

import argparse
import json
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import urllib.request

# name in the table: (of quire's summary, of aiperf's export)
FIGURES = {
    "TTFT P50, ms": (("ttft_ms", "p50"), ("time_to_first_token", "p50")),
    "TTFT mean, ms": (("ttft_ms", "mean"), ("time_to_first_token", "avg")),
    "TPOT P50, ms": (("tpot_ms", "p50"), ("inter_token_latency", "p50")),
    "TPOT mean, ms": (("tpot_ms", "mean"), ("inter_token_latency", "avg")),
    "E2E P50, ms": (("e2e_ms", "p50"), ("request_latency", "p50")),
    "output tok/s": (("output_tokens_per_s",), ("output_token_throughput", "avg")),
    "requests/s": (("requests_per_s",), ("request_throughput", "avg")),
}
SYLLABLES = "ba be bo da de do fa fe fo ka ke ko la le lo ma me mo na ne no ra re ro sa se so ta te to".split()


def at(figures, path):
    for key in path:
        figures = figures[key]
    return float(figures)


def make_files(args, folder, model):
    """The same chats for both: OpenAI's batch file, and a line of text each."""
    rng = random.Random(args.seed)
    batch, texts = [], []
    for i in range(args.requests):
        text = " ".join("".join(rng.choices(SYLLABLES, k=2)) for _ in range(args.words))
        body = {"model": model, "messages": [{"role": "user", "content": text}], "max_tokens": args.output_tokens,
                "temperature": 0, "ignore_eos": True}
        batch.append({"custom_id": str(i), "method": "POST", "url": "/v1/chat/completions", "body": body})
        texts.append({"text": text})
    for name, rows in (("batch", batch), ("texts", texts)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def run(command):
    done = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        sys.exit(f"{command[0]} failed:\n{done.stdout[-3000:]}")


def run_quire(args, folder, model):
    out = folder / "quire.json"
    run([args.quire, "bench", "serve", args.url, "--workload", "batch", "--file", folder / "batch.jsonl", "--concurrency",
         args.streams, "--requests", args.requests, "--no-records", "--no-progress", "--json", out])
    summary = json.loads(out.read_text())["points"][0]["summary"]
    check("quire", summary["ok"], summary["output_tokens"], args)
    return {name: at(summary, path) for name, (path, _) in FIGURES.items()}


def run_aiperf(args, folder, model):
    out = folder / "aiperf"
    run([args.aiperf, "profile", "--model", model, "--url", args.url, "--endpoint-type", "chat", "--streaming", "--concurrency",
         args.streams, "--request-count", args.requests, "--input-file", folder / "texts.jsonl", "--custom-dataset-type",
         "single_turn", "--dataset-sampling-strategy", "sequential", "--extra-inputs",
         json.dumps({"ignore_eos": True, "temperature": 0, "max_tokens": args.output_tokens}), "--tokenizer", args.tokenizer,
         "--use-server-token-count", "--ui", "none", "--workers-max", 1, "--record-processors", 1, "--artifact-dir", out])
    figures = json.loads((out / "profile_export_aiperf.json").read_text())
    check("aiperf", at(figures, ("request_count", "avg")),
          at(figures, ("request_count", "avg")) * at(figures, ("output_sequence_length", "avg")), args)
    return {name: at(figures, path) for name, (_, path) in FIGURES.items()}


def check(name, n_ok, n_tokens, args):
    if n_ok != args.requests or round(n_tokens) != args.requests * args.output_tokens:
        sys.exit(f"{name}: {n_ok:.0f} of {args.requests} requests, {n_tokens:.0f} tokens, "
                 f"wanted {args.requests * args.output_tokens}")


def main():
    p = argparse.ArgumentParser(usage=__doc__)
    p.add_argument("url")
    p.add_argument("--aiperf", required=True)
    p.add_argument("--tokenizer", required=True)
    p.add_argument("--quire", default=pathlib.Path(__file__).resolve().parent.parent.parent / "build" / "quire")
    p.add_argument("--streams", type=int, default=4)
    p.add_argument("--requests", type=int, default=60)
    p.add_argument("--words", type=int, default=64)
    p.add_argument("--output-tokens", type=int, default=50)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--seed", default="load")
    p.add_argument("--json")
    args = p.parse_args()
    with urllib.request.urlopen(args.url + "/v1/models") as answer:
        model = json.load(answer)["data"][0]["id"]
    tools = {"quire": run_quire, "aiperf": run_aiperf}
    rounds = {name: [] for name in tools}
    with tempfile.TemporaryDirectory() as folder:
        make_files(args, pathlib.Path(folder), model)
        for number in range(args.rounds):
            for name in list(tools) if number % 2 else reversed(tools):
                rounds[name].append(tools[name](args, pathlib.Path(folder), model))
    print(f"{args.rounds} rounds of {args.requests} chats, {args.streams} at once, {args.output_tokens} tokens out")
    print(f"{'':14} {'aiperf':>10} {'quire':>10} {'difference':>11}   rounds: aiperf | quire")
    for figure in FIGURES:
        values = {name: [r[figure] for r in runs] for name, runs in rounds.items()}
        theirs, ours = statistics.median(values["aiperf"]), statistics.median(values["quire"])
        print(f"{figure:14} {theirs:10.2f} {ours:10.2f} {100 * (ours / theirs - 1):+10.2f} %   "
              + " | ".join(" ".join(f"{v:.2f}" for v in values[name]) for name in ("aiperf", "quire")))
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(rounds, indent=1) + "\n")


main()
