"""Every field of every endpoint against every kind of wrong value. The list comes from the program itself (the table
that docs/api.md shows), so a new field is tested from the day it is there."""

import json
import re

import pytest
from harness import Server, run

PATHS = {
    "completions": "/v1/completions",
    "chat": "/v1/chat/completions",
    "tokenize": "/tokenize",
    "detokenize": "/detokenize",
    "embeddings": "/v1/embeddings",
    "rerank": "/v1/rerank",
    "score": "/v1/score",
}
BASES = {
    "completions": {"prompt": "abc", "max_tokens": 1},
    "chat": {"messages": [{"role": "user", "content": "abc"}], "max_tokens": 1},
    "tokenize": {"prompt": "abc"},
    "detokenize": {"tokens": [5, 6]},
    "embeddings": {"input": "abc"},
    "rerank": {"query": "abc", "documents": ["abc"]},
    "score": {"text_1": "abc", "text_2": "abc"},
}
NEEDED = {"prompt", "messages", "tokens", "input", "query", "text_1", "text_2"}
VALUES = {
    "object": [{}, {"a": 1}],
    "array": [[], [[]], [{}], [None]],
    "string": ["", "x", "true", "1", "\x00"],
    "integer": [0, 7, -9],
    "number": [1.5, -0.25, 1e300, -1e300],
    "boolean": [True, False],
}


def table():
    rows = re.findall(r"^\| `(\w+)` \| ([\w ]+?) \| (.*?) \| (.*) \|$", run("serve", "--help-api").stdout, re.M)
    assert len(rows) > 50
    return [(name, kind, type, allowed) for name, kinds, type, allowed in rows for kind in kinds.split()]


ROWS = table()


@pytest.fixture(scope="module")
def vectors_server(tiny_model):
    with Server(tiny_model, "--runner", "pooling", "--kv-cache-memory-bytes", "8Mi") as server:
        yield server
        server.wait_idle()


@pytest.fixture
def server_of(tiny, vectors_server):
    """The server of an endpoint."""
    return lambda kind: vectors_server if kind in ("embeddings", "rerank", "score") else tiny


def kinds_of(type, kind):
    """The JSON types that a field may have, by the table's words."""
    if f"({kind})" in type:  # "integer (completions); boolean (chat)"
        type = next(part for part in type.split("; ") if f"({kind})" in part)
    words = {"object", "array", "string", "integer", "number", "boolean", "ids"} & set(re.findall(r"[a-z]+", type))
    if "ids" in words:
        words.add("array")
    return words


def fields_for(name, kind, value):
    fields = {**BASES[kind], name: value}
    if name == "messages" and kind == "tokenize":
        del fields["prompt"]
    if name == "stream_options":
        fields["stream"] = True
    return fields


@pytest.mark.parametrize("name,kind,type,allowed", ROWS, ids=[f"{r[1]}-{r[0]}" for r in ROWS])
def test_wrong_types_and_values(server_of, name, kind, type, allowed):
    taken = kinds_of(type, kind)
    assert taken or allowed.startswith("refused"), f"{name}: the table names no type"
    for value_kind, values in VALUES.items():
        for value in values:
            answer = server_of(kind).post(PATHS[kind], fields_for(name, kind, value))
            if (
                value_kind in taken
                or (value_kind == "integer" and "number" in taken)
                or (value_kind == "number" and "integer" in taken and value == int(value))
            ):
                assert answer.status in (200, 400, 404), answer  # its values have tests of their own
            else:
                assert answer.status == 400, (value, answer)
            if answer.status == 400:
                assert answer.error["param"] in (name, "n", *NEEDED), (value, answer)
                assert name in answer.error["message"] or answer.error["param"] != name, answer
    # null is "not given", except where the field is needed
    needed = name in NEEDED or (name == "documents" and kind == "rerank")
    answer = server_of(kind).post(PATHS[kind], fields_for(name, kind, None))
    assert answer.status == (400 if needed else 200), answer


