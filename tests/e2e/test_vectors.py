"""/v1/embeddings, /v1/rerank and /v1/score with the `openai` client and raw, on tiny encoders whose ids come from
Hugging Face's tokenizers and whose numbers come from numpy; and on a decoder."""

import base64
import json
import math
import os

import numpy as np
import openai
import pytest
from encoders import CONTEXT, WIDTH, encoder_file
from harness import ROOT, Server, at_once, run

TEXTS = ["the cat sat on the mat", "Dogs!", "", "the sky is blue, the cat is red", "zzz 99 é 中 x", "a " * 100]
DOCUMENTS = ["the sky is blue", "a red cat", "the dog sat on the mat", "blue skies", "1-2-3"]


@pytest.fixture(scope="module")
def bert():
    encoder, path = encoder_file("bert")
    with Server(path, "--dtype", "float32", "--served-model-name", "bert") as server:
        yield encoder, server
        server.wait_idle()


@pytest.fixture(scope="module", params=["cross", "xlmr"])
def cross(request):
    encoder, path = encoder_file(request.param)
    with Server(path, "--dtype", "float32") as server:
        yield encoder, server
        server.wait_idle()


def client(server):
    return openai.OpenAI(base_url=server.url + "/v1", api_key="unused", max_retries=0)


def floats(item):
    v = item["embedding"]
    return np.array(v, "<f4") if isinstance(v, list) else np.frombuffer(base64.b64decode(v), "<f4")


def embed(server, input, **more):
    return [floats(d) for d in server.ok("/v1/embeddings", {"input": input, **more})["data"]]


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


# ---- embeddings ----


def test_openai_client(bert):
    encoder, server = bert
    answer = client(server).embeddings.create(model="bert", input=TEXTS)  # it asks for base64
    ids = [encoder.ids(t) for t in TEXTS]
    assert [d.index for d in answer.data] == list(range(len(TEXTS))) and answer.object == "list"
    for d, i in zip(answer.data, ids):
        assert d.object == "embedding" and len(d.embedding) == WIDTH
        assert np.abs(d.embedding - encoder.vector(i)).max() < 1e-5
    assert answer.model == "bert"
    assert answer.usage.prompt_tokens == answer.usage.total_tokens == sum(map(len, ids))
    plain = client(server).embeddings.create(model="bert", input=TEXTS[0], encoding_format="float")
    assert plain.data[0].embedding == pytest.approx(answer.data[0].embedding, abs=1e-7)
    with pytest.raises(openai.NotFoundError):
        client(server).embeddings.create(model="other", input="x")


def test_kinds_of_input(bert):
    encoder, server = bert
    ids = [encoder.ids(t) for t in TEXTS]
    texts = embed(server, TEXTS)
    for same in (embed(server, ids), [embed(server, i)[0] for i in ids], [embed(server, t)[0] for t in TEXTS]):
        assert all((a == b).all() for a, b in zip(texts, same, strict=True))
    assert all((a == b).all() for a, b in zip(texts, embed(server, TEXTS, encoding_format="base64")))
    bare = embed(server, TEXTS[0], add_special_tokens=False)[0]
    assert np.abs(bare - encoder.vector(ids[0][1:-1])).max() < 1e-5
    raw = embed(server, TEXTS[0], normalize=False)[0]
    assert np.abs(raw - encoder.forward(ids[0]).mean(0)).max() < 1e-5
    assert (embed(server, TEXTS[0], use_activation=False)[0] == raw).all()


def test_truncation(bert):
    encoder, server = bert
    long = "the cat " * 100
    assert np.abs(embed(server, long, truncate_prompt_tokens=-1)[0] - encoder.vector(encoder.ids(long, CONTEXT))).max() < 1e-5
    assert np.abs(embed(server, TEXTS[0], truncate_prompt_tokens=5)[0] - encoder.vector(encoder.ids(TEXTS[0], 5))).max() < 1e-5
    ids = encoder.ids(TEXTS[0])
    assert np.abs(embed(server, ids, truncate_prompt_tokens=3)[0] - encoder.vector(ids[:3])).max() < 1e-5
    e = server.refused("/v1/embeddings", {"input": ["x", long]}, param="input", says="input[1] has 202 tokens")
    assert e["code"] == "context_length_exceeded" and f"at most {CONTEXT}" in e["message"]
    server.refused("/v1/embeddings", {"input": "x y", "truncate_prompt_tokens": 2}, param="truncate_prompt_tokens")
    for bad in (0, -2, CONTEXT + 1, 1.5, "5"):
        server.refused("/v1/embeddings", {"input": "x", "truncate_prompt_tokens": bad}, param="truncate_prompt_tokens")


