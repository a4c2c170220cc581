"""Keys, CORS, TLS."""

import contextlib
import http.client
import re
import ssl
import subprocess
import warnings

import httpx
import pytest
from harness import Connection, Server, run

KEY = "k-0123456789abcdef0123456789abcdef"


# ---- keys ----


@pytest.fixture(scope="module")
def locked(tiny_model):
    with Server(
        tiny_model,
        "--kv-cache-memory-bytes",
        "4Mi",
        "--served-model-name",
        "tiny",
        "--api-key",
        KEY,
        "--api-key",
        "second",
    ) as server:
        yield server


def routes():
    rows = re.findall(r"^\| (GET|POST) \| `(/\S*)` \| (open|needed) \|", run("serve", "--help-api").stdout, re.M)
    assert len(rows) >= 9
    return rows


METHODS = ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH"]


@pytest.mark.parametrize("method,path,access", routes())
def test_every_route_but_health_needs_a_key(locked, method, path, access):
    """The list is the program's own table: a route that is added without a key fails here."""
    path = path.replace("{id}", "tiny")
    assert (access == "open") == (path == "/health")
    for m in METHODS:
        answer = locked.send(m, path, b"{}" if m in ("POST", "PUT", "PATCH") else None)
        if path == "/health" and m in ("GET", "HEAD"):
            assert answer.status == 200
        else:
            assert answer.status == 401, (m, path, answer)
            assert answer.headers["www-authenticate"] == "Bearer"
    good = locked.send(method, path, b"{}" if method == "POST" else None, headers={"Authorization": f"Bearer {KEY}"})
    assert good.status in (200, 400)


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/nothing",
        "/v1",
        "/v1/models/x",
        "//health",
        "/health/",
        "/health?x",
        "/Health",
        "/v1/../health",
        "/%68ealth",
        "/health%2f",
        "/health%00",
        "/docs",
        "/openapi.json",
        "/v1/embeddings",
        "/metrics/",
        "http://x/v1/models",
    ],
)
def test_paths_that_are_no_routes(locked, path):
    """Without a key nothing tells an unknown path from a known one."""
    with Connection(locked) as c:
        c.request("GET", path)
        status = c.answer().status
    assert status == (
        200 if path in ("/health?x", "/%68ealth") else 400 if ".." in path or "%00" in path else 401
    ), path


@pytest.mark.parametrize(
    "value",
    [
        "",
        "Bearer",
        "Bearer ",
        "Bearer  ",
        f"Bearer {KEY}x",
        f"Bearer {KEY[:-1]}",
        f"Bearer {KEY.upper()}",
        f"Bearer x{KEY}",
        f"Bearer {KEY} x",
        f"Bearer {KEY},{KEY}",
        KEY,
        f"Basic {KEY}",
        "Basic QTpC",
        f"Token {KEY}",
        f"bearer{KEY}",
        "Bearer \xff",
        "Bearer " + "a" * 10_000,
        "Bearer k",
        "Bearer second2",
    ],
)
def test_wrong_keys(locked, value):
    answer = locked.get("/v1/models", headers={"Authorization": value})
    assert answer.status == 401 and answer.error["code"] == "invalid_api_key"
    assert KEY not in answer.body.decode()


@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": f"Bearer {KEY}"},
        {"authorization": f"bearer {KEY}"},
        {"Authorization": f"BEARER   {KEY}"},
        {"X-Api-Key": KEY},
        {"x-api-key": "second"},
        {"Authorization": "Bearer second"},
        {"Authorization": "Basic QTpC", "X-Api-Key": KEY},
    ],
)
def test_right_keys(locked, headers):
    assert locked.get("/v1/models", headers=headers).status == 200


def test_host_and_target_do_not_open_anything(locked):
    for head in (
        b"GET /v1/models HTTP/1.1\r\nHost: x/health\r\n\r\n",
        b"GET http://x/health/../v1/models HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /v1/models#/health HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /v1/models;/health HTTP/1.1\r\nHost: x\r\n\r\n",
    ):
        with Connection(locked) as c:
            c.send(head)
            assert c.answer().status in (400, 401)


def test_refusals_are_counted_and_keys_are_never_logged(locked):
    metrics = locked.get("/metrics", headers={"X-Api-Key": KEY})
    assert re.search(r'quire_requests_total\{.*outcome="unauthorized"\} [1-9]', metrics.body.decode())
    assert KEY not in metrics.body.decode() and KEY not in locked.stderr() and "second" not in locked.stderr()


def test_keys_from_environment_and_file(tiny_model, tmp_path):
    with Server(tiny_model, "--kv-cache-memory-bytes", "4Mi", env={"QUIRE_API_KEY": "from-env"}) as server:
        assert server.get("/v1/models").status == 401
        assert server.get("/v1/models", headers={"X-Api-Key": "from-env"}).status == 200
    config = tmp_path / "quire.yaml"
    config.write_text("api-key:\n  - one\n  - two\n")
    with Server(
        tiny_model, "--kv-cache-memory-bytes", "4Mi", "--config", config, env={"QUIRE_API_KEY": "from-env"}
    ) as server:
        assert [server.get("/v1/models", headers={"X-Api-Key": k}).status for k in ("one", "two", "from-env")] == [
            200,
            200,
            401,
        ]


# ---- CORS ----


@pytest.fixture(scope="module")
def cors(tiny_model):
    with Server(
        tiny_model,
        "--kv-cache-memory-bytes",
        "4Mi",
        "--api-key",
        KEY,
        "--allowed-origins",
        "https://app.example",
        "--allowed-origins",
        "http://localhost:3000",
    ) as server:
        yield server


