"""A Hugging Face folder of a BERT encoder as GGUF, with the keys and names that published converters write.

    python encoder_gguf.py FOLDER OUT.gguf

Needs numpy, safetensors and gguf. Handles BertModel with a WordPiece tokenizer.json, float32.
"""

import json
import os
import sys

import gguf
from safetensors.numpy import load_file

POOLING = {"pooling_mode_mean_tokens": gguf.PoolingType.MEAN, "pooling_mode_cls_token": gguf.PoolingType.CLS,
           "pooling_mode_lasttoken": gguf.PoolingType.LAST}
LAYER = {"attention.self.query": "attn_q", "attention.self.key": "attn_k", "attention.self.value": "attn_v",
         "attention.output.dense": "attn_output", "attention.output.LayerNorm": "attn_output_norm",
         "intermediate.dense": "ffn_up", "output.dense": "ffn_down", "output.LayerNorm": "layer_output_norm"}
MODEL = {"embeddings.word_embeddings": "token_embd", "embeddings.position_embeddings": "position_embd",
         "embeddings.token_type_embeddings": "token_types", "embeddings.LayerNorm": "token_embd_norm"}


def read(folder, name):
    with open(os.path.join(folder, name), encoding="utf-8") as f:
        return json.load(f)


def add_tokenizer(w, folder):
    spec = read(folder, "tokenizer.json")
    vocab = sorted(spec["model"]["vocab"].items(), key=lambda x: x[1])
    special = {t["content"]: t["id"] for t in spec["added_tokens"]}
    pieces, types = [], []
    for token, _ in vocab:
        control = token in special
        pieces.append(token if control else token[2:] if token.startswith("##") else "\u2581" + token)
        types.append(gguf.TokenType.CONTROL if control else gguf.TokenType.NORMAL)
    w.add_tokenizer_model("bert")
    w.add_tokenizer_pre("jina-v2-en")
    w.add_token_list(pieces)
    w.add_token_types(types)
    w.add_token_type_count(2)
    w.add_bos_token_id(special["[CLS]"])
    w.add_unk_token_id(special["[UNK]"])
    w.add_sep_token_id(special["[SEP]"])
    w.add_pad_token_id(special["[PAD]"])
    w.add_uint32("tokenizer.ggml.cls_token_id", special["[CLS]"])
    w.add_mask_token_id(special["[MASK]"])


def add_keys(w, folder):
    c = read(folder, "config.json")
    w.add_context_length(c["max_position_embeddings"])
    w.add_embedding_length(c["hidden_size"])
    w.add_feed_forward_length(c["intermediate_size"])
    w.add_block_count(c["num_hidden_layers"])
    w.add_head_count(c["num_attention_heads"])
    w.add_layer_norm_eps(c["layer_norm_eps"])
    w.add_causal_attention(False)
    modes = read(folder, "1_Pooling/config.json")
    w.add_pooling_type(next(v for k, v in POOLING.items() if modes.get(k)))


def tensor_name(name):
    base, kind = name.rsplit(".", 1)
    if base in MODEL:
        return MODEL[base] + (".weight" if kind == "weight" else "." + kind)
    part = base.split(".", 3)
    return f"blk.{part[2]}.{LAYER[part[3]]}.{kind}" if part[:2] == ["encoder", "layer"] else None


def main():
    folder, out = sys.argv[1:]
    w = gguf.GGUFWriter(out, "bert")
    add_keys(w, folder)
    add_tokenizer(w, folder)
    for name, data in load_file(os.path.join(folder, "model.safetensors")).items():
        ours = tensor_name(name.removeprefix("bert."))
        if ours:  # not the pooler, nor the numbers of positions
            w.add_tensor(ours, data.astype("float32"))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


main()
