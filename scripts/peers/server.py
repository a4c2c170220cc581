#!/usr/bin/env python3
"""Measures any server of OpenAI's API (vLLM, SGLang, llama.cpp's) over HTTP with the workloads of the other engines. Prints JSON.

    server.py vLLM http://127.0.0.1:8000 --command "vllm serve MODEL --port 8000 --no-enable-prefix-caching"

The command is started and ended here; without one the server is there already. It has to take token ids as prompts and
ignore_eos, and to have no prefix cache, or what it keeps of a workload would be found again."""

import json
import pathlib
import shlex
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

from quire_server import Served, measure, parser


class AnyServer(Served):
    def __init__(self, args):
        self.args, self.name, self.vocab, self.url, self.process = args, args.name, args.vocab, args.url, None
        self.log = tempfile.TemporaryFile()
        if args.command:
            self.process = subprocess.Popen(args.command, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        self.pids = (self.process.pid,) if self.process else ()
        self.settings = {"interface": "HTTP, streamed", "command": " ".join(pathlib.PurePath(word).name for word in args.command)}
        self.await_ready(time.monotonic() + args.patience_s)
        version = self.version()
        if version:
            self.settings["version"] = version

    def version(self):
        """Of the servers that tell it as vLLM does; None of others."""
        try:
            with urllib.request.urlopen(f"{self.url}/version", timeout=10) as answer:
                return json.load(answer)["version"]
        except (urllib.error.URLError, OSError, ValueError, KeyError, TypeError):
            return None

    def await_ready(self, end):
        while time.monotonic() < end and not (self.process and self.process.poll() is not None):
            try:
                urllib.request.urlopen(f"{self.url}/v1/models", timeout=10).close()
                return
            except (urllib.error.URLError, OSError):
                time.sleep(0.5)
        self.stop()
        self.log.seek(0)
        sys.exit(f"{self.url} does not answer:\n{self.log.read().decode(errors='replace')[-2000:]}")


p = parser(__doc__)
p.add_argument("name", help="in tables")
p.add_argument("url", help="where it listens")
p.add_argument("--command", type=shlex.split, default=[])
p.add_argument("--patience-s", type=float, default=900, metavar="SECONDS", help="until it has to answer")
measure(AnyServer, p.parse_args())
