"""quire plan: the memory that serve then reports, byte for byte; formulas against numbers that are known."""

import json
import math

import hf_folder
import pytest
from calibrations import calibration
from conftest import make_model
from encoders import encoder_file
from harness import ROOT, SANITIZED, Server, plan_of, run

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
            if not SANITIZED:  # it takes memory of its own
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


# ---- this machine's speed, with step times that are chosen ----

STEP = 10_000  # microseconds of any step
SMALL = ("--threads", "1", "--input", "64", "--output", "20")


@pytest.fixture
def calibrated(tiny_model, tmp_path):
    """A calibration of tiny_model as SMALL plans it, some of it changed."""

    def make(**fields):
        p = plan(tiny_model, *SMALL)
        told = {"cpu_path": p["machine"]["path"], "n_threads": 1, "family": p["model"]["family"],
                "kv_bytes_per_token": p["kv"]["bytes_per_token"], "tensor_bytes": p["model"]["tensor_bytes"]}
        return calibration(tmp_path / "calibration.json", **{"step_us": STEP, **told, **fields})

    return make


def test_one_stream_by_arithmetic(tiny_model, calibrated):
    """A prompt is one step and what comes before it, each further token one: 10 + 3 + 64 x 0.05 ms, then 10 ms each."""
    cal = calibrated(request_us=3000, prompt_token_us=50)
    e = plan(tiny_model, *SMALL, "--concurrency", "1", "--calibration", cal, "--rate", "11", "--price", "3.6/h")["expected"]
    before, life = 0.003 + 64 * 50e-6, 0.003 + 64 * 50e-6 + 20 * 0.01
    assert e["streams"] == 1 and e["within_slo"] and e["measured"] and e["source"] == "calibration"
    assert e["ttft_ms"] == e["ttft_p95_ms"] == pytest.approx(1e3 * (before + 0.01), abs=0.002)
    assert e["tpot_ms"] == e["tpot_p95_ms"] == pytest.approx(10, abs=0.002)
    assert e["requests_per_s"] == pytest.approx(1 / life, rel=1e-4)
    assert e["output_tokens_per_s"] == pytest.approx(20 / life, rel=1e-4)
    assert e["total_tokens_per_s"] == pytest.approx(84 / life, rel=1e-4)
    assert e["replicas"] == math.ceil(11 * life)
    assert e["cost_per_1m_output"] == pytest.approx(1e6 * 0.001 / (20 / life), rel=1e-4)


def test_chunks_of_a_prompt_are_steps(tiny_model, calibrated):
    e = plan(tiny_model, *SMALL, "--concurrency", "1", "--max-num-batched-tokens", "16", "--calibration", calibrated())
    assert e["expected"]["ttft_ms"] == pytest.approx(4 * 10, abs=0.01)


def test_streams_share_steps(tiny_model, calibrated):
    """Steps take the same time however many rows they have: eight streams make eight times as much, but for the steps
    in which a part of the prompts waits for another."""
    e = plan(tiny_model, *SMALL, "--max-num-seqs", "8", "--calibration", calibrated())["expected"]
    assert e["streams"] == 8 and 8 * 100 * 20 / 22 < e["output_tokens_per_s"] <= 8 * 100


@pytest.mark.parametrize("limit", [14.5, 21.5, 39.0])
def test_as_many_streams_as_keep_to_the_slo(tiny_model, calibrated, limit):
    """A step takes 1 ms for each row: n streams have a token every n ms at least, and one more would be too slow."""
    flags = ("--calibration", calibrated(step_us=1000, row_us=1000))
    bound = plan(tiny_model, *SMALL, *flags, "--max-num-seqs", "64", "--slo", f"tpot:{limit}")["expected"]
    n = bound["streams"]
    assert 1 <= n <= limit and bound["within_slo"] and n <= bound["tpot_ms"] and bound["tpot_p95_ms"] <= limit
    more = plan(tiny_model, *SMALL, *flags, "--concurrency", n + 1)["expected"]
    assert more["streams"] == n + 1 and more["tpot_p95_ms"] > limit
    none = plan(tiny_model, *SMALL, *flags, "--slo", "tpot:0.5")["expected"]
    assert none["streams"] == 1 and not none["within_slo"]


def test_forecast_is_what_simulate_says(tiny_model, calibrated, tmp_path):
    cal = calibrated(step_us=3000, row_us=700, request_us=900)
    e = plan(tiny_model, *SMALL, "--concurrency", "5", "--calibration", cal)["expected"]
    done = run("simulate", cal, "--input-tokens", "64", "--output-tokens", "20", "--concurrency", "5", "--max-num-seqs", "5",
               "--json", tmp_path / "s.json")
    assert done.returncode == 0, done.stderr
    s = json.loads((tmp_path / "s.json").read_text())["points"][0]["summary"]
    assert (e["ttft_ms"], e["tpot_p95_ms"]) == pytest.approx((s["ttft_ms"]["p50"], s["tpot_ms"]["p95"]))
    assert e["output_tokens_per_s"] == pytest.approx(s["output_tokens_per_s"])


