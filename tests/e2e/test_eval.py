"""`quire eval`: figures beside other implementations' (tests/golden/eval_perplexity.py), bad input, interruption, resuming,
comparing."""

import json
import math
import os
import re
import shutil
import signal
import stat
import subprocess
import time

import numpy as np
import pytest
from conftest import make_model
from harness import BINARY, PATIENCE, ROOT, Server, environment, run
from test_cli import fails

GOLDEN = json.loads((ROOT / "tests" / "data" / "eval" / "perplexity.json").read_text())
CLASSICS = ROOT / "data" / "eval" / "classics.txt"
SHORT = ("--max-windows", "3", "--context", "64")


@pytest.fixture(scope="module")
def tiny_f32():
    return make_model("--type", "F32", "--layers", "2", "--width", "64", "--ff", "96", "--head-dim", "16")


def evaluate(kind, *args, code=0, timeout=300, env=None):
    done = run("eval", kind, *args, timeout=timeout, env=env)
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
    assert "Sanitizer" not in done.stderr and "runtime error" not in done.stderr
    return done.stdout


def result(tmp_path, kind, *args, name="result.json", **k):
    path = tmp_path / name
    out = evaluate(kind, *args, "--json", path, **k)
    assert not path.with_suffix(".json.partial").exists()
    return out, json.loads(path.read_text())


# ---- perplexity ----


@pytest.mark.parametrize("row", GOLDEN["tiny-F32.gguf"]["rows"], ids=lambda r: f"{r['context']}-{r['stride']}")
def test_perplexity_is_that_of_transformers(tmp_path, tiny_f32, row):
    _, r = result(tmp_path, "perplexity", tiny_f32, "--dtype", "float32", "--context", row["context"], "--stride",
                  row["stride"], "--max-windows", row["max_windows"])
    assert r["complete"] and r["setup"]["text_tokens"] == GOLDEN["tiny-F32.gguf"]["text_tokens"]
    assert (r["summary"]["windows"], r["summary"]["tokens"]) == (row["windows"], row["tokens"])
    assert r["summary"]["perplexity"] == pytest.approx(row["perplexity"], rel=1e-4)


def test_perplexity_of_the_default_model(tmp_path, default_model):
    """On the whole built-in text, beside llama-perplexity, and beside transformers with the weights dequantized: products
    with quantized weights have 8-bit inputs here, which alone is 0.0027 nats of KL divergence."""
    row = GOLDEN["SmolLM2-135M-Instruct.Q4_1.gguf"]["rows"][0]
    out, r = result(tmp_path, "perplexity", default_model, "--dtype", "float32")
    assert r["summary"]["windows"] == row["windows"] == 11
    assert r["summary"]["perplexity"] == pytest.approx(row["perplexity"], rel=1e-2)
    assert r["summary"]["perplexity"] == pytest.approx(GOLDEN["llama-perplexity"]["perplexity"], rel=5e-3)
    assert r["summary"]["error"] == pytest.approx(GOLDEN["llama-perplexity"]["error"], rel=5e-3)
    assert f"{r['summary']['perplexity']:.4f} +/- {r['summary']['error']:.4f}" in out


def test_sums_add_up(tmp_path, tiny_model):
    _, r = result(tmp_path, "perplexity", tiny_model, *SHORT)
    assert [i["id"] for i in r["items"]] == ["0", "1", "2"] and all(i["tokens"] == 31 for i in r["items"])
    nll = sum(i["nll"] for i in r["items"]) / 93
    squares = sum(i["nll_squares"] for i in r["items"]) / 93
    assert r["summary"]["perplexity"] == pytest.approx(math.exp(nll))
    assert r["summary"]["error"] == pytest.approx(math.exp(nll) * math.sqrt((squares - nll**2) / 92))


def test_answers_depend_on_the_request_alone(tmp_path, tiny_model):
    """Threads, sequences at a time and steps change no bit of any window."""
    items = []
    for args in (["--threads", "1", "--max-num-seqs", "1"], ["--threads", "3"], ["--max-num-batched-tokens", "40"]):
        _, r = result(tmp_path, "perplexity", tiny_model, "--context", "100", "--max-windows", "9", *args)
        items.append(r["items"])
    assert items[0] == items[1] == items[2]


