#!/usr/bin/env python3
"""The kinds of trouble that people report with servers of this sort, as requests with the status that is right.

usage: run_cases.py BASE_URL MODEL [--only PREFIX] [--api-key KEY] [--show]

Sends every case of cases/requests.jsonl to a running server. A case fails when its status is not the one that docs/api.md
settles (PINNED) or the case names, when a 4xx has no error object with a message, when the connection breaks, or when afterwards
/health or a small completion does not work. EXCEPTED are the cases that need constrained output or parsed tool calls:
they must be refused cleanly.

In the file long values are written as {"$text": [text, [unit, n], ...]}, {"$list": [value, n]} and
{"$numbered": [prefix, n]}."""

import argparse
import base64
import http.client
import json
import pathlib
import sys
import time
import urllib.parse

CASES = pathlib.Path(__file__).parent / "cases" / "requests.jsonl"

CONSTRAINED = "needs a JSON schema to be enforced, which this version refuses"
CALLS = "needs a tool call to be enforced, which this version refuses"
EXCEPTED = {
    "tok-emoji-stream.a": CONSTRAINED,
    "tok-emoji-stream.b": CONSTRAINED,
    "str-stop-split.a": CONSTRAINED,
    "str-stop-split.b": CONSTRAINED,
    "str-stop-split.c": CONSTRAINED,
    "so-whitespace.a": CONSTRAINED,
    "so-whitespace.b": CONSTRAINED,
    "so-schema-features.a": CONSTRAINED,
    "so-schema-features.b": CONSTRAINED,
    "so-schema-features.c": CONSTRAINED,
    "so-schema-features.e": CONSTRAINED,
    "tool-stream-args.a": CALLS,
    "tool-stream-args.b": CALLS,
    "tool-stream-args.c": CALLS,
    "tool-choice.a": CALLS,
}

# Where a case allows several answers: what this server does (docs/api.md, "Decisions").
PINNED = {
    "tok-pretok.a": 200,
    "tpl-dos.a": 400,
    "tpl-dos.b": 400,
    "smp-logit-bias.d": 400,
    "smp-max-tokens.a": 200,
    "smp-max-tokens.c": 400,
    "smp-max-tokens.e": 400,
    "smp-max-tokens.f": 400,
    "val-empty-prompt.a": 400,
    "val-empty-prompt.b": 400,
    "so-fail-open.a": 400,
    "so-fail-open.e": 400,
    "so-fail-open.g": 400,
    "so-schema-features.d": 400,
    "so-schema-features.g": 400,
    "so-deep.e": 400,
    "so-deep.f": 400,
    "tool-choice.d": 200,
    "kv-context-limit.b": 400,
    "met-values.a": 200,
    "sec-huge-n.b": 400,
    "sec-huge-n.d": 400,
    "sec-headers.a": 431,
    "sec-headers.b": 414,
    "sec-headers.c": 400,
    **{f"so-bad-regex.p{i}": 400 for i in range(14)},
}

# Cases that say nothing on a server without keys.
KEYED = {"sec-key-timing.a", "sec-key-timing.b"}


def expand(value):
    if isinstance(value, dict):
        if "$text" in value:
            return "".join(p if isinstance(p, str) else p[0] * p[1] for p in value["$text"])
        if "$list" in value:
            return [expand(value["$list"][0])] * value["$list"][1]
        if "$numbered" in value:
            return [f"{value['$numbered'][0]}{i}" for i in range(value["$numbered"][1])]
        return {k: expand(v) for k, v in value.items()}
    return [expand(v) for v in value] if isinstance(value, list) else value


def load():
    return [expand(json.loads(line)) for line in CASES.read_text().splitlines()]


def wanted(case):
    """The statuses that are right."""
    if case["id"] in EXCEPTED:
        return [400]
    return [PINNED[case["id"]]] if case["id"] in PINNED else case["expect_status"]


class Client:
    def __init__(self, base, model, api_key=None, timeout=60):
        self.url, self.model, self.api_key, self.timeout = urllib.parse.urlsplit(base), model, api_key, timeout

    def send(self, method, path, body=None, headers=None):
        h = {"content-type": "application/json", "host": self.url.netloc}
        if self.api_key:
            h["authorization"] = "Bearer " + self.api_key
        h |= {k.lower(): v for k, v in (headers or {}).items()}
        kind = http.client.HTTPSConnection if self.url.scheme == "https" else http.client.HTTPConnection
        connection = kind(self.url.hostname, self.url.port, timeout=self.timeout)
        try:
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            for name, value in h.items():
                if value is not None:
                    connection.putheader(name, value)
            if body is not None and "content-length" not in h:
                connection.putheader("content-length", str(len(body)))
            connection.endheaders()
            try:
                if body:
                    connection.send(body)
            except ConnectionError:
                pass  # refused early: the answer says why
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def send_case(self, case, number=0):
        body = case.get("body")
        if case.get("body_b64"):
            raw = base64.b64decode(case["body_b64"])
        elif body is None:
            raw = None
        else:
            text = body if isinstance(body, str) else json.dumps(body)
            raw = text.replace("@MODEL", self.model).replace("@I", str(number)).encode("utf-8", "surrogatepass")
        return self.send(case["method"], case["path"], raw, case.get("headers"))

    def is_well(self):
        """ "" or what is wrong with the server."""
        try:
            status, _ = self.send("GET", "/health")
            if status != 200:
                return f"/health answers {status}"
            small = {"model": self.model, "prompt": "The sky is", "max_tokens": 1}
            status, _ = self.send("POST", "/v1/completions", json.dumps(small).encode())
            return "" if status == 200 else f"a small completion answers {status}"
        except OSError as e:
            return f"the server is gone: {e}"


def judge(case, status, data):
    """ "" or what is wrong with an answer."""
    if status not in wanted(case):
        return f"status {status}, right is {wanted(case)}"
    if 400 <= status < 500:
        try:
            if not json.loads(data)["error"]["message"]:
                return "an error without a message"
        except (ValueError, KeyError, TypeError):
            return "an error that is no error object"
    return ""


def main():
    p = argparse.ArgumentParser(usage=__doc__)
    p.add_argument("base")
    p.add_argument("model")
    p.add_argument("--only", default="")
    p.add_argument("--api-key")
    p.add_argument("--show", action="store_true")
    o = p.parse_args()
    client, passed, failed = Client(o.base, o.model, o.api_key), 0, 0
    for number, case in enumerate(load()):
        if not case["id"].startswith(o.only) or (case["id"] in KEYED and not o.api_key):
            continue
        start, status, data = time.monotonic(), 0, b""
        try:
            status, data = client.send_case(case, number)
            why = judge(case, status, data)
        except OSError as e:
            why = f"{type(e).__name__}: {e}"
        why = why or client.is_well()
        passed, failed = passed + (not why), failed + bool(why)
        if why or o.show:
            print(
                f"{'FAIL' if why else 'ok  '} {case['id']}: {why or status} ({time.monotonic() - start:.1f} s) | {case['expect'][:160]} | {data[:300]!r}"
            )
    print(f"{passed} passed, {failed} failed")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
