"""Streams: whole characters, stop strings, held text, comments, slow readers, clients that leave."""

import json
import re
import socket
import time

import pytest
from harness import Connection, Server, at_once, events

TEXT = "the time is near and there is no more to tell"


def body_of(path, prompt=TEXT, **fields):
    if "chat" in path:
        return {"messages": [{"role": "user", "content": prompt}], **fields}
    return {"prompt": prompt, **fields}


def joined(out):
    """Text and finish reason of a stream of one choice."""
    text, reason = "", None
    for e in out:
        for c in e["choices"]:
            text += c["delta"].get("content", "") if "delta" in c else c["text"]
            assert reason is None, "a chunk after the last"
            reason = c["finish_reason"]
    return text, reason


def both(server, path, body):
    """(text, reason) of a request, which must be the same streamed and whole."""
    whole = server.ok(path, body)["choices"][0]
    text = whole["message"]["content"] if "message" in whole else whole["text"]
    assert joined(server.stream(path, body)) == (text, whole["finish_reason"])
    return text, whole["finish_reason"]


PATHS = ["/v1/completions", "/v1/chat/completions"]


# ---- characters ----


@pytest.mark.parametrize("path", PATHS)
def test_random_bytes_become_valid_text_in_both_modes(tiny, path):
    """The tiny model writes bytes at random: most are no characters."""
    for seed in range(12):
        text, _ = both(tiny, path, body_of(path, max_tokens=60, temperature=1.5, seed=seed, ignore_eos=True))
        assert text.encode("utf-8")  # no lone surrogate


@pytest.mark.parametrize("path", PATHS)
def test_emoji(smollm2, path):
    """Characters of several tokens: no chunk holds a part of one."""
    word = "👩‍👧 ďá 访"
    fields = dict(max_tokens=60, temperature=0)
    prompt = " ".join([word] * 6) if "chat" not in path else f"Repeat exactly: {' '.join([word] * 6)}"
    text, _ = both(smollm2, path, body_of(path, prompt, **fields))
    out = smollm2.stream(path, body_of(path, prompt, **fields))
    pieces = [joined([{"choices": [{**c, "finish_reason": None} for c in e["choices"]]}])[0] for e in out]
    assert all("\ufffd" not in p for p in pieces[:-2]) and any(ord(ch) > 0x2FFF for ch in text), text
    # logprobs hold the raw bytes
    if "chat" in path:
        content = smollm2.ok(path, body_of(path, prompt, **fields, logprobs=True))["choices"][0]["logprobs"]["content"]
        assert b"".join(bytes(e["bytes"]) for e in content).decode("utf-8", "replace").startswith(text.rstrip("\ufffd"))


def test_cut_within_a_character(smollm2):
    """At every length: an incomplete tail is one U+FFFD, the same in both modes."""
    prompt, cut = " ".join(["👩‍👧 ďá 访"] * 6), 0
    for n in range(1, 16):
        text, reason = both(smollm2, "/v1/completions", body_of("/v1/completions", prompt, max_tokens=n, temperature=0))
        assert reason == "length" and "\ufffd" not in text[:-1]
        cut += text.endswith("\ufffd")
    assert cut > 3


def test_a_genuine_replacement_character_survives(tiny):
    ids = tiny.ok("/tokenize", {"prompt": "\ufffd"})["tokens"]
    assert len(ids) == 3
    assert tiny.ok("/detokenize", {"tokens": ids * 2})["prompt"] == "\ufffd\ufffd"
    assert tiny.complete("a\ufffdb", max_tokens=0, echo=True)["text"] == "a\ufffdb"


def test_every_event_is_one_line_of_ascii_safe_json(tiny):
    answer = tiny.post(
        "/v1/completions", body_of("", max_tokens=80, temperature=1.5, seed=3, stream=True, ignore_eos=True)
    )
    for line in answer.body.decode("utf-8").split("\n"):
        assert not re.search(r"\\u[dD][89a-fA-F]", line)
        assert line == "" or line.startswith("data: ")


# ---- stop strings ----


def reference(server, n=60, **fields):
    """A long text of printable letters: only tokens of letters and spaces are allowed by bias."""
    bias = {str(i): -100 for i in range(0, 600) if not printable_id(server, i)}
    fields = dict(max_tokens=n, temperature=0.9, seed=11, ignore_eos=True, logit_bias=bias, **fields)
    return fields