def test_bos_replaces_the_first_token(tmp_path, bos_model):
    """A model that adds BOS has it in front of every window, as with llama-perplexity; strided windows have it once."""
    text = tmp_path / "t.txt"
    text.write_text("a" + "the cat sat on a mat " * 60)
    other = tmp_path / "u.txt"
    other.write_text("b" + "the cat sat on a mat " * 60)
    _, r = result(tmp_path, "perplexity", bos_model, "--text", text, *SHORT)
    _, s = result(tmp_path, "perplexity", bos_model, "--text", other, *SHORT)
    # tokens: BOS, a or b, ...: the second token differs, so the first window's contexts do, and no other's
    assert r["items"][0] != s["items"][0] and r["items"][1:] == s["items"][1:]


# ---- distance from a reference ----


def log_softmax(x):
    x = x.astype(np.float64)
    return x - x.max(-1, keepdims=True) - np.log(np.exp(x - x.max(-1, keepdims=True)).sum(-1, keepdims=True))


def read_reference(path):
    """Rows of the documented format: log probabilities [row][token], and the text's tokens."""
    raw = path.read_bytes()
    assert raw[:8] == b"QUIREKLD"
    version, header = np.frombuffer(raw, "<u4", 2, 8)
    n_vocab, row_bytes, _, _, _, _, _, n_rows = (int(v) for v in np.frombuffer(raw, "<u8", 8, 16))
    assert version == 1 and len(raw) == header + n_rows * row_bytes
    p, tokens = np.zeros((n_rows, n_vocab)), []
    for i in range(n_rows):
        at = int(header) + i * row_bytes
        largest, step = np.frombuffer(raw, "<f4", 2, at).astype(float)
        tokens.append(int(np.frombuffer(raw, "<u4", 1, at + 12)[0]))
        p[i] = largest - step * np.frombuffer(raw, "<u2", n_vocab, at + 24)
    return log_softmax(p), tokens


def test_kl(tmp_path, tiny_f32, tiny_model):
    a, b = tmp_path / "a.kl", tmp_path / "b.kl"
    _, saved = result(tmp_path, "kl", tiny_f32, "--save", a, *SHORT)
    evaluate("kl", tiny_model, "--save", b, *SHORT)
    _, own = result(tmp_path, "perplexity", tiny_f32, *SHORT)
    assert saved["summary"] == own["summary"]
    p, tokens = read_reference(a)
    q, _ = read_reference(b)
    assert -p[range(93), tokens].mean() == pytest.approx(math.log(own["summary"]["perplexity"]), abs=1e-3)
    want = (np.exp(p) * (p - q)).sum(1)
    out, r = result(tmp_path, "kl", tiny_model, "--reference", a, *SHORT)
    s = r["summary"]
    assert s["kl_mean"] == pytest.approx(want.mean(), rel=1e-2)
    for name, share in (("kl_p50", 0.5), ("kl_p90", 0.9), ("kl_p99", 0.99), ("kl_max", 1)):
        assert s[name] == pytest.approx(np.quantile(want, share), rel=2e-2), name
    assert s["top1"] == pytest.approx((p.argmax(1) == q.argmax(1)).mean(), abs=2 / 93)
    assert s["reference_perplexity"] == pytest.approx(own["summary"]["perplexity"], rel=1e-5)
    assert s["perplexity"] == pytest.approx(math.exp(sum(i["nll"] for i in r["items"]) / 93))
    # a model beside itself
    _, r = result(tmp_path, "kl", tiny_f32, "--reference", a, *SHORT)
    assert abs(r["summary"]["kl_max"]) < 1e-6 and r["summary"]["top1"] == 1


