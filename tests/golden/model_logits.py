"""Golden logits of the default model, dequantized to float32, from transformers (float32).

    python model_logits.py MODEL.gguf TOKENIZER.json OUT.bin

Needs torch, transformers, gguf, tokenizers, numpy. TOKENIZER.json: a tokenizer of the `tokenizers` package; see
model_tokenizer.py. The GGUF holds query and key weights with permuted rows; they are put back for transformers.

OUT.bin, little-endian: "QLG1"; u32 n_positions, n_vocab, n_top, n_fixed; u32 token[n_positions]; u32 fixed_id[n_fixed];
then for each position f64 logsumexp, u32 top_id[n_top], f32 top_logit[n_top], f32 fixed_logit[n_fixed].
"""

import struct
import sys

import numpy as np
import torch
from gguf import GGUFReader
from gguf.quants import dequantize
from tokenizers import Tokenizer
from transformers import LlamaConfig, LlamaForCausalLM

from model_text import TEXT

N_POSITIONS, N_TOP, N_FIXED = 500, 16, 64


def unpermute(w, n_heads):
    rows, cols = w.shape
    return w.reshape(n_heads, rows // n_heads // 2, 2, cols).swapaxes(1, 2).reshape(rows, cols)


def load(path):
    reader = GGUFReader(path)
    get = lambda key: reader.fields["llama." + key].contents()
    config = LlamaConfig(
        vocab_size=get("vocab_size"), hidden_size=get("embedding_length"), num_hidden_layers=get("block_count"),
        intermediate_size=get("feed_forward_length"), num_attention_heads=get("attention.head_count"),
        num_key_value_heads=get("attention.head_count_kv"), max_position_embeddings=get("context_length"),
        rope_theta=get("rope.freq_base"), rms_norm_eps=get("attention.layer_norm_rms_epsilon"),
        tie_word_embeddings=True, attn_implementation="eager")
    names = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_q": "self_attn.q_proj",
             "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
             "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
    state = {}
    for t in reader.tensors:
        w = dequantize(t.data, t.tensor_type).astype(np.float32)
        part = t.name.split(".")
        if part[0] == "blk":
            if part[2] in ("attn_q", "attn_k"):
                w = unpermute(w, config.num_attention_heads if part[2] == "attn_q" else config.num_key_value_heads)
            name = f"model.layers.{part[1]}.{names[part[2]]}.weight"
        else:
            name = {"token_embd": "model.embed_tokens.weight", "output_norm": "model.norm.weight"}[part[0]]
        state[name] = torch.from_numpy(np.ascontiguousarray(w))
    state["lm_head.weight"] = state["model.embed_tokens.weight"]
    model = LlamaForCausalLM(config)
    missing = model.load_state_dict(state, strict=False)
    assert not missing.unexpected_keys and all("inv_freq" in k for k in missing.missing_keys), missing
    return model.eval()


def main():
    model_path, tokenizer_path, out_path = sys.argv[1:]
    tokens = Tokenizer.from_file(tokenizer_path).encode(TEXT).ids
    assert len(tokens) >= N_POSITIONS, len(tokens)
    tokens = tokens[:N_POSITIONS]
    torch.set_num_threads(2)
    model = load(model_path)
    with torch.no_grad():
        logits = model(torch.tensor([tokens])).logits[0]
        double = model.double()(torch.tensor([tokens])).logits[0]
    error = (logits.double() - double).abs().max().item()
    print(f"transformers float32 against float64: largest difference {error:.2e}")
    assert logits.dtype == torch.float32
    n_vocab = logits.shape[1]
    fixed = np.random.RandomState(7).choice(n_vocab, N_FIXED, replace=False).astype("<u4")
    x = logits.numpy()
    sums = torch.logsumexp(logits.double(), dim=1).numpy()
    with open(out_path, "wb") as f:
        f.write(b"QLG1" + struct.pack("<4I", N_POSITIONS, n_vocab, N_TOP, N_FIXED))
        f.write(np.array(tokens, "<u4").tobytes() + fixed.tobytes())
        for i in range(N_POSITIONS):
            top = np.argsort(-x[i], kind="stable")[:N_TOP].astype("<u4")
            f.write(struct.pack("<d", sums[i]) + top.tobytes() + x[i][top].astype("<f4").tobytes())
            f.write(x[i][fixed].astype("<f4").tobytes())


main()
