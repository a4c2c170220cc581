"""Golden logits of a small random model of each family, from transformers (float32).

    python model_families.py OUT.bin [VARIANT ...]

Needs torch, transformers 5, gguf, numpy and a C compiler. The models are those of tests/util/tiny_family.c, which is compiled
and asked to write them; what follows maps their tensors and keys to the reference's, as published converters do in reverse.

OUT.bin, little-endian: "QTF1"; u32 n_entries, n_tokens, n_vocab; u32 token[n_tokens]; then for each entry
char variant[24]; u32 max_model_len (0 = the model's own), n_positions; u32 position[n_positions];
f32 logits[n_positions][n_vocab].
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
from gguf.quants import dequantize

HERE = os.path.dirname(os.path.abspath(__file__))
UTIL = os.path.join(HERE, "../util")
N_TOKENS, N_VOCAB = 120, 300
POSITIONS = [0, 1, 39, 40, 64, 100, 119]
SEED = 11


def generator(folder):
    library = os.path.join(folder, "tiny.so")
    sources = [os.path.join(UTIL, f) for f in ("tiny_family.c", "tiny_model.c", "tiny_quant.c", "gguf_build.c")]
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-std=gnu17", "-I", os.path.join(HERE, ".."), "-o", library, *sources,
                    "-lm"], check=True)
    return ctypes.CDLL(library)


class File:
    def __init__(self, path):
        reader = GGUFReader(path)
        self.arch = reader.fields["general.architecture"].contents()
        self.fields = reader.fields
        self.tensors = {}
        for t in reader.tensors:
            w = dequantize(t.data, t.tensor_type).astype(np.float32)
            self.tensors[t.name] = torch.from_numpy(np.ascontiguousarray(w))

    def __call__(self, key, default=None):
        field = self.fields.get(f"{self.arch}.{key}")
        return default if field is None else field.contents()

    def layer(self, i, name):
        return self.tensors[f"blk.{i}.{name}"]


def unpermute(w, n_heads):
    """Pairs that lie next to each other, back to half a head apart."""
    return w.reshape(n_heads, w.shape[0] // n_heads // 2, 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


ATTENTION = {"attn_q": "q_proj", "attn_k": "k_proj", "attn_v": "v_proj", "attn_output": "o_proj", "attn_qkv": "qkv_proj",
             "attn_q_norm": "q_norm", "attn_k_norm": "k_norm", "attn_q_a": "q_a_proj", "attn_q_a_norm": "q_a_layernorm",
             "attn_q_b": "q_b_proj", "attn_kv_a_mqa": "kv_a_proj_with_mqa", "attn_kv_a_norm": "kv_a_layernorm",
             "attn_kv_b": "kv_b_proj"}
DENSE = {"ffn_gate": "gate_proj", "ffn_up": "up_proj", "ffn_down": "down_proj"}


def experts(f, i, p, out):
    """A layer's experts under the name p."""
    get = lambda name: f.layer(i, name)
    both = torch.cat([get("ffn_gate_exps.weight"), get("ffn_up_exps.weight")], 1)
    if f.arch == "granitemoe":
        out[p + "block_sparse_moe.router.layer.weight"] = get("ffn_gate_inp.weight")
        out[p + "block_sparse_moe.input_linear.weight"] = both
        out[p + "block_sparse_moe.output_linear.weight"] = get("ffn_down_exps.weight")
        out[p + "shared_mlp.input_linear.weight"] = torch.cat([get("ffn_gate_shexp.weight"), get("ffn_up_shexp.weight")])
        out[p + "shared_mlp.output_linear.weight"] = get("ffn_down_shexp.weight")
        return
    if f.arch == "gpt-oss":
        turn = lambda a, b: torch.stack([a, b], -1).flatten(-2)  # gate and up take turns
        out[p + "mlp.router.weight"] = get("ffn_gate_inp.weight")
        out[p + "mlp.router.bias"] = get("ffn_gate_inp.bias")
        out[p + "mlp.experts.gate_up_proj"] = turn(get("ffn_gate_exps.weight").swapaxes(1, 2),
                                                   get("ffn_up_exps.weight").swapaxes(1, 2))
        out[p + "mlp.experts.gate_up_proj_bias"] = turn(get("ffn_gate_exps.bias"), get("ffn_up_exps.bias"))
        out[p + "mlp.experts.down_proj"] = get("ffn_down_exps.weight").swapaxes(1, 2)
        out[p + "mlp.experts.down_proj_bias"] = get("ffn_down_exps.bias")
        return
    if f.arch == "deepseek2":
        if f("expert_gating_func") == 2:
            out[p + "mlp.gate.e_score_correction_bias"] = get("exp_probs_b.bias")
        for name, theirs in DENSE.items():
            out[p + f"mlp.shared_experts.{theirs}.weight"] = get(f"{name}_shexp.weight")
    out[p + "mlp.gate.weight"] = get("ffn_gate_inp.weight")
    out[p + "mlp.experts.gate_up_proj"] = both
    out[p + "mlp.experts.down_proj"] = get("ffn_down_exps.weight")
    if f.arch == "qwen2moe":
        out[p + "mlp.shared_expert_gate.weight"] = get("ffn_gate_inp_shexp.weight").reshape(1, -1)
        for name, theirs in DENSE.items():
            out[p + f"mlp.shared_expert.{theirs}.weight"] = get(f"{name}_shexp.weight")


