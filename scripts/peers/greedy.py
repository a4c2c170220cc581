#!/usr/bin/env python3
"""Compares greedy answers of Quire and of llama.cpp to the same prompts, token for token, from the same GGUF file.

    greedy.py MODEL.gguf --llama LLAMA_SERVER [--judge] [--json OUT.json]

Both servers run one after the other, with K, V and attention in float32. Chats go through each server's own template and text
through each server's own tokenizer; that both give the same ids is checked first. Where answers part, the log probabilities that
both programs give the two candidates are printed: rounding the inputs of products to 8 bits, which both do in ways of their own,
decides between candidates that are close. With --judge the weights are dequantized by the package gguf and run in float32 by
transformers: which candidate it takes, by how many nats, and with how many tokens of each program's answers it agrees.

Needs the package gguf, and for the judge torch, transformers and memory for the model in float32. Exits with 1 if prompts are
tokenized differently or answers part where the judge sees more than --near nats between the candidates and llama.cpp is right."""

import argparse
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

import gguf

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
TEXTS = [
    "def fibonacci(n):\n    \"\"\"Returns the n-th Fibonacci number.\"\"\"\n",
    "#include <stdio.h>\n\nint main(void) {\n    // prints the numbers from 1 to 10\n",
    "SELECT name, count(*) FROM orders JOIN customers ON",
    "class Stack:\n    def __init__(self):\n        self.items = []\n\n    def push(self, item):\n",
    "fn main() {\n    let words = vec![\"apple\", \"pear\", \"plum\"];\n    for word in",
    "{\"name\": \"Ada\", \"born\": 1815, \"languages\": [\"English\", \"French\"]}\n{\"name\": \"Alan\", \"born\":",
    "The capital of France is Paris. The capital of Italy is",
    "It was the best of times, it was the worst of times, it was the age of wisdom,",
    "Water boils at 100 degrees Celsius at sea level because",
    "1, 2, 4, 8, 16, 32,",
    "Der schnelle braune Fuchs springt über den faulen Hund. Am nächsten Tag",
    "Il était une fois, dans un petit village au bord de la mer,",
    "中国的首都是北京。日本的首都是",
    "Москва — столица России. Санкт-Петербург",
    "日本で一番高い山は",
]
CHATS = [
    "Write a Python function that returns the longest word of a sentence.",
    "Explain in two sentences what a hash table is.",
    "Was ist die Hauptstadt von Österreich?",
    "Translate into French: Good morning, how are you?",
    "What is wrong with this code?\n\nfor (int i = 0; i <= n; i++) sum += a[i];",
    "Give me a regular expression for dates like 2024-03-31.",
    "List three uses of salt.",
    "用一句话解释什么是操作系统。",
]
N_TOP = 64


def post(url, path, body):
    request = urllib.request.Request(url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=1800) as reply:
        return json.load(reply)


def ended(tokens, is_end, args):
    return tokens + [args.eos] if is_end and (not tokens or tokens[-1] not in args.controls) else tokens