def report(path, title, **summary):
    """What `quire bench serve --json` would have written, as far as it is read here."""
    path.write_text(json.dumps({"format": "quire-bench-serve", "version": 1, "points": [{"title": title, "summary": summary}]}))
    return path


def test_check_beside_a_measurement(tiny_model, calibrated, tmp_path):
    """Forecast are 10 ms and 100 tokens a second; measured were 8 ms and 125."""
    measured = report(tmp_path / "r.json", "random 64/20, 1 stream", output_tokens_per_s=125.0, tpot_ms={"p50": 8.0, "p95": 10.0},
                      ttft_ms={"p50": 0.0, "p95": 20.0})
    flags = (tiny_model, *SMALL, "--concurrency", "1", "--calibration", calibrated(), "--check", measured)
    check = plan(*flags)["check"]
    rows = {row["name"]: row for row in check["figures"]}
    assert check["report"] == str(measured) and set(rows) == {"output", "TTFT P50", "TTFT P95", "TPOT P50", "TPOT P95"}
    assert rows["output"]["error"] == pytest.approx(100 / 125 - 1, abs=1e-3)
    assert rows["TPOT P50"]["error"] == pytest.approx(0.25, abs=1e-3)
    assert rows["TPOT P95"]["error"] == pytest.approx(0, abs=1e-3) and rows["TTFT P95"]["error"] == pytest.approx(-0.5, abs=1e-3)
    assert rows["TTFT P50"]["error"] is None  # beside nothing there is no share
    text = run("plan", *flags).stdout
    assert f"beside {measured}" in text and "+25.0 % (ms)" in text and "-20.0 % (tok/s)" in text


def test_check_plays_as_many_requests_as_were_measured(tiny_model, calibrated, tmp_path):
    """Of 4 streams with one place each request but the first waits for three others, and the first ones for fewer: the longer
    it lasts, the less they count. The report is of one that was simulated, so there is no error."""
    cal = calibrated()
    flags = ("--max-num-seqs", "1", "--input-tokens", "64", "--output-tokens", "20", "--concurrency", "4")
    for n in (4, 12, 80):
        path = tmp_path / f"{n}.json"
        assert run("simulate", cal, *flags, "--requests", n, "--json", path).returncode == 0
        check = plan(tiny_model, *SMALL, "--max-num-seqs", "1", "--concurrency", "4", "--calibration", cal, "--check", path)["check"]
        rows = {row["name"]: row for row in check["figures"]}
        assert all(abs(row["error"]) < 1e-3 for row in rows.values() if row["error"] is not None), (n, rows)
        assert rows["output"]["repeats"] == 1 and rows["output"]["measured_low"] == rows["output"]["measured_high"]


def test_check_beside_bench_engine(tiny_model, calibrated, tmp_path):
    """A step takes 1 ms for each row and 1 us for each position attended to (4 decoded at 100 to 110: 420; 2 prompts of 50
    in one step: 2 x 50 x 51 / 2 = 2550): 4 tokens in 4.42 ms, 100 in 102.55 ms."""
    cal = calibrated(step_us=1000, row_us=1000)
    known = json.loads(cal.read_text())
    known["forward_us"] |= {"decode_attended": 1.0, "prefill_attended": 1.0}
    cal.write_text(json.dumps(known))
    machine = {"path": known["cpu_path"], "threads": 1, "dtype": "bfloat16"}

    def measured(**other):
        def point(phase, batch, context, steps, tokens, rate):
            summary = {"steps": steps, "tokens": tokens, "tokens_per_s": rate}
            return {"title": f"{phase}, batch {batch}, context {context}", "phase": phase, "batch": batch, "context": context,
                    "summary": summary, "repeats": [{"summary": summary}]}

        points = [point("decode", 4, 100, 10, 40, 4 / 4.42e-3), point("prefill", 2, 50, 1, 100, 2 * 100 / 102.55e-3)]
        path = tmp_path / "e.json"
        path.write_text(json.dumps({"format": "quire-bench-engine", "version": 1, "machine": machine | other, "points": points}))
        return path

    flags = (*SMALL, "--max-num-seqs", "1", "--calibration", cal)
    decode, prefill = plan(tiny_model, *flags, "--check", measured())["check"]["figures"]
    assert decode["name"] == "decode, batch 4, context 100" and decode["error"] == pytest.approx(0, abs=1e-6)
    assert prefill["unit"] == "tok/s" and prefill["error"] == pytest.approx(-0.5, abs=1e-6)
    done = run("plan", tiny_model, *flags, "--check", measured(threads=2))
    assert done.returncode == 2 and "was measured on" in done.stderr and "with 2 threads" in done.stderr


