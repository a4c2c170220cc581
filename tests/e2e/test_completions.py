"""/v1/completions and /v1/chat/completions with the `openai` client and raw: shapes, usage, scores, seeds."""

import json
import math
import random

import httpx
import openai
import pytest
from harness import REPEAT, REPEATED, at_once

TEXT = "the time is near and there is no more to tell"


def client_of(server, **more):
    return openai.OpenAI(base_url=server.url + "/v1", api_key="unused", max_retries=0, **more)


# ---- the openai client, on the default model ----


def test_client_chat(smollm2):
    answer = client_of(smollm2).chat.completions.create(
        model="smollm2", messages=[{"role": "user", "content": REPEAT}], max_tokens=40, temperature=0
    )
    choice = answer.choices[0]
    assert choice.message.content == REPEATED and choice.message.role == "assistant"
    assert answer.object == "chat.completion" and answer.model == "smollm2" and answer.id.startswith("chatcmpl-")
    assert choice.finish_reason == "stop" and answer.system_fingerprint
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


def test_client_chat_stream_equals_whole(smollm2):
    client = client_of(smollm2)
    fields = dict(
        model="smollm2", messages=[{"role": "user", "content": "Name three colours."}], max_tokens=40, temperature=0
    )
    whole = client.chat.completions.create(**fields)
    text, usage, reasons = "", None, []
    for chunk in client.chat.completions.create(**fields, stream=True, stream_options={"include_usage": True}):
        assert chunk.object == "chat.completion.chunk" and chunk.system_fingerprint == whole.system_fingerprint
        for choice in chunk.choices:
            text += choice.delta.content or ""
            reasons += [choice.finish_reason] if choice.finish_reason else []
        usage = chunk.usage or usage
    assert text == whole.choices[0].message.content and reasons == [whole.choices[0].finish_reason]
    assert usage.completion_tokens == whole.usage.completion_tokens and usage.prompt_tokens == whole.usage.prompt_tokens


def test_client_completions(smollm2):
    client = client_of(smollm2)
    fields = dict(
        model="smollm2",
        prompt=["The capital of France is", "One, two, three,"],
        max_tokens=8,
        temperature=0,
        n=2,
        logprobs=3,
    )
    whole = client.completions.create(**fields)
    assert [c.index for c in whole.choices] == [0, 1, 2, 3]
    assert "Paris" in whole.choices[0].text and "four" in whole.choices[2].text
    assert whole.choices[0].text == whole.choices[1].text
    lp = whole.choices[0].logprobs
    assert len(lp.tokens) == len(lp.token_logprobs) == len(lp.top_logprobs) == len(lp.text_offset) == 8
    assert "".join(lp.tokens) == whole.choices[0].text
    texts = [""] * 4
    for chunk in client.completions.create(**fields, stream=True):
        for choice in chunk.choices:
            texts[choice.index] += choice.text
    assert texts == [c.text for c in whole.choices]


def test_client_logprobs(smollm2):
    answer = client_of(smollm2).chat.completions.create(
        model="smollm2",
        messages=[{"role": "user", "content": "hi"}],
        max_tokens=6,
        temperature=0,
        logprobs=True,
        top_logprobs=4,
    )
    content = answer.choices[0].logprobs.content
    assert len(content) == answer.usage.completion_tokens
    for entry in content:
        assert entry.top_logprobs[0].token == entry.token and entry.top_logprobs[0].logprob == entry.logprob  # greedy
        assert len(entry.top_logprobs) == 4
        values = [t.logprob for t in entry.top_logprobs]
        assert values == sorted(values, reverse=True) and values[0] <= 0
        assert bytes(entry.bytes).decode() == entry.token


