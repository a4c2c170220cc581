"""Lengths, KV memory, queues, priorities."""

import json
import re
import time

import pytest
from harness import PATIENCE, Connection, Server, at_once

LIMIT = 256  # --max-model-len


@pytest.fixture(scope="module")
def short(tiny_model):
    with Server(
        tiny_model, "--max-model-len", LIMIT, "--kv-cache-memory-bytes", "4Mi", "--served-model-name", "tiny"
    ) as server:
        yield server


# ---- max_model_len ----


@pytest.mark.parametrize("n", [1, LIMIT - 2, LIMIT - 1, LIMIT, LIMIT + 1, 2 * LIMIT, 100_000])
@pytest.mark.parametrize("max_tokens", [None, 1, 2, LIMIT, 10**12])
@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_length_and_room(short, n, max_tokens, path):
    chat = "chat" in path
    around = short.ok("/tokenize", {"messages": [{"role": "user", "content": ""}]})["count"] if chat else 0
    if chat and n <= around:
        return
    text = "1" * (n - around)  # each digit is a token
    body = {"messages": [{"role": "user", "content": text}]} if chat else {"prompt": text}
    body |= {"ignore_eos": True} | ({"max_tokens": max_tokens} if max_tokens else {})
    want = max_tokens or (1 if chat else 16)
    if n + want > LIMIT:
        e = short.refused(path, body, param="messages" if chat else "prompt")
        assert e["code"] == "context_length_exceeded"
        numbers = [int(x) for x in re.findall(r"\d+", e["message"])]
        assert n in numbers and LIMIT in numbers and (not max_tokens or max_tokens in numbers), e  # all true
    else:
        usage = short.ok(path, body)["usage"]
        assert usage["prompt_tokens"] == n
        assert usage["completion_tokens"] == (max_tokens or (LIMIT - n if chat else 16))


def test_very_long_prompts_are_counted_and_refused_quickly(short):
    start = time.monotonic()
    e = short.refused("/v1/completions", {"prompt": "w " * 200_000, "max_tokens": 1})
    assert e["code"] == "context_length_exceeded" and time.monotonic() - start < 5 * PATIENCE
    exact = short.refused("/v1/completions", {"prompt": "7" * 300_000, "max_tokens": 1})["message"]
    assert "300000" in exact
    assert (
        "more than 1048576" in short.refused("/v1/completions", {"prompt": "7" * 2_000_000, "max_tokens": 1})["message"]
    )
    assert short.refused("/v1/completions", {"prompt": [5] * 400_000})["code"] == "context_length_exceeded"
    assert "1048576" in short.refused("/tokenize", {"prompt": "7" * 2_000_000})["message"]
    assert short.ok("/tokenize", {"prompt": "7" * 900_000})["count"] == 900_000
    short.healthy()


def test_one_long_prompt_among_many_refuses_the_request(short):
    short.refused("/v1/completions", {"prompt": ["a", "7" * 1000, "b"], "max_tokens": 1}, says="1000")
    short.wait_idle()


# ---- KV memory ----


def kv_tokens(server):
    m = server.metrics()
    return m["quire_kv_blocks"] * 16


@pytest.fixture(scope="module")
def cramped(tiny_model):
    """KV for about 2,000 tokens."""
    with Server(
        tiny_model, "--kv-cache-memory-bytes", "516k", "--served-model-name", "tiny", "--no-enable-prefix-caching"
    ) as server:
        assert 1950 <= kv_tokens(server) <= 2050, kv_tokens(server)
        yield server


def test_preemption(cramped, tiny_model):
    """20 requests of 900 + 900 tokens: all finish, each as if it were alone, and few are preempted often."""
    prompts = [[(7 * i + k) % 500 + 5 for k in range(900)] for i in range(20)]

    def ask(server, i):
        answer = server.ok(
            "/v1/completions",
            {
                "prompt": prompts[i],
                "max_tokens": 900,
                "temperature": 0.8,
                "seed": i,
                "ignore_eos": True,
                "return_token_ids": True,
                "logprobs": 0,
            },
            timeout=300,
        )
        return answer["choices"][0]["token_ids"], answer["choices"][0]["logprobs"]["token_logprobs"]

    together = at_once(20, lambda i: ask(cramped, i))
    m = cramped.wait_idle()
    assert m["vllm:num_preemptions_total"] > 0
    assert m["vllm:request_num_preemptions_count"] >= 20 and m[("vllm:request_num_preemptions_bucket", "5")] >= 20
    with Server(tiny_model, "--kv-cache-memory-bytes", "16Mi") as roomy:
        assert together == [ask(roomy, i) for i in range(20)]
        assert roomy.metrics()["vllm:num_preemptions_total"] == 0


