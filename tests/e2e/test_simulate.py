"""`quire simulate`: calibrations whose step times are chosen, so that what a load takes can be worked out by hand."""

import json
import re

import pytest
from calibrations import calibration
from harness import run


def simulate(tmp_path, cal, *args, code=0):
    path = tmp_path / "sim.json"
    done = run("simulate", cal, *args, *([] if code else ["--json", path]))
    assert done.returncode == code, (done.stdout, done.stderr)
    return json.loads(path.read_text())["points"] if not code else done


def test_one_stream(tmp_path):
    """A prompt is one step, a token is one: TTFT 10 ms, TPOT 10 ms, 100 tokens a second."""
    cal = calibration(tmp_path / "c.json")
    (point,) = simulate(tmp_path, cal, "--input-tokens", 64, "--output-tokens", 20)
    s = point["summary"]
    assert s["ttft_ms"]["p50"] == pytest.approx(10, abs=0.01) and s["tpot_ms"]["p95"] == pytest.approx(10, abs=0.01)
    assert s["e2e_ms"]["max"] == pytest.approx(200, abs=0.1)
    assert s["output_tokens_per_s"] == pytest.approx(100, rel=0.001)
    assert s["ok"] == 16 and s["input_tokens"] == 16 * 64


def test_batching_is_the_schedulers(tmp_path):
    """Eight at once share steps when max-num-seqs lets them, and wait for each other when it does not."""
    cal = calibration(tmp_path / "c.json")
    load = ["--input-tokens", 16, "--output-tokens", 20, "--concurrency", 8, "--requests", 8, "--no-enable-prefix-caching"]
    (together,) = simulate(tmp_path, cal, *load)
    (apart,) = simulate(tmp_path, cal, *load, "--max-num-seqs", 1)
    assert together["summary"]["duration_s"] == pytest.approx(0.2, rel=0.01)
    assert apart["summary"]["duration_s"] == pytest.approx(8 * 0.2, rel=0.01)
    assert apart["summary"]["ttft_ms"]["max"] == pytest.approx(7 * 200 + 10, rel=0.01)


def test_prefix_cache(tmp_path):
    """A row takes 1 ms: a shared prefix of 160 tokens is computed once."""
    cal = calibration(tmp_path / "c.json", step_us=1000, row_us=1000)
    load = ["--input-tokens", 16, "--prefix-tokens", 160, "--output-tokens", 1, "--requests", 10]
    (hit,) = simulate(tmp_path, cal, *load)
    (miss,) = simulate(tmp_path, cal, *load, "--no-enable-prefix-caching")
    assert miss["summary"]["ttft_ms"]["min"] == pytest.approx(176, abs=0.1)
    assert hit["summary"]["ttft_ms"]["max"] == pytest.approx(176, abs=0.1)
    assert hit["summary"]["ttft_ms"]["min"] == pytest.approx(16, abs=0.1)
    assert hit["summary"]["cached_tokens"] == 9 * 160


def test_an_open_loop_and_its_limits(tmp_path):
    """A server that takes 0.1 s for a request and one at a time: 5/s it bears, 20/s it does not."""
    cal = calibration(tmp_path / "c.json")
    load = ["--input-tokens", 16, "--output-tokens", 10, "--arrival", "constant", "--duration", 20, "--max-num-seqs", 1]
    calm, full = simulate(tmp_path, cal, *load, "--rate", "5,20")
    assert calm["summary"]["ttft_ms"]["max"] < 25 and not calm["summary"]["over_saturated"]
    assert full["summary"]["over_saturated"] and full["summary"]["requests_per_s"] == pytest.approx(10, rel=0.05)


def test_a_full_queue_refuses(tmp_path):
    cal = calibration(tmp_path / "c.json")
    (point,) = simulate(tmp_path, cal, "--input-tokens", 16, "--output-tokens", 50, "--arrival", "constant", "--rate", 100,
                        "--duration", 2, "--max-num-seqs", 1, "--max-queue", 3)
    assert point["summary"]["failed"] > 100
    assert point["repeats"][0]["errors"][0]["status"] == 503


def test_conversations_find_their_answers_in_the_cache(tmp_path):
    cal = calibration(tmp_path / "c.json", step_us=1000, row_us=1000)
    (point,) = simulate(tmp_path, cal, "--workload", "chat", "--turns", 3, "--requests", 2, "--concurrency", 1)
    s = point["summary"]
    assert s["ok"] == 6 and s["cached_tokens"] > s["input_tokens"] / 2


