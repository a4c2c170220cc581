#!/usr/bin/env python3
"""Output tokens per second of Quire's server beside llama.cpp's, on the same GGUF, interleaved in one run.

Each round sends, for every concurrency, one wave of requests to each server in turn: random prompts of an exact number of token
ids (no two alike, so that no prefix is reused), a fixed number of output tokens, greedy. A figure is output tokens of the wave over
its whole time, prefill included. Medians over the rounds, with their range; the tokens are those that the servers' usage counts.

llama.cpp's server is taken from LLAMA_SERVER or PATH; without it only Quire is measured. Nothing is downloaded here.
"""
import argparse, asyncio, datetime, json, os, pathlib, platform, random, shutil, socket, statistics, subprocess, sys, time

ROOT = pathlib.Path(__file__).resolve().parent.parent


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


async def post(port, body):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    data = json.dumps(body).encode()
    writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
                 b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(data) + data)
    await writer.drain()
    raw = await reader.read()
    writer.close()
    head, _, payload = raw.partition(b"\r\n\r\n")
    status = int(head.split(b" ", 2)[1])
    if b"chunked" in head.lower():
        out, rest = b"", payload
        while rest:
            size, _, rest = rest.partition(b"\r\n")
            n = int(size, 16)
            out, rest = out + rest[:n], rest[n + 2:]
        payload = out
    if status != 200:
        raise RuntimeError(f"status {status}: {payload[:200]!r}")
    return json.loads(payload)


class Server:
    def __init__(self, name, argv, port, extra, env=None):
        self.name, self.port, self.extra = name, port, extra
        self.log = open(ROOT / "build" / f"bench-{name}.log", "w")
        self.process = subprocess.Popen(argv, stdout=self.log, stderr=self.log, env={**os.environ, **(env or {})})

    async def wait(self):
        for _ in range(600):
            try:
                await post(self.port, {"prompt": [1, 2, 3], "max_tokens": 1, **self.extra})
                return
            except (OSError, RuntimeError, ValueError, IndexError):
                if self.process.poll() is not None:
                    raise SystemExit(f"{self.name} ended: see {self.log.name}")
                await asyncio.sleep(0.1)
        raise SystemExit(f"{self.name} is not ready after a minute")

    def stop(self):
        self.process.terminate()
        self.process.wait(30)


async def wave(server, concurrency, n_requests, n_in, n_out, vocab, rng):
    prompts = [[rng.randrange(100, vocab) for _ in range(n_in)] for _ in range(n_requests)]
    gate = asyncio.Semaphore(concurrency)

    async def one(prompt):
        async with gate:
            answer = await post(server.port, {"prompt": prompt, "max_tokens": n_out, "temperature": 0, "ignore_eos": True,
                                              **server.extra})
            return answer["usage"]["completion_tokens"]

    start = time.perf_counter()
    tokens = sum(await asyncio.gather(*(one(p) for p in prompts)))
    seconds = time.perf_counter() - start
    if tokens != n_requests * n_out:
        raise SystemExit(f"{server.name} gave {tokens} tokens instead of {n_requests * n_out}")
    return tokens / seconds


def cpu_model():
    for line in open("/proc/cpuinfo"):
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor()


def version_of(argv):
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=30)
        return (done.stdout + done.stderr).strip().splitlines()[0]
    except (OSError, IndexError, subprocess.TimeoutExpired):
        return "?"


async def measure(args):
    servers, rng = [], random.Random(1)
    port = free_port()
    servers.append(Server("quire", [args.quire, "serve", args.model, "--port", str(port), "--threads", str(args.threads),
                                    "--max-num-seqs", "64", "--kv-cache-memory-bytes", "2Gi", "--no-access-log"], port, {}))
    if args.llama:
        port = free_port()
        servers.append(Server("llama.cpp", [args.llama, "-m", args.model, "--port", str(port), "-t", str(args.threads), "-tb",
                                            str(args.threads), "-np", "32", "-c", "32768", "-cb", "--cache-ram", "0", "-fa",
                                            "off", "-ub", "2048"], port, {"cache_prompt": False}))
    results = {}
    try:
        for s in servers:
            await s.wait()
        for round_ in range(args.rounds + 1):
            for c in args.concurrency:
                for s in servers:
                    rate = await wave(s, c, max(c, 4), args.input, args.output, args.vocab, rng)
                    if round_:  # the first one warms up
                        results.setdefault(c, {}).setdefault(s.name, []).append(rate)
                        print(f"round {round_}  concurrency {c:3}  {s.name:10} {rate:8.1f} tok/s", flush=True)
    finally:
        for s in servers:
            s.stop()
    return results


def table(results, names):
    rows = ["| streams | " + " | ".join(f"{n}, tok/s" for n in names) + " | ratio |", "|---" * (len(names) + 2) + "|"]
    for c, by_name in results.items():
        cells = [f"{statistics.median(by_name[n]):.0f} [{min(by_name[n]):.0f}–{max(by_name[n]):.0f}]" for n in names]
        ratio = "-"
        if len(names) == 2:
            ratio = f"{statistics.median(by_name[names[0]]) / statistics.median(by_name[names[1]]):.2f}"
        rows.append(f"| {c} | " + " | ".join(cells) + f" | {ratio} |")
    return "\n".join(rows)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("model")
    ap.add_argument("--quire", default=str(ROOT / "build" / "quire"))
    ap.add_argument("--llama", default=os.environ.get("LLAMA_SERVER") or shutil.which("llama-server"))
    ap.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    ap.add_argument("--concurrency", type=int, nargs="+", default=[1, 8, 32])
    ap.add_argument("--rounds", type=int, default=5)
    ap.add_argument("--input", type=int, default=128)
    ap.add_argument("--output", type=int, default=64)
    ap.add_argument("--vocab", type=int, default=49000)
    ap.add_argument("--out", default=str(ROOT / "bench" / "results"))
    args = ap.parse_args()
    if not args.llama:
        print("llama-server not found (LLAMA_SERVER or PATH): only Quire is measured", file=sys.stderr)
    results = asyncio.run(measure(args))
    names = list(next(iter(results.values())))
    report = {"what": "output tok/s of the whole run", "input": args.input, "output": args.output, "threads": args.threads,
              "model": pathlib.Path(args.model).name, "cpu": cpu_model(), "date": datetime.date.today().isoformat(),
              "quire": version_of([args.quire, "--version"]), "cpu_limit": os.environ.get("QUIRE_CPU", ""),
              "llama.cpp": version_of([args.llama, "--version"]) if args.llama else None, "tok_per_s": results}
    folder = pathlib.Path(args.out)
    folder.mkdir(parents=True, exist_ok=True)
    name = f"serve-{report['date']}-{datetime.datetime.now():%H%M}.json"
    (folder / name).write_text(json.dumps(report, indent=1) + "\n")
    print(f"\n{args.input} in / {args.output} out, {args.threads} threads, {report['cpu']}\n")
    print(table(results, names))
    print(f"\nkept in {folder / name}")


if __name__ == "__main__":
    main()