def test_request_that_can_never_fit(cramped):
    have = int(kv_tokens(cramped))
    e = cramped.refused("/v1/completions", {"prompt": [5] * 1500, "max_tokens": 600})
    assert e["code"] == "context_length_exceeded" and "1500" in e["message"] and "600" in e["message"]
    fits = int(re.findall(r"(\d+) tokens in all", e["message"])[0])
    assert have - 16 <= fits <= have
    usage = cramped.ok("/v1/completions", {"prompt": [5] * 1500, "max_tokens": fits - 1500, "ignore_eos": True})[
        "usage"
    ]
    assert usage["total_tokens"] == fits
    # the room left is that of the memory, too
    usage = cramped.ok(
        "/v1/chat/completions", {"messages": [{"role": "user", "content": "7" * 1500}], "ignore_eos": True}
    )["usage"]
    assert usage["total_tokens"] == fits
    cramped.wait_idle()


def test_unrelated_conversations_never_meet(tiny_model):
    """Tenants with different beginnings and long equal rests, on a cache far too small: each answers as without a cache."""
    equal = [(11 * k) % 500 + 5 for k in range(200)]

    def ask(server, i):
        prompt = [5 + i % 9] * (17 + i % 5) + equal
        answer = server.ok(
            "/v1/completions", {"prompt": prompt, "max_tokens": 12, "temperature": 0, "ignore_eos": True, "logprobs": 1}
        )
        return json.dumps(answer["choices"])

    with Server(tiny_model, "--kv-cache-memory-bytes", "16Mi", "--no-enable-prefix-caching") as server:
        right = [ask(server, i) for i in range(45)]
        assert server.metrics()["vllm:prefix_cache_hits_total"] == 0
    with Server(tiny_model, "--kv-cache-memory-bytes", "300k", "--max-model-len", "400") as server:
        assert at_once(45, lambda i: ask(server, i)) == right
        for _ in range(3):
            assert at_once(8, lambda i: [ask(server, 5 * k + i % 5) for k in range(9)]) == [
                [right[5 * k + i % 5] for k in range(9)] for i in range(8)
            ]
        m = server.wait_idle()
        assert m["vllm:prefix_cache_hits_total"] > 0 and m["quire_kv_block_evictions_total"] > 0


# ---- the queue ----


def test_queue_bound(default_model):
    """Two run, three wait, the others are told to come back."""
    with Server(
        default_model, "--kv-cache-memory-bytes", "64Mi", "--max-num-seqs", "2", "--max-queue", "3", timeout=120
    ) as server:
        body = json.dumps({"prompt": "a", "max_tokens": 2000, "ignore_eos": True, "stream": True}).encode()
        held = [Connection(server, 120) for _ in range(5)]
        for c in held:
            c.request("POST", "/v1/completions", body)
        server.wait_metric("vllm:num_requests_waiting", lambda n: n == 3)
        for fields in (
            {"prompt": "x"},
            {"prompt": "x", "stream": True},
            {"prompt": ["x", "y"]},
            {"prompt": "x", "n": 3},
        ):
            answer = server.post("/v1/completions", fields)
            assert answer.status == 503 and int(answer.headers["retry-after"]) >= 1
            assert answer.error["type"] == "overloaded_error" and "queue is full" in answer.error["message"]
        m = server.metrics()
        assert (
            m[("vllm:admission_rejections_total", "queue_full")] >= 4 and m[("quire_requests_total", "overloaded")] == 4
        )
        assert m["vllm:num_requests_waiting"] == 3  # nothing of a refused request stays
        assert server.get("/health").status == 200
        for c in held:
            c.reset()
        server.wait_idle()
        server.healthy()


def test_no_queue_at_all(default_model):
    with Server(
        default_model, "--kv-cache-memory-bytes", "64Mi", "--max-num-seqs", "1", "--max-queue", "0", timeout=120
    ) as server:
        with Connection(server, 120) as c:
            c.request(
                "POST",
                "/v1/completions",
                json.dumps({"prompt": "a", "max_tokens": 2000, "ignore_eos": True, "stream": True}).encode(),
            )
            c.head()
            next(c.chunks())
            assert server.post("/v1/completions", {"prompt": "x"}).status == 503
            c.reset()
        server.wait_idle()
        server.healthy()


