#!/usr/bin/env python3
"""How fast text becomes tokens, beside `tokenizers` and `tiktoken`, one thread each, in turn in one run.

usage: tokenize_speed.py TOKENIZER_JSON... [--bytes 1000000] [--rounds 5] [--keep NAME]

Texts of --bytes: English prose (data/eval/classics.txt), C (this project's sources) and many scripts (the corpus of
tests/golden/tokenizer_corpus.py), each given to a tokenizer as one text, as a prompt is, without special tokens. All three must give
the same ids, or the run ends. tiktoken takes part where the file is a byte-level BPE whose ids are in the order of its merges, as it
needs, with that file's own expression; where it would give other ids, it is left out.

Quire's text layer is compiled into a shared library (cc, libjansson-dev), as tests/golden/tokenizer_random.py does it; needs
tokenizers, tiktoken and sentencepiece. --keep NAME writes bench/results/NAME.json."""

import argparse
import ctypes
import datetime
import json
import os
import pathlib
import statistics
import sys
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "tests" / "golden")]
import tiktoken  # noqa: E402
import tokenizer_corpus  # noqa: E402
import tokenizer_random  # noqa: E402
import tokenizers  # noqa: E402
from machine import processor  # noqa: E402


def texts(n):
    """Whole lines over and over, each copy under a number of its own, so that no cache of words sees the text again."""
    sources = sorted((ROOT / "src").glob("*/*.c"))
    pieces = {"English": (ROOT / "data/eval/classics.txt").read_text(),
              "C": "".join(p.read_text() for p in sources if "table" not in p.name), "many scripts": tokenizer_corpus.PROSE}
    out = {}
    for name, piece in pieces.items():
        copies = -(-n // len(piece.encode()))
        text = "".join(f"\n{i}\n{piece}" for i in range(copies))
        out[name] = text.encode()[:n].decode(errors="ignore")
    return out


class Ours:
    name = "Quire"

    def __init__(self, lib, path):
        why, data = ctypes.create_string_buffer(4096), path.read_bytes()
        self.lib, self.handle = lib, lib.shim_open(data, ctypes.c_size_t(len(data)), 1, why)
        if not self.handle:
            sys.exit(f"{path}: {why.value.decode()}")
        self.handle = ctypes.c_void_p(self.handle)
        self.end = (ctypes.c_uint64 * 1)()

    def encode(self, text):
        raw = text.encode()
        at = (ctypes.c_uint64 * 2)(0, len(raw))
        ids = (ctypes.c_uint32 * len(raw))()
        n = self.lib.shim_encode(self.handle, raw, at, ctypes.c_size_t(1), 0, ids, ctypes.c_size_t(len(raw)), self.end)
        return ids[:n] if n >= 0 else sys.exit("Quire: the text was refused")


class Reference:
    name = "tokenizers"

    def __init__(self, path):
        self.tokenizer = tokenizers.Tokenizer.from_file(str(path))

    def encode(self, text):
        return self.tokenizer.encode(text, add_special_tokens=False).ids


def byte_of_letters():
    """Byte-level BPE writes each byte as a letter: those that are visible as they are, the others from U+0100 on."""
    visible = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in visible]
    return {chr(b): b for b in visible} | {chr(256 + i): b for i, b in enumerate(others)}


class Tiktoken:
    name = "tiktoken"

    def __init__(self, path):
        file, letters = json.loads(path.read_text()), byte_of_letters()
        steps = file["pre_tokenizer"]["pretokenizers"]
        expression = next(step["pattern"]["Regex"] for step in steps if step["type"] == "Split")
        ranks = {bytes(letters[c] for c in piece): i for piece, i in file["model"]["vocab"].items() if all(c in letters for c in piece)}
        self.encoding = tiktoken.Encoding("it", pat_str=expression, mergeable_ranks=ranks, special_tokens={})

    def encode(self, text):
        return self.encoding.encode_ordinary(text)


def engines_of(lib, path, samples):
    """Those that give the same ids."""
    ours, reference = Ours(lib, path), Reference(path)
    wanted = [reference.encode(text) for text in samples]
    if wanted != [ours.encode(text) for text in samples]:
        sys.exit(f"{path}: ids differ")
    try:
        third = Tiktoken(path)
        same = wanted == [third.encode(text) for text in samples]
    except (KeyError, StopIteration, TypeError, ValueError) as why:
        print(f"{path}: no tiktoken: {why!r}", file=sys.stderr)
        same = False
    return [ours, reference, third] if same else [ours, reference]


def seconds(what, argument):
    start = time.perf_counter()
    what(argument)
    return time.perf_counter() - start


def measure(engines, text, rounds):
    """MB/s of the text's bytes; medians."""
    n_bytes, runs = len(text.encode()), {engine.name: [] for engine in engines}
    for _ in range(rounds):
        for engine in engines:
            runs[engine.name].append(seconds(engine.encode, text))
    return {name: round(n_bytes / statistics.median(times) / 1e6, 2) for name, times in runs.items()}


def main():
    p = argparse.ArgumentParser(usage=__doc__)
    p.add_argument("files", nargs="+", type=pathlib.Path, metavar="TOKENIZER_JSON")
    p.add_argument("--bytes", type=int, default=1000000)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--keep", default="")
    args = p.parse_args()
    lib, samples, rows = tokenizer_random.build(), texts(args.bytes), []
    for path in args.files:
        engines = engines_of(lib, path, samples.values())
        for name, text in samples.items():
            rows.append({"tokenizer": path.parent.name, "text": name, "bytes": len(text.encode()),
                         "mb_s": measure(engines, text, args.rounds)})
            print(rows[-1], file=sys.stderr, flush=True)
    record = {"kind": "tokenize", "date": datetime.date.today().isoformat(), **processor(), "rounds": args.rounds,
              "versions": {"tokenizers": tokenizers.__version__, "tiktoken": tiktoken.__version__}, "rows": rows}
    print(json.dumps(record, indent=1))
    if args.keep:
        (ROOT / "bench" / "results" / f"{args.keep}.json").write_text(json.dumps(record, indent=1) + "\n")


main()
