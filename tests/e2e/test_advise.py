"""`quire advise` on the real server with a cause planted, on pages of metrics with known figures, and on wrong input."""

import contextlib
import http.server
import json
import os
import re
import socket
import threading
import time

import pytest
from calibrations import calibration
from harness import ROOT, Connection, Server, at_once, run

PAGE = (ROOT / "tests" / "data" / "advise" / "vllm.txt").read_text()


def advise(source, *args, code=0, **k):
    done = run("advise", source, "--json", *args, **k)
    assert done.returncode == code, (done.stderr, done.stdout[-2000:])
    return json.loads(done.stdout)


def kinds(advice):
    print({k: round(v, 4) if isinstance(v, float) else v for k, v in advice["figures"].items()})  # shown with a failure
    return [v["kind"] for v in advice["verdicts"]]


def drive(server, bodies, n, streams=4, path="/v1/completions"):
    """n requests, so many at a time, to their ends; bodies(i): the i-th. What is then asked for is all since the start,
    so that nothing depends on how fast this machine is at the moment."""
    numbers, lock = iter(range(n)), threading.Lock()

    def loop(_):
        while True:
            with lock:
                i = next(numbers, None)
            if i is None:
                return
            assert server.post(path, bodies(i), timeout=300).status == 200

    at_once(streams, loop)
    return advise(server.url, "--window", 0)


def ids(seed, n):
    """n tokens that look drawn, the same for a seed."""
    return [(seed * 7919 + k * k * 31 + k * 17) % 450 + 10 for k in range(n)]


def body(prompt, max_tokens=16, **more):
    return {"prompt": prompt, "max_tokens": max_tokens, "ignore_eos": True, **more}


# ---- planted on the real server ----


def verdict(advice, kind):
    return next(v for v in advice["verdicts"] if v["kind"] == kind)


def test_batch_limit(default_model):
    with Server(default_model, "--max-num-seqs", "1", "--kv-cache-memory-bytes", "128Mi", timeout=120) as server:
        a = drive(server, lambda i: body(ids(i, 16), 24), n=14, streams=7)
    assert "batch-limit" in kinds(a) and "kv-pool" not in kinds(a), a
    v = verdict(a, "batch-limit")
    assert v["figures"]["max_num_seqs"] == 1 and v["figures"]["held_by_max_num_seqs"] > 0.5
    assert re.search(r"--max-num-seqs [2-9]", v["try"]) and 0 < v["gain"] < 1 and v["wrong_if"]


@pytest.fixture
def made_up(tmp_path):
    """Step times for a server of one thread on the reference path: 1 ms, however much is in a step. The server's own may
    be a fiftieth or fifty times as long, which fast and slow machines stay far from."""
    return calibration(tmp_path / "calibration.json", step_us=1000)


def test_gains_by_simulation(tiny_model, made_up):
    """Every step takes as long, so with n places for one there are n times the requests in that time; and steps are
    shortened by the factor of the kernels that would be used, so that is all that they give."""
    flags = ("--max-num-seqs", "1", "--threads", "1", "--kv-cache-memory-bytes", "8Mi")
    with Server(tiny_model, *flags, env={"QUIRE_CPU": "ref"}) as server:
        estimate = drive(server, lambda i: body(ids(i, 8), 40), n=21, streams=7)
        a = advise(server.url, "--window", 0, "--calibration", made_up)
        text = run("advise", server.url, "--window", 0, "--calibration", made_up).stdout
    assert estimate["simulation"] is None and {v["gain_from"] for v in estimate["verdicts"]} == {"estimate"}
    assert kinds(a) and set(kinds(a)) == set(kinds(estimate))
    s, v = a["simulation"], verdict(a, "batch-limit")
    print("steps_longer", s["steps_longer"])
    assert s["source"] == str(made_up) and s["not_done"] is None and s["input_tokens"] == 8 and s["output_tokens"] == 40
    places = min(int(re.search(r"--max-num-seqs (\d+)", v["try"])[1]), round(s["in_flight"]))
    assert places > 1 and v["gain_from"] == "simulation" and v["gain"] == pytest.approx(1 - 1 / places, abs=0.08)
    if "cpu-path" in kinds(a):
        path = verdict(a, "cpu-path")
        assert path["gain_from"] == "simulation" and path["gain"] == pytest.approx(verdict(estimate, "cpu-path")["gain"], abs=0.02)
    assert [v["gain"] for v in a["verdicts"]] == sorted((v["gain"] for v in a["verdicts"]), reverse=True)
    assert "expected  simulated: " in text and "simulated: requests of 8 and 40 tokens" in text


