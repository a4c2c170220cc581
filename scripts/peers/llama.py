#!/usr/bin/env python3
"""Measures llama.cpp in process, by its llama-batched-bench, with the workloads of the other engines. Prints JSON."""

import json
import pathlib
import subprocess
import sys

import workloads


def command(args, w):
    """The tool decodes n steps after the prompt, which itself gives the first token."""
    context = w.streams * (w.n_in + w.n_out)
    line = [args.tool, "-m", args.model, "-c", max(context, 512), "-t", args.threads, "-tb", args.threads, "-b", args.batch,
            "-ub", args.ubatch, "-fa", args.fa, "-ctk", args.kv, "-ctv", args.kv, "-npp", w.n_in, "-ntg", max(w.n_out - 1, 1),
            "-npl", w.streams, "--output-format", "jsonl"]
    return [str(word) for word in line]


class Tool:
    def __init__(self, args):
        self.args, self.name, self.pids = args, "llama.cpp", ()
        self.settings = {"model": pathlib.Path(args.model).name, "fa": args.fa, "batch": args.batch, "ubatch": args.ubatch,
                         "kv": args.kv}

    def run(self, w):
        out = subprocess.run(command(self.args, w), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        rows = [json.loads(line) for line in out.stdout.splitlines() if line.startswith("{")]
        if out.returncode or len(rows) != 1:
            sys.exit(f"{self.args.tool} failed ({out.returncode}):\n{out.stdout[-2000:]}")
        if (rows[0]["pp"], rows[0]["pl"]) != (w.n_in, w.streams):
            sys.exit(f"{self.args.tool} ran something else: {rows[0]}")
        total_s = rows[0]["t_pp"] + (rows[0]["t_tg"] if w.n_out > 1 else 0)
        return workloads.Run(rows[0]["t_pp"], total_s, None)


def parse():
    p = workloads.parser(__doc__)
    p.add_argument("tool", help="llama-batched-bench")
    p.add_argument("model", help="GGUF file")
    p.add_argument("--fa", choices=["on", "off", "auto"], default="on", help="flash attention")
    p.add_argument("--batch", type=int, default=2048)
    p.add_argument("--ubatch", type=int, default=2048)
    p.add_argument("--kv", default="f16", help="KV cache format")
    return p.parse_args()


def main():
    args = parse()
    if args.cpu_time:
        sys.exit("--cpu-time: llama.cpp runs as a process of its own, which tells the time of day only")
    tool = Tool(args)
    workloads.measure(tool, lambda w, _: w.rate(tool.run(w), w), args)


main()
