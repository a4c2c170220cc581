"""Models in folders of Hugging Face: the same answers as from GGUF, generation_config.json, and what is refused."""

import json

import gguf
import pytest

import hf_folder
from conftest import ROOT, make_model
from harness import Server, run

KV = ("--kv-cache-memory-bytes", "8Mi", "--max-model-len", "256", "--dtype", "float32")
PROMPTS = ["The sky is", "a", "    once upon a time there was", "0123456789"]


@pytest.fixture(scope="module")
def source():
    return make_model("--type", "F32", "--layers", "2", "--width", "64", "--ff", "96", "--head-dim", "16", "--pre", "gpt-2")


@pytest.fixture(scope="module")
def folder(source, tmp_path_factory):
    return hf_folder.write(tmp_path_factory.mktemp("folder"), source)


@pytest.fixture(scope="module")
def servers(source, folder):
    with Server(source, *KV) as of_file, Server(folder, *KV) as of_folder:
        yield of_file, of_folder


def greedy(server, prompt, **fields):
    body = {"prompt": prompt, "temperature": 0, "max_tokens": 24, "return_token_ids": True}
    return server.ok("/v1/completions", body | fields)


def test_answers_as_the_gguf_file(servers):
    of_file, of_folder = servers
    for prompt in PROMPTS:
        tokens = [s.post("/tokenize", {"prompt": prompt}).json()["tokens"] for s in servers]
        assert tokens[0] == tokens[1]
        a, b = (greedy(s, prompt, logprobs=2)["choices"][0] for s in servers)
        assert a["token_ids"] == b["token_ids"] and a["text"] == b["text"]
        for x, y in zip(a["logprobs"]["token_logprobs"], b["logprobs"]["token_logprobs"]):
            assert abs(x - y) < 1e-4
    a, b = (s.chat("hello", temperature=0, max_tokens=8) for s in servers)
    assert a["choices"] == b["choices"] and a["usage"] == b["usage"]
    assert a["system_fingerprint"] != b["system_fingerprint"]  # rotation adds in another order


def test_several_files_and_other_weights(source, servers, tmp_path):
    split = hf_folder.write(tmp_path / "split", source, n_files=3)
    with Server(split, *KV) as server:
        assert greedy(server, PROMPTS[0])["choices"] == greedy(servers[1], PROMPTS[0])["choices"]
    one = hf_folder.write(tmp_path / "one", source)
    data = bytearray((one / "model.safetensors").read_bytes())
    data[-2] ^= 1
    (one / "model.safetensors").write_bytes(data)
    with Server(one, *KV) as server:
        assert greedy(server, "a")["system_fingerprint"] != greedy(servers[1], "a")["system_fingerprint"]


def test_generation_config(source, servers, tmp_path):
    ended = greedy(servers[1], PROMPTS[0])["choices"][0]["token_ids"]
    unused = next(i for i in range(300, 600) if i not in ended)
    generation = {"temperature": 0, "top_k": 5, "max_new_tokens": 6, "eos_token_id": [2, unused], "do_sample": True}
    path = hf_folder.write(tmp_path, source, generation_config_json=generation)
    with Server(path, *KV) as server:
        assert "temperature 0, top_k 5, at most 6 tokens" in server.stderr()
        plain = server.ok("/v1/completions", {"prompt": PROMPTS[0], "return_token_ids": True})["choices"][0]
        assert plain["token_ids"] == ended[:6] and plain["finish_reason"] == "length"
        assert greedy(server, PROMPTS[0], max_tokens=24)["choices"][0]["token_ids"] == ended[:6]  # its limit is everyone's
    path = hf_folder.write(tmp_path, source, generation_config_json={"eos_token_id": [2, ended[1], 10**6]})
    with Server(path, *KV) as server:
        assert "eos_token_id 1000000 is no token of this model" in server.stderr()
        stopped = greedy(server, PROMPTS[0])["choices"][0]
        assert stopped["finish_reason"] == "stop" and len(stopped["token_ids"]) <= 2
    with Server(path, *KV, "--generation-config", "vllm") as server:
        assert greedy(server, PROMPTS[0])["choices"][0]["token_ids"] == ended


def test_templates_and_notices(source, tmp_path):
    config = hf_folder.config(gguf.GGUFReader(source)) | {"auto_map": {"AutoModel": "evil.py"}}
    (tmp_path / "evil.py").write_text("raise SystemExit('run')")
    path = hf_folder.write(tmp_path, source, config_json=config, chat_template_json={"chat_template": "json"},
                           chat_template_jinja="{{ messages[0].content }} jinja")
    with Server(path, *KV) as server:
        assert "auto_map is ignored" in server.stderr()
        assert server.chat("hello", max_tokens=1)["usage"]["prompt_tokens"] == len(
            server.post("/tokenize", {"prompt": "hello jinja"}).json()["tokens"])
    named = {"chat_template": [{"name": "tool_use", "template": "x"}, {"name": "default", "template": "the default"}]}
    path = hf_folder.write(tmp_path, source, chat_template_jinja=None, chat_template_json=None, tokenizer_config_json=named,
                           special_tokens_map_json={"eos_token": {"content": "<|im_end|>"}})
    with Server(path, *KV) as server:
        assert server.chat("hello", max_tokens=1)["usage"]["prompt_tokens"] == len(
            server.post("/tokenize", {"prompt": "the default"}).json()["tokens"])