def state_of(f):
    gemma = f.arch.startswith("gemma")
    permuted = f.arch in ("llama", "mistral3", "granite", "granitemoe", "smollm3")
    norms = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm"}
    if gemma and f.arch != "gemma":
        norms = {"attn_norm": "input_layernorm", "post_attention_norm": "post_attention_layernorm",
                 "ffn_norm": "pre_feedforward_layernorm", "post_ffw_norm": "post_feedforward_layernorm"}
    elif f.arch == "olmo2":
        norms = {"post_attention_norm": "post_attention_layernorm", "post_ffw_norm": "post_feedforward_layernorm"}
    elif f.arch == "gpt-oss":
        norms = {"attn_norm": "input_layernorm", "post_attention_norm": "post_attention_layernorm"}
    out = {"model.embed_tokens.weight": f.tensors["token_embd.weight"], "model.norm.weight": f.tensors["output_norm.weight"],
           "lm_head.weight": f.tensors.get("output.weight", f.tensors["token_embd.weight"])}
    for i in range(f("block_count")):
        p = f"model.layers.{i}."
        for name, w in f.tensors.items():
            part = name.split(".")
            if part[:2] != ["blk", str(i)]:
                continue
            if part[2] in ("attn_q", "attn_k") and permuted:
                w = unpermute(w, f("attention.head_count" if part[2] == "attn_q" else "attention.head_count_kv"))
            if part[2] in ATTENTION:
                out[p + f"self_attn.{ATTENTION[part[2]]}.{part[3]}"] = w
            elif part[2] in norms:
                out[p + f"{norms[part[2]]}.weight"] = w
            elif part[2] == "ffn_up" and f.arch == "phi3":
                out[p + "mlp.gate_up_proj.weight"] = w
            elif part[2] in DENSE:
                out[p + f"mlp.{DENSE[part[2]]}.weight"] = w
            elif part[2] == "attn_sinks":
                out[p + "self_attn.sinks"] = w
        if f("expert_count") and i >= f("leading_dense_block_count", 0):
            experts(f, i, p, out)
        if f"blk.{i}.attn_k_b.weight" in f.tensors:  # [head][rank][key] and [head][value][rank]
            both = [f.layer(i, "attn_k_b.weight").swapaxes(1, 2), f.layer(i, "attn_v_b.weight")]
            out[p + "self_attn.kv_b_proj.weight"] = torch.cat(both, 1).flatten(0, 1)
    if gemma:  # stored as 1 + w
        out = {k: w - 1 if "norm" in k else w for k, w in out.items()}
    return out