def test_chat_frames(tmp_path):
    """What a template adds: 20 tokens to a system message and the first one, 12 with each turn that follows."""
    cal = calibration(tmp_path / "c.json", chat_tokens=30, chat_system_tokens=20, chat_turn_tokens=12)
    chat = ["--workload", "chat", "--turns", 3, "--requests", 1, "--input-tokens", 40, "--output-tokens", 10]
    (point,) = simulate(tmp_path, cal, *chat, "--prefix-tokens", 100)
    first = 100 + 20 + 40
    assert point["repeats"][0]["records"]["input_tokens"] == [first, first + 10 + 12 + 40, first + 2 * (10 + 12 + 40)]
    (point,) = simulate(tmp_path, cal, *chat, "--prefix-tokens", 0)
    assert point["repeats"][0]["records"]["input_tokens"] == [70, 70 + 62, 70 + 124]


def wander(*slow):
    return {"wander": {"moment_us": 50000, "slow_thousandths": [s for s in slow for _ in range(20)] * 5}}


def test_the_speed_wanders(tmp_path):
    """A second at half speed, one at full speed, and so on: steps of 10 ms take 20 ms or 10, three quarters of the
    work of a steady machine is done, and every run begins at another moment."""
    cal = calibration(tmp_path / "c.json", **wander(1000, 2000))
    load = ["--input-tokens", 16, "--output-tokens", 10, "--requests", 40]
    (point,) = simulate(tmp_path, cal, *load)
    s = point["summary"]
    assert len(point["repeats"]) == 16 and s["ok"] == 16 * 40
    assert s["output_tokens_per_s"] == pytest.approx(75, rel=0.02)
    assert s["ttft_ms"]["min"] == pytest.approx(10, abs=0.01) and s["ttft_ms"]["p95"] == pytest.approx(20, abs=0.01)
    assert len({r["records"]["ttft_ms"].index(s["ttft_ms"]["max"]) for r in point["repeats"]}) > 5
    assert simulate(tmp_path, cal, *load) == [point]
    (steady,) = simulate(tmp_path, cal, *load, "--no-wander")
    assert len(steady["repeats"]) == 1 and steady["summary"]["ttft_ms"]["max"] == pytest.approx(10, abs=0.01)
    (long,) = simulate(tmp_path, cal, "--input-tokens", 16, "--output-tokens", 10, "--rate", 1, "--duration", 1000)
    assert len(long["repeats"]) == 1


def test_arrivals_are_the_same_in_every_run(tmp_path):
    cal = calibration(tmp_path / "c.json", **wander(1000, 2000))
    load = ["--input-tokens", 16, "--output-tokens", 10, "--rate", 3, "--requests", 20]
    (point,) = simulate(tmp_path, cal, *load)
    (steady,) = simulate(tmp_path, cal, *load, "--no-wander")
    due = [r["records"]["due_s"] for r in point["repeats"]]
    assert len(due) == 16 and all(d == steady["repeats"][0]["records"]["due_s"] for d in due)


def test_wanders_of_several_calibrations(tmp_path):
    """Half of the time the machine was twice as fast: a long load has the mean of the speeds."""
    a = calibration(tmp_path / "a.json", step_us=10000, **wander(1000, 1000))
    b = calibration(tmp_path / "b.json", step_us=20000, **wander(1000, 1000))
    (point,) = simulate(tmp_path, f"{a},{b}", "--input-tokens", 16, "--output-tokens", 10, "--requests", 300)
    assert point["summary"]["output_tokens_per_s"] == pytest.approx((100 + 50) / 2, rel=0.02)


def trace(path, n, gap_ms):
    rows = [{"timestamp": i * gap_ms, "input_length": 32, "output_length": 10, "hash_ids": []} for i in range(n)]
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def test_a_day_is_played_in_seconds(tmp_path):
    cal = calibration(tmp_path / "c.json")
    (point,) = simulate(tmp_path, cal, "--workload", "trace", "--file", trace(tmp_path / "t", 20000, 4320), "--no-records")
    assert point["summary"]["ok"] == 20000
    assert point["summary"]["duration_s"] == pytest.approx(86400, rel=0.01)


