#!/usr/bin/env python3
"""Needles in long texts with each scaling of rotary embeddings: Quire's answers beside those of transformers, in float32.

    needle.py FOLDER [SCALING ...] [--lengths 16384,32768] [--depths 10,50,90] [--original N] [--json OUT.json]

FOLDER is a model as transformers saves it (gguf_to_hf.py makes one). For each scaling and length its config.json gets a rotary
embedding of that kind, from --original positions to the length; in a text of the length stands a sentence with a number at each
depth, and both programs are asked for each number, greedily, with the same token ids. Scalings that depend on the length are those
of Quire's --max-model-len, in the reference, too. The reference makes its angles in float64 by its own formulas, as
tests/golden/model_long.py does and says why. It reads a text once and each question from a copy of its cache.

Exits with 1 if an answer is not the reference's. 32,768 tokens take minutes for each scaling, model and program."""

import argparse
import copy
import json
import math
import pathlib
import subprocess
import sys
import tempfile
import time
import types
import urllib.request

import torch
import transformers
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
CITIES = ["Lisbon", "Kyoto", "Nairobi", "Oslo", "Lima", "Prague", "Tunis", "Quito", "Perth"]
N_ANSWER, CHUNK = 10, 512


# ---- the model with a scaling ----

def scaling_of(kind, original, length, theta, pairs):
    """Parameters of a kind that takes `original` positions to `length`."""
    factor = length / original
    if kind == "longrope":  # divisors that grow towards the slow pairs, as published ones do
        return {"rope_type": kind, "long_factor": [factor ** (i / (pairs - 1)) for i in range(pairs)],
                "short_factor": [1.0] * pairs, "original_max_position_embeddings": original}
    more = {"linear": {}, "dynamic": {}, "yarn": {"original_max_position_embeddings": original},
            "llama3": {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": original}}[kind]
    return {"rope_type": kind, "factor": factor, **more}


def write_config(folder, out, kind, original, length):
    """A folder with the same files and another config.json."""
    for file in folder.iterdir():
        if file.name != "config.json":
            (out / file.name).symlink_to(file.resolve())
    config = json.loads((folder / "config.json").read_text())
    windows = "sliding_attention" in (config.get("rope_parameters") or {})
    rope = config["rope_parameters"]["full_attention"] if windows else config.get("rope_parameters") or {}
    theta = rope.get("rope_theta", config.get("rope_theta", 10000.0))
    head = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    config.pop("rope_scaling", None)
    new = {"rope_theta": theta, **scaling_of(kind, original, length, theta, head // 2)}
    config["rope_parameters"] = {**config["rope_parameters"], "full_attention": new} if windows else new
    # These two extend max_position_embeddings themselves, but for Gemma, where it is what it is.
    config["max_position_embeddings"] = original if kind in ("linear", "dynamic") and not windows else length
    (out / "config.json").write_text(json.dumps(config, indent=1))


# ---- the text ----

class Text:
    """Token ids of a text with needles, and of the questions behind it."""

    def __init__(self, tokenize, length, depths, bos):
        hay = tokenize((ROOT / "data/eval/classics.txt").read_text())
        cities = CITIES[: len(depths)]
        self.numbers = [str(1000003 + 7654321 * (i + 1) % 8999989) for i in range(len(depths))]
        needles = [tokenize(f" The secret number of {c} is {n}.") for c, n in zip(cities, self.numbers)]
        self.questions = [tokenize(f"\n\nQuestion: What is the secret number of {c}?\nAnswer: The secret number of {c} is")
                          for c in cities]
        head = bos + tokenize("Here is a long text. Some sentences in it tell secret numbers.\n\n")
        room = length - len(head) - sum(map(len, needles)) - max(map(len, self.questions)) - N_ANSWER
        hay = (hay * (room // len(hay) + 1))[:room]
        self.ids, done = head, 0
        for depth, needle in zip(depths, needles):
            at = room * depth // 100
            self.ids = self.ids + hay[done:at] + needle
            done = at
        self.ids = self.ids + hay[done:]


# ---- Quire ----

class Quire:
    def __init__(self, args, folder, length):
        self.log = tempfile.TemporaryFile()
        line = [args.quire, "serve", str(folder), "--dtype", "float32", "--threads", str(args.threads), "--port", "0",
                "--max-model-len", str(length), "--max-num-seqs", "1", "--no-access-log", "--served-model-name", "it"]
        self.process = subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self.log, text=True)
        ready = self.process.stdout.readline()
        if not ready.startswith("ready http://"):
            self.log.seek(0)
            sys.exit(f"quire did not start:\n{self.log.read().decode()}")
        self.url = ready.split()[1]

    def post(self, path, body):
        request = urllib.request.Request(self.url + path, json.dumps({"model": "it", **body}).encode(),
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=4 * 3600) as reply:
            return json.load(reply)

    def tokenize(self, text):
        return self.post("/tokenize", {"prompt": text, "add_special_tokens": False})["tokens"]

    def bos(self):
        return self.post("/tokenize", {"prompt": ""})["tokens"][:1]

    def text(self, ids):
        return self.post("/detokenize", {"tokens": ids})["prompt"]

    def answer(self, ids):
        choice = self.post("/v1/completions", {"prompt": ids, "max_tokens": N_ANSWER, "temperature": 0, "ignore_eos": True,
                                               "logprobs": 0, "return_token_ids": True})["choices"][0]
        return choice["token_ids"], choice["logprobs"]["token_logprobs"]

    def stop(self):
        self.process.terminate()
        self.process.wait(60)


# ---- the reference ----

def frequencies(rotary, config, length, layer_type):
    """By the reference's functions, which say float32 by three names; here all of them mean float64."""
    kind = rotary.rope_type if layer_type is None else rotary.rope_type[layer_type]
    of_layer = {} if layer_type is None else {"layer_type": layer_type}
    make = rotary.compute_default_rope_parameters if kind == "default" else ROPE_INIT_FUNCTIONS[kind]
    kept = torch.float, torch.float32, torch.Tensor.float
    torch.float = torch.float32 = torch.float64
    torch.Tensor.float = torch.Tensor.double
    try:
        return make(config, device=torch.device("cpu"), seq_len=length, **of_layer)
    finally:
        torch.float, torch.float32, torch.Tensor.float = kept


class Reference:
    def __init__(self, args, folder, length):
        torch.set_num_threads(args.threads)
        self.model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32,
                                                                      attn_implementation="sdpa").eval()
        rotary, made = self.model.model.rotary_emb, {}

        def angles(_, x, position_ids, layer_type=None):
            if layer_type not in made:
                made[layer_type] = frequencies(rotary, self.model.config, length, layer_type)
            inverse, scale = made[layer_type]
            a = position_ids[..., None].double() * inverse
            a = torch.cat((a, a), -1)
            return (a.cos() * scale).float(), (a.sin() * scale).float()

        rotary.forward = types.MethodType(angles, rotary)

    def read(self, ids, cache, at):
        """Log probabilities after the last of the ids, which begin at position `at`."""
        with torch.no_grad():
            for i in range(0, len(ids), CHUNK):
                part = ids[i : i + CHUNK]
                positions = torch.arange(at + i, at + i + len(part))[None]
                out = self.model(torch.tensor([part]), past_key_values=cache, position_ids=positions, logits_to_keep=1)
        return torch.log_softmax(out.logits[0, -1].double(), -1)

    def start(self, ids):
        self.cache = transformers.DynamicCache(config=self.model.config)
        self.n = len(ids)
        self.read(ids, self.cache, 0)

    def answer(self, question):
        cache, n, tokens, logprobs = copy.deepcopy(self.cache), self.n + len(question), [], []
        row = self.read(question, cache, self.n)
        gaps = []
        for i in range(N_ANSWER):
            best = row.topk(2)
            tokens.append(int(best.indices[0]))
            logprobs.append(float(best.values[0]))
            gaps.append(float(best.values[0] - best.values[1]))
            if i + 1 < N_ANSWER:
                row = self.read(tokens[-1:], cache, n + i)
        return tokens, logprobs, gaps


# ---- both ----

def ask_quire(args, folder, length):
    start = time.monotonic()
    quire = Quire(args, folder, length)
    try:
        text = Text(quire.tokenize, length, args.depths, quire.bos())
        answers = [quire.answer(text.ids + question) for question in text.questions]
        found = [number in quire.text(tokens) for number, (tokens, _) in zip(text.numbers, answers)]
        said = [quire.text(tokens) for tokens, _ in answers]
    finally:
        quire.stop()
    return text, answers, found, said, time.monotonic() - start


def alike(a, b):
    return next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), len(a))


def measure(args, kind, length):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        write_config(args.folder, folder, kind, args.original or length // 2, length)
        text, ours, found, said, our_s = ask_quire(args, folder, length)
        start = time.monotonic()
        reference = Reference(args, folder, length)
        reference.start(text.ids)
        theirs = [reference.answer(question) for question in text.questions]
    rows = []
    for depth, number, (a, p), (b, q, gaps), is_found, words in zip(args.depths, text.numbers, ours, theirs, found, said):
        n = alike(a, b)
        rows.append({"scaling": kind, "length": length, "depth": depth, "number": number, "said": words, "found": is_found,
                     "alike": n, "gap": gaps[n] if n < N_ANSWER else None, "ours": a, "theirs": b,
                     "distance": max((abs(x - y) for x, y in zip(p[:n], q[:n])), default=math.nan)})
        parts = f"parts at {n}, the reference's gap {gaps[n]:.4f}" if n < N_ANSWER else "alike"
        print(f"{kind:9} {length:6} {depth:3} %  {'found' if is_found else '-':6} {parts:8}  log p within "
              f"{rows[-1]['distance']:.1e}  {words!r}", flush=True)
    print(f"{'':9} quire {our_s:.0f} s, transformers {time.monotonic() - start:.0f} s", file=sys.stderr, flush=True)
    return rows


def numbers(text):
    return [int(x) for x in text.split(",")]


def main():
    kinds = ["linear", "dynamic", "llama3", "yarn", "longrope"]
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("folder", type=pathlib.Path)
    p.add_argument("scalings", nargs="*", metavar="SCALING", help=f"of {', '.join(kinds)}; all if none is named")
    p.add_argument("--lengths", type=numbers, default=[16384, 32768])
    p.add_argument("--depths", type=numbers, default=[10, 50, 90], help="in percent of the text, ascending")
    p.add_argument("--original", type=int, help="positions before scaling; half of the length if not given")
    p.add_argument("--quire", default=str(ROOT / "build/quire"))
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--json")
    args = p.parse_args()
    if unknown := set(args.scalings) - set(kinds):
        p.error(f"{unknown.pop()}: known are {', '.join(kinds)}")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    rows = [row for length in args.lengths for kind in args.scalings or kinds for row in measure(args, kind, length)]
    same = sum(row["alike"] == N_ANSWER for row in rows)
    print(f"{same} of {len(rows)} answers are the reference's, {sum(row['found'] for row in rows)} have the number")
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(rows, indent=1))
    sys.exit(0 if same == len(rows) else 1)


main()
