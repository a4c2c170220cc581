"""/metrics: a strict parse, exact sums over a known load, gauges back at 0; and docs/metrics.md names them all."""

import math
import re

import pytest
from harness import ROOT, Connection, Server, at_once, metrics_of
from prometheus_client.parser import text_string_to_metric_families

TEXT = "the time is near and there is no more to tell"
HISTOGRAMS = [
    "time_to_first_token_seconds",
    "inter_token_latency_seconds",
    "e2e_request_latency_seconds",
    "request_queue_time_seconds",
    "request_inference_time_seconds",
    "request_prefill_time_seconds",
    "request_decode_time_seconds",
    "request_time_per_output_token_seconds",
    "request_prompt_tokens",
    "request_generation_tokens",
    "request_params_max_tokens",
    "request_num_preemptions",
    "iteration_tokens_total",
]


def test_text_is_strictly_well_formed(tiny):
    tiny.complete(TEXT, max_tokens=3)
    answer = tiny.get("/metrics")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    text = answer.body.decode("ascii")
    assert text.endswith("\n") and "\n\n" not in text and "NaN" not in text and "null" not in text
    declared, seen = {}, set()
    sample = re.compile(r'([a-zA-Z_:][a-zA-Z0-9_:]*)\{((?:[a-zA-Z_]\w*="(?:[^"\\\n]|\\[\\"n])*",?)+)\} (\S+)')
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split()
            assert name not in declared, "declared twice"
            declared[name] = kind
        elif not line.startswith("# HELP "):
            match = sample.fullmatch(line)
            assert match, line
            assert (match[1], match[2]) not in seen, "a sample twice"
            seen.add((match[1], match[2]))
            assert math.isfinite(float(match[3])) or match[3] == "+Inf"
            base = re.sub(r"_(bucket|sum|count)$", "", match[1])
            kind = declared.get(match[1]) or declared[base]
            if kind == "counter":
                assert match[1].endswith("_total"), match[1]
    for name, kind in declared.items():
        assert kind in ("counter", "gauge", "histogram")
        if kind == "gauge":
            assert not name.endswith("_total")
    for family in text_string_to_metric_families(text):
        assert family.documentation


def test_vllm_names_are_there(tiny):
    m = tiny.metrics()
    names = {k if isinstance(k, str) else k[0] for k in m}
    for name in (
        "num_requests_running",
        "num_requests_waiting",
        "kv_cache_usage_perc",
        "prompt_tokens_total",
        "generation_tokens_total",
        "request_success_total",
        "prefix_cache_queries_total",
        "prefix_cache_hits_total",
        "num_preemptions_total",
        "cache_config_info",
    ):
        assert f"vllm:{name}" in names, name
    for name in HISTOGRAMS:
        assert {f"vllm:{name}_bucket", f"vllm:{name}_sum", f"vllm:{name}_count"} <= names, name
    assert 'model_name="tiny"' in tiny.get("/metrics").body.decode()


def test_histograms_are_consistent(tiny):
    tiny.complete(TEXT, max_tokens=5)
    for family in text_string_to_metric_families(tiny.get("/metrics").body.decode()):
        if family.type != "histogram":
            continue
        buckets = [(float(s.labels["le"]), s.value) for s in family.samples if s.name.endswith("_bucket")]
        assert buckets == sorted(buckets) and buckets[-1][0] == math.inf
        assert [b[1] for b in buckets] == sorted(b[1] for b in buckets)
        assert buckets[-1][1] == next(s.value for s in family.samples if s.name.endswith("_count"))


def change(before, after, name):
    return after.get(name, 0) - before.get(name, 0)