def test_dimensions(bert):
    _, server = bert
    whole = embed(server, "x")[0]
    assert (embed(server, "x", dimensions=WIDTH)[0] == whole).all()
    server.refused("/v1/embeddings", {"input": "x", "dimensions": 8}, param="dimensions", says="--matryoshka")
    server.refused("/v1/embeddings", {"input": "x", "dimensions": WIDTH + 1}, param="dimensions", says=str(WIDTH))
    server.refused("/v1/embeddings", {"input": "x", "dimensions": 0}, param="dimensions")
    with Server(encoder_file("bert")[1], "--dtype", "float32", "--matryoshka") as more:
        part = embed(more, "x", dimensions=8)[0]
        assert np.abs(part - whole[:8] / np.linalg.norm(whole[:8])).max() < 1e-6


def test_the_same_bits_in_any_company(bert):
    """Law 1 over HTTP, also between servers of different limits."""
    encoder, server = bert
    texts = [" ".join(["the", "cat", "sky", "is"][i % 4] for i in range(n)) for n in range(1, 120)]
    body = {"input": texts, "encoding_format": "base64"}
    together = [d["embedding"] for d in server.ok("/v1/embeddings", body)["data"]]
    alone = at_once(len(texts), lambda i: server.ok("/v1/embeddings", {**body, "input": texts[i]})["data"][0]["embedding"])
    assert alone == together
    limits = ("--max-num-seqs", "3", "--max-num-batched-tokens", "150", "--threads", "3", "--kv-cache-memory-bytes", "64Ki")
    with Server(encoder_file("bert")[1], "--dtype", "float32", *limits) as other:
        assert [d["embedding"] for d in other.ok("/v1/embeddings", body)["data"]] == together


@pytest.mark.parametrize(
    "field, value",
    [
        ("input", None),
        ("input", []),
        ("input", {}),
        ("input", [[]]),
        ("input", ["a", 1]),
        ("input", [1 << 20]),
        ("input", ["x"] * 1025),
        ("encoding_format", "int8"),
        ("encoding_format", 1),
        ("normalize", "yes"),
        ("user", 1),
    ],
)
def test_wrong_fields(bert, field, value):
    _, server = bert
    server.refused("/v1/embeddings", {"input": "x", field: value}, param=field)


def test_unknown_fields(bert):
    _, server = bert
    server.refused("/v1/embeddings", {"input": "x", "temperature": 1}, param="temperature", says="unknown field")
    server.refused("/v1/embeddings", {"inputs": "x"}, says='did you mean "input"')


def test_contradictions(bert):
    _, server = bert
    both = {"input": "x", "normalize": False, "use_activation": True}
    server.refused("/v1/embeddings", both, param="use_activation", says="normalize and use_activation")
    assert server.post("/v1/embeddings", {**both, "normalize": True}).status == 200


def test_more_than_is_read_of_a_text_to_cut(bert):
    _, server = bert
    long = {"input": "a b " * 530000}  # more than 2^20 tokens
    server.refused("/v1/embeddings", long, param="input", says="truncate_prompt_tokens: -1 cuts it")
    server.refused("/v1/embeddings", {**long, "truncate_prompt_tokens": -1}, param="input", says="send a shorter one")


# ---- pairs ----


def test_rerank(cross):
    encoder, server = cross
    query = "is the sky blue?"
    want = {i: encoder.score(query, d) for i, d in enumerate(DOCUMENTS)}
    answer = server.ok("/v1/rerank", {"query": query, "documents": DOCUMENTS})
    order = sorted(want, key=lambda i: -want[i][0])
    assert [r["index"] for r in answer["results"]] == order
    for r in answer["results"]:
        assert r["relevance_score"] == pytest.approx(sigmoid(want[r["index"]][0]), abs=1e-5)
        assert r["document"] == {"text": DOCUMENTS[r["index"]]}
    assert answer["usage"]["prompt_tokens"] == answer["usage"]["total_tokens"] == sum(n for _, n in want.values())
    for path in ("/rerank", "/v2/rerank"):
        assert server.ok(path, {"query": query, "documents": DOCUMENTS})["results"] == answer["results"]
    objects = [{"text": d} for d in DOCUMENTS]
    some = server.ok("/v1/rerank", {"query": query, "documents": objects, "top_n": 2, "return_documents": False})
    assert [r["index"] for r in some["results"]] == order[:2] and set(some["results"][0]) == {"index", "relevance_score"}
    raw = server.ok("/v1/rerank", {"query": query, "documents": DOCUMENTS[:1], "use_activation": False})
    assert raw["results"][0]["relevance_score"] == pytest.approx(want[0][0], abs=1e-5)


