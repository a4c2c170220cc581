"""What an HTTP client may send, in all the ways it can be wrong. Each test also leaves the server healthy and idle."""

import json
import socket
import time
import unicodedata

import pytest
from harness import Connection, at_once, events

BODY = {"prompt": "abc", "max_tokens": 2, "temperature": 0}
RAW = json.dumps(BODY).encode()


def raw(server, data, shut=False):
    """Sends bytes as they are; the first answer."""
    with Connection(server) as c:
        c.send(data)
        if shut:
            c.socket.shutdown(socket.SHUT_WR)
        return c.answer()


def post_head(*lines, path="/v1/completions", version="1.1"):
    return "\r\n".join([f"POST {path} HTTP/{version}", "Host: x", *lines, "", ""]).encode("latin-1")


def is_one_line(text):
    return all(unicodedata.category(c) != "Cc" for c in text)


# ---- routes and methods ----


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/v1",
        "/v1/",
        "/v1/models/",
        "/v1/completions/",
        "/V1/models",
        "/v1/chat",
        "/metrics/x",
        "/health/",
        "/tokenize/1",
        "//v1/models",
        "/v1//models",
        "/%20",
    ],
)
def test_unknown_paths(tiny, path):
    answer = tiny.get(path)
    assert answer.status == 404 and answer.error["message"], answer


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize"])
@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "PATCH"])
def test_wrong_method_on_post_routes(tiny, method, path):
    answer = tiny.send(method, path)
    assert answer.status == 405 and answer.headers["allow"] == "POST, OPTIONS"
    if method != "HEAD":
        assert method in answer.error["message"]


@pytest.mark.parametrize("path", ["/v1/models", "/v1/models/tiny", "/version", "/metrics", "/health"])
def test_get_routes(tiny, path):
    whole, head = tiny.get(path), tiny.send("HEAD", path)
    assert whole.status == head.status == 200
    assert head.headers["content-type"] == whole.headers["content-type"] and head.body == b""
    if path != "/metrics":  # whose length changes
        assert int(head.headers["content-length"]) == len(whole.body)
    assert tiny.post(path, {}).status == 405
    options = tiny.send("OPTIONS", path)
    assert options.status == 204 and options.headers["allow"] == "GET, HEAD, OPTIONS"


def test_options_star_and_unknown_method(tiny):
    assert raw(tiny, b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n").status == 204
    for method in (b"TRACE", b"CONNECT", b"get", b"BREW"):
        assert raw(tiny, method + b" / HTTP/1.1\r\nHost: x\r\n\r\n").status in (400, 501)


@pytest.mark.parametrize("query", ["?", "?a=b", "?a=b&c=%00", "?" + "x" * 4000, "?/../.."])
def test_query_strings_are_no_part_of_the_path(tiny, query):
    assert tiny.get("/v1/models" + query).status == 200
    assert tiny.post("/v1/completions" + query, BODY).status == 200


@pytest.mark.parametrize("path", ["/v1/mod%65ls", "/%76%31/models"])
def test_escaped_paths_are_the_same_path(tiny, path):
    assert tiny.get(path).status == 200


@pytest.mark.parametrize(
    "path",
    [
        "/v1/%00models",
        "/v1/models%0a",
        "/..",
        "/../../etc/passwd",
        "/v1/../v1/models",
        "/./v1/models",
        "/%2e%2e/etc/passwd",
        "/v1/%zz",
        "/v1/%2",
        "/v1/%",
    ],
)
def test_paths_that_two_parsers_read_differently(tiny, path):
    answer = tiny.get(path)
    assert answer.status == 400 and b"root:" not in answer.body


def test_long_paths(tiny):
    assert tiny.get("/" + "a" * 5000).status == 404
    for n in (9000, 60000, 1 << 20):
        with Connection(tiny) as c:
            try:
                c.request("GET", "/v1/" + "a" * n)
            except ConnectionError:
                pass
            assert c.answer().status in (414, 431)


# ---- models ----


def test_model_ids_with_slashes(tiny_model):
    from harness import Server

    with Server(
        tiny_model,
        "--served-model-name",
        "org/na me",
        "--served-model-name",
        "größe:1",
        "--kv-cache-memory-bytes",
        "4Mi",
    ) as server:
        listed = [m["id"] for m in server.get("/v1/models").json()["data"]]
        assert listed == ["org/na me", "größe:1"]
        for path in ("/v1/models/org/na%20me", "/v1/models/org%2Fna%20me", "/v1/models/gr%C3%B6%C3%9Fe:1"):
            assert server.get(path).json()["id"] in listed
        for name in listed:
            assert server.ok("/v1/completions", {**BODY, "model": name})["model"] == name
        assert server.ok("/v1/completions", BODY)["model"] == "org/na me"


@pytest.mark.parametrize("name", ["", "x", "TINY", "tiny ", "a" * 1024, "tiny\x00", "../tiny", "ä\u202e", "tiny/"])
def test_other_model_names(tiny, name):
    e = tiny.refused(
        "/v1/completions", {**BODY, "model": name}, status=400 if name == "" or "\0" in name else 404, param="model"
    )
    assert e["code"] == (None if name == "" or "\0" in name else "model_not_found")


def test_very_long_model_name(tiny):
    tiny.refused("/v1/completions", {**BODY, "model": "a" * 2_000_000}, param="model", says="1024")
    assert tiny.get("/v1/models/" + "b" * 4000).error["code"] == "model_not_found"


# ---- bodies ----


@pytest.mark.parametrize(
    "type", ["application/json", "application/json; charset=utf-8", "APPLICATION/JSON", "application/json ;x=y", None]
)
def test_content_types_that_are_json(tiny, type):
    assert tiny.post("/v1/completions", BODY, headers={"Content-Type": type}).status == 200


@pytest.mark.parametrize(
    "type",
    [
        "multipart/form-data; boundary=x",
        "application/x-www-form-urlencoded",
        "text/plain",
        "text/json",
        "application/jsonp",
        "application/json, text/plain",
        "application",
        "",
        "application/octet-stream",
    ],
)
def test_other_content_types(tiny, type):
    for path in ("/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize"):
        tiny.refused(path, BODY, status=415, says="application/json", headers={"Content-Type": type})


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "zstd", "gzip, identity", "x"])
def test_compressed_bodies(tiny, coding):
    tiny.refused("/v1/completions", BODY, status=415, says="uncompressed", headers={"Content-Encoding": coding})