def test_reference_that_does_not_match(tmp_path, tiny_f32):
    reference, text = tmp_path / "a.kl", tmp_path / "t.txt"
    evaluate("kl", tiny_f32, "--save", reference, *SHORT)
    text.write_text(CLASSICS.read_text() + ".")
    base = ("eval", "kl", tiny_f32, "--reference")
    fails(*base, reference, *SHORT, "--text", text, says=["--reference", "another text"])
    fails(*base, reference, "--context", "32", says=["--context 64 --stride 0, not 32 and 0"])
    fails(*base, reference, *SHORT, "--stride", "32", says="not 64 and 32")
    other = make_model("--type", "F32", "--layers", "1", "--width", "64", "--ff", "64", "--vocab", "700")
    fails("eval", "kl", other, "--reference", reference, *SHORT, says="another tokenizer")
    fails(*base, CLASSICS, *SHORT, says="not a file of reference distributions")
    fails(*base, tmp_path / "none", *SHORT, says="No such file")
    cut = tmp_path / "cut.kl"
    cut.write_bytes(reference.read_bytes()[:-100])
    fails(*base, cut, *SHORT, code=1, says="cut short")
    fails("eval", "kl", tiny_f32, *SHORT, says="one of --save FILE and --reference FILE")
    fails("eval", "kl", tiny_f32, "--save", tmp_path / "no" / "x", *SHORT, says="cannot be written")
    # more windows than the reference has: those that it has
    _, r = result(tmp_path, "kl", tiny_f32, "--reference", reference, "--context", "64")
    assert r["summary"]["windows"] == 3


# ---- tasks ----

TASKS = [
    {"id": "sky", "prompt": "The color of the clear daytime sky is", "choices": [" table", " blue", " seventeen"], "answer": 1},
    {"id": "fr", "prompt": "The capital of France is ", "choices": ["Paris", "Berlin", "a banana"], "answer": 0},
    {"id": "é", "prompt": "Café is spelled with an é. The", "choices": [" é", " sun", " x é y"], "answer": 1},
    {"id": "rome", "prompt": "Q: What is the capital of Italy?\nA: The capital of Italy is", "answer": ["Rome"], "stop": [".", "\n"]},
    {"prompt": "1, 2, 3, 4, 5,", "answer": "6", "max_tokens": 2, "stop": ","},
]


def write_tasks(tmp_path, tasks=TASKS):
    path = tmp_path / "tasks.jsonl"
    path.write_text("".join(json.dumps(t, ensure_ascii=False) + "\n" for t in tasks))
    return path


def test_tasks(tmp_path, default_model):
    out, r = result(tmp_path, "tasks", default_model, "--file", write_tasks(tmp_path), "--max-model-len", "512")
    by_id = {i["id"]: i for i in r["items"]}
    assert list(by_id) == ["sky", "fr", "é", "rome", "5"]
    assert [by_id[i]["correct"] for i in ("sky", "fr", "rome", "5")] == [1, 1, 1, 1], out
    assert r["summary"]["multiple_choice"] == 3 and r["summary"]["exact_match"] == 2
    assert re.search(r"^exact match +2 +100\.00 %", out, re.M)


def test_choices_are_scored_as_the_server_scores(tmp_path, smollm2, default_model):
    """A choice's log probability is the sum of prompt_logprobs over its tokens; a server asked over HTTP agrees."""
    path = write_tasks(tmp_path)
    _, local = result(tmp_path, "tasks", default_model, "--file", path, "--max-model-len", "512")
    _, remote = result(tmp_path, "tasks", smollm2.url, "--file", path, name="remote.json")
    for a, b in zip(local["items"], remote["items"]):
        assert (a["id"], a["correct"], a["correct_normalized"]) == (b["id"], b["correct"], b["correct_normalized"])
        assert a["logprob"] == pytest.approx(b["logprob"], abs=1e-5)
    for task, item in list(zip(TASKS, local["items"]))[:3]:
        prompt = task["prompt"].rstrip(" ")
        text = task["prompt"] + task["choices"][task["answer"]]
        ids = smollm2.ok("/tokenize", {"prompt": text})["tokens"]
        n = len(smollm2.ok("/tokenize", {"prompt": prompt})["tokens"])
        scores = smollm2.complete(ids, max_tokens=1, prompt_logprobs=0)["prompt_logprobs"][n:]
        want = sum(s[str(t)]["logprob"] for s, t in zip(scores, ids[n:], strict=True))
        assert item["logprob"] == pytest.approx(want, abs=1e-5), task
    assert remote["model"]["url"] == smollm2.url


