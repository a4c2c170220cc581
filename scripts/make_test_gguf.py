#!/usr/bin/env python3
"""Writes a small random model of the llama family as GGUF: deterministic, byte for byte, for a given set of options.

Needs numpy and the gguf package. Its tokenizer is a real byte-level BPE (256 byte tokens, merges, control tokens) with a
ChatML chat template, so that a server can be tried on it. tests/util/tiny_model.c writes the same bytes without Python.

    make_test_gguf.py tiny.gguf --type Q4_1 --layers 3 --width 96 --sliding-window 64
"""
import argparse
import math
import sys

import gguf
import numpy as np

CONTROL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
LETTERS = "etaoinshrdlucmfwypvbgkqjxz"  # by frequency in English
CHAT_TEMPLATE = (
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
FILE_TYPE = {"F32": 0, "F16": 1, "Q4_0": 2, "Q4_1": 3, "Q8_0": 7, "Q5_0": 8, "Q5_1": 9, "Q2_K": 10, "Q3_K": 12,
             "Q4_K": 15, "Q5_K": 17, "Q6_K": 18, "BF16": 32}
# K-quants are filled with random bits: (offset of d, offset of dmin or None, dmin / d, standard deviation of an element at d = 1)
RANDOM_BLOCKS = {"Q2_K": (80, 82, 1.5, 15.2), "Q3_K": (108, None, 0.0, 43.2), "Q4_K": (0, 2, 7.5, 255.6),
                 "Q5_K": (0, 2, 15.5, 525.0), "Q6_K": (208, None, 0.0, 1366.0)}


def byte_alphabet():
    """GPT-2's printable character for each byte."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in plain]
    return [chr(b) if b in plain else chr(256 + others.index(b)) for b in range(256)]


def merge_list():
    """Pairs, in order of rank: space + letter, letter + letter, then the two together."""
    for a in LETTERS:
        yield "Ġ", a
    for a in LETTERS[:12]:
        for b in LETTERS[:12]:
            yield a, b
    for i in range(12):
        for j in range(12):
            yield "Ġ" + LETTERS[i], LETTERS[j] + LETTERS[(i + j) % 12]


def vocabulary(n_vocab):
    tokens = CONTROL + byte_alphabet()
    types = [gguf.TokenType.CONTROL] * len(CONTROL) + [gguf.TokenType.NORMAL] * 256
    merges = []
    for a, b in merge_list():
        if len(tokens) == n_vocab:
            break
        tokens.append(a + b)
        types.append(gguf.TokenType.NORMAL)
        merges.append(f"{a} {b}")
    while len(tokens) < n_vocab:
        tokens.append(f"<|reserved_{len(tokens)}|>")
        types.append(gguf.TokenType.CONTROL)
    return tokens, types, merges


def hashes(seed, name, n):
    """n 64-bit words of the stream of (seed, name): SplitMix64 (Steele, Lea, Flood 2014) from a hash of both."""
    state = 0xCBF29CE484222325 ^ seed
    for byte in name.encode():
        state = ((state ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF  # FNV-1a
    with np.errstate(over="ignore"):
        z = np.uint64(state) + (np.arange(n, dtype=np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def normals(seed, name, n):
    """Nearly normal numbers with mean 0 and deviation 1, exact in double: sums of four uniform 16-bit integers."""
    h = hashes(seed, name, n)
    total = sum(((h >> np.uint64(s)) & np.uint64(0xFFFF)).astype(np.int64) for s in (0, 16, 32, 48))
    return (total - 131070).astype(np.float64) / 37837.0


def random_blocks(seed, name, n_bytes, type_name, std):
    d_at, dmin_at, ratio, unit = RANDOM_BLOCKS[type_name]
    block = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[type_name]][1]
    blocks = hashes(seed, name, (n_bytes + 7) // 8).view(np.uint8)[:n_bytes].reshape(-1, block).copy()
    d = np.float32(std / unit)
    blocks[:, d_at : d_at + 2] = np.frombuffer(np.float16(d).tobytes(), np.uint8)
    if dmin_at is not None:
        blocks[:, dmin_at : dmin_at + 2] = np.frombuffer(np.float16(d * np.float32(ratio)).tobytes(), np.uint8)
    return blocks


class Maker:
    def __init__(self, o, path):
        self.o = o
        self.writer = gguf.GGUFWriter(path, "llama")

    def metadata(self):
        o, w = self.o, self.writer
        w.add_type("model")
        w.add_name("tiny")
        w.add_file_type(FILE_TYPE[o.type])
        w.add_quantization_version(2)
        w.add_block_count(o.layers)
        w.add_context_length(o.context)
        w.add_embedding_length(o.width)
        w.add_feed_forward_length(o.ff)
        w.add_head_count(o.heads)
        w.add_head_count_kv(o.kv_heads)
        w.add_key_length(o.head_dim)
        w.add_value_length(o.head_dim)
        w.add_rope_dimension_count(o.head_dim)
        w.add_rope_freq_base(o.rope_base)
        w.add_layer_norm_rms_eps(1e-5)
        w.add_vocab_size(o.vocab)
        if o.sliding_window:
            w.add_sliding_window(o.sliding_window)
        if o.rope_scaling:
            w.add_string("llama.rope.scaling.type", o.rope_scaling)
            w.add_rope_scaling_factor(o.rope_factor)
            w.add_rope_scaling_orig_ctx_len(o.rope_original_context)
        tokens, types, merges = vocabulary(o.vocab)
        w.add_tokenizer_model("gpt2")
        w.add_tokenizer_pre(o.pre)
        w.add_token_list(tokens)
        w.add_token_types(types)
        w.add_token_merges(merges)
        w.add_bos_token_id(1)
        w.add_eos_token_id(2)
        w.add_unk_token_id(0)
        w.add_pad_token_id(2)
        w.add_add_bos_token(False)
        w.add_add_space_prefix(False)
        w.add_chat_template(CHAT_TEMPLATE)

    def vector(self, name, n, mean, std):
        self.writer.add_tensor(name, (mean + std * normals(self.o.seed, name, n)).astype(np.float32))

    def matrix(self, name, rows, cols, std, type_name):
        kind = gguf.GGMLQuantizationType[type_name]
        elems, size = gguf.GGML_QUANT_SIZES[kind]
        if cols % elems:
            sys.exit(f"{name}: rows of {cols} are not whole blocks of {elems} ({type_name})")
        if type_name in RANDOM_BLOCKS:
            data = random_blocks(self.o.seed, name, rows * cols // elems * size, type_name, std).reshape(rows, -1)
        else:
            values = (std * normals(self.o.seed, name, rows * cols)).astype(np.float32).reshape(rows, cols)
            data = gguf.quantize(values, kind)
        self.writer.add_tensor(name, data, raw_dtype=kind)

    def rope_freqs(self):
        """Divisors of Llama 3.1's rope scaling (factor 8, low 1, high 4), as converters write them."""
        o = self.o
        old = o.rope_original_context
        factors = []
        for i in range(0, o.head_dim, 2):
            wavelen = 2 * math.pi * math.pow(o.rope_base, i / o.head_dim)
            if wavelen < old / 4:
                factors.append(1.0)
            elif wavelen > old:
                factors.append(8.0)
            else:
                smooth = (old / wavelen - 1) / 3
                factors.append(1 / ((1 - smooth) / 8 + smooth))
        self.writer.add_tensor("rope_freqs.weight", np.array(factors, dtype=np.float32))

    def tensors(self):
        # Gains are such that each layer matters, logits have a deviation of a few units, and the token just read is not
        # simply said again, also when the output is the embedding.
        o = self.o
        q, kv = o.heads * o.head_dim, o.kv_heads * o.head_dim
        embed = o.embed_type or o.type
        self.matrix("token_embd.weight", o.vocab, o.width, 1 / math.sqrt(o.width), embed)
        if o.rope_freqs:
            self.rope_freqs()
        for i in range(o.layers):
            p = f"blk.{i}."
            self.vector(p + "attn_norm.weight", o.width, 1, 0.1)
            self.matrix(p + "attn_q.weight", q, o.width, 2 / math.sqrt(o.width), o.type)
            self.matrix(p + "attn_k.weight", kv, o.width, 2 / math.sqrt(o.width), o.type)
            self.matrix(p + "attn_v.weight", kv, o.width, 1 / math.sqrt(o.width), o.type)
            self.matrix(p + "attn_output.weight", o.width, q, 1 / math.sqrt(q), o.type)
            self.vector(p + "ffn_norm.weight", o.width, 1, 0.1)
            self.matrix(p + "ffn_gate.weight", o.ff, o.width, 2 / math.sqrt(o.width), o.type)
            self.matrix(p + "ffn_up.weight", o.ff, o.width, 1 / math.sqrt(o.width), o.type)
            self.matrix(p + "ffn_down.weight", o.width, o.ff, 1 / math.sqrt(o.ff), o.type)
        self.vector("output_norm.weight", o.width, 3, 0.3)
        if not o.tied:
            self.matrix("output.weight", o.vocab, o.width, 1 / math.sqrt(o.width), embed)

    def write(self):
        self.metadata()
        self.tensors()
        self.writer.write_header_to_file()
        self.writer.write_kv_data_to_file()
        self.writer.write_tensors_to_file()
        self.writer.close()


def options(argv):
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("path")
    p.add_argument("--layers", type=int, default=3)
    p.add_argument("--width", type=int, default=96)
    p.add_argument("--heads", type=int, default=4)
    p.add_argument("--kv-heads", type=int, default=2)
    p.add_argument("--head-dim", type=int, default=32)
    p.add_argument("--ff", type=int, default=160)
    p.add_argument("--vocab", type=int, default=600)
    p.add_argument("--context", type=int, default=4096)
    p.add_argument("--type", default="F32", choices=sorted(FILE_TYPE), help="of the matrices")
    p.add_argument("--embed-type", choices=sorted(FILE_TYPE), help="of the embedding and the output (as --type)")
    p.add_argument("--tied", action="store_true", help="no output matrix: the embedding is used")
    p.add_argument("--sliding-window", type=int, default=0)
    p.add_argument("--rope-base", type=float, default=10000.0)
    p.add_argument("--rope-scaling", choices=["linear", "yarn"])
    p.add_argument("--rope-factor", type=float, default=8.0)
    p.add_argument("--rope-original-context", type=int, default=512)
    p.add_argument("--rope-freqs", action="store_true", help="Llama 3.1 scaling, as a tensor")
    p.add_argument("--pre", default="smollm", help="pre-tokenizer name")
    p.add_argument("--seed", type=int, default=1)
    o = p.parse_args(argv)
    if o.vocab < len(CONTROL) + 256:
        p.error(f"--vocab {o.vocab}: at least {len(CONTROL) + 256} (control and byte tokens)")
    return o


if __name__ == "__main__":
    parsed = options(sys.argv[1:])
    Maker(parsed, parsed.path).write()
