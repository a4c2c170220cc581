"""quire plan: the memory that serve then reports, byte for byte; formulas against numbers that are known."""

import json

import hf_folder
import pytest
from conftest import make_model
from encoders import encoder_file
from harness import Server, plan_of, run

SETTINGS = [
    ("--kv-cache-memory-bytes", "4Mi"),
    ("--max-num-seqs", "4", "--max-model-len", "128"),
    ("--max-num-seqs", "8", "--max-num-batched-tokens", "256", "--block-size", "64", "--dtype", "float32", "--max-queue", "7"),
    ("--kv-cache-memory-bytes", "16Mi", "--threads", "1", "--dtype", "float16", "--no-enable-prefix-caching"),
]


def plan(*args, code=0):
    done = run("plan", *args, "--json")
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout)


def model_of(kind, tmp_path):
    """Models with a tokenizer, as serve needs one; other families are compared in tests/unit/plan."""
    if kind in ("bert", "cross"):
        return encoder_file(kind)[1]
    options = {
        "plain": ("--type", "Q8_0"),
        "windows": ("--type", "Q4_0", "--sliding-window", "40"),
        "tied": ("--type", "BF16", "--tied", "--rope-freqs"),
        "folder": ("--type", "F32", "--pre", "gpt-2"),
    }[kind]
    path = make_model(*options, "--layers", "2", "--width", "64", "--ff", "96", "--head-dim", "16")
    return hf_folder.write(tmp_path / "folder", path) if kind == "folder" else path


@pytest.mark.parametrize("kind", ["plain", "windows", "tied", "folder", "bert", "cross"])
def test_memory_is_what_serve_reports(kind, tmp_path):
    model = model_of(kind, tmp_path)
    for flags in SETTINGS:
        planned = plan(model, *flags)
        with Server(model, *flags) as server:
            told = plan_of(server.stderr())
            metrics = {key[1]: v for key, v in server.metrics().items() if key[0] == "quire_memory_plan_bytes"}
            assert server.resident_bytes() <= told["total"] * 1.02
        assert planned["memory"] == told, (kind, flags)
        assert metrics == told and len(told) == 6


def test_default_model(default_model):
    flags = ("--kv-cache-memory-bytes", "64Mi", "--max-num-batched-tokens", "1024")
    planned = plan(default_model, *flags)
    assert planned["kv"]["bytes_per_token"] == 30 * 2 * 3 * 64 * 2
    assert planned["model"]["parameters"] == pytest.approx(134_515_008)  # of its card on the hub: 135M, tied
    with Server(default_model, *flags, timeout=120) as server:
        assert planned["memory"] == plan_of(server.stderr())


def test_text_says_the_same(tiny_model):
    flags = (tiny_model, "--kv-cache-memory-bytes", "4Mi")
    done = run("plan", *flags)
    assert done.returncode == 0 and plan_of(done.stdout) == plan(*flags)["memory"]
    assert "#" in done.stdout


@pytest.mark.parametrize(
    "args, says",
    [
        ((), "no model given"),
        (("a", "b"), '"b" is one too many'),
        (("no-such-model",), "there is no model"),
        (("smollm2", "--block-size", "40"), "block-size"),
        (("smollm2", "--max-model-len", "99999999"), "max-model-len"),
        (("smollm2", "--seed", "3"), "seed"),
    ],
)
def test_bad_input(args, says):
    done = run("plan", *args)
    lines = done.stderr.strip().splitlines()
    assert done.returncode == 2 and len(lines) == 1 and says in lines[0], done.stderr
