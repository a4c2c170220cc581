"""mock_server.c as a fixture: a server of OpenAI's API whose delays are exact."""

import subprocess

from harness import CACHE, ROOT


class Mock:
    def __init__(self, **options):
        source, self.binary = ROOT / "tests" / "e2e" / "mock_server.c", CACHE / "mock_server"
        CACHE.mkdir(parents=True, exist_ok=True)
        if not self.binary.exists() or self.binary.stat().st_mtime < source.stat().st_mtime:
            subprocess.run(["cc", "-O2", "-D_GNU_SOURCE", "-o", self.binary, source], check=True)
        self.options = options

    def __enter__(self):
        self.process = subprocess.Popen(
            [self.binary, *(f"{k}={v}" for k, v in self.options.items())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.url = self.process.stdout.readline().split()[1]
        return self

    def __exit__(self, *_):
        self.process.stdin.close()  # which ends it
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