def test_calibrations_of_another_server(tiny_model, made_up, tmp_path):
    with Server(tiny_model, "--threads", "2", "--kv-cache-memory-bytes", "8Mi", env={"QUIRE_CPU": "ref"}) as server:
        drive(server, lambda i: body(ids(i, 8), 4), n=4)
        for source, args, message in (
            (server.url, ["--calibration", made_up], "was calibrated with --threads 1, the server has 2"),
            (server.url, ["--calibration", tmp_path / "none.json"], "none.json"),
            (server.url, ["--calibration", made_up, "--calibrate", tiny_model], "one of them is enough"),
            (server.url, ["--save", tmp_path / "x.json"], "--save is for --calibrate MODEL"),
        ):
            done = run("advise", source, "--window", 0, *args)
            assert done.returncode == 2 and message in done.stderr and len(done.stderr.splitlines()) == 1, done.stderr


def test_calibrating_first(tiny_model, tmp_path):
    """A model of this machine is measured, kept, and what was kept is of the server that runs it."""
    saved = tmp_path / "saved.json"
    with Server(tiny_model, "--threads", "1", "--max-num-seqs", "1", "--kv-cache-memory-bytes", "8Mi") as server:
        drive(server, lambda i: body(ids(i, 8), 30), n=8)
        a = advise(server.url, "--window", 0, "--calibrate", tiny_model, "--threads", 1, "--calibrate-seconds", 1, "--save", saved,
                   timeout=300)
        again = advise(server.url, "--window", 0, "--calibration", saved)
    assert a["simulation"]["source"] == "--calibrate" and json.loads(saved.read_text())["n_threads"] == 1
    assert again["simulation"]["source"] == str(saved) and set(kinds(a)) == set(kinds(again))


def test_pool_too_small(default_model):
    with Server(default_model, "--kv-cache-memory-bytes", "6Mi", "--max-model-len", "256", timeout=120) as server:
        a = drive(server, lambda i: body(ids(i, 100), 40), n=16, streams=8)
    assert "kv-pool" in kinds(a) and "batch-limit" not in kinds(a), a
    assert a["full"] in ("memory", "both")
    assert "--kv-cache-memory-bytes" in verdict(a, "kv-pool")["try"]


def test_lowered_path(tiny_model):
    with Server(tiny_model, "--kv-cache-memory-bytes", "8Mi", env={"QUIRE_CPU": "ref"}) as server:
        best = re.search(r'cpu_best="(\w+)"', server.get("/metrics").body.decode())[1]
        a = drive(server, lambda i: body(ids(i, 50), 30), n=8)
    assert ("cpu-path" in kinds(a)) == (best != "ref")
    if best != "ref":
        figures = verdict(a, "cpu-path")["figures"]
        assert figures["cpu_path"] == "ref" and figures["cpu_best"] == best


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core has one thread")
def test_one_thread(default_model):
    with Server(default_model, "--threads", "1", "--kv-cache-memory-bytes", "64Mi", timeout=120) as server:
        a = drive(server, lambda i: body(ids(i, 64), 32), n=8)
    assert "threads" in kinds(a) and "--threads 0" in verdict(a, "threads")["try"], a


