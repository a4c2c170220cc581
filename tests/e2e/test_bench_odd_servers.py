"""`quire bench serve` beside servers that write answers in odd ways, or break them off: what is whole is counted, the rest is told."""

import gzip
import json
import socket
import threading
import time

import pytest
from harness import run

WORDS = ["one", " two", " three", " four"]
USAGE = {"prompt_tokens": 5, "completion_tokens": len(WORDS), "total_tokens": 9}


def chunk(word=None, finish=None, **more):
    choices = [] if word is None and finish is None else [{"index": 0, "delta": {"content": word or ""}, "finish_reason": finish}]
    return json.dumps({"id": "c", "object": "chat.completion.chunk", "choices": choices, **more})


def event(text, end="\n\n"):
    return f"data: {text}{end}".encode()


def answer(*, usage="last", end="\n\n", between=b"", done=True, words=WORDS):
    """The events of a whole answer; usage: last, middle, every, none."""
    out = b""
    for i, word in enumerate(words):
        more = {"usage": USAGE} if usage == "every" or (usage == "middle" and i == 1) else {}
        out += event(chunk(word, **more), end) + between
    out += event(chunk(finish="length"), end)
    if usage == "last":
        out += event(chunk(usage=USAGE), end)
    return out + (event("[DONE]", end) if done else b"")


