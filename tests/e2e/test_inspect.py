"""`quire inspect`: what it says of model files is what the gguf package says, and damage is named."""

import functools
import hashlib
import json
import re
import struct

import gguf
import numpy as np
import pytest
from conftest import default_model_path, load_maker, make_model
from harness import run
from test_cli import fails


def inspect(path, *args, code=0):
    done = run("inspect", path, *args)
    assert done.returncode == code and "Sanitizer" not in done.stderr, (done.returncode, done.stderr)
    if code == 0:
        assert not done.stderr
    else:
        assert len(done.stderr.splitlines()) == 1 and done.stderr.startswith("quire inspect: "), done.stderr
    return done


def inspect_json(path, *args, code=0):
    return json.loads(inspect(path, "--json", *args, code=code).stdout)


def field(reader, key):
    return reader.fields[key].contents()


def class_of(name):
    if "norm" in name:
        return "norms"
    layer = re.match(r"blk\.\d+\.(attn|ffn)_", name)
    if layer:
        return {"attn": "attention", "ffn": "ffn"}[layer[1]]
    return {"token_embd.weight": "embedding", "output.weight": "output"}[name]


def check_against_package(path, said):
    reader = gguf.GGUFReader(path)
    layers, kv_heads = field(reader, "llama.block_count"), field(reader, "llama.attention.head_count_kv")
    head = field(reader, "llama.embedding_length") // field(reader, "llama.attention.head_count")
    if "llama.attention.key_length" in reader.fields:
        head = field(reader, "llama.attention.key_length")
    assert (said["format"], said["family"], said["name"]) == (1, "llama", field(reader, "general.name"))
    assert said["file_bytes"] == path.stat().st_size == said["files"][0]["bytes"] and len(said["files"]) == 1
    assert said["tensors"] == len(reader.tensors)
    assert said["tensor_bytes"] == sum(int(t.n_bytes) for t in reader.tensors)
    assert said["parameters"] == said["active_parameters"] == sum(int(t.n_elements) for t in reader.tensors)
    assert said["shapes"] == {
        "layers": layers,
        "width": field(reader, "llama.embedding_length"),
        "heads": field(reader, "llama.attention.head_count"),
        "kv_heads": kv_heads,
        "head_size": head,
        "feed_forward": field(reader, "llama.feed_forward_length"),
        "vocabulary": len(field(reader, "tokenizer.ggml.tokens")),
        "experts": 0,
        "experts_used": 0,
        "expert_feed_forward": 0,
        "shared_feed_forward": 0,
    }
    assert said["context_length"] == field(reader, "llama.context_length")
    assert said["rope"]["base"] == field(reader, "llama.rope.freq_base")
    sums = {}
    for t in reader.tensors:
        row = sums.setdefault((class_of(t.name), t.tensor_type.name), [0, 0, 0])
        row[:] = [row[0] + 1, row[1] + int(t.n_elements), row[2] + int(t.n_bytes)]
    got = {(c["class"], c["type"]): [c["tensors"], c["parameters"], c["bytes"]] for c in said["classes"]}
    assert got == sums
    a_token = 2 * layers * kv_heads * head
    assert said["kv_bytes_per_token"] == {"bfloat16": 2 * a_token, "float16": 2 * a_token, "float32": 4 * a_token}
    assert said["kv_bytes_per_1000_tokens"]["float32"] == 4000 * a_token
    tokens = field(reader, "tokenizer.ggml.tokens")
    assert said["tokenizer"]["kind"] == "gpt2" and said["tokenizer"]["tokens"] == len(tokens)
    assert said["tokenizer"]["pre"] == field(reader, "tokenizer.ggml.pre")
    special = dict(said["tokenizer"]["special"])
    for name in ("bos", "eos", "unknown", "padding"):
        key = f"tokenizer.ggml.{name}_token_id"
        assert special.pop(name) == {"id": field(reader, key), "text": tokens[field(reader, key)]}
    assert not special
    template = field(reader, "tokenizer.chat_template").encode()
    assert said["chat_template"]["bytes"] == len(template)
    assert said["chat_template"]["sha256"] == hashlib.sha256(template).hexdigest()
    assert said["chat_template"]["renders"] and said["chat_template"]["probe_tokens"] > 10
    assert said["check"] == {"gap": None, "not_finite": []} and said["whole"] and said["cannot_be_served"] == []
    return reader


