"""Encoders and rerankers in folders of Hugging Face, also as sentence-transformers lays them out: the numbers of the same
model as GGUF and of numpy, and what is refused."""

import base64
import copy
import json
import math

import hf_folder
import numpy as np
import pytest
from conftest import make_model
from encoders import CONTEXT, WIDTH, encoder_file, sentence_files, write_folder
from harness import Server, run
from tokenizers import BertWordPieceTokenizer

TEXTS = ["the cat sat on the mat", "Dogs!", "", "the sky is blue, the cat is red", "zzz 99 é 中 x"]
DOCUMENTS = ["the sky is blue", "a red cat", "the dog sat on the mat"]


def embed(server, input, **more):
    data = server.ok("/v1/embeddings", {"input": input, "encoding_format": "base64", **more})["data"]
    return np.array([np.frombuffer(base64.b64decode(d["embedding"]), "<f4") for d in data])


def scores(server, **more):
    results = server.ok("/v1/rerank", {"query": "blue skies", "documents": DOCUMENTS, **more})["results"]
    return {r["index"]: r["relevance_score"] for r in results}


def test_embeddings(tmp_path):
    encoder, gguf = encoder_file("bert")
    files = {**sentence_files(("2_Normalize", "Normalize")),
             "config_sentence_transformers.json": {"prompts": {"query": "query: ", "document": ""}}}
    with Server(write_folder(encoder, tmp_path, files), "--dtype", "float32") as server:
        got = embed(server, TEXTS)
        assert np.abs(got - [encoder.vector(encoder.ids(t)) for t in TEXTS]).max() < 1e-5
        assert "prompts are not put in front" in server.stderr()
        long = "the cat " * 60  # cut where sentence-transformers cuts it
        server.refused("/v1/embeddings", {"input": long}, param="input", says="at most 64")
        cut = embed(server, long, truncate_prompt_tokens=-1)[0]
        assert np.abs(cut - encoder.vector(encoder.ids(long, 64))).max() < 1e-5
        server.refused("/v1/completions", {"prompt": "x"}, says="encoder")
    with Server(gguf, "--dtype", "float32") as server:
        assert (embed(server, TEXTS) == got).all()  # to the bit
    with Server(tmp_path, "--dtype", "float32", "--max-model-len", str(CONTEXT), "--pooling-type", "cls") as server:
        rows = [encoder.forward(encoder.ids(t))[0] for t in [long, *TEXTS]]
        assert np.abs(embed(server, [long, *TEXTS]) - [v / np.linalg.norm(v) for v in rows]).max() < 1e-5


@pytest.mark.parametrize("kind", ["cross", "xlmr"])
def test_rerank(kind, tmp_path):
    encoder, _ = encoder_file(kind)
    want = {i: encoder.score("blue skies", d)[0] for i, d in enumerate(DOCUMENTS)}
    with Server(write_folder(encoder, tmp_path), "--dtype", "float32") as server:
        assert scores(server) == pytest.approx({i: 1 / (1 + math.exp(-s)) for i, s in want.items()}, abs=1e-5)
        assert scores(server, use_activation=False) == pytest.approx(want, abs=1e-4)
    raw = {"activation_fn": "torch.nn.modules.linear.Identity", "version": "4.1.0"}
    write_folder(encoder, tmp_path, sentence_transformers=raw)
    with Server(tmp_path, "--dtype", "float32") as server:
        assert scores(server) == pytest.approx(want, abs=1e-4)
        assert scores(server, use_activation=True) == pytest.approx({i: 1 / (1 + math.exp(-s)) for i, s in want.items()}, abs=1e-5)
    assert "rank, of an encoder" in run("inspect", tmp_path).stdout


def refused(folder, *says):
    r = run("serve", folder, "--port", "0")
    assert r.returncode and all(s in r.stderr for s in says), r.stderr
    assert r.stderr.count("\n") == 1, r.stderr


def changed(file, **keys):
    files = copy.deepcopy(sentence_files())
    files[file] = files.get(file, {}) | keys
    return files