def printable_id(server, i):
    if not hasattr(server, "texts"):
        server.texts = server.ok("/tokenize", {"prompt": "x"}) and [
            server.ok("/detokenize", {"tokens": [k]})["prompt"] for k in range(600)
        ]
    return bool(re.fullmatch(r"[ a-z]+", server.texts[i]))


@pytest.mark.parametrize("path", PATHS)
def test_stop_strings_everywhere(tiny, path):
    """Each piece of a known text as a stop: text before its first occurrence, in both modes."""
    fields = reference(tiny)
    full, _ = both(tiny, path, body_of(path, **fields))
    assert len(full) > 60
    for start in range(2, 50, 3):
        for length in (1, 2, 3, 5, 9, 17):
            stop = full[start : start + length]
            text, reason = both(tiny, path, body_of(path, **fields, stop=stop))
            assert text == full[: full.index(stop)] and reason == "stop", (stop, full)


def test_stop_reason_and_inclusion(tiny):
    fields = reference(tiny)
    full = tiny.complete(TEXT, **fields)["text"]
    stop = full[20:26]
    choice = tiny.complete(TEXT, **fields, stop=[stop, "never there"])
    assert choice["stop_reason"] == stop and choice["finish_reason"] == "stop"
    body = body_of("", **fields, stop=stop, include_stop_str_in_output=True)
    assert both(tiny, "/v1/completions", body)[0] == full[: full.index(stop) + len(stop)]


def test_earliest_of_several_stops(tiny):
    fields = reference(tiny)
    full = tiny.complete(TEXT, **fields)["text"]
    pieces = [full[40:44], full[10:15], full[25:27], "zzzz zzzz"]
    ends = {p: full.index(p) for p in pieces if p in full}
    first = min(ends.values())
    text, reason = both(tiny, "/v1/completions", body_of("", **fields, stop=pieces))
    assert reason == "stop" and (text == full[:first] or len(text) <= first)


def test_false_starts(tiny):
    """Stops that begin like the text and then differ hold text back, and give all of it back."""
    fields = reference(tiny)
    full = tiny.complete(TEXT, **fields)["text"]
    stops = [full[i : i + 8] + "#" for i in range(0, 48, 4)] + [full[-5:] + "#", full[-1] + "#"]
    for part in (stops[:16], [full[-20:] + "#"], [full + "#"]):
        text, reason = both(tiny, "/v1/completions", body_of("", **fields, stop=part))
        assert text == full and reason == "length"
    # aab in aaab
    letter = {str(i): 100 for i in range(600) if tiny.texts[i] == "a"}
    text, reason = both(
        tiny,
        "/v1/completions",
        body_of("", max_tokens=9, temperature=0, logit_bias=letter, stop=["aab", "aaaaaaaaaab"]),
    )
    assert text == "a" * 9 and reason == "length"
    assert both(tiny, "/v1/completions", body_of("", max_tokens=9, temperature=0, logit_bias=letter, stop="aaa")) == (
        "",
        "stop",
    )


def test_stops_match_inside_characters_of_several_tokens(smollm2):
    prompt = " ".join(["👩‍👧 ďá 访"] * 6)
    full = smollm2.complete(prompt, max_tokens=40, temperature=0)["text"]
    for stop in ("👧", "á 访", "\u200d", "ď"):
        assert stop in full
        text, reason = both(smollm2, "/v1/completions", body_of("", prompt, max_tokens=40, temperature=0, stop=stop))
        assert (text, reason) == (full[: full.index(stop)], "stop")


def test_nothing_of_a_stop_is_ever_shown(tiny):
    """No prefix of the stream reaches into the stop string."""
    fields = reference(tiny)
    full = tiny.complete(TEXT, **fields)["text"]
    stop = full[30:42]
    shown = ""
    for e in tiny.stream("/v1/completions", body_of("", **fields, stop=stop)):
        shown += e["choices"][0]["text"]
        assert full[: full.index(stop)].startswith(shown)


def test_logprobs_of_held_tokens_are_not_lost(tiny):
    fields = reference(tiny, logprobs=1)
    full = tiny.complete(TEXT, **fields)
    held = body_of("", **fields, stop=[full["text"][5:30] + "#"])
    parts = [e["choices"][0] for e in tiny.stream("/v1/completions", held)]
    assert [t for p in parts for t in p["logprobs"]["tokens"]] == full["logprobs"]["tokens"]
    assert "".join(p["text"] for p in parts) == full["text"]


