"""Starts the real binary, speaks raw HTTP to it, and reads its metrics."""

import base64
import contextlib
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse

from prometheus_client.parser import text_string_to_metric_families

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BINARY = pathlib.Path(os.environ.get("QUIRE_BIN", ROOT / "build" / "quire")).resolve()
CACHE = ROOT / "tests" / ".cache"
# A sanitizer makes everything several times slower; bounds on time are generous anyway.
PATIENCE = float(os.environ.get("QUIRE_PATIENCE", "1"))
SANITIZED = BINARY.exists() and any(name in BINARY.read_bytes() for name in (b"__asan_init", b"__tsan_init"))


def environment(**more):
    env = {k: v for k, v in os.environ.items() if not k.startswith("QUIRE_") or k == "QUIRE_CACHE"}
    env.setdefault("ASAN_OPTIONS", "exitcode=99:detect_leaks=1:quarantine_size_mb=16")
    env.setdefault("UBSAN_OPTIONS", "print_stacktrace=1")
    env.update(more)
    return env


def run(*args, input=None, timeout=60, env=None):
    """One command to its end."""
    return subprocess.run(
        [BINARY, *map(str, args)],
        input=input,
        capture_output=True,
        timeout=timeout * PATIENCE,
        env=environment(**(env or {})),
        text=True,
    )


# A greedy answer of the default model that no rounding changes: on every CPU path and dtype seen, each of its tokens is at
# least 1.3 nats ahead of the second best.
REPEATED = "The sky is blue because of the way air scatters light."
REPEAT = f"Repeat this sentence exactly: {REPEATED}"


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    def json(self):
        return json.loads(self.body)

    @property
    def error(self):
        return self.json()["error"]

    def __repr__(self):
        return f"{self.status} {self.body[:300]!r}"


