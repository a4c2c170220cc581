"""Every allocation and thread of the start-up fails once: a clean error, or a server that works without it. While serving,
allocations fail again and again: requests fail by name, the server stays."""

import collections
import concurrent.futures
import os
import re
import signal
import subprocess
import threading
import time

import pytest
from harness import BINARY, CACHE, PATIENCE, ROOT, SANITIZED, Server, environment, events, run
from mock import Mock

pytestmark = pytest.mark.skipif(SANITIZED, reason="a sanitizer has an allocator of its own")


@pytest.fixture(scope="module")
def shim():
    CACHE.mkdir(parents=True, exist_ok=True)
    path = CACHE / "fail_nth.so"
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-O1", "-o", path, ROOT / "tests" / "e2e" / "fail_nth.c", "-ldl"], check=True
    )
    return path


def start(shim, model, at=None, template=None):
    """(exit code, text on standard error, whether it became ready); a ready server is asked to end."""
    env = environment(LD_PRELOAD=str(shim), **({"FAIL_AT": str(at)} if at else {}))
    args = [
        BINARY,
        "serve",
        model,
        "--port",
        "0",
        "--kv-cache-memory-bytes",
        "2Mi",
        "--threads",
        "2",
        "--api-key",
        "k",
        "--max-num-seqs",
        "4",
        "--max-queue",
        "4",
        "--max-num-batched-tokens",
        "64",
        "--max-model-len",
        "256",
    ]
    process = subprocess.Popen(args, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env, text=True)
    watch = threading.Timer(60 * PATIENCE, process.kill)
    watch.start()
    ready = process.stdout.readline().startswith("ready ")
    watch.cancel()
    if ready:
        process.send_signal(signal.SIGTERM)
    try:
        _, log = process.communicate(timeout=60 * PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        raise AssertionError(f"allocation {at}: hangs\n{process.communicate()[1]}") from None
    return process.returncode, log, ready


def check(shim, model, at):
    code, log, ready = start(shim, model, at)
    lines = [line for line in log.splitlines() if line.startswith("quire serve: ")]
    if ready:
        assert code == 0, (at, code, log)
        return "ready"
    assert code in (1, 2) and len(lines) == 1, (at, code, log)
    return lines[0]


def count(shim, model):
    code, log, ready = start(shim, model)
    assert code == 0 and ready, log
    return int(re.search(r"allocations: (\d+)", log)[1])


def test_each_of_the_start_fails(shim, tiny_model):
    n = count(shim, tiny_model)
    assert n > 50
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        said = list(pool.map(lambda at: check(shim, tiny_model, at), range(1, n + 1)))
    assert sum(s != "ready" for s in said) > n * 0.9


REQUESTS = [
    ("/v1/completions", {"prompt": "abc", "max_tokens": 20, "n": 3, "logprobs": 2, "echo": True, "seed": 1}),
    (
        "/v1/completions",
        {
            "prompt": ["abc", "def"],
            "max_tokens": 20,
            "stream": True,
            "logprobs": 2,
            "stop": ["zz"],
            "return_token_ids": True,
        },
    ),
    (
        "/v1/chat/completions",
        {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 10, "logprobs": True, "top_logprobs": 3},
    ),
    (
        "/v1/chat/completions",
        {
            "messages": [{"role": "user", "content": [{"type": "text", "text": "hello"}]}],
            "max_tokens": 10,
            "stream": True,
            "stream_options": {"include_usage": True},
            "logit_bias": {"7": 1},
            "repetition_penalty": 1.2,
        },
    ),
    ("/v1/completions", {"prompt": [5] * 100, "max_tokens": 1, "prompt_logprobs": 3}),
    ("/tokenize", {"prompt": "hello " * 50, "return_token_strs": True}),
    ("/detokenize", {"tokens": [5] * 100}),
    ("/v1/completions", {"prompt": "x", "n": 0}),
]


@pytest.mark.parametrize("every", [2, 3, 5, 11, 29, 101])
def test_requests_fail_but_the_server_does_not(shim, tiny_model, every):
    """Each answer is a whole one, an error object, an error event or a closed connection; afterwards all is as before."""
    with Server(
        tiny_model, "--kv-cache-memory-bytes", "4Mi", env={"LD_PRELOAD": str(shim), "FAIL_EVERY": str(every)}
    ) as server:
        server.healthy()
        right = [server.post(path, body).status for path, body in REQUESTS]
        server.process.send_signal(signal.SIGUSR1)
        seen = collections.Counter()
        for path, body in REQUESTS * 12:
            try:
                answer = server.post(path, body, timeout=20)
            except (ConnectionError, AssertionError):
                seen["closed"] += 1
                continue
            seen[answer.status] += 1
            if answer.status == 200 and body.get("stream"):
                out, done = events(answer.body) if answer.body else ([], False)
                assert done or not out or "error" in out[-1], out[-1:]
            elif answer.body:
                assert answer.status == 200 or answer.json()["error"]["message"]
        server.process.send_signal(signal.SIGUSR1)
        time.sleep(0.1)
        assert seen[500] + seen[503] + seen["closed"] > 0, seen
        assert [server.post(path, body).status for path, body in REQUESTS] == right
        server.wait_idle()
        server.healthy()


def test_bench_serve(shim, tmp_path):
    """The load generator: one line, or a report without what could not be had."""
    with Mock(ttft=1, tpot=0.2) as mock:

        def measure(at=None):
            args = ["bench", "serve", mock.url, "--workload", "chat", "--turns", "2", "--think-time", "0", "--concurrency", "2",
                    "--requests", "4", "--output-tokens", "3", "--input-tokens", "10", "--interval", "0.02"]
            for kind in ("json", "csv", "html"):
                args += [f"--{kind}", str(tmp_path / f"report.{kind}")]
            return run(*args, env={"LD_PRELOAD": str(shim), **({"FAIL_AT": str(at)} if at else {})})

        done = measure()
        n = int(re.search(r"allocations: (\d+)", done.stderr)[1])
        assert done.returncode == 0 and n > 100
        failed = 0
        for at in range(1, n, max(1, n // 25)):
            done = measure(at)
            assert done.returncode in (0, 1, 2), (at, done)
            failed += done.returncode != 0
            assert not done.returncode or len(done.stderr.splitlines()) == 1 and "memory" in done.stderr, (at, done.stderr)
        assert failed > 5