def test_identity_coding(tiny):
    assert tiny.post("/v1/completions", BODY, headers={"Content-Encoding": "identity"}).status == 200


MALFORMED = {
    "empty": b"",
    "space": b"  \n",
    "null": b"null",
    "number": b"1",
    "string": b'"x"',
    "true": b"true",
    "array": b"[]",
    "array of object": b'[{"prompt":"x"}]',
    "open": b"{",
    "open string": b'{"prompt":"x',
    "no value": b'{"prompt":}',
    "no colon": b'{"prompt" "x"}',
    "comma": b'{"prompt":"x",}',
    "leading comma": b'{,"prompt":"x"}',
    "two": b'{"prompt":"x"}{"prompt":"x"}',
    "tail": b'{"prompt":"x"} x',
    "single quotes": b"{'prompt':'x'}",
    "bare key": b'{prompt:"x"}',
    "comment": b'{"prompt":"x"} // x',
    "block comment": b'{/**/"prompt":"x"}',
    "NaN": b'{"prompt":"x","temperature":NaN}',
    "-NaN": b'{"prompt":"x","temperature":-NaN}',
    "Infinity": b'{"prompt":"x","temperature":Infinity}',
    "-Infinity": b'{"prompt":"x","top_p":-Infinity}',
    "1e999": b'{"prompt":"x","temperature":1e999}',
    "-1e999": b'{"prompt":"x","temperature":-1e999}',
    "leading zero": b'{"prompt":"x","n":01}',
    "plus": b'{"prompt":"x","n":+1}',
    "dot": b'{"prompt":"x","temperature":.5}',
    "trailing dot": b'{"prompt":"x","temperature":1.}',
    "hex": b'{"prompt":"x","n":0x1}',
    "underscore": b'{"prompt":"x","n":1_0}',
    "True": b'{"prompt":"x","echo":True}',
    "None": b'{"prompt":"x","stop":None}',
    "undefined": b'{"prompt":undefined}',
    "duplicate": b'{"prompt":"x","prompt":"y"}',
    "duplicate deep": b'{"prompt":"x","logit_bias":{"5":1,"5":2}}',
    "BOM": b"\xef\xbb\xbf" + RAW,
    "UTF-16": json.dumps(BODY).encode("utf-16"),
    "UTF-32": json.dumps(BODY).encode("utf-32"),
    "Latin-1": b'{"prompt":"\xe4"}',
    "overlong": b'{"prompt":"\xc0\xaf"}',
    "raw surrogate": b'{"prompt":"\xed\xa0\x80"}',
    "above Unicode": b'{"prompt":"\xf4\x90\x80\x80"}',
    "cut UTF-8": b'{"prompt":"\xe2\x82"}',
    "high surrogate": rb'{"prompt":"\ud83d"}',
    "low surrogate": rb'{"prompt":"\ude00"}',
    "swapped surrogates": rb'{"prompt":"\ude00\ud83d"}',
    "bad escape": rb'{"prompt":"\x41"}',
    "short escape": rb'{"prompt":"\u12"}',
    "raw newline": b'{"prompt":"a\nb"}',
    "raw NUL": b'{"prompt":"a\0b"}',
    "NUL after": RAW + b"\0",
    "NUL key": rb'{"a\u0000b":1,"prompt":"x"}',
    "big integer": b'{"prompt":"x","n":99999999999999999999}',
    "huge integer": b'{"prompt":"x","seed":' + b"9" * 5000 + b"}",
    "deep array": b"[" * 100_000,
    "deep object": b'{"a":' * 100_000,
    "deep mixed": b'{"prompt":' + b'[{"a":' * 5000,
    "65 deep": b'{"metadata":' + b'{"a":' * 64 + b"1" + b"}" * 65,
}