def test_refusing_while_idle(tiny_model):
    """Bursts of eight for two places and no queue, and pauses: the device has time, the queue has none."""
    with Server(tiny_model, "--kv-cache-memory-bytes", "8Mi", "--max-num-seqs", "2", "--max-queue", "0") as server:
        start = time.monotonic()
        for _ in range(4):
            at_once(8, lambda i: server.post("/v1/completions", body(ids(i, 40), 60)))
        assert server.metrics()[("quire_requests_total", "overloaded")] >= 3
        time.sleep(2 + time.monotonic() - start)
        a = advise(server.url, "--window", 0)
    assert a["figures"]["busy"] < 0.85, a["figures"]
    assert "queue-limit" in kinds(a) and "more-devices" not in kinds(a), a
    assert "--max-queue" in verdict(a, "queue-limit")["try"]


def test_chunked_prefill_off(default_model):
    with Server(default_model, "--no-enable-chunked-prefill", "--max-model-len", "2048", "--kv-cache-memory-bytes", "128Mi",
                timeout=120) as server:
        a = drive(server, lambda i: body(ids(i, 700 if i % 3 == 0 else 10), 4 if i % 3 == 0 else 40), n=6, streams=3)
    assert "chunked-prefill-off" in kinds(a) and "token-budget" not in kinds(a), a
    assert a["figures"]["enable_chunked_prefill"] is False


def test_token_budget_too_low(default_model):
    with Server(default_model, "--max-num-batched-tokens", "8", "--max-num-seqs", "4", "--kv-cache-memory-bytes", "64Mi",
                timeout=120) as server:
        a = drive(server, lambda i: body(ids(i, 200), 4), n=4, streams=2)
    assert "token-budget" in kinds(a), a
    assert a["figures"]["max_num_batched_tokens"] == 8


def test_slo_that_this_machine_cannot_keep(default_model):
    with Server(default_model, "--kv-cache-memory-bytes", "64Mi", timeout=120) as server:
        drive(server, lambda i: body(ids(i, 16), 24), n=3, streams=1)
        a = advise(server.url, "--window", 0, "--slo", "tpot:0.01")
    assert "slo-impossible" in kinds(a) and "more-devices" not in kinds(a), a
    assert a["slo"]["tpot"] == {"limit_ms": 0.01, "kept": False}


def test_float_weights(default_model):
    """The same model in float32 would be bound by reading it; no such file is at hand, so its figures are checked."""
    with Server(default_model, "--kv-cache-memory-bytes", "64Mi", timeout=120) as server:
        a = drive(server, lambda i: body(ids(i, 8), 16), n=2, streams=1)
    assert 4 < a["figures"]["weight_bits"] < 8 and "weight-format" not in kinds(a)
    assert a["figures"]["decode_step_tokens"] == 1


def still(server):
    before = server.metrics()["quire_steps_total"]
    time.sleep(0.5)
    return server.metrics()["quire_steps_total"] == before


def test_slow_readers(tiny_model):
    """Clients that ask for long answers with all their log probabilities, and do not read them."""
    with Server(tiny_model, "--kv-cache-memory-bytes", "16Mi") as server:
        long = body(ids(1, 8), 4000, stream=True, logprobs=20, return_token_ids=True)
        held = []
        for _ in range(3):
            c = Connection(server, 120)
            c.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            c.request("POST", "/v1/completions", json.dumps(long).encode(), {"Content-Type": "application/json"})
            held.append(c)
        # until what lies between is full, and nothing goes on
        server.wait_metric("quire_num_requests_behind", lambda n: n == 3 and still(server), seconds=60)
        a = advise(server.url, "--window", 1)
        for c in held:
            c.reset()
    assert "slow-readers" in kinds(a), a


# ---- prompts ----


def system(i, stamp_first):
    rules = " ".join(f"Rule {k}: answer in {k + 3} words and name item {k * 7 % 13}." for k in range(25))
    stamp = f"Now it is 2026-01-{i % 28 + 1:02d}T{i % 24:02d}:{i % 60:02d}:{i * 7 % 60:02d}Z. "
    return stamp + rules if stamp_first else rules + " " + stamp