@pytest.mark.parametrize("kind", PATHS)
def test_fields_of_other_endpoints_are_unknown(server_of, kind):
    own = {r[0] for r in ROWS if r[1] == kind}
    for name in {r[0] for r in ROWS} - own:
        server_of(kind).refused(PATHS[kind], {**BASES[kind], name: 1}, param=name, says=f'unknown field "{name}"')


# name, values that are taken, values that are refused
NUMBERS = [
    ("temperature", [0, 0.0, 1e-30, 2, 2.0, 1.999999], [-1e-9, 2.0000001, -1, 1e30, 2**31, -(2**63)]),
    ("top_p", [1, 1e-6, 0.5], [0, -0.0, 1.0000001, -1, 2]),
    ("min_p", [0, 1, 0.5], [-1e-9, 1.0000001]),
    ("top_k", [-1, 0, 1, 2**31 - 1, 5.0], [-2, 2**31, 2**63 - 1, 1.5, -(2**63)]),
    ("presence_penalty", [-2, 2, 0.1], [-2.01, 2.01]),
    ("frequency_penalty", [-2, 2, 0.1], [-2.01, 2.01]),
    ("repetition_penalty", [1e-3, 1, 10], [0, -1, 10.01]),
    ("seed", [0, -1, 2**63 - 1, -(2**63), 1.0], [1.5, 2.0**60]),
    ("n", [1, 3, 3.0], [0, -1, 129, 2**31 - 1, 2**63 - 1, 1.5]),
    ("max_tokens", [1, 5, 4000], [0, -1, -(2**63)]),
    ("max_completion_tokens", [1, 5], [0, -1]),
    ("min_tokens", [0, 1], [-1, 2, 2**40]),
    ("prompt_logprobs", [0, 1, 20], [-1, 21, 2**31 - 1, 2**63 - 1]),
    ("priority", [0, -(2**31), 2**31 - 1], [2**31, -(2**31) - 1, 0.5]),
]


@pytest.mark.parametrize("name,good,bad", NUMBERS, ids=[r[0] for r in NUMBERS])
@pytest.mark.parametrize("kind", ["completions", "chat"])
def test_limits_of_numbers(tiny, kind, name, good, bad):
    def fields(value):
        base = dict(BASES[kind])
        if name.startswith("max_"):
            del base["max_tokens"]
        return {**base, name: value}

    for value in good:
        assert tiny.post(PATHS[kind], fields(value)).status == 200, value
    for value in bad:
        e = tiny.refused(PATHS[kind], fields(value), param=name)
        assert name in e["message"]


@pytest.mark.parametrize("kind", ["completions", "chat"])
@pytest.mark.parametrize("key,value", [("5", 100), ("5", -100), ("0", 0), ("599", 0.5)])
def test_logit_bias_taken(tiny, kind, key, value):
    assert tiny.post(PATHS[kind], {**BASES[kind], "logit_bias": {key: value}}).status == 200


@pytest.mark.parametrize(
    "bias",
    [
        {"600": 1},
        {"999999999": -100},
        {"-1": 5},
        {"AI": -100},
        {"1.5": 1},
        {" 5": 1},
        {"5 ": 1},
        {"": 1},
        {"0x5": 1},
        {"05": 1},
        {"+5": 1},
        {"5": 1e300},
        {"5": 100.1},
        {"5": "1"},
        {"5": None},
        {"5": True},
        {"5": [1]},
        {"٥": 1},
        {str(i): 1 for i in range(5000)},
        {str(i): 0 for i in range(300_000)},
        [["5", 1]],
        "5",
        5,
    ],
)
def test_logit_bias_refused(tiny, bias):
    for kind in ("completions", "chat"):
        tiny.refused(PATHS[kind], {**BASES[kind], "logit_bias": bias}, param="logit_bias")


@pytest.mark.parametrize("stop", [[], "x", ["x"], ["a"] * 16, "é" * 512, ["\u0000"], None])
def test_stop_taken(tiny, stop):
    assert tiny.post("/v1/completions", {**BASES["completions"], "stop": stop}).status == 200