# ---- roles and chunks ----


def test_chat_chunks(tiny):
    out = tiny.stream("/v1/chat/completions", body_of("chat", max_tokens=5, temperature=0, n=3, ignore_eos=True))
    for i in range(3):
        mine = [e["choices"][0] for e in out if e["choices"][0]["index"] == i]
        assert [c["delta"].get("role") for c in mine] == ["assistant"] + [None] * (len(mine) - 1)
        assert [c["finish_reason"] for c in mine] == [None] * (len(mine) - 1) + ["length"]


def test_streams_of_many_prompts(tiny):
    prompts = [f"{TEXT} {i}" for i in range(30)]
    whole = tiny.ok("/v1/completions", {"prompt": prompts, "max_tokens": 9, "temperature": 0, "n": 2})["choices"]
    texts = [""] * 60
    for e in tiny.stream("/v1/completions", {"prompt": prompts, "max_tokens": 9, "temperature": 0, "n": 2}):
        for c in e["choices"]:
            texts[c["index"]] += c["text"]
    assert texts == [c["text"] for c in whole]


# ---- comments while silent ----


def test_keep_alive_comments(smollm2_comments):
    """A stream that waits in the queue gets comments; they are no events."""
    server = smollm2_comments
    with Connection(server, timeout=120) as running, Connection(server, timeout=120) as waiting:
        long = json.dumps({"prompt": "a", "max_tokens": 2000, "ignore_eos": True, "stream": True}).encode()
        running.request("POST", "/v1/completions", long)
        running.head()
        next(running.chunks())
        waiting.request(
            "POST", "/v1/completions", json.dumps({"prompt": "b", "max_tokens": 3, "stream": True}).encode()
        )
        status, headers = waiting.head()  # at once, not when its turn comes
        assert status == 200
        first = [next(waiting.chunks()) for _ in range(2)]
        assert first == [b": keep-alive\n\n"] * 2
        running.reset()
        rest = b"".join(waiting.chunks())
        out, done = events(rest)
        assert done and out[-1]["choices"][0]["finish_reason"]


@pytest.fixture
def smollm2_comments(default_model):
    with Server(
        default_model,
        "--kv-cache-memory-bytes",
        "64Mi",
        "--max-num-seqs",
        "1",
        "--sse-keep-alive-interval",
        "1",
        timeout=120,
    ) as server:
        yield server


# ---- leaving ----

LONG = {"max_tokens": 2000, "ignore_eos": True, "temperature": 0}


def gone(server, seconds=1):
    """Within a second nothing is running, waiting or held."""
    server.wait_idle(seconds)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("how", ["reset", "close"])
@pytest.mark.parametrize("stream", [True, False])
def test_leaving_while_running(smollm2, path, how, stream):
    before = smollm2.metrics()[("vllm:request_success_total", "abort")]
    with Connection(smollm2) as c:
        c.request("POST", path, json.dumps({**body_of(path), **LONG, "stream": stream}).encode())
        if stream:
            assert c.head()[0] == 200
            next(c.chunks())
        else:
            smollm2.wait_metric("vllm:num_requests_running", lambda n: n == 1)
        getattr(c, how)()
        gone(smollm2)
    assert smollm2.metrics()[("vllm:request_success_total", "abort")] == before + 1


def test_leaving_by_half_close(smollm2):
    with Connection(smollm2) as c:
        c.request("POST", "/v1/completions", json.dumps({**body_of(""), **LONG, "stream": True}).encode())
        c.head()
        c.socket.shutdown(1)
        gone(smollm2)


def test_leaving_during_prefill(smollm2):
    done = smollm2.metrics()["vllm:prompt_tokens_total"]
    with Connection(smollm2) as c:
        c.request("POST", "/v1/completions", json.dumps({"prompt": "word " * 6000, **LONG}).encode())
        smollm2.wait_metric("vllm:num_requests_waiting", lambda n: n == 1)  # gauges follow at the end of a step
        time.sleep(0.2)
        c.reset()
        gone(smollm2, 60)  # within a step: 2,048 prompt tokens take a while on a busy machine
        assert smollm2.metrics()["vllm:prompt_tokens_total"] == done  # it never came to its first token


def test_leaving_with_many_choices(smollm2):
    with Connection(smollm2) as c:
        c.request("POST", "/v1/completions", json.dumps({**body_of(""), **LONG, "n": 40, "stream": True}).encode())
        c.head()
        next(c.chunks())
        c.reset()
        gone(smollm2)


