"""`quire tune` on a server whose knee is known, and on the real one; `quire simulate` where the answer is known."""

import json
import os
import re
import shutil
import signal
import subprocess
import time

import pytest
from conftest import make_model
from harness import BINARY, PATIENCE, environment, run
from mock import Mock

SLO = "ttft_p95=20000,tpot_p95=15"
LOAD = ["--input-tokens", 20, "--output-tokens", 20, "--slo", SLO]


@pytest.fixture(scope="module")
def mock():
    with Mock() as m:  # compiles it
        return m.binary


def command(mock, **options):
    return " ".join([str(mock), *(f"{k}={v}" for k, v in options.items())])


def tune(*args, code=0, timeout=120):
    done = run("tune", *args, timeout=timeout)
    assert done.returncode == code, (done.stdout, done.stderr)
    return done


def state(folder):
    return json.loads((folder / "tune.json").read_text())


def children_of(pid):
    done = subprocess.run(["ps", "--ppid", str(pid), "-o", "pid="], capture_output=True, text=True)
    return [int(v) for v in done.stdout.split()]


def alive(pid):
    try:
        os.kill(pid, 0)
        return True
    except ProcessLookupError:
        return False


def settings(folder):
    """What the configuration says, as `name: value` lines."""
    lines = (folder / "config.yaml").read_text().splitlines()
    return dict(line.split(": ", 1) for line in lines if not line.startswith("#"))


# A token takes 5 ms, and 1 ms more for each request beyond 16 that runs: goodput is highest at 16, and beyond 26 each
# token comes later than the SLO allows.
KNEE = {"ttft": 20, "tpot": 5, "row": 1, "knee": 16}


def test_finds_the_knee_in_flight(mock, tmp_path):
    done = tune("--command", command(mock, **KNEE), "--folder", tmp_path / "t", "--concurrency", 48, "--parameters",
                "concurrency,max-num-seqs,max-num-batched-tokens", "--repeats", 1, "--runs", 12, *LOAD)
    # options that do not matter here may seem to on a busy machine
    assert re.search(r"^best: concurrency 16\b", done.stdout, re.M)
    assert len(state(tmp_path / "t")["runs"]) <= 12
    first = state(tmp_path / "t")["runs"][0]
    assert first["excess"] > 1.5 and "-> " in done.stdout
    page = (tmp_path / "t" / "report.html").read_text()
    assert "<svg" in page and "no difference" in page


def test_finds_the_knee_of_an_option(mock, tmp_path):
    done = tune("--command", command(mock, **KNEE), "--folder", tmp_path / "t", "--concurrency", 48, "--parameters",
                "max-num-seqs", "--repeats", 1, "--runs", 12, *LOAD)
    assert "best: max-num-seqs 16" in done.stdout
    assert len(state(tmp_path / "t")["runs"]) <= 12
    assert settings(tmp_path / "t") == {"max-num-seqs": "16"}


def test_defaults_that_are_best_stay(mock, tmp_path):
    done = tune("--command", command(mock, **KNEE), "--folder", tmp_path / "t", "--concurrency", 16, "--parameters",
                "concurrency,max-num-seqs", "--repeats", 2, "--runs", 16, *LOAD)
    best = re.search(r"^best: (.*)$", done.stdout, re.M)[1]
    assert "concurrency" not in best  # 16 is best; an option without effect may seem to have one on a busy machine
    assert float(settings(tmp_path / "t").get("max-num-seqs", 64)) >= 16


def test_a_missed_slo_is_said_with_how_near(mock, tmp_path):
    done = tune("--command", command(mock, ttft=20, tpot=30), "--folder", tmp_path / "t", "--concurrency", 4,
                "--parameters", "concurrency", "--repeats", 1, *LOAD)
    assert re.search(r"the SLO is not held: the nearest that was found has its worst quantile at [12]\.\d+", done.stdout)