def test_the_default_model(default_model):
    said = inspect_json(default_model)
    check_against_package(default_model_path(), said)
    assert said["layer_windows"] == [0] * 30 and said["window_rope"] is None
    assert abs(said["loaded_bytes"] / said["tensor_bytes"] - 1) < 0.05
    text = inspect(default_model).stdout
    for line in (
        r"family +llama",
        r"parameters +134\.5 M",
        r"heads +9, 3 of keys and values, each 64 wide",
        r"KV, 16 bits +23040 bytes a token, 23\.0 MB for 1,000, 188\.7 MB for 8192",
        r"tokenizer +gpt2, pre-tokenizer smollm, 49152 tokens",
        r"chat template +\d+ bytes, SHA-256 " + said["chat_template"]["sha256"][:12] + r", renders \(\d+ tokens\)",
        r"embedding +Q8_0 +1 +28311552 +30081024 +8\.50",
        r"ffn +Q4_1 +90 +79626240 +49766400 +5\.00",
        r"check +whole: .*",
        r"can be served: weights take \d+\.\d MB",
    ):
        assert re.search(f"^{line}$", text, re.M), line


def test_a_tiny_model(tiny_model, tmp_path):
    said = inspect_json(tiny_model)
    check_against_package(tiny_model, said)
    (tmp_path / "m.gguf").symlink_to(tiny_model)
    assert {**inspect_json(tmp_path), "files": 0} == {**said, "files": 0}
    assert inspect_json(tiny_model, "--threads", 1) == inspect_json(tiny_model, "--threads", "7") == said


def test_windows_and_rope():
    """1,000 tokens of a layer with a window hold no more than the window."""
    path = make_model("--sliding-window", "40", "--rope-scaling", "yarn", "--layers", "2", "--width", "64")
    said = inspect_json(path)
    assert said["layer_windows"] == [40, 40]
    per_token = said["kv_bytes_per_token"]["float32"]
    assert said["kv_bytes_per_1000_tokens"]["float32"] == said["kv_bytes_of_context"]["float32"] == 40 * per_token
    assert said["rope"] == {
        "base": 10000,
        "dimensions": 32,
        "scaling": "yarn",
        "factor": 8,
        "original_context": 512,
    }
    text = inspect(path).stdout
    assert re.search(r"^window +40 tokens in 2 of 2 layers: ww$", text, re.M)
    assert re.search(r"^rope +base 10000, 32 of a head, scaling yarn by 8 from 512$", text, re.M)


# ---- several files ----

TINY = ("--type", "Q8_0", "--layers", "2", "--width", "64", "--ff", "96", "--head-dim", "16")


@pytest.fixture(scope="module")
def split(tmp_path_factory):
    """The tiny model in parts, as the gguf package writes them."""
    folder = tmp_path_factory.mktemp("split")
    maker = load_maker()
    writer = functools.partial(gguf.GGUFWriter, split_max_tensors=6)
    maker.gguf = type("gguf", (), {**vars(gguf), "GGUFWriter": writer})
    maker.Maker(maker.options(["-", *TINY]), str(folder / "m.gguf")).write()
    return sorted(folder.glob("m-*.gguf"))


