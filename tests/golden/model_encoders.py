"""Golden vectors of small random encoders and of a decoder, from transformers (float32).

    python model_encoders.py OUT.bin

Needs torch, transformers 5, gguf, numpy and a C compiler. The encoders are those of tests/util/tiny_encoder.c, the decoder is
"qwen3" of tests/util/tiny_family.c; both are compiled and asked to write their files.

OUT.bin, little-endian: "QVE1"; u32 n_entries; then for each char variant[24]; u32 pooling (GGUF's numbers), n_tokens, n_first,
n_floats; f32 vector[n_floats]. Vectors are not normalised, scores are not squashed. Token i is (i * i * 7 + i * 13 + 5) % 300.
"""

import ctypes
import os
import struct
import subprocess
import sys
import tempfile

import numpy as np
import torch
import transformers as T
from gguf import GGUFReader

HERE = os.path.dirname(os.path.abspath(__file__))
UTIL = os.path.join(HERE, "../util")
SEED = 11
MEAN, CLS, LAST, RANK = 1, 2, 3, 4


def generator(folder):
    library = os.path.join(folder, "tiny.so")
    sources = [os.path.join(UTIL, f) for f in ("tiny_encoder.c", "tiny_family.c", "tiny_model.c", "tiny_quant.c", "gguf_build.c")]
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-std=gnu17", "-I", os.path.join(HERE, ".."), "-o", library, *sources,
                    "-lm"], check=True)
    return ctypes.CDLL(library)


def read(path):
    reader = GGUFReader(path)
    fields = {k: v.contents() for k, v in reader.fields.items() if not k.startswith("GGUF")}
    return fields, {t.name: torch.from_numpy(np.array(t.data, np.float32)) for t in reader.tensors}


LAYER = {"attn_q": "attention.self.query", "attn_k": "attention.self.key", "attn_v": "attention.self.value",
         "attn_output": "attention.output.dense", "attn_output_norm": "attention.output.LayerNorm",
         "ffn_up": "intermediate.dense", "ffn_down": "output.dense", "layer_output_norm": "output.LayerNorm"}


def encoder(fields, tensors, variant):
    """The reference's model and the name of its trunk."""
    xlmr, head = variant == "xlmr", "cls.weight" in tensors
    context, trunk = fields["bert.context_length"], "roberta" if xlmr else "bert"
    position = tensors["position_embd.weight"]
    if xlmr:  # its numbers begin behind that of the padding
        position = torch.cat([torch.zeros(2, position.shape[1]), position])
    state = {"embeddings.word_embeddings.weight": tensors["token_embd.weight"],
             "embeddings.position_embeddings.weight": position,
             "embeddings.token_type_embeddings.weight": tensors["token_types.weight"],
             "embeddings.LayerNorm.weight": tensors["token_embd_norm.weight"],
             "embeddings.LayerNorm.bias": tensors["token_embd_norm.bias"]}
    for name, w in tensors.items():
        part = name.split(".")
        if part[0] == "blk":
            state[f"encoder.layer.{part[1]}.{LAYER[part[2]]}.{part[3]}"] = w
    state = {f"{trunk}.{k}": v for k, v in state.items()}
    if head:
        dense, out = ("classifier.dense", "classifier.out_proj") if xlmr else ("bert.pooler.dense", "classifier")
        for kind in ("weight", "bias"):
            state[f"{dense}.{kind}"] = tensors[f"cls.{kind}"]
            state[f"{out}.{kind}"] = tensors[f"cls.output.{kind}"]
    config = {"vocab_size": tensors["token_embd.weight"].shape[0], "hidden_size": fields["bert.embedding_length"],
              "num_hidden_layers": fields["bert.block_count"], "num_attention_heads": fields["bert.attention.head_count"],
              "intermediate_size": fields["bert.feed_forward_length"], "max_position_embeddings": position.shape[0],
              "type_vocab_size": tensors["token_types.weight"].shape[0], "num_labels": 1,
              "layer_norm_eps": fields["bert.attention.layer_norm_epsilon"], "pad_token_id": 1 if xlmr else 0}
    assert context + 2 * xlmr == position.shape[0]
    cls = T.XLMRobertaForSequenceClassification if xlmr else T.BertForSequenceClassification
    model = cls(cls.config_class(**config)).eval()
    missing = model.load_state_dict(state, strict=False)
    assert not missing.unexpected_keys and (not head or not missing.missing_keys), missing
    return model, getattr(model, trunk)