def test_text_names_source_and_fit(tiny_model, calibrated):
    fit = [{"region": str(i), "steps": 10 * i, "median_error": 0.01 * i, "p95_error": 0.1 - 0.01 * i, "bias": 0.0} for i in range(5)]
    cal = calibrated(fit=fit)
    done = run("plan", tiny_model, *SMALL, "--calibration", cal)
    assert done.returncode == 0, done.stderr
    assert f"simulated with step times measured in {cal}" in done.stdout
    assert "fit of 100 steps: error at most 4.0 % (P50), 9.0 % (P95)" in done.stdout  # a region without steps is not counted
    c = plan(tiny_model, *SMALL, "--calibration", cal)["expected"]["calibration"]
    assert (c["fit_steps"], c["fit_median_error"], c["fit_p95_error"]) == pytest.approx((100, 0.04, 0.09))


def test_without_a_calibration_it_says_how(tiny_model):
    done = run("plan", tiny_model, *SMALL)
    lines = [line for line in done.stdout.splitlines() if line.startswith("expected")]
    assert done.returncode == 0 and len(lines) == 1 and "--calibrate" in lines[0] and "--calibration FILE" in lines[0]
    assert plan(tiny_model, *SMALL)["expected"] is None


@pytest.mark.parametrize(
    "fields, flags, says",
    [
        ({"family": "gemma3"}, (), "another model (made-up): its family is gemma3"),
        ({"kv_bytes_per_token": 7}, (), "another model (made-up): its KV of a token in bytes is 7"),
        ({"tensor_bytes": 12345}, (), "another model (made-up): its size of all tensors in bytes is 12345"),
        ({"n_groups": 2, "windows": [0, 64]}, (), "number of kinds of KV layers is 2"),
        ({"dtype": "float32"}, (), "calibrated with --dtype float32, bfloat16 is planned"),
        ({"cpu_path": "other"}, (), "calibrated on the CPU path other"),
        ({"n_threads": 3}, (), "calibrated with --threads 3, planned is --threads 1"),
        ({"max_model_len": 64}, (), "was calibrated for at most 64"),
        ({"version": 9}, (), "version 9"),
        ({"tensor_bytes": -1}, (), '"tensor_bytes" must be'),
        ({}, ("--calibrate",), "one of them"),
        ({}, ("--device", "h100"), "--calibration is of this machine"),
        ({}, ("--save", "x"), "--save is for --calibrate"),
        ({}, ("--calibrate-seconds", "5"), "--calibrate-seconds is for --calibrate"),
        ({}, ("--check", "no-such-file"), "no-such-file"),
        ({}, ("--weight-format", "q4_0"), "size of all tensors"),
    ],
)
def test_calibrations_that_are_refused(tiny_model, calibrated, fields, flags, says):
    done = run("plan", tiny_model, *SMALL, "--calibration", calibrated(**fields), *flags)
    lines = done.stderr.strip().splitlines()
    assert done.returncode != 0 and len(lines) == 1 and says in lines[0], done.stderr


def test_no_calibration_to_check_or_of_a_description(tiny_model, calibrated, config, tmp_path):
    for flags, says in [
        ((tiny_model, "--check", "x"), "--check needs a forecast"),
        ((config(LLAMA_8B), "--max-num-seqs", "1", "--max-model-len", "64", "--calibrate"), "weights that are there"),
        ((tiny_model, *SMALL, "--calibration", tmp_path / "none.json"), "none.json"),
        ((encoder_file("bert")[1], "--calibration", calibrated()), "makes vectors"),
    ]:
        done = run("plan", *flags)
        assert done.returncode in (1, 2) and len(done.stderr.strip().splitlines()) == 1 and says in done.stderr, done.stderr
    other = report(tmp_path / "r.json", "random 64/20, 2 streams", output_tokens_per_s=1.0)
    done = run("plan", tiny_model, *SMALL, "--concurrency", "1", "--calibration", calibrated(), "--check", other)
    assert done.returncode != 0 and 'has no "random 64/20, 1 stream"' in done.stderr


def test_calibrate_now(tiny_model, tmp_path):
    """Measured here, kept, and the same forecast from what was kept."""
    flags = (tiny_model, *SMALL, "--concurrency", "2", "--kv-cache-memory-bytes", "4Mi")
    now = plan(*flags, "--calibrate", "--calibrate-seconds", "1", "--save", tmp_path / "c.json")["expected"]
    assert now["output_tokens_per_s"] > 0 and now["calibration"]["fit_steps"] >= 50 and now["calibration"]["file"] is None
    later = plan(*flags, "--calibration", tmp_path / "c.json")["expected"]
    names = ("ttft_ms", "tpot_ms", "requests_per_s", "streams")
    assert [later[k] for k in names] == pytest.approx([now[k] for k in names], rel=0.01)
