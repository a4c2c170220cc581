"""The commands that are clients (bench serve, eval tasks, chat) with an https server: quire serve with a certificate."""

import re
import ssl

import httpx
import pytest
from harness import Server, run


@pytest.fixture(scope="module")
def secure(tiny_model, certificate):
    cert, key = certificate
    with Server(tiny_model, "--kv-cache-memory-bytes", "4Mi", "--ssl-certfile", cert, "--ssl-keyfile", key) as server:
        yield server


def commands(url, tmp_path):
    """Each with what it prints when all is well."""
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text('{"prompt": "a b", "choices": ["c", "d"], "answer": 0}\n')
    return [
        (("bench", "serve", url, "--requests", 4, "--concurrency", 2, "--input-tokens", 8, "--output-tokens", 3), "requests 4 ok"),
        (("eval", "tasks", url, "--file", tasks), "multiple choice             1"),
        (("chat", url, "--max-tokens", 5), ""),
    ]


def ask(command, *more):
    return run(*command, *more, input="hello\n" if command[0] == "chat" else None)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_trusted(secure, certificate, tmp_path, host):
    for command, says in commands(f"https://{host}:{secure.port}", tmp_path):
        for trust in (("--ca-cert", certificate[0]), ("--insecure",)):
            done = ask(command, *trust)
            assert done.returncode == 0 and says in done.stdout.lower(), (command, done.stderr, done.stdout)
            if command[0] == "chat":
                assert "; 5 out;" in done.stderr, done.stderr


def test_not_trusted(secure, certificate, tmp_path):
    """By the system's authorities a self-signed certificate is none; a key of another host neither."""
    other = tmp_path / "other.pem"
    other.write_text(certificate[0].read_text().replace("MII", "MIJ", 1))
    for command, _ in commands(f"https://127.0.0.1:{secure.port}", tmp_path):
        done = ask(command)
        lines = done.stderr.splitlines()
        assert len(lines) == 1 and "certificate" in lines[0] and "--ca-cert FILE" in lines[0], done.stderr
        assert done.returncode == 1, done.stderr
        done = ask(command, "--ca-cert", other)
        assert len(done.stderr.splitlines()) == 1 and str(other) in done.stderr, done.stderr
        done = ask(command, "--ca-cert", tmp_path / "none.pem")
        lines = done.stderr.splitlines()
        assert done.returncode == 2 and len(lines) == 1 and "none.pem cannot be read" in lines[0], done.stderr


def test_another_name(secure, certificate, tmp_path):
    """The certificate is of localhost and 127.0.0.1; 127.0.0.2 is somebody else."""
    for command, says in commands(f"https://127.0.0.2:{secure.port}", tmp_path):
        done = ask(command, "--ca-cert", certificate[0])
        lines = done.stderr.splitlines()
        assert len(lines) == 1 and ("127.0.0.2" in lines[0]), (command, done.stderr)


def test_not_tls(secure, tiny, tmp_path):
    """https to a plain server and http to one with TLS: one line, and no advice about certificates."""
    for url in (f"https://127.0.0.1:{tiny.port}", f"http://127.0.0.1:{secure.port}"):
        for command, _ in commands(url, tmp_path):
            done = ask(command)
            assert len(done.stderr.splitlines()) == 1 and "--ca-cert" not in done.stderr, done.stderr


def test_options_that_have_no_effect(tiny_model, tmp_path):
    for command, _ in commands("http://127.0.0.1:1", tmp_path):
        for more, says in (
            (("--insecure",), "--insecure is for an https:// server"),
            (("--ca-cert", "x.pem"), "--ca-cert is for an https:// server"),
            (("--insecure", "--ca-cert", "x.pem"), "--ca-cert would have no effect"),
        ):
            done = ask(command, *more)
            lines = done.stderr.splitlines()
            assert done.returncode == 2 and len(lines) == 1 and says in lines[0], (command, done.stderr)
    for command in (("eval", "tasks", tiny_model, "--file", tmp_path / "tasks.jsonl"), ("chat", tiny_model)):
        done = ask(command, "--insecure")
        assert done.returncode == 2 and "--insecure is for a server" in done.stderr, done.stderr


def test_connections_are_kept(secure, certificate, tmp_path):
    """Few handshakes: a stream keeps its connection from request to request."""

    def accepted():
        text = httpx.get(f"https://localhost:{secure.port}/metrics", verify=ssl.create_default_context(cafile=certificate[0])).text
        return float(re.search(r"^quire_connections_total(?:\{[^}]*\})? (\S+)", text, re.M)[1])

    before = accepted()
    done = run("bench", "serve", f"https://localhost:{secure.port}", "--ca-cert", certificate[0], "--concurrency", 2,
               "--requests", 60, "--input-tokens", 8, "--output-tokens", 2)
    assert done.returncode == 0 and "requests 60 ok" in done.stdout, (done.stdout, done.stderr)
    assert accepted() - before < 40  # the streams, the metrics', and those of the questions before the load