@pytest.mark.parametrize(
    "stop",
    [
        "",
        [""],
        ["a", ""],
        ["a"] * 17,
        "a" * 1025,
        "é" * 513,
        [1],
        [None],
        [["a"]],
        {"a": "b"},
        5,
        True,
        ["a"] * 100_000,
    ],
)
def test_stop_refused(tiny, stop):
    tiny.refused("/v1/completions", {**BASES["completions"], "stop": stop}, param="stop")


@pytest.mark.parametrize("ids", [[600], [-1], [1.5], ["1"], [None], [True], [2**63 - 1], [1] * 129, "1", 1, {}])
def test_stop_token_ids_refused(tiny, ids):
    tiny.refused("/v1/completions", {**BASES["completions"], "stop_token_ids": ids}, param="stop_token_ids")


PROMPTS_BAD = [
    [],
    [[]],
    ["a", []],
    [[5], []],
    [600],
    [-1],
    [2**63 - 1],
    [1.0],
    [1.5],
    [True],
    [None],
    [[None]],
    [1, "a"],
    ["a", 1],
    [[1], "a"],
    ["a", [1]],
    [[1, "a"]],
    [[[1]]],
    {},
    {"a": 1},
    5,
    True,
    ["a"] * 1025,
    ["p"] * 20_000,
    [""],
    "",
    ["a", ""],
]


@pytest.mark.parametrize("prompt", PROMPTS_BAD, ids=range(len(PROMPTS_BAD)))
def test_prompts_refused(tiny, prompt):
    tiny.refused("/v1/completions", {"prompt": prompt, "max_tokens": 1}, param="prompt")


@pytest.mark.parametrize(
    "prompt", ["a", ["a"], ["a", "b"], [5], [5, 6], [[5]], [[5], [6, 7]], "\u0000", "a" * 4000, ["x"] * 100]
)
def test_prompts_taken(tiny, prompt):
    answer = tiny.ok("/v1/completions", {"prompt": prompt, "max_tokens": 1})
    many = isinstance(prompt, list) and not isinstance(prompt[0], int)
    assert len(answer["choices"]) == (len(prompt) if many else 1)


def test_too_many_answers(tiny):
    tiny.refused("/v1/completions", {"prompt": ["a"] * 1024, "n": 2}, param="n", says="1024")
    tiny.refused("/v1/completions", {"prompt": "a", "n": 1, "best_of": 100_000_000}, param="best_of")
    tiny.refused("/v1/completions", {"prompt": "a", "n": 1, "best_of": 2}, param="best_of", says="equal to n")
    assert tiny.post("/v1/completions", {"prompt": "a", "n": 2, "best_of": 2, "max_tokens": 1}).status == 200