def test_sentencepiece(source, tmp_path):
    model = (ROOT / "tests/fuzz/corpus/fuzz_text_sentencepiece/bpe").read_bytes()
    model = model[1 + model[0] :]  # behind a text
    path = hf_folder.write(tmp_path, source, tokenizer_json=None, tokenizer_model=model, tokenizer_config_json=None)
    with Server(path, *KV) as server:
        tokens = server.post("/tokenize", {"prompt": "abc ab", "add_special_tokens": False}).json()["tokens"]
        assert server.post("/detokenize", {"tokens": tokens}).json()["prompt"].strip() == "abc ab"
    added = {"added_tokens_decoder": {"5000": {"content": "<turn>"}}}
    hf_folder.write(tmp_path, source, tokenizer_json=None, tokenizer_model=model, tokenizer_config_json=added)
    done = run("serve", path, *KV, "--port", "0")
    assert done.returncode in (1, 2) and "added_tokens_decoder has the token 5000" in done.stderr


def test_inspect(source, folder):
    of_file, of_folder = (json.loads(run("inspect", path, "--json").stdout) for path in (source, folder))
    for key in ("family", "tensors", "parameters", "shapes", "rope", "kv_bytes_per_token", "chat_template"):
        assert of_file[key] == of_folder[key], key
    assert of_folder["files"][0]["bytes"] == (folder / "model.safetensors").stat().st_size
    text = run("inspect", folder)
    assert text.returncode == 0 and "all numbers finite" in text.stdout and "can be served" in text.stdout


def test_what_is_refused(source, tmp_path):
    reader = gguf.GGUFReader(source)
    config = hf_folder.config(reader)
    cases = [
        (dict(config_json="{"), ["config.json", "line 1"]),
        (dict(config_json=config | {"alien": 3}), ["config.json: alien: not known"]),
        (dict(config_json=config | {"hidden_size": 32}), ["tensor model.", "shape 64"]),
        (dict(config_json=config | {"num_key_value_heads": 3}), ["config.json: num_key_value_heads = 3: must be a divisor"]),
        (dict(config_json=config | {"num_hidden_layers": 3}),
         ["tensor model.layers.2.self_attn.q_proj.weight is missing"]),
        (dict(tokenizer_json=None), ["there is no tokenizer: none of tokenizer.json, tokenizer.model, vocab.txt"]),
        (dict(tokenizer_json="[]"), ["tokenizer.json"]),
        (dict(tokenizer_json="\ufeff{}"), ["tokenizer.json begins with a byte order mark"]),
        (dict(config_json="\ufeff{}"), ["config.json: it begins with a byte order mark"]),
        (dict(config_json=None), ["no config.json", "model.safetensors"]),
        *[(dict(config_json={k: v for k, v in config.items() if k != key}), [f"config.json: {key} is missing"])
          for key in ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")],
        *[(dict(config_json=config | keys), ["config.json: " + says]) for keys, says in (
            ({"num_key_value_heads": 3}, "num_key_value_heads = 3: must be a divisor of num_attention_heads"),
            ({"intermediate_size": 10**9}, "intermediate_size = 1000000000: an integer from 1 to 1048576 is allowed"),
            ({"vocab_size": "x"}, 'vocab_size = "x": must be an integer'),
            ({"quantization_config": "x"}, 'quantization_config = "x": must be an object with quant_method'),
            ({"quantization_config": {}}, "quantization_config.quant_method = (nothing): only fp8"),
            ({"rope_scaling": {"rope_type": "linear", "factor": 0}}, "rope_scaling.factor = 0: must be a number of more than 0"),
            ({"rope_scaling": {"rope_type": "linear", "factor": "4"}}, 'rope_scaling.factor = "4": must be a number'),
            ({"rope_scaling": {"rope_type": "linear"}}, "rope_scaling.factor is missing, which rope_type"),
            ({"rope_parameters": {"rope_type": "yarn", "factor": 2, "beta_fast": -1}}, "rope_parameters.beta_fast = -1"),
            ({"rope_scaling": {"rope_type": "linear", "factor": 1e-5}}, "max_position_embeddings = "))],
        (dict(tokenizer_config_json={"eos_token": "<none>"}), ["eos_token", "<none>"]),
        (dict(generation_config_json={"temperature": -1}), ["generation_config.json: temperature must be a number from 0"]),
        (dict(generation_config_json={"eos_token_id": [2, "x"]}), ["generation_config.json: eos_token_id"]),
        (dict(chat_template_json={"chat_template": 7}), ["chat_template.json: chat_template must be a string"]),
    ]
    for i, (files, says) in enumerate(cases):
        path = hf_folder.write(tmp_path / str(i), source, **files)
        done = run("serve", path, *KV, "--port", "0")
        assert done.returncode in (1, 2), (files, done.stderr)
        line = [s for s in done.stderr.splitlines() if s.startswith("quire serve: ")]
        assert len(line) == 1 and all(s in line[0] for s in says), (files, done.stderr)
        assert str(path) in line[0], line
    for value, shown in ((5, "5"), ({"b": 1}, '{"b":1}'), ("../x.safetensors", '"../x.safetensors"')):
        path = hf_folder.write(tmp_path / "index", source)
        (path / "model.safetensors").unlink()
        (path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": value}}))
        says = f'model.safetensors.index.json: weight_map: the file of tensor "a" is {shown}; it must be'
        assert says in run("serve", path, *KV, "--port", "0").stderr
    path = hf_folder.write(tmp_path / "whole", source)
    done = run("serve", path, *KV, "--port", "0", "--tokenizer-pre", "gpt-2")
    assert done.returncode == 2 and "--tokenizer-pre is for GGUF files" in done.stderr