MODELS = {"llama": T.MixtralForCausalLM, "mistral3": T.Ministral3ForCausalLM, "gemma": T.GemmaForCausalLM,
          "qwen2": T.Qwen2ForCausalLM, "qwen3": T.Qwen3ForCausalLM,
          "gemma2": T.Gemma2ForCausalLM, "gemma3": T.Gemma3ForCausalLM, "phi3": T.Phi3ForCausalLM,
          "qwen2moe": T.Qwen2MoeForCausalLM, "qwen3moe": T.Qwen3MoeForCausalLM, "gpt-oss": T.GptOssForCausalLM,
          "olmo2": T.Olmo2ForCausalLM, "olmo3": T.Olmo3ForCausalLM, "granite": T.GraniteForCausalLM,
          "deepseek2": T.DeepseekV2ForCausalLM, "deepseek3": T.DeepseekV3ForCausalLM,
          "granitemoe": T.GraniteMoeSharedForCausalLM, "smollm3": T.SmolLM3ForCausalLM}


def latent(f, c):
    key = f("attention.key_length_mla", f("attention.key_length"))
    if (log := f("rope.scaling.yarn_log_multiplier")) is not None:
        c["rope_parameters"] |= {"mscale": 10 * log, "mscale_all_dim": 10 * log}
    c |= {"kv_lora_rank": f("attention.kv_lora_rank"), "q_lora_rank": f("attention.q_lora_rank"),
          "qk_nope_head_dim": key - f("rope.dimension_count"), "qk_rope_head_dim": f("rope.dimension_count"),
          "v_head_dim": f("attention.value_length_mla", f("attention.value_length")),
          "num_key_value_heads": f("attention.head_count"), "first_k_dense_replace": f("leading_dense_block_count"),
          "n_routed_experts": f("expert_count"), "num_experts_per_tok": f("expert_used_count"),
          "n_shared_experts": f("expert_shared_count"), "moe_intermediate_size": f("expert_feed_forward_length"),
          "n_group": f("expert_group_count", 1), "topk_group": f("expert_group_used_count", 1),
          "topk_method": "group_limited_greedy" if f("expert_group_count") else "greedy",
          "routed_scaling_factor": f("expert_weights_scale", 1.0), "norm_topk_prob": f("expert_weights_norm", False),
          "num_nextn_predict_layers": 0}
    del c["head_dim"]


def config_of(f, kind):
    """Keys of the reference's configuration, where its presets are not what the file says."""
    rope = {"rope_type": "default", "rope_theta": f("rope.freq_base")}
    if f("rope.scaling.type"):
        rope |= {"rope_type": f("rope.scaling.type"), "factor": f("rope.scaling.factor")}
    if f("rope.scaling.type") == "yarn":
        rope["original_max_position_embeddings"] = f("rope.scaling.original_context_length")
    c = {"vocab_size": N_VOCAB, "hidden_size": f("embedding_length"), "num_hidden_layers": f("block_count"),
         "intermediate_size": f("feed_forward_length"), "num_attention_heads": f("attention.head_count"),
         "num_key_value_heads": f("attention.head_count_kv"), "head_dim": f("attention.key_length"),
         "max_position_embeddings": f("context_length"), "rms_norm_eps": f("attention.layer_norm_rms_epsilon"),
         "tie_word_embeddings": "output.weight" not in f.tensors, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
         "sliding_window": f("attention.sliding_window"), "rope_parameters": rope, "attn_implementation": "eager"}
    if kind == "gemma2":
        c |= {"query_pre_attn_scalar": f("attention.key_length"), "attn_logit_softcapping": f("attn_logit_softcapping"),
              "final_logit_softcapping": f("final_logit_softcapping")}
    elif kind == "gemma3":
        local = {"rope_type": "default", "rope_theta": f("rope.freq_base_swa")}
        c |= {"query_pre_attn_scalar": f("attention.key_length"),
              "rope_parameters": {"full_attention": rope, "sliding_attention": local}}
    elif kind == "phi3":
        if "rope_factors_long.weight" in f.tensors:
            rope |= {"rope_type": "longrope", "long_factor": f.tensors["rope_factors_long.weight"].tolist(),
                     "short_factor": f.tensors["rope_factors_short.weight"].tolist(),
                     "original_max_position_embeddings": f("rope.scaling.original_context_length")}
            c["original_max_position_embeddings"] = f("rope.scaling.original_context_length")
        c["partial_rotary_factor"] = f("rope.dimension_count") / f("attention.key_length")
    elif kind == "gpt-oss":
        rope["truncate"] = False
    elif kind == "mistral3":
        rope |= {"mscale": 1.0, "mscale_all_dim": f("rope.scaling.yarn_log_multiplier"),
                 "llama_4_scaling_beta": f("attention.temperature_scale")}
    elif kind in ("granite", "granitemoe"):
        c |= {"attention_multiplier": f("attention.scale"), "embedding_multiplier": f("embedding_scale"),
              "residual_multiplier": f("residual_scale"), "logits_scaling": f("logit_scale")}
    elif kind in ("deepseek2", "deepseek3"):
        latent(f, c)
        return c
    elif kind == "smollm3":
        c["use_sliding_window"] = False
    if f("expert_count"):
        c |= {"num_experts_per_tok": f("expert_used_count"), "num_experts": f("expert_count"),
              "num_local_experts": f("expert_count")}
        ff, shared = f("expert_feed_forward_length", f("feed_forward_length")), f("expert_shared_feed_forward_length", 0)
        if kind in ("qwen2moe", "qwen3moe"):
            c |= {"moe_intermediate_size": ff, "shared_expert_intermediate_size": shared, "norm_topk_prob": kind == "qwen3moe"}
        else:
            c |= {"intermediate_size": ff, "shared_intermediate_size": shared}
    return c