def test_exact_sums(tiny_model):
    """10 x 7 tokens in and 5 out, 2 that leave, 1 refused: every figure is what happened."""
    with Server(tiny_model, "--kv-cache-memory-bytes", "8Mi", "--served-model-name", "tiny") as server:
        zero = server.metrics()
        assert all(v == 0 for k, v in zero.items() if str(k).startswith("vllm:") and "info" not in str(k)), zero
        prompts = [[10 * i + k + 3 for k in range(7)] for i in range(10)]
        at_once(10, lambda i: server.complete(prompts[i], max_tokens=5, ignore_eos=True, n=1))
        m = server.metrics()
        assert m["vllm:prompt_tokens_total"] == 70 and m["vllm:generation_tokens_total"] == 50
        assert m[("vllm:request_success_total", "length")] == 10
        for name, count, total in (
            ("request_prompt_tokens", 10, 70),
            ("request_generation_tokens", 10, 50),
            ("request_params_max_tokens", 10, 50),
            ("request_num_preemptions", 10, 0),
        ):
            assert m[f"vllm:{name}_count"] == count and m[f"vllm:{name}_sum"] == total, name
        assert m["vllm:time_to_first_token_seconds_count"] == 10 and m["vllm:inter_token_latency_seconds_count"] == 40
        assert m["vllm:e2e_request_latency_seconds_count"] == m["vllm:request_queue_time_seconds_count"] == 10
        assert m["vllm:request_decode_time_seconds_count"] == m["vllm:request_prefill_time_seconds_count"] == 10
        # times add up
        for a, b, c in (
            ("request_prefill_time", "request_decode_time", "request_inference_time"),
            ("request_queue_time", "request_inference_time", "e2e_request_latency"),
        ):
            total = m[f"vllm:{a}_seconds_sum"] + m[f"vllm:{b}_seconds_sum"]
            assert total == pytest.approx(m[f"vllm:{c}_seconds_sum"], abs=0.05)
        assert m["vllm:time_to_first_token_seconds_sum"] > 0
        assert m[("quire_requests_total", "ok")] == 10

        # two leave
        for _ in range(2):
            with Connection(server) as c:
                c.request(
                    "POST",
                    "/v1/completions",
                    b'{"prompt":"a","max_tokens":4000,"ignore_eos":true,"stream":true}',
                    {"Content-Type": "application/json"},
                )
                c.head()
                next(c.chunks())
                c.reset()
            server.wait_idle()
        # one is refused by name, one by the key of its path, one has no route
        server.refused("/v1/completions", {"prompt": "x", "n": 0})
        server.get("/nothing")
        server.refused("/v1/completions", {"prompt": "x" * 5000})
        n = server.wait_idle()
        assert n[("vllm:request_success_total", "abort")] == 2 == n[("quire_requests_total", "client_gone")]
        assert n[("quire_requests_total", "invalid")] == 3 and n[("quire_requests_total", "ok")] == 10
        assert n[("vllm:request_success_total", "length")] == 10 and n[("vllm:request_success_total", "stop")] == 0
        assert n["vllm:prompt_tokens_total"] == 70 + 2 and n["vllm:e2e_request_latency_seconds_count"] == 10
        # finished requests = those that began
        finished = sum(v for k, v in n.items() if k[0] == "vllm:request_success_total")
        assert finished == 12

        # a stop, choices, a prompt that is in the cache
        server.complete(prompts[0], max_tokens=5, temperature=0, logit_bias={"2": 100})
        server.ok("/v1/completions", {"prompt": [200] * 33, "max_tokens": 2, "n": 3, "ignore_eos": True})
        server.complete([200] * 33, max_tokens=1, ignore_eos=True)
        p = server.wait_idle()
        assert (
            change(n, p, ("vllm:request_success_total", "stop")) == 1
            and change(n, p, ("vllm:request_success_total", "length")) == 4
        )
        assert change(n, p, "vllm:generation_tokens_total") == 1 + 6 + 1
        assert change(n, p, "vllm:prompt_tokens_total") == 7 + 3 * 33 + 33
        assert change(n, p, "vllm:prefix_cache_queries_total") == 7 + 4 * 33
        assert change(n, p, "vllm:prefix_cache_hits_total") == change(n, p, "vllm:prompt_tokens_cached_total") >= 32
        assert p["vllm:num_preemptions_total"] == 0 and p["quire_kv_blocks_used"] == 0
        for name in (
            "quire_steps_total",
            "quire_kv_block_allocations_total",
            "quire_received_bytes_total",
            "quire_sent_bytes_total",
            "process_cpu_seconds_total",
        ):
            assert p[name] > 0, name
        assert p["quire_kv_waste_ratio"] == 0 and p["vllm:kv_cache_usage_perc"] == 0
        assert abs(p["process_resident_memory_bytes"] - server.resident_bytes()) < 4 << 20


