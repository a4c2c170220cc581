#!/usr/bin/env python3
"""Writes src/text/unicode_props_table.c: properties and mappings of code points that normalizers and pre-tokenizers of
tokenizer.json ask for. As with unicode_table.py, every code point is put to the reference itself: its parts use several
Unicode versions.

    pip install tokenizers==0.23.3 sentencepiece==0.2.3
    scripts/gen/unicode_props.py > src/text/unicode_props_table.c
"""
import base64
import io
import json
import os
import sys
import tempfile
import unicodedata

import sentencepiece
import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers
from tokenizers.pre_tokenizers import Split

CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
HANGUL = range(0xAC00, 0xAC00 + 11172)
BLOCK = 256
# The order of the bits of unicode_props.h.
BITS = ["WORD", "PUNCT", "BERT_CONTROL", "BERT_SPACE", "CJK", "NONSPACING", "COMBINING", "EXTEND", "NMT_GONE", "NMT_SPACE",
        "HAN", "LOWER", "COMPAT", "PREPEND"]


def bert(**flags):
    off = dict(clean_text=False, handle_chinese_chars=False, strip_accents=False, lowercase=False)
    return normalizers.BertNormalizer(**{**off, **flags}).normalize_str


def word_characters():
    """\\w of Rust's regex crate, by an added token that must stand alone."""
    t = Tokenizer(models.WordLevel({"x": 0}, unk_token="x"))
    t.add_tokens([AddedToken("@@", single_word=True, normalized=False)])
    n = t.token_to_id("@@")
    return {c for c in CODE_POINTS if n not in t.encode("@@" + chr(c), add_special_tokens=False).ids}


def matching(pattern, chunk=4096):
    pre, found = Split(Regex(pattern), "removed", invert=True), set()
    for i in range(0, len(CODE_POINTS), chunk):
        text = "".join(map(chr, CODE_POINTS[i : i + chunk]))
        for _, (start, end) in pre.pre_tokenize_str(text):
            found.update(map(ord, text[start:end]))
    return found


def charsmap(rules):
    """A normalizer of the reference from SentencePiece rules."""
    with tempfile.TemporaryDirectory() as d:
        tsv = os.path.join(d, "rules.tsv")
        with open(tsv, "w") as f:
            for a, b in rules:
                f.write("%s\t%s\n" % (" ".join("%X" % ord(c) for c in a), " ".join("%X" % ord(c) for c in b)))
        out = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(["abc abc def ghi"] * 20), model_writer=out, vocab_size=20, hard_vocab_limit=False,
            normalization_rule_tsv=tsv, minloglevel=2)
        sp = sentencepiece.SentencePieceProcessor(model_proto=out.getvalue())
    import sentencepiece.sentencepiece_model_pb2 as pb
    m = pb.ModelProto()
    m.ParseFromString(out.getvalue())
    return normalizers.Precompiled(m.normalizer_spec.precompiled_charsmap).normalize_str


