"""Tiny random encoders as GGUF, and what they must give: Hugging Face's tokenizers for the ids, numpy in double
precision for the arithmetic of BERT (Devlin et al. 2019)."""

import functools
import hashlib
import json
import math
import os
import pathlib
import string

import gguf
import numpy as np
from harness import CACHE
from hf_folder import write_tensors
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

WIDTH, FF, HEADS, LAYERS, CONTEXT, EPS = 32, 48, 2, 2, 128, 1e-5
WORDS = ["the", "cat", "sat", "on", "mat", "dog", "a", "##s", "##ing", "##ed", "sky", "is", "blue", "red"]
PIECES = ["the", "cat", "\u2581the", "\u2581cat", "\u2581sat", "\u2581on", "s", "ing", "\u2581sky", "\u2581is", "\u2581blue"]


def wordpiece():
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    letters = [*string.ascii_lowercase, *string.digits, *".,!?-"]
    return list(dict.fromkeys([*specials, *WORDS, *letters, *("##" + c for c in string.ascii_lowercase)])), 5


def unigram():
    letters = [*string.ascii_lowercase, *string.ascii_uppercase, *string.digits, *".,!?-"]
    return list(dict.fromkeys(["<s>", "<pad>", "</s>", "<unk>", *PIECES, "\u2581", *letters])), 4