def test_an_interrupt_leaves_nothing_and_goes_on(mock, tmp_path):
    folder = tmp_path / "t"
    args = ["tune", "--command", command(mock, **KNEE), "--folder", folder, "--concurrency", "48", "--parameters",
            "max-num-seqs", "--repeats", "1", *LOAD]
    process = subprocess.Popen([BINARY, *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               env=environment())
    servers = set()
    for _ in range(int(3000 * PATIENCE)):
        servers.update(children_of(process.pid))
        if (folder / "tune.json").exists() and state(folder)["runs"] and children_of(process.pid):
            break
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60 * PATIENCE)
    assert process.returncode == 1 and "runs are kept in" in err, (out, err)
    assert servers and not [pid for pid in servers if alive(pid)]
    kept = state(folder)["runs"]
    done = tune(*args[1:])
    assert f"{len(kept)} runs are in {folder} already" in done.stdout
    assert state(folder)["runs"][: len(kept)] == kept
    assert "best: max-num-seqs 16" in done.stdout
    again = tune(*args[1:])  # everything is there: nothing is run
    assert len(state(folder)["runs"]) == int(re.search(r"(\d+) runs \((\d+) of them earlier\)", again.stdout)[2])


def test_a_budget_ends_the_search(mock, tmp_path):
    done = tune("--command", command(mock, **KNEE), "--folder", tmp_path / "t", "--concurrency", 48, "--runs", 2,
                "--repeats", 1, *LOAD)
    assert "2 runs, the budget is spent" in done.stdout


def test_a_budget_ends_a_run(mock, tmp_path):
    """A run that would take hours is cut, what it found is told, and it is not kept as a whole one."""
    done = tune("--command", command(mock, ttft=20, tpot=20), "--folder", tmp_path / "t", "--concurrency", 4,
                "--requests", 100000, "--budget", "6s", "--parameters", "concurrency", *LOAD)
    assert "the budget has cut this run short" in done.stdout and "1 runs, the budget is spent" in done.stdout
    assert state(tmp_path / "t")["runs"] == []


def test_a_spent_budget_leaves_time_for_the_last_two_runs(mock, tmp_path):
    """The defaults take seconds, the best a fraction: how long a run takes is told by runs of the same options, so the
    search, which could go on, ends in time for measuring both again."""
    done = tune("--command", command(mock, ttft=5, tpot=15), "--folder", tmp_path / "t", "--max-num-seqs", 1, "--concurrency", 8,
                "--input-tokens", 20, "--output-tokens", 20, "--slo", "ttft_p95=100", "--repeats", 8, "--budget", "50s",
                "--parameters", "max-num-seqs,max-num-batched-tokens,long-prefill-token-threshold,block-size", timeout=200)
    assert "the budget is spent" in done.stdout and "no time to measure" not in done.stdout
    assert re.search(r"^best: max-num-seqs ", done.stdout, re.M)


def test_a_budget_too_small_for_anything_is_said(mock, tmp_path):
    done = tune("--command", command(mock, ttft=60000), "--folder", tmp_path / "t", "--budget", "2s", *LOAD, code=1)
    assert "--budget does not allow a single run" in done.stderr


def test_the_last_runs_are_kept_out_of_the_search(mock, tmp_path):
    done = tune("--command", command(mock, **KNEE), "--folder", tmp_path / "t", "--concurrency", 48, "--parameters",
                "concurrency", "--repeats", 1, "--runs", 6, *LOAD)
    runs = state(tmp_path / "t")["runs"]
    again = [r for r in runs if r["repeat"] == 1]  # with prompts of their own
    assert len(runs) <= 6 and [r["options"]["concurrency"] for r in again] == [48, 16]
    assert "no time to measure" not in done.stdout