def test_a_split_model_is_the_same_model(split, tiny_model):
    assert [p.name for p in split] == [f"m-{i + 1:05}-of-00004.gguf" for i in range(4)]
    said, whole = inspect_json(split[2]), inspect_json(tiny_model)
    assert said["files"] == [{"path": str(p), "bytes": p.stat().st_size} for p in split]
    assert said["file_bytes"] == sum(p.stat().st_size for p in split)
    differs = ("files", "file_bytes")
    assert {k: v for k, v in said.items() if k not in differs} == {k: v for k, v in whole.items() if k not in differs}
    assert inspect_json(split[0].parent) == said
    text = inspect(split[0]).stdout
    assert all(f"{p}, " in text for p in split)
    args = ("--kv-cache-memory-bytes", "4Mi", "--temperature", "0", "--max-tokens", "20")
    answers = {run("run", m, "one two", *args).stdout for m in (tiny_model, split[0], split[3], split[0].parent)}
    assert len(answers) == 1 and len(answers.pop()) > 5


def test_a_part_that_is_missing_or_damaged(split, tmp_path):
    for p in split:
        (tmp_path / p.name).write_bytes(p.read_bytes())
    second, third = (tmp_path / p.name for p in split[1:3])
    third.unlink()
    done = inspect(second, code=1)
    assert f'{third}: missing: metadata key "split.count" of {split[0].name} is 4' in done.stderr and not done.stdout
    third.write_bytes(split[3].read_bytes())
    done = inspect(tmp_path, code=1)
    assert f'{third}: metadata key "split.no" is 3; part 3 of 4 must have 2' in done.stderr
    data = bytearray(split[2].read_bytes())
    t = next(t for t in gguf.GGUFReader(split[2]).tensors if t.tensor_type.name == "Q8_0")
    data[t.data_offset : t.data_offset + 2] = np.float16("inf").tobytes()
    third.write_bytes(data + bytes(64))
    said = inspect_json(tmp_path, code=1)
    assert said["check"]["not_finite"] == [{"tensor": t.name, "nan": 0, "infinite": 1}]
    assert said["check"]["gap"].startswith(f"{third}: ") and "belong to no tensor" in said["check"]["gap"]


# ---- damage ----


class File:
    """A copy of a model file whose bytes a test changes."""

    def __init__(self, source, path):
        self.path, self.data = path, bytearray(source.read_bytes())
        self.reader = gguf.GGUFReader(source)
        self.tensors = {t.name: t for t in self.reader.tensors}

    def put(self, tensor, offset, data):
        at = int(self.tensors[tensor].data_offset) + offset
        self.data[at : at + len(data)] = data

    def description(self, tensor):
        """Where the description of a tensor has its type, and then its offset."""
        f = self.tensors[tensor].field
        return f.offset + 8 + len(tensor) + 4 + 8 * len(self.tensors[tensor].shape)

    def write(self):
        self.path.write_bytes(self.data)
        return self.path


@pytest.fixture
def damaged(tiny_model, tmp_path):
    return File(tiny_model, tmp_path / "damaged.gguf")


def test_numbers_that_are_not_finite(damaged):
    for block in (0, 5, 9):
        damaged.put("blk.0.ffn_up.weight", 34 * block, np.float16("nan").tobytes())
    damaged.put("blk.0.ffn_up.weight", 34 * 7, np.float16("-inf").tobytes())
    damaged.put("blk.1.ffn_norm.weight", 4 * 63, np.float32("inf").tobytes())
    path = damaged.write()
    done = inspect(path, code=1)
    assert "check          2 tensors hold numbers that are not finite:" in done.stdout
    assert "\n  blk.0.ffn_up.weight: 3 NaN, 1 infinite\n  blk.1.ffn_norm.weight: 0 NaN, 1 infinite\n" in done.stdout
    assert f'{path}: 2 tensors hold numbers that are not finite, the first is "blk.0.ffn_up.weight" (3 NaN, 1 ' in done.stderr
    said = inspect_json(path, code=1)
    assert said["check"]["not_finite"] == [
        {"tensor": "blk.0.ffn_up.weight", "nan": 3, "infinite": 1},
        {"tensor": "blk.1.ffn_norm.weight", "nan": 0, "infinite": 1},
    ]
    assert said["whole"] is False
    said = inspect_json(path, "--no-check")
    assert said["check"] is None and said["whole"]
    assert "not done (--no-check)" in inspect(path, "--no-check").stdout


