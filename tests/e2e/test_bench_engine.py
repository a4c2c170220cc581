"""`quire bench engine` on small models: counts that follow from what was asked, figures that follow from each other."""

import json
import signal
import statistics
import subprocess

import pytest
from harness import BINARY, PATIENCE, environment, run

LIMITS = ["--max-model-len", "512", "--kv-cache-memory-bytes", "16Mi", "--threads", "2"]


@pytest.fixture(scope="module")
def measured(tiny_model, tmp_path_factory):
    path = tmp_path_factory.mktemp("engine") / "e.json"
    done = run("bench", "engine", tiny_model, *LIMITS, "--batch", "1,4", "--context", "40,100", "--tokens", "12",
               "--repeat", "3", "--json", path, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(path.read_text()), done.stdout, path


def test_counts(measured):
    """Prompts are computed once, without a cache; of decoding 12 steps of all sequences count."""
    report, table, _ = measured
    assert report["format"] == "quire-bench-engine" and report["version"] == 1 and report["ended_early"] is None
    assert [(p["phase"], p["batch"], p["context"]) for p in report["points"]] == [
        (phase, batch, context) for context in (40, 100) for batch in (1, 4) for phase in ("prefill", "decode")
    ]
    for p in report["points"]:
        assert p["title"] in table and 1 <= len(p["repeats"]) <= 3
        for r in p["repeats"]:
            s = r["summary"]
            if p["phase"] == "prefill":
                assert s["tokens"] == p["batch"] * p["context"]
            else:  # no more than were asked for; some less where sequences do not begin together
                assert s["tokens"] == s["steps"] * p["batch"] and 6 <= s["steps"] <= 12


def test_figures_follow_from_each_other(measured):
    report, _, _ = measured
    for p in report["points"]:
        rates = sorted(r["summary"]["tokens_per_s"] for r in p["repeats"])
        assert p["summary"]["tokens_per_s"] == pytest.approx(statistics.median(rates))
        assert (p["tokens_per_s_least"], p["tokens_per_s_most"]) == (rates[0], rates[-1])
        for r in p["repeats"]:
            s = r["summary"]
            assert s["tokens_per_s"] * s["duration_s"] == pytest.approx(s["tokens"])
            phases = s["prepare_s"] + s["forward_s"] + s["sample_s"]
            assert phases <= s["duration_s"] + 3e-6 * s["steps"]  # clocks are read in microseconds
            assert s["outside_share"] == pytest.approx(max(0, 1 - s["forward_s"] / s["duration_s"]))
    s, c = report["points"][0]["repeats"][0]["summary"], report["least_costs"]
    limits = {x["name"]: x["value"] for x in report["machine"]["limits"]}
    # 40 rows, one row of logits, 1 + 2 + ... + 40 positions
    ops = 40 * c["ops_per_row"] + s["steps"] * c["ops_per_row_of_logits"] + 820 * c["ops_per_position_attended"]
    assert s["arithmetic_share"] == pytest.approx(ops / s["duration_s"] / limits[c["arithmetic_limit"]])
    read = s["steps"] * c["weight_bytes"] + 820 * c["kv_bytes_per_position"]
    assert s["memory_share"] == pytest.approx(read / s["duration_s"] / limits["read_94mb"])


def test_costs_are_those_of_the_model(measured):
    """2 layers, width 64, 4 heads and 2 KV heads of 16, ff 96, 600 tokens, untied, Q8_0 (34 bytes for 32), bfloat16 K, V."""
    c = measured[0]["least_costs"]
    matrices = 2 * (64 * 64 + 2 * 64 * 32 + 64 * 64 + 3 * 64 * 96)
    norms = 4 * (2 * 2 * 64 + 64)
    assert c["ops_per_row"] == 2 * matrices and c["ops_per_row_of_logits"] == 2 * 64 * 600
    assert c["weight_bytes"] == (matrices + 64 * 600) * 34 / 32 + norms
    assert c["ops_per_position_attended"] == 4 * 64 * 2 and c["kv_bytes_per_position"] == 2 * 2 * 32 * 2
    assert c["arithmetic_limit"] in ("int8", "amx_int8") and c["shares_unknown"] is None


def test_compare_reads_it(measured):
    path = measured[2]
    done = run("bench", "compare", path, path)
    assert done.returncode == 0 and "decode, batch 4, context 100" in done.stdout and "no difference" in done.stdout


@pytest.mark.parametrize(
    "arguments, says",
    [
        ([], "which model"),
        (["MODEL", "x"], '"x" is one too many'),
        (["MODEL", "--context", "500"], "at most 478"),
        (["MODEL", "--batch", "65"], "--max-num-seqs 64"),
        (["MODEL", "--batch", "64", "--context", "470", "--kv-cache-memory-bytes", "1Mi"], "at most --batch"),
        (["MODEL", "--batch", "0"], "--batch"),
        (["MODEL", "--context", "1,,2"], "--context"),
        (["MODEL", "--tokens", "1"], "--tokens"),
        (["MODEL", "--json", "/no/such/folder/x.json"], "/no/such/folder"),
    ],
)
def test_refused(tiny_model, arguments, says):
    arguments = [tiny_model if a == "MODEL" else a for a in arguments]
    given = {a for a in arguments if isinstance(a, str)}
    limits = [x for pair in zip(LIMITS[::2], LIMITS[1::2], strict=True) if pair[0] not in given for x in pair]
    done = run("bench", "engine", *arguments, *(limits if arguments else []))
    assert done.returncode == 2 and says in done.stderr, (done.returncode, done.stderr)


def test_what_was_not_asked_for_is_left_out(tiny_model):
    done = run("bench", "engine", tiny_model, *LIMITS, "--tokens", "4", "--repeat", "1", "--no-limits")
    assert done.returncode == 0 and "not known" in done.stdout, done.stderr
    assert "prefill, batch 32, context 128" in done.stdout and "1x1024 (does not fit)" in done.stdout


def test_interrupted(tiny_model, tmp_path):
    path = tmp_path / "e.json"
    command = [BINARY, "bench", "engine", tiny_model, *LIMITS, "--batch", "1,2", "--context", "64", "--tokens", "400",
               "--repeat", "100", "--no-limits", "--json", path]
    process = subprocess.Popen([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               env=environment())
    try:
        for line in process.stdout:
            if line.startswith("decode, batch 1"):
                break
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60 * PATIENCE)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 1 and "interrupted" in err, err
    report = json.loads(path.read_text())
    assert report["ended_early"] == "interrupted" and report["points"][0]["summary"]["tokens_per_s"] > 0