def test_tasks_of_a_chat(tmp_path, smollm2, default_model):
    tasks = [{"prompt": "What is the capital of France?", "answer": ["paris"], "max_tokens": 30}]
    args = ("--file", write_tasks(tmp_path, tasks), "--chat", "--temperature", "0.7", "--task-seed", "5")
    evaluate("tasks", default_model, *args, "--max-model-len", "512")
    evaluate("tasks", smollm2.url, *args)
    done = run("eval", "tasks", smollm2.url, "--file", write_tasks(tmp_path), "--chat")
    assert done.returncode == 2 and "tasks.jsonl:1: a server does not score continuations of a chat" in done.stderr
    # in this process it does
    evaluate("tasks", default_model, "--file", write_tasks(tmp_path, TASKS[:1]), "--chat", "--max-model-len", "512")


def test_bad_tasks(tmp_path, tiny_model):
    path = tmp_path / "tasks.jsonl"
    path.write_text('{"prompt": "a", "answer": "b"}\n{"prompt": "a", "answer": }\n')
    base = ("eval", "tasks", tiny_model, "--file")
    fails(*base, path, code=1, says=["tasks.jsonl:2", "not valid JSON"])
    fails(*base, tmp_path / "none", says=["--file", "No such file"])
    fails("eval", "tasks", tiny_model, says="--file TASKS.jsonl is needed")
    fails(*base, path, "--model", "x", "--limit", "1", says="without a URL")
    path.write_text('{"prompt": "a", "answer": "b"}\n')
    fails("eval", "tasks", "http://127.0.0.1:1", "--file", path, code=1, says=["127.0.0.1", "no answer"])
    fails("eval", "tasks", "http://127.0.0.1:1", "--file", path, "--dtype", "float32", says="the server's to set")
    path.write_text(json.dumps({"prompt": "1" * 500, "answer": "b"}) + "\n")
    fails(*base, path, "--max-model-len", "128", code=1, says=["tasks.jsonl:1: ", "500", "128"])


def test_server_without_scores_or_model(tmp_path, tiny):
    path = write_tasks(tmp_path, TASKS[3:])
    fails("eval", "tasks", tiny.url, "--file", path, "--model", "other", says='no model "other"')
    evaluate("tasks", tiny.url + "/v1/", "--file", path, "--model", "tiny", "--concurrency", "1")


# ---- needle ----


def test_needle(tmp_path, default_model):
    args = ("--lengths", "512,1k", "--depths", "0,50,100", "--repeats", "1")
    out, r = result(tmp_path, "needle", default_model, *args)
    assert [i["id"] for i in r["items"]] == [f"{n}@{d}#0" for n in (512, 1024) for d in (0, 50, 100)]
    for i in r["items"]:
        assert i["length"] - 8 <= i["tokens"] <= i["length"]
    assert r["summary"]["found"] >= 0.5, out
    _, again = result(tmp_path, "needle", default_model, *args)
    assert again == r
    _, other = result(tmp_path, "needle", default_model, *args, "--no-chat", "--task-seed", "1")
    assert other["setup"]["chat"] is False and r["setup"]["chat"] is True


def test_needle_bad_input(tiny_model):
    base = ("eval", "needle", tiny_model)
    for lengths in ("", "1k,", "abc", "1", "1k 2k", "-5", "nan", "99999999999"):
        fails(*base, "--lengths", lengths, says="--lengths is")
    fails(*base, "--depths", "101", says="from 0 to 100")
    fails(*base, "--lengths", "4k", "--max-model-len", "1024", says=["--lengths: 4096 tokens", "1024"])
    fails("eval", "needle", "http://127.0.0.1:1", says="in this process")
    fails(*base, "--lengths", "64", says="not enough for the question")


