"""Golden logits of small models in folders as transformers saves them, from transformers (float32).

    python model_folders.py OUT.bin [VARIANT ...]

Needs torch, transformers 5, numpy. A model's weights are a function of its tensors' names (value_of, and the same in
tests/unit/model/util_folder.c), so what is kept is config.json, the header of the safetensors file with how each tensor is
filled, and the logits.

OUT.bin, little-endian: "QHF1"; u32 n_entries; then for each entry char variant[24]; u32 n_config, n_header, max_model_len (0 =
the model's own), n_tokens, n_vocab, n_ids; the bytes of config.json and of the header; for each position f32 logsumexp, and
f32 logits of n_ids tokens (id_of). Texts are padded with spaces to a multiple of 4 bytes.

A tensor is filled by what __metadata__ says under its name: "SHIFT MEAN LIMIT", values MEAN + k * 2^-SHIFT with k a hash of
name and index in [-LIMIT, LIMIT], which every dtype has exactly; of U8 MEAN + (k + LIMIT)."""

import json
import math
import os
import struct
import sys
import tempfile

import numpy as np
import torch
import transformers as T
from safetensors.torch import save_file

from model_families import unscaled_windows

N_TOKENS, N_VOCAB, N_IDS = 512, 160, 5
CODES = {"F32": ("<f4", 4), "F16": ("<f2", 2), "BF16": (None, 2), "F8_E4M3": (None, 1), "F8_E5M2": (None, 1), "U8": ("u1", 1)}
SMALL = dict(vocab_size=N_VOCAB, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, head_dim=24, max_position_embeddings=1024, pad_token_id=0, bos_token_id=1, eos_token_id=2)


def tokens_of(n):
    return [(i * i * 7 + i * 13 + 5) % N_VOCAB for i in range(n)]


def id_of(position, k):
    return (position * 31 + k * 37) % N_VOCAB


def value_of(name, count, shift, mean, limit):
    """The integers k, then the values."""
    h = 0xCBF29CE484222325
    for byte in name.encode():
        h = (h ^ byte) * 0x100000001B3 % 2**64
    with np.errstate(over="ignore"):
        z = np.arange(count, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(h)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
    k = (z >> np.uint64(40)).astype(np.int64) % (2 * limit + 1) - limit
    return k, (mean + k * 2.0**-shift).astype(np.float32)


def how(name, shape, dtype, gemma, tied):
    """shift, mean, limit"""
    if dtype == "U8":
        return (0, 0, 127) if name.endswith("_blocks") else (0, 120, 1)
    if name.endswith(("_scale", "_scale_inv")):
        return 7, 1, 96
    if ("norm" in name.lower() or name.endswith(YI_NORMS)) and not name.endswith(("bias", "beta")):
        return 7, 0 if gemma else 1, 24
    if len(shape) == 1 or name.endswith("bias"):
        return 9, 0, 96
    limit = {"F8_E4M3": 15, "F8_E5M2": 7}.get(dtype, 127)
    gain = (0.2 if tied else 1.5) if "embed" in name else 2.0 if any(x in name for x in ("q_proj", "k_proj", "gate", "query", "key")) else 1.0
    spread = math.sqrt(limit * (limit + 1) / 3)
    columns = 1 if "embed" in name else shape[-1]
    return round(math.log2(spread * math.sqrt(columns) / gain)), 0, limit


def encode(values, dtype):
    t = torch.from_numpy(values)
    kinds = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2}
    low = t.to(kinds[dtype])
    assert torch.equal(low.float(), t), f"{dtype} has not these values"
    return low.view(torch.uint8).numpy().tobytes()


def write(path, shapes, gemma, tied, dtype_of):
    """The safetensors file; returns its header, as text, and the values."""
    header, data, metadata, values = {}, b"", {}, {}
    for name, shape in sorted(shapes.items()):
        dtype = dtype_of(name, shape)
        shift, mean, limit = how(name, shape, dtype, gemma, tied)
        k, v = value_of(name, math.prod(shape), shift, mean, limit)
        raw = (mean + k + limit).astype(np.uint8).tobytes() if dtype == "U8" else encode(v, dtype)
        values[name] = (np.frombuffer(raw, np.uint8) if dtype == "U8" else v).reshape(shape)
        metadata[name] = f"{shift} {mean} {limit}"
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps({"__metadata__": metadata, **header}, separators=(",", ":"))
    text += " " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text.encode() + data)
    return text, values