MESSAGES_BAD = [
    [],
    {},
    "hi",
    5,
    [None],
    [[]],
    ["hi"],
    [{}],
    [{"role": "user"}],
    [{"content": "x"}],
    [{"role": "boss", "content": "x"}],
    [{"role": 5, "content": "x"}],
    [{"role": None, "content": "x"}],
    [{"role": ["user"], "content": "x"}],
    [{"role": "user", "content": 5}],
    [{"role": "user", "content": True}],
    [{"role": "user", "content": {}}],
    [{"role": "user", "content": [5]}],
    [{"role": "user", "content": [{}]}],
    [{"role": "user", "content": [None]}],
    [{"role": "user", "content": [{"type": "text"}]}],
    [{"role": "user", "content": [{"type": "text", "text": 5}]}],
    [{"role": "user", "content": [{"type": 5, "text": "x"}]}],
    [{"role": "user", "content": [{"text": "x"}]}],
    [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://127.0.0.1:1/x.png"}}]}],
    [{"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "", "format": "wav"}}]}],
    [{"role": "user", "content": [{"type": "file", "file": {"file_id": "x"}}]}],
    [{"role": "assistant", "tool_calls": {}}],
    [{"role": "assistant", "tool_calls": "x"}],
    [{"role": "assistant", "tool_calls": [5]}],
    [{"role": "assistant", "tool_calls": [{}]}],
    [{"role": "assistant", "tool_calls": [{"function": {}}]}],
    [{"role": "assistant", "tool_calls": [{"function": {"name": 5}}]}],
    [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": 5}}]}],
    [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": []}}]}],
    [{"role": "user", "content": "x"}, {"role": "user"}],
]


@pytest.mark.parametrize("messages", MESSAGES_BAD, ids=range(len(MESSAGES_BAD)))
def test_messages_refused(tiny, messages):
    e = tiny.refused("/v1/chat/completions", {"messages": messages, "max_tokens": 1}, param="messages")
    tiny.refused("/tokenize", {"messages": messages}, param="messages")
    assert "messages" in e["message"]


def test_no_connection_goes_out_for_an_image(tiny):
    import socket

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.5)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/x.png"
        tiny.refused(
            "/v1/chat/completions",
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}]},
        )
        with pytest.raises(TimeoutError):
            listener.accept()


def test_too_many_messages(tiny):
    tiny.refused("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}] * 100_001})
    tiny.refused("/v1/chat/completions", {"messages": [{"role": "user", "content": ""}] * 50_000}, says="max_model_len")


TOOLS_BAD = [
    {},
    "x",
    5,
    [None],
    [5],
    [{}],
    [{"type": "function"}],
    [{"type": "web", "function": {"name": "f"}}],
    [{"type": "function", "function": {}}],
    [{"type": "function", "function": {"name": ""}}],
    [{"type": "function", "function": {"name": 5}}],
    [{"type": "function", "function": {"name": "a" * 257}}],
    [{"type": "function", "function": {"name": "f", "parameters": []}}],
    [{"type": "function", "function": {"name": "f", "parameters": "x"}}],
    [{"type": "function", "function": {"name": "f"}}] * 1025,
]


@pytest.mark.parametrize("tools", TOOLS_BAD, ids=range(len(TOOLS_BAD)))
def test_tools_refused(tiny, tools):
    tiny.refused("/v1/chat/completions", {**BASES["chat"], "tools": tools}, param="tools")


TOOL = {"type": "function", "function": {"name": "f1"}}


@pytest.mark.parametrize(
    "choice",
    [
        "required",
        "any",
        "",
        5,
        True,
        [],
        {},
        {"type": "function"},
        {"type": "function", "function": {"name": "nope"}},
        {"type": "function", "function": {"name": "f1"}},
    ],
)
@pytest.mark.parametrize("tools", [None, [TOOL]], ids=["without tools", "with tools"])
def test_tool_choices_that_cannot_be_enforced(tiny, choice, tools):
    tiny.refused("/v1/chat/completions", {**BASES["chat"], "tools": tools, "tool_choice": choice}, param="tool_choice")


@pytest.mark.parametrize(
    "fields",
    [
        {"tools": []},
        {"tools": [], "tool_choice": "auto"},
        {"tools": [TOOL], "tool_choice": "auto"},
        {"tools": [TOOL], "tool_choice": "none"},
        {"tools": [TOOL], "parallel_tool_calls": True},
        {"tools": [TOOL], "parallel_tool_calls": False},
        {"tool_choice": "none"},
    ],
)
def test_tools_taken(tiny, fields):
    assert tiny.post("/v1/chat/completions", {**BASES["chat"], **fields}).status == 200


@pytest.mark.parametrize(
    "format",
    [
        {"type": "json_object"},
        {"type": "json_schema"},
        {"type": "json_shcema"},
        {"type": "regex"},
        {"type": 5},
        {},
        [],
        "text",
        5,
        {"type": "json_schema", "json_schema": {"name": "t", "schema": {"type": "string"}}},
    ],
)
def test_formats_that_cannot_be_enforced(tiny, format):
    for kind in ("completions", "chat"):
        tiny.refused(PATHS[kind], {**BASES[kind], "response_format": format}, param="response_format")


@pytest.mark.parametrize(
    "name",
    ["guided_json", "guided_regex", "guided_choice", "guided_grammar", "structured_outputs", "grammar", "json_schema"],
)
def test_constraints_are_never_dropped(tiny, name):
    for kind in ("completions", "chat"):
        for value in ({}, "x", [], {"type": "integer"}, True):
            assert tiny.refused(PATHS[kind], {**BASES[kind], name: value}, param=name)["code"] == "unsupported"


def test_template_fields(tiny):
    chat = BASES["chat"]
    tiny.refused("/v1/chat/completions", {**chat, "chat_template": "{{ 1 }}"}, param="chat_template", says="operator")
    for name in (
        "messages",
        "tools",
        "documents",
        "chat_template",
        "tokenize",
        "add_generation_prompt",
        "bos_token",
        "eos_token",
        "continue_final_message",
    ):
        for path in ("/v1/chat/completions", "/tokenize"):
            fields = {"messages": chat["messages"], "chat_template_kwargs": {name: "x"}}
            tiny.refused(path, fields, param="chat_template_kwargs", says=name)
    tiny.refused("/tokenize", {"messages": chat["messages"], "chat_template": "x"}, param="chat_template")
    assert (
        tiny.post(
            "/v1/chat/completions", {**chat, "chat_template_kwargs": {"enable_thinking": False, "x": [1, {"y": None}]}}
        ).status
        == 200
    )


@pytest.mark.parametrize(
    "options",
    [{"include_usage": 1}, {"include_usage": "yes"}, {"x": True}, {"include_usage": True, "y": 1}, [], "x", 5],
)
def test_stream_options_refused(tiny, options):
    tiny.refused(
        "/v1/completions", {**BASES["completions"], "stream": True, "stream_options": options}, param="stream_options"
    )
    tiny.refused(
        "/v1/completions",
        {**BASES["completions"], "stream_options": {"include_usage": True}},
        param="stream_options",
        says="stream",
    )


@pytest.mark.parametrize("salt", ["", "a" * 1025, "é" * 513, "a\0b"])
def test_cache_salts_refused(tiny, salt):
    tiny.refused("/v1/completions", {**BASES["completions"], "cache_salt": salt}, param="cache_salt")


def test_fields_that_exclude_each_other(tiny, server_of):
    base = BASES["completions"]
    tiny.refused("/v1/completions", {**base, "max_completion_tokens": 3}, param="max_completion_tokens", says="differ")
    assert tiny.complete(max_tokens=3, max_completion_tokens=3)
    tiny.refused("/v1/completions", {**base, "min_tokens": 2}, param="min_tokens", says="max_tokens 1")
    tiny.refused(
        "/v1/completions", {**base, "prompt_logprobs": 1, "stream": True}, param="prompt_logprobs", says="stream"
    )
    tiny.refused("/v1/chat/completions", {**BASES["chat"], "top_logprobs": 2}, param="top_logprobs", says="logprobs")
    tiny.refused("/v1/chat/completions", {**BASES["chat"], "logprobs": False, "top_logprobs": 2}, param="top_logprobs")
    tiny.refused(
        "/v1/chat/completions",
        {**BASES["chat"], "logprobs": True, "top_logprobs": 2**31 - 1},
        param="top_logprobs",
        says="0 to 20",
    )
    tiny.refused(
        "/v1/chat/completions",
        {**BASES["chat"], "continue_final_message": True, "add_generation_prompt": True},
        param="continue_final_message",
    )
    tiny.refused("/tokenize", {"prompt": "x", "messages": BASES["chat"]["messages"]}, says="not both")
    for kind, path in PATHS.items():
        server_of(kind).refused(path, {}, says="missing")


def test_detokenize_ids(tiny):
    for ids in ([600], [-1], ["5"], [5.5], [None], [[5]], [2**63 - 1]):
        tiny.refused("/detokenize", {"tokens": ids}, param="tokens")
    assert tiny.ok("/detokenize", {"tokens": []})["prompt"] == ""


def test_errors_show_no_prompt_of_others(tiny):
    """The text of an error holds a bounded piece of what was sent, and nothing else."""
    secret = "SECRET" * 50
    for body in ({"prompt": [secret, 1]}, {"prompt": secret, "temperature": "x"}, {"prompt": secret, "stop": [1]}):
        assert "SECRET" not in json.dumps(tiny.refused("/v1/completions", body))
    assert "SECRET" not in tiny_log(tiny)


def tiny_log(server):
    return server.stderr()