def test_client_models_and_errors(tiny):
    client = client_of(tiny)
    assert [m.id for m in client.models.list()] == ["tiny"] and client.models.retrieve("tiny").owned_by == "quire"
    with pytest.raises(openai.NotFoundError) as e:
        client.completions.create(model="gpt-4", prompt="x")
    assert e.value.code == "model_not_found" and e.value.param == "model"
    with pytest.raises(openai.BadRequestError) as e:
        client.completions.create(model="tiny", prompt="x", temperature=5)
    assert e.value.param == "temperature" and "0 to 2" in e.value.message
    with pytest.raises(openai.BadRequestError) as e:
        client.completions.create(model="tiny", prompt="x " * 5000)
    assert e.value.code == "context_length_exceeded"
    with pytest.raises(openai.BadRequestError) as e:
        client.chat.completions.create(
            model="tiny", messages=[{"role": "user", "content": "x"}], response_format={"type": "json_object"}
        )
    assert e.value.code == "unsupported"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("nothing")
    with pytest.raises(openai.NotFoundError):
        client.moderations.create(input="x")
    with pytest.raises(openai.BadRequestError) as e:
        client.embeddings.create(model="tiny", input="x")
    assert e.value.code == "unsupported" and "--runner pooling" in e.value.message
    with pytest.raises(openai.BadRequestError) as e:
        client.completions.create(model="tiny", prompt="x", extra_body={"temprature": 1})
    assert "temperature" in e.value.message


def test_client_async(tiny):
    import asyncio

    async def ask(client, i):
        stream = await client.completions.create(
            model="tiny", prompt=f"{i} {TEXT}", max_tokens=20, temperature=0, stream=True
        )
        return "".join([c.choices[0].text async for c in stream if c.choices])

    async def all_of_them():
        async with openai.AsyncOpenAI(base_url=tiny.url + "/v1", api_key="x") as client:
            return await asyncio.gather(*[ask(client, i) for i in range(16)])

    texts = asyncio.run(all_of_them())
    assert texts == [tiny.complete(f"{i} {TEXT}", max_tokens=20, temperature=0)["text"] for i in range(16)]


def test_httpx_stream_is_not_buffered(smollm2):
    """Each token arrives as it is made: the first line is there before the last token is."""
    with httpx.stream(
        "POST",
        smollm2.url + "/v1/completions",
        json={"prompt": TEXT, "max_tokens": 4000, "stream": True, "ignore_eos": True, "temperature": 0},
    ) as r:  # left before its end
        assert r.headers["cache-control"] == "no-cache" and r.headers["x-accel-buffering"] == "no"
        first = next(r.iter_lines())
        assert first.startswith("data: ")
        assert smollm2.metrics()["vllm:num_requests_running"] == 1


# ---- usage ----


def test_usage_is_exact(tiny):
    n = tiny.ok("/tokenize", {"prompt": TEXT})["count"]
    for fields, completion in (
        ({}, 16),
        ({"max_tokens": 5}, 5),
        ({"max_tokens": 5, "n": 3}, 15),
        ({"max_tokens": 0, "echo": True}, 0),
    ):
        usage = tiny.ok("/v1/completions", {"prompt": TEXT, "ignore_eos": True, **fields})["usage"]
        assert (usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]) == (
            n,
            completion,
            n + completion,
        )
    usage = tiny.ok("/v1/completions", {"prompt": [TEXT, TEXT + TEXT], "max_tokens": 4, "n": 2, "ignore_eos": True})[
        "usage"
    ]
    m = tiny.ok("/tokenize", {"prompt": TEXT + TEXT})["count"]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (n + m, 16)


def test_usage_counts_the_stop_token(tiny):
    first = tiny.complete(TEXT, max_tokens=8, temperature=0, return_token_ids=True, ignore_eos=True)["token_ids"]
    at = next(i for i in range(8) if first[i] not in first[:i] and i > 2)
    answer = tiny.ok(
        "/v1/completions",
        {"prompt": TEXT, "max_tokens": 8, "temperature": 0, "stop_token_ids": [first[at]], "return_token_ids": True},
    )
    choice = answer["choices"][0]
    assert choice["finish_reason"] == "stop" and choice["stop_reason"] == first[at]
    assert choice["token_ids"] == first[: at + 1] and answer["usage"]["completion_tokens"] == at + 1
    assert choice["text"] == tiny.ok("/detokenize", {"tokens": first[:at]})["prompt"]


