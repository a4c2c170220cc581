"""Golden perplexities of data/eval/classics.txt from transformers (float32), for models of the llama family.

    python eval_perplexity.py MODEL.gguf ... > perplexity.json

Needs torch, transformers, gguf, tokenizers, numpy. Weights are dequantized to float32. `halves` is llama-perplexity's
definition (windows of `context` tokens side by side, the second half of each scored, BOS in front of each if the model adds
one); `strided` is that of transformers' documentation with every token weighed alike. The negative log likelihood is summed
in float64 from float32 logits."""

import json
import pathlib
import sys

import numpy as np
import torch
from gguf import GGUFReader
from gguf.quants import dequantize
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM

TEXT = pathlib.Path(__file__).resolve().parent.parent.parent / "data" / "eval" / "classics.txt"
NAMES = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_q": "self_attn.q_proj",
         "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
         "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
TOP = {"token_embd": "model.embed_tokens.weight", "output_norm": "model.norm.weight", "output": "lm_head.weight"}


def unpermute(w, n_heads):
    rows, cols = w.shape
    return w.reshape(n_heads, rows // n_heads // 2, 2, cols).swapaxes(1, 2).reshape(rows, cols)


def load(reader):
    get = lambda key: reader.fields["llama." + key].contents()
    n_heads, n_kv = get("attention.head_count"), get("attention.head_count_kv")
    state = {}
    for t in reader.tensors:
        w = dequantize(t.data, t.tensor_type).astype(np.float32)
        part = t.name.split(".")
        if part[0] == "blk" and part[2] in ("attn_q", "attn_k"):
            w = unpermute(w, n_heads if part[2] == "attn_q" else n_kv)
        state[f"model.layers.{part[1]}.{NAMES[part[2]]}.weight" if part[0] == "blk" else TOP[part[0]]] = (
            torch.from_numpy(np.ascontiguousarray(w)))
    tied = "lm_head.weight" not in state
    if tied:
        state["lm_head.weight"] = state["model.embed_tokens.weight"]
    head = get("attention.key_length") if "llama.attention.key_length" in reader.fields else None
    model = LlamaForCausalLM(LlamaConfig(
        vocab_size=len(state["model.embed_tokens.weight"]), hidden_size=get("embedding_length"),
        num_hidden_layers=get("block_count"), intermediate_size=get("feed_forward_length"), num_attention_heads=n_heads,
        num_key_value_heads=n_kv, max_position_embeddings=get("context_length"), rope_theta=get("rope.freq_base"),
        rms_norm_eps=get("attention.layer_norm_rms_epsilon"), tie_word_embeddings=tied, attn_implementation="eager",
        **({"head_dim": head} if head else {})))
    missing = model.load_state_dict(state, strict=False)
    assert not missing.unexpected_keys and all("inv_freq" in k for k in missing.missing_keys), missing
    return model.eval()


def tokenize(reader):
    field = lambda key: reader.fields["tokenizer.ggml." + key].contents()
    tokenizer = Tokenizer(models.BPE(vocab={t: i for i, t in enumerate(field("tokens"))},
                                     merges=[tuple(m.split(" ")) for m in field("merges")]))
    split = {"smollm": [pre_tokenizers.Digits(individual_digits=True)], "gpt-2": []}[field("pre")]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [*split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])
    return tokenizer.encode(TEXT.read_text(), add_special_tokens=False).ids


def score(model, tokens, first):
    """Sum of -log p over tokens[first:], and how many."""
    with torch.no_grad():
        logits = model(torch.tensor([tokens])).logits[0].double()
    each = torch.log_softmax(logits, dim=1)[range(first - 1, len(tokens) - 1), tokens[first:]]
    return -each.sum().item(), len(each)


def halves(model, tokens, context, limit):
    n = min(len(tokens) // context, limit)
    return [score(model, tokens[i * context : (i + 1) * context], context // 2 + 1) for i in range(n)]


def strided(model, tokens, context, stride, limit):
    out, previous_end = [], 0
    for begin in range(0, len(tokens), stride):
        end = min(begin + context, len(tokens))
        first = max(end - begin - (end - previous_end), 1)
        if first < end - begin:
            out.append(score(model, tokens[begin:end], first))
        previous_end = end
        if end == len(tokens) or len(out) == limit:
            return out


def measure(path, cases):
    reader = GGUFReader(path)
    model, tokens = load(reader), tokenize(reader)
    rows = []
    for context, stride, limit in cases:
        found = strided(model, tokens, context, stride, limit) if stride else halves(model, tokens, context, limit)
        nll, n = sum(x for x, _ in found), sum(n for _, n in found)
        rows.append({"context": context, "stride": stride, "max_windows": limit, "windows": len(found), "tokens": n,
                     "perplexity": float(np.exp(nll / n))})
    return {"text_tokens": len(tokens), "rows": rows}


torch.set_num_threads(2)
CASES = [(512, 0, 1000), (512, 512, 3), (256, 128, 5)]
print(json.dumps({pathlib.Path(p).name: measure(p, CASES) for p in sys.argv[1:]}, indent=1))