def old_spelling(c):
    """config.json as transformers 4 has it."""
    rope = c.pop("rope_parameters")
    if "full_attention" in rope:
        c["rope_local_base_freq"] = rope["sliding_attention"]["rope_theta"]
        rope = rope["full_attention"]
    c["rope_theta"] = rope.pop("rope_theta")
    rope.pop("partial_rotary_factor", None)
    c["rope_scaling"] = rope if rope.get("rope_type", "default") != "default" else None
    c["torch_dtype"] = c.pop("dtype")
    c.pop("layer_types", None)
    if c["model_type"] == "phi3":
        c.pop("head_dim")
    if c["model_type"] == "gemma":
        c["hidden_act"] = "gelu"  # which meant gelu_pytorch_tanh
    if "num_local_experts" in c and c["model_type"] in ("qwen2_moe", "qwen3_moe"):
        c["num_experts"] = c.pop("num_local_experts")
    if "_sliding_window_pattern" in c:
        c["sliding_window_pattern"] = c.pop("_sliding_window_pattern")
    return c


def rope(kind, **more):
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 10000.0, **more}}


PAIRS = 12
LONG = dict(long_factor=[1 + 0.9 * i for i in range(PAIRS)], short_factor=[0.9 + 0.1 * i for i in range(PAIRS)],
            original_max_position_embeddings=256)