def test_one_search_at_a_time(mock, tmp_path):
    args = ["--command", command(mock, ttft=20, tpot=20), "--folder", tmp_path / "t", "--requests", 100000, *LOAD]
    first = subprocess.Popen([BINARY, "tune", *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                             text=True, env=environment())
    try:
        for _ in range(int(3000 * PATIENCE)):
            if children_of(first.pid):
                break
            time.sleep(0.02)
        assert "is in use by another quire tune" in tune(*args, code=1).stderr
    finally:
        first.send_signal(signal.SIGINT)
        first.communicate(timeout=60 * PATIENCE)


@pytest.mark.parametrize(
    "args, message",
    [
        ([], "which model?"),
        (["m.gguf"], "which SLO?"),
        (["m.gguf", "--slo", "ttft_p42=100"], 'p50, p90, p95 or p99'),
        (["m.gguf", "--slo", "ttft=100", "--budget", "soon"], 'a time like 90s, 20m or 2h is allowed'),
        (["m.gguf", "--slo", "ttft=100", "--parameters", "block-size,block-size"], "--parameters has block-size twice"),
        (["m.gguf", "--slo", "ttft=100", "--parameters", "max-num-seq"], "did you mean max-num-seqs"),
        (["m.gguf", "--slo", "ttft=100", "--concurrency", "1,2"], "one number from 1 to 4096"),
        (["m.gguf", "--slo", "ttft=100", "--command", "x"], "a model or a --command, not both"),
        (["--slo", "ttft=100", "--command", "/no/such/program"], "cannot be executed"),
        (["a", "b", "--slo", "ttft=100"], '"b" is one too many'),
        (["m.gguf", "--slo", "ttft=100", "--max-ppl-increase", "much"], "allowed is a share such as 1% or 0.01"),
        (["m.gguf", "--slo", "ttft=100", "--parameters", "weights"], "--weights names no files"),
        (["m.gguf", "--slo", "ttft=100", "--weights", "a,,b"], "an empty name"),
        (["m.gguf", "--slo", "ttft=100", "--weights", "a,a"], "has a twice"),
        (["m.gguf", "--slo", "ttft=100", "--weights", "m.gguf"], "which is the model itself"),
        (["m.gguf", "--slo", "ttft=100", "--weights", "a", "--parameters", "dtype"], "which --parameters leaves out"),
        (["m.gguf", "--slo", "ttft=100", "--rate", "1", "--parameters", "concurrency"], "the load has a rate"),
        (["--slo", "ttft=100", "--command", "x", "--parameters", "dtype"], "not with --command"),
        (["--slo", "ttft=100", "--command", "x", "--weights", "a"], "--weights is of a model"),
        (["--slo", "ttft=100", "--command", "  "], "--command names no program"),
        (["--slo", "ttft=100", "--command", "x", "--rate", "1,2"], "is a sweep of 2 loads"),
        (["--slo", "ttft=100", "--command", "x", "--workload", "trace"], "--workload trace needs a --file"),
        (["--slo", "ttft=100", "--command", "x", "--workload", "trace", "--file", "nosuch"], "--file nosuch"),
        (["--slo", "ttft=100", "--command", "x", "--input-tokens", "0"], '--input-tokens "0"'),
        (["--slo", "ttft=100", "--command", "x", "--max-num-seqs", "64", "--max-num-batched-tokens", "8"], "less than"),
        (["--slo", "ttft=100", "--command", "x", "--config-out", "/no/such/folder/c.yaml"], "--config-out"),
        (["--slo", "ttft=100", "--command", "x", "--html", "/no/such/folder/c.html"], "--html"),
    ],
)
def test_bad_input_is_one_line(args, message, tmp_path):
    done = run("tune", *args, "--folder", tmp_path / "t")
    assert done.returncode != 0 and message in done.stderr
    assert len(done.stderr.splitlines()) == 1 and done.stderr.startswith("quire tune: ")


def test_a_folder_that_cannot_be_used(tmp_path):
    (tmp_path / "file").write_text("")
    for folder in ["", tmp_path / "file", tmp_path / "no" / "such"]:
        done = tune("--command", "x", "--slo", "ttft=100", "--folder", folder, code=2 if folder == "" else 1)
        assert done.stderr.startswith("quire tune: --folder ") and len(done.stderr.splitlines()) == 1


SHAPE = ["--layers", "2", "--width", "64", "--ff", "96", "--head-dim", "16"]  # as tiny_model


@pytest.mark.parametrize(
    "change, message",
    [
        (["--layers", "3"], "it has 3 layers, not 2"),
        (["--ff", "128"], "it has 128 elements in a feed-forward block, not 96"),
        (["--vocab", "700"], "it has 700 tokens in its vocabulary, not 600"),
        (["--pre", "qwen2"], "it has another tokenizer"),
    ],
)
def test_weights_of_another_model_are_refused(tiny_model, tmp_path, change, message):
    other = make_model("--type", "Q8_0", *SHAPE, *change)
    done = tune(tiny_model, "--weights", other, "--slo", "ttft=100", "--folder", tmp_path / "t", code=2)
    assert f"--weights {other} is not of the same model: {message}" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_the_quality_gate(tiny_model, tmp_path):
    """A copy answers as the model itself, other weights do not; figures are those of `quire eval kl`, and kept."""
    copy, other = tmp_path / "copy.gguf", make_model("--type", "Q8_0", *SHAPE, "--seed", "2")
    shutil.copy(tiny_model, copy)
    engine = ["--kv-cache-memory-bytes", "8Mi", "--max-model-len", 256]
    args = [tiny_model, "--weights", f"{copy},{other}", "--parameters", "dtype,weights", "--folder", tmp_path / "t",
            "--input-tokens", 16, "--output-tokens", 4, "--concurrency", 2, "--requests", 8, "--slo", "ttft_p95=60000",
            "--repeats", 1, "--no-simulate", "--max-ppl-increase", "400%", "--max-kl-increase", 0.0005, *engine]
    done = tune(*args, timeout=300)
    looks = {(q["dtype"], q["weights"]): q for q in state(tmp_path / "t")["quality"]}
    kept = looks[(looks_dtype(done.stdout), 1)]  # beside the best dtype
    assert {key[1] for key in looks} == {0, 1, 2}
    assert re.search(r"^weights tiny-\w+\.gguf +other answers: KL divergence", done.stdout, re.M)
    assert "weights: " not in (tmp_path / "t" / "config.yaml").read_text()
    if looks_dtype(done.stdout) == 0:
        assert kept["kl"] < 1e-6 and kept["top1"] == 1 and abs(kept["ppl_increase"]) < 1e-5
    reference = tmp_path / "reference"
    for how in [["--save", reference, "--dtype", "bfloat16"], ["--reference", reference, "--dtype", "float16"]]:
        eval_done = run("eval", "kl", tiny_model, "--context", 256, "--max-model-len", 256, *how)
        assert eval_done.returncode == 0, eval_done.stderr
    mean = float(re.search(r"KL +mean ([\d.]+)", eval_done.stdout)[1])
    assert abs(looks[(1, 0)]["kl"] - mean) < 1e-6
    assert not (tmp_path / "t" / "reference.kld").exists()
    again = tune(*args)
    assert "loading" not in again.stderr and state(tmp_path / "t")["quality"] == list(looks.values())


def looks_dtype(out):
    best = re.search(r"^best: .*dtype (\w+)", out, re.M)
    return ["bfloat16", "float16", "float32"].index(best[1]) if best else 0


def test_a_folder_of_another_load_is_refused(mock, tmp_path):
    args = ["--command", command(mock), "--folder", tmp_path / "t", "--runs", 1, "--slo", "ttft=100"]
    tune(*args, "--input-tokens", 20, "--output-tokens", 4)
    done = tune(*args, "--input-tokens", 21, "--output-tokens", 4, code=2)
    assert "runs of another model, load or SLO" in done.stderr


def test_the_real_server(tiny_model, tmp_path):
    """Calibration, simulation and runs of a real model; what is written is what `serve --config` reads."""
    folder = tmp_path / "t"
    done = tune(tiny_model, "--folder", folder, "--input-tokens", 32, "--output-tokens", 8, "--concurrency", 4,
                "--slo", "ttft_p95=60000", "--parameters", "concurrency,enable-prefix-caching,block-size", "--runs", 4,
                "--repeats", 1, "--requests", 8, "--calibrate-seconds", 1, "--kv-cache-memory-bytes", "8Mi",
                "--max-model-len", 512, timeout=300)
    assert "best: " in done.stdout
    assert (folder / "calibration.json").exists()
    config = settings(folder)
    assert config["model"] == f'"{tiny_model}"' and config["max-model-len"] == '"512"'
    process = subprocess.Popen([BINARY, "serve", "--config", folder / "config.yaml", "--port", "0"],
                               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment())
    try:
        assert process.stdout.readline().startswith("ready ")
    finally:
        process.terminate()
        process.wait(30 * PATIENCE)