def test_stream_usage(tiny):
    body = {"prompt": TEXT, "max_tokens": 6, "n": 2, "ignore_eos": True, "temperature": 0}
    plain = tiny.stream("/v1/completions", body)
    assert all("usage" not in e for e in plain)
    counted = tiny.stream("/v1/completions", {**body, "stream_options": {"include_usage": True}})
    assert all(e["usage"] is None for e in counted[:-1]) and counted[-1]["choices"] == []
    assert counted[-1]["usage"]["completion_tokens"] == 12
    running = tiny.stream(
        "/v1/completions", {**body, "stream_options": {"continuous_usage_stats": True, "include_usage": True}}
    )
    numbers = [e["usage"]["completion_tokens"] for e in running]
    assert numbers == sorted(numbers) and numbers[-1] == 12 and numbers[0] <= 2
    ids = {e["id"] for e in running}
    assert len(ids) == 1 and len({e["created"] for e in running}) == 1


def test_cached_tokens(tiny):
    prompt = [random.Random(1).randrange(3, 259) for _ in range(100)]

    def cached(prompt, **fields):
        return tiny.ok("/v1/completions", {"prompt": prompt, "max_tokens": 3, "temperature": 0, **fields})["usage"][
            "prompt_tokens_details"
        ]["cached_tokens"]

    assert cached(prompt) == 0
    assert 90 <= cached(prompt) <= 99  # all but the last token, which is computed again for its scores
    assert cached(prompt, skip_reading_prefix_cache=True) == 0
    assert cached(prompt[:50] + [5] * 50) in range(48, 51)
    assert cached(prompt, prompt_logprobs=0) == 0  # scores need every position
    assert cached([7, *prompt]) == 0


def test_cache_salt_isolates(tiny):
    prompt = [random.Random(2).randrange(3, 259) for _ in range(64)]
    seen = []
    for salt in ("a", "b", "a", None, "b", None, "A"):
        fields = {"cache_salt": salt} if salt else {}
        answer = tiny.ok(
            "/v1/completions", {"prompt": prompt, "max_tokens": 4, "temperature": 0, "logprobs": 0, **fields}
        )
        seen.append((answer["usage"]["prompt_tokens_details"]["cached_tokens"] > 0, json.dumps(answer["choices"])))
    assert [s[0] for s in seen] == [False, False, True, False, True, True, False]
    assert len({s[1] for s in seen}) == 1


def test_second_turn_is_cached(smollm2):
    messages = [
        {"role": "user", "content": "Tell me about the moon in two sentences. " + random.Random(3).randbytes(8).hex()}
    ]
    first = smollm2.ok("/v1/chat/completions", {"messages": messages, "max_tokens": 48, "temperature": 0})
    messages += [first["choices"][0]["message"], {"role": "user", "content": "And the sun?"}]
    messages[1] = {"role": "assistant", "content": messages[1]["content"]}
    second = smollm2.ok("/v1/chat/completions", {"messages": messages, "max_tokens": 8, "temperature": 0})
    details = second["usage"]["prompt_tokens_details"]
    assert details["cached_tokens"] >= first["usage"]["prompt_tokens"] + 16  # generated tokens, too


# ---- scores ----


def test_completion_logprobs_shape(tiny):
    for n in (0, 1, 20):
        choice = tiny.complete(TEXT, max_tokens=12, temperature=1, seed=4, logprobs=n, ignore_eos=True)
        lp = choice["logprobs"]
        assert len({len(lp[k]) for k in ("tokens", "token_logprobs", "top_logprobs", "text_offset")}) == 1
        for token, value, top in zip(lp["tokens"], lp["token_logprobs"], lp["top_logprobs"]):
            assert value <= 0 and top[token] >= value - 1e-9  # equal, unless two tokens look the same
            assert len(top) <= n + 1 and list(top.values())[:n] == sorted(top.values(), reverse=True)[:n]
    assert tiny.complete(TEXT, max_tokens=2)["logprobs"] is None