def test_priority(default_model):
    """Lower runs first; equal ones in order of arrival."""
    with Server(
        default_model,
        "--kv-cache-memory-bytes",
        "64Mi",
        "--max-num-seqs",
        "1",
        "--scheduling-policy",
        "priority",
        timeout=120,
    ) as server:
        order = []

        def ask(name, priority):
            server.ok("/v1/completions", {"prompt": "a", "max_tokens": 3, "priority": priority})
            order.append(name)

        with Connection(server, 120) as running:
            running.request(
                "POST",
                "/v1/completions",
                json.dumps(
                    {"prompt": "a", "max_tokens": 2000, "ignore_eos": True, "stream": True, "priority": -9}
                ).encode(),
            )
            running.head()
            next(running.chunks())

            def later(i):
                time.sleep(0.2 * i * PATIENCE)
                ask(*[("a", 5), ("b", 0), ("c", 5), ("d", -3), ("e", 0)][i])

            def release(_):
                server.wait_metric("vllm:num_requests_waiting", lambda n: n == 5, seconds=20)
                running.reset()

            at_once(6, lambda i: release(i) if i == 5 else later(i))
        assert order == ["d", "b", "e", "a", "c"]


def test_fcfs_ignores_priority(default_model):
    with Server(default_model, "--kv-cache-memory-bytes", "64Mi", "--max-num-seqs", "1", timeout=120) as server:
        order = []
        with Connection(server, 120) as running:
            running.request(
                "POST",
                "/v1/completions",
                json.dumps({"prompt": "a", "max_tokens": 2000, "ignore_eos": True, "stream": True}).encode(),
            )
            running.head()
            next(running.chunks())

            def later(i):
                if i == 3:
                    server.wait_metric("vllm:num_requests_waiting", lambda n: n == 3, seconds=20)
                    running.reset()
                    return
                time.sleep(0.3 * i * PATIENCE)
                server.ok("/v1/completions", {"prompt": "a", "max_tokens": 3, "priority": -i})
                order.append(i)

            at_once(4, later)
        assert order == [0, 1, 2]


# ---- one answer does not depend on the others ----


def test_answers_depend_on_the_request_alone(tiny_model):
    """Chunking, caching, batch, threads: the same bits."""
    requests = [
        {
            "prompt": [(3 * i + k * k) % 500 + 5 for k in range(1 + 53 * i)],
            "max_tokens": 8 + i,
            "temperature": (i % 3) * 0.5,
            "seed": i,
            "ignore_eos": True,
            "logprobs": 2,
        }
        for i in range(16)
    ]

    def ask(server, i):
        return json.dumps(server.ok("/v1/completions", requests[i])["choices"])

    right = None
    for flags in (
        ["--threads", "1"],
        ["--threads", "2", "--max-num-batched-tokens", "64"],
        ["--no-enable-prefix-caching"],
        ["--block-size", "64"],
        ["--max-num-seqs", "3", "--long-prefill-token-threshold", "16"],
        ["--kv-cache-memory-bytes", "512k", "--max-model-len", "1024"],
    ):
        kv = [] if "--kv-cache-memory-bytes" in flags else ["--kv-cache-memory-bytes", "8Mi"]
        with Server(tiny_model, *kv, *flags) as server:
            right = right or [ask(server, i) for i in range(16)]
            assert at_once(16, lambda i: ask(server, i)) == right, flags
            assert [ask(server, i) for i in range(16)] == right, flags


def test_fingerprint_names_the_numerics(tiny_model):
    """The same after a restart and for flags that do not touch the numbers; another one for another dtype."""

    def fingerprint(*flags, env=None):
        with Server(tiny_model, "--kv-cache-memory-bytes", "4Mi", *flags, env=env) as server:
            return server.ok("/v1/completions", {"prompt": "a", "max_tokens": 1})["system_fingerprint"]

    first = fingerprint()
    assert first == fingerprint(
        "--threads", "1", "--max-num-seqs", "8", "--no-enable-prefix-caching", "--block-size", "32", "--seed", "5"
    )
    others = [
        fingerprint("--dtype", "float32"),
        fingerprint("--dtype", "float16"),
        fingerprint(env={"QUIRE_CPU": "ref"}),
    ]
    assert len({first, *others}) == 4
    assert fingerprint("--dtype", "half") == others[1] and fingerprint("--dtype", "auto") == first == fingerprint(
        "--dtype", "bfloat16"
    )


def test_more_answers_than_there_is_room_for(tiny_model):
    """No waiting helps a request that asks for more than the server ever holds: both numbers, and no "later"."""
    with Server(tiny_model, "--max-num-seqs", "2", "--max-queue", "3", "--kv-cache-memory-bytes", "8Mi") as server:
        answer = server.post("/v1/completions", {"prompt": "a", "n": 6, "max_tokens": 1})
        assert answer.status == 400 and answer.error["param"] == "n", answer
        assert "6 answers" in answer.error["message"] and "5 requests" in answer.error["message"]
        answer = server.post("/v1/completions", {"prompt": ["a"] * 6, "max_tokens": 1})
        assert answer.status == 400 and answer.error["param"] == "prompt", answer
        assert server.post("/v1/completions", {"prompt": "a", "n": 5, "max_tokens": 1}).status == 200
