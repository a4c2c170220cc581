"""A quire serve process and what runs in it, over HTTP as its users meet it: streamed completions, a connection each."""

import json
import pathlib
import re
import selectors
import socket
import subprocess
import sys
import tempfile
import time

from workloads import Run

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


class Stream:
    """One request and what has come of its answer. The text is looked at when all is over: the client shall cost nothing."""

    def __init__(self, port, prompt, n_out):
        body = json.dumps({"model": "bench", "prompt": prompt, "max_tokens": n_out, "temperature": 0, "stream": True,
                           "ignore_eos": True, "stream_options": {"include_usage": True}}).encode()
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.bytes, self.first_s = bytearray(), None
        self.request = (f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nConnection: close\r\n"
                        f"Content-Length: {len(body)}\r\n\r\n").encode() + body

    def receive(self, now_s):
        """False at the end."""
        data = self.socket.recv(1 << 16)
        if self.first_s is None and b"data: {" in data:
            self.first_s = now_s
        self.bytes += data
        return bool(data)

    def count(self, prompt):
        usage = re.findall(rb'"usage":(\{"prompt_tokens":\d+,"completion_tokens":\d+)', self.bytes)
        if not usage:
            sys.exit(f"quire answered: {bytes(self.bytes[:500])!r}")
        usage = json.loads(usage[-1] + b"}")
        if usage["prompt_tokens"] != len(prompt):
            sys.exit(f"quire counts {usage['prompt_tokens']} tokens in a prompt of {len(prompt)}")
        return usage["completion_tokens"]


class Server:
    def __init__(self, args):
        self.args, self.name, self.vocab = args, "Quire", args.vocab
        self.log = tempfile.TemporaryFile()
        command = [args.quire, "serve", args.model, "--threads", str(args.threads), "--served-model-name", "bench", "--port", "0",
                   "--no-access-log", "--no-enable-prefix-caching", *(["--dtype", args.dtype] if args.dtype else [])]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self.log, text=True)
        line = self.process.stdout.readline()
        if not line.startswith("ready http://"):
            self.log.seek(0)
            sys.exit(f"quire did not start:\n{self.log.read().decode()}")
        self.pids = (self.process.pid,)
        self.port = int(line.rsplit(":", 1)[1])
        self.settings = {"version": self.version(), "model": pathlib.Path(args.model).name, "interface": "HTTP, streamed",
                         "path": re.search(r"^\w+, (\w+), \d+ threads, (\w+),", self.said(), re.M).group(1, 2)}

    def said(self):
        self.log.seek(0)
        return self.log.read().decode()

    def version(self):
        git = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"], stdout=subprocess.PIPE, text=True)
        return f"{subprocess.run([self.args.quire, '--version'], stdout=subprocess.PIPE, text=True).stdout.strip()}, {git.stdout.strip()}"

    def run(self, prompts, n_out):
        streams = [Stream(self.port, prompt, n_out) for prompt in prompts]
        with selectors.DefaultSelector() as selector:
            start = time.perf_counter()
            for stream in streams:
                stream.socket.sendall(stream.request)
                selector.register(stream.socket, selectors.EVENT_READ, stream)
            while selector.get_map():
                for key, _ in selector.select():
                    if not key.data.receive(time.perf_counter() - start):
                        selector.unregister(key.fileobj)
                        key.fileobj.close()
            total_s = time.perf_counter() - start
        counts = [stream.count(prompt) for stream, prompt in zip(streams, prompts)]
        return Run(max(stream.first_s for stream in streams), total_s, counts)

    def stop(self):
        self.process.terminate()
        self.process.wait(60)