def test_no_key_of_an_object_comes_twice(tiny):
    """Bytes that are no characters all look the same: still one key each."""

    def unique(pairs):
        assert len({k for k, _ in pairs}) == len(pairs), pairs
        return dict(pairs)

    for seed in range(5):
        answer = tiny.post(
            "/v1/completions",
            {"prompt": "é" * 10, "max_tokens": 40, "seed": seed, "logprobs": 20, "echo": True, "prompt_logprobs": 20},
        )
        json.loads(answer.body, object_pairs_hook=unique)


def test_text_offsets(tiny):
    for prompt in (TEXT, "aé€😀b", [200, 201, 5, 6, 7]):
        for echo in (False, True):
            choice = tiny.complete(prompt, max_tokens=16, temperature=0, logprobs=0, echo=echo, ignore_eos=True)
            offsets, tokens = choice["logprobs"]["text_offset"], choice["logprobs"]["tokens"]
            assert offsets == sorted(offsets) and offsets[0] == 0
            if "\ufffd" not in choice["text"] and not any("\ufffd" in t for t in tokens):
                for offset, token in zip(offsets, tokens):
                    assert choice["text"][offset : offset + len(token)] == token


def test_echo(tiny):
    prompt = "the <|im_end|> té€😀"
    plain = tiny.complete(prompt, max_tokens=6, temperature=0)
    for stream in (False, True):
        body = {"prompt": prompt, "max_tokens": 6, "temperature": 0, "echo": True}
        if stream:
            text = "".join(e["choices"][0]["text"] for e in tiny.stream("/v1/completions", body))
        else:
            text = tiny.ok("/v1/completions", body)["choices"][0]["text"]
        assert text == prompt + plain["text"]
    ids = tiny.ok("/tokenize", {"prompt": prompt})["tokens"]
    assert tiny.complete(ids, max_tokens=0, echo=True, skip_special_tokens=False)["text"] == prompt
    assert "<|im_end|>" not in tiny.complete(ids, max_tokens=0, echo=True)["text"]


def test_scoring_a_prompt(tiny):
    """max_tokens 0 with echo: scores only; the same in the stream, in pieces, and as prompt_logprobs."""
    ids = [random.Random(5).randrange(3, 259) for _ in range(150)]
    body = {"prompt": ids, "max_tokens": 0, "echo": True, "logprobs": 3}
    answer = tiny.ok("/v1/completions", body)
    choice = answer["choices"][0]
    lp = choice["logprobs"]
    assert answer["usage"]["completion_tokens"] == 0 and choice["finish_reason"] == "length"
    assert len(lp["tokens"]) == 150 and lp["token_logprobs"][0] is None and lp["top_logprobs"][0] is None
    assert all(isinstance(v, float) and v <= 0 for v in lp["token_logprobs"][1:])
    parts = [e["choices"][0] for e in tiny.stream("/v1/completions", body)]
    for key in lp:
        assert [x for p in parts for x in p["logprobs"][key]] == lp[key], key
    assert "".join(p["text"] for p in parts) == choice["text"]
    prompt = tiny.complete(ids, max_tokens=1, prompt_logprobs=3)["prompt_logprobs"]
    assert prompt[0] is None and len(prompt) == 150
    for i in range(1, 150):
        assert prompt[i][str(ids[i])]["logprob"] == lp["token_logprobs"][i]
        ranks = sorted(e["rank"] for e in prompt[i].values())
        assert ranks[:3] == [1, 2, 3] and len(prompt[i]) <= 4
    tiny.refused("/v1/completions", {"prompt": ids, "max_tokens": 0}, param="max_tokens")
    tiny.refused(
        "/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}], "max_tokens": 0}, param="max_tokens"
    )


