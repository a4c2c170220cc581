"""Requests to a server over HTTP, made by `quire bench serve`: the one way in which the scripts here measure servers."""

import json
import pathlib
import subprocess
import sys
import tempfile


def drive(quire, url, prompts, n_out, streams, extra=None):
    """Sends the prompts (lists of token ids), `streams` at once, each streamed and with exactly n_out tokens out. Returns the
    summary and the records of docs/bench.md; times count from the start of the run."""
    with tempfile.TemporaryDirectory() as folder:
        batch, out = pathlib.Path(folder) / "batch.jsonl", pathlib.Path(folder) / "serve.json"
        with open(batch, "w") as file:
            for i, prompt in enumerate(prompts):
                body = {"prompt": prompt, "max_tokens": n_out, "temperature": 0, "ignore_eos": True, **(extra or {})}
                print(json.dumps({"custom_id": str(i), "method": "POST", "url": "/v1/completions", "body": body}), file=file)
        done = subprocess.run([quire, "bench", "serve", url, "--workload", "batch", "--file", batch, "--requests", str(len(prompts)),
                               "--concurrency", str(streams), "--no-progress", "--json", out],
                              stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if done.returncode:
            sys.exit(done.stderr.strip())
        point = json.loads(out.read_text())["points"][0]
    records = point["repeats"][0]["records"]
    sent, asked = sorted(zip(records["input_tokens"], records["output_tokens"])), sorted((len(p), n_out) for p in prompts)
    if sent != asked:
        wrong = [pair for pair in zip(sent, asked) if pair[0] != pair[1]] or [(len(sent), len(asked))]
        sys.exit(f"{url} counts {wrong[0][0]} tokens in and out, asked for were {wrong[0][1]}")
    return point["summary"], records
