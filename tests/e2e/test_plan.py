"""quire plan: the memory that serve then reports, byte for byte; formulas against numbers that are known."""

import json
import math

import hf_folder
import pytest
from conftest import make_model
from encoders import encoder_file
from harness import ROOT, Server, plan_of, run

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


# ---- descriptions without weights ----

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_act": "silu",
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
    "vocab_size": 128256,
    "num_key_value_heads": 8,
    "tie_word_embeddings": False,
}
LLAMA_8B = LLAMA | {"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32}
LLAMA_70B = LLAMA | {"hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80, "num_attention_heads": 64}
LARGE = ("--device", "mi300x", "--device-memory", "2000G")


@pytest.fixture
def config(tmp_path):
    def write(keys):
        path = tmp_path / "config.json"
        path.write_text(json.dumps(keys))
        return path

    return write


def test_kv_by_formula(config):
    """32 layers x 8 heads x 128 elements x 2 x 2 bytes: 128 KiB a token, 1 GiB for 8192, 16 GiB for 16 of them."""
    p = plan(config(LLAMA_8B), *LARGE, "--context", "8192", "--concurrency", "16")
    assert p["kv"]["bytes_per_token"] == 32 * 8 * 128 * 2 * 2 == 128 << 10
    assert p["kv"]["sequence_bytes"] == 1 << 30
    assert p["fit"]["wanted_kv_bytes"] == 16 << 30 and p["fit"]["all_fit"]
    assert [g["kind"] for g in p["kv"]["groups"]] == ["GQA"]


def test_weights_by_formula(config):
    """70.55 billion parameters: 141 GB of 2 bytes each; a block of 32 4-bit numbers with its scale has 18 bytes."""
    path = config(LLAMA_70B)
    p = plan(path, *LARGE, "--max-num-seqs", "1")
    n = p["model"]["parameters"]
    assert n == 70_553_706_496  # as its model card counts them
    vectors = (2 * 80 + 1) * 8192  # in float32
    assert p["model"]["tensor_bytes"] == 2 * n + 2 * vectors
    small = plan(path, *LARGE, "--max-num-seqs", "1", "--weight-format", "q4_0")
    head = 128256 * 8192  # of Q6_K: 210 bytes for 256
    assert small["model"]["tensor_bytes"] == (n - vectors - head) * 18 // 32 + head * 210 // 256 + 4 * vectors


@pytest.mark.parametrize(
    "name, gigabytes",  # of the published files of Llama 3 8B, which hold a tokenizer of less than 10 MB, too
    [("q8_0", 8.54), ("q6_k", 6.60), ("q5_k_m", 5.73), ("q5_k_s", 5.60), ("q4_1", 5.13), ("q4_k_m", 4.92),
     ("q4_k_s", 4.69), ("q4_0", 4.66), ("iq4_nl", 4.68), ("q3_k_m", 4.02), ("q3_k_s", 3.66)],
)  # fmt: skip
def test_published_sizes(config, name, gigabytes):
    p = plan(config(LLAMA_8B), *LARGE, "--max-num-seqs", "1", "--weight-format", name)
    assert -0.006 < gigabytes - p["model"]["tensor_bytes"] / 1e9 < 0.016


def test_types_of_a_published_file(config):
    """Every tensor of a Q4_K_M file, by size."""
    golden = json.loads((ROOT / "tests/data/plan/qwen2.5-coder-1.5b-q4_k_m.json").read_text())
    blocks = {"F32": (1, 4), "Q4_K": (256, 144), "Q6_K": (256, 210)}
    total = 0
    for kind, dims in golden["tensors"].values():
        elements, size = blocks[kind]
        total += math.prod(dims) // elements * size
    p = plan(config(golden["config"]), "--max-num-seqs", "1", "--max-model-len", "64", "--weight-format", "q4_k_m")
    assert p["model"]["tensor_bytes"] == total
    assert p["model"]["parameters"] == sum(math.prod(d) for _, d in golden["tensors"].values())


@pytest.mark.parametrize("kind, name", [("Q8_0", "q8_0"), ("BF16", "bf16"), ("F16", "f16"), ("F32", "f32")])
@pytest.mark.parametrize("tied", [False, True])
def test_config_is_planned_as_the_file(kind, name, tied, tmp_path):
    options = ("--type", kind, "--layers", "3", "--width", "64", "--ff", "96", "--head-dim", "16")
    path = make_model(*options, *(["--tied"] if tied else []))
    folder = hf_folder.write(tmp_path / "folder", path)
    (folder / "model.safetensors").unlink()
    for flags in SETTINGS:
        of_file, of_config = plan(path, *flags), plan(folder, *flags, "--weight-format", name)
        assert of_file["memory"] == of_config["memory"]
        assert of_file["model"]["parameters"] == of_config["model"]["parameters"]
        assert plan(path, *flags, "--weight-format", name)["memory"] == of_file["memory"]


# ---- what would fit ----


def test_refusal_names_what_would_fit(config):
    """Each way out that a refusal names is one, and the next larger value is none."""
    path, flags = config(LLAMA_8B), ("--device-memory", "32G")
    done = run("plan", path, *flags, "--context", "8192", "--concurrency", "64", "--json")
    assert done.returncode == 1 and len(done.stderr.strip().splitlines()) == 1
    advice = json.loads(done.stdout)["advice"]
    assert f"--max-model-len {advice['max_model_len']}" in done.stderr
    assert f"--concurrency {advice['max_num_seqs']}" in done.stderr and "GiB of memory" in done.stderr

    def fits(length, n, memory="32G"):
        return run("plan", path, "--device-memory", memory, "--context", length, "--concurrency", n).returncode == 0

    assert fits(advice["max_model_len"], 64) and not fits(advice["max_model_len"] + 16, 64)
    assert fits(8192, advice["max_num_seqs"]) and not fits(8192, advice["max_num_seqs"] + 1)
    assert fits(8192, 64, advice["memory_bytes"] + (1 << 20)) and not fits(8192, 64, advice["memory_bytes"] - (16 << 20))
    smaller = run("plan", path, "--device-memory", "16G", "--context", "2048", "--concurrency", "1")
    assert smaller.returncode == 1 and "--weight-format q8_0" in smaller.stderr
    again = run("plan", path, "--device-memory", "16G", "--context", "2048", "--concurrency", "1", "--weight-format", "q8_0")
    assert again.returncode == 0


def test_knobs(config):
    p = plan(config(LLAMA_8B), "--device", "h100", "--context", "8192", "--max-num-seqs", "8")
    rows = {(k["knob"], k["value"]): k for k in p["knobs"]}
    bf16, fp8 = rows["dtype", "bfloat16"], rows["kv-cache-dtype", "fp8"]
    assert bf16["chosen"] and bf16["sequence_bytes"] == 1 << 30 and bf16["sequences"] == p["fit"]["sequences"]
    assert fp8["planned_only"] and fp8["sequence_bytes"] == 1 << 29
    assert rows["gpu-memory-utilization", "0.92"]["sequences"] > rows["gpu-memory-utilization", "0.85"]["sequences"]
    half = rows["tensor-parallel-size", "2"]
    assert half["weights_bytes"] == -(-p["memory"]["weights"] // 2) and half["sequence_bytes"] == 1 << 29
    sizes = [rows["weight-format", f]["weights_bytes"] for f in ("bf16", "q8_0", "q6_k", "q4_k_m", "q4_0", "q3_k_m")]
    assert sizes == sorted(sizes, reverse=True)


# ---- speed and cost ----


def test_speed_is_the_roofline(config):
    """One stream reads all weights but the embedding's rows, and the KV of its context, for each token."""
    flags = ("--device", "h100", "--max-num-seqs", "1", "--input", "1000", "--output", "100", "--price", "3.6/h", "--rate", "2")
    p = plan(config(LLAMA_8B), *flags)
    e, n = p["expected"], p["model"]["parameters"]
    reads = p["memory"]["weights"] * (1 - 128256 * 4096 / n) + 1050 * p["kv"]["bytes_per_token"]
    step = reads / (3350e9 * e["read_share"])
    assert e["tpot_ms"] == pytest.approx(step * 1e3)
    prompt = 1000 * (2 * n + 4 * 500 * 32 * 32 * 128) / (989e12 * e["ops_share"])
    assert e["ttft_ms"] == pytest.approx((prompt + step) * 1e3)
    assert e["requests_per_s"] == pytest.approx(1 / (100 * step + prompt))
    assert e["replicas"] == math.ceil(2 / e["requests_per_s"])
    assert e["cost_per_1m_output"] == pytest.approx(1e6 * 0.001 / e["output_tokens_per_s"])


def test_slo_bounds_the_streams(config):
    path, flags = config(LLAMA_8B), ("--device", "a100", "--max-num-seqs", "64", "--input", "2000", "--context", "8192")
    free, bound = plan(path, *flags)["expected"], plan(path, *flags, "--slo", "tpot:25")["expected"]
    assert free["streams"] > bound["streams"] >= 1 and bound["within_slo"] and bound["tpot_ms"] <= 25 < free["tpot_ms"]
    assert not plan(path, *flags, "--slo", "tpot:1")["expected"]["within_slo"]


@pytest.mark.parametrize(
    "flags, says",
    [
        (("--device", "h1000"), "known are a100"),
        (("--device", "epyc-9654"), "--device-memory"),
        (("--weight-format", "q9"), "known are f32"),
        (("--slo", "ttft"), "--slo"),
        (("--slo", "tpot:50"), "need a --device"),
        (("--device", "h100", "--price", "x"), "price"),
        (("--device", "h100", "--slo", "e2e:50"), "ttft and tpot"),
        (("--context", "10", "--max-model-len", "20"), "--context is 10"),
    ],
)
def test_bad_plans(config, flags, says):
    done = run("plan", config(LLAMA_8B), *flags)
    lines = done.stderr.strip().splitlines()
    assert done.returncode == 2 and len(lines) == 1 and says in lines[0], done.stderr


@pytest.mark.parametrize(
    "text, says",
    [
        ("{", "config.json"),
        ("[]", "must be a JSON object"),
        ("{}", "architectures is missing"),
        (json.dumps(LLAMA_8B | {"architectures": ["X"]}), "known are"),
        (json.dumps(LLAMA_8B | {"num_hidden_layers": None}), "num_hidden_layers"),
        (json.dumps(LLAMA_8B | {"some_new_key": 3}), "some_new_key"),
    ],
)
def test_bad_config(tmp_path, text, says):
    (tmp_path / "config.json").write_text(text)
    done = run("plan", tmp_path / "config.json")
    lines = done.stderr.strip().splitlines()
    assert done.returncode in (1, 2) and len(lines) == 1 and says in lines[0], done.stderr