# ---- comparing ----


def fake(path, kind="perplexity", setup=None, items=(), **more):
    path.write_text(json.dumps({"format": 1, "kind": kind, "complete": True, "model": {}, "setup": setup or {"text": "x"},
                                "summary": {}, "items": list(items), **more}))
    return path


def test_compare_is_right(tmp_path):
    """Against a bootstrap by numpy with its own random numbers."""
    rng = np.random.default_rng(1)
    n = 200
    a = rng.normal(3, 0.3, n) * 255
    b = a * 1.004 + rng.normal(0, 2, n)
    first, second = (
        fake(tmp_path / f"{name}.json", items=[{"id": str(i), "tokens": 255, "nll": v} for i, v in enumerate(values)])
        for name, values in (("a", a), ("b", b))
    )
    out = tmp_path / "c.json"
    done = run("eval", "compare", first, second, "--json", out, "--max-ppl-increase", "2%")
    r = json.loads(out.read_text())["figures"][0]
    draws = rng.integers(0, n, (20000, n))
    found = np.exp((b - a)[draws].sum(1) / (255 * n)) - 1
    low, high = np.quantile(found, [0.025, 0.975])
    assert r["worse_by"] == pytest.approx(math.exp((b - a).sum() / (255 * n)) - 1, rel=1e-9)
    assert r["low"] == pytest.approx(low, abs=(high - low) * 0.05) and r["high"] == pytest.approx(high, abs=(high - low) * 0.05)
    assert r["first"] == pytest.approx(math.exp(a.mean() / 255)) and r["verdict"] == "pass" and done.returncode == 0
    assert run("eval", "compare", first, second, "--max-ppl-increase", "0.1%").returncode == 3
    near = r["worse_by"]
    assert run("eval", "compare", first, second, "--max-ppl-increase", str(near)).returncode == 4
    assert run("eval", "compare", second, first, "--max-ppl-increase", "0").returncode == 0  # better


def test_compare_accuracies(tmp_path):
    def items(right, choices):
        return [{"id": str(i), "choices": choices, "correct": int(i < right), "correct_normalized": int(i < right)}
                for i in range(100)]

    good = fake(tmp_path / "a.json", "tasks", {"tasks": "x"}, items(90, 4))
    bad = fake(tmp_path / "b.json", "tasks", {"tasks": "x"}, items(60, 4))
    done = run("eval", "compare", good, bad)
    assert done.returncode == 3 and "verdict: FAIL" in done.stdout and "multiple choice" in done.stdout
    assert run("eval", "compare", good, bad, "--max-accuracy-drop", "50%").returncode == 0
    assert "exact match" not in done.stdout
    exact = fake(tmp_path / "c.json", "tasks", {"tasks": "x"}, items(90, 0))
    assert "multiple choice" not in run("eval", "compare", exact, exact).stdout


def test_compare_refuses(tmp_path, tiny_model):
    item = {"id": "0", "tokens": 1, "nll": 1}
    a = fake(tmp_path / "a.json", items=[item])
    fails("eval", "compare", a, says="usage")
    fails("eval", "compare", a, tmp_path / "none", says="No such file")
    fails("eval", "compare", a, CLASSICS, code=1, says="classics.txt: line 1")
    (tmp_path / "o.json").write_text("{}")
    fails("eval", "compare", a, tmp_path / "o.json", code=1, says="not a result of quire eval")
    fails("eval", "compare", a, fake(tmp_path / "b.json", "kl"), says="one result is of perplexity, the other of kl")
    fails("eval", "compare", a, fake(tmp_path / "b.json", setup={"text": "y"}), says='text is "x" in one and "y"')
    fails("eval", "compare", a, fake(tmp_path / "b.json", items=[{**item, "id": "1"}]), says="no item in common")
    fails("eval", "compare", a, fake(tmp_path / "b.json", items=[item, item]), code=1, says="no id of its own")
    fails("eval", "compare", fake(tmp_path / "b.json", items=[item, item]), a, code=1, says="b.json: item 1 has no id of its own")
    fails("eval", "compare", a, fake(tmp_path / "b.json", setup={"text": "x", "context": 5}), says="context is absent in one")
    fails("eval", "compare", a, fake(tmp_path / "b.json", items=[{**item, "tokens": 2}]), code=1, says="another weight")
    before = a.read_bytes()
    fails("eval", "compare", a, tmp_path / "b.json", "--json", a, says="is the file of a result, too")
    assert a.read_bytes() == before
    for value in ("x", "-1", "1%%", "nan", ""):
        fails("eval", "compare", a, a, "--max-ppl-increase", value, says="--max-ppl-increase is")
    # a single item tells nothing
    assert run("eval", "compare", a, a).returncode == 4