def test_bytes_that_belong_to_nothing(damaged):
    begin = min(int(t.data_offset) for t in damaged.reader.tensors) - 1
    assert damaged.data[begin] == 0 and begin > damaged.description(damaged.reader.tensors[-1].name) + 12
    damaged.data[begin] = 0x41
    path = damaged.write()
    done = inspect(path, code=1)
    assert f"{path}: byte {begin}, in the padding after the tensor descriptions, is 0x41; padding is 0" in done.stderr
    damaged.data[begin] = 0
    n = len(damaged.data)
    damaged.data += bytes(100)
    last = max(damaged.reader.tensors, key=lambda t: t.data_offset)
    end = int(last.data_offset) + int(last.n_bytes)
    done = inspect(damaged.write(), code=1)
    assert f'{n + 100 - end} bytes at offset {end}, after tensor "{last.name}", belong to no tensor' in done.stderr
    assert inspect_json(path, code=1)["check"]["gap"] in done.stderr


def test_a_truncated_file(damaged):
    for n in (len(damaged.data) - 1000, 2000, 30, 3, 0):
        del damaged.data[n:]
        path = damaged.write()
        for args in ([], ["--json"], ["--no-check"]):
            done = inspect(path, *args, code=1)
            assert not done.stdout and str(path) in done.stderr
            assert re.search(r"is the file complete|is it complete|not fit in a file|not a GGUF file", done.stderr), done.stderr


def test_overlapping_tensors(damaged):
    at = damaged.description("blk.0.attn_q.weight")
    other = damaged.description("blk.1.attn_q.weight")
    damaged.data[at + 4 : at + 12] = damaged.data[other + 4 : other + 12]
    done = inspect(damaged.write(), code=1)
    assert re.search(r'tensors "blk\.[01]\.attn_q\.weight" and "blk\.[01]\.attn_q\.weight" overlap', done.stderr)


def test_a_key_that_contradicts_the_tensors(damaged):
    """The file is shown; it is malformed all the same."""
    f = damaged.reader.fields["llama.feed_forward_length"]
    at = f.offset + 8 + len("llama.feed_forward_length") + 4
    assert struct.unpack_from("<I", damaged.data, at) == (96,)
    struct.pack_into("<I", damaged.data, at, 128)
    done = inspect(damaged.write(), code=1)
    assert "tensor blk.0.ffn_gate.weight: shape 64 x 96" in done.stderr and "cannot be served: tensor blk" in done.stdout


# ---- files that cannot be served ----


def test_an_unknown_family_and_type(tmp_path):
    path = tmp_path / "odd.gguf"
    w = gguf.GGUFWriter(path, "warpdrive")
    w.add_name("odd \x1b[31m name")
    w.add_block_count(3)
    w.add_embedding_length(256)
    w.add_head_count(4)
    w.add_context_length(777)
    w.add_tensor("token_embd.weight", np.zeros((8, 110), np.uint8), raw_dtype=gguf.GGMLQuantizationType.IQ3_S)
    w.add_tensor("blk.0.attn_q.weight", np.zeros((2, 256), np.float32))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    said = inspect_json(path)
    assert said["whole"] and said["check"] == {"gap": None, "not_finite": []}
    assert (said["family"], said["context_length"], said["parameters"]) == ("warpdrive", 777, 8 * 256 + 512)
    assert said["shapes"]["layers"] == 3 and said["shapes"]["head_size"] == 64 and said["shapes"]["kv_heads"] is None
    for name in ("rope", "layer_windows", "kv_bytes_per_token", "tokenizer", "chat_template", "loaded_bytes"):
        assert said[name] is None
    assert [(c["class"], c["type"]) for c in said["classes"]] == [("embedding", "IQ3_S"), ("attention", "F32")]
    reasons = said["cannot_be_served"]
    assert reasons[0] == 'tensor "token_embd.weight": type IQ3_S is not supported: use Q3_K'
    assert reasons[1].startswith('general.architecture = "warpdrive": known are llama')
    assert "tokenizer.ggml.model is missing" in reasons[2] and len(reasons) == 3
    text = inspect(path).stdout
    assert text.count("\ncannot be served: ") == 3 and "\x1b" not in text and "odd \\x1b[31m name" in text