class Encoder:
    """kind: "bert" (vectors, mean), "cross" (scores; two types of tokens) or "xlmr" (scores)."""

    def __init__(self, kind):
        self.kind = kind
        self.pieces, self.n_special = unigram() if kind == "xlmr" else wordpiece()
        self.scores = [0.0] * self.n_special + [-1.0 - 0.07 * i for i in range(len(self.pieces) - self.n_special)]
        self.tensors = self.make_tensors()

    # ---- the model ----

    def make_tensors(self):
        rng = np.random.default_rng(3)
        t = {}

        def normal(name, *shape, std=1.0, mean=0.0):
            t[name] = rng.normal(mean, std, shape).astype(np.float32)

        def norm(name):
            normal(name + ".weight", WIDTH, std=0.1, mean=1)
            normal(name + ".bias", WIDTH, std=0.1)

        def linear(name, rows, cols, gain=1.0):
            normal(name + ".weight", rows, cols, std=gain / math.sqrt(cols))
            normal(name + ".bias", rows, std=0.2)

        normal("token_embd.weight", len(self.pieces), WIDTH)
        normal("position_embd.weight", CONTEXT, WIDTH, std=0.5)
        normal("token_types.weight", 1 if self.kind == "xlmr" else 2, WIDTH, std=0.5)
        norm("token_embd_norm")
        for i in range(LAYERS):
            p = f"blk.{i}."
            for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
                linear(p + name, WIDTH, WIDTH, 1.5)
            norm(p + "attn_output_norm")
            linear(p + "ffn_up", FF, WIDTH, 2)
            linear(p + "ffn_down", WIDTH, FF)
            norm(p + "layer_output_norm")
        if self.kind != "bert":
            linear("cls", WIDTH, WIDTH)
            linear("cls.output", 1, WIDTH, 2)
        return t

    def forward(self, ids, n_first=0):
        """The last layer's rows."""
        t = {k: v.astype(np.float64) for k, v in self.tensors.items()}
        types = [int(bool(n_first) and i >= n_first and self.kind != "xlmr") for i in range(len(ids))]

        def norm(x, name):
            x = x - x.mean(-1, keepdims=True)
            x = x / np.sqrt((x * x).mean(-1, keepdims=True) + EPS)
            return x * t[name + ".weight"] + t[name + ".bias"]

        def linear(x, name):
            return x @ t[name + ".weight"].T + t[name + ".bias"]

        def heads(x):
            return x.reshape(len(ids), HEADS, -1).swapaxes(0, 1)

        x = t["token_embd.weight"][ids] + t["position_embd.weight"][: len(ids)] + t["token_types.weight"][types]
        x = norm(x, "token_embd_norm")
        for i in range(LAYERS):
            p = f"blk.{i}."
            q, k, v = (heads(linear(x, p + name)) for name in ("attn_q", "attn_k", "attn_v"))
            s = q @ k.swapaxes(1, 2) / math.sqrt(WIDTH // HEADS)
            w = np.exp(s - s.max(-1, keepdims=True))
            mixed = (w / w.sum(-1, keepdims=True)) @ v
            x = norm(x + linear(mixed.swapaxes(0, 1).reshape(len(ids), -1), p + "attn_output"), p + "attn_output_norm")
            h = linear(x, p + "ffn_up")
            h = h * 0.5 * (1 + np.vectorize(math.erf)(h / math.sqrt(2)))
            x = norm(x + linear(h, p + "ffn_down"), p + "layer_output_norm")
        return x

    # ---- the text ----

    @functools.cached_property
    def tokenizer(self):
        ids = {p: i for i, p in enumerate(self.pieces)}
        if self.kind == "xlmr":
            t = Tokenizer(models.Unigram(list(zip(self.pieces, self.scores)), ids["<unk>"], False))
            t.pre_tokenizer = pre_tokenizers.Metaspace()
            single, pair = "<s> $A </s>", "<s> $A </s> </s> $B </s>"
        else:
            t = Tokenizer(models.WordPiece(ids, unk_token="[UNK]"))
            t.normalizer = normalizers.BertNormalizer(lowercase=True)
            t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
            single, pair = "[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1"
        special = [(p, ids[p]) for p in self.pieces[: self.n_special]]
        t.post_processor = processors.TemplateProcessing(single=single, pair=pair, special_tokens=special)
        return t

    def ids(self, text, most=None):
        if most:
            self.tokenizer.enable_truncation(most)
        else:
            self.tokenizer.no_truncation()
        return self.tokenizer.encode(text).ids

    def vector(self, ids):
        v = self.forward(ids).mean(0)
        return v / np.linalg.norm(v)

    def score(self, first, second, most=None):
        """Raw score of a pair, and its tokens."""
        self.tokenizer.enable_truncation(most) if most else self.tokenizer.no_truncation()
        e = self.tokenizer.encode(first, second)
        n_first = e.type_ids.index(1) if 1 in e.type_ids else 0
        x = self.forward(e.ids, n_first)[0]
        t = self.tensors
        x = np.tanh(t["cls.weight"].astype(float) @ x + t["cls.bias"])
        return float((t["cls.output.weight"].astype(float) @ x + t["cls.output.bias"])[0]), len(e.ids)

    # ---- the file ----

    def write(self, path):
        w = gguf.GGUFWriter(str(path), "bert")
        w.add_context_length(CONTEXT)
        w.add_embedding_length(WIDTH)
        w.add_feed_forward_length(FF)
        w.add_block_count(LAYERS)
        w.add_head_count(HEADS)
        w.add_layer_norm_eps(EPS)
        w.add_causal_attention(False)
        if self.kind == "bert":
            w.add_pooling_type(gguf.PoolingType.MEAN)
        self.write_tokenizer(w)
        for name, data in self.tensors.items():
            w.add_tensor(name, data)
        w.write_header_to_file()
        w.write_kv_data_to_file()
        w.write_tensors_to_file()
        w.close()

    def write_tokenizer(self, w):
        pieces, xlmr = self.pieces, self.kind == "xlmr"
        control = [i < self.n_special for i in range(len(pieces))]
        types = [gguf.TokenType.CONTROL if c else gguf.TokenType.NORMAL for c in control]
        if xlmr:
            types[3] = gguf.TokenType.UNKNOWN
        else:  # words begin with a space that nobody sees
            pieces = [p if c else p[2:] if p[:2] == "##" else "\u2581" + p for p, c in zip(pieces, control)]
        w.add_tokenizer_model("t5" if xlmr else "bert")
        w.add_tokenizer_pre("default")
        w.add_token_list(pieces)
        w.add_token_types(types)
        if xlmr:
            w.add_token_scores(self.scores)
            w.add_add_space_prefix(True)
        w.add_bos_token_id(0 if xlmr else 2)
        w.add_eos_token_id(2 if xlmr else 3)
        w.add_unk_token_id(3 if xlmr else 1)
        w.add_sep_token_id(2 if xlmr else 3)
        w.add_pad_token_id(1 if xlmr else 0)
        w.add_add_bos_token(True)
        w.add_add_eos_token(True)


def encoder_file(kind):
    """The encoder and its file, kept by the hash of this module."""
    digest = hashlib.sha256(pathlib.Path(__file__).read_bytes()).hexdigest()[:16]
    path = CACHE / f"encoder-{kind}-{digest}.gguf"
    encoder = Encoder(kind)
    if not path.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(f".{os.getpid()}")
        encoder.write(temporary)
        temporary.rename(path)
    return encoder, path


# ---- the same as a folder of Hugging Face ----

LAYER = {"attn_q": "attention.self.query", "attn_k": "attention.self.key", "attn_v": "attention.self.value",
         "attn_output": "attention.output.dense", "attn_output_norm": "attention.output.LayerNorm",
         "ffn_up": "intermediate.dense", "ffn_down": "output.dense", "layer_output_norm": "output.LayerNorm"}
OTHERS = {"token_embd": "embeddings.word_embeddings", "position_embd": "embeddings.position_embeddings",
          "token_types": "embeddings.token_type_embeddings", "token_embd_norm": "embeddings.LayerNorm"}
HEADS_OF = {"cross": {"cls": "bert.pooler.dense", "cls.output": "classifier"},
            "xlmr": {"cls": "classifier.dense", "cls.output": "classifier.out_proj"}}


def their_tensors(encoder):
    front = {"bert": "", "cross": "bert.", "xlmr": "roberta."}[encoder.kind]
    for name, w in encoder.tensors.items():
        base, _, end = name.rpartition(".")
        part = base.split(".")
        if base.startswith("cls"):
            yield f"{HEADS_OF[encoder.kind][base]}.{end}", w
        elif part[0] == "blk":
            yield f"{front}encoder.layer.{part[1]}.{LAYER[part[2]]}.{end}", w
        else:
            if encoder.kind == "xlmr" and base == "position_embd":  # numbers begin behind that of the padding
                w = np.concatenate([np.full((2, w.shape[1]), 99, np.float32), w])
            yield f"{front}{OTHERS[base]}.{end}", w
    if encoder.kind == "bert":
        yield "pooler.dense.weight", np.zeros((WIDTH, WIDTH), np.float32)


def their_config(encoder):
    xlmr = encoder.kind == "xlmr"
    name = {"bert": "BertModel", "cross": "BertForSequenceClassification", "xlmr": "XLMRobertaForSequenceClassification"}
    return {"architectures": [name[encoder.kind]], "model_type": "xlm-roberta" if xlmr else "bert", "hidden_act": "gelu",
            "vocab_size": len(encoder.pieces), "hidden_size": WIDTH, "intermediate_size": FF, "num_hidden_layers": LAYERS,
            "num_attention_heads": HEADS, "max_position_embeddings": CONTEXT + 2 * xlmr, "type_vocab_size": 1 if xlmr else 2,
            "layer_norm_eps": EPS, "pad_token_id": 1 if xlmr else 0, "position_embedding_type": "absolute",
            "attention_probs_dropout_prob": 0.1, "id2label": {"0": "LABEL_0"}}


def sentence_files(*more):
    """As sentence-transformers has them; more: steps behind those that are always there."""
    steps = [("", "Transformer"), ("1_Pooling", "Pooling"), *more]
    return {"modules.json": [{"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
                             for i, (path, kind) in enumerate(steps)],
            "1_Pooling/config.json": {"word_embedding_dimension": WIDTH, "pooling_mode_cls_token": False,
                                      "pooling_mode_mean_tokens": True, "pooling_mode_max_tokens": False},
            "sentence_bert_config.json": {"max_seq_length": 64, "do_lower_case": False}}


def write_folder(encoder, folder, files=None, **config):
    """files: further ones, by name; config: other keys of config.json."""
    folder.mkdir(exist_ok=True)
    encoder.tokenizer.no_truncation()
    encoder.tokenizer.save(str(folder / "tokenizer.json"))
    for name, data in {"config.json": their_config(encoder) | config, **(files or {})}.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(json.dumps(data))
    write_tensors(folder / "model.safetensors", their_tensors(encoder))
    return folder
