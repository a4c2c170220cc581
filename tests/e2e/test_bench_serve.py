"""`quire bench serve` against a server whose delays are known, and against the real one."""

import contextlib
import csv
import html.parser
import itertools
import json
import os
import re
import signal
import socket
import subprocess
import threading
import time

import numpy as np
import pytest
from harness import BINARY, PATIENCE, SANITIZED, environment, run
from mock import Mock

ATTEMPTS = 6  # a busy machine adds to single delays; a wrong formula is wrong every time


def bench(url, *args, tmp_path, code=0, **k):
    """The JSON of a run, and what it printed."""
    path = tmp_path / "serve.json"
    done = run("bench", "serve", url, *args, "--json", path, **k)
    assert done.returncode == code, (done.stderr, done.stdout[-2000:])
    return json.loads(path.read_text()), done


def near(got, want):
    """Within 1 ms or 1 %."""
    return abs(got - want) <= max(1, want / 100)


def until_right(measure, check):
    for i in range(ATTEMPTS):
        figures = measure()
        wrong = check(figures)
        if not wrong:
            return figures
        time.sleep(0.1 * i)
    raise AssertionError(wrong)


def quantiles(values):
    return {"mean": np.mean(values), **{f"p{p}": np.quantile(values, p / 100) for p in (50, 90, 95, 99)}}


def check_columns(point):
    """Every figure of a summary is that of its records, by numpy."""
    repeat = point["repeats"][0]
    summary, records = repeat["summary"], repeat["records"]
    ok = [o == "ok" for o in records["outcome"]]
    for name in ("ttft_ms", "tpot_ms", "e2e_ms", "sent_late_ms"):
        values = [v for v, good in zip(records[name], ok, strict=True) if good and v is not None]
        for key, want in quantiles(values).items():
            assert summary[name][key] == pytest.approx(want), (name, key)
        assert summary[name]["max"] == max(values) and summary[name]["n"] == len(values)
    out = sum(n for n, good in zip(records["output_tokens"], ok, strict=True) if good)
    assert summary["output_tokens"] == out
    assert summary["output_tokens_per_s"] == pytest.approx(out / summary["duration_s"])
    total = out + sum(n for n, good in zip(records["input_tokens"], ok, strict=True) if good)
    assert summary["total_tokens_per_s"] == pytest.approx(total / summary["duration_s"])
    assert summary["requests_per_s"] == pytest.approx(sum(ok) / summary["duration_s"])