def talk(i, stamp_first):
    return {
        "messages": [
            {"role": "system", "content": system(i, stamp_first)},
            {"role": "user", "content": f"Question {i * 977 % 1009}: what about {ids(i, 6)}?"},
        ],
        "max_tokens": 2,
    }


@pytest.mark.parametrize("stamp_first", [True, False])
def test_timestamp_in_the_system_prompt(tiny_model, stamp_first):
    """In front it breaks every prefix, at the end of the same text none; only the first is a fault."""
    with Server(tiny_model, "--kv-cache-memory-bytes", "64Mi", "--prompt-statistics") as server:
        drive(server, lambda i: talk(i, stamp_first), n=30, streams=2, path="/v1/chat/completions")
        a = advise(server.url, "--window", 0, "--price", "2/h")
        m = server.wait_idle()
    f = a["figures"]
    assert f["compared_prompts"] > 5, f
    if stamp_first:
        v = verdict(a, "changing-field")
        assert f["field_tokens"] > 0.5 * f["compared_tokens"] and f["prefix_hit_rate"] < 0.3
        assert v["tokens_a_day"] == pytest.approx(f["field_tokens"] / f["window_s"] * 86400)
        assert 0 < v["money_a_day"] <= 48
    else:
        assert not {"changing-field", "cut-history", "changing-order"} & set(kinds(a)), a
        assert f["prefix_hit_rate"] > 0.5 and f["prefix_share"] > 0.5
    assert m[("quire_flag", "prompt-statistics")] == 1


def test_prefix_caching_off(tiny_model):
    with Server(tiny_model, "--kv-cache-memory-bytes", "64Mi", "--prompt-statistics", "--no-enable-prefix-caching") as server:
        a = drive(server, lambda i: talk(i, False), n=20, streams=2, path="/v1/chat/completions")
    v = verdict(a, "prefix-cache-off")
    assert "--enable-prefix-caching" in v["try"] and v["figures"]["prefix_share"] > 0.5


def test_prompt_statistics_are_private(tiny_model):
    """Counts and nothing else: they are the same for another secret and other words of the same shape, no label grows,
    and without the flag nothing is counted."""

    def ask(word, *flags):
        with Server(tiny_model, "--kv-cache-memory-bytes", "32Mi", *flags) as server:
            size = len(server.get("/metrics").body.splitlines())
            for i in range(12):
                prompt = [20 + i, 30 + i * i % 400] + [(word * k * k + k) % 450 + 10 for k in range(300)]
                server.complete(prompt, max_tokens=1)
                server.chat(f"SECRET {word} {i}", max_tokens=1)
            text = server.get("/metrics").body.decode()
            assert len(text.splitlines()) == size and "SECRET" not in text
            assert "SECRET" not in server.stderr()
            return {k: v for k, v in server.metrics().items() if "prompt_statistics" in str(k) and "flag" not in str(k)}

    first, again = ask(7, "--prompt-statistics"), ask(7, "--prompt-statistics")
    # the key is another one: what can be read depends on it only by where the first chunks end, of at most 64 tokens
    tokens = ("quire_prompt_statistics_displaced_tokens_total", "field")
    assert all(11 * (300 - 2 * 64) <= counts.pop(tokens) <= 11 * 302 for counts in (first, again))
    assert first == again
    assert first["quire_prompt_statistics_prompts_total"] == 24
    assert first[("quire_prompt_statistics_displaced_prompts_total", "field")] == 11
    assert set(ask(7).values()) == {0}


# ---- healthy servers ----

# What others on the machine do to the server is no fault of its settings, nor that a tiny model has little to do.
MACHINE = {"cpu-starved", "low-traffic"}


@pytest.mark.parametrize(
    "name, flags, make",
    [
        ("short chats", [], lambda i: talk(i, False)),
        ("small batches", ["--max-num-seqs", "8"], lambda i: talk(i, False)),
        ("another block size", ["--block-size", "32", "--prompt-statistics"], lambda i: talk(i, False)),
    ],
)
def test_healthy_chat(tiny_model, name, flags, make):
    with Server(tiny_model, "--kv-cache-memory-bytes", "64Mi", *flags) as server:
        drive(server, make, n=24, streams=2, path="/v1/chat/completions")
        a = advise(server.url, "--window", 0, "--slo", "ttft:60000,tpot:60000")
    assert a["traffic"] and not set(kinds(a)) - MACHINE, (name, a)
    assert all(s["kept"] for s in a["slo"].values())


