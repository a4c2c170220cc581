"""Greedy answers of llama.cpp to twenty prompts, with the most likely tokens at each position.

    python model_greedy.py LLAMA_SERVER MODEL.gguf TOKENIZER.json OUT.bin [N_ANSWER]

Starts LLAMA_SERVER on a free port of 127.0.0.1. Needs tokenizers. TOKENIZER.json "-": the prompts are texts to continue, not
chats, and the server makes tokens of them.

OUT.bin, little-endian: "QGR2"; u32 n_sequences; then for each sequence u32 n_prompt, n_answer; u32
token[n_prompt + n_answer]; and for each answer token, what led to it: u32 n_top, top_id[n_top]; f32 top_logprob[n_top].
Where the two most likely tokens are close, more of them are listed.
"""

import json
import socket
import struct
import subprocess
import sys
import time
import urllib.request

from model_text import PROMPTS

N_TOP, N_CLOSE, CLOSE, N_ANSWER = 8, 64, 1.5, 96
# Attention and its cache in float32, as the test runs Quire.
FLAGS = ["-fa", "off", "-ctk", "f32", "-ctv", "f32"]
SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"


def prompt_tokens(tokenizer, text):
    chat = (f"<|im_start|>system\n{SYSTEM}<|im_end|>\n<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n")
    return tokenizer.encode(chat).ids


def post(port, path, body):
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    return json.load(urllib.request.urlopen(request, timeout=300))


def start(server, model):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    process = subprocess.Popen([server, "-m", model, "--host", "127.0.0.1", "--port", str(port), "-t", "1", "-c", "2048",
                                "-np", "1", *FLAGS], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for _ in range(300):
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2)
            return process, port
        except OSError:
            time.sleep(0.2)
    process.kill()
    raise SystemExit("the server does not answer")


def answer(port, prompt, n_answer):
    reply = post(port, "/completion", {"prompt": prompt, "n_predict": n_answer, "temperature": 0, "top_k": 1,
                                       "n_probs": N_CLOSE, "cache_prompt": False, "return_tokens": True,
                                       "post_sampling_probs": False, "repeat_penalty": 1.0})
    steps = reply["completion_probabilities"]
    tokens = [s["id"] for s in steps]
    tops = [[(t["id"], t["logprob"]) for t in s["top_logprobs"]] for s in steps]
    assert all(len(t) == N_CLOSE and t[0][0] == id for t, id in zip(tops, tokens)), "not greedy"
    return tokens, tops


def main():
    server, model, tokenizer_path, out_path = sys.argv[1:5]
    n_answer = int(sys.argv[5]) if sys.argv[5:] else N_ANSWER
    tokenizer = None
    if tokenizer_path != "-":
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_file(tokenizer_path)
    process, port = start(server, model)
    try:
        with open(out_path, "wb") as f:
            f.write(b"QGR2" + struct.pack("<I", len(PROMPTS)))
            for text in PROMPTS:
                prompt = (prompt_tokens(tokenizer, text) if tokenizer else
                          post(port, "/tokenize", {"content": text, "add_special": True})["tokens"])
                tokens, tops = answer(port, prompt, n_answer)
                said = tokenizer.decode(tokens) if tokenizer else post(port, "/detokenize", {"tokens": tokens})["content"]
                print(len(prompt), len(tokens), repr(said)[:100], flush=True)
                f.write(struct.pack("<2I", len(prompt), len(tokens)))
                f.write(struct.pack(f"<{len(prompt) + len(tokens)}I", *prompt, *tokens))
                for top in tops:
                    n = N_CLOSE if top[0][1] - top[1][1] < CLOSE else N_TOP
                    f.write(struct.pack(f"<{n + 1}I", n, *(id for id, _ in top[:n])))
                    f.write(struct.pack(f"<{n}f", *(p for _, p in top[:n])))
    finally:
        process.terminate()
        process.wait()


main()
