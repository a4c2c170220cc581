"""Golden logits far out in long texts, for each scaling of rotary embeddings, from transformers (float32).

    python model_long.py OUT.bin [VARIANT ...]

Needs torch, transformers 5, numpy; some minutes. Models are made as in model_folders.py, texts are 16,384 and 32,768 tokens, and
logits are kept at N_ROWS positions of each. The reference computes angles in float32, which leaves those of position 30,000 some
thousandths of a radian off; here the angles alone are made in float64, by its own formulas. How far it is off without that is
printed.

OUT.bin, little-endian: "QHF1"; u32 n_entries; then each as in model_folders.py, but with rows for positions row_of(i) only:
char variant[24]; u32 n_config, n_header, max_model_len, n_tokens, n_vocab, n_ids; config.json and the header of the tensors; for
each of the N_ROWS rows f32 logsumexp, and f32 logits of n_ids tokens."""

import struct
import sys
import tempfile

import model_folders as F
import numpy as np
import torch
import transformers as T
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

N_ROWS = 16
TINY = dict(num_attention_heads=2, num_key_value_heads=1, head_dim=32)
PAIRS = 16
LONGROPE = dict(long_factor=[1 + 0.7 * i for i in range(PAIRS)], short_factor=[1 + 0.05 * i for i in range(PAIRS)],
                original_max_position_embeddings=4096)
MADE = {
    "linear": dict(max_position_embeddings=8192, **F.rope("linear", factor=4.0)),
    "dynamic": dict(max_position_embeddings=8192, **F.rope("dynamic", factor=4.0)),
    "llama3": dict(max_position_embeddings=32768, **F.rope("llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                                                          original_max_position_embeddings=8192)),
    "yarn": dict(max_position_embeddings=32768, **F.rope("yarn", factor=4.0, original_max_position_embeddings=8192)),
    "longrope": dict(max_position_embeddings=32768, **F.rope("longrope", **LONGROPE)),
}
VARIANTS = {f"{name}-{n}": n for name in MADE for n in (16384, 32768)}


def row_of(i, n):
    """From the first token to the last, at uneven distances."""
    return i * (n - 1) // (N_ROWS - 1) if i % 2 == 0 else i * (n - 1) // (N_ROWS - 1) - 7


def exact_frequencies(model, n):
    """Those of the reference's own functions, which say float32 by three names; here all of them mean float64."""
    kept = torch.float, torch.float32, torch.Tensor.float
    torch.float = torch.float32 = torch.float64
    torch.Tensor.float = torch.Tensor.double
    try:
        return ROPE_INIT_FUNCTIONS[model.model.rotary_emb.rope_type](model.config, torch.device("cpu"), seq_len=n)
    finally:
        torch.float, torch.float32, torch.Tensor.float = kept


def entry(variant):
    n = VARIANTS[variant]
    F.VARIANTS[variant] = ("Llama", {**TINY, **MADE[variant.rsplit("-", 1)[0]]}, dict(length=n))
    with tempfile.TemporaryDirectory() as folder:
        model, config, header, _ = F.make(variant, folder)
    model.config._attn_implementation = "sdpa"
    ids = torch.tensor([F.tokens_of(n)])
    rows = [row_of(i, n) for i in range(N_ROWS)]
    with torch.no_grad():
        plain = model(ids, use_cache=False, logits_to_keep=torch.tensor(rows)).logits[0].double().numpy()
        frequencies, scale = exact_frequencies(model, n)
        angles = torch.arange(n, dtype=torch.float64)[:, None] * frequencies[None]
        angles = torch.cat((angles, angles), -1)[None]
        cos, sin = (angles.cos() * scale).float(), (angles.sin() * scale).float()
        model.model.rotary_emb.forward = lambda x, *_, **__: (cos, sin)
        x = model(ids, use_cache=False, logits_to_keep=torch.tensor(rows)).logits[0].double().numpy()
    print(f"{variant:16} largest logit {abs(x).max():.2f}; float32 angles are {abs(x - plain).max() / abs(x).max():.1e} of it off",
          flush=True)
    config += " " * (-len(config) % 4)
    data = [[np.logaddexp.reduce(r), *(r[F.id_of(p, k)] for k in range(F.N_IDS))] for p, r in zip(rows, x)]
    head = struct.pack("<24s6I", variant.encode(), len(config), len(header), n, n, F.N_VOCAB, F.N_IDS)
    return head + config.encode() + header.encode() + np.array(data, "<f4").tobytes()


def main():
    T.logging.set_verbosity_error()
    T.logging.disable_progress_bar()
    entries = [entry(v) for v in sys.argv[2:] or list(VARIANTS)]
    with open(sys.argv[1], "wb") as out:
        out.write(b"QHF1" + struct.pack("<I", len(entries)) + b"".join(entries))


main()
