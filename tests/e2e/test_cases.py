"""The cases of run_cases.py, and what each expects beyond its status."""

import json
import re
import time

import pytest
import run_cases
from harness import PATIENCE, Server, at_once, events

CASES = run_cases.load()
BY_ID = {c["id"]: c for c in CASES}
# On the tiny model: what takes the default one long, and needs no real one.
TINY = {"kv-preempt.a", "str-disconnect.a"}


def client_of(server, model):
    return run_cases.Client(server.url, model, timeout=120 * PATIENCE)


def test_the_list_is_whole():
    assert len(CASES) == 100 and len(BY_ID) == 100
    assert (
        set(run_cases.EXCEPTED) <= set(BY_ID)
        and set(run_cases.PINNED) <= set(BY_ID)
        and not set(run_cases.EXCEPTED) & set(run_cases.PINNED)
    )
    for case in CASES:
        if len(case["expect_status"]) > 1:  # a choice is settled, and as the case allows
            assert run_cases.PINNED[case["id"]] in case["expect_status"], case["id"]
    # only what asks for constraints or calls is excepted
    for name in run_cases.EXCEPTED:
        assert "response_format" in BY_ID[name]["body"] or "tool_choice" in BY_ID[name]["body"]


@pytest.mark.parametrize("case", [c for c in CASES if c["id"] not in run_cases.KEYED | TINY], ids=lambda c: c["id"])
def test_case(smollm2, case):
    client = client_of(smollm2, "smollm2")
    start = time.monotonic()
    status, data = client.send_case(case)
    took = time.monotonic() - start
    assert run_cases.judge(case, status, data) == "", data[:300]
    if status >= 400:
        assert took < 2 * PATIENCE
    assert client.is_well() == ""


@pytest.mark.parametrize("name", sorted(TINY))
def test_case_on_the_tiny_model(tiny, name):
    client = client_of(tiny, "tiny")
    status, data = client.send_case({**BY_ID[name], "body": {**BY_ID[name]["body"], "max_tokens": 900}})
    assert status == 200 and client.is_well() == "", data[:300]


@pytest.mark.parametrize("name", sorted(run_cases.KEYED))
def test_case_with_a_key(tiny_model, name):
    with Server(tiny_model, "--kv-cache-memory-bytes", "4Mi", "--api-key", "k") as server:
        status, data = client_of(server, "x").send_case(BY_ID[name])
        assert run_cases.judge(BY_ID[name], status, data) == ""


# ---- what they expect in words ----


def sent(server, name, **more):
    case = BY_ID[name]
    if more:
        case = {**case, "body": {**case["body"], **more}}
    status, data = client_of(server, "smollm2").send_case(case)
    assert status == 200, data
    return json.loads(data)


def test_echo_is_byte_for_byte(smollm2):
    prompt = BY_ID["tok-pretok.a"]["body"]["prompt"]
    answer = sent(smollm2, "tok-pretok.a")
    assert answer["choices"][0]["text"].startswith(prompt)
    assert answer["usage"]["prompt_tokens"] == smollm2.ok("/tokenize", {"prompt": prompt})["count"]


def test_prompt_ids_hold_the_templates_control_tokens_only(smollm2):
    own = sent(smollm2, "tok-double-bos.a", return_token_ids=True)["prompt_token_ids"]
    control = [i for i in own if i < 17]  # SmolLM2 has its control tokens first
    assert control == [1, 2, 1, 2, 1]  # system, user, assistant
    for name in ("tok-special-inject.a", "tok-special-inject.b"):
        ids = sent(smollm2, name, return_token_ids=True)["prompt_token_ids"]
        assert [i for i in ids if i < 17] == control


def test_both_content_shapes_give_one_prompt(smollm2):
    body = BY_ID["tpl-content-shapes.b"]["body"]
    plain = [
        {**m, "content": m["content"] if isinstance(m["content"], str) else "".join(p["text"] for p in m["content"])}
        for m in body["messages"]
    ]
    assert (
        sent(smollm2, "tpl-content-shapes.b")["usage"]["prompt_tokens"]
        == sent(smollm2, "tpl-content-shapes.b", messages=plain)["usage"]["prompt_tokens"]
    )


def test_short_maximum(smollm2):
    assert sent(smollm2, "smp-max-tokens.d")["usage"]["completion_tokens"] <= 3
    assert sent(smollm2, "smp-max-tokens.a")["usage"]["completion_tokens"] == 0
    assert sent(smollm2, "smp-max-tokens.b")["usage"]["completion_tokens"] <= 16


def test_true_counts_beyond_the_limit(smollm2):
    _, data = client_of(smollm2, "smollm2").send_case(BY_ID["kv-context-limit.a"])
    numbers = set(re.findall(r"\d+", json.loads(data)["error"]["message"]))
    count = smollm2.ok("/tokenize", {"prompt": BY_ID["kv-context-limit.a"]["body"]["prompt"]})["count"]
    assert {str(count), "8192", "1"} <= numbers
    _, data = client_of(smollm2, "smollm2").send_case(BY_ID["kv-context-limit.b"])
    assert {"1000000", "8192"} <= set(re.findall(r"\d+", json.loads(data)["error"]["message"]))


def test_tenants_do_not_meet(smollm2):
    """ALPHA and OMEGA at once, on one cache: as each alone without it."""

    def ask(name, **more):
        return sent(smollm2, name, logprobs=True, **more)["choices"][0]

    names = ["kv-cross-leak.a", "kv-cross-leak.b"]
    right = [ask(n, skip_reading_prefix_cache=True) for n in names]
    assert at_once(8, lambda i: ask(names[i % 2])) == right * 4


def test_disconnect(smollm2):
    """The client of str-disconnect drops after the first chunk."""
    from harness import Connection

    with Connection(smollm2) as c:
        c.request(
            "POST",
            BY_ID["str-disconnect.a"]["path"],
            json.dumps(BY_ID["str-disconnect.a"]["body"]).replace("@MODEL", "smollm2").encode(),
        )
        c.head()
        next(c.chunks())
        c.reset()
    smollm2.wait_idle(1)


def test_stop_cases_on_what_the_model_says(smollm2):
    """The stop cases force a text with a schema; here the model's own greedy text takes its place."""
    full = smollm2.chat("go", max_tokens=64, temperature=0)["choices"][0]["message"]["content"]
    stop = full[10:16]
    for stream in (True, False):
        body = {"messages": [{"role": "user", "content": "go"}], "max_tokens": 64, "temperature": 0, "stop": [stop]}
        if stream:
            out, done = events(smollm2.post("/v1/chat/completions", {**body, "stream": True}).body)
            text = "".join(e["choices"][0]["delta"].get("content", "") for e in out)
            assert done and out[-1]["choices"][0]["finish_reason"] == "stop"
        else:
            text = smollm2.ok("/v1/chat/completions", body)["choices"][0]["message"]["content"]
        assert text == full[: full.index(stop)]
