"""Golden vectors of small encoders, and of decoders without an output matrix, in folders as transformers saves them, from
transformers (float32).

    python model_folder_vectors.py OUT.bin [VARIANT ...]

Needs torch, transformers 5, numpy. As in model_folders.py, a model's weights are a function of its tensors' names.

OUT.bin, little-endian: "QHV1"; u32 n_models; then for each char variant[24]; u32 n_config, n_header, n_vocab, n_entries; the
bytes of config.json and of the header, padded with spaces to a multiple of 4 bytes; for each entry u32 pooling (GGUF's
numbers), n_tokens, n_first (tokens of the first text of a pair, 0 = one text), n_floats; f32 vector[n_floats], not
normalised; scores are not squashed."""

import json
import os
import struct
import sys
import tempfile

import torch
import transformers as T

from model_folders import N_VOCAB, SMALL, old_spelling, tokens_of, write

MEAN, CLS, LAST, RANK = 1, 2, 3, 4
ENCODER = dict(vocab_size=N_VOCAB, hidden_size=64, intermediate_size=80, num_hidden_layers=2, num_attention_heads=4,
               max_position_embeddings=320, layer_norm_eps=1e-5, pad_token_id=0)
ROBERTA = dict(pad_token_id=1, type_vocab_size=1)
DISTIL = dict(vocab_size=N_VOCAB, dim=64, hidden_dim=80, n_layers=2, n_heads=4, max_position_embeddings=320, pad_token_id=0)
DECODER = {**SMALL, "hidden_size": 64, "intermediate_size": 64, "max_position_embeddings": 320}
ONE = [(p, n, 0) for p in (MEAN, CLS) for n in (1, 7, 150)]
PAIRS = [(RANK, 2, 1), (RANK, 150, 40), (CLS, 9, 0)]
DISTIL_PAIRS = [(RANK, 2, 1), (RANK, 7, 0), (RANK, 150, 40), (CLS, 9, 0)]
LASTS = [(LAST, 1, 0), (LAST, 300, 0), (MEAN, 150, 0)]

# variant: (class, configuration, entries, renaming of tensors)
VARIANTS = {
    "bert": ("BertModel", {}, ONE, None),
    "bert-prefix": ("BertModel", {}, ONE, lambda name: "bert." + name),
    "bert-mlm": ("BertForMaskedLM", {}, ONE, lambda name: name.replace("LayerNorm.weight", "LayerNorm.gamma")
                 .replace("LayerNorm.bias", "LayerNorm.beta")),
    "bert-cross": ("BertForSequenceClassification", {"num_labels": 1}, PAIRS, None),
    "roberta": ("RobertaModel", ROBERTA, ONE, None),
    "roberta-cross": ("RobertaForSequenceClassification", {"num_labels": 1, **ROBERTA}, PAIRS, None),
    "roberta-padding": ("RobertaModel", {**ROBERTA, "pad_token_id": 4}, ONE, None),
    "xlmr": ("XLMRobertaModel", ROBERTA, ONE, None),
    "xlmr-mlm": ("XLMRobertaForMaskedLM", ROBERTA, ONE, None),
    "xlmr-cross": ("XLMRobertaForSequenceClassification", {"num_labels": 1, **ROBERTA}, PAIRS, None),
    "llama": ("LlamaModel", {}, LASTS, None),
    "mistral": ("MistralModel", dict(sliding_window=100), LASTS, None),
    "qwen2": ("Qwen2Model", {}, LASTS, None),
    "qwen3": ("Qwen3Model", {}, LASTS, None),
    "qwen3-prefix": ("Qwen3Model", {}, LASTS, lambda name: "model." + name),
    "gemma3": ("Gemma3TextModel", dict(sliding_window=40, query_pre_attn_scalar=16, num_hidden_layers=6), LASTS, None),
    "camembert": ("CamembertModel", ROBERTA, ONE, lambda name: "roberta." + name),
    "distilbert": ("DistilBertModel", {}, ONE, None),
    "distilbert-cross": ("DistilBertForSequenceClassification", {"num_labels": 1}, DISTIL_PAIRS, None),
    "distilbert-mlm": ("DistilBertForMaskedLM", {}, ONE, None),
    "nomic-bert": ("NomicBertModel", {}, ONE, None),
    "nomic-bert-own": ("NomicBertModel", {}, ONE, None),
}