def test_leaving_while_queued(default_model):
    with Server(default_model, "--kv-cache-memory-bytes", "64Mi", "--max-num-seqs", "1", timeout=120) as server:
        with Connection(server, 120) as running:
            running.request("POST", "/v1/completions", json.dumps({**body_of(""), **LONG, "stream": True}).encode())
            running.head()
            queued = [Connection(server) for _ in range(20)]
            for i, c in enumerate(queued):
                c.request(
                    "POST", PATHS[i % 2], json.dumps({**body_of(PATHS[i % 2]), **LONG, "stream": i % 3 == 0}).encode()
                )
            server.wait_metric("vllm:num_requests_waiting", lambda n: n == 20)
            for i, c in enumerate(queued):
                c.reset() if i % 2 else c.close()
            end = time.monotonic() + 2
            while (n := server.metrics()["vllm:num_requests_waiting"]) and time.monotonic() < end:
                time.sleep(0.02)
            assert n == 0 and server.metrics()["vllm:num_requests_running"] == 1
            running.reset()
        gone(server)
        server.healthy()


def test_many_leave_at_once(tiny):
    def leave(i):
        for k in range(5):
            with Connection(tiny) as c:
                c.request(
                    "POST",
                    PATHS[i % 2],
                    json.dumps({**body_of(PATHS[i % 2], f"{i} {k}"), **LONG, "stream": i % 4 < 2}).encode(),
                )
                if i % 3 == 0:
                    c.head()
                c.reset() if i % 5 else c.close()

    at_once(40, leave)
    gone(tiny, 3)


def test_leaving_before_a_large_body_is_read(tiny):
    for _ in range(5):
        with Connection(tiny) as c:
            c.request("POST", "/v1/completions", b'{"prompt":"' + b"a " * 3_000_000 + b'"}')
            c.reset()
    gone(tiny, 5)


# ---- slow readers ----


def test_slow_reader_hurts_only_itself(tiny_model):
    with Server(tiny_model, "--kv-cache-memory-bytes", "32Mi") as server:
        slow = server.connect()
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)  # the kernel takes little
        body = json.dumps(
            {"prompt": "a", "max_tokens": 4000, "ignore_eos": True, "stream": True, "logprobs": 20}
        ).encode()
        slow.sendall(
            b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
            % len(body)
            + body
        )
        time.sleep(1)
        done = server.metrics()["vllm:generation_tokens_total"]
        assert done < 3900  # it is not scheduled while its reader is behind
        start = time.monotonic()
        texts = at_once(8, lambda i: server.complete(TEXT, max_tokens=100, temperature=0, ignore_eos=True)["text"])
        assert len(set(texts)) == 1 and time.monotonic() - start < 20
        assert server.metrics()["vllm:generation_tokens_total"] < 3900 + 800
        # it still gets everything, in order, when it reads on
        data = bytearray()
        while not data.endswith(b"0\r\n\r\n") and (piece := slow.recv(1 << 16)):
            data += piece
        data = bytes(data)
        lines = re.findall(rb"data: (\{.*?\})\n\n", b"".join(unchunk(data.split(b"\r\n\r\n", 1)[1])))
        tokens = [t for line in lines for t in json.loads(line)["choices"][0]["logprobs"]["tokens"]]
        assert len(tokens) == 4000
        slow.close()


@pytest.mark.full
def test_reader_that_takes_nothing(tiny_model):
    """After 30 s its connection is closed, its sequence cancelled, its blocks are back."""
    with Server(tiny_model, "--kv-cache-memory-bytes", "32Mi") as server:
        stuck = server.connect(60)
        stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        body = json.dumps(
            {"prompt": "a", "max_tokens": 4000, "ignore_eos": True, "stream": True, "logprobs": 20}
        ).encode()
        stuck.sendall(
            b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
            % len(body)
            + body
        )
        time.sleep(20)
        assert server.metrics()["quire_kv_blocks_used"] > 0
        server.wait_metric("quire_slow_readers_total", lambda n: n == 1, seconds=20)
        server.wait_idle()
        assert server.metrics()[("vllm:request_success_total", "abort")] == 1
        stuck.close()


def unchunk(data):
    at = 0
    while True:
        end = data.index(b"\r\n", at)
        n = int(data[at:end], 16)
        if not n:
            return
        yield data[end + 2 : end + 2 + n]
        at = end + 2 + n + 2