@pytest.mark.parametrize("endpoint", ["completions", "chat"])
def test_closed_loop(tmp_path, endpoint):
    """Delays, counts and throughput of a server that takes 100 ms to the first token and 8 ms for each further one."""
    with Mock(ttft=100, tpot=8) as mock:

        def measure():
            return bench(mock.url, "--concurrency", 4, "--requests", 24, "--input-tokens", 100, "--output-tokens", 21,
                         "--endpoint", endpoint, tmp_path=tmp_path)[0]

        def check(figures):
            point = figures["points"][0]
            s = point["summary"]
            check_columns(point)
            added = 7 if endpoint == "chat" else 0
            assert (s["ok"], s["failed"], s["unsent"]) == (24, 0, 0)
            assert s["input_tokens"] == 24 * (100 + added) and s["output_tokens"] == 24 * 21
            assert s["input_length_wrong"] == s["output_length_wrong"] == 0 and s["messages"] == 24 * 21
            assert s["cached_tokens"] == 24 * ((100 + added) // 4)
            e2e = 100 + 20 * 8
            # never less than the server took; a busy machine makes it more, so the middle is what is compared
            assert s["ttft_ms"]["min"] >= 99.9 and s["e2e_ms"]["min"] >= e2e - 0.1
            assert s["output_tokens_per_s"] <= 4 * 21 / (e2e / 1000) * 1.001
            return [
                (name, s[name]["p50"], want)
                for name, want in (("ttft_ms", 100), ("tpot_ms", 8), ("itl_ms", 8), ("e2e_ms", e2e))
                if not near(s[name]["p50"], want)
            ]

        figures = until_right(measure, check)
        assert figures["format"] == "quire-bench-serve" and figures["version"] == 1
        assert figures["server"]["model"] == "mock" and figures["server"]["max_model_len"] == 8192


@pytest.mark.parametrize("held", [False, True])
def test_overload_shows_the_queue(tmp_path, held):
    """50 requests a second for a server that can do 25: request i waits 20 ms longer than the one before, whether the
    server holds the queue or --max-concurrency does. Nothing is omitted."""
    with Mock(ttft=20, tpot=5, slots=1) as mock:

        def measure():
            return bench(mock.url, "--rate", 50, "--arrival", "constant", "--requests", 50, "--output-tokens", 5,
                         "--input-tokens", 10, *(["--max-concurrency", 1] if held else []), tmp_path=tmp_path)

        def check(result):
            figures, done = result
            point = figures["points"][0]
            records, s = point["repeats"][0]["records"], point["summary"]
            due = sorted(records["due_s"])
            assert all(d == pytest.approx(i / 50, abs=1e-5) for i, d in enumerate(due))
            assert s["ok"] == 50
            expected = [20 + 20 * i for i in range(50)]
            by_due = sorted(zip(records["due_s"], records["ttft_ms"], records["sent_late_ms"], strict=True))
            assert all(ttft >= want - 0.1 for (_, ttft, _), want in zip(by_due, expected, strict=True))
            if held:  # the way there and back adds to each: compared with what was held back
                waited = np.median([ttft - late for _, ttft, late in by_due])
                assert s["sent_late_ms"]["p50"] > 100 and s["over_saturated"]
                return [] if near(waited, 20) else [waited]
            wrong = [
                (key, s["ttft_ms"][key], want)
                for key, want in quantiles(expected).items()
                if not s["ttft_ms"][key] == pytest.approx(want, rel=0.03)
            ]
            assert s["ttft_ms"]["max"] >= 999
            if not wrong:
                assert s["over_saturated"] and "over-saturated" in done.stdout and s["sent_late_ms"]["p50"] < 100
            return wrong

        until_right(measure, check)


def test_no_false_alarm(tmp_path):
    with Mock(ttft=5, tpot=1) as mock:
        figures, done = bench(mock.url, "--rate", 60, "--requests", 60, "--output-tokens", 3, "--input-tokens", 10,
                              tmp_path=tmp_path)
        assert figures["points"][0]["summary"]["over_saturated"] is None and "over-saturated" not in done.stdout


def test_goodput_cost_and_price(tmp_path):
    with Mock(ttft=20, tpot=4) as mock:
        figures, done = bench(mock.url, "--concurrency", "2", "--requests", 8, "--output-tokens", "uniform:2:40",
                              "--input-tokens", "normal:50:10", "--slo", "ttft:5000,e2e:100", "--price", "2.00/h",
                              "--seed", 3, tmp_path=tmp_path)
        s = figures["points"][0]["summary"]
        records = figures["points"][0]["repeats"][0]["records"]
        good = sum(v <= 100 for v in records["e2e_ms"])
        assert 0 < good < 8 and s["good_share"] == good / 8
        assert s["cost_per_1m_output"] == pytest.approx(2 / 3600 / s["output_tokens_per_s"] * 1e6)
        assert s["cost_per_1m_total"] == pytest.approx(2 / 3600 / s["total_tokens_per_s"] * 1e6)
        assert s["input_length_wrong"] == s["output_length_wrong"] == 0
        assert len(set(records["output_tokens"])) > 3 and len(set(records["input_tokens"])) > 3
        assert "of 8 requests within --slo" in done.stdout
        # the same seed asks the same
        again, _ = bench(mock.url, "--concurrency", "2", "--requests", 8, "--output-tokens", "uniform:2:40",
                         "--input-tokens", "normal:50:10", "--seed", 3, tmp_path=tmp_path)
        other = again["points"][0]["repeats"][0]["records"]
        assert sorted(other["output_tokens"]) == sorted(records["output_tokens"])
        assert sorted(other["input_tokens"]) == sorted(records["input_tokens"])


def test_servers_own_metrics(tmp_path):
    with Mock(ttft=30, tpot=5) as mock:
        figures, done = bench(mock.url, "--concurrency", 3, "--requests", 12, "--output-tokens", 10, "--interval", 0.02,
                              tmp_path=tmp_path)
        s = figures["points"][0]["summary"]
        own = s["server"]
        assert own["kv_usage"] == {"mean": 0.5, "max": 0.5} and own["prefix_hit_rate"] == pytest.approx(0.4)
        assert own["queue_ms_mean"] == pytest.approx(2) and own["running"]["max"] == 3
        assert own["memory_bytes"]["mean"] == 123456789 and own["preemptions"] > 0 and own["cpu_seconds"] is None
        assert 0 < s["machine"]["cpu_utilization"]["mean"] < 1.001 and s["machine"]["memory_bytes"]["mean"] > 1e6
        assert len(figures["points"][0]["repeats"][0]["samples"]) > 3
        assert 0 < s["generator_cpu"] < 5
    with Mock(metrics=0) as mock:
        figures, done = bench(mock.url, "--requests", 2, "--output-tokens", 3, tmp_path=tmp_path)
        assert figures["points"][0]["summary"]["server"]["kv_usage"] is None
        assert re.search(r"KV in use +absent", done.stdout)


NVML = """
struct two { unsigned gpu, memory; };
struct three { unsigned long long total, free, used; };
static int open_count;
int nvmlInit_v2(void) { open_count++; return 0; }
int nvmlShutdown(void) { return --open_count; }
int nvmlDeviceGetCount_v2(unsigned *n) { *n = 3; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **d) { *d = (void *)(unsigned long)(i + 1); return i == 2; }
int nvmlDeviceGetUtilizationRates(void *d, struct two *u) { u->gpu = d == (void *)1 ? 40 : 60; return 0; }
int nvmlDeviceGetMemoryInfo(void *d, struct three *m) { m->used = 1000; return 0; }
int nvmlDeviceGetPowerUsage(void *d, unsigned *mw) { *mw = 150000; return 0; }
int nvmlDeviceGetTemperature(void *d, int s, unsigned *t) { *t = d == (void *)1 ? 50 : 55; return s; }
int nvmlDeviceGetClockInfo(void *d, int c, unsigned *mhz) { *mhz = 1700; return c != 1; }
"""


@pytest.mark.skipif(SANITIZED, reason="the library has no sanitizer")
def test_gpus(tmp_path):
    """NVML's functions as its reference has them, by a library in its place: two GPUs, and one that cannot be used."""
    (tmp_path / "nvml.c").write_text(NVML)
    subprocess.run(["cc", "-shared", "-fPIC", "-w", "-o", tmp_path / "libnvidia-ml.so.1", tmp_path / "nvml.c"], check=True)
    with Mock(ttft=30, tpot=5) as mock:
        figures, done = bench(mock.url, "--requests", 3, "--output-tokens", 10, "--interval", 0.02, tmp_path=tmp_path,
                              env={"LD_LIBRARY_PATH": str(tmp_path)})
    s = figures["points"][0]["summary"]
    m = s["machine"]
    assert m["gpu_utilization"] == {"mean": pytest.approx(0.5), "max": pytest.approx(0.5)}
    assert m["gpu_memory_bytes"]["mean"] == 2000 and m["gpu_watts"]["mean"] == pytest.approx(300)
    assert m["gpu_celsius"]["max"] == 55 and m["gpu_sm_mhz"]["mean"] == pytest.approx(1700)
    if m["joules_from"] == "NVML":
        samples = figures["points"][0]["repeats"][0]["samples"]
        assert m["joules"] == pytest.approx(300 * (samples[-1]["t_s"] - samples[0]["t_s"]))
        assert s["joules_per_token"] == pytest.approx(m["joules"] / (s["input_tokens"] + s["output_tokens"]))
    assert "GPU power" in done.stdout


def test_the_generator_as_what_is_measured(tmp_path):
    """On one core with a server that takes the rest of it, the generator runs or waits all the time: it says so. Beside a server
    that is slow it says nothing."""
    mine = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(mine)})
    try:
        with Mock(ttft=1, tpot=0.1) as mock:
            figures, done = bench(mock.url, "--concurrency", 200, "--requests", 400, "--output-tokens", 100, "--input-tokens", 10,
                                  tmp_path=tmp_path)
    finally:
        os.sched_setaffinity(0, mine)
    s = figures["points"][0]["summary"]
    assert s["generator_bound"] and s["generator_cpu"] + s["generator_waiting"] > 0.7, s
    assert "% of the time for one: it may be what is measured" in done.stdout
    with Mock(ttft=100, tpot=20) as mock:
        figures, done = bench(mock.url, "--requests", 4, "--output-tokens", 20, "--input-tokens", 10, tmp_path=tmp_path)
    s = figures["points"][0]["summary"]
    assert not s["generator_bound"] and "what is measured" not in done.stdout