def test_a_removed_type(damaged):
    struct.pack_into("<I", damaged.data, damaged.description("blk.0.attn_q.weight"), 31)
    path = damaged.write()
    done = inspect(path)
    assert re.fullmatch(r"cannot be served: .*type Q4_0_4_4 is not supported: it was removed.*\n", done.stdout)
    assert inspect_json(path)["family"] is None


def test_a_template_that_cannot_be_used(tmp_path):
    for name, template, says in (
        ("broken", "{% for x in %}", "line 1"),
        ("raises", "{{ raise_exception('never') }}", "never"),
    ):

        def change(maker, template=template):
            maker.CHAT_TEMPLATE = template

        path = make_model("--layers", "1", "--width", "64", "--ff", "64", key=name, change=change)
        said = inspect_json(path)
        assert said["chat_template"]["renders"] is False and says in said["chat_template"]["error"]
        assert said["cannot_be_served"] == [] and said["whole"]
        assert re.search(rf"^chat template .*cannot be used: .*{says}", inspect(path).stdout, re.M)


def test_an_unknown_tokenizer(tmp_path):
    path = make_model("--pre", "nobody-knows", "--layers", "1", "--width", "64", "--ff", "64")
    said = inspect_json(path)
    assert len(said["cannot_be_served"]) == 1 and "nobody-knows" in said["cannot_be_served"][0]
    assert said["chat_template"]["renders"] and said["chat_template"]["probe_tokens"] is None


def test_a_vocabulary_alone(tmp_path):
    path = tmp_path / "vocabulary.gguf"
    maker = load_maker()
    m = maker.Maker(maker.options([str(path)]), str(path))
    m.tensors = lambda: None
    m.write()
    said = inspect_json(path)
    assert said["cannot_be_served"] == ["the file has no tensors"] and said["tokenizer"]["tokens"] == 600


def test_more_tokens_than_rows(tmp_path):
    path = tmp_path / "vocabulary.gguf"
    maker = load_maker()
    vocabulary = maker.vocabulary
    maker.vocabulary = lambda n: vocabulary(n + 1)
    maker.Maker(maker.options([str(path), *TINY]), str(path)).write()
    says = 'tokenizer.ggml.tokens has 601 tokens, but tensor "token_embd.weight" has 600 rows'
    done = inspect(path, code=1)
    assert done.stderr == f"quire inspect: {path}: {says}\n" and f"\ncannot be served: {says}\n" in done.stdout
    fails("run", path, "x", code=1, says=f"{path}: {says}")


# ---- the command line ----


def test_wrong_options(tiny_model, tmp_path):
    fails("inspect", says="usage: quire inspect MODEL")
    fails("inspect", tiny_model, tiny_model, says="usage: quire inspect MODEL")
    fails("inspect", tiny_model, "--jsno", says="json")
    fails("inspect", tiny_model, "--json=perhaps", says="json")
    fails("inspect", tiny_model, "--threads", "257", says="threads")
    fails("inspect", tmp_path / "none.gguf", says="none.gguf")
    fails("inspect", tmp_path, says="no .gguf file")
    done = run("inspect", "--help")
    assert done.returncode == 0 and done.stdout.startswith("usage: quire inspect MODEL") and "--[no-]check" in done.stdout