def test_preflight(cors):
    asked = {
        "Origin": "https://app.example",
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization,content-type",
    }
    answer = cors.send("OPTIONS", "/v1/chat/completions", headers=asked)
    assert answer.status == 204
    assert answer.headers["access-control-allow-origin"] == "https://app.example"
    assert "POST" in answer.headers["access-control-allow-methods"]
    assert answer.headers["access-control-allow-headers"] == "authorization,content-type"


@pytest.mark.parametrize(
    "origin",
    [
        "https://evil.example",
        "https://app.example.evil.example",
        "https://app.example:444",
        "http://app.example",
        "null",
        "*",
        "https://APP.example",
    ],
)
def test_other_origins(cors, origin):
    for answer in (
        cors.send("OPTIONS", "/v1/models", headers={"Origin": origin}),
        cors.get("/v1/models", headers={"Origin": origin, "X-Api-Key": KEY}),
    ):
        assert not any(h.startswith("access-control") for h in answer.headers) and answer.headers["vary"] == "Origin"


def test_headers_on_every_kind_of_answer(cors):
    h = {"Origin": "http://localhost:3000", "X-Api-Key": KEY}
    answers = [
        cors.get("/v1/models", headers=h),
        cors.get("/nothing", headers=h),
        cors.get("/v1/completions", headers=h),
        cors.get("/health", headers=h),
        cors.get("/v1/models", headers={"Origin": h["Origin"]}),
        cors.post("/v1/completions", {"prompt": "x", "max_tokens": 1}, headers=h),
        cors.post("/v1/completions", {"prompt": "x", "n": 0}, headers=h),
        cors.post("/v1/completions", {"prompt": "x", "max_tokens": 1, "stream": True}, headers=h),
        cors.post("/v1/completions", b"x", headers={**h, "Content-Type": "text/plain"}),
    ]
    assert [a.status for a in answers] == [200, 404, 405, 200, 401, 200, 400, 200, 415]
    for a in answers:
        assert a.headers["access-control-allow-origin"] == h["Origin"] and a.headers["vary"] == "Origin"
        assert "X-Request-Id" in a.headers["access-control-expose-headers"]


def test_no_cors_by_default_and_any_origin(tiny, tiny_model):
    answer = tiny.send("OPTIONS", "/v1/models", headers={"Origin": "https://x.example"})
    assert answer.status == 204 and not any(h.startswith("access-control") for h in answer.headers)
    with Server(tiny_model, "--kv-cache-memory-bytes", "4Mi", "--allowed-origins", "*") as server:
        assert (
            server.get("/health", headers={"Origin": "https://x.example"}).headers["access-control-allow-origin"] == "*"
        )
        assert "access-control-allow-origin" not in server.get("/health").headers


# ---- TLS ----


def test_tls(tiny_model, certificate):
    cert, key = certificate
    with Server(tiny_model, "--kv-cache-memory-bytes", "4Mi", "--ssl-certfile", cert, "--ssl-keyfile", key) as server:
        assert server.url.startswith("https://")
        trusted = ssl.create_default_context(cafile=cert)
        with httpx.Client(base_url=server.url, verify=trusted) as client:
            assert client.get("/health").json() == {"status": "ok"}
            answer = client.post(
                "/v1/completions", json={"prompt": "abc", "max_tokens": 300, "temperature": 0, "ignore_eos": True}
            )
            assert answer.json()["usage"]["completion_tokens"] == 300
            with client.stream(
                "POST", "/v1/completions", json={"prompt": "abc", "max_tokens": 300, "stream": True, "ignore_eos": True}
            ) as r:
                lines = [line for line in r.iter_lines() if line]
            assert lines[-1] == "data: [DONE]" and len(lines) > 200
            # a client that leaves
            with client.stream(
                "POST",
                "/v1/completions",
                json={"prompt": "abc", "max_tokens": 4000, "stream": True, "ignore_eos": True},
            ) as r:
                next(r.iter_lines())
        for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            context = ssl.create_default_context(cafile=cert)
            context.minimum_version = context.maximum_version = version
            connection = http.client.HTTPSConnection("127.0.0.1", server.port, context=context, timeout=30)
            connection.request("GET", "/health")
            assert connection.getresponse().status == 200
            connection.close()
        old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
        with warnings.catch_warnings(action="ignore"):
            old.maximum_version = ssl.TLSVersion.TLSv1_1
        with pytest.raises((ssl.SSLError, ConnectionError)):
            http.client.HTTPSConnection("127.0.0.1", server.port, context=old, timeout=10).request("GET", "/health")
        # plain HTTP and nonsense on the TLS port
        for data in (b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01\xff\xff" + bytes(100), b""):
            plain = server.connect()
            plain.sendall(data)
            with contextlib.suppress(OSError):
                plain.shutdown(1)
                assert b"200 OK" not in plain.recv(1000)
            plain.close()
        with httpx.Client(base_url=server.url, verify=trusted) as client:
            assert client.get("/health").status_code == 200


def test_wrong_tls_files(tiny_model, certificate, tmp_path):
    cert, key = certificate
    junk = tmp_path / "junk.pem"
    junk.write_text("junk")
    other = tmp_path / "other.pem"
    subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", other], check=True, capture_output=True)
    for c, k, says in (
        (cert, None, "go together"),
        (None, key, "go together"),
        ("/nothing.pem", key, "/nothing.pem"),
        (cert, "/nothing.pem", "/nothing.pem"),
        (junk, key, "junk.pem"),
        (cert, junk, "junk.pem"),
        (cert, other, "other.pem"),
    ):
        flags = [f for pair in (("--ssl-certfile", c), ("--ssl-keyfile", k)) if pair[1] for f in pair]
        done = run("serve", tiny_model, "--port", 0, "--kv-cache-memory-bytes", "4Mi", *flags)
        assert done.returncode in (1, 2) and says in done.stderr and not done.stdout, done.stderr