def test_without_a_tokenizer(tmp_path):
    """Lengths are exact by the usage of tiny requests alone."""
    with Mock(ttft=1, tpot=1, tokenizer=0, added=11) as mock:
        for endpoint, added in (("chat", 11), ("completions", 0)):
            figures, _ = bench(mock.url, "--requests", 3, "--input-tokens", 77, "--output-tokens", 2, "--endpoint",
                               endpoint, tmp_path=tmp_path)
            assert figures["server"]["tokens_by"] == "usage"
            assert figures["points"][0]["repeats"][0]["records"]["input_tokens"] == [77 + added] * 3


@pytest.mark.parametrize("workload", ["chat", "agent", "agent-last"])
def test_conversations(tmp_path, workload):
    """A turn carries all turns before, with the server's own answers: by the count of their words."""
    with Mock(ttft=3, tpot=1, added=7) as mock:
        figures, _ = bench(mock.url, "--workload", workload, "--concurrency", 2, "--requests", 4, "--turns", 3,
                           "--input-tokens", 20, "--output-tokens", 5, "--prefix-tokens", 30, "--think-time", "0.02",
                           tmp_path=tmp_path)
        records = figures["points"][0]["repeats"][0]["records"]
        assert figures["points"][0]["summary"]["ok"] == 12
        stable = 30 if workload == "agent-last" else 37
        for turn, tokens in zip(records["turn"], records["input_tokens"], strict=True):
            assert tokens == stable + (turn + 1) * (20 + 7) + turn * (5 + 7), (turn, tokens)
        assert sorted(records["turn"]) == sorted([0, 1, 2] * 4)