def test_pairs_are_cut_as_the_reference_does(cross):
    encoder, server = cross
    for first, second in (("the cat " * 90, "a dog"), ("a dog", "the cat " * 90), ("red " * 70, "blue " * 80), ("a b", "c d")):
        for most in (8, 9, 20, 31, CONTEXT):
            want, n = encoder.score(first, second, most)
            answer = server.ok("/score", {"text_1": first, "text_2": second, "truncate_prompt_tokens": most})
            assert answer["usage"]["prompt_tokens"] == n
            assert answer["data"][0]["score"] == pytest.approx(sigmoid(want), abs=1e-5)
    server.refused("/v1/rerank", {"query": "x", "documents": ["a", "b " * 200]}, param="documents", says="documents[1]")
    server.refused("/score", {"text_1": "x", "text_2": "y", "truncate_prompt_tokens": 3}, param="truncate_prompt_tokens")


def test_score(cross):
    encoder, server = cross
    one = server.ok("/v1/score", {"text_1": "the sky", "text_2": DOCUMENTS})["data"]
    assert [d["index"] for d in one] == list(range(len(DOCUMENTS))) and one[0]["object"] == "score"
    for d, text in zip(one, DOCUMENTS):
        assert d["score"] == pytest.approx(sigmoid(encoder.score("the sky", text)[0]), abs=1e-5)
    each = server.ok("/v1/score", {"text_1": DOCUMENTS[::-1], "text_2": DOCUMENTS})["data"]
    for d, a, b in zip(each, DOCUMENTS[::-1], DOCUMENTS):
        assert d["score"] == pytest.approx(sigmoid(encoder.score(a, b)[0]), abs=1e-5)
    server.refused("/v1/score", {"text_1": ["a", "b"], "text_2": DOCUMENTS}, param="text_1", says="as many")


def test_wrong_pairs(cross):
    _, server = cross
    server.refused("/v1/rerank", {"documents": ["x"]}, param="query", says="missing")
    server.refused("/v1/rerank", {"query": "x"}, param="documents", says="missing")
    server.refused("/v1/rerank", {"query": ["x"], "documents": ["x"]}, param="query")
    server.refused("/v1/rerank", {"query": "x", "documents": "x"}, param="documents")
    server.refused("/v1/rerank", {"query": "x", "documents": []}, param="documents")
    server.refused("/v1/rerank", {"query": "x", "documents": [{"image": "y"}]}, param="documents", says="documents[0]")
    server.refused("/v1/rerank", {"query": "x", "documents": ["y"], "top_n": -1}, param="top_n")
    server.refused("/v1/score", {"text_2": "x"}, param="text_1", says="missing")
    server.refused("/v1/embeddings", {"input": "x"}, says="--pooling-type cls")
    server.refused("/v1/completions", {"prompt": "x"}, says="/v1/rerank")


def test_embeddings_as_pairs(bert):
    """A model that makes vectors ranks by their cosine."""
    encoder, server = bert
    vectors = [encoder.vector(encoder.ids(t)) for t in ("the sky", *DOCUMENTS)]
    cosines = [float(vectors[0] @ v) for v in vectors[1:]]
    scores = server.ok("/v1/score", {"text_1": "the sky", "text_2": DOCUMENTS})
    assert [d["score"] for d in scores["data"]] == pytest.approx(cosines, abs=1e-5)
    assert scores["usage"]["prompt_tokens"] == sum(len(encoder.ids(t)) for t in ("the sky", *DOCUMENTS))
    ranked = server.ok("/rerank", {"query": "the sky", "documents": DOCUMENTS})["results"]
    assert [r["index"] for r in ranked] == sorted(range(len(DOCUMENTS)), key=lambda i: -cosines[i])