@pytest.mark.parametrize("body", MALFORMED.values(), ids=MALFORMED)
@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize"])
def test_malformed_json(tiny, body, path):
    e = tiny.refused(path, body)
    assert e["type"] == "invalid_request_error"
    assert len(e["message"]) < 400 and is_one_line(e["message"]), e


WELL_FORMED = {
    "escapes": rb'{"prompt":"\u0061\ud83d\ude00\n\t\"\\\/"}',
    "NUL": rb'{"prompt":"a\u0000b"}',
    "space": b' \n\t{ "prompt" : "x" }\r\n ',
    "float integer": b'{"prompt":"x","n":1.0,"max_tokens":2e0}',
    "minus zero": b'{"prompt":"x","temperature":-0.0,"priority":-0}',
    "small": b'{"prompt":"x","temperature":1e-300}',
    "nulls": b'{"prompt":"x","stop":null,"seed":null,"n":null,"model":null,"stream":null}',
    "brackets in a string": b'{"prompt":"' + b"[{" * 1000 + b'"}',
    "64 deep": b'{"prompt":"x","metadata":' + b'{"a":' * 62 + b"1" + b"}" * 63,
    "unicode": '{"prompt":"ä€😀\u2028\ufffd\ufeff"}'.encode(),
}


@pytest.mark.parametrize("body", WELL_FORMED.values(), ids=WELL_FORMED)
def test_well_formed_json(tiny, body):
    assert tiny.post("/v1/completions", body).status == 200


def test_unicode_keys_are_named_safely(tiny):
    for key in ("ä", "\u202e", "😀", "a\nb", "<script>", "x" * 5000, "temperature ", "Temperature"):
        e = tiny.refused("/v1/completions", {**BODY, key: 1}, says="unknown field")
        assert e["param"] and (e["param"] == key or len(key) > 60 or not key.isprintable()), e
        assert is_one_line(e["message"]) and len(e["message"]) < 200
    assert 'did you mean "temperature"' in tiny.refused("/v1/completions", {**BODY, "Temperature": 1})["message"]


def test_body_size(tiny):
    text = "a" * ((8 << 20) - 100)
    assert tiny.post("/v1/completions", {"prompt": text}).status == 400  # read, and too long for the model
    for n in ((8 << 20) + 1, 50 << 20):
        answer = tiny.post("/v1/completions", b'{"prompt":"' + b"a" * n + b'"}')
        assert answer.status == 413 and str(8 << 20) in answer.error["message"], answer
    # decided at the head
    answer = raw(tiny, post_head("Content-Length: 99999999999"))
    assert answer.status == 413 and answer.headers["connection"] == "close"


def test_many_values(tiny):
    for body in (
        b'{"prompt":[' + b"1," * 600_000 + b"1]}",
        b'{"metadata":{' + b",".join(b'"%d":1' % i for i in range(600_000)) + b"}}",
        b'{"messages":[' + b"{}," * 600_000 + b"{}]}",
    ):
        tiny.refused("/v1/completions", body, says="too many values")


# ---- framing ----