def unscaled_windows(model):
    """Olmo 3 scales angles in layers with full attention only (technical report, section on long context; transformers 4.57);
    transformers 5.2 does so in all layers."""
    config = model.config.__class__(**{**model.config.to_dict(), "rope_parameters": {
        "rope_type": "default", "rope_theta": model.config.rope_parameters["rope_theta"]}})
    plain = type(model.model.rotary_emb)(config=config)

    def swap(layer, args, kwargs):
        ids = torch.arange(args[0].shape[1])[None]
        return args, {**kwargs, "position_embeddings": plain(args[0], ids)}

    for layer, kind in zip(model.model.layers, model.config.layer_types):
        if kind == "sliding_attention":
            layer.register_forward_pre_hook(swap, with_kwargs=True)


def logits(path, variant, tokens):
    f = File(path)
    kind = variant if variant == "olmo3" else "deepseek3" if f("expert_gating_func") == 2 else f.arch
    model = MODELS[kind](MODELS[kind].config_class(**config_of(f, kind))).eval()
    missing = model.load_state_dict(state_of(f), strict=False)
    assert not missing.unexpected_keys and not missing.missing_keys, missing
    if kind == "olmo3":
        unscaled_windows(model)
    with torch.no_grad():
        return model(torch.tensor([tokens]), use_cache=False).logits[0].numpy()


def main():
    tokens = [(i * i * 7 + i * 13 + 5) % N_VOCAB for i in range(N_TOKENS)]
    with tempfile.TemporaryDirectory() as folder:
        tiny = generator(folder)
        tiny.tiny_family_variants.restype = ctypes.POINTER(ctypes.c_char_p)
        variants, names = [], tiny.tiny_family_variants()
        while names[len(variants)]:
            variants.append(names[len(variants)].decode())
        # (variant, longest sequence, tokens); scalings by length are fixed by the longest sequence
        entries = [(v, 0, N_TOKENS) for v in variants if not sys.argv[2:] or v in sys.argv[2:]]
        entries += [(v, 64, 64) for v, *_ in entries if v == "phi3-long"]
        with open(sys.argv[1], "wb") as out:
            out.write(b"QTF1" + struct.pack("<3I", len(entries), N_TOKENS, N_VOCAB) + np.array(tokens, "<u4").tobytes())
            for variant, longest, n in entries:
                path = os.path.join(folder, "tiny.gguf")
                assert not tiny.tiny_family_write(path.encode(), variant.encode(), 0, ctypes.c_uint64(SEED))
                x = logits(path, variant, tokens[:n])
                positions = [p for p in POSITIONS if p < n]
                print(f"{variant:12} {n:4} tokens, largest logit {abs(x).max():.3f}, deviation {x.std():.3f}", flush=True)
                out.write(struct.pack("<24s2I", variant.encode(), longest, len(positions)))
                out.write(np.array(positions, "<u4").tobytes() + x[positions].astype("<f4").tobytes())


if __name__ == "__main__":
    main()
