#!/usr/bin/env python3
"""Full tier: random strings through every kind of tokenizer, compared with the reference id for id.

    pip install tokenizers==0.23.3 sentencepiece==0.2.3 protobuf
    tests/golden/tokenizer_random.py [--texts 1000000] [--decode 20000] [--seed 1] [--only NAME,...] [--files FOLDER]

Rows: each file of FOLDER (by default tests/data/tokenizer/kinds: byte-level BPE, BPE with byte fallback, unigram, WordPiece as
tokenizer.json and SentencePiece models), and each pre-tokenizer that a GGUF file may name, on the small vocabulary of
tests/data/tokenizer/vocab.bin. The text layer is compiled into a shared library for it (cc, libjansson-dev). One text in four
is of tokenizer_golden.py's generator, one full of added tokens, two mix scripts, code, emoji, marks, control characters,
white space and rare scalars. The ids of the first --decode texts are also
made text again on both sides. The last line counts the texts that differ; the exit code is 1 if any does.
"""
import argparse
import array
import ctypes
import glob
import os
import random as rng
import struct
import subprocess
import sys
import tempfile
import time
import unicodedata

os.environ["TOKENIZERS_PARALLELISM"] = "false"
import sentencepiece
import tokenizer_corpus
import tokenizers
from tokenizer_golden import (CONTROL, DATA, FRAGMENTS, MORE, PRE, UNKNOWN, USER_DEFINED, Random, normalizers, random_text, reference,
                              with_added)

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
/* As a GGUF file has it: a named pre-tokenizer, pieces and merges one after the other, each ended by a NUL. */
void *shim_named(const char *pre, const char *pieces, const int32_t *types, size_t n_vocab, const char *merges, size_t n_merges,
                 char *why) {
    struct text_span *p = malloc(n_vocab * sizeof *p), *m = malloc(n_merges * sizeof *m);
    for (size_t i = 0; i < n_vocab; pieces += p[i++].len + 1) p[i] = (struct text_span){pieces, strlen(pieces)};
    for (size_t i = 0; i < n_merges; merges += m[i++].len + 1) m[i] = (struct text_span){merges, strlen(merges)};
    struct tokenizer_spec spec = {.model = {"gpt2", 4}, .pre = {pre, strlen(pre)}, .pieces = p, .types = types, .n_vocab = n_vocab,
                                  .merges = m, .n_merges = n_merges, .bos = -1, .eos = -1, .unk = -1, .cls = -1, .sep = -1};
    struct tokenizer *t;
    struct error err = {0};
    int rc = tokenizer_create(&spec, &t, &err);
    strcpy(why, err.text);
    free(p);
    free(m);
    return rc ? NULL : t;
}
/* Text i is blob[at[i] .. at[i + 1]). content: all of it is, so that control tokens are not recognised. -1 on failure. */
long shim_encode(void *t, const char *blob, const uint64_t *at, size_t n, int content, uint32_t *ids, size_t cap, uint64_t *end) {
    struct token_buf b = {0};
    for (size_t i = 0; i < n; end[i++] = b.n) {
        struct content_span all = {0, at[i + 1] - at[i]};
        if (tokenizer_encode(t, blob + at[i], all.len, TOKENIZE_SPECIAL, content ? &all : NULL, content != 0, 0, &b, NULL))
            return -1;
    }
    if (b.n > cap) return -1;
    if (b.n) memcpy(ids, b.ids, b.n * sizeof *ids);
    long count = (long)b.n;
    token_buf_free(&b);
    return count;
}
/* The text of ids, special tokens with it; its length, or -1 if it has more than cap bytes. */
long shim_decode(void *t, const uint32_t *ids, size_t n, char *text, size_t cap) {
    struct buf out = BUF_INIT;
    tokenizer_decode(t, ids, n, true, &out);
    long len = out.len > cap ? -1 : (long)out.len;
    if (len > 0) memcpy(text, out.data, out.len);
    buf_free(&out);
    return len;
}
"""
BATCH, CAP = 1000, 1 << 22
IDS, TEXT = (ctypes.c_uint32 * CAP)(), ctypes.create_string_buffer(1 << 20)
ADDED = ["<s>", "</s>", "<tool>", " <tool>", "[X]", "[X] ", "word", " word ", "words", "  two", "   two ", "Ünï", "<NORM>",
         " <NORM>", "<|im_end|>", "[MASK]", " [MASK]", "[CLS]", "<unk>", "▁▁", "▁", "<h1>", "ab", "xa", "ﬁx", "<|endoftext|>",
         "<|im_start|>", "<|im|>", "<tool_call>", "</tool_call>", "\n\n\n", "<｜User｜>", "naïve token", "[PAD1]", "<0x0A>"]
# names whose tokenizer.json differs from "words by this expression" in more: NFC first, words that are pieces kept whole
NFC_NAMES, WHOLE_NAMES = ("olmo", "command-r"), ("glm4", "tekken")


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
    lib.shim_open.restype = lib.shim_named.restype = ctypes.c_void_p
    lib.shim_encode.restype = lib.shim_decode.restype = ctypes.c_long
    return lib


class Row:
    """One tokenizer of ours beside its reference."""

    def __init__(self, lib, name, handle, encode, decode, odd=frozenset(), content=False, special=None):
        self.lib, self.name, self.handle, self.reference, self.content = lib, name, handle, encode, content
        self.decode, self.odd = decode, odd
        self.special = special or {}
        self.bad = 0

    def ours(self, raw):
        blob, at = b"".join(raw), array.array("Q", [0])
        for r in raw:
            at.append(at[-1] + len(r))
        ids, end = IDS, (ctypes.c_uint64 * len(raw))()
        total = self.lib.shim_encode(ctypes.c_void_p(self.handle), blob, (ctypes.c_uint64 * len(at)).from_buffer(at),
                                     ctypes.c_size_t(len(raw)), int(self.content), ids, ctypes.c_size_t(CAP), end)
        if total < 0:
            sys.exit("%s: encoding failed" % self.name)
        flat, out, start = array.array("I", ids[:total]).tolist(), [], 0
        for e in end:
            out.append(flat[start:e])
            start = e
        return out

    def text_of(self, ids):
        n = self.lib.shim_decode(ctypes.c_void_p(self.handle), (ctypes.c_uint32 * len(ids))(*ids), ctypes.c_size_t(len(ids)), TEXT,
                                 ctypes.c_size_t(len(TEXT)))
        if n < 0:
            sys.exit("%s: decoding failed" % self.name)
        return TEXT[:n].decode()

    def differ(self, text, want, got):
        self.bad += 1
        if self.bad <= 3:
            print(self.name, repr(text), want, got, flush=True)

    def check(self, texts, raw, decode):
        for text, want, got in zip(texts, self.reference(texts), self.ours(raw)):
            if got != want and not forges(text, want, self.special):
                self.differ(text, want, got)
            elif decode and self.odd.isdisjoint(want) and self.decode(want) != self.text_of(want):
                self.differ(text, repr(self.decode(want)), repr(self.text_of(want)))


def forges(text, ids, special):
    """Whether the reference made a special token of text that does not spell it, such as "<ſ>" after NFKC. Ours never does."""
    return any(i in special and special[i] not in text for i in ids)


def open_files(lib, folder):
    why = ctypes.create_string_buffer(1024)
    for path in sorted(glob.glob(os.path.join(folder, "*.json")) + glob.glob(os.path.join(folder, "*.model"))):
        with open(path, "rb") as f:
            data = f.read()
        json, name = path.endswith(".json"), os.path.basename(path)
        handle = lib.shim_open(data, ctypes.c_size_t(len(data)), int(json), why)
        if not handle:
            sys.exit("%s: %s" % (path, why.value.decode()))
        if json:
            hf = tokenizers.Tokenizer.from_str(data.decode())
            special = {i: t.content for i, t in hf.get_added_tokens_decoder().items() if t.special}
            yield Row(lib, name, handle, encoder(hf), decoder(hf), odd_ids(hf), special=special)
        else:
            model = sentencepiece.SentencePieceProcessor(model_proto=data)
            yield Row(lib, name, handle, model.EncodeAsIds, model.DecodeIds, {model.unk_id()}, content=True)


def encoder(hf):
    return lambda texts: [e.ids for e in hf.encode_batch_fast(texts, add_special_tokens=False)]


def decoder(hf):
    return lambda ids: hf.decode(ids, skip_special_tokens=False)


def odd_ids(hf):
    """Added tokens that the reference does not decode to their own text: normalized ones, and of the byte-level alphabet's letters.
    SentencePiece writes two question marks for an unknown piece, and is the only one to do so."""
    return {i for i, t in hf.get_added_tokens_decoder().items() if t.normalized or not t.content.isascii()}


def read_vocab(path):
    with open(path, "rb") as f:
        data = f.read()
    n_vocab, n_merges = struct.unpack_from("<II", data, 4)
    at, tokens = 12, []
    for _ in range(n_vocab):
        kind, n = data[at], data[at + 1]
        tokens.append((data[at + 2:at + 2 + n].decode(), kind))
        at += 2 + n
    pairs = struct.unpack_from("<%dH" % (2 * n_merges), data, at)
    return tokens, [(tokens[a][0], tokens[b][0]) for a, b in zip(pairs[::2], pairs[1::2])]


def open_names(lib):
    why = ctypes.create_string_buffer(1024)
    tokens, merges = read_vocab(os.path.join(DATA, "vocab.bin"))
    pieces = b"".join(t.encode() + b"\0" for t, _ in tokens)
    pairs = b"".join((a + " " + b).encode() + b"\0" for a, b in merges)
    types = (ctypes.c_int32 * len(tokens))(*[kind for _, kind in tokens])
    for name, pre in MORE.items():
        PRE[name] = (pre, normalizers.NFC() if name in NFC_NAMES else None, name in WHOLE_NAMES)
    for name in PRE:
        handle = lib.shim_named(name.encode(), pieces, types, ctypes.c_size_t(len(tokens)), pairs, ctypes.c_size_t(len(merges)), why)
        if not handle:
            sys.exit("%s: %s" % (name, why.value.decode()))
        hf = with_added(reference(name, tokens, merges), tokens, (CONTROL, UNKNOWN, USER_DEFINED))
        yield Row(lib, name, handle, encoder(hf), decoder(hf), odd_ids(hf))


# --- texts ---


def added_text(random):
    parts = []
    for _ in range(1 + random.below(12)):
        kind = random.below(4)
        words = ADDED if kind == 0 else FRAGMENTS if kind < 3 else [" "]
        parts.append(words[random.below(len(words))])
    return "".join(parts)


class Wild:
    """Texts that mix what people write with what they hardly do."""

    def __init__(self, seed):
        self.r = rng.Random(seed)
        self.corpus = list(tokenizer_corpus.texts())
        by = {}
        for c in range(0x110000):
            if not 0xD800 <= c < 0xE000:
                by.setdefault(unicodedata.category(chr(c)), []).append(chr(c))
        self.marks = by["Mn"] + by["Mc"] + by["Me"]
        self.space = by["Zs"] + by["Zl"] + by["Zp"] + list("\t\n\r\x0b\x0c\x85") * 3 + [" "] * 12
        self.control = by["Cc"] + by["Cf"]
        self.digits = by["Nd"] + by["Nl"] + by["No"]
        self.symbols = by["So"] + by["Sm"] + by["Sk"] + by["Po"] + by["Ps"]
        self.letters = by["Lu"] + by["Ll"] + by["Lt"] + by["Lm"] + by["Lo"]
        self.emoji = [chr(c) for c in (*range(0x1F300, 0x1F650), *range(0x1F680, 0x1F700), *range(0x1F900, 0x1FA00),
                                       *range(0x2600, 0x27C0))]
        self.joins = ["\u200d", "\u200d", "\ufe0f", "\ufe0f\u200d", "\U0001f3fb", "\U0001f3ff\u200d", "\u20e3", ""]
        self.makers = [self.slice, self.slice, self.slice, self.zwj, self.marked, self.spaces, self.controls, self.rare,
                       self.script, self.numbers, self.punctuation, self.added, self.edited]

    def some(self, chars, low, high):
        return "".join(self.r.choices(chars, k=self.r.randint(low, high)))

    def slice(self):
        text = self.r.choice(self.corpus)
        at = self.r.randrange(len(text))
        return text[at:at + self.r.randint(1, 60)]

    def edited(self):
        text = list(self.slice())
        for _ in range(self.r.randint(1, 4)):
            text.insert(self.r.randrange(len(text) + 1), self.r.choice(self.marks + self.space + self.control))
        return "".join(text)

    def zwj(self):
        return "".join(self.r.choice(self.emoji) + self.r.choice(self.joins) for _ in range(self.r.randint(1, 5)))

    def marked(self):
        return "".join(self.r.choice(self.letters) + self.some(self.marks, 0, 5) for _ in range(self.r.randint(1, 4)))

    def spaces(self):
        return self.some(self.space, 1, 20) if self.r.random() < 0.5 else self.r.choice(self.space) * self.r.randint(1, 40)

    def controls(self):
        return self.some(self.control, 1, 5)

    def rare(self):
        c = self.r.randrange(0x10000, 0x110000) if self.r.random() < 0.7 else self.r.randrange(0xE000, 0x10000)
        return chr(c) * self.r.randint(1, 3)

    def script(self):
        at = self.r.randrange(len(self.letters))
        return self.some(self.letters[at:at + 60], 1, 12)

    def numbers(self):
        return self.some(self.digits if self.r.random() < 0.5 else "0123456789", 1, 12)

    def punctuation(self):
        return self.some(self.symbols if self.r.random() < 0.5 else "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~", 1, 8)

    def added(self):
        text = self.r.choice(ADDED)
        return text if self.r.random() < 0.8 else text[:self.r.randint(1, len(text))]

    def text(self):
        return "".join(self.r.choice(self.makers)() for _ in range(self.r.randint(1, 8)))


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--texts", type=int, default=1000000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--decode", type=int, default=20000)
    parser.add_argument("--only", default="")
    parser.add_argument("--files", default=os.path.join(DATA, "kinds"))
    args = parser.parse_args()
    lib, only = build(), set(filter(None, args.only.split(",")))
    rows = [row for row in [*open_files(lib, args.files), *open_names(lib)] if not only or row.name in only]
    missing = only - {row.name for row in rows}
    if missing:
        parser.error("no row %s" % ", ".join(sorted(missing)))
    random, wild, start = Random(args.seed), Wild(args.seed), time.time()
    makers = [lambda: random_text(random), lambda: added_text(random), wild.text, wild.text]
    for done in range(0, args.texts, BATCH):
        n = min(BATCH, args.texts - done)
        texts = [makers[i % 4]() for i in range(n)]
        raw = [text.encode() for text in texts]
        for row in rows:
            row.check(texts, raw, done < args.decode)
        if (done // BATCH) % 50 == 49 or done + n == args.texts:
            bad = {row.name: row.bad for row in rows if row.bad}
            print("%d texts, %.0f s, %d rows; differ: %s" % (done + n, time.time() - start, len(rows), bad or "none"), flush=True)
    total = sum(row.bad for row in rows)
    print("%d texts for each of %d rows (%s), seed %d: %d differ" %
          (args.texts, len(rows), ", ".join(row.name for row in rows), args.seed, total))
    sys.exit(total > 0)


if __name__ == "__main__":
    main()