@pytest.mark.parametrize(
    "workload,tokens",
    [("rag20", 200 + 20 * 700), ("rag6", 200 + 6 * 700), ("rag3k", 200 + 6 * 467), ("tools", None), ("json", None)],
)
def test_single_workloads(tmp_path, workload, tokens):
    with Mock(ttft=1, tpot=0.1, context=20000) as mock:
        figures, _ = bench(mock.url, "--workload", workload, "--requests", 2, tmp_path=tmp_path)
        assert figures["points"][0]["summary"]["ok"] == 2
        if tokens:
            assert figures["points"][0]["repeats"][0]["records"]["input_tokens"] == [tokens] * 2


def test_suites(tmp_path):
    with Mock(ttft=1, tpot=0.05, context=8192) as mock:
        figures, done = bench(mock.url, "--suite", "A", "--scale", 0.05, tmp_path=tmp_path)
        assert [(p["input"]["a"], p["output"]["a"], p["concurrency"]) for p in figures["points"]] == [
            (26, 13, n) for n in (1, 8, 32, 64)
        ]
        assert [p["summary"]["ok"] for p in figures["points"]] == [16, 32, 128, 256]
        figures, _ = bench(mock.url, "--suite", "D", "--scale", 0.05, "--think-time", 0, "--requests", 2,
                           tmp_path=tmp_path)
        assert [p["workload"] for p in figures["points"]] == [
            "rag20", "rag6", "rag3k", "agent", "agent-last", "tools", "chat"
        ]
        assert all(not p["summary"]["failed"] for p in figures["points"])
        done = run("bench", "serve", mock.url, "--suite", "C")
        assert done.returncode == 2 and "17408 tokens, the model has 8192" in done.stderr, done.stderr
        assert "--scale 0.47 would fit" in done.stderr


TRACES = {
    "azure": "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,40,3\n"
    "2023-11-16 18:17:04.4799600,1000,4\n2023-11-16 18:17:04.2299600,50,5\n2023-11-16 18:17:05,10,0\n",
    "burstgpt": "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,ChatGPT,40,3,43,API log\n"
    "5.25,GPT-4,50,5,55,API log\n5.5,GPT-4,1000,4,1004,API log\n",
    "mooncake": '{"timestamp": 1000, "input_length": 40, "output_length": 3, "hash_ids": [1]}\n'
    '{"timestamp": 1250, "input_length": 50, "output_length": 5, "hash_ids": [1]}\n'
    '{"timestamp": 1500, "input_length": 1000, "output_length": 4, "hash_ids": [7, 8]}\n',
}


@pytest.mark.parametrize("kind", TRACES)
def test_traces(tmp_path, kind):
    path = tmp_path / "trace"
    path.write_text(TRACES[kind])
    with Mock(ttft=1, tpot=1) as mock:
        figures, _ = bench(mock.url, "--workload", "trace", "--file", path, "--time-scale", 5, tmp_path=tmp_path)
        point = figures["points"][0]
        records = point["repeats"][0]["records"]
        rows = sorted(zip(records["due_s"], records["input_tokens"], records["output_tokens"], strict=True))
        assert [(i, o) for _, i, o in rows] == [(40, 3), (50, 5), (1000, 4)]
        assert [d for d, _, _ in rows] == pytest.approx([0, 0.05, 0.1], abs=1e-5)
        assert point["arrival"] == "trace" and len(figures["notes"]) == (kind == "azure")
    with Mock(ttft=1, tpot=1, context=500) as mock:
        figures, done = bench(mock.url, "--workload", "trace", "--file", path, "--time-scale", 100, tmp_path=tmp_path)
        assert figures["points"][0]["summary"]["ok"] == 2
        assert "note: 1 of 3 requests of the trace are longer than the model's 500 tokens" in done.stdout


def test_files_of_requests(tmp_path):
    talks = [
        {"id": "a", "conversations": [{"from": "system", "value": "x"}, {"from": "human", "value": 'say "hi" now'},
                                      {"from": "gpt", "value": "one two three four"}]},
        {"id": "b", "conversations": [{"from": "human", "value": "no answer"}]},
        {"id": "c", "conversations": [{"from": "human", "value": "zwei Wörter"}, {"from": "gpt", "value": "a b"}]},
    ]
    path = tmp_path / "talks.json"
    path.write_text(json.dumps(talks))
    with Mock(ttft=1, tpot=1, added=0) as mock:
        figures, _ = bench(mock.url, "--workload", "sharegpt", "--file", path, "--requests", 2, tmp_path=tmp_path)
        records = figures["points"][0]["repeats"][0]["records"]
        assert sorted(zip(records["input_tokens"], records["output_tokens"], strict=True)) == [(2, 2), (3, 4)]
        path = tmp_path / "batch.jsonl"
        rows = [
            {"custom_id": "1", "method": "POST", "url": "/v1/chat/completions",
             "body": {"model": "gone", "messages": [{"role": "user", "content": "a b c"}], "max_tokens": 6}},
            {"custom_id": "2", "method": "POST", "url": "/v1/completions",
             "body": {"model": "gone", "prompt": "a b", "max_tokens": 2}},
        ]
        path.write_text("\n".join(map(json.dumps, rows)) + "\n\n")
        figures, _ = bench(mock.url, "--workload", "batch", "--file", path, "--requests", 2, tmp_path=tmp_path)
        records = figures["points"][0]["repeats"][0]["records"]
        assert sorted(zip(records["input_tokens"], records["output_tokens"], strict=True)) == [(2, 2), (3, 6)]