def shapes_of(folder):
    with open(os.path.join(folder, "model.safetensors"), "rb") as f:
        header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
    return {k: tuple(v["shape"]) for k, v in header.items() if k != "__metadata__"}


def make(variant, folder):
    kind, changes, _, rename = VARIANTS[variant]
    cls = getattr(T, kind)
    base = DISTIL if "Distil" in kind else ENCODER if "ert" in kind else DECODER
    cls(cls.config_class(**{**base, **changes})).save_pretrained(folder)
    shapes = {rename(k) if rename else k: s for k, s in shapes_of(folder).items()}
    with open(os.path.join(folder, "config.json")) as f:
        c = {k: v for k, v in json.load(f).items() if v is not None}
    if kind == "Qwen2Model":
        c = old_spelling(c)
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump(c, f)
    text, _ = write(os.path.join(folder, "model.safetensors"), shapes, kind.startswith("Gemma"), False,
                    lambda name, shape: "F32")
    model, info = cls.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True)
    assert not info["unexpected_keys"] and all("pooler" in k for k in info["missing_keys"]), (variant, info)
    if variant == "nomic-bert-own":
        c = makers_spelling(c)
    return model.eval(), json.dumps(c, indent=1), text


def makers_spelling(c):
    """config.json of nomic-bert as its makers' own code has it."""
    names = {"hidden_size": "n_embd", "intermediate_size": "n_inner", "num_hidden_layers": "n_layer", "num_attention_heads": "n_head",
             "max_position_embeddings": "n_positions", "layer_norm_eps": "layer_norm_epsilon"}
    own = {names[k]: c[k] for k in names} | {k: c[k] for k in ("architectures", "model_type", "vocab_size", "type_vocab_size")}
    off = ("causal", "mlp_fc1_bias", "mlp_fc2_bias", "parallel_block", "prenorm", "qkv_proj_bias", "rotary_emb_interleaved",
           "scale_attn_by_inverse_layer_idx", "use_rms_norm")
    return own | dict.fromkeys(off, False) | {
        "activation_function": "swiglu", "rotary_emb_base": c["rope_parameters"]["rope_theta"], "rotary_emb_fraction": 1.0,
        "rotary_emb_scale_base": None, "rotary_scaling_factor": None, "scale_attn_weights": True, "max_trained_positions": 2048,
        "use_flash_attn": True, "fused_bias_fc": True, "pad_vocab_size_multiple": 64, "summary_type": "cls_index"}


def vector(model, pooling, n, n_first):
    """The reference takes position numbers from the tokens that are not padding; ours are of texts without any."""
    ids = torch.tensor([tokens_of(n)])
    more = {"attention_mask": torch.ones_like(ids)}
    if any(kind in type(model).__name__ for kind in ("Roberta", "Camembert")):
        more["position_ids"] = torch.arange(n)[None] + model.config.pad_token_id + 1
    if n_first and getattr(model.config, "type_vocab_size", 1) > 1:
        more["token_type_ids"] = (torch.arange(n) >= n_first).long()[None]
    with torch.no_grad():
        if pooling == RANK:
            return model(ids, **more).logits[0].double()
        x = model.base_model(ids, **more).last_hidden_state[0].double()
    return {MEAN: x.mean(0), CLS: x[0], LAST: x[-1]}[pooling]


def entry(variant):
    entries = VARIANTS[variant][2]
    with tempfile.TemporaryDirectory() as folder:
        model, config, header = make(variant, folder)
        vectors = [vector(model, *e).numpy().astype("<f4") for e in entries]
    print(f"{variant:16} largest {max(abs(v).max() for v in vectors):.3f}", flush=True)
    config += " " * (-len(config) % 4)
    header += " " * (-len(header) % 4)
    head = struct.pack("<24s4I", variant.encode(), len(config), len(header), N_VOCAB, len(entries))
    body = b"".join(struct.pack("<4I", *e, len(v)) + v.tobytes() for e, v in zip(entries, vectors))
    return head + config.encode() + header.encode() + body


def main():
    T.logging.set_verbosity_error()
    T.logging.disable_progress_bar()
    entries = [entry(v) for v in sys.argv[2:] or list(VARIANTS)]
    with open(sys.argv[1], "wb") as out:
        out.write(b"QHV1" + struct.pack("<I", len(entries)) + b"".join(entries))


main()
