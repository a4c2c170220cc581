"""From start to end: draining, signals, what a supervisor sees."""

import json
import os
import pathlib
import signal
import socket
import time

import pytest
from harness import PATIENCE, Connection, Server, events

KV = ("--kv-cache-memory-bytes", "64Mi")
SLOW = {"prompt": "a", "ignore_eos": True, "temperature": 0}


def start(server, **fields):
    """A stream of which the first chunk has come."""
    c = Connection(server, timeout=120)
    c.request(
        "POST",
        "/v1/completions",
        json.dumps({**SLOW, "stream": True, **fields}).encode(),
        {"Content-Type": "application/json"},
    )
    assert c.head()[0] == 200
    chunks = c.chunks()
    return c, chunks, next(chunks)


def wait_refused(server):
    """Until no new connection is taken."""
    end = time.monotonic() + 10 * PATIENCE
    while True:
        try:
            server.connect(5).close()
        except ConnectionRefusedError:
            return
        assert time.monotonic() < end, "new connections are still taken"
        time.sleep(0.01)


def test_drain_finishes_what_runs(default_model):
    with Server(default_model, *KV, timeout=120) as server:
        c, chunks, first = start(server, max_tokens=60)
        whole = Connection(server, timeout=120)
        whole.request("POST", "/v1/completions", json.dumps({**SLOW, "max_tokens": 40}).encode())
        idle = Connection(server)
        half = Connection(server)  # a request that has begun
        half.send(b"GET /health HTTP/1.1\r\nHost: x\r\n")
        server.wait_metric("vllm:num_requests_running", lambda n: n == 2)
        server.process.send_signal(signal.SIGTERM)
        wait_refused(server)
        assert idle.closed_by_server()
        half.send(b"\r\n")
        answer = half.answer()
        assert answer.status == 503 and answer.json() == {"status": "draining"} and answer.headers["retry-after"]
        out, done = events(first + b"".join(chunks))
        assert done and out[-1]["choices"][0]["finish_reason"] == "length"
        assert c.closed_by_server()
        answer = whole.answer()
        assert answer.json()["usage"]["completion_tokens"] == 40 and answer.headers["connection"] == "close"
        assert server.process.wait(30 * PATIENCE) == 0
        assert "SIGTERM: draining for up to 30 s" in server.stderr() and "stopped" in server.stderr()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_grace_time_ends(default_model, number):
    """What runs on is told: a stream ends with an error, a whole answer is a 503."""
    with Server(default_model, *KV, "--shutdown-timeout", "1", timeout=120) as server:
        c, chunks, first = start(server, max_tokens=2500)
        whole = Connection(server, timeout=120)
        whole.request("POST", "/v1/completions", json.dumps({**SLOW, "max_tokens": 2500}).encode())
        server.wait_metric("vllm:num_requests_running", lambda n: n == 2)
        begin = time.monotonic()
        server.process.send_signal(number)
        out, done = events(first + b"".join(chunks))
        assert (
            not done
            and out[-1]["error"]["type"] == "overloaded_error"
            and "shutting down" in out[-1]["error"]["message"]
        )
        answer = whole.answer()
        assert answer.status == 503 and answer.headers["retry-after"]
        assert server.process.wait(30 * PATIENCE) == 0
        assert 0.9 <= time.monotonic() - begin < 10 * PATIENCE


def test_no_grace(tiny_model):
    with Server(tiny_model, "--kv-cache-memory-bytes", "4Mi", "--shutdown-timeout", "0") as server:
        c, chunks, first = start(server, max_tokens=4000, n=100)
        server.process.send_signal(signal.SIGTERM)
        try:
            events(first + b"".join(chunks))
        except ConnectionError:
            pass
        assert server.process.wait(10 * PATIENCE) == 0