def test_gauges_while_running(smollm2):
    with Connection(smollm2) as c:
        c.request(
            "POST",
            "/v1/completions",
            b'{"prompt":"a","max_tokens":300,"ignore_eos":true,"stream":true,"n":3}',
            {"Content-Type": "application/json"},
        )
        c.head()
        chunks = c.chunks()
        for _ in range(30):
            next(chunks)
        m = smollm2.metrics()
        assert m["vllm:num_requests_running"] == 3 and m["vllm:num_requests_waiting"] == 0
        assert 0 < m["vllm:kv_cache_usage_perc"] < 0.2
        assert m["vllm:kv_cache_usage_perc"] == pytest.approx(m["quire_kv_blocks_used"] / m["quire_kv_blocks"])
        assert 0 <= m["quire_kv_waste_ratio"] < 1
        c.reset()


def test_names_of_models_are_escaped(tiny_model):
    name = 'a"b\\c\nd,{}é'
    with Server(tiny_model, "--kv-cache-memory-bytes", "4Mi", "--served-model-name", name) as server:
        for family in text_string_to_metric_families(server.get("/metrics").body.decode()):
            assert all(s.labels["model_name"] == name for s in family.samples)
        assert server.get("/v1/models").json()["data"][0]["id"] == name
        assert server.ok("/v1/completions", {"prompt": "x", "max_tokens": 1, "model": name})["model"] == name


def test_no_prompt_text_and_no_users_in_metrics_or_log(tiny_model):
    with Server(tiny_model, "--kv-cache-memory-bytes", "4Mi", "--log-level", "debug") as server:
        size = len(server.get("/metrics").body.splitlines())
        for i in range(30):
            server.post(
                "/v1/completions",
                {
                    "prompt": f"SECRETPROMPT {i}",
                    "max_tokens": 2,
                    "user": f"SECRETUSER{i}",
                    "metadata": {"a": f"SECRETDATA{i}"},
                    "safety_identifier": f"SECRETID{i}",
                    "cache_salt": f"SECRETSALT{i}",
                },
            )
            server.chat(f"SECRETCHAT{i}", max_tokens=2)
            server.refused("/v1/completions", {"prompt": f"SECRETBAD{i}", "stop": [5]})
            server.get(f"/v1/models/x{i}")
        text = server.get("/metrics").body.decode()
        assert "SECRET" not in text and len(text.splitlines()) == size  # no label grows with what clients send
        assert "SECRET" not in server.stderr()


def test_access_log(tiny_model):
    with Server(tiny_model, "--kv-cache-memory-bytes", "4Mi", "--api-key", "k") as server:
        server.headers = {"X-Api-Key": "k"}
        done = server.ok(
            "/v1/completions",
            {"prompt": [5, 6, 7], "max_tokens": 4, "ignore_eos": True},
            headers={"X-Request-Id": "trace\x7f7".replace("\x7f", "-")},
        )
        server.get("/v1/models")
        server.get("/nothing/%0d%1b%C3%A9")
        server.get("/nothing/%C3%A9")
        server.get("/health")
        server.get("/metrics")
        server.refused("/v1/completions", {"prompt": ""})
        server.get("/v1/models", headers={"X-Api-Key": "wrong"})
        server.stop()
        lines = [line for line in server.stderr().splitlines() if " - " in line or "queue_ms" in line]
        assert len(lines) == 6, lines  # one for each, but for probes that are well
        assert "- - refused 400: " in lines.pop(2)
        assert re.search(
            rf"{done['id']} POST /v1/completions 200 queue_ms=[\d.]+ ttft_ms=[\d.]+ total_ms=[\d.]+ prompt=3 cached=0 output=4 choices=1 "
            r"reason=length request=trace-7$",
            lines[0],
        )
        assert [re.search(r" (/\S*) (\d{3}) ", line)[2] for line in lines] == ["200", "200", "404", "400", "401"]
    with Server(tiny_model, "--kv-cache-memory-bytes", "4Mi", "--no-access-log") as server:
        server.healthy()
        server.stop()
        assert "/v1/completions 200" not in server.stderr()


