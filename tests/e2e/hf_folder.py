"""A GGUF model of the llama family as a folder of Hugging Face: config.json, safetensors, tokenizer.json and the rest."""

import json
import struct

import gguf
import numpy as np

LAYER = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_q": "self_attn.q_proj",
         "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
         "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
OTHERS = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
CONFIG = {"hidden_size": "embedding_length", "intermediate_size": "feed_forward_length", "num_hidden_layers": "block_count",
          "num_attention_heads": "attention.head_count", "num_key_value_heads": "attention.head_count_kv",
          "head_dim": "attention.key_length", "max_position_embeddings": "context_length",
          "rms_norm_eps": "attention.layer_norm_rms_epsilon", "rope_theta": "rope.freq_base", "vocab_size": "vocab_size"}


def contents(reader, key):
    return reader.fields[key].contents() if key in reader.fields else None


def tokenizer_json(reader, pre_tokenizers=()):
    """pre_tokenizers: in front of the byte level's own pattern."""
    pieces, kinds, merges = (contents(reader, f"tokenizer.ggml.{name}") for name in ("tokens", "token_type", "merges"))
    added = [{"id": i, "content": piece, "special": True, "single_word": False, "lstrip": False, "rstrip": False,
              "normalized": False} for i, (piece, kind) in enumerate(zip(pieces, kinds)) if kind == 3]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [*pre_tokenizers, byte_level]},
            "post_processor": None, "decoder": byte_level,
            "model": {"type": "BPE", "vocab": {piece: i for i, piece in enumerate(pieces)}, "merges": list(merges),
                      "byte_fallback": False, "ignore_merges": False}}


def config(reader):
    tied = not any(t.name == "output.weight" for t in reader.tensors)
    return {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "tie_word_embeddings": tied,
            "bos_token_id": 1, "eos_token_id": 2, "torch_dtype": "float32",
            **{theirs: contents(reader, f"llama.{ours}") for theirs, ours in CONFIG.items()}}


def tensors(reader):
    """Name and float32 array of each; rows of queries and keys in halves of a head instead of in pairs."""
    for t in reader.tensors:
        w = np.ascontiguousarray(gguf.dequantize(t.data, t.tensor_type), np.float32)
        part = t.name.split(".")
        if part[0] != "blk":
            yield f"{OTHERS[part[0]]}.{part[1]}", w
            continue
        if part[2] in ("attn_q", "attn_k"):
            heads = contents(reader, "llama.attention.head_count" + ("_kv" if part[2] == "attn_k" else ""))
            w = w.reshape(heads, -1, 2, w.shape[1]).swapaxes(1, 2).reshape(w.shape)
        yield f"model.layers.{part[1]}.{LAYER[part[2]]}.{part[3]}", w


def write_tensors(path, named):
    header, data = {}, []
    for name, w in named:
        begin = sum(map(len, data))
        data.append(w.tobytes())
        header[name] = {"dtype": "F32", "shape": list(w.shape), "data_offsets": [begin, begin + len(data[-1])]}
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(data))


def write(folder, source, n_files=1, **files):
    """files: further ones, or others instead: name with _ for . = text, bytes, an object for JSON, or None to leave it out."""
    reader = gguf.GGUFReader(source)
    tokens = contents(reader, "tokenizer.ggml.tokens")
    all_files = {"config_json": config(reader), "tokenizer_json": tokenizer_json(reader),
                 "tokenizer_config_json": {"bos_token": tokens[1], "eos_token": tokens[2],
                                           "chat_template": contents(reader, "tokenizer.chat_template")}, **files}
    folder.mkdir(exist_ok=True)
    for name, data in all_files.items():
        stem, _, end = name.rpartition("_")
        path = folder / f"{stem}.{end}"
        if data is None:
            path.unlink(missing_ok=True)
        elif isinstance(data, bytes):
            path.write_bytes(data)
        else:
            path.write_text(data if isinstance(data, str) else json.dumps(data))
    named = list(tensors(reader))
    if n_files == 1:
        write_tensors(folder / "model.safetensors", named)
        return folder
    weight_map = {}
    for i in range(n_files):
        name = f"model-{i + 1:05}-of-{n_files:05}.safetensors"
        write_tensors(folder / name, named[i::n_files])
        weight_map |= {tensor: name for tensor, _ in named[i::n_files]}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    return folder