@pytest.mark.parametrize(
    "head",
    [
        ("Content-Length: 5", "Content-Length: 5"),
        ("Content-Length: 5", "Content-Length: 6"),
        ("Content-Length: -1",),
        ("Content-Length: +5",),
        ("Content-Length: 5, 5",),
        ("Content-Length: 0x5",),
        ("Content-Length: ",),
        ("Content-Length: 5 5",),
        ("Content-Length: 99999999999999999999",),
        ("Content-Length: 5", "Transfer-Encoding: chunked"),
        ("Transfer-Encoding: gzip, chunked",),
        ("Transfer-Encoding: chunked, chunked",),
        ("Transfer-Encoding: xchunked",),
        ("Transfer-Encoding: chunked", "Transfer-Encoding: chunked"),
        ("Transfer-Encoding : chunked",),
        (" Folded: x",),
        ("X: a\rb",),
        ("X: a\nb",),
        ("X: a\0b",),
        ("No-Colon",),
        (": empty",),
        ("X y: z",),
        ("Host: y",),
        ("Expect: 200-maybe",),
    ],
)
def test_heads_that_are_refused(tiny, head):
    answer = raw(tiny, post_head(*head) + b"abcde")
    assert answer.status in (400, 413, 417, 501) and answer.headers["connection"] == "close"
    assert answer.error["message"]


@pytest.mark.parametrize(
    "data",
    [
        b"\r\n\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET /\r\n\r\n",
        b"GET / HTTP/0.9\r\n\r\n",
        b"GET / HTTP/2.0\r\nHost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET  / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET / HTTP/1.1\nHost: x\n\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(40) + b"\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET http:// HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET x HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a b\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: \r\nHost: x\r\n\r\n",
    ],
)
def test_not_http(tiny, data):
    assert raw(tiny, data, shut=False).status in (400, 404, 431, 501, 505)


@pytest.mark.parametrize("value", [b"a" * 20_000, b"a" * 70_000, b"a" * 1_000_000])
def test_large_header(tiny, value):
    with Connection(tiny) as c:
        try:
            c.send(b"GET /v1/models HTTP/1.1\r\nHost: x\r\nX-Pad: " + value + b"\r\n\r\n")
        except ConnectionError:
            pass
        assert c.answer().status == 431


def test_many_headers(tiny):
    with Connection(tiny) as c:
        try:
            c.send(
                b"GET /v1/models HTTP/1.1\r\nHost: x\r\n"
                + b"".join(b"X-%d: y\r\n" % i for i in range(10_000))
                + b"\r\n"
            )
        except ConnectionError:
            pass
        assert c.answer().status == 431
    assert (
        raw(
            tiny, b"GET /v1/models HTTP/1.1\r\nHost: x\r\n" + b"".join(b"X-%d: y\r\n" % i for i in range(60)) + b"\r\n"
        ).status
        == 200
    )


def chunked(*parts, end=b"0\r\n\r\n"):
    return (
        post_head("Content-Type: application/json", "Transfer-Encoding: chunked")
        + b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in parts)
        + end
    )


def test_chunked_bodies(tiny):
    for n in (1, 3, 1000):
        parts = [RAW[i : i + n] for i in range(0, len(RAW), n)]
        assert raw(tiny, chunked(*parts)).status == 200
    assert raw(tiny, chunked(RAW, end=b"0\r\nX-Sum: x\r\n\r\n")).status == 200


@pytest.mark.parametrize(
    "body",
    [
        b"ffffffffffffffff\r\n",
        b"8000000000000000\r\n",
        b"-1\r\n",
        b"0x5\r\n",
        b"\r\n",
        b"5\nabcde\r\n",
        b"5\r\nabcdeX",
        b"5 \r\nabcde\r\n",
        b"g\r\n",
        b"1" * 300 + b"\r\n",
        b"5;" + b"x" * 300 + b"\r\n",
        b"99999999\r\n",
    ],
)
def test_broken_chunks(tiny, body):
    answer = raw(tiny, post_head("Transfer-Encoding: chunked") + body)
    assert answer.status in (400, 413) and answer.headers["connection"] == "close"


def test_byte_by_byte(tiny):
    with Connection(tiny) as c:
        for byte in post_head("Content-Type: application/json", f"Content-Length: {len(RAW)}") + RAW:
            c.send(bytes([byte]))
        assert c.answer().status == 200


def test_expect_continue(tiny):
    with Connection(tiny) as c:
        c.send(post_head("Content-Type: application/json", f"Content-Length: {len(RAW)}", "Expect: 100-continue"))
        assert c.file.readline() == b"HTTP/1.1 100 Continue\r\n" and c.file.readline() == b"\r\n"
        c.send(RAW)
        assert c.answer().status == 200


