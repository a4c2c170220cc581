"""--tokenizer: a tokenizer.json instead of the model file's own tokenizer."""

import json
from pathlib import Path

import pytest
from gguf import GGUFReader

from conftest import default_model_path
from harness import Server, run
from hf_folder import tokenizer_json

KINDS = Path(__file__).parent.parent / "data" / "tokenizer" / "kinds"
KV = ("--kv-cache-memory-bytes", "64Mi", "--max-model-len", "512")
TEXTS = ["Hello, world!", "  1234 cafés — naïve\n\n\tfoo_bar(42)", "数据 🦊👩‍👩‍👧", "<|im_start|>user\nhi<|im_end|>\n", ""]


@pytest.fixture(scope="module")
def folder(tmp_path_factory, default_model):
    """The default model's tokenizer as Hugging Face would store it."""
    data = tokenizer_json(GGUFReader(default_model_path()), [{"type": "Digits", "individual_digits": True}])
    path = tmp_path_factory.mktemp("tokenizer")
    (path / "tokenizer.json").write_text(json.dumps(data))
    (path / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<|im_start|>", "eos_token": "<|im_end|>"}))
    return path


def test_same_ids_and_answer(folder, smollm2):
    with Server("smollm2", *KV, "--tokenizer", folder, timeout=120) as server:
        for text in TEXTS:
            ids = [s.post("/tokenize", {"prompt": text}).json()["tokens"] for s in (server, smollm2)]
            assert ids[0] == ids[1], text
        body = {"messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 12, "temperature": 0}
        answers = [s.post("/v1/chat/completions", {"model": s.get("/v1/models").json()["data"][0]["id"], **body}).json()
                   for s in (server, smollm2)]
        assert answers[0]["choices"] == answers[1]["choices"]


def test_what_is_refused(folder, tiny_model, tmp_path):
    (tmp_path / "broken.json").write_text("{")
    for path, model, says in ((tmp_path / "none", "smollm2", "none"), (tmp_path, "smollm2", "tokenizer.json"),
                              (tmp_path / "broken.json", "smollm2", "broken.json"), (folder, tiny_model, "token_embd.weight")):
        done = run("serve", model, *KV, "--port", "0", "--tokenizer", path)
        assert done.returncode in (1, 2) and says in done.stderr and "--tokenizer" in done.stderr, done.stderr


@pytest.mark.parametrize("kind", ("llama2.json", "mistral.json", "gemma.json", "llama.model", "gemma.model"))
def test_text_comes_back(kind):
    """The space that SentencePiece puts in front of a text is not part of what it is decoded to."""
    texts = [" a", "a", "  blue  spaces \n", "<s>a", "caf\u00e9 \U0001f98a", ""]
    with Server("smollm2", *KV, "--tokenizer", KINDS / kind, timeout=120) as server:
        for text in texts:
            ids = server.post("/tokenize", {"prompt": text, "add_special_tokens": False}).json()["tokens"]
            back = server.post("/detokenize", {"tokens": ids, "skip_special_tokens": False}).json()["prompt"]
            spaced = kind.startswith("llama") and text == "<s>a"  # a space is put in front of each stretch
            eaten = kind == "mistral.json" and text[:1] == " "  # none is put in front of one that is there
            assert back == ("<s> a" if spaced else text[1:] if eaten else text), (text, ids)