# ---- what a model is opened for ----


def test_encoders_do_not_generate(bert):
    _, server = bert
    server.refused("/v1/completions", {"prompt": "x"}, says="encoder")
    server.refused("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]}, says="/v1/embeddings")
    assert server.ok("/tokenize", {"prompt": "the cat"})["count"] == 4
    assert server.get("/v1/models").json()["data"][0]["max_model_len"] == CONTEXT
    path = encoder_file("bert")[1]
    for args in (("serve", path, "--runner", "generate"), ("run", path, "x")):
        r = run(*args)
        assert r.returncode and "encoder" in r.stderr, r
    r = run("serve", path, "--port", "0", "--pooling-type", "rank")
    assert r.returncode and "pooling-type" in r.stderr


def test_generating_servers_make_no_vectors(tiny):
    tiny.refused("/v1/embeddings", {"input": "x"}, says="--runner pooling")
    tiny.refused("/v1/rerank", {"query": "x", "documents": ["y"]}, says="--runner pooling")


def test_decoders_make_vectors(tiny_model):
    with Server(tiny_model, "--task", "embed", "--kv-cache-memory-bytes", "8Mi") as server:
        text = "Once upon a time " * 20
        first = embed(server, text)[0]
        again = server.ok("/v1/embeddings", {"input": text})
        assert (floats(again["data"][0]) == first).all() and abs(np.linalg.norm(first) - 1) < 1e-5
        assert again["usage"]["prompt_tokens_details"]["cached_tokens"] > 0  # and still the same bits
        server.refused("/v1/completions", {"prompt": "x"}, says="--runner generate")
        server.wait_idle()
    with Server(tiny_model, "--runner", "pooling", "--pooling-type", "mean", "--kv-cache-memory-bytes", "8Mi") as server:
        mean = embed(server, text)[0]
        assert (embed(server, text)[0] == mean).all() and not (mean == first).all()
    r = run("serve", tiny_model, "--port", "0", "--runner", "generate", "--task", "embed")
    assert r.returncode and "contradict" in r.stderr


def test_cancelled(bert):
    """A client that leaves: nothing stays behind."""
    _, server = bert
    connection = server.connect()
    body = json.dumps({"input": ["the cat " * 50] * 1000}).encode()
    connection.sendall(b"POST /v1/embeddings HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                       b"Content-Length: %d\r\n\r\n" % len(body) + body)
    server.wait_metric("vllm:num_requests_waiting", lambda v: v > 0)
    connection.close()
    server.wait_idle()
    assert len(embed(server, ["x"])) == 1


def test_figures(bert):
    encoder, server = bert
    before = server.metrics()
    embed(server, TEXTS)
    after = server.metrics()
    n = sum(len(encoder.ids(t)) for t in TEXTS)
    assert after["vllm:prompt_tokens_total"] - before["vllm:prompt_tokens_total"] == n
    assert after[("vllm:request_success_total", "stop")] - before[("vllm:request_success_total", "stop")] == len(TEXTS)
    assert after["vllm:generation_tokens_total"] == before["vllm:generation_tokens_total"]


def test_minilm():
    """The real model, as sentence-transformers gives it (tests/golden/encoder_minilm.py)."""
    path = os.environ.get("QUIRE_TEST_MINILM")
    if not path:
        pytest.skip("no model: QUIRE_TEST_MINILM=FOLDER, or FILE, made from it by tests/golden/encoder_gguf.py")
    golden = json.loads((ROOT / "tests/data/model/minilm.json").read_text())
    for dtype, most in (("float32", 1e-5), ("bfloat16", 2e-2)):
        with Server(path, "--dtype", dtype, "--max-model-len", "512") as server:
            got = embed(server, golden["texts"], truncate_prompt_tokens=-1)
            assert np.abs(np.array(got) - np.array(golden["vectors"])).max() < most


def test_inspect():
    for kind, pooling in (("bert", "mean"), ("cross", "rank")):
        said = json.loads(run("inspect", encoder_file(kind)[1], "--json").stdout)
        assert said["encoder"] is True and said["pooling"] == pooling and said["rope"] is None
        assert said["cannot_be_served"] == [] and said["whole"]
        text = run("inspect", encoder_file(kind)[1]).stdout
        assert f"{pooling}, of an encoder" in text and "can be served" in text