def test_compare_of_two_models(tmp_path, tiny_model, tiny_f32):
    result(tmp_path, "perplexity", tiny_f32, "--context", "64", name="a.json")
    result(tmp_path, "perplexity", tiny_model, "--context", "64", name="b.json")
    done = run("eval", "compare", tmp_path / "a.json", tmp_path / "b.json", "--max-ppl-increase", "50%")
    assert done.returncode == 0 and "pass" in done.stdout, done.stdout


# ---- bad input, interruption ----


def test_bad_input(tmp_path, tiny_model):
    base = ("eval", "perplexity", tiny_model)
    short, empty = tmp_path / "s.txt", tmp_path / "e.txt"
    short.write_text("1" * 100)
    empty.write_text("")
    fails(*base, "--text", short, "--context", "64", says=["s.txt", "too short", "100 tokens, at least 128"])
    fails(*base, "--text", empty, says="e.txt is empty")
    fails(*base, "--text", tmp_path / "none", says=["--text", "No such file"])
    fails(*base, "--context", "1", says="--context")
    fails(*base, "--context", "64", "--stride", "65", says="--stride is 65")
    fails(*base, "--context", "512", "--max-model-len", "256", says=["--context is 512", "--max-model-len 256"])
    fails(*base, "--context", "100000", says=["--context: ", "100000"])
    fails(*base, "--resume", says="--resume goes with --json")
    fails(*base, "--json", tmp_path / "no" / "x.json", says=["--json", "cannot be written"])
    fails(*base, "--json", short, "--text", short, says="is the file of --text, too: each needs its own")
    fails("eval", "kl", tiny_model, "--text", short, "--save", short, says="is the file of --text, too")
    fails("eval", "kl", tiny_model, "--save", tmp_path / "new", "--json", tmp_path / "new", says="is the file of --save, too")
    os.mkfifo(tmp_path / "fifo")  # a device would be replaced by a file
    fails(*base, "--context", "64", "--json", tmp_path / "fifo", says="--json " + str(tmp_path / "fifo") + " is not a regular file")
    assert stat.S_ISFIFO((tmp_path / "fifo").stat().st_mode) and short.read_text() == "1" * 100
    fails("eval", "perplexity", says="usage")
    fails("eval", "perplexity", "http://127.0.0.1:1", says="in this process")
    fails("eval", "perplexity", tmp_path / "none.gguf", says="none.gguf")
    assert not list(tmp_path.glob("*.partial"))
    fails("eval", "perplexty", tiny_model, says="did you mean perplexity")
    assert "compare" in run("eval", "--help").stdout


def interrupt(command, partial, lines):
    """SIGINT once the journal has so many lines."""
    process = subprocess.Popen([BINARY, *map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               env=environment())
    end = time.monotonic() + 120 * PATIENCE
    while not partial.exists() or partial.read_bytes().count(b"\n") < lines:
        assert process.poll() is None and time.monotonic() < end, process.stderr.read()
        time.sleep(0.002)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60 * PATIENCE)
    return process.returncode, out, err