def test_replicas_for_a_trace(tmp_path):
    """0.1 s for a request, one at a time, 25 in a second: three replicas bear it, two do not."""
    cal = calibration(tmp_path / "c.json")
    done = run("simulate", cal, "--workload", "trace", "--file", trace(tmp_path / "t", 1000, 40), "--max-num-seqs", 1,
               "--replicas", "auto", "--slo", "ttft_p95=300", "--startup", 5)
    assert done.returncode == 0, done.stderr
    assert "always up       3," in done.stdout
    assert "in reserve (start-up 5.0 s" in done.stdout or "does not hold it with a start-up" in done.stdout
    for n, good in ((2, False), (3, True)):
        (point,) = simulate(tmp_path, cal, "--workload", "trace", "--file", tmp_path / "t", "--max-num-seqs", 1,
                            "--replicas", n, "--slo", "ttft_p95=300")
        assert (point["summary"]["good_share"] >= 0.95) == good


def test_compare_with_itself_has_no_error(tmp_path):
    cal = calibration(tmp_path / "c.json")
    load = ["--input-tokens", 64, "--output-tokens", 20]
    simulate(tmp_path, cal, *load)
    done = run("simulate", cal, *load, "--compare", tmp_path / "sim.json")
    assert done.returncode == 0 and "simulated beside" in done.stdout
    errors = [float(line.split()[-3]) for line in done.stdout.splitlines() if line.endswith("(ms)") and "%" in line]
    assert errors and not any(errors)
    other = run("simulate", cal, "--input-tokens", 65, "--compare", tmp_path / "sim.json")
    assert other.returncode != 0 and "has none of the points" in other.stderr


def compared(out):
    """Figures of a comparison by name: measured, what is told of the repeats, simulated and the errors."""
    rows = [re.match(r"  (\S.{13}) +(\S+)(?: +(\d+: \S+ to \S+))? +(\S+)((?: +\S+ %)*) +\(.*\)$", line) for line in out.splitlines()]
    return {r[1].strip(): (float(r[2]), r[3], float(r[4]), [float(e) for e in re.findall(r"\S+(?= %)", r[5])]) for r in rows if r}


def test_compare_takes_the_median_of_all_repeats(tmp_path):
    """Runs of 90, 100, 180 and 200 tokens a second in two reports: 140 in the median, forecast are 100."""
    cal = calibration(tmp_path / "c.json")
    load = ["--input-tokens", 64, "--output-tokens", 20]
    for name, rates in (("a.json", [200, 90]), ("b.json", [100, 180])):
        repeats = [{"summary": {"output_tokens_per_s": r}} for r in rates]
        point = {"title": "random 64/20, 1 stream", "summary": {"output_tokens_per_s": 1.0}, "repeats": repeats}
        (tmp_path / name).write_text(json.dumps({"format": "quire-bench-serve", "version": 1, "points": [point]}))
    done = run("simulate", cal, *load, "--compare", f"{tmp_path / 'a.json'},{tmp_path / 'b.json'}")
    measured, spread, simulated, errors = compared(done.stdout)["output"]
    assert (measured, spread) == (140, "4: 90.00 to 200.00") and simulated == pytest.approx(100, rel=1e-3)
    assert errors == [pytest.approx(100 * (100 / 140 - 1), abs=0.1)]  # no server told of its steps


def test_compare_at_the_speed_of_the_measurement(tmp_path):
    """A machine on which every step takes 1.5 times as long as when it was calibrated: that is all the error there is."""
    load = ["--input-tokens", "uniform:20:200", "--output-tokens", 20, "--concurrency", 4, "--requests", 40]
    simulate(tmp_path, calibration(tmp_path / "slow.json", step_us=15000, row_us=300), *load)
    report = json.loads((tmp_path / "sim.json").read_text())
    (repeat,) = report["points"][0]["repeats"]
    page = 'quire_phase_seconds_total{phase="decode"} %f\nquire_phase_seconds_total{phase="prefill"} %f\n'
    done = run("simulate", tmp_path / "slow.json", *load)
    busy = float(re.search(r"engines busy for ([\d.]+) s", done.stdout)[1])
    repeat["metrics"] = {"seconds": busy, "first": page % (5, 7), "last": page % (5 + busy / 4, 7 + busy * 3 / 4)}
    (tmp_path / "measured.json").write_text(json.dumps(report))
    done = run("simulate", calibration(tmp_path / "c.json", step_us=10000, row_us=200), *load, "--compare", tmp_path / "measured.json")
    rows = compared(done.stdout)
    assert rows["steps, request"][2] == pytest.approx(1e3 * busy / 40 / 1.5, rel=0.01)
    for name, sign in (("output", 1), ("TTFT P95", -1), ("TPOT P50", -1)):
        error, same_speed = rows[name][3]
        assert error == pytest.approx(50 if sign > 0 else -100 / 3, abs=1) and same_speed == pytest.approx(0, abs=0.6)