class Connection:
    """A socket and a strict reader of HTTP/1.1 answers: what it accepts is well framed."""

    def __init__(self, server, timeout=30):
        self.socket = server.connect(timeout * PATIENCE)
        self.file = self.socket.makefile("rb")

    def send(self, data):
        self.socket.sendall(data)

    def request(self, method, path, body=None, headers=None, host="x"):
        lines = [f"{method} {path} HTTP/1.1", f"Host: {host}"]
        lines += [f"{k}: {v}" for k, v in (headers or {}).items() if v is not None]
        if body is not None and not any(k.lower() in ("content-length", "transfer-encoding") for k in headers or {}):
            lines.append(f"Content-Length: {len(body)}")
        self.send("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + (body or b""))

    def head(self):
        line = self.file.readline()
        if not line:
            raise ConnectionError("closed before an answer")
        match = re.fullmatch(rb"HTTP/1\.1 (\d{3}) [^\r\n]+\r\n", line)
        assert match, line
        headers = {}
        while (line := self.file.readline()) != b"\r\n":
            name, _, value = line.decode("latin-1").rstrip("\r\n").partition(": ")
            assert line.endswith(b"\r\n") and name and name.lower() not in headers, line
            headers[name.lower()] = value
        return int(match[1]), headers

    def chunks(self):
        """The chunks of a chunked body, to its end."""
        while True:
            size = self.file.readline()
            if not re.fullmatch(rb"[0-9a-f]+\r\n", size):
                raise ConnectionError(f"cut within a chunked body: {size!r}")
            n = int(size, 16)
            data = self.file.read(n)
            if len(data) < n or self.file.read(2) != b"\r\n":
                raise ConnectionError("cut within a chunk")
            if not n:
                return
            yield data

    def answer(self, method="POST"):
        status, headers = self.head()
        if "transfer-encoding" in headers:
            return Answer(status, headers, b"".join(self.chunks()))
        if method == "HEAD" or status == 204:
            return Answer(status, headers, b"")
        n = int(headers["content-length"])
        body = self.file.read(n)
        assert len(body) == n, "cut within a body"
        return Answer(status, headers, body)

    def closed_by_server(self, timeout=10):
        self.socket.settimeout(timeout * PATIENCE)
        try:
            return self.file.read(1) == b""
        except ConnectionError:
            return True

    def reset(self):
        """Leaves as a process that dies."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        self.close()

    def close(self):
        self.file.close()
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def events(data):
    """The events of a complete SSE body, strictly: (list of JSON objects, whether it ended with [DONE])."""
    assert data.endswith(b"\n\n"), data[-80:]
    out, done = [], False
    for block in data.decode("utf-8").split("\n\n")[:-1]:
        if block.startswith(": "):
            continue
        assert block.startswith("data: ") and "\n" not in block and not done, block
        if block == "data: [DONE]":
            done = True
        else:
            out.append(json.loads(block[6:]))
    return out, done


class Server:
    def __init__(self, model, *args, env=None, prefix=(), timeout=60, expect_exit=0):
        self.log = tempfile.TemporaryFile()
        self.expect_exit, self.headers = expect_exit, {}
        command = [*map(str, prefix), str(BINARY), "serve", *([str(model)] if model else []), *map(str, args)]
        if "--port" not in command:
            command += ["--port", "0"]
        start = time.monotonic()
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=self.log, env=environment(**(env or {}))
        )
        watch = threading.Timer(timeout * PATIENCE, self.process.kill)
        watch.start()
        self.first_line = self.process.stdout.readline().decode()
        watch.cancel()
        self.start_s = time.monotonic() - start
        if not self.first_line.startswith("ready "):
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"not ready: {self.first_line!r}\n{self.stderr()}")
        self.url = self.first_line.split()[1]
        self.address = urllib.parse.urlsplit(self.url)
        self.port = self.address.port

    def stderr(self):
        self.log.seek(0)
        return self.log.read().decode("utf-8", "replace")

    def connect(self, timeout=30):
        return socket.create_connection((self.address.hostname, self.port), timeout)

    def stop(self, timeout=60):
        """Drains; fails unless it ends as it should, with no sanitizer report."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(timeout * PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError("did not end after SIGTERM\n" + self.stderr()[-3000:])
        rest = self.process.stdout.read()
        log = self.stderr()
        assert code == self.expect_exit, f"exit code {code}\n{log[-6000:]}"
        assert not rest, f"more than one line on standard output: {rest!r}"
        assert "runtime error:" not in log and "Sanitizer" not in log, log[-6000:]

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind:
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(10)
            self.process.kill()
            sys.stderr.write(self.stderr()[-4000:])
        else:
            self.stop()

    # ---- requests, each on a connection of its own ----

    def send(self, method, path, body=None, headers=None, timeout=60):
        """body: bytes, or what json.dumps takes."""
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
        h = {"Content-Type": "application/json"} if body is not None else {}
        h.update(self.headers)
        for name, value in (headers or {}).items():
            for old in [k for k in h if k.lower() == name.lower()]:
                del h[old]
            h[name] = value
        with Connection(self, timeout) as c:
            c.request(method, path, body, h)
            return c.answer(method)

    def get(self, path, **k):
        return self.send("GET", path, **k)

    def post(self, path, body, **k):
        return self.send("POST", path, body, **k)

    def ok(self, path, body, **k):
        answer = self.post(path, body, **k)
        assert answer.status == 200, answer
        return answer.json()

    def complete(self, prompt="The sky is", **fields):
        """A completion, which must succeed; the first choice."""
        return self.ok("/v1/completions", {"prompt": prompt, **fields})["choices"][0]

    def chat(self, content="hi", **fields):
        return self.ok("/v1/chat/completions", {"messages": [{"role": "user", "content": content}], **fields})

    def stream(self, path, body, **k):
        """The events of a stream that must succeed and end properly."""
        answer = self.post(path, {**body, "stream": True}, **k)
        assert answer.status == 200 and answer.headers["content-type"].startswith("text/event-stream"), answer
        out, done = events(answer.body)
        assert done, out[-1:]
        return out

    def refused(self, path, body, status=400, param=None, says=None, **k):
        """A request that must be refused with OpenAI's error shape. param "": none may be named."""
        answer = self.post(path, body, **k)
        assert answer.status == status, (answer, body)
        e = answer.error
        assert set(e) == {"message", "type", "param", "code"} and e["message"], e
        if param is not None:
            assert e["param"] == (param or None), e
        if says:
            assert says in e["message"], e
        return e

    # ---- figures ----

    def metrics(self):
        """{name: value} for samples without labels of their own, {(name, label value, ...): value} for the others."""
        return metrics_of(self.get("/metrics").body.decode())

    def wait_idle(self, seconds=5):
        """Until nothing runs, waits or holds KV."""
        end = time.monotonic() + seconds * PATIENCE
        names = [
            "vllm:num_requests_running",
            "vllm:num_requests_waiting",
            "vllm:kv_cache_usage_perc",
            "quire_answer_bytes",
        ]
        while True:
            m = self.metrics()
            busy = {n: m[n] for n in names if m[n]}
            if not busy:
                return m
            assert time.monotonic() < end, busy
            time.sleep(0.02)

    def wait_metric(self, name, test, seconds=10):
        end = time.monotonic() + seconds * PATIENCE
        while not test(value := self.metrics()[name]):
            assert time.monotonic() < end, (name, value)
            time.sleep(0.01)

    def resident_bytes(self):
        with open(f"/proc/{self.process.pid}/statm") as f:
            return int(f.read().split()[1]) * os.sysconf("SC_PAGESIZE")

    def peak_bytes(self):
        """The most that was resident at one time, pages of files included."""
        with open(f"/proc/{self.process.pid}/status") as f:
            return int(re.search(r"^VmHWM:\s+(\d+) kB$", f.read(), re.M).group(1)) * 1024

    def healthy(self):
        assert self.process.poll() is None, f"ended with {self.process.returncode}\n{self.stderr()[-6000:]}"
        assert self.get("/health").status == 200
        assert self.complete(max_tokens=1)["finish_reason"] in ("length", "stop")


def metrics_of(text):
    out = {}
    for family in text_string_to_metric_families(text):
        for s in family.samples:
            own = tuple(v for k, v in sorted(s.labels.items()) if k not in ("model_name", "engine"))
            key = (s.name, *own) if own else s.name
            assert key not in out, key
            out[key] = s.value
    return out


def plan_of(log):
    """The memory table of a start-up: {row: bytes}."""
    rows = dict(re.findall(r"^(weights|KV blocks|activations|buffers|rest|total) +(\d+)", log, re.M))
    return {k: int(v) for k, v in rows.items()}


def at_once(n, work):
    """work(i) for i < n on as many threads; results in order, the first failure raised."""
    results, failures = [None] * n, []

    def one(i):
        try:
            results[i] = work(i)
        except BaseException as e:  # noqa: BLE001: raised below
            failures.append(e)

    threads = [threading.Thread(target=one, args=(i,)) for i in range(n)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if failures:
        raise failures[0]
    return results


def from_base64(text):
    return base64.b64decode(text)
