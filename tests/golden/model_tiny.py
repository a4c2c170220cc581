"""Golden logits of small random models, each with one feature of the llama family, from transformers (float32).

    python model_tiny.py OUT.bin

Needs torch, transformers, gguf, numpy. The models are those of scripts/make_test_gguf.py, which tests/util/tiny_model.c
writes too.

OUT.bin, little-endian: "QTG1"; u32 n_variants, n_tokens, n_vocab, n_positions; u32 token[n_tokens];
u32 position[n_positions]; then for each variant f32 logits[n_positions][n_vocab].
"""

import os
import struct
import subprocess
import sys
import tempfile

import numpy as np
import torch
from gguf import GGUFReader
from gguf.quants import dequantize
from transformers import LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM

HERE = os.path.dirname(os.path.abspath(__file__))
N_TOKENS, N_VOCAB, POSITIONS = 120, 300, [0, 1, 39, 40, 63, 64, 100, 119]
BASE = ["--vocab", str(N_VOCAB), "--width", "128", "--rope-original-context", "64", "--context", "2048"]
# In the order of TINY_VARIANTS in test_faithful.c: options of the file, configuration of transformers.
VARIANTS = [
    (["--seed", "1"], {}),
    (["--seed", "2", "--tied"], {}),
    (["--seed", "3", "--rope-scaling", "linear", "--rope-factor", "4"],
     {"rope_scaling": {"rope_type": "linear", "factor": 4.0}}),
    (["--seed", "4", "--rope-scaling", "yarn", "--rope-factor", "4"],
     {"rope_scaling": {"rope_type": "yarn", "factor": 4.0}, "max_position_embeddings": 64}),
    (["--seed", "5", "--rope-freqs"],
     {"rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                       "original_max_position_embeddings": 64}}),
    (["--seed", "6", "--sliding-window", "40"], {"sliding_window": 40}),
    (["--seed", "7", "--kv-heads", "4"], {}),
]
NAMES = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_q": "self_attn.q_proj",
         "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
         "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
TOP = {"token_embd": "model.embed_tokens.weight", "output_norm": "model.norm.weight", "output": "lm_head.weight"}


def unpermute(w, n_heads):
    rows, cols = w.shape
    return w.reshape(n_heads, rows // n_heads // 2, 2, cols).swapaxes(1, 2).reshape(rows, cols)


def logits(path, overrides, tokens):
    reader = GGUFReader(path)
    get = lambda key: reader.fields["llama." + key].contents()
    n_heads, n_kv = get("attention.head_count"), get("attention.head_count_kv")
    state = {}
    for t in reader.tensors:
        w = dequantize(t.data, t.tensor_type).astype(np.float32)
        part = t.name.split(".")
        if part[0] == "rope_freqs":
            continue
        if part[0] == "blk" and part[2] in ("attn_q", "attn_k"):
            w = unpermute(w, n_heads if part[2] == "attn_q" else n_kv)
        name = f"model.layers.{part[1]}.{NAMES[part[2]]}.weight" if part[0] == "blk" else TOP[part[0]]
        state[name] = torch.from_numpy(np.ascontiguousarray(w))
    tied = "lm_head.weight" not in state
    if tied:
        state["lm_head.weight"] = state["model.embed_tokens.weight"]
    settings = {"vocab_size": N_VOCAB, "hidden_size": get("embedding_length"), "num_hidden_layers": get("block_count"),
                "intermediate_size": get("feed_forward_length"), "num_attention_heads": n_heads,
                "num_key_value_heads": n_kv, "max_position_embeddings": get("context_length"),
                "rope_theta": get("rope.freq_base"), "rms_norm_eps": get("attention.layer_norm_rms_epsilon"),
                "tie_word_embeddings": tied, "attn_implementation": "eager", **overrides}
    config, kind = (MistralConfig, MistralForCausalLM) if "sliding_window" in overrides else (LlamaConfig, LlamaForCausalLM)
    model = kind(config(**settings))
    missing = model.load_state_dict(state, strict=False)
    assert not missing.unexpected_keys and all("inv_freq" in k for k in missing.missing_keys), missing
    with torch.no_grad():
        return model.eval()(torch.tensor([tokens])).logits[0].numpy()


def main():
    tokens = [(i * i * 7 + i * 13 + 5) % N_VOCAB for i in range(N_TOKENS)]
    with open(sys.argv[1], "wb") as f, tempfile.TemporaryDirectory() as folder:
        f.write(b"QTG1" + struct.pack("<4I", len(VARIANTS), N_TOKENS, N_VOCAB, len(POSITIONS)))
        f.write(np.array(tokens, "<u4").tobytes() + np.array(POSITIONS, "<u4").tobytes())
        for options, overrides in VARIANTS:
            path = os.path.join(folder, "tiny.gguf")
            subprocess.run([sys.executable, os.path.join(HERE, "../../scripts/make_test_gguf.py"), path, *BASE, *options],
                           check=True)
            x = logits(path, overrides, tokens)
            print(options, "largest logit", abs(x).max())
            f.write(x[POSITIONS].astype("<f4").tobytes())


main()