def test_errors_by_kind(tmp_path):
    with Mock(ttft=1, tpot=1, cut_every=5, busy_every=4) as mock:
        figures, done = bench(mock.url, "--requests", 40, "--output-tokens", 3, "--concurrency", 2, tmp_path=tmp_path)
        repeat = figures["points"][0]["repeats"][0]
        kinds = {(e["kind"], e["status"]): e for e in repeat["errors"]}
        assert set(kinds) == {("cut", 200), ("http", 503)}
        assert kinds["http", 503]["example"] == "the queue is full" and kinds["http", 503]["count"] == 10
        outcomes = repeat["records"]["outcome"]
        assert outcomes.count("http") == 10 and outcomes.count("cut") == kinds["cut", 200]["count"]
        s = figures["points"][0]["summary"]
        assert s["ok"] == outcomes.count("ok") == 40 - s["failed"] and "failed: 10 http 503" in done.stdout
        # failed requests give no tokens and no latencies
        assert s["output_tokens"] == 3 * s["ok"] and s["ttft_ms"]["n"] == s["ok"]
    with Mock(short_by=2) as mock:
        figures, done = bench(mock.url, "--requests", 3, "--output-tokens", 5, tmp_path=tmp_path)
        assert figures["points"][0]["summary"]["output_length_wrong"] == 3
        assert "3 answers had not the length asked for" in done.stdout
    with Mock(ttft=1, tpot=1, chunk=3) as mock:
        figures, done = bench(mock.url, "--requests", 2, "--output-tokens", 30, tmp_path=tmp_path)
        s = figures["points"][0]["summary"]
        assert (s["output_tokens"], s["messages"]) == (60, 20) and "3.00 tokens in a message" in done.stdout


@pytest.mark.parametrize("workload", ["json", "tools"])
def test_a_server_without_the_feature(tmp_path, workload):
    """It refuses every request: the report and the last line say what it said, and the exit code is that of a failure."""
    says = 'http 400: only "text" is üblich here'
    with Mock(refuse=1) as mock:
        figures, done = bench(mock.url, "--workload", workload, "--requests", 3, tmp_path=tmp_path, code=1)
        assert f"! failed: 3 {says}" in done.stdout and "TTFT" not in done.stdout, done.stdout
        assert done.stderr == f'quire bench serve: "{figures["points"][0]["title"]}": none of 3 requests was answered: {says}\n'
        assert figures["points"][0]["repeats"][0]["errors"] == [
            {"kind": "http", "status": 400, "count": 3, "example": 'only "text" is üblich here'}]
        figures, done = bench(mock.url, "--workload", workload, "--requests", 50, tmp_path=tmp_path, code=1)
        assert f"the first 20 requests all failed: {says}" in done.stderr and len(done.stderr.splitlines()) == 1
        # with others: these are measured, and it is told
        figures, done = bench(mock.url, "--suite", "D", "--scale", 0.05, "--think-time", 0, "--requests", 2,
                              tmp_path=tmp_path, code=1)
        assert [p["summary"]["failed"] for p in figures["points"]] == [0, 0, 0, 0, 0, 2, 0]
        assert "none of 2 requests was answered: " + says in done.stderr and len(done.stderr.splitlines()) == 1


def test_a_server_that_dies(tmp_path):
    with Mock(ttft=5, tpot=1, die_after=30) as mock:
        figures, done = bench(mock.url, "--concurrency", 4, "--requests", 500, "--output-tokens", 4, tmp_path=tmp_path,
                              code=1)
        assert len(done.stderr.splitlines()) == 1 and "the server is gone" in done.stderr, done.stderr
        assert figures["ended_early"] in done.stderr
        s = figures["points"][0]["summary"]
        assert 15 <= s["ok"] <= 30 and s["failed"] >= 10 and s["output_tokens"] == 4 * s["ok"]


def test_interrupted(tmp_path):
    path = tmp_path / "serve.json"
    with Mock(ttft=10, tpot=5) as mock:
        command = [BINARY, "bench", "serve", mock.url, "--concurrency", "3", "--requests", "100000", "--output-tokens",
                   "5", "--json", path]
        process = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                   env=environment())
        time.sleep(1.5)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30 * PATIENCE)
        assert process.returncode == 1 and "interrupted" in err and "requests" in out
        s = json.loads(path.read_text())["points"][0]["summary"]
        assert s["ok"] > 3 and s["unfinished"] <= 3 and s["failed"] == 0