def test_echo_scores_in_front_of_an_answer(tiny):
    ids = [random.Random(6).randrange(3, 259) for _ in range(80)]
    body = {"prompt": ids, "max_tokens": 10, "echo": True, "logprobs": 2, "temperature": 0, "ignore_eos": True, "n": 2}
    whole = tiny.ok("/v1/completions", body)["choices"]
    without = tiny.complete(ids, max_tokens=10, logprobs=2, temperature=0, ignore_eos=True)["logprobs"]
    parts = [e["choices"][0] for e in tiny.stream("/v1/completions", body)]
    for i in (0, 1):
        lp = whole[i]["logprobs"]
        assert lp["tokens"][80:] == without["tokens"] and lp["token_logprobs"][80:] == without["token_logprobs"]
        for key in lp:
            assert [x for p in parts if p["index"] == i for x in p["logprobs"][key]] == lp[key], key


def test_scores_have_a_budget(tiny):
    e = tiny.refused(
        "/v1/completions",
        {"prompt": [["a"] and [5] * 3000] * 128, "max_tokens": 1, "prompt_logprobs": 20},
        param="prompt_logprobs",
    )
    assert "too many" in e["message"]
    assert "rank" in json.dumps(
        tiny.ok("/v1/completions", {"prompt": [5] * 3000, "max_tokens": 1, "prompt_logprobs": 20})["choices"][0][
            "prompt_logprobs"
        ][-1]
    )


def test_chat_prompt_logprobs_and_ids(tiny):
    answer = tiny.chat("abc", max_tokens=3, prompt_logprobs=1, return_token_ids=True, temperature=0)
    assert len(answer["prompt_logprobs"]) == answer["usage"]["prompt_tokens"] == len(answer["prompt_token_ids"])
    out = tiny.stream(
        "/v1/chat/completions",
        {
            "messages": [{"role": "user", "content": "abc"}],
            "max_tokens": 3,
            "return_token_ids": True,
            "temperature": 0,
            "n": 2,
        },
    )
    assert [e["prompt_token_ids"] for e in out if "prompt_token_ids" in e] == [answer["prompt_token_ids"]]
    for i in (0, 1):
        ids = [t for e in out for c in e["choices"] if c["index"] == i for t in c["token_ids"]]
        assert ids == answer["choices"][0]["token_ids"]


# ---- sampling ----


def test_greedy_is_greedy(tiny):
    choice = tiny.complete(TEXT, max_tokens=20, temperature=0, logprobs=1, ignore_eos=True)["logprobs"]
    for value, top in zip(choice["token_logprobs"], choice["top_logprobs"]):
        assert value == max(top.values())


def test_seeds_reproduce_under_concurrency(tiny):
    def ask(i, **more):
        return tiny.complete(
            f"{TEXT} {i % 7}", max_tokens=24, temperature=1.0, seed=i, top_p=0.95, logprobs=0, ignore_eos=True, **more
        )

    alone = [json.dumps(ask(i)) for i in range(24)]
    together = at_once(24, lambda i: json.dumps(ask(i)))
    assert alone == together
    assert len(set(alone)) > 20


def test_choices_differ_and_reproduce(tiny):
    body = {"prompt": TEXT, "max_tokens": 16, "n": 5, "seed": 7, "temperature": 1, "ignore_eos": True}
    first, second = (tiny.ok("/v1/completions", body)["choices"] for _ in range(2))
    assert [c["text"] for c in first] == [c["text"] for c in second] and len({c["text"] for c in first}) == 5


