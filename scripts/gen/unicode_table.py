#!/usr/bin/env python3
"""Writes src/text/unicode_table.c: what the reference `tokenizers` takes each code point for.

The reference mixes Unicode versions: \\p{..} and \\s are its regex engine's (Oniguruma), Digits is Rust's
char::is_numeric, NFC is that of an old crate. So nothing is taken from a Unicode data file: every code point is put to
the reference itself, which makes the table right by construction for the version installed. Python's unicodedata only
proposes combining classes; each is checked against the reference's canonical ordering.

    pip install tokenizers==0.23.3
    scripts/gen/unicode_table.py > src/text/unicode_table.c
"""
import sys
import unicodedata

import tokenizers
from tokenizers import Regex
from tokenizers.normalizers import NFC, NFD
from tokenizers.pre_tokenizers import Digits, Split

# The order of enum unicode_kind (src/text/unicode.h).
KINDS = "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf CW Co Cn INVALID CN_NUMERIC".split()
NORMALIZE_BIT = 0x80
BLOCK = 256
CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
HANGUL = range(0xAC00, 0xAC00 + 11172)

nfc, nfd = NFC().normalize_str, NFD().normalize_str


def matching(pre_tokenizer, chunk=4096):
    """The code points that a Split with behaviour "removed", inverted, leaves."""
    found = set()
    for i in range(0, len(CODE_POINTS), chunk):
        text = "".join(map(chr, CODE_POINTS[i : i + chunk]))
        for _, (start, end) in pre_tokenizer.pre_tokenize_str(text):
            found.update(map(ord, text[start:end]))
    return found


def kinds():
    category = {}
    for name in KINDS:
        if name in ("CW", "INVALID", "CN_NUMERIC"):
            continue
        for c in matching(Split(Regex(r"\p{%s}" % name), "removed", invert=True)):
            assert c not in category
            category[c] = name
    assert len(category) == len(CODE_POINTS)
    # The masks of unicode.h are unions of categories: check that the classes are.
    for major in "LNPSM":
        assert matching(Split(Regex(r"\p{%s}" % major), "removed", invert=True)) == {
            c for c in category if category[c][0] == major
        }
    white = matching(Split(Regex(r"\s"), "removed", invert=True))
    assert {c for c in category if category[c][0] == "Z"} <= white
    for c in white:
        if category[c][0] != "Z":
            assert category[c] == "Cc"
            category[c] = "CW"
    for c in CODE_POINTS:
        numeric = len(Digits(individual_digits=True).pre_tokenize_str("aa" + chr(c) + "aa")) == 3
        if numeric != (category[c][0] == "N"):
            assert numeric and category[c] == "Cn", hex(c)
            category[c] = "CN_NUMERIC"
    return category


def combining_classes():
    proposed = {c: unicodedata.combining(chr(c)) for c in CODE_POINTS if unicodedata.combining(chr(c))}

    def moves(first, second):
        """Whether the reference exchanges two marks, that is, the first's class is above the second's, not 0."""
        return nfd("a" + chr(first) + chr(second)) == "a" + nfd(chr(second)) + nfd(chr(first))

    below_all, above_all = 0x334, 0x345  # the lowest and the highest class: 1 and 240
    classes = {}
    for c in CODE_POINTS:
        if nfd(chr(c)) != chr(c):
            continue  # its parts have the classes
        if c != above_all and moves(above_all, c) or c != below_all and moves(c, below_all):
            classes[c] = proposed[c]
    sample = {k: c for c, k in sorted(classes.items(), reverse=True)}
    for c, k in classes.items():
        for other, mark in sample.items():
            if c != mark:
                assert moves(c, mark) == (k > other), hex(c)
                assert moves(mark, c) == (other > k), hex(c)
    return classes


def decompositions():
    return {c: [ord(x) for x in nfd(chr(c))] for c in CODE_POINTS if c not in HANGUL and nfd(chr(c)) != chr(c)}


def compositions(decomposed):
    pairs = {}
    for c, parts in decomposed.items():
        if len(parts) < 2 or nfc("".join(map(chr, parts))) != chr(c):
            continue
        first = nfc("".join(map(chr, parts[:-1])))
        assert len(first) == 1
        pairs[ord(first), parts[-1]] = c
    for (first, second), c in pairs.items():
        assert nfc(chr(first) + chr(second)) == chr(c)
    return pairs


def rows(values, per_line, form="%d"):
    for i in range(0, len(values), per_line):
        yield "    " + ", ".join(form % v for v in values[i : i + per_line]) + ","


def two_stage(table):
    blocks, index = {}, []
    for i in range(0, 0x110000, BLOCK):
        block = tuple(table[i : i + BLOCK])
        index.append(blocks.setdefault(block, len(blocks)))
    assert len(blocks) <= 256
    return index, [v for block in blocks for v in block]


def main():
    category, classes = kinds(), combining_classes()
    decomposed = decompositions()
    pairs = compositions(decomposed)
    seconds = {second for _, second in pairs} | set(range(0x1161, 0x1176)) | set(range(0x11A8, 0x11C3))
    table = []
    for c in range(0x110000):
        kind = KINDS.index(category.get(c, "Cn"))
        special = c in classes or c in seconds or (c in category and nfc(chr(c)) != chr(c))
        table.append(kind | (NORMALIZE_BIT if special else 0))
    index, blocks = two_stage(table)

    ranges = []  # (first, count, class)
    for c in sorted(classes):
        if ranges and ranges[-1][0] + ranges[-1][1] == c and ranges[-1][2] == classes[c] and ranges[-1][1] < 255:
            ranges[-1][1] += 1
        else:
            ranges.append([c, 1, classes[c]])
    pool, entries = [], []
    for c in sorted(decomposed):
        entries.append((c, len(pool), len(decomposed[c])))
        pool += decomposed[c]
    assert len(pool) < 1 << 16

    out = ["/* Made by scripts/gen/unicode_table.py from tokenizers %s; do not edit. */" % tokenizers.__version__]
    out += ['#include "text/unicode.h"', '#include "text/unicode_nfc_table.h"', "", "/* clang-format off */"]
    out += ["const uint8_t unicode_stage1[%d] = {" % len(index), *rows(index, 26), "};", ""]
    out += ["const uint8_t unicode_stage2[%d] = {" % len(blocks), *rows(blocks, 26), "};", ""]
    out += ["const struct unicode_ccc_range unicode_ccc_ranges[] = {"]
    out += list(rows(["{%#x, %d, %d}" % tuple(r) for r in ranges], 6, "%s")) + ["};"]
    out += ["const size_t unicode_n_ccc_ranges = %d;" % len(ranges), ""]
    out += ["const struct unicode_decomposition unicode_decompositions[] = {"]
    out += list(rows(["{%#x, %d, %d}" % e for e in entries], 6, "%s")) + ["};"]
    out += ["const size_t unicode_n_decompositions = %d;" % len(entries), ""]
    out += ["const uint32_t unicode_decomposition_pool[%d] = {" % len(pool), *rows(pool, 14, "%#x"), "};", ""]
    out += ["const struct unicode_composition unicode_compositions[] = {"]
    out += list(rows(["{%#x, %#x, %#x}" % (*p, pairs[p]) for p in sorted(pairs)], 5, "%s")) + ["};"]
    out += ["const size_t unicode_n_compositions = %d;" % len(pairs)]
    print("\n".join(out))
    print("kinds: %d blocks, %d bytes; ccc %d ranges; %d decompositions (%d), %d compositions"
          % (len(blocks) // BLOCK, len(index) + len(blocks), len(ranges), len(entries), len(pool), len(pairs)),
          file=sys.stderr)


main()