def test_wrong_use(tmp_path):
    def fails(*args, says, code=2):
        done = run("bench", "serve", *args)
        lines = done.stderr.splitlines()
        assert done.returncode == code and len(lines) == 1 and not done.stdout, (done.stderr, done.stdout)
        assert lines[0].startswith("quire bench serve: ") and says in lines[0], lines

    fails(says="which server")
    fails("http://127.0.0.1:1", code=1, says="http://127.0.0.1:1 cannot be reached")
    fails("ftp://x", says="ftp://x")
    fails("http://a", "http://b", says="http://b")
    bad = tmp_path / "bad"
    with Mock() as mock:
        fails(mock.url, "--model", "other", says='no model "other"; it has mock')
        fails(mock.url, "--rate", "1", "--concurrency", "1", says="--concurrency")
        fails(mock.url, "--rate", "0", says='"0"')
        fails(mock.url, "--concurrency", "1,x", says='"x"')
        fails(mock.url, "--input-tokens", "gauss:1:2", says="gauss:1:2")
        fails(mock.url, "--input-tokens", "9000", says="9128 tokens, the model has 8192")
        fails(mock.url, "--slo", "ttft:1,tttt:3", says="--slo")
        fails(mock.url, "--price", "two", says="--price")
        fails(mock.url, "--workload", "chat", "--endpoint", "completions", says="--endpoint chat")
        fails(mock.url, "--workload", "trace", says="needs a --file")
        fails(mock.url, "--file", "x", says="--file is for")
        fails(mock.url, "--suite", "A", "--rate", "3", says="--suite")
        fails(mock.url, "--arrival", "ramp", "--rate", "3", says="--ramp-to")
        fails(mock.url, "--burstiness", "2", says="--burstiness")
        fails(mock.url, "--turns", "2", says="--turns")
        fails(mock.url, "--extra-body", "[1]", says="--extra-body")
        fails(mock.url, "--json", tmp_path / "no" / "x.json", says="--json")
        fails(mock.url, "--workload", "trace", "--file", tmp_path / "none", says="No such file")
        for text, says in [
            ("", "is empty"),
            ("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03,5,x\n", 'bad:2: the output is "x"'),
            ("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03,5\n", "bad:2: 2 fields"),
            ("TIMESTAMP,ContextTokens,GeneratedTokens\nyesterday,5,5\n", 'bad:2: the timestamp "yesterday"'),
            ("a,b\n1,2\n", "bad:1: the header"),
            ('{"timestamp": 1, "input_length": 5, "output_length": 5}\n{"timestamp": 1}\n', "bad:2: expected"),
            ('{"timestamp": 1, "input_le\n', "bad:1: not JSON"),
        ]:
            bad.write_text(text)
            fails(mock.url, "--workload", "trace", "--file", bad, says=says, code=1)
        bad.write_text('{"custom_id": "1", "url": "/v1/embeddings", "body": {}}')
        fails(mock.url, "--workload", "batch", "--file", bad, says="/v1/embeddings")
        bad.write_text('[{"x": 1}]')
        fails(mock.url, "--workload", "sharegpt", "--file", bad, says='entry 0 has no list "conversations"', code=1)
    with Mock(usage=0) as mock:
        fails(mock.url, "--requests", "2", says="has no usage", code=1)