def test_several_calibrations_are_their_mean(tmp_path):
    files = [calibration(tmp_path / "a.json", step_us=5000, request_us=1000.0), calibration(tmp_path / "b.json", step_us=15000)]
    (point,) = simulate(tmp_path, ",".join(map(str, files)), "--input-tokens", 64, "--output-tokens", 20)
    s = point["summary"]
    assert s["tpot_ms"]["p50"] == pytest.approx(10, abs=0.01) and s["ttft_ms"]["p50"] == pytest.approx(10.5, abs=0.01)
    done = run("simulate", calibration(tmp_path / "c.json", cpu_share=0.5), "--requests", 1)
    assert "the steps got 50 % of them" in done.stdout
    done = run("simulate", ",".join(map(str, files)), "--requests", 1)
    assert "0.50 to 1.50 times as long as in the mean" in done.stdout and "speed wanders" in done.stdout
    other = calibration(tmp_path / "other.json", dtype="float32")
    done = run("simulate", f"{files[0]},{other}")
    assert done.returncode == 2 and "its dtype is another" in done.stderr and len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    "args, message",
    [
        (["--threads", 2], "--threads is for calibrating a model"),
        (["--max-model-len", 9000], "the calibration was made for at most 8192"),
        (["--replicas", 0], "a number from 1 to 256 or auto"),
        (["--replicas", "auto"], "needs an --slo"),
        (["--workload", "tools"], "cannot be simulated"),
        (["--block-size", 48], "allowed are 16, 32, 64, 128 and 256"),
        (["--max-num-batched-tokens", 8], "less than max-num-seqs"),
        (["--compare", "/no/such.json"], "/no/such.json"),
    ],
)
def test_bad_options_are_one_line(args, message, tmp_path):
    done = simulate(tmp_path, calibration(tmp_path / "c.json"), *args, code=2 if "cannot" not in message else 2)
    assert message in done.stderr and len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    "change, message",
    [
        ({"format": "x"}, "is no calibration"),
        ({"version": 2}, "has version 2"),
        ({"n_blocks": 0}, '"n_blocks" must be a number from 1'),
        ({"n_blocks": 2.5}, '"n_blocks" must be a whole number'),
        ({"slow_high": -1}, '"slow_high" must be a number from 0'),
        ({"model": 7}, '"model" must be a text'),
        ({"windows": []}, '"windows" must be an array'),
        ({"forward_us": {}}, '"forward_us" must be an object'),
        ({"chat_turn_tokens": 1.5}, '"chat_turn_tokens" must be a whole number'),
        ({"wander": 3}, '"moment_us" must be a number from 50000'),
        ({"wander": {"moment_us": 150000, "slow_thousandths": [1000] * 40}}, '"moment_us" must be 50000 times a power'),
        ({"wander": {"moment_us": 50000, "slow_thousandths": [1000] * 39}}, '"slow_thousandths" must be an array of 40'),
        ({"wander": {"moment_us": 50000, "slow_thousandths": [1000] * 2049}}, "40 to 2048 whole numbers"),
        ({"wander": {"moment_us": 50000, "slow_thousandths": [1000] * 50 + [19]}}, "from 20 to 50000"),
        ({"wander": {"moment_us": 50000, "slow_thousandths": [1000] * 50 + [1000.5]}}, "whole numbers"),
    ],
)
def test_bad_calibrations_are_one_line(change, message, tmp_path):
    done = run("simulate", calibration(tmp_path / "c.json", **change))
    assert done.returncode != 0 and message in done.stderr and len(done.stderr.splitlines()) == 1


def test_a_model_is_calibrated(tiny_model, tmp_path):
    """All of it on a small model: what is saved can be given instead of it."""
    saved = tmp_path / "c.json"
    done = run("simulate", tiny_model, "--save", saved, "--calibrate-seconds", 1, "--input-tokens", 32, "--output-tokens",
               8, "--max-model-len", 1024, "--kv-cache-memory-bytes", "16Mi", timeout=200)
    assert done.returncode == 0, done.stderr
    c = json.loads(saved.read_text())
    assert c["n_groups"] == 1 and c["max_model_len"] == 1024 and sum(r["steps"] for r in c["fit"]) > 100
    assert all(v >= 0 for v in c["forward_us"].values()) and c["request_us"] >= 0
    again = run("simulate", saved, "--input-tokens", 32, "--output-tokens", 8)
    assert again.returncode == 0 and "random 32/8, 1 stream" in again.stdout