def test_same_seed_alone_and_mixed_with_others_on_the_real_model(smollm2):
    def ask(i):
        return smollm2.chat("List three colours", max_tokens=48, temperature=0, logprobs=True)

    def other(i):
        return smollm2.complete("word " * (10 + 37 * i), max_tokens=20 + i, seed=i)

    alone = json.dumps(ask(0)["choices"])
    for n in (1, 3, 7):
        answers = at_once(n + 1, lambda i: ask(i) if i == 0 else other(i))
        assert json.dumps(answers[0]["choices"]) == alone


def test_bias_forces_and_bans(tiny):
    ids = tiny.complete(TEXT, max_tokens=5, temperature=0, logit_bias={"70": 100}, return_token_ids=True)["token_ids"]
    assert ids == [70] * 5
    free = tiny.complete(TEXT, max_tokens=1, temperature=0, return_token_ids=True)["token_ids"][0]
    banned = tiny.complete(TEXT, max_tokens=20, temperature=0, logit_bias={str(free): -100}, return_token_ids=True)[
        "token_ids"
    ]
    assert free not in banned


def test_min_tokens_and_eos(tiny):
    eos = {"2": 100}
    assert tiny.complete(TEXT, max_tokens=8, temperature=0, logit_bias=eos)["finish_reason"] == "stop"
    choice = tiny.complete(TEXT, max_tokens=8, min_tokens=5, temperature=0, logit_bias=eos, return_token_ids=True)
    assert len(choice["token_ids"]) == 6 and choice["token_ids"][5] == 2 and 2 not in choice["token_ids"][:5]
    choice = tiny.complete(TEXT, max_tokens=8, temperature=0, logit_bias=eos, ignore_eos=True, return_token_ids=True)
    assert choice["token_ids"] == [2] * 8 and choice["finish_reason"] == "length" and choice["text"] == ""
    assert (
        tiny.complete(TEXT, max_tokens=2, temperature=0, logit_bias=eos, ignore_eos=True, skip_special_tokens=False)[
            "text"
        ]
        == "<|im_end|>" * 2
    )


def test_penalties_have_an_effect(tiny):
    plain = tiny.complete("a", max_tokens=40, temperature=0, ignore_eos=True, return_token_ids=True)["token_ids"]
    for field, value in (("presence_penalty", 2), ("frequency_penalty", 2), ("repetition_penalty", 10)):
        changed = tiny.complete(
            "a", max_tokens=40, temperature=0, ignore_eos=True, return_token_ids=True, **{field: value}
        )["token_ids"]
        assert len(set(changed)) > len(set(plain)), field


def test_top_k_and_top_p_restrict(tiny):
    for fields in ({"top_k": 1}, {"top_p": 1e-6}, {"min_p": 1}):
        a = tiny.complete(TEXT, max_tokens=12, temperature=2, seed=1, ignore_eos=True, **fields)
        b = tiny.complete(TEXT, max_tokens=12, temperature=0, ignore_eos=True)
        assert a["text"] == b["text"], fields


def test_fingerprint_and_model_length(tiny):
    model = tiny.get("/v1/models").json()["data"][0]
    assert model["max_model_len"] == 4096
    prints = {
        tiny.ok(p, b)["system_fingerprint"]
        for p, b in (
            ("/v1/completions", {"prompt": "x", "max_tokens": 1}),
            ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}], "max_tokens": 1}),
        )
    }
    assert len(prints) == 1 and len(prints.pop()) >= 16


def test_finite_numbers_only(tiny):
    """Whatever is sampled, JSON has no NaN and no infinity."""

    def refuse(token):
        raise AssertionError(token)

    for seed in range(3):
        answer = tiny.post(
            "/v1/completions",
            {
                "prompt": TEXT,
                "max_tokens": 30,
                "temperature": 2,
                "seed": seed,
                "logprobs": 20,
                "echo": True,
                "logit_bias": {str(i): -100 for i in range(100)},
            },
        )
        lp = json.loads(answer.body, parse_constant=refuse)["choices"][0]["logprobs"]
        assert all(math.isfinite(v) for v in lp["token_logprobs"][1:])