@contextlib.contextmanager
def answering(*answers):
    """A server that gives the n-th connection the n-th answer (the last one from then on), whatever it is asked."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(20 * PATIENCE)

        def serve():
            with contextlib.suppress(OSError):
                for answer in itertools.chain(answers, itertools.repeat(answers[-1])):
                    connection, _ = listener.accept()
                    with connection:
                        connection.settimeout(5)
                        connection.recv(65536)
                        connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def plain(body, status="200 OK"):
    return f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n{body}".encode()


MODELS = plain('{"data":[{"id":"m"}]}')
NONE = plain("{}", "404 Not Found")


@pytest.mark.parametrize("answers,says", [
    ([b"SSH-2.0-OpenSSH_9.2\r\n"], "cannot be reached: Received HTTP/0.9 when not allowed"),
    ([b""], "cannot be reached: Empty reply from server"),
    ([b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"], "cannot be reached: transfer closed with 99 bytes remaining to read"),
    ([plain("<html>")], "/v1/models does not answer with a list of models"),
    ([plain("[1]")], "/v1/models does not answer with a list of models"),
    ([plain('{"data":[]}')], "/v1/models names no model; give one with --model"),
    ([plain('{"error":{"message":"who\\nare \\"you\\"?"}}', "401 Unauthorized")], '/v1/models answers 401: who are "you"?'),
    ([plain("<html>\\x1b busy", "502 Bad Gateway")], "/v1/models answers 502: <html>"),
    ([MODELS, NONE, NONE, plain('{"error":"no completions here"}', "501 Not Implemented")],
     "/v1/completions answers 501: no completions here"),
    ([MODELS, NONE, NONE, plain('{"choices":[]}')], "/v1/completions: the answer is no event stream though one was asked for"),
])
def test_servers_that_are_none(answers, says):
    """One line with what the server did, and nothing was measured."""
    with answering(*answers) as url:
        done = run("bench", "serve", url, "--requests", 2, "--input-tokens", 8, "--output-tokens", 2)
    lines = done.stderr.splitlines()
    assert done.returncode in (1, 2) and len(lines) == 1 and says in lines[0] and not done.stdout, (done.stderr, done.stdout)


def test_no_such_host():
    done = run("bench", "serve", "http://host.invalid:1")
    assert done.returncode == 1 and "cannot be reached: Could not resolve host: host.invalid" in done.stderr, done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_server_that_stops_answering(tmp_path):
    """Requests that take too long fail by --timeout; those that were answered before are kept."""
    with Mock(ttft=1, tpot=1) as mock:
        figures, done = bench(mock.url, "--concurrency", 2, "--requests", 6, "--output-tokens", "uniform:1:4000", "--timeout",
                              1.5, "--seed", 2, tmp_path=tmp_path)
        repeat = figures["points"][0]["repeats"][0]
        outcomes = repeat["records"]["outcome"]
        assert {e["kind"] for e in repeat["errors"]} == {"timeout"} and "ok" in outcomes
        assert "timed out" in repeat["errors"][0]["example"] and f"failed: {outcomes.count('timeout')} timeout" in done.stdout


@pytest.mark.parametrize("load", [("--concurrency", 4), ("--rate", 100, "--arrival", "constant")])
def test_what_was_measured_is_kept(tmp_path, load):
    """A server that dies in the second of two points: both are in all files, and the last line says where it ended."""
    csv_path, html_path = tmp_path / "a.csv", tmp_path / "a.html"
    flag, value, *more = load
    with Mock(ttft=5, tpot=1, die_after=60) as mock:
        figures, done = bench(mock.url, flag, f"{value},{2 * value}", *more, "--requests", 45, "--output-tokens", 4, "--csv", csv_path,
                              "--html", html_path, tmp_path=tmp_path, code=1)
    assert len(done.stderr.splitlines()) == 1 and "the server is gone: connect: " in done.stderr, done.stderr
    first, second = (p["summary"] for p in figures["points"])
    assert first["ok"] == 45 and first["failed"] == 0 and 0 < second["ok"] < 20 and second["failed"] >= 10
    assert figures["points"][1]["title"] in figures["ended_early"]
    assert [int(row["ok"]) for row in csv.DictReader(csv_path.open())] == [45, second["ok"]]
    assert "the server is gone" in html_path.read_text()


class Page(html.parser.HTMLParser):
    void = {"meta", "br", "hr", "img", "link", "path", "rect", "circle", "i"}

    def __init__(self):
        super().__init__()
        self.tags = {}

    def handle_starttag(self, tag, attrs):
        self.tags[tag] = self.tags.get(tag, 0) + 1
        for name, value in attrs:
            assert name not in ("src", "href") and "url(" not in (value or ""), (tag, name, value)


def test_reports(tmp_path):
    csv_path, html_path = tmp_path / "a.csv", tmp_path / "a.html"
    with Mock(ttft=5, tpot=1) as mock:
        figures, done = bench(mock.url, "--concurrency", "1,4", "--requests", 8, "--repeat", 2, "--output-tokens", 5,
                              "--csv", csv_path, "--html", html_path, "--slo", "ttft:50", "--price", "2/h", "--label",
                              'A "label" <b>', tmp_path=tmp_path)
    rows = list(csv.DictReader(csv_path.open()))
    assert [(r["point"], r["repeat"]) for r in rows] == [
        (p["title"], str(i + 1)) for p in figures["points"] for i in range(2)
    ]
    for row, repeat in zip(rows, (r for p in figures["points"] for r in p["repeats"]), strict=True):
        s = repeat["summary"]
        assert row["label"] == 'A "label" <b>' and int(row["ok"]) == s["ok"] == 8
        for name in ("ttft", "tpot", "itl", "e2e"):
            for key in ("mean", "p50", "p90", "p95", "p99", "max"):
                assert float(row[f"{name}_ms_{key}"]) == pytest.approx(s[f"{name}_ms"][key], rel=1e-5)
        assert float(row["cost_per_1m_output"]) == pytest.approx(s["cost_per_1m_output"], rel=1e-5)
    page, text = Page(), html_path.read_text()
    page.feed(text)
    assert page.tags["svg"] >= 10 and "script" not in page.tags and "A &quot;label&quot; &lt;b&gt;" in text
    assert "prefers-color-scheme:dark" in text and "SLA: TTFT" in text and "nan" not in text.lower()
    assert "requests 16 ok" in done.stdout  # repeats together


def compare(*paths, tmp_path):
    out = tmp_path / "compare.json"
    done = run("bench", "compare", *paths, "--json", out)
    assert done.returncode == 0, done.stderr
    points = json.loads(out.read_text())["points"]
    return {m["metric"]: m for m in points[0]["metrics"]}, done.stdout


def test_compare(tmp_path):
    files = {}

    def measure():
        for name, tpot in (("a", 2), ("b", 4)):
            with Mock(ttft=5, tpot=tpot) as mock:
                figures, _ = bench(mock.url, "--concurrency", 4, "--requests", 8, "--repeat", 4, "--output-tokens", 20,
                                   "--price", "1/h", "--label", name, tmp_path=tmp_path)
                files[name] = tmp_path / f"{name}.json"
                files[name].write_text(json.dumps(figures))
        return compare(files["a"], files["b"], tmp_path=tmp_path)

    changed, text = until_right(
        measure, lambda r: [] if r[0]["TPOT P50"]["changes"][1]["change"] == pytest.approx(1, abs=0.2) else [r[0]["TPOT P50"]])
    same, _ = compare(files["a"], files["a"], tmp_path=tmp_path)
    for metric in same.values():
        assert metric["values"][0] == metric["values"][1]
        if metric["changes"][1]:
            assert metric["changes"][1]["verdict"] in ("no difference", None), metric
            assert metric["changes"][1]["change"] == 0
    for name, verdict in (("TPOT P50", "worse"), ("E2E P95", "worse"), ("output", "worse"), ("cost of 1M output", "worse")):
        change = changed[name]["changes"][1]
        assert change["verdict"] == verdict and change["interval_over"] == "repeats", changed[name]
        assert change["low"] <= change["change"] <= change["high"]
    back, _ = compare(files["b"], files["a"], tmp_path=tmp_path)
    assert back["TPOT P50"]["changes"][1]["verdict"] == back["output"]["changes"][1]["verdict"] == "better"
    # one repeat: latencies over requests, throughput without a verdict
    figures = json.loads(files["b"].read_text())
    figures["points"][0]["repeats"] = figures["points"][0]["repeats"][:1]
    files["b"].write_text(json.dumps(figures))
    single, text = compare(files["a"], files["b"], tmp_path=tmp_path)
    assert single["E2E P95"]["changes"][1]["interval_over"] == "requests" and "* over requests" in text
    assert single["output"]["changes"][1]["verdict"] is None and "fewer than 3 repeats" in text


def test_compare_wrong_use(tmp_path):
    def fails(*args, says, code=2):
        done = run("bench", "compare", *args)
        assert done.returncode == code and says in done.stderr and len(done.stderr.splitlines()) == 1, done.stderr

    bad = tmp_path / "bad.json"
    fails(says="two files")
    fails(bad, bad, says="bad.json")
    for text, says in [("{", "not JSON"), ("{}", "no measurement"), ('{"format": "quire-bench-serve", "version": 1}', "points")]:
        bad.write_text(text)
        fails(bad, bad, says=says, code=1)
    bad.write_text('{"format": "quire-bench-serve", "version": 9, "points": [1]}')
    fails(bad, bad, says="version 9")
    before = bad.read_text()
    fails(bad, bad, "--json", bad, says="is the file of a measurement, too: each needs its own")
    assert bad.read_text() == before


def test_the_real_server(tiny, tmp_path):
    """Exact lengths by its own count; shared prefixes hit its cache, own content never does, unless sent before."""
    load = ["--concurrency", 3, "--requests", 9, "--input-tokens", 40, "--output-tokens", 6, "--repeat", 2]
    figures, done = bench(tiny.url, *load, tmp_path=tmp_path)
    assert "has had these prompts before" not in done.stdout
    s = figures["points"][0]["summary"]
    assert (s["ok"], s["failed"], s["input_length_wrong"], s["output_length_wrong"]) == (18, 0, 0, 0)
    assert s["input_tokens"] == 18 * 40 and s["output_tokens"] == 18 * 6
    assert s["cached_tokens"] < 18 * 3  # a partly matching block is copied, and first words may agree by chance
    assert s["server"]["kv_usage"] and s["server"]["queue_ms_mean"] is not None
    figures, done = bench(tiny.url, *load, tmp_path=tmp_path)
    assert figures["points"][0]["summary"]["cached_tokens"] > 18 * 20 and "has had these prompts before" in done.stdout
    _, done = bench(tiny.url, *load, "--seed", 1, tmp_path=tmp_path)
    assert "has had these prompts before" not in done.stdout
    figures, _ = bench(tiny.url, "--requests", 8, "--input-tokens", 20, "--output-tokens", 3, "--prefix-tokens", 64,
                       "--prefix-groups", 2, tmp_path=tmp_path)
    records = figures["points"][0]["repeats"][0]["records"]
    assert records["input_tokens"] == [84] * 8
    assert [n // 64 for n in sorted(records["cached_tokens"])] == [0, 0] + [1] * 6
    assert all(n % 64 < 4 for n in records["cached_tokens"])


def test_many_streams(tmp_path):
    """A thousand streams at once from one process."""
    n = 200 if SANITIZED else 1000
    with Mock(ttft=200, tpot=50) as mock:
        figures, _ = bench(mock.url, "--concurrency", n, "--requests", n, "--input-tokens", 16, "--output-tokens", 20,
                           "--interval", 0.1, tmp_path=tmp_path)
        s = figures["points"][0]["summary"]
        assert s["ok"] == n and s["output_tokens"] == 20 * n and s["messages"] == 20 * n
        assert s["server"]["running"]["max"] > n / 2