def test_refused_layouts(tmp_path):
    encoder, _ = encoder_file("bert")
    pooling = "1_Pooling/config.json: "
    cases = [
        (sentence_files(("2_Dense", "Dense")), ["modules.json: [2].type \"Dense\": not supported"]),
        ({"modules.json": {}}, ["modules.json: it must be a JSON array"]),
        ({"modules.json": [{"path": "0_Transformer", "type": "x.Transformer"}]}, ["modules.json: [0].path = \"0_Transformer\""]),
        ({"modules.json": [{"path": "0_X", "type": "x.StaticEmbedding"}]}, ["[0].type \"StaticEmbedding\""]),
        (changed("1_Pooling/config.json", pooling_mode_max_tokens=True), [pooling, "pooling_mode_max_tokens: only one mode"]),
        (changed("1_Pooling/config.json", pooling_mode_mean_tokens=False, pooling_mode_max_tokens=True),
         [pooling, "pooling_mode_max_tokens (max): not supported"]),
        (changed("1_Pooling/config.json", pooling_mode_mean_tokens=False), [pooling, "none of"]),
        (changed("1_Pooling/config.json", pooling_mode_mean_tokens=1), [pooling, "pooling_mode_mean_tokens = 1"]),
        (changed("1_Pooling/config.json", pooling_mode="weightedmean"), [pooling, "pooling_mode (weightedmean): not supported"]),
        (changed("1_Pooling/config.json", pooling_mode=["cls", "mean"]), [pooling, "must be one mode"]),
        (changed("1_Pooling/config.json", word_embedding_dimension=7), [pooling, "word_embedding_dimension = 7"]),
        (changed("1_Pooling/config.json", new_key=7), [pooling, "new_key: not known"]),
        (changed("sentence_bert_config.json", do_lower_case=True), ["sentence_bert_config.json: do_lower_case = true"]),
        (changed("sentence_bert_config.json", max_seq_length=-1), ["sentence_bert_config.json: max_seq_length = -1"]),
        (changed("sentence_bert_config.json", new_key=1), ["sentence_bert_config.json: new_key: not known"]),
    ]
    for i, (files, says) in enumerate(cases):
        refused(write_folder(encoder, tmp_path / str(i), files), *says)
    (tmp_path / "6" / "1_Pooling" / "config.json").unlink()
    refused(tmp_path / "6", pooling, "is missing")


