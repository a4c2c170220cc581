#!/usr/bin/env python3
"""Golden data of tests/unit/eval and of base/stats: writes tests/data/eval/{kl,windows,normalize}.txt and
tests/data/base/stats.txt. Needs numpy.

Divergences are numpy's in float64 from the exact distributions. Windows are those of the loop in the documentation of
transformers ("Perplexity of fixed-length models"), token by token. Normalisation is SQuAD's (v1.1 evaluation: lower case,
punctuation, articles, white space). Quantiles are numpy's; the bootstrap is computed here from its description in
base/stats.h, with a Philox of its own that is first checked against Random123's known answer."""

import pathlib
import re
import string

import numpy as np

DATA = pathlib.Path(__file__).resolve().parent.parent / "data"
M32 = 0xFFFFFFFF


def philox(key, counter):
    k, c = [key & M32, key >> 32], list(counter)
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(b >> 32) ^ c[1] ^ k[0], b & M32, (a >> 32) ^ c[3] ^ k[1], a & M32]
        k = [(k[0] + 0x9E3779B9) & M32, (k[1] + 0xBB67AE85) & M32]
    return c


assert philox(0, [0, 0, 0, 0]) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]


def write_stats(rng):
    lines = []
    for n in (1, 2, 3, 10, 101):
        values = rng.normal(size=n) * 10
        for q in (0, 0.1, 0.5, 0.9, 0.99, 1):
            lines.append(f"quantile {q!r} {np.quantile(values, q)!r} {n} " + " ".join(repr(float(v)) for v in values))
    for n, resamples, seed in ((2, 50, 1), (7, 200, 2), (40, 500, 3)):
        weight = rng.integers(1, 300, n).astype(float)
        a, b = weight * rng.uniform(1, 4, n), weight * rng.uniform(1, 4, n)
        found = []
        for r in range(resamples):
            draws = [philox(seed, [r, i // 4, 0, 0])[i % 4] * n >> 32 for i in range(n)]
            found.append((b[draws] - a[draws]).sum() / weight[draws].sum())
        low, high = np.quantile(found, [0.025, 0.975])
        rows = " ".join(f"{float(x)!r} {float(y)!r} {float(w)!r}" for x, y, w in zip(a, b, weight))
        difference = (b.sum() - a.sum()) / weight.sum()
        lines.append(f"paired {seed} {resamples} {float(difference)!r} {float(low)!r} {float(high)!r} {n} {rows}")
    text = "\n".join(lines) + "\n"
    (DATA / "base" / "stats.txt").write_text(re.sub(r"np\.float64\(([^)]*)\)", r"\1", text))


def log_softmax(x):
    x = x.astype(np.float64)
    return x - x.max() - np.log(np.exp(x - x.max()).sum())


def write_kl(rng):
    """n_vocab, KL, the two most likely, log probability of token 1 in p; then the logits of p and q."""
    lines = []
    for n, spread, noise in ((2, 1, 1), (5, 3, 0.5), (100, 4, 0.1), (300, 8, 1), (300, 3, 0), (64, 0, 0)):
        p = (rng.normal(size=n) * spread).astype(np.float32)
        q = (p + rng.normal(size=n) * noise).astype(np.float32)
        lp, lq = log_softmax(p), log_softmax(q)
        kl = (np.exp(lp) * (lp - lq)).sum()
        lines.append(f"{n} {kl:.12g} {p.argmax()} {q.argmax()} {lp[1]:.12g}")
        for x in (p, q):
            lines.append(" ".join(f"{v:.9g}" for v in x))
    (DATA / "eval" / "kl.txt").write_text("\n".join(lines) + "\n")


def strided(n_tokens, context, stride):
    """(begin, tokens, first scored) of the documentation's loop; targets before `first` are masked, and a window's first
    token has nothing that predicts it."""
    previous_end, out = 0, []
    for begin in range(0, n_tokens, stride):
        end = min(begin + context, n_tokens)
        target_length = end - previous_end
        first = max(end - begin - target_length, 1)
        if first < end - begin:
            out.append((begin, end - begin, first))
        previous_end = end
        if end == n_tokens:
            break
    return out


def write_windows():
    lines = []
    for case in ((2, 2, 1), (3, 2, 2), (10, 4, 1), (10, 4, 2), (10, 4, 3), (10, 4, 4), (11, 4, 4), (9, 4, 4), (1000, 64, 17),
                 (5, 100, 100), (5, 100, 3), (513, 512, 256)):
        windows = strided(*case)
        lines.append(" ".join(map(str, (*case, len(windows), *(v for w in windows for v in w)))))
    (DATA / "eval" / "windows.txt").write_text("\n".join(lines) + "\n")


def squad(text):
    text = "".join(c for c in text.lower() if c not in set(string.punctuation))
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


def write_normalize():
    texts = ["The quick, brown fox.", "  a  b\tc ", "An answer: the Answer!", "thermometer a-the", "", "...", "the",
             "42", "New York (city)", "don't stop", "A\nB", "naïve café", "x_y^z~`{}"]
    with open(DATA / "eval" / "normalize.txt", "w") as f:
        for text in texts:
            f.write(text.replace("\\", "\\\\").replace("\n", "\\n").replace("\t", "\\t") + "|" + squad(text) + "\n")


rng = np.random.default_rng(7)
(DATA / "eval").mkdir(exist_ok=True)
write_stats(rng)
write_kl(rng)
write_windows()
write_normalize()