def qwen3(fields, tensors):
    f = lambda key: fields[f"qwen3.{key}"]
    names = {"attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
             "attn_output": "self_attn.o_proj", "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm",
             "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
             "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm"}
    state = {"embed_tokens.weight": tensors["token_embd.weight"], "norm.weight": tensors["output_norm.weight"]}
    for name, w in tensors.items():
        part = name.split(".")
        if part[0] == "blk":
            state[f"layers.{part[1]}.{names[part[2]]}.{part[3]}"] = w
    config = T.Qwen3Config(
        vocab_size=tensors["token_embd.weight"].shape[0], hidden_size=f("embedding_length"),
        num_hidden_layers=f("block_count"), intermediate_size=f("feed_forward_length"),
        num_attention_heads=f("attention.head_count"), num_key_value_heads=f("attention.head_count_kv"),
        head_dim=f("attention.key_length"), max_position_embeddings=f("context_length"),
        rms_norm_eps=f("attention.layer_norm_rms_epsilon"), pad_token_id=0,
        rope_parameters={"rope_type": "default", "rope_theta": f("rope.freq_base")})
    model = T.Qwen3Model(config).eval()
    model.load_state_dict(state)
    return model


def pool(hidden, pooling):
    return {MEAN: hidden.double().mean(0), CLS: hidden[0], LAST: hidden[-1]}[pooling].float().numpy()


def vectors(path, variant, entries):
    fields, tensors = read(path)
    whole = None
    if variant == "qwen3":
        trunk = qwen3(fields, tensors)
    else:
        whole, trunk = encoder(fields, tensors, variant)
    for pooling, n, n_first in entries:
        ids = torch.tensor([[(i * i * 7 + i * 13 + 5) % 300 for i in range(n)]])
        more = {"attention_mask": torch.ones_like(ids)}
        if variant == "xlmr":  # otherwise it would count the tokens that happen to be padding
            more["position_ids"] = torch.arange(2, n + 2)[None]
        if n_first and variant == "cross":
            more["token_type_ids"] = (torch.arange(n) >= n_first).long()[None]
        with torch.no_grad():
            if pooling == RANK:
                yield whole(ids, **more).logits[0].numpy()
            else:
                yield pool(trunk(ids, **more).last_hidden_state[0], pooling)


ENTRIES = {
    "bert": [(p, n, 0) for p in (MEAN, CLS, LAST) for n in (1, 7, 250, 1300)],
    "cross": [(RANK, 2, 1), (RANK, 41, 12), (RANK, 300, 7), (RANK, 700, 0), (RANK, 1200, 600)],
    "xlmr": [(RANK, 3, 2), (RANK, 50, 20), (RANK, 1299, 300)],
    "qwen3": [(p, n, 0) for p in (MEAN, CLS, LAST) for n in (1, 100, 700)],
}


def main():
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder, open(sys.argv[1], "wb") as out:
        tiny = generator(folder)
        out.write(b"QVE1" + struct.pack("<I", sum(map(len, ENTRIES.values()))))
        for variant, entries in ENTRIES.items():
            path = os.path.join(folder, "tiny.gguf").encode()
            write = tiny.tiny_family_write if variant == "qwen3" else tiny.tiny_encoder_write
            assert not write(path, variant.encode(), 0, ctypes.c_uint64(SEED))
            for (pooling, n, n_first), v in zip(entries, vectors(path.decode(), variant, entries)):
                print(f"{variant:8} pooling {pooling}, {n:4} tokens: {v.shape[0]} numbers, largest {abs(v).max():.3f}", flush=True)
                out.write(struct.pack("<24s4I", variant.encode(), pooling, n, n_first, v.shape[0]) + v.astype("<f4").tobytes())


main()