def collect():
    props = {c: 0 for c in CODE_POINTS}
    mark = lambda name, cs: [props.__setitem__(c, props[c] | 1 << BITS.index(name)) for c in cs]
    mark("WORD", word_characters())
    punct = pre_tokenizers.Punctuation().pre_tokenize_str
    bert_pre = pre_tokenizers.BertPreTokenizer().pre_tokenize_str
    p = {c for c in CODE_POINTS if len(punct("a%sa" % chr(c))) == 3}
    for c in CODE_POINTS:
        split = bert_pre("a%sa" % chr(c))
        assert (len(split) == 3) == (c in p), hex(c)
        assert (len(split) == 2) == chr(c).isspace() or c in range(0x1C, 0x20), hex(c)
    mark("PUNCT", p)
    clean, chinese, accents = bert(clean_text=True), bert(handle_chinese_chars=True), bert(strip_accents=True)
    mark("BERT_CONTROL", {c for c in CODE_POINTS if clean(chr(c)) == ""})
    mark("BERT_SPACE", {c for c in CODE_POINTS if clean(chr(c)) == " "})
    for c in CODE_POINTS:
        assert clean(chr(c)) in ("", " ", chr(c))
    mark("CJK", {c for c in CODE_POINTS if chinese(chr(c)) == " %s " % chr(c)})
    nfd, strip = normalizers.NFD().normalize_str, normalizers.StripAccents().normalize_str
    mark("NONSPACING", {c for c in CODE_POINTS if accents(chr(c)) == "" and nfd(chr(c)) == chr(c)})
    mark("COMBINING", {c for c in CODE_POINTS if strip(chr(c)) == ""})
    nmt = normalizers.Nmt().normalize_str
    for c in CODE_POINTS:
        assert nmt(chr(c)) in ("", " ", chr(c))
    mark("NMT_GONE", {c for c in CODE_POINTS if nmt(chr(c)) == ""})
    mark("NMT_SPACE", {c for c in CODE_POINTS if nmt(chr(c)) == " " and c != 32})
    extend = charsmap([("a", "X")])
    mark("EXTEND", {c for c in CODE_POINTS if c not in (10, 13) and extend("a" + chr(c)) == "X"})
    # only short clusters count: the character and an ASCII one
    some = [c for c in CODE_POINTS if c < 0x20000 and (
        unicodedata.category(chr(c)) in ("Cf", "Lo", "Mc") or 0x11000 <= c < 0x12000)
            and not (0x3400 <= c < 0xA000 or 0xAC00 <= c < 0xD7A4 or 0x17000 <= c < 0x18D00)]
    prepend = charsmap([(chr(c), "Y") for c in some])
    mark("PREPEND", {c for c in some if prepend(chr(c) + "z") == "Y"})
    mark("HAN", matching(r"\p{Han}"))
    lower = normalizers.Lowercase().normalize_str
    lowered = {c: [ord(x) for x in lower(chr(c))] for c in CODE_POINTS if lower(chr(c)) != chr(c)}
    mark("LOWER", lowered)
    nfkd = normalizers.NFKD().normalize_str
    compat = {c: [ord(x) for x in nfkd(chr(c))] for c in CODE_POINTS if c not in HANGUL and nfkd(chr(c)) != nfd(chr(c))}
    mark("COMPAT", compat)
    return props, lowered, compat


def rows(values, per_line, form="%d"):
    for i in range(0, len(values), per_line):
        yield "    " + ", ".join(form % v for v in values[i : i + per_line]) + ","


def mapping(name, table):
    pool, entries = [], []
    for c in sorted(table):
        entries.append((c, len(pool), len(table[c])))
        pool += table[c]
    assert len(pool) < 1 << 16
    yield "const struct unicode_mapping unicode_%s[] = {" % name
    yield from rows(["{%#x, %d, %d}" % e for e in entries], 6, "%s")
    yield "};"
    yield "const size_t unicode_n_%s = %d;" % (name, len(entries))
    yield ""
    yield "const uint32_t unicode_%s_pool[%d] = {" % (name, len(pool))
    yield from rows(pool, 14, "%#x")
    yield "};"
    yield ""


def main():
    props, lowered, compat = collect()
    blocks, index = {}, []
    for i in range(0, 0x110000, BLOCK):
        block = tuple(props.get(c, 0) for c in range(i, i + BLOCK))
        index.append(blocks.setdefault(block, len(blocks)))
    assert len(blocks) <= 256
    values = [v for block in blocks for v in block]
    out = ["/* Made by scripts/gen/unicode_props.py from tokenizers %s; do not edit. */" % tokenizers.__version__]
    out += ['#include "text/unicode_props.h"', "", "/* clang-format off */"]
    out += ["const uint8_t unicode_props_stage1[%d] = {" % len(index), *rows(index, 26), "};", ""]
    out += ["const uint16_t unicode_props_stage2[%d] = {" % len(values), *rows(values, 20), "};", ""]
    out += mapping("lower", lowered)
    out += mapping("compat", compat)
    print("\n".join(out))
    print("%d blocks, %d lower, %d compat" % (len(blocks), len(lowered), len(compat)), file=sys.stderr)


main()