@pytest.mark.parametrize("streams", [1, 3])
def test_healthy_completions(default_model, streams):
    with Server(default_model, "--kv-cache-memory-bytes", "128Mi", timeout=120) as server:
        a = drive(server, lambda i: body(ids(i, 60), 40), n=3 * streams, streams=streams)
    assert a["traffic"] and not set(kinds(a)) - MACHINE, a


def test_no_traffic(tiny_model):
    with Server(tiny_model, "--kv-cache-memory-bytes", "8Mi") as server:
        a = advise(server.url, "--window", 0.5)
        assert not a["traffic"] and not a["verdicts"]
        text = run("advise", server.url, "--window", 0.5).stdout
        assert "nothing can be said" in text and "nothing to change" not in text


def test_low_traffic(tiny_model):
    with Server(tiny_model, "--kv-cache-memory-bytes", "8Mi") as server:
        server.complete("a", max_tokens=1)
        time.sleep(4)
        a = advise(server.url, "--window", 0, "--price", "1/h")
    assert kinds(a) == ["low-traffic"] and 0 < a["verdicts"][0]["money_a_day"] <= 24, a


# ---- pages of other servers ----


class Pages:
    """A server that shows pages of metrics, one after the other and the last one on."""

    def __init__(self, *pages, status=200):
        self.pages, self.shown = pages, 0
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                found = self.path == "/metrics"
                page = outer.pages[min(outer.shown, len(outer.pages) - 1)] if found else "{}"
                outer.shown += found
                self.send_response(status if found else 404)
                self.send_header("Content-Length", str(len(page.encode())))
                self.end_headers()
                self.wfile.write(page.encode())

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def __enter__(self):
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


def later(page, **counters):
    """The page with new values of the samples that begin so."""
    for name, value in counters.items():
        page, n = re.subn(rf"^(vllm:{name}\{{[^}}]*\}}) .*$", rf"\1 {value}", page, flags=re.M)
        assert n, name
    return page


VLLM = later(PAGE, generation_tokens_total=99000, prompt_tokens_total=280000, num_preemptions_total=80,
             request_queue_time_seconds_sum=900, request_queue_time_seconds_count=300,
             request_prefill_time_seconds_sum=120, request_prefill_time_seconds_count=300,
             request_decode_time_seconds_sum=1500, request_decode_time_seconds_count=300)


def test_other_servers():
    with Pages(PAGE, VLLM) as pages:
        a = advise(pages.url, "--window", 0.6)
        assert kinds(a)[0] == "kv-pool" and a["figures"]["preemptions"] == 25
        missing = {n["kind"]: n["missing"] for n in a["not_seen"]}
        assert missing["cpu-path"] == "cpu_path" and "kv-pool" not in missing and missing["changing-field"]
        pages.shown = 0
        text = run("advise", pages.url + "/metrics", "--window", 0.6).stdout
        assert "kv-pool" in text and "not looked for" in text and "--prompt-statistics" not in text


def test_watch():
    with Pages(PAGE, VLLM, *[VLLM] * 2, later(VLLM, num_requests_waiting=0, kv_cache_usage_perc=0.2,
                                             generation_tokens_total=120000)) as pages:
        done = run("advise", pages.url, "--window", 0.4, "--watch", "--rounds", 3, "--json")
        rounds = [json.loads(line) for line in done.stdout.splitlines()]
        assert len(rounds) == 3 and rounds[0]["changes"] is None and rounds[1]["changes"]
        assert "kv-pool" in kinds(rounds[0]) and "kv-pool" not in kinds(rounds[2])
        pages.shown = 0
        text = run("advise", pages.url, "--window", 0.4, "--watch", "--rounds", 3).stdout
        assert "no longer: kv-pool" in text and text.count("----") == 2