def head(status="200 OK", type_="text/event-stream", version="1.1", **fields):
    lines = [f"HTTP/{version} {status}", f"Content-Type: {type_}", *(f"{k.replace('_', '-')}: {v}" for k, v in fields.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def chunked(parts):
    return b"".join(f"{len(p):x}\r\n".encode() + p + b"\r\n" for p in parts) + b"0\r\n\r\n"


def each_byte(data):
    return [data[i : i + 1] for i in range(len(data))]


CLOSE = {"Connection": "close"}
CHUNKED = {"Transfer_Encoding": "chunked"}


class Server:
    """Sends the pieces one after the other, `pause` between them, to whoever posts; then closes."""

    def __init__(self, pieces, pause=0.0):
        self.pieces, self.pause = pieces, pause
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection):
        with connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            data = b""
            try:
                while b"\r\n\r\n" not in data:
                    data += connection.recv(65536)
                text, _, body = data.partition(b"\r\n\r\n")
                want = [int(x.split(b":")[1]) for x in text.lower().split(b"\r\n") if x.startswith(b"content-length:")]
                while want and len(body) < want[0]:
                    body += connection.recv(65536)
                if text.startswith(b"GET /v1/models"):
                    models = json.dumps({"data": [{"id": "odd", "max_model_len": 4096}]}).encode()
                    connection.sendall(head(type_="application/json", Content_Length=len(models), **CLOSE) + models)
                elif text.startswith(b"POST /v1/chat/completions"):
                    for piece in self.pieces:
                        connection.sendall(piece)
                        time.sleep(self.pause)
                else:
                    connection.sendall(head("404 Not Found", Content_Length=0, **CLOSE))
            except OSError:
                pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listener.close()


def measure(tmp_path, pieces, *arguments, pause=0.0, requests=3):
    batch, out = tmp_path / "batch.jsonl", tmp_path / "out.json"
    body = {"messages": [{"role": "user", "content": "count"}], "max_tokens": 4}
    rows = [{"custom_id": str(i), "method": "POST", "url": "/v1/chat/completions", "body": body} for i in range(requests)]
    batch.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with Server(pieces, pause) as server:
        done = run("bench", "serve", server.url, "--workload", "batch", "--file", batch, "--requests", requests, "--concurrency", 2,
                   "--json", out, "--no-progress", *arguments, timeout=60)
    point = json.loads(out.read_text())["points"][0]
    return point["summary"], point["repeats"][0]["errors"], done


WHOLE = {
    "plain, to the close": [head(**CLOSE) + answer()],
    "HTTP/1.0": [head(version="1.0") + answer()],
    "a length": [head(Content_Length=len(answer()), **CLOSE) + answer()],
    "chunks": [head(**CHUNKED, **CLOSE) + chunked([answer()])],
    "each byte a chunk": [head(**CHUNKED, **CLOSE) + chunked(each_byte(answer()))],
    "each byte a write": each_byte(head(**CHUNKED, **CLOSE) + chunked([answer()])),
    "CRLF": [head(**CLOSE) + answer(end="\r\n\r\n")],
    "CRLF, each byte a write": each_byte(head(**CLOSE) + answer(end="\r\n\r\n")),
    "comments, ids and names between": [head(**CLOSE) + answer(between=b": keep-alive\n\nid: 7\nevent: message\nretry: 10\n\n")],
    "no space behind data:": [head(**CLOSE) + answer().replace(b"data: ", b"data:")],
    "usage in the middle": [head(**CLOSE) + answer(usage="middle")],
    "usage in each": [head(**CLOSE) + answer(usage="every")],
    "no [DONE]": [head(**CLOSE) + answer(done=False)],
    "a type with parameters": [head(type_="text/event-stream; charset=utf-8", **CLOSE) + answer()],
    "another case": [head(type_="Text/Event-Stream", **CLOSE) + answer()],
    "no newline at the end": [head(**CLOSE) + answer().rstrip(b"\n")],
    "a byte order mark": [head(**CLOSE) + b"\xef\xbb\xbf" + answer()],
    "100 Continue ahead": [b"HTTP/1.1 100 Continue\r\n\r\n" + head(**CLOSE) + answer()],
    "content behind the end": [head(**CLOSE) + answer() + event(chunk("five"))],
    "a long line": [head(**CLOSE) + event(chunk(" ", padding="x" * 1_000_000)) + answer(words=WORDS[1:])],
}


@pytest.mark.parametrize("name", WHOLE)
def test_whole_answers(tmp_path, name):
    s, errors, done = measure(tmp_path, WHOLE[name])
    assert done.returncode == 0, done.stderr
    assert s["ok"] == 3 and not errors and s["output_tokens"] == 12 and s["input_tokens"] == 15 and s["messages"] == 12


def test_times_are_of_messages_not_of_writes(tmp_path):
    """A message that comes byte by byte is there when its last byte is."""
    pieces = [head(**CLOSE), *each_byte(event(chunk("one"))), answer(words=WORDS[1:])]
    s, errors, done = measure(tmp_path, pieces, pause=0.002, requests=2)
    assert s["ok"] == 2 and not errors
    assert s["ttft_ms"]["min"] >= 2 * len(event(chunk("one")))


gzipped = gzip.compress(answer())
BROKEN = {
    "no usage": ([head(**CLOSE) + answer(usage="none")], "no_usage", "no usage"),
    "500": ([head("500 Internal Server Error", "application/json", **CLOSE) + b'{"error":{"message":"out of\\nmemory"}}'], "http",
            "out of"),
    "500 with HTML": ([head("502 Bad Gateway", "text/html", **CLOSE) + b"<html>bad gateway</html>"], "http", "bad gateway"),
    "an error half-way": ([head(**CLOSE) + event(chunk("one")) + event('{"error":{"message":"worker died"}}')], "stream",
                          "worker died"),
    "cut within a chunk": ([head(**CHUNKED, **CLOSE) + b"ffff\r\n" + answer(done=False)[:100]], "cut", ""),
    "cut between events": ([head(**CLOSE) + event(chunk("one"))], "cut", "without an end"),
    "cut within a line": ([head(**CLOSE) + answer()[:70]], "cut", "without an end"),
    "less than its length": ([head(Content_Length=10_000, **CLOSE) + answer()], "cut", ""),
    "a chunk size that is none": ([head(**CHUNKED, **CLOSE) + b"zz\r\nabc\r\n"], "cut", ""),
    "not JSON": ([head(**CLOSE) + event("hello")], "malformed", "hello"),
    "no stream": ([head(type_="application/json", **CLOSE) + b"{}"], "malformed", "no event stream"),
    "nearly a stream": ([head(type_="text/event-streamer", **CLOSE) + answer()], "malformed", "no event stream"),
    "a head without measure": ([b"HTTP/1.1 200 OK\r\nX: " + b"a" * 200_000 + b"\r\n\r\n"], "cut", "above 100 KB"),
    "a redirection": ([head("307 Temporary Redirect", Location="/v1/other", Content_Length=0, **CLOSE)], "http", ""),
    "compressed": ([head(Content_Encoding="gzip", **CLOSE) + gzipped], "malformed", "gzip"),
    "nothing at all": ([b""], "cut", ""),
    "not HTTP": ([b"SSH-2.0-OpenSSH_9.2\r\n"], "cut", "HTTP/0.9"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_answers(tmp_path, name):
    """None is counted as an answer; the kind and the cause are told."""
    pieces, kind, says = BROKEN[name]
    s, errors, done = measure(tmp_path, pieces)
    assert done.returncode == 1 and "none of 3 requests was answered" in done.stderr, done.stderr
    assert s["ok"] == 0 and s["failed"] == 3 and s["output_tokens"] == 0
    assert [(e["kind"], e["count"]) for e in errors] == [(kind, 3)], errors
    assert says in errors[0]["example"] and "\n" not in errors[0]["example"]


def test_a_line_without_end(tmp_path):
    """A server that never ends a line does not fill this machine's memory."""
    s, errors, _ = measure(tmp_path, [head(**CLOSE) + b"data: "] + [b"x" * 1_000_000] * 20, requests=2)
    assert s["failed"] == 2 and errors[0]["kind"] == "cut"


def test_slow_beyond_the_timeout(tmp_path):
    s, errors, _ = measure(tmp_path, each_byte(head(**CLOSE) + answer()), "--timeout", "0.5", pause=0.05, requests=2)
    assert s["failed"] == 2 and errors[0]["kind"] == "timeout"
