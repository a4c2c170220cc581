"""--tokenizer: a tokenizer.json instead of the model file's own tokenizer."""

import json

import pytest
from gguf import GGUFReader

from conftest import default_model_path
from harness import Server, run
from hf_folder import tokenizer_json

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
        done = run("serve", model, *KV, "--tokenizer", path)
        assert done.returncode in (1, 2) and says in done.stderr and "--tokenizer" in done.stderr, done.stderr