def test_since_the_start():
    with Pages(PAGE.replace("process_start_time_seconds 1.7645e+09", f"process_start_time_seconds {time.time() - 120:.0f}")) as p:
        a = advise(p.url, "--window", 0)
        assert a["figures"]["window_s"] == pytest.approx(120, abs=20) and a["figures"]["requests"] == 240


# ---- reports ----


def test_report(tiny_model, tmp_path):
    path = tmp_path / "report.json"
    with Server(tiny_model, "--kv-cache-memory-bytes", "16Mi", "--max-num-seqs", "1") as server:
        done = run("bench", "serve", server.url, "--concurrency", "6", "--requests", "60", "--input-tokens", "20",
                   "--output-tokens", "30", "--slo", "ttft:60000", "--price", "2/h", "--json", path, timeout=120)
        assert done.returncode == 0, done.stderr
        report = json.loads(path.read_text())
        metrics = report["points"][0]["repeats"][0]["metrics"]
        assert metrics["seconds"] > 0 and "quire_steps_total" in metrics["last"] and "#" not in metrics["first"]
    a = advise(path)
    assert "batch-limit" in kinds(a), a
    assert a["title"] == report["points"][0]["title"] and a["slo"]["ttft"]["kept"]
    assert a["figures"]["requests"] == 60
    # without the server's own figures less is seen, and that is said
    report["points"][0]["repeats"][0]["metrics"] = None
    path.write_text(json.dumps(report))
    less = advise(path)
    assert "batch-limit" in {n["kind"] for n in less["not_seen"]} and less["figures"]["ttft_ms_p95"] > 0


# ---- wrong input ----


def refused(*args, says, code):
    done = run("advise", *args)
    lines = done.stderr.strip().splitlines()
    assert done.returncode == code and len(lines) == 1 and says in lines[0], (done.returncode, done.stderr)
    assert not done.stdout


def test_wrong_input(tmp_path, tiny_model):
    refused(says="which server or report", code=2)
    refused("a", "b", says="one too many", code=2)
    refused("/nowhere/report.json", says="neither a URL", code=2)
    refused("http://127.0.0.1:1", "--window", 1, says="cannot be reached", code=1)
    refused("http://127.0.0.1:1", "--slo", "fast", says="ttft:1000", code=2)
    refused("http://127.0.0.1:1", "--price", "much", says="2.00/h", code=2)
    refused("http://127.0.0.1:1", "--window", -1, says="window", code=2)
    refused("http://127.0.0.1:1", "--rounds", 3, says="--watch", code=2)
    refused("http://127.0.0.1:1", "--ca-cert", "x", says="--ca-cert", code=2)
    refused("http://127.0.0.1:1", "--window", 0, "--watch", says="--watch", code=2)
    bad = tmp_path / "bad.json"
    for text, says in (("", "not JSON"), ("{}", "no measurement"), ('{"format": "quire-bench-serve", "version": 9}', "version 9")):
        bad.write_text(text)
        refused(bad, says=says, code=2 if "version 9" in says else 1)
    refused(bad, "--watch", says="report", code=2)
    with Pages("<html>hello</html>\n") as pages:
        refused(pages.url, "--window", 0.3, says="no page of metrics", code=1)
    with Pages("node_load1 0.3\n") as pages:
        refused(pages.url, "--window", 0.3, says="1 samples", code=1)
    with Pages("gone", status=500) as pages:
        refused(pages.url, "--window", 0.3, says="500", code=1)
    with Pages(VLLM, PAGE) as pages:
        refused(pages.url, "--window", 0.4, says="started anew", code=1)
    with Server(tiny_model, "--kv-cache-memory-bytes", "4Mi", "--api-key", "k") as server:
        refused(server.url, "--window", 0.3, says="--api-key", code=1)
        server.headers = {"X-Api-Key": "k"}
        assert run("advise", server.url, "--window", 0.3, "--api-key", "k").returncode == 0