def test_second_signal_ends_at_once(default_model):
    server = Server(default_model, *KV, timeout=120, expect_exit=-signal.SIGTERM)
    c, chunks, first = start(server, max_tokens=2500)
    server.process.send_signal(signal.SIGTERM)
    wait_refused(server)
    begin = time.monotonic()
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(10) == -signal.SIGTERM and time.monotonic() - begin < 2 * PATIENCE
    server.stop()


def test_idle_server_stops_at_once(tiny_model):
    with Server(tiny_model, "--kv-cache-memory-bytes", "4Mi") as server:
        idle = [Connection(server) for _ in range(50)]
        begin = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(10 * PATIENCE) == 0 and time.monotonic() - begin < 2 * PATIENCE
        assert all(c.closed_by_server() for c in idle)


def test_drain_with_queued_requests(default_model):
    """Requests that wait have begun, too."""
    with Server(default_model, *KV, "--max-num-seqs", "1", timeout=120) as server:
        streams = [start(server, max_tokens=20)]
        for _ in range(3):
            c = Connection(server, timeout=120)
            c.request("POST", "/v1/completions", json.dumps({**SLOW, "max_tokens": 5}).encode())
            streams.append((c, None, b""))
        server.wait_metric("vllm:num_requests_waiting", lambda n: n == 3)
        server.process.send_signal(signal.SIGTERM)
        _, done = events(streams[0][2] + b"".join(streams[0][1]))
        assert done
        for c, _, _ in streams[1:]:
            assert c.answer().json()["usage"]["completion_tokens"] == 5
        assert server.process.wait(60 * PATIENCE) == 0


def test_restart_on_the_same_port(tiny_model):
    with Server(tiny_model, "--kv-cache-memory-bytes", "4Mi") as server:
        server.healthy()
        port = server.port
        held = server.connect()  # in TIME_WAIT afterwards
    held.close()
    with Server(tiny_model, "--kv-cache-memory-bytes", "4Mi", "--port", str(port)) as server:
        server.healthy()


def test_health(tiny):
    assert tiny.get("/health").json() == {"status": "ok"}
    assert tiny.get("/version").json()["version"].count(".") == 2


def test_closed_standard_streams(tiny_model):
    """Nobody reads the log any more: requests are served all the same."""
    import subprocess

    from harness import BINARY, environment

    process = subprocess.Popen(
        [BINARY, "serve", tiny_model, "--port", "0", "--kv-cache-memory-bytes", "4Mi"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    )
    port = int(process.stdout.readline().decode().rsplit(":", 1)[1])
    process.stderr.close()
    process.stdout.close()
    for _ in range(5):
        with socket.create_connection(("127.0.0.1", port), 10) as s:
            s.sendall(b"GET /v1/models HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            assert b"200 OK" in s.recv(100)
    process.terminate()
    assert process.wait(20) == 0


def threads_of(process):
    """name of each thread, or names of several, and the CPUs that it may use."""
    found = {}
    for task in pathlib.Path(f"/proc/{process.pid}/task").iterdir():
        found.setdefault((task / "comm").read_text().strip(), set()).update(os.sched_getaffinity(int(task.name)))
    return found


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core has one thread")
def test_compute_threads_on_cpus_of_their_own(tiny_model):
    """--cpu-bind core: a CPU for each compute thread and all for the others, and the same answers."""
    answers = {}
    for bind in ("none", "core"):
        with Server(tiny_model, *KV, "--threads", "2", "--cpu-bind", bind) as server:
            answers[bind] = server.complete("abc", max_tokens=40, logprobs=1)
            threads = threads_of(server.process)
            compute = [threads["quire-engine"], threads["quire-cpu-1"]]
            if bind == "none":
                assert compute == [os.sched_getaffinity(0)] * 2
                continue
            assert [len(cpus) for cpus in compute] == [1, 1] and compute[0] != compute[1]
            assert threads["quire-loop-0"] == threads["quire-worker"] == os.sched_getaffinity(0)
            assert "threads bound to cores" in server.stderr()
    assert answers["none"] == answers["core"]