def test_keep_alive_and_pipelining(tiny):
    one = post_head("Content-Type: application/json", f"Content-Length: {len(RAW)}") + RAW
    with Connection(tiny) as c:
        texts = set()
        for _ in range(5):
            c.send(one)
            texts.add(c.answer().json()["choices"][0]["text"])
        c.send(one * 5 + b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n")
        for _ in range(5):
            texts.add(c.answer().json()["choices"][0]["text"])
        assert len(texts) == 1
        assert c.answer().json()["object"] == "list"
        c.send(
            b"GET /v1/nothing HTTP/1.1\r\nHost: x\r\n\r\nGET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        )
        assert c.answer().status == 404 and c.answer().status == 200
        assert c.closed_by_server()


def test_http_1_0(tiny):
    def once(head, body=b""):
        with Connection(tiny) as c:
            c.send(head + body)
            return c.file.read()

    whole = once(b"GET /health HTTP/1.0\r\n\r\n")
    assert whole.startswith(b"HTTP/1.1 200 ") and b"connection: close" in whole.lower()
    body = json.dumps({**BODY, "stream": True}).encode()
    head = b"POST /v1/completions HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
    stream = once(head, body)
    assert b"transfer-encoding" not in stream.lower()
    out, done = events(stream.split(b"\r\n\r\n", 1)[1])
    assert done and out[-1]["choices"][0]["finish_reason"] == "length"
    assert once(b"POST /v1/completions HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n").startswith(
        b"HTTP/1.1 400 "
    )


def test_host_header_changes_nothing(tiny):
    for host in (b"evil.example", b"127.0.0.1:1", b"[::1]"):
        assert raw(tiny, b"GET /v1/models HTTP/1.1\r\nHost: " + host + b"\r\n\r\n").status == 200
    assert raw(tiny, b"GET http://other/v1/models HTTP/1.1\r\nHost: x\r\n\r\n").status == 200


def test_duplicate_ordinary_headers(tiny):
    head = post_head(
        "Content-Type: application/json",
        "X-A: 1",
        "X-A: 2",
        "Accept: */*",
        "Accept: text/html",
        f"Content-Length: {len(RAW)}",
    )
    assert raw(tiny, head + RAW).status == 200


def test_request_ids(tiny):
    answer = tiny.post("/v1/completions", BODY)
    assert answer.headers["x-request-id"] == answer.json()["id"]
    assert tiny.post("/v1/completions", BODY, headers={"X-Request-Id": "mine-1"}).headers["x-request-id"] == "mine-1"
    stream = tiny.post("/v1/completions", {**BODY, "stream": True})
    assert stream.headers["x-request-id"] == events(stream.body)[0][0]["id"]
    assert tiny.post("/v1/completions", {**BODY, "n": 0}).headers["x-request-id"].startswith("cmpl-")


@pytest.mark.full
def test_slow_requests_time_out(tiny):
    """A head that does not come within 10 s, a body that stops for 30 s: 408 and the end."""
    with Connection(tiny, 60) as head, Connection(tiny, 60) as body, Connection(tiny, 60) as dribble:
        head.send(b"GET /v1/models HTTP/1.1\r\nHost: x\r\n")
        body.send(post_head("Content-Length: 1000") + RAW[:5])
        for _ in range(14):
            try:
                dribble.send(b"G" if _ == 0 else b"E")  # a byte now and then does not keep it alive
            except ConnectionError:
                break
            time.sleep(1)
        answer = head.answer()
        assert answer.status == 408 and answer.headers["connection"] == "close" and answer.error["message"]
        assert dribble.answer().status == 408
        answer = body.answer()
        assert answer.status == 408 and answer.error["message"]


def test_half_sent_requests_harm_nobody(tiny):
    """Half heads, half bodies: others are served, and closing them leaves nothing."""
    before = tiny.metrics()["quire_connections"]
    half = [Connection(tiny) for _ in range(40)]
    for i, c in enumerate(half):
        c.send(
            b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Le"
            if i % 2
            else post_head("Content-Length: 1000") + RAW[:5]
        )
    start = time.monotonic()
    at_once(8, lambda i: tiny.complete(max_tokens=2))
    assert time.monotonic() - start < 20
    for c in half:
        c.close()
    tiny.wait_metric("quire_connections", lambda n: n <= before)