class Server:
    def __init__(self, command, url=None):
        self.log = tempfile.TemporaryFile()
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE if not url else subprocess.DEVNULL,
                                        stderr=self.log, text=True)
        self.url = url or self.ready_line()
        for _ in range(600):
            try:
                urllib.request.urlopen(self.url + "/health", timeout=2).close()
                return
            except OSError:
                if self.process.poll() is not None:
                    break
                time.sleep(0.5)
        self.fail()

    def ready_line(self):
        line = self.process.stdout.readline()
        if not line.startswith("ready http://"):
            self.fail()
        return line.split()[1]

    def fail(self):
        self.process.terminate()
        self.log.seek(0)
        sys.exit(f"{self.process.args[0]} did not start:\n{self.log.read().decode(errors='replace')[-2000:]}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(60)


class Quire(Server):
    def __init__(self, args):
        self.args = args
        super().__init__([args.quire, "serve", args.model, "--threads", str(args.threads), "--port", "0", "--dtype", args.dtype,
                          "--max-model-len", "2048", "--max-num-seqs", "1", "--no-access-log"])
        self.model = json.load(urllib.request.urlopen(self.url + "/v1/models"))["data"][0]["id"]

    def ids(self, prompt, chat):
        what = {"messages": [{"role": "user", "content": prompt}]} if chat else {"prompt": prompt}
        return post(self.url, "/tokenize", {"model": self.model, **what})["tokens"]

    def complete(self, ids, n, **more):
        body = {"model": self.model, "prompt": ids, "max_tokens": n, "temperature": 0, "return_token_ids": True, **more}
        return post(self.url, "/v1/completions", body)["choices"][0]

    def answer(self, ids, n):
        """Tokens; if the program ended the answer, the token that ends it is the last one."""
        choice = self.complete(ids, n)
        return ended(choice["token_ids"], choice["finish_reason"] == "stop", self.args)

    def logprobs(self, ids, tokens):
        """Of each of the tokens, which may come next."""
        out = []
        for token in tokens:
            row = self.complete([*ids, token], 1, prompt_logprobs=0)["prompt_logprobs"][-1]
            out.append(row[str(token)]["logprob"])
        return out


class Llama(Server):
    def __init__(self, args):
        self.args = args
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        super().__init__([args.llama, "-m", args.model, "--host", "127.0.0.1", "--port", str(port), "-t", str(args.threads), "-c", "2048",
                          "-np", "1", "-fa", "off", "-ctk", "f32", "-ctv", "f32", "--no-warmup", "--jinja"], f"http://127.0.0.1:{port}")

    def ids(self, prompt, chat):
        if chat:
            prompt = post(self.url, "/apply-template", {"messages": [{"role": "user", "content": prompt}]})["prompt"]
        return post(self.url, "/tokenize", {"content": prompt, "add_special": True, "parse_special": True})["tokens"]

    def complete(self, ids, n, **more):
        return post(self.url, "/completion", {"prompt": ids, "n_predict": n, "temperature": 0, "top_k": 1, "repeat_penalty": 1.0,
                                              "cache_prompt": False, "return_tokens": True, **more})

    def answer(self, ids, n):
        reply = self.complete(ids, n)
        return ended(reply["tokens"], reply["stop_type"] == "eos", self.args)

    def logprobs(self, ids, tokens):
        # Taken before the end is left out of the choice. A token that is half a character has none.
        reply = self.complete(ids, 1, n_probs=N_TOP, post_sampling_probs=False, ignore_eos=True)
        steps = reply.get("completion_probabilities") or [{"top_logprobs": []}]
        listed = {t["id"]: t["logprob"] for t in steps[0]["top_logprobs"]}
        return [listed.get(token) for token in tokens]


def ask(server, prompts, n):
    out = []
    for chat, prompt in prompts:
        ids = server.ids(prompt, chat)
        out.append((ids, server.answer(ids, n)))
        print(".", end="", flush=True, file=sys.stderr)
    print(file=sys.stderr)
    return out


def parting(a, b):
    """The first position at which two answers differ, or None. An answer that is the shorter by its end differs there, too."""
    for i, (x, y) in enumerate(zip(a, b)):
        if x != y:
            return i
    return None if len(a) == len(b) else min(len(a), len(b))


def compare(args):
    fields = gguf.GGUFReader(args.model).fields
    args.eos = fields["tokenizer.ggml.eos_token_id"].contents()
    args.controls = {i for i, kind in enumerate(fields["tokenizer.ggml.token_type"].contents()) if kind == gguf.TokenType.CONTROL}
    has_template = "tokenizer.chat_template" in fields
    prompts = [(False, t) for t in TEXTS[: args.prompts]] + [(True, t) for t in CHATS[: args.prompts] if has_template]
    with Quire(args) as quire:
        ours = ask(quire, prompts, args.tokens)
    with Llama(args) as llama:
        theirs = ask(llama, prompts, args.tokens)
        rows = []
        for (chat, text), (ids, a), (other, b) in zip(prompts, ours, theirs):
            row = {"prompt": text, "chat": chat, "ids": ids, "same_ids": ids == other, "ours": a, "theirs": b, "parting": parting(a, b)}
            at = row["parting"]
            if at is not None and row["same_ids"] and at < min(len(a), len(b)):
                row["candidates"] = a[at], b[at]
                row["llama"] = llama.logprobs(ids + a[:at], row["candidates"])
            rows.append(row)
    with Quire(args) as quire:
        for row in rows:
            if "candidates" in row:
                row["quire"] = quire.logprobs(row["ids"] + row["ours"][: row["parting"]], row["candidates"])
    return rows


class Judge:
    def __init__(self, args):
        import torch
        import transformers
        transformers.logging.set_verbosity_error()
        transformers.logging.disable_progress_bar()
        torch.set_num_threads(args.threads)
        folder, _, name = os.path.abspath(args.model).rpartition("/")
        self.torch = torch
        self.model = transformers.AutoModelForCausalLM.from_pretrained(
            folder, gguf_file=name, dtype=torch.float32, quantization_config=transformers.GgufConfig(dequantize=True)).eval()

    def rows(self, ids, answer):
        """Log probabilities [len(answer)][vocabulary] where each token of the answer was chosen."""
        n = len(answer)
        with self.torch.no_grad():
            x = self.model(self.torch.tensor([ids + answer[:-1]]), use_cache=False, logits_to_keep=n).logits[0]
        return self.torch.log_softmax(x.double(), -1)

    def judge(self, row):
        p = self.rows(row["ids"], row["ours"])
        row["agrees_ours"] = int((p.argmax(-1) == self.torch.tensor(row["ours"])).sum())
        if row["parting"] is None:
            row["agrees_theirs"] = row["agrees_ours"]
            return
        q = self.rows(row["ids"], row["theirs"])
        row["agrees_theirs"] = int((q.argmax(-1) == self.torch.tensor(row["theirs"])).sum())
        if "candidates" in row:
            row["judge"] = [float(p[row["parting"]][t]) for t in row["candidates"]]
            row["best"] = int(p[row["parting"]].argmax())


def gap(pair):
    return "   none" if not pair or None in pair else f"{pair[0] - pair[1]:+7.4f}"


def report(rows, args):
    """Prints; returns how many prompts are at fault."""
    faults = 0
    print(f"{'parts at':>8}  {'gap of log p, ours - theirs':38}  prompt\n{'':8}  {'quire':>9} {'llama.cpp':>9} {'float32':>9}")
    for row in rows:
        text = ("chat: " if row["chat"] else "") + row["prompt"].replace("\n", "\\n")[:48]
        if not row["same_ids"]:
            faults += 1
            print(f"{'ids':>8}  {'the prompt is not tokenized alike':38}  {text}")
            continue
        if row["parting"] is None:
            print(f"{'-':>8}  {'':38}  {text}")
            continue
        judged = row.get("judge")
        print(f"{row['parting']:8}  {gap(row.get('quire')):>9} {gap(row.get('llama')):>9} {gap(judged):>9}{'':9}{text}")
        if args.judge and not (judged and judged[0] - judged[1] > -args.near):
            faults += 1
    same = sum(row["same_ids"] and row["parting"] is None for row in rows)
    n = sum(min(len(row["ours"]), len(row["theirs"])) for row in rows)
    kept = sum(len(row["ours"]) if row["parting"] is None else row["parting"] for row in rows)
    print(f"{same} of {len(rows)} answers are identical; {kept} of {n} tokens come before answers part")
    if args.judge:
        for who, name in (("ours", "Quire"), ("theirs", "llama.cpp")):
            print(f"float32 takes {sum(r['agrees_' + who] for r in rows)} of {sum(len(r[who]) for r in rows)} tokens of {name}'s answers")
        close = [r["judge"][0] - r["judge"][1] for r in rows if "judge" in r]
        print(f"where answers part, float32 takes ours {sum(g > 0 for g in close)} and llama.cpp's {sum(g < 0 for g in close)} times, "
              f"by {max((abs(g) for g in close), default=0):.4f} nats at most")
    return faults


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model", help="GGUF file")
    p.add_argument("--llama", required=True, help="llama.cpp's llama-server")
    p.add_argument("--quire", default=str(ROOT / "build/quire"))
    p.add_argument("--dtype", default="float32", help="Quire's --dtype")
    p.add_argument("--tokens", type=int, default=64, help="of each answer")
    p.add_argument("--prompts", type=int, help="so many texts and chats; all if not given")
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--near", type=float, default=0.1, help="nats between candidates that are as good as equal")
    p.add_argument("--judge", action="store_true", help="transformers in float32 decides")
    p.add_argument("--json", help="file for all tokens and figures")
    args = p.parse_args()
    rows = compare(args)
    if args.judge:
        judge = Judge(args)
        for row in rows:
            judge.judge(row)
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(rows, indent=1))
    sys.exit(1 if report(rows, args) else 0)


main()
