"""Servers and what runs in them, over HTTP as their users meet them: streamed completions."""

import pathlib
import re
import subprocess
import sys
import tempfile

import workloads
from drive import drive
from workloads import Run

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


class Served:
    """A server at self.url; self.process is it, or None if somebody else has started it."""

    def run(self, prompts, n_out):
        summary, records = drive(self.args.quire, self.url, prompts, n_out, len(prompts))
        first_ms = max(1000 * due_s + ttft_ms for due_s, ttft_ms in zip(records["due_s"], records["ttft_ms"]))
        return Run(first_ms / 1000, summary["duration_s"], records["output_tokens"])

    def stop(self):
        if self.process:
            self.process.terminate()
            self.process.wait(60)


class Server(Served):
    """quire serve."""

    def __init__(self, args):
        self.args, self.name, self.vocab = args, "Quire", args.vocab
        self.log = tempfile.TemporaryFile()
        command = [args.quire, "serve", args.model, "--threads", str(args.threads), "--served-model-name", "bench", "--port", "0",
                   "--no-access-log", "--no-enable-prefix-caching", *(["--dtype", args.dtype] if args.dtype else []), *args.serve_args.split()]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self.log, text=True)
        line = self.process.stdout.readline()
        if not line.startswith("ready http://"):
            self.log.seek(0)
            sys.exit(f"quire did not start:\n{self.log.read().decode()}")
        self.pids = (self.process.pid,)
        self.url = line.split()[1]
        self.settings = {"version": self.version(), "model": pathlib.Path(args.model).name, "interface": "HTTP, streamed",
                         "path": re.search(r"^\w+, (\w+), \d+ threads, (\w+),", self.said(), re.M).group(1, 2)}

    def said(self):
        self.log.seek(0)
        return self.log.read().decode()

    def version(self):
        git = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"], stdout=subprocess.PIPE, text=True)
        return f"{subprocess.run([self.args.quire, '--version'], stdout=subprocess.PIPE, text=True).stdout.strip()}, {git.stdout.strip()}"


def measure(server_of, args):
    """Starts a server, measures it, stops it."""
    if args.cpu_time:
        sys.exit("--cpu-time: the server is a process of its own")
    server = server_of(args)
    try:
        workloads.main(server, args)
    finally:
        server.stop()


def parser(description):
    p = workloads.parser(description)
    p.add_argument("--quire", default=str(ROOT / "build" / "quire"), metavar="PROGRAM", help="that sends the requests")
    p.add_argument("--vocab", type=int, default=40000, help="prompts are of ids from 1000 to this")
    return p
