#!/usr/bin/env python3
"""Makes the server tables of docs/benchmarks.md from bench/results/*.json (scripts/bench.py --keep NAME writes them).

usage: bench_docs.py [--check]      --check: changes nothing, fails if the page is not what would be written"""

import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "benchmarks.md"
BEGIN, END = "<!-- servers:begin -->", "<!-- servers:end -->"


def table(record):
    versions = ", ".join(record["versions"].values())
    lines = [f"**{record['model']}, {record['prompt_tokens']} in / {record['output_tokens']} out, path {record['path']}**", "",
             f"{record['cpu']}, {record['cores']} cores ({', '.join(record['isa'])}), {record['threads']} threads, "
             f"{record['dtype']}; {record['date']}, commit {record['commit']}, {record['rounds']} rounds. {versions}."]
    lines += [f"Limits of the machine in that run, {limit}." for limit in record["limits"] if limit.startswith("2 thr")][-1:]
    lines += ["", "| streams | engine | output tok/s, median [range] | first token, ms | between tokens, ms | ratio |",
              "|---|---|---|---|---|---|"]
    for streams, rows in record["streams"].items():
        for name, row in rows.items():
            low, high = row["tok_s_range"]
            base = rows.get("llama.cpp")
            ratio = f"{row['tok_s'] / base['tok_s']:.2f}" if base and name != "llama.cpp" else ""
            lines.append(f"| {streams} | {name} | {row['tok_s']:.0f} [{low:.0f}–{high:.0f}] | {row['ttft_ms']:.0f} | "
                         f"{row['tpot_ms']:.1f} | {ratio} |")
    return "\n".join(lines)


def main():
    records = [json.loads(path.read_text()) for path in sorted((ROOT / "bench" / "results").glob("*.json"))]
    block = f"{BEGIN}\n" + "\n\n".join(map(table, records)) + f"\n{END}"
    old = PAGE.read_text()
    new = re.sub(f"{BEGIN}.*?{END}", lambda _: block, old, flags=re.S)
    if "--check" in sys.argv:
        return 0 if new == old else "docs/benchmarks.md is not what scripts/bench_docs.py makes of bench/results"
    PAGE.write_text(new)
    return 0


sys.exit(main())