# ---- docs/metrics.md ----


def documented():
    rows = re.findall(r"^\| `([\w:]+)` \| (\w+) \|([^|]*)\| (.+) \|$", (ROOT / "docs" / "metrics.md").read_text(), re.M)
    return {name: kind for name, kind, _, _ in rows}


def test_every_metric_is_documented_and_every_documented_one_exists(tiny):
    shown = dict(re.findall(r"^# TYPE (\S+) (\S+)$", tiny.get("/metrics").body.decode(), re.M))
    listed = documented()
    optional = {  # where the machine shows it
        "quire_package_energy_joules_total",
        "quire_cpu_throttled_seconds_total",
        "quire_cpu_wait_seconds_total",
    }
    assert set(shown) - optional == set(listed) - optional
    assert all(listed[name] == kind for name, kind in shown.items())


def test_metrics_of_a_fresh_server_parse(tiny_model):
    with Server(tiny_model, "--kv-cache-memory-bytes", "4Mi") as server:
        assert metrics_of(server.get("/metrics").body.decode())


# ---- what `quire advise` reads ----


def test_steps_by_phase_add_up(tiny_model):
    """Phases are all steps; their tokens are those of the steps; what waited is told by what it lacked."""
    with Server(tiny_model, "--kv-cache-memory-bytes", "8Mi", "--max-num-seqs", "2", "--threads", "2") as server:
        many = {"prompt": [[5 + i] * 40 for i in range(6)], "max_tokens": 30, "ignore_eos": True}
        server.ok("/v1/completions", many)
        m = server.wait_idle()
        phases = ("decode", "prefill")
        assert sum(m[("quire_phase_steps_total", p)] for p in phases) == m["quire_steps_total"]
        assert sum(m[("quire_phase_tokens_total", p)] for p in phases) == m["vllm:iteration_tokens_total_sum"]
        for p in phases:
            n, tokens = m[("quire_phase_steps_total", p)], m[("quire_phase_tokens_total", p)]
            squares, seconds = m[("quire_phase_tokens_squared_total", p)], m[("quire_phase_seconds_total", p)]
            assert tokens**2 / n <= squares <= tokens**2 and seconds > 0
            assert seconds <= m[("quire_phase_token_seconds_total", p)] <= seconds * tokens
        assert m[("quire_phase_tokens_total", "decode")] <= 2 * m[("quire_phase_steps_total", "decode")]
        whole = sum(m[f"quire_step_{part}_seconds_sum"] for part in ("prepare", "forward", "sample"))
        assert sum(m[("quire_phase_seconds_total", p)] for p in phases) == pytest.approx(whole, rel=1e-3, abs=1e-3)
        # six at once, two places: for most of the time somebody waited for one
        assert m[("quire_held_steps_total", "max_num_seqs")] > 0.5 * m["quire_steps_total"]
        assert m[("quire_held_steps_total", "kv")] == m[("quire_held_steps_total", "max_num_batched_tokens")] == 0
        assert m[("quire_flag", "max-num-seqs")] == 2 and m[("quire_flag", "threads")] == 2
        assert m[("quire_flag", "enable-prefix-caching")] == m[("quire_flag", "enable-chunked-prefill")] == 1


def test_held_by_kv(tiny_model):
    with Server(tiny_model, "--kv-cache-memory-bytes", "300k", "--max-model-len", "1024",
                "--no-enable-prefix-caching") as server:
        server.ok("/v1/completions", {"prompt": [[5 + i] * 400 for i in range(6)], "max_tokens": 60, "ignore_eos": True})
        m = server.wait_idle()
        assert m[("quire_held_steps_total", "kv")] > 0 == m[("quire_held_steps_total", "max_num_seqs")]
        assert m[("quire_flag", "enable-prefix-caching")] == 0