def test_refused_configs(tmp_path):
    bert, cross = encoder_file("bert")[0], encoder_file("cross")[0]
    for i, (keys, says) in enumerate([
        ({"hidden_act": "gelu_new"}, "hidden_act = \"gelu_new\""), ({"is_decoder": True}, "is_decoder = true"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type"), ({"type_vocab_size": 3}, "type_vocab_size is 3"),
        ({"rope_theta": 1e4}, "rope_theta: not known"),
        ({"architectures": ["ModernBertModel"]}, "Bert, Roberta, XLMRoberta, Camembert, DistilBert, NomicBert"),
        ({"architectures": ["DistilBertModel"], "activation": "relu", "hidden_act": None, "type_vocab_size": None},
         "activation = \"relu\""),
        ({"max_position_embeddings": 64}, "embeddings.position_embeddings.weight: shape"),
        ({"model_type": "roberta", "architectures": ["RobertaModel"], "max_position_embeddings": 1}, "max_position_embeddings = 1"),
    ]):
        refused(write_folder(bert, tmp_path / str(i), **keys), says, "" if "shape" in says else "config.json")
    function = {"activation_fn": "mine.Softmax"}
    refused(write_folder(cross, tmp_path / "head", sentence_transformers=function), "config.json", "activation_fn", "Identity")
    refused(write_folder(cross, tmp_path / "body", architectures=["BertModel"]), "classifier.")


WORDS = ["Hello, world! It's 3.14.", "CAFÉ naïve Ünï", "数据 mixed中文words", "[MASK] a [CLS] b", "tab\there\u00a0nbsp\u200bzwsp\x00\x07", "a" * 101]


@pytest.mark.parametrize("said", [None, {"do_lower_case": False}, {"strip_accents": False}, {"tokenize_chinese_chars": False}])
def test_vocab_txt(said, tmp_path):
    """Only vocab.txt: the ids of `tokenizers`' own BERT tokenizer, and the vectors that they have."""
    encoder, _ = encoder_file("bert")
    write_folder(encoder, tmp_path, {**sentence_files(), **({"tokenizer_config.json": said} if said else {})})
    pieces = sorted(encoder.tokenizer.get_vocab().items(), key=lambda piece: piece[1])
    (tmp_path / "vocab.txt").write_text("".join(piece + "\n" for piece, _ in pieces))
    (tmp_path / "tokenizer.json").unlink()
    said = said or {}
    lower = said.get("do_lower_case", True)
    reference = BertWordPieceTokenizer(str(tmp_path / "vocab.txt"), lowercase=lower, strip_accents=said.get("strip_accents", lower),
                                       handle_chinese_chars=said.get("tokenize_chinese_chars", True))
    with Server(tmp_path, "--dtype", "float32") as server:
        for text in [*TEXTS, *WORDS]:
            ids = reference.encode(text).ids
            assert server.post("/tokenize", {"prompt": text}).json()["tokens"] == ids, text
            back = server.post("/detokenize", {"tokens": ids}).json()["prompt"]
            assert back == reference.decode(ids), text
        assert np.abs(embed(server, TEXTS)[0] - encoder.vector(reference.encode(TEXTS[0]).ids)).max() < 1e-5


def test_vocab_txt_refused(tmp_path):
    encoder, _ = encoder_file("bert")
    write_folder(encoder, tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    refused(tmp_path, "there is no tokenizer", "tokenizer.json", "vocab.txt")
    (tmp_path / "sentencepiece.bpe.model").write_text("x")
    refused(tmp_path, "sentencepiece.bpe.model", "tokenizer.json")
    rows = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a"]
    for lines, says in ((rows[:2] + rows[3:], 'no line "[CLS]", which cls_token is'), (rows + ["a"], 'line 6, "a", is there twice'),
                        (["x\0y"], "line 1 holds a NUL"), ([], "empty")):
        (tmp_path / "vocab.txt").write_text("\n".join(lines))
        refused(tmp_path, "vocab.txt", says)
    (tmp_path / "vocab.txt").write_bytes(b"[PAD]\n\xff\n")
    refused(tmp_path, "line 2 is not UTF-8")
    (tmp_path / "vocab.txt").write_text("\n".join(rows))
    for key, value in (("do_basic_tokenize", False), ("do_lower_case", "yes"), ("added_tokens_decoder", {"x": {"content": "y"}})):
        (tmp_path / "tokenizer_config.json").write_text(json.dumps({key: value}))
        refused(tmp_path, "tokenizer_config.json", key)


def test_decoders_without_output(tmp_path):
    source = make_model("--type", "F32", "--layers", "2", "--width", "64", "--ff", "96", "--head-dim", "16", "--pre", "gpt-2")
    whole = hf_folder.write(tmp_path / "whole", source)
    config = json.loads((whole / "config.json").read_text()) | {"architectures": ["LlamaModel"]}
    bare = hf_folder.write(tmp_path / "bare", source, config_json=config)
    limits = ("--kv-cache-memory-bytes", "8Mi", "--max-model-len", "256", "--dtype", "float32")
    with Server(whole, "--runner", "pooling", *limits) as a, Server(bare, *limits) as b:
        assert (embed(a, "once upon a time") == embed(b, "once upon a time")).all()
        b.refused("/v1/completions", {"prompt": "x"}, says="vectors")
    for args in (("serve", bare, "--runner", "generate"), ("run", bare, "x")):
        r = run(*args)
        assert r.returncode and "lm_head" in r.stderr, r
    said = json.loads(run("inspect", bare, "--json").stdout)
    assert said["pooling"] == "last" and said["cannot_be_served"] == [] and not said["encoder"]
    tokens = {**sentence_files(), "1_Pooling/config.json": {"word_embedding_dimension": 64, "pooling_mode": "lasttoken"}}
    for name, data in tokens.items():
        (whole / name).parent.mkdir(exist_ok=True)
        (whole / name).write_text(json.dumps(data))
    with Server(whole, *limits) as server:
        assert embed(server, "once upon a time").shape == (1, 64)
    assert WIDTH != 64  # the width of the pooling is the model's
