#!/usr/bin/env python3
"""Full tier: random strings through every kind of tokenizer, compared with the reference id for id.

    pip install tokenizers==0.23.3 sentencepiece==0.2.3 protobuf
    tests/golden/tokenizer_random.py FILES N [SEED]

FILES is a folder of tokenizer.json files (*.json) and SentencePiece models (*.model), such as tokenizer_kinds.py makes. The
text layer is compiled into a shared library for it (cc, libjansson-dev). Texts are those of tokenizer_golden.py's generator
and, every second one for tokenizer.json, ones full of added tokens.
"""
import ctypes
import glob
import os
import subprocess
import sys
import tempfile
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
import sentencepiece
import tokenizers
from tokenizer_golden import FRAGMENTS, Random, random_text

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
SHIM = r"""
#include "text/sentencepiece.h"
#include "text/tokenizer_json.h"
#include <stdlib.h>
#include <string.h>
void *shim_open(const char *data, size_t n, int json, char *why) {
    struct tokenizer *t;
    struct error err = {0};
    int rc = json ? tokenizer_from_json(data, n, NULL, 0, &t, &err) : tokenizer_from_sentencepiece(data, n, NULL, &t, &err);
    strcpy(why, err.text);
    return rc ? NULL : t;
}
long shim_encode(void *t, const char *s, size_t n, uint32_t *ids, size_t cap) {
    struct token_buf b = {0};
    if (tokenizer_encode(t, s, n, TOKENIZE_SPECIAL, NULL, 0, cap, &b, NULL)) return -1;
    if (b.n) memcpy(ids, b.ids, b.n * sizeof *ids);
    long count = (long)b.n;
    token_buf_free(&b);
    return count;
}
"""
CAP = 1 << 16
ADDED = ["<s>", "</s>", "<tool>", " <tool>", "[X]", "[X] ", "word", " word ", "words", "  two", "   two ", "Ünï", "<NORM>",
         " <NORM>", "<|im_end|>", "[MASK]", " [MASK]", "[CLS]", "<unk>"]


def build():
    folder = tempfile.mkdtemp()
    shim, out = os.path.join(folder, "shim.c"), os.path.join(folder, "libtext.so")
    with open(shim, "w") as f:
        f.write(SHIM)
    text = [p for p in glob.glob(os.path.join(ROOT, "src/text/*.c")) if not os.path.basename(p).startswith(("jinja", "chat"))]
    base = [os.path.join(ROOT, "src/base", n) for n in ("arena.c", "buf.c", "error.c", "utf8.c")]
    subprocess.check_call(["cc", "-std=gnu17", "-O2", "-fPIC", "-shared", "-ffp-contract=off", "-I" + os.path.join(ROOT, "src"),
                           "-I" + os.path.join(ROOT, "include"), *text, *base, shim, "-ljansson", "-lm", "-o", out])
    lib = ctypes.CDLL(out)
    lib.shim_open.restype = ctypes.c_void_p
    lib.shim_encode.restype = ctypes.c_long
    lib.shim_encode.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_size_t]
    return lib


def open_all(lib, folder):
    why = ctypes.create_string_buffer(1024)
    for path in sorted(glob.glob(os.path.join(folder, "*.json")) + glob.glob(os.path.join(folder, "*.model"))):
        with open(path, "rb") as f:
            data = f.read()
        json = path.endswith(".json")
        handle = lib.shim_open(data, ctypes.c_size_t(len(data)), int(json), why)
        if not handle:
            sys.exit("%s: %s" % (path, why.value.decode()))
        if json:
            reference = tokenizers.Tokenizer.from_str(data.decode())
            encode = lambda texts, r=reference: [e.ids for e in r.encode_batch(texts, add_special_tokens=False)]
            special = {i: t.content for i, t in reference.get_added_tokens_decoder().items() if t.special}
        else:
            reference = sentencepiece.SentencePieceProcessor(model_proto=data)
            encode = lambda texts, r=reference: r.EncodeAsIds(texts)
            special = {}
        yield os.path.basename(path), handle, encode, json, special


def forges(text, ids, special):
    """Whether the reference made a special token of text that does not spell it, such as "<ſ>" after NFKC. Ours never does."""
    return any(i in special and special[i] not in text for i in ids)


def added_text(random):
    parts = []
    for _ in range(1 + random.below(12)):
        kind = random.below(4)
        words = ADDED if kind == 0 else FRAGMENTS if kind < 3 else [" "]
        parts.append(words[random.below(len(words))])
    return "".join(parts)


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    folder, n, random = sys.argv[1], int(sys.argv[2]), Random(int(sys.argv[3]) if len(sys.argv) > 3 else 1)
    lib = build()
    kinds, ids = list(open_all(lib, folder)), (ctypes.c_uint32 * CAP)()
    bad, start = {name: 0 for name, *_ in kinds}, time.time()
    for done in range(0, n, 1000):
        plain = [random_text(random) for _ in range(1000)]
        mixed = [added_text(random) if i % 2 else t for i, t in enumerate(plain)]
        for name, handle, encode, json, special in kinds:
            texts = mixed if json else plain
            for text, want in zip(texts, encode(texts)):
                raw = text.encode()
                count = lib.shim_encode(handle, raw, len(raw), ids, CAP)
                if ids[:count] != want and not forges(text, want, special):
                    bad[name] += 1
                    if bad[name] <= 3:
                        print(name, repr(text), want, ids[:count], flush=True)
        if (done // 1000) % 100 == 99:
            print("%d texts, %.0f s: %s" % (done + 1000, time.time() - start, bad), flush=True)
    print("%d texts a kind: %s" % (n, bad))
    sys.exit(any(bad.values()))


main()
