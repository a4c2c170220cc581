#!/usr/bin/env python3
"""Runs the two examples of docs/tuning.md and puts what came of them there: pages, pictures (chromium), tables.

usage: tune_docs.py [--seconds N] [NAME ...]     NAMEs: default-model, ttft-target; N: budget of each instead of its own

On a machine that does nothing else; both take nine minutes."""

import argparse
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE, PICTURES = ROOT / "docs" / "tuning.md", ROOT / "docs" / "tuning"
COMMON = ["--calibrate-seconds", "20", "--quality-seconds", "10"]
SECONDS = {"default-model": 280, "ttft-target": 245}
EXAMPLES = {
    "default-model": ["smollm2", "--slo", "ttft_p95=2000,tpot_p95=100", "--input-tokens", "128", "--output-tokens", "32",
                      "--concurrency", "16", "--threads", "1", "--parameters",
                      "concurrency,max-num-seqs,max-num-batched-tokens,long-prefill-token-threshold,enable-prefix-caching,"
                      "block-size"],
    "ttft-target": ["smollm2", "--slo", "ttft_p95=2000", "--max-num-seqs", "2", "--no-enable-prefix-caching",
                    "--prefix-tokens", "256", "--input-tokens", "64", "--output-tokens", "24", "--concurrency", "8",
                    "--threads", "1", "--parameters", "max-num-seqs,enable-prefix-caching,dtype"],
}
FIGURES = (r"goodput (?:[\d.]+ -> )?(?P<good>[\d.]+)/s.*?(?:SLO at [\d.inf]+ -> (?P<at>[\d.inf]+)|worst quantile at (?P<of>[\d.inf]+))"
           r".*?TTFT P95 (?P<ttft>[\d.]+) ms, TPOT P95 (?P<tpot>[\d.]+) ms, (?P<out>[\d.]+) output")
VERDICTS = "better|worse|no difference|ruled out|other answers|failed"


def cells(name, verdict, m):
    return f"| {name} | {verdict} | {m['good']} | {m['ttft']} | {m['tpot']} | {m['out']} | {m['at'] or m['of']} |"


def row_of(line):
    if line.startswith("defaults: "):
        return cells("defaults", "", re.search(FIGURES, line))
    m = re.match(rf"(\S.*?) +({VERDICTS}): (.*)", line)
    if not m:
        return None
    figures = re.search(FIGURES, m[3])
    return cells(m[1], m[2], figures) if figures else f"| {m[1]} | {m[2]}: {m[3]} | | | | | |"


def last_row(name, line):
    good, ttft, tpot, at, out = line.split()[1:]
    return f"| **measured again: {name}** | | {good} | {ttft} | {tpot} | {out} | {at} |"


def table(command, text, seconds):
    lines, rows = text.splitlines(), []
    for line in lines:
        row = row_of(line)
        if row:
            rows.append(row)
        elif line.strip().startswith("answers against") and rows:
            name, rest = rows[-1][2:].split(" | ", 1)
            rows[-1] = f"| {name}; {line.split(': ', 1)[1]} | {rest}"
    best = re.search(r"^best: (.*)$", text, re.M)[1]
    again = [line for line in lines if re.match(r"(defaults|best) +[\d.]+ +[\d.]+ ", line)]
    if best != "as given" and "no time to measure" not in text:
        rows += [last_row("defaults", again[0]), last_row(best, again[1])]
    runs = re.search(r"^(\d+) runs(.*)$", text, re.M)
    command = " ".join(f"'{a}'" if " " in a else a for a in command)
    command = re.sub(r" (--(?:output|parameters|threads)\S*)", r" \\\n      \1", command)
    end = f"{runs[1]} runs in {seconds:.0f} seconds, calibration and the starts of the servers included{runs[2]}. Best: {best}."
    more = [line for line in lines if line.startswith(("the SLO is not held", "measured again, what", "there was no time"))]
    head = ["| step | | goodput/s | TTFT P95 ms | TPOT P95 ms | output tok/s | worst quantile / limit |",
            "|---|---|---|---|---|---|---|"]
    return "\n".join([f"    quire tune {command}", "", *head, *rows, "", " ".join([end, *(f"{m[0].upper()}{m[1:]}." for m in more)])])


def insert(name, text):
    block = f"<!-- {name}:begin -->\n{text}\n<!-- {name}:end -->"
    page, n = re.subn(rf"<!-- {name}:begin -->\n.*?<!-- {name}:end -->", lambda _: block, PAGE.read_text(), flags=re.S)
    assert n == 1, f"{PAGE} has no place for {name}"
    PAGE.write_text(page)


def picture(html, png):
    subprocess.run(["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--force-color-profile=srgb",
                    "--window-size=1300,1500", f"--screenshot={png}", html.as_uri()], check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def run(name, seconds):
    with tempfile.TemporaryDirectory() as folder:
        command = [*EXAMPLES[name], *COMMON, "--budget", f"{seconds}s"]
        start = time.monotonic()
        done = subprocess.run([ROOT / "build" / "quire", "tune", *command, "--folder", folder], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True)
        took = time.monotonic() - start
        print(done.stdout)
        if done.returncode:
            sys.exit(done.stderr)
        page = PICTURES / f"{name}.html"
        shutil.copy(pathlib.Path(folder) / "report.html", page)
        page.chmod(0o644)
        insert(name, table(command, done.stdout, took))
        picture(page, PICTURES / f"{name}.png")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--seconds", type=int)
    p.add_argument("names", nargs="*", metavar="NAME", default=list(EXAMPLES))
    o = p.parse_args()
    for name in o.names:
        if name not in EXAMPLES:
            p.error(f"{name}: {', '.join(EXAMPLES)} are there")
        run(name, o.seconds or SECONDS[name])


main()