GRANITE = dict(attention_multiplier=0.3, embedding_multiplier=3.0, residual_multiplier=0.4, logits_scaling=2.0)
MOE = dict(num_local_experts=8, num_experts_per_tok=3)
QWEN_MOE = dict(num_experts=8, num_experts_per_tok=3, moe_intermediate_size=32)
LLAMA3 = dict(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=128)
GEMMA3_ROPE = {"rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
                                   "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}}

LATENT = dict(kv_lora_rank=32, qk_nope_head_dim=16, qk_rope_head_dim=8, v_head_dim=24, n_routed_experts=16,
              num_experts_per_tok=3, moe_intermediate_size=32, num_hidden_layers=3, first_k_dense_replace=1,
              num_key_value_heads=4, head_dim=8)
YARN16 = dict(factor=16.0, original_max_position_embeddings=64)
DEEPSEEK3 = dict(**LATENT, q_lora_rank=48, n_group=4, topk_group=2, n_shared_experts=1, routed_scaling_factor=2.5,
                 num_nextn_predict_layers=0)

MINISTRAL3 = rope("yarn", factor=16.0, original_max_position_embeddings=64, mscale=1.0, mscale_all_dim=1.0,
                  llama_4_scaling_beta=0.1)
GPT_OSS = dict(sliding_window=40, **MOE, **rope("yarn", factor=4.0, original_max_position_embeddings=128, truncate=False))

# variant: (class, configuration, other options)
VARIANTS = {
    "llama": ("Llama", {}, dict(old=True)),
    "llama-biases": ("Llama", dict(attention_bias=True, mlp_bias=True, tie_word_embeddings=True), {}),
    "llama-linear": ("Llama", rope("linear", factor=4.0), {}),
    "llama-dynamic": ("Llama", dict(max_position_embeddings=256, **rope("dynamic", factor=4.0)), dict(length=512)),
    "llama-llama3": ("Llama", rope("llama3", **LLAMA3), dict(old=True)),
    "llama-yarn": ("Llama", rope("yarn", factor=4.0, original_max_position_embeddings=128), {}),
    "llama-longrope": ("Llama", rope("longrope", **LONG), dict(length=512)),
    "llama-dtypes": ("Llama", {}, dict(dtypes=["BF16", "F16", "F8_E4M3", "F32"])),
    "mistral": ("Mistral", dict(sliding_window=100), {}),
    "mistral3": ("Mistral", dict(sliding_window=None), dict(wrapped="Mistral3")),
    "ministral3": ("Ministral3", MINISTRAL3, {}),
    "ministral3-wrapped": ("Ministral3", dict(sliding_window=100, **MINISTRAL3), dict(wrapped="Mistral3")),
    "yi": ("Llama", {}, dict(yi=True)),
    "mixtral": ("Mixtral", MOE, dict(old=True)),
    "qwen2": ("Qwen2", {}, dict(old=True)),
    "qwen2-window": ("Qwen2", dict(use_sliding_window=True, sliding_window=70, max_window_layers=1, num_hidden_layers=3), {}),
    "qwen2moe": ("Qwen2Moe", dict(shared_expert_intermediate_size=96, **QWEN_MOE), {}),
    "qwen3": ("Qwen3", dict(tie_word_embeddings=True), {}),
    "qwen3moe": ("Qwen3Moe", dict(norm_topk_prob=True, **QWEN_MOE), {}),
    "qwen3moe-plain": ("Qwen3Moe", dict(norm_topk_prob=False, **QWEN_MOE), dict(old=True)),
    "gemma": ("Gemma", {}, dict(old=True)),
    "gemma2": ("Gemma2", dict(sliding_window=40, query_pre_attn_scalar=16, attn_logit_softcapping=5.0,
                              final_logit_softcapping=3.0), {}),
    "gemma3": ("Gemma3", dict(sliding_window=40, query_pre_attn_scalar=16, num_hidden_layers=7, **GEMMA3_ROPE), {}),
    "gemma3-wrapped": ("Gemma3", dict(sliding_window=40, query_pre_attn_scalar=24, num_hidden_layers=6, **GEMMA3_ROPE),
                       dict(wrapped="Gemma3")),
    "gemma3-old": ("Gemma3", dict(sliding_window=40, query_pre_attn_scalar=24, num_hidden_layers=6, **GEMMA3_ROPE),
                   dict(old=True)),
    "phi3": ("Phi3", dict(sliding_window=100, head_dim=16), dict(old=True)),
    "phi3-long": ("Phi3", dict(original_max_position_embeddings=256, head_dim=32, hidden_size=128, partial_rotary_factor=0.75,
                               **rope("longrope", **LONG)), dict(length=512)),
    "phi3-short": ("Phi3", dict(original_max_position_embeddings=256, head_dim=32, hidden_size=128, partial_rotary_factor=0.75,
                                **rope("longrope", **LONG)), dict(length=200, old=True)),
    "olmo2": ("Olmo2", {}, {}),
    "olmo3": ("Olmo3", dict(num_hidden_layers=4, sliding_window=40,
                            **rope("yarn", factor=4.0, original_max_position_embeddings=128)), {}),
    "granite": ("Granite", GRANITE, {}),
    "granitemoe": ("GraniteMoe", dict(**MOE, **GRANITE), {}),
    "granitemoeshared": ("GraniteMoeShared", dict(shared_intermediate_size=64, **MOE, **GRANITE), dict(old=True)),
    "smollm3": ("SmolLM3", dict(num_hidden_layers=5), {}),
    "deepseek2-lite": ("DeepseekV2", dict(**LATENT, q_lora_rank=None, n_shared_experts=2, rms_norm_eps=1e-5), {}),
    "deepseek2": ("DeepseekV2", dict(**LATENT, q_lora_rank=48, n_group=4, topk_group=2, topk_method="group_limited_greedy",
                                     n_shared_experts=1, routed_scaling_factor=4.0,
                                     **rope("yarn", mscale=0.707, mscale_all_dim=0.707, **YARN16)), dict(old=True)),
    "deepseek3": ("DeepseekV3", dict(**DEEPSEEK3, **rope("yarn", mscale=1.0, mscale_all_dim=1.0, **YARN16)), dict(old=True)),
    "deepseek3-halves": ("DeepseekV3", dict(**DEEPSEEK3, rope_interleave=False, norm_topk_prob=False,
                                            **rope("yarn", mscale=1.0, mscale_all_dim=0.5, **YARN16)), {}),
    "gpt-oss": ("GptOss", GPT_OSS, {}),
    "gpt-oss-mxfp4": ("GptOss", GPT_OSS, dict(mxfp4=True)),
    "deepseek3-fp8": ("DeepseekV3", dict(**DEEPSEEK3, **rope("yarn", mscale=1.0, mscale_all_dim=1.0, **YARN16)),
                      dict(fp8=("block", "F8_E4M3", "F32"))),
    "qwen3-fp8": ("Qwen3", dict(tie_word_embeddings=True), dict(fp8=("block", "F8_E5M2", "F32"))),
    "llama-fp8-tensor": ("Llama", {}, dict(fp8=("tensor", "F8_E4M3", "F32"))),
    "qwen3moe-fp8-channel": ("Qwen3Moe", dict(norm_topk_prob=True, **QWEN_MOE), dict(fp8=("channel", "F8_E4M3", "BF16"))),
}

BLOCK = 32, 48  # rows and columns; published models have 128 of both


def is_scaled(name, shape):
    return len(shape) == 2 and name.endswith(".weight") and not any(x in name for x in ("embed", "lm_head", "norm", "mlp.gate."))


def scale_name(name, strategy):
    return name + ("_scale_inv" if strategy == "block" else "_scale")


def with_scales(shapes, strategy):
    out = dict(shapes)
    for name, (rows, *columns) in shapes.items():
        if is_scaled(name, shapes[name]):
            grid = {"tensor": (1,), "channel": (rows, 1), "block": (-(-rows // BLOCK[0]), -(-sum(columns) // BLOCK[1]))}
            out[scale_name(name, strategy)] = grid[strategy]
            if strategy == "tensor":
                out[name.removesuffix("weight") + "input_scale"] = (1,)
    return out


def from_fp8(values, strategy):
    """What torch makes of it in float32."""
    out = {}
    for name, v in values.items():
        scale = values.get(scale_name(name, strategy))
        if scale is not None:
            rows, columns = BLOCK if strategy == "block" else v.shape
            if strategy == "channel":
                rows = 1
            grid = torch.from_numpy(scale.reshape(-1, scale.shape[-1]) if strategy != "channel" else scale)
            grid = grid.repeat_interleave(rows, 0).repeat_interleave(columns, 1)[: v.shape[0], : v.shape[1]]
            v = (torch.from_numpy(v.copy()) * grid).numpy()
        if not name.endswith(("_scale", "_scale_inv")):
            out[name] = torch.from_numpy(np.array(v))
    return out


def fp8_config(strategy):
    if strategy == "block":
        return {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": list(BLOCK)}
    weights = {"num_bits": 8, "type": "float", "strategy": strategy, "symmetric": True, "dynamic": False, "group_size": None,
               "actorder": None, "block_structure": None, "observer": "minmax", "observer_kwargs": {}}
    inputs = {**weights, "strategy": "token" if strategy == "channel" else "tensor", "dynamic": strategy == "channel"}
    group = {"weights": weights, "input_activations": inputs, "output_activations": None, "targets": ["Linear"]}
    return {"quant_method": "compressed-tensors", "format": "float-quantized", "config_groups": {"group_0": group},
            "ignore": ["lm_head"], "kv_cache_scheme": None, "quantization_status": "compressed"}


def to_mxfp4(shapes):
    """Shapes as published: experts as blocks and scales, rows of both products one after the other."""
    out = {}
    for name, shape in shapes.items():
        if name.endswith("_proj") and "experts" in name:
            n, columns, rows = shape
            out[name + "_blocks"], out[name + "_scales"] = (n, rows, columns // 32, 16), (n, rows, columns // 32)
        else:
            out[name] = shape
    return out


FP4 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)


def from_mxfp4(values):
    """Weights of the reference: [experts][columns][rows]."""
    out = {}
    for name, v in values.items():
        if name.endswith("_blocks"):
            scales = values[name[: -len("blocks")] + "scales"].astype(np.float32) - 127
            elements = np.stack([FP4[v & 15], FP4[v >> 4]], -1).reshape(*v.shape[:3], 32) * np.exp2(scales)[..., None]
            out[name[: -len("_blocks")]] = elements.reshape(*v.shape[:2], -1).swapaxes(1, 2).copy()
        elif not name.endswith("_scales"):
            out[name] = v
    return out


YI_NORMS = "ln1.weight", "ln2.weight"


def yi(name):
    """As the first versions of Yi name what is a Llama."""
    return name.replace("input_layernorm", "ln1").replace("post_attention_layernorm", "ln2")


WRAPPERS = {"Gemma3": {"model_type": "gemma3", "vision_config": {"model_type": "siglip_vision_model"}, "mm_tokens_per_image": 256},
            "Mistral3": {"model_type": "mistral3", "vision_config": {"model_type": "pixtral"}, "image_token_index": 10,
                         "multimodal_projector_bias": False, "projector_hidden_act": "gelu", "spatial_merge_size": 2,
                         "vision_feature_layer": -1}}


def wrapped(shapes):
    """As the text model of one that also sees: longer names, and tensors that are not its own."""
    out = {"language_model." + name: shape for name, shape in shapes.items()}
    return {**out, "vision_tower.patches.weight": (4, 3, 2, 2, 2), "multi_modal_projector.norm.weight": (8,)}


def make(variant, folder):
    kind, changes, options = VARIANTS[variant]
    cls = getattr(T, kind + "ForCausalLM")
    config = cls.config_class(**{**SMALL, **changes})
    cls(config).save_pretrained(folder)
    path = os.path.join(folder, "model.safetensors")
    with open(path, "rb") as f:
        header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
    shapes = {k: tuple(v["shape"]) for k, v in header.items() if k != "__metadata__"}
    if options.get("mxfp4"):
        shapes = to_mxfp4(shapes)
    if options.get("wrapped"):
        shapes = wrapped(shapes)
    if options.get("yi"):
        shapes = {yi(name): shape for name, shape in shapes.items()}
    if options.get("fp8"):
        strategy, elements, scales = options["fp8"]
        shapes = with_scales(shapes, strategy)
    dtypes, names = options.get("dtypes", ["F32"]), sorted(shapes)

    def dtype_of(name, shape):
        if name.endswith(("_blocks", "_scales")):
            return "U8"
        if options.get("fp8"):
            return elements if is_scaled(name, shape) else scales if name.endswith(("_scale", "_scale_inv")) else "BF16"
        dtype = dtypes[names.index(name) % len(dtypes)]
        return "BF16" if dtype.startswith("F8") and len(shape) == 1 else dtype

    text, values = write(path, shapes, kind.startswith("Gemma"), config.tie_word_embeddings, dtype_of)
    with open(os.path.join(folder, "config.json")) as f:
        c = json.load(f)
    c = {k: v for k, v in c.items() if v is not None or k == "q_lora_rank"}
    if options.get("old"):
        c = old_spelling(c)
    if options.get("mxfp4"):
        c["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn"]}
        model = cls(config).eval()
        state = {k: torch.from_numpy(np.array(v)) for k, v in from_mxfp4(values).items()}
        assert not any(model.load_state_dict(state, strict=False))
    elif options.get("fp8"):
        save_file(from_fp8(values, strategy), path)
        with open(os.path.join(folder, "config.json"), "w") as f:
            json.dump(c, f)
        model = cls.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
        c["quantization_config"] = fp8_config(strategy)
    elif options.get("wrapped"):
        model = cls(config).eval()
        state = {k.removeprefix("language_model."): torch.from_numpy(np.array(v)) for k, v in values.items() if k[0] == "l"}
        assert model.load_state_dict(state, strict=False).missing_keys == ["lm_head.weight"] * config.tie_word_embeddings
        c = {"architectures": [options["wrapped"] + "ForConditionalGeneration"], "text_config": c, **WRAPPERS[options["wrapped"]]}
    elif options.get("yi"):
        model = cls(config).eval()
        model.load_state_dict({name: torch.from_numpy(np.array(values[yi(name)])) for name in model.state_dict()})
        c |= {"architectures": ["YiForCausalLM"], "model_type": "Yi"}
    else:
        with open(os.path.join(folder, "config.json"), "w") as f:
            json.dump(c, f)
        model = cls.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    model.config._attn_implementation = "eager"
    if kind == "Olmo3":
        unscaled_windows(model)
    return model, json.dumps(c, indent=1), text, options.get("length", 0)


def entry(variant):
    with tempfile.TemporaryDirectory() as folder:
        model, config, header, length = make(variant, folder)
        n = length or N_TOKENS
        with torch.no_grad():
            x = model(torch.tensor([tokens_of(n)]), use_cache=False).logits[0].double().numpy()
    print(f"{variant:18} largest logit {abs(x).max():.2f}, deviation {x.std():.2f}", flush=True)
    config += " " * (-len(config) % 4)
    rows = [[np.logaddexp.reduce(x[p]), *(x[p][id_of(p, k)] for k in range(N_IDS))] for p in range(n)]
    head = struct.pack("<24s6I", variant.encode(), len(config), len(header), length, n, N_VOCAB, N_IDS)
    return head + config.encode() + header.encode() + np.array(rows, "<f4").tobytes()


def main():
    T.logging.set_verbosity_error()
    T.logging.disable_progress_bar()
    names = sys.argv[2:] or list(VARIANTS)
    entries = [entry(v) for v in names]
    with open(sys.argv[1], "wb") as out:
        out.write(b"QHF1" + struct.pack("<I", len(entries)) + b"".join(entries))


if __name__ == "__main__":
    main()