@pytest.mark.parametrize("kind", ["perplexity", "save", "reference"])
def test_interrupted_and_resumed(tmp_path, tiny_f32, kind):
    """What was measured is kept and shown; resuming gives the same result as a run in one go."""
    path = tmp_path / "r.json"
    partial = tmp_path / "r.json.partial"
    extra = {"perplexity": ["--stride", "2"], "save": ["--save", tmp_path / "s.kl"],
             "reference": ["--reference", tmp_path / "ref.kl"]}[kind]
    args = ["eval", "perplexity" if kind == "perplexity" else "kl", tiny_f32, "--context", "64", "--threads", "1", *extra]
    if kind == "reference":
        evaluate("kl", *args[2:-2], "--save", tmp_path / "ref.kl")
    whole = tmp_path / "whole.json"
    assert run(*args, "--json", whole, timeout=300).returncode == 0
    if kind == "save":
        shutil.copy(tmp_path / "s.kl", tmp_path / "whole.kl")
    code, out, err = interrupt([*args, "--json", path], partial, 4)
    if code == 0:
        pytest.skip("the run was over before it was interrupted")
    assert code == 130 and "interrupted" in err and "perplexity" in out
    kept = json.loads(path.read_text())
    assert not kept["complete"] and 3 <= len(kept["items"]) < len(json.loads(whole.read_text())["items"])
    # a line whose values are no numbers is refused, a torn last line does not count, another run's journal is refused
    good = partial.read_bytes()
    partial.write_bytes(good + b'{"i": 900, "v": ["1", "2", "3"]}\n')
    refused = run(*args, "--json", path, "--resume")
    assert refused.returncode == 1 and "is not a line of results" in refused.stderr
    partial.write_bytes(good)
    with open(partial, "ab") as f:
        f.write(b'{"i": 900, "v": [1')
    refused = run(*args, "--json", path, "--resume", "--dtype", "float32")
    assert refused.returncode == 2 and "another run: dtype differs" in refused.stderr
    done = run(*args, "--json", path, "--resume", timeout=300)
    assert done.returncode == 0 and not partial.exists(), done.stderr
    assert json.loads(path.read_text()) == json.loads(whole.read_text())
    if kind == "save":
        assert (tmp_path / "s.kl").read_bytes() == (tmp_path / "whole.kl").read_bytes()


def test_server_that_dies(tmp_path, tiny_model):
    """One clear line, and what was answered is kept."""
    tasks = [{"prompt": f"{i} and", "answer": "x", "max_tokens": 200} for i in range(500)]
    path, partial = tmp_path / "r.json", tmp_path / "r.json.partial"
    with Server(tiny_model, "--kv-cache-memory-bytes", "8Mi", expect_exit=-signal.SIGKILL) as server:
        process = subprocess.Popen(
            [BINARY, "eval", "tasks", server.url, "--file", str(write_tasks(tmp_path, tasks)), "--json", str(path)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment())
        end = time.monotonic() + 60 * PATIENCE
        while not partial.exists() or partial.read_bytes().count(b"\n") < 4:
            assert process.poll() is None and time.monotonic() < end
            time.sleep(0.005)
        server.process.kill()
        out, err = process.communicate(timeout=60 * PATIENCE)
    assert process.returncode == 1 and len(err.splitlines()) == 1 and "no answer from the server" in err, err
    kept = json.loads(path.read_text())
    assert not kept["complete"] and len(kept["items"]) >= 3 and partial.exists() and "exact match" in out


def test_no_progress_bar_without_a_terminal(tiny_model):
    done = run("eval", "perplexity", tiny_model, *SHORT)
    assert done.returncode == 0 and "[" not in done.stderr and "\r" not in done.stderr


def test_help_and_docs():
    known = set()
    for kind in ("perplexity", "kl", "tasks", "needle", "compare"):
        done = run("eval", kind, "--help")
        assert done.returncode == 0 and done.stdout.startswith(f"usage: quire eval {kind} ") and not done.stderr
        known |= set(re.findall(r"--(?:\[no-\])?([\w-]+)", done.stdout))
        assert f"quire eval {kind} " in (ROOT / "docs" / "eval.md").read_text()
    for name in re.findall(r"`--([a-z][\w-]+)", (ROOT / "docs" / "eval.md").read_text()):
        assert name == "help" or name in known, name
