#!/usr/bin/env python3
"""Makes the server tables of docs/benchmarks.md from bench/results/*.json (scripts/bench.py --keep NAME writes them).

usage: bench_docs.py [--check]      --check: changes nothing, fails if the page is not what would be written"""

import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "benchmarks.md"
KINDS = ("servers", "versus", "growth", "loads", "tokenize")  # "kind" of a record; servers if it has none


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


def limits_of(record):
    """Older records have none."""
    return [f"Limits of the machine after that run, {record['limits']}.", ""] if "limits" in record else []


def versus_table(record):
    names = [engine["engine"] for engine in record["engines"]]
    settings = "; ".join(f"{e['engine']}: " + ", ".join(f"{k} {plain(v)}" for k, v in e["settings"].items()) for e in record["engines"])
    lines = [f"{record['cpu']}, {record['cores']} cores ({', '.join(record['isa'])}), {record['engines'][0]['threads']} threads; "
             f"{record['date']}, {record['rounds']} rounds. {settings}.", "",
             *limits_of(record), f"| tok/s, median [range] | {' | '.join(names)} | {names[0]} : best other |", "|" + "---|" * (len(names) + 2)]
    for workload, rows in record["figures"].items():
        cells = [f"{row['tok_s']:.0f} [{row['range'][0]:.0f}–{row['range'][1]:.0f}]" for row in rows]
        ratio = f"{rows[0]['tok_s'] / max(row['tok_s'] for row in rows[1:]):.2f}" if len(rows) > 1 else ""
        lines.append(f"| {workload} | {' | '.join(cells)} | {ratio} |")
    return "\n".join(lines)


def plain(value):
    if isinstance(value, dict):
        return " ".join(f"{k}={v}" for k, v in value.items())
    if isinstance(value, list):
        return " ".join(map(str, value))
    return pathlib.Path(value).name if isinstance(value, str) else value


def growth_table(record):
    fit = record["fit"]
    lines = [f"**{record['settings']['model']}**: {record['cpu']}, {record['cores']} cores, {record['threads']} threads, path "
             f"{' '.join(record['settings']['path'])}; {record['date']}, {record['rounds']} rounds.", "",
             "| prompt tokens | " + " | ".join(record["first_token_s"]) + " |", "|---" * (len(record["first_token_s"]) + 1) + "|",
             "| first token, s | " + " | ".join(f"{s:.2f}" for s in record["first_token_s"].values()) + " |", "",
             f"Fit: {fit['a_us']:.0f} µs n + {fit['b_ns']:.2f} ns n²; largest relative residual {100 * fit['residual']:.0f} %.", "",
             "Between tokens: " + ", ".join(f"{1000 * s:.1f} ms after {n} tokens" for n, s in record["token_s"].items()) + ".", "",
             "| streams | " + " | ".join(record["tok_s"]) + " |", "|---" * (len(record["tok_s"]) + 1) + "|",
             "| output tok/s | " + " | ".join(f"{r:.0f}" for r in record["tok_s"].values()) + " |"]
    return "\n".join(lines)


def loads_table(record):
    lines = [f"{record['cpu']}, {record['cores']} cores ({', '.join(record['isa'])}), {record['threads']} threads; {record['date']}, "
             f"{record['version']}, {record['rounds']} rounds."]
    lines += [f"Reading 2 GB from memory in that run: {record['read_gb_s']:.0f} GB/s."] if record["read_gb_s"] else []
    lines += ["", "| model | file, MB | engine | ready, s | first token, s, median [range] | of it the prompt | peak, MiB | anonymous | "
              "of files | first token after another's start, s |", "|---" * 10 + "|"]
    for model in record["models"]:
        for name, row in model["engines"].items():
            low, high = row["first_token_range_s"]
            cells = [f"{row[key]:.2f}" if key in row else "" for key in ("ready_s", "prompt_s")]
            memory = [f"{row[key]:.0f}" if key in row else "" for key in ("peak", "anon", "file")]
            lines.append(f"| {model['model']} | {model['file_bytes'] / 1e6:.0f} | {name} | {cells[0]} | {row['first_token_s']:.2f} "
                         f"[{low:.2f}–{high:.2f}] | {cells[1]} | " + " | ".join(memory) + f" | {row['other_first_s']:.2f} |")
    return "\n".join(lines)


def tokenize_table(record):
    names = ("Quire", *record["versions"])
    versions = ", ".join(f"{name} {version}" for name, version in record["versions"].items())
    lines = [f"{record['cpu']}, {record['cores']} cores ({', '.join(record['isa'])}), one thread; {record['date']}, {record['rounds']} rounds, "
             f"medians. {versions}.", "",
             "| MB/s | text | " + " | ".join(names) + " | Quire : best other |", "|---" * 6 + "|"]
    for row in record["rows"]:
        speed = row["mb_s"]
        cells = [f"{speed[name]:.1f}" if name in speed else "" for name in names]
        best = max(v for name, v in speed.items() if name != names[0])
        lines.append(f"| {row['tokenizer']} | {row['text']} | {' | '.join(cells)} | {speed[names[0]] / best:.1f} |")
    return "\n".join(lines)


def put(page, name, tables):
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    return re.sub(f"{begin}.*?{end}", lambda _: f"{begin}\n" + "\n\n".join(tables) + f"\n{end}", page, flags=re.S)


def main():
    records = [json.loads(path.read_text()) for path in sorted((ROOT / "bench" / "results").glob("*.json"))]
    old = new = PAGE.read_text()
    for name, maker in zip(KINDS, (table, versus_table, growth_table, loads_table, tokenize_table)):
        new = put(new, name, [maker(record) for record in records if record.get("kind", "servers") == name])
    if "--check" in sys.argv:
        return 0 if new == old else "docs/benchmarks.md is not what scripts/bench_docs.py makes of bench/results"
    PAGE.write_text(new)
    return 0


sys.exit(main())
