#!/usr/bin/env python3
"""Writes tests/data/tokenizer/*: a small vocabulary and what Hugging Face `tokenizers` makes of text with it.

    pip install tokenizers==0.23.3 gguf
    tests/golden/tokenizer_golden.py small               vocab.bin and small.golden
    tests/golden/tokenizer_golden.py rest                pretok.golden, nfc.golden, detokenizer.golden
    tests/golden/tokenizer_golden.py model MODEL.gguf    smollm2.golden, with the vocabulary of the default model

The formats are read by tests/unit/text/util_tok.c. Ids of chosen texts are kept as they are; of generated ones, which both
sides make with the same generator, only digests are.
"""
import json
import os
import struct
import sys

os.environ["TOKENIZERS_PARALLELISM"] = "false"
from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, pre_tokenizers, trainers
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence, Split

import tokenizer_corpus

HERE = os.path.dirname(os.path.abspath(__file__))
DATA = os.path.join(HERE, "..", "data", "tokenizer")
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED = 1, 2, 3, 4, 5

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def split(*patterns):
    steps = [Split(Regex(p), "isolated") for p in patterns]
    return Sequence(steps + [ByteLevel(add_prefix_space=False, use_regex=False)])


QWEN2 = LLAMA3.replace("{1,3}", "")
UPPER, LOWER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"


def cased(end, digits, rest, no_han=""):
    return (
        rf"[^\r\n\p{{L}}\p{{N}}]?[{UPPER}{no_han}]*[{LOWER}{no_han}]+{end}"
        rf"|[^\r\n\p{{L}}\p{{N}}]?[{UPPER}{no_han}]+[{LOWER}{no_han}]*{end}|{digits}| ?[^\s\p{{L}}\p{{N}}]+{rest}"
        r"|\s*[\r\n]+|\s+(?!\S)|\s+"
    )


QWEN35 = (
    CONTRACTION + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
BAILING = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
SEED = CONTRACTION + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+"
KIMI = r"[\p{Han}]+|" + cased(CONTRACTION + "?", r"\p{N}{1,3}", r"[\r\n]*", r"&&[^\p{Han}]")
DEEPSEEK3 = (
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
).replace("\\\"", '"')
BLOOM = " ?[^(\\s|.,!?…。，、।۔،)]+"
KANA, WIDE = "[一-龥぀-ゟ゠-ヿ]+", "[一-龥ࠀ-一가-퟿]+"
ASCII_CONTRACTION = "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"


def digits_then(*steps):
    return Sequence([Digits(individual_digits=True), *steps])


SMOLLM = digits_then(ByteLevel(add_prefix_space=False, use_regex=True))
# name: (pre-tokenizer, normalizer, ignore_merges)
PRE = {
    "smollm": (SMOLLM, None, False),
    "llama-bpe": (split(LLAMA3), None, True),
    "qwen2": (split(QWEN2), normalizers.NFC(), False),
    "gpt-2": (split(GPT2), None, False),
    "default": (split(r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]"), None, False),
}
MORE = {  # word borders only
    "olmo": split(GPT2),
    "dbrx": split(LLAMA3),
    "glm4": split(LLAMA3),
    "hunyuan": split(QWEN2),
    "qwen35": split(QWEN35),
    "bailingmoe": split(BAILING),
    "seed-coder": split(SEED),
    "gpt-4o": split(cased(CONTRACTION + "?", r"\p{N}{1,3}", r"[\r\n/]*")),
    "tekken": split(cased("", r"\p{N}", r"[\r\n/]*")),
    "kimi-k2": split(KIMI),
    "command-r": SMOLLM,
    "deepseek-v3": split(r"\p{N}{1,3}", KANA, DEEPSEEK3),
    "deepseek-coder": Sequence([
        *(Split(Regex(p), "isolated") for p in (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", WIDE)),
        Digits(individual_digits=True), ByteLevel(add_prefix_space=False, use_regex=False)]),
    "falcon": split(r"[\p{P}\$\+<=>\^~\|`]+", GPT2, "[0-9][0-9][0-9]"),
    "bloom": split(BLOOM),
    "viking": Sequence([Split(Regex(BLOOM), "isolated"), Digits(individual_digits=True),
                        ByteLevel(add_prefix_space=False, use_regex=False)]),
}
PATTERNS = [  # that tokenizer.json files have; written to tests/unit/text/pretok_patterns.inc
    GPT2, GPT2[: -len(r"|\s+")], LLAMA3, BAILING.replace(r"|\p{N}|", r"|\p{N}{1,3}|"),
    LLAMA3.replace(CONTRACTION, ASCII_CONTRACTION), QWEN2, BAILING, QWEN2.replace(CONTRACTION, ASCII_CONTRACTION),
    LLAMA3.replace("{1,3}", "+"), SEED, QWEN35, cased(CONTRACTION + "?", r"\p{N}{1,3}", r"[\r\n/]*"),
    cased("", r"\p{N}", r"[\r\n/]*"), KIMI, DEEPSEEK3, KANA, WIDE, r"[\r\n]", "[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", BLOOM,
    r"\p{N}{1,3}", r"\p{N}", r"\p{N}+", "[0-9][0-9][0-9]", r"[\p{P}\$\+<=>\^~\|`]+", r"[\p{P}\$\+<=>\^~\|]+",
]

# --- vocabularies ---

# Pieces that no merge makes: only a tokenizer that ignores merges encodes to them.
UNMERGED = ["Ġquartz", "zyzzyva", "Ġjinx", "vexing", "ĠĠquop", "æĹłæķ°"]
ADDED = [
    ("<|endoftext|>", CONTROL), ("<|im_start|>", CONTROL), ("<|im_end|>", CONTROL), ("<|im|>", CONTROL),
    ("<|im_end|><|", CONTROL), ("<s>", CONTROL), ("</s>", CONTROL), ("<unk>", UNKNOWN),
    ("<tool_call>", USER_DEFINED), ("</tool_call>", USER_DEFINED), ("<tool", USER_DEFINED), ("\n\n\n", USER_DEFINED),
    ("<|python_tag|>", USER_DEFINED), ("<｜User｜>", USER_DEFINED), ("naïve token", USER_DEFINED), ("[PAD1]", UNUSED),
]


def train():
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = PRE["gpt-2"][0]
    trainer = trainers.BpeTrainer(
        vocab_size=3300, initial_alphabet=ByteLevel.alphabet(), max_token_length=24, show_progress=False
    )
    tokenizer.train_from_iterator(tokenizer_corpus.texts(), trainer)
    model = json.loads(tokenizer.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    tokens = [(t, NORMAL) for t in tokens + UNMERGED] + ADDED
    merges = [tuple(m) if isinstance(m, list) else tuple(m.split(" ")) for m in model["merges"]]
    return tokens, merges


def write_vocab(path, tokens, merges):
    ids = {t: i for i, (t, _) in enumerate(tokens)}
    with open(path, "wb") as f:
        f.write(b"QTOK" + struct.pack("<II", len(tokens), len(merges)))
        for text, kind in tokens:
            raw = text.encode()
            f.write(struct.pack("<BB", kind, len(raw)) + raw)
        for left, right in merges:
            f.write(struct.pack("<HH", ids[left], ids[right]))


class Random:
    """SplitMix64 (Steele et al. 2014)."""

    def __init__(self, seed):
        self.state = seed

    def next(self):
        mask = (1 << 64) - 1
        self.state = (self.state + 0x9E3779B97F4A7C15) & mask
        z = self.state
        z = ((z ^ z >> 30) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ z >> 27) * 0x94D049BB133111EB) & mask
        return z ^ z >> 31

    def below(self, n):
        return self.next() % n


def variant(name, tokens, merges):
    """Other lists of merges over the same pieces."""
    if name == "holes":  # the vocabulary lacks pieces for some bytes
        holes = [chr(0x100 + 4), chr(0x100 + 6), chr(0x100 + 0x13), "À", "ñ", "ÿ"]
        used = {t for m in merges for t in m}
        assert not used & set(holes)
        return [("[HOLE %d]" % i, UNUSED) if t in holes else (t, k) for i, (t, k) in enumerate(tokens)], merges
    if name == "shuffled":  # ranks in an order that no training gives
        merges, random = list(merges), Random(4711)
        for i in range(len(merges) - 1, 0, -1):
            k = random.below(i + 1)
            merges[i], merges[k] = merges[k], merges[i]
        return tokens, merges
    if name == "expanded":  # as converters of tiktoken files write them: all ways to make a piece
        normal = {t for t, k in tokens if k == NORMAL}
        made = [a + b for a, b in merges]
        return tokens, [(t[:i], t[i:]) for t in made for i in range(1, len(t)) if t[:i] in normal and t[i:] in normal]
    return tokens, merges


def reference(pre, tokens, merges):
    pre_tokenizer, normalizer, ignore = PRE[pre]
    vocab = {t: i for i, (t, kind) in enumerate(tokens) if kind == NORMAL}
    tokenizer = Tokenizer(BPE(vocab, merges, ignore_merges=ignore))
    tokenizer.pre_tokenizer = pre_tokenizer
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def with_added(tokenizer, tokens, kinds):
    for text, kind in tokens:
        if kind in kinds:
            tokenizer.add_tokens([AddedToken(text, normalized=False, special=False)])
            assert tokenizer.token_to_id(text) == [t for t, _ in tokens].index(text)
    return tokenizer


# --- texts ---

TEXTS = [
    "", " ", "  ", "   ", "\n", "\n\n", "\r\n", "\t", "a", " a", "a ", " a ", "  a", "a  b", "a   b", "a \n b", "a\n\n b", "\n a",
    " \n", " \n ", "\n \n", "\r\n\r\n a\n \n", "x\r\ny\rz\n", "a\t\tb", "\t\n\n  x", "tabs\t\t\tand   spaces \t \n\t end ",
    "They're I'LL 1234567 3.14159", "a\u2029 \ua3e4", "\u00a0\u3000", "e\u0301 \u00e9", "\u0e33", "'s 't 're 've 'm 'll 'd",
    "'S 'T 'RE 'VE 'M 'LL 'D 'lL 'Re 'vE", "it's It'S IT\u2019S ''s 's's 'sx 'x 'r 'l 'v ' 's", "'\u017f '\u017fa \u017f", "don't we'd they've",
    "0 1 12 123 1234 12345 123456 1234567 0.5 1,000,000 1e-9", " 1  22   333", "a1b22c333d4444", "x=1;y=22", "½ ¼ ²³ Ⅳ ①② ٠١٢٣ १२३४ ๑๒๓ 二〇",
    "12３456 ７８９0 1２3４5", "𝟘𝟙𝟚 🄀 🯰🯱 \U00011de0\U00011de1 \U00016ff4",
    "!!! ??? ... --- === <<< >>> $$$ ^^^ ~~~ ||| ``` ''' \"\"\" ### @@@ %%% &&& *** +++ ///", "$5 +6 <7> =8 ^9 ~0 |1 `2` a$b a+b a<b a`b",
    " $ + < = > ^ ~ | ` ", "(a) [b] {c} a(b)c d[e]f", "foo_bar fooBar FooBAR foo-bar foo.bar", "http://example.org/a/b?c=d&e=f#g",
    "def f(x):\n    return x + 1\n\n\nclass A:\n\tpass\n", "if (a && b || !c) { d[i] -> e; }\r\n", "\u201cquotes\u201d \u2018single\u2019 \u2014 \u2026 \u2013",
    "今天早上我们去市场买水果，然后坐船到对面的小岛上看朋友。", "今日は朝から雨が降っています。", "오늘 아침에 우리는 시장에 가서 과일을 샀습니다.",
    "Привет, мир! Ёлка. ΑΒΓ αβγ ς", "שלום עולם", "السلام عليكم ١٢٣", "नमस्ते दुनिया क्षत्रिय", "ภาษาไทยไม่มีวรรค", "Tiếng Việt có dấu",
    "👍👍 👩‍👩‍👧‍👦 🏳️‍🌈 👋🏽 🇩🇪🇫🇷 ❤️", "a👍b 👍c d👍 1👍2", "e\u0301e\u0301 o\u0323\u0302 o\u0302\u0323 q\u0323\u0307 q\u0307\u0323 \u0301a \u0344",
    "\u1100\u1161\u11a8 \uac00\u11a8 \u1100\u1161 각", "\u212b \u2126 \u212a \ufb01 \ufb03 \u01c5 \u00df \u0130", "\u0958 \u09cb \u0b94 \u0dda \u1026 \u2adc \U0001d15e",
    "a\u0315\u0300\u05ae\u0062\u0315 x\u0334\u0345\u0323\u0301", "\u200b \u200c \u200d \ufeff \u00ad \u2060", "\x00 \x01\x02 \x04\x06\x13 \x7f \x80 \x85 \x9f",
    "\ue000 \uf8ff \U000f0000 \U0010fffd \ufffd \ufffe \uffff", "\u0378 \u1c8a \ua7cb \U00010d4a \U0001e5f0", "\x0b\x0c\x1c\x1d\x1e\x1f\u180e\u1680\u2000\u2028x",
    "quartz jinx  quop zyzzyva vexing 无数", "The quick brown fox jumps over the lazy dog. " * 3, "antidisestablishmentarianism pneumonoultramicroscopicsilicovolcanoconiosis",
    "a" * 63, "a" * 64, "a" * 65, "a" * 66, "ab" * 40, "=" * 100, " " * 200 + "x", "-" * 33, "the" * 50, "我们" * 60, "0123456789" * 12, "\n" * 70, "\u0301" * 80,
    "e" + "\u0323\u0301" * 45 + "z", "x" * 1000, " \t" * 300, "ha" * 700 + "h", "spaß" * 400,
]

SPECIAL = [  # texts with tokens in them; [content]
    ("<|im_start|>user\nHello<|im_end|>\n", []), ("<|im_start|>", []), ("a<|im_end|>b", []), (" <|im_end|> ", []),
    ("<|im_end|><|im_end|>", []), ("<|im_end|><|im_start|>", []), ("<|im|>", []), ("<|im", []), ("<|im_<|im|>", []), ("<s></s><unk>[PAD1]", []),
    ("<tool_call>{}</tool_call>", []), ("<tool>", []), ("<tool_cal", []), ("a\n\n\n\nb", []), ("\n\n\n\n\n\n\n", []), ("naïve token naïve", []),
    ("<|python_tag|>print(1)<｜User｜>x", []), ("1<s>2", []), ("  <s>  ", []), ("don<s>'t", []), ("<<s>>", []), ("e<s>\u0301", []),
]
CONTENT = [  # (text, content as byte ranges, the same text with what is not recognised marked by U+0001)
    ("<|im_start|>user\n<|im_end|><|im_end|>", [(17, 10)]),
    ("<|im_start|>user\nx <|im_start|>system y<|im_end|>", [(17, 22)]),
    ("<|im_start|>user\n<|im_end|>", [(17, 9)]),       # one byte of it is the template's: still not recognised
    ("<|im_start|>user\n<|im_end|>", [(18, 1)]),
    ("a<|im_end|>b", [(0, 1), (11, 1)]),                # on both sides of it: recognised
    ("a<|im_end|>b", [(0, 2)]), ("a<|im_end|>b", [(10, 2)]), ("a<|im_end|>b", [(1, 0), (11, 0)]), ("a<|im_end|>b", [(5, 0)]),
    ("x<|im_end|><|y", [(11, 3)]),                      # the longer match would touch content: the shorter is taken
    ("<tool_call>1</tool_call><|python_tag|><｜User｜>", [(0, 50)]),  # user-defined ones are, markers are not
    ("</s><s>", [(0, 4)]), ("</s><s>", [(4, 3)]), ("<unk><unk>", [(5, 5)]),
]

FRAGMENTS = (
    "a e t o i n s r th he in er an the and ing ion tion The I A x Z 0 1 7 12 123 1984 3.14 ' 's 't 'll 'RE 'Ve \u2019s \u017f \" ( ) [ ] { } <"
    " > = + - * / \\ | ~ ^ ` $ % & # @ ! ? . , : ; _ -- ... === ``` !!! <= >= != && // */ é ü ñ ß ç ø å ı İ Ž ő ǅ ﬁ е и ж Ё ї Ω λ ς ά"
    " א ש ع ل م ۳ ١ न क ् ि த ் ก ำ ็ ่ 中 国 们 我 。 ， 「 の カ ー ｱ 한 글 ᄀ ᅡ ᆨ 가 ½ ² Ⅳ ① ％ ３ € £ → ∑ ° © ™ № … — “ ” « 👍 👩 🏽 \u200d ❤ \ufe0f 🇩 🎉 𝟘 𝔸 🀄"
    " \u0301 \u0323 \u0308 \u0327 \u0345 \u0334 \u20d0 \u00ad \u200b \ufeff \ufffd \ue000 \u0378 \U0010fffd \U00011de3 \U0001e130 \u09cd \u0d4d \u094d"
).split(" ") + [
    " ", " ", " ", "  ", "   ", "\n", "\n", "\n\n", "\r\n", "\r", "\t", "\t\t", "\x0b", "\x85", "\u00a0", "\u2003", "\u2028", "\u3000", "\x00", "\x7f", "\x1c",
    " the", " of", " and", " to", " 1", " 23", " (", " \"", " '", "    ", "\n\n\n", "\n  ", " \n", "return", " def", "0x", "http", " quartz", "vexing",
]


def random_text(random):
    out = []
    for _ in range(1 + random.below(24)):
        kind = random.below(16)
        if kind < 12:
            out.append(FRAGMENTS[random.below(len(FRAGMENTS))])
        elif kind == 12:
            c = random.below(0x110000)
            out.append(chr(c) if not 0xD800 <= c < 0xE000 else " ")
        elif kind == 13:
            out.append(chr(0x20 + random.below(0x2FE0)))
        elif kind == 14:
            piece = FRAGMENTS[random.below(len(FRAGMENTS))]
            out.append(piece * (1 + random.below(90)))
        else:
            out += [chr(0x61 + random.below(26)) for _ in range(1 + random.below(100))]
    return "".join(out)


def long_words(seed):
    """Words that take each way of merging: a few hundred symbols, thousands, runs."""
    random = Random(seed)
    yield "a" * 5000
    yield "ab" * 3000 + "a"
    yield "".join(chr(0x61 + random.below(3)) for _ in range(20000))
    yield "".join("etaoin"[random.below(6)] for _ in range(700))
    yield "".join("etaoinshrdlu"[random.below(12)] for _ in range(9000))
    yield "".join("我们今天去市场买水果中文没有空格"[random.below(16)] for _ in range(4000))
    yield "=" * 4001 + "-" * 300
    yield " " * 6007


def code_points():
    """All of the planes that hold something; every 16th of the others."""
    for c in range(0x110000):
        if 0xD800 <= c < 0xE000:
            continue
        if c < 0x40000 or 0xE0000 <= c < 0xF0000 or c % 16 == 0:
            yield c


def code_point_texts():
    """256 code points a text, each in three places."""
    part = []
    for c in code_points():
        part.append(chr(c))
        if len(part) == 256:
            yield from forms(part)
            part = []
    if part:
        yield from forms(part)


def forms(part):
    yield "".join("a%sb" % c for c in part)
    yield "".join(" %s" % c for c in part)
    yield "".join("\n%s'%sl\u0301" % (c, c) for c in part)


# --- writing ---


def fnv(ids, h=0xCBF29CE484222325):
    for x in ids:
        for byte in (x & 255, x >> 8 & 255, x >> 16 & 255):
            h = ((h ^ byte) * 0x100000001B3) & ((1 << 64) - 1)
    return ((h ^ 0xFF) * 0x100000001B3) & ((1 << 64) - 1)


def digests(tokenizer, texts, per_digest):
    out, h, n = [], 0xCBF29CE484222325, 0
    batch = []

    def flush():
        nonlocal h, n
        for e in tokenizer.encode_batch(batch, add_special_tokens=False):
            h = fnv(e.ids, h)
            n += 1
            if n % per_digest == 0:
                out.append(h)
                h = 0xCBF29CE484222325
        batch.clear()

    for text in texts:
        batch.append(text)
        if len(batch) == 512:
            flush()
    flush()
    if n % per_digest:
        out.append(h)
    return out


class Writer:
    """Sections: name, kind, entries. Kind 1: texts with ids. Kind 2: digests of generated texts."""

    def __init__(self, path):
        self.path, self.out = path, [b"QGLD"]

    def text(self, s):
        raw = s.encode()
        self.out.append(struct.pack("<I", len(raw)) + raw)

    def cases(self, pre, variant_name, cases):
        """cases: (flags, text, content, ids)"""
        self.out.append(b"C")
        self.text(pre)
        self.text(variant_name)
        self.out.append(struct.pack("<I", len(cases)))
        for flags, text, content, ids in cases:
            self.out.append(struct.pack("<B", flags))
            self.text(text)
            self.out.append(struct.pack("<B", len(content)) + b"".join(struct.pack("<HH", *c) for c in content))
            self.out.append(struct.pack("<I%dH" % len(ids), len(ids), *ids))

    def digests(self, pre, variant_name, what, seed, n_texts, per_digest, values):
        self.out.append(b"D")
        for s in (pre, variant_name, what):
            self.text(s)
        self.out.append(struct.pack("<QIII%dQ" % len(values), seed, n_texts, per_digest, len(values), *values))

    def fragments(self):
        self.out.append(b"F" + struct.pack("<I", len(FRAGMENTS)))
        for f in FRAGMENTS:
            self.text(f)

    def close(self):
        data = b"".join(self.out) + b"E"
        with open(self.path, "wb") as f:
            f.write(data)
        print(self.path, len(data), "bytes", file=sys.stderr)


def ids_of(tokenizer, text):
    return tokenizer.encode(text, add_special_tokens=False).ids


def random_texts(seed, n):
    random = Random(seed)
    for _ in range(n):
        yield random_text(random)


def content_ids(plain, tokens, text, content):
    """What recognition outside content means, said differently: the text is cut at the tokens that count and each stretch
    between them is encoded by the reference as a text of its own."""
    raw = text.encode()
    table = {t.encode(): (i, k) for i, (t, k) in enumerate(tokens) if k in (CONTROL, UNKNOWN, USER_DEFINED)}

    def allowed(start, end, spelling, kind):
        marker = spelling[:2] == b"<|" or "｜" in spelling.decode()
        if kind == USER_DEFINED and not marker:
            return True
        return all(end <= s or s + n <= start or n == 0 for s, n in content)

    ids, start, i = [], 0, 0
    while i < len(raw):
        best = max(
            (s for s, (_, k) in table.items() if raw.startswith(s, i) and allowed(i, i + len(s), s, k)), key=len, default=None
        )
        if best is None:
            i += 1
            continue
        ids += ids_of(plain, raw[start:i].decode()) + [table[best][0]]
        i = start = i + len(best)
    return ids + ids_of(plain, raw[start:].decode())


def write_golden(path, tokens, merges, small):
    w = Writer(path)
    w.fragments()
    n_random = 6000 if small else 2000
    for pre in PRE:
        plain = reference(pre, tokens, merges)
        cases = [(0, t, [], ids_of(plain, t)) for t in TEXTS]
        cases += [(0, t, [], ids_of(plain, t)) for t, _ in SPECIAL]  # nothing is recognised without the flag
        if small:
            found = with_added(reference(pre, tokens, merges), tokens, (CONTROL, UNKNOWN, USER_DEFINED))
            cases += [(1, t, [], ids_of(found, t)) for t, _ in SPECIAL]
            cases += [(1, t, c, content_ids(plain, tokens, t, c)) for t, c in CONTENT]
            for t, _ in SPECIAL:
                assert content_ids(plain, tokens, t, []) == ids_of(found, t), t
        w.cases(pre, "plain", cases)
        w.digests(pre, "plain", "random", 1, n_random, 50, digests(plain, random_texts(1, n_random), 50))
        w.digests(pre, "plain", "code points", 0, 0, 24, digests(plain, code_point_texts(), 24))
        w.digests(pre, "plain", "long words", 9, 8, 1, digests(plain, long_words(9), 1))
    for name in ("holes", "shuffled", "expanded") if small else ():
        t, m = variant(name, tokens, merges)
        tokenizer = reference("gpt-2", t, m)
        w.digests("gpt-2", name, "random", 2, n_random, 50, digests(tokenizer, random_texts(2, n_random), 50))
        w.digests("gpt-2", name, "long words", 9, 8, 1, digests(tokenizer, long_words(9), 1))
    w.close()


def write_splits(path):
    """Word borders themselves: digests of the words' lengths in bytes (a character of the byte-level alphabet each)."""
    w = Writer(path)
    w.fragments()

    named = {**{name: p for name, (p, _, _) in PRE.items()}, **MORE}
    patterns = {str(i): split(p) for i, p in enumerate(PATTERNS)}
    with open(os.path.join(HERE, "..", "unit", "text", "pretok_patterns.inc"), "w") as f:
        for p in PATTERNS:
            f.write('"%s",\n' % "".join(c if 32 <= ord(c) < 127 and c not in '\\"' else "".join("\\%03o" % b for b in c.encode()) for c in p))
    for pre, pre_tokenizer, kind in [(k, v, "splits") for k, v in named.items()] + [(k, v, "pattern") for k, v in patterns.items()]:

        class Words:
            @staticmethod
            def encode_batch(texts, add_special_tokens):
                words = [pre_tokenizer.pre_tokenize_str(t) for t in texts]
                return [type("E", (), {"ids": [len(word) for word, _ in ws]}) for ws in words]

        w.digests(pre, kind, "random", 6, 4000, 200, digests(Words, random_texts(6, 4000), 200))
        w.digests(pre, kind, "code points", 0, 0, 96, digests(Words, code_point_texts(), 96))
    w.close()


def write_nfc(path):
    """NFC itself: digests of the UTF-8 of normalized text."""
    w = Writer(path)
    w.fragments()

    class Bytes:
        @staticmethod
        def encode_batch(texts, add_special_tokens):
            normalize = normalizers.NFC().normalize_str
            return [type("E", (), {"ids": normalize(t).encode()}) for t in texts]

    w.digests("", "nfc", "random", 3, 20000, 100, digests(Bytes, random_texts(3, 20000), 100))
    w.digests("", "nfc", "code points", 0, 0, 24, digests(Bytes, code_point_texts(), 24))
    w.digests("", "nfc", "marks", 4, 3000, 50, digests(Bytes, mark_texts(4, 3000), 50))
    w.close()


def mark_texts(seed, n):
    random = Random(seed)
    for _ in range(n):
        out = []
        for _ in range(1 + random.below(12)):
            out.append(chr(0x41 + random.below(0x3A)))
            out += [chr(0x300 + random.below(0x70)) for _ in range(random.below(60) if random.below(8) == 0 else random.below(5))]
        yield "".join(out)


def random_bytes(random):
    """Bytes near UTF-8: whole characters, cut ones, stray bytes."""
    out = bytearray()
    for _ in range(1 + random.below(20)):
        kind = random.below(6)
        if kind == 0:
            out.append(random.below(256))
        elif kind == 1:
            out.append(0x80 + random.below(64))
        elif kind == 2:
            out.append(0xC0 + random.below(64))
        elif kind == 3:
            out.append(0x20 + random.below(95))
        else:
            c = random.below((0x800, 0x10000, 0x110000)[random.below(3)])
            raw = chr(c).encode("utf-8", "surrogatepass")
            out += raw if kind == 4 else raw[: random.below(len(raw) + 1)]
    return bytes(out)


def write_detokenizer(path):
    """Digests of what Python's errors="replace" makes of random bytes."""

    class Bytes:
        @staticmethod
        def encode_batch(texts, add_special_tokens):
            return [type("E", (), {"ids": t.decode("utf-8", "replace").encode()}) for t in texts]

    w = Writer(path)
    w.fragments()
    random = Random(5)
    w.digests("", "replace", "bytes", 5, 50000, 100, digests(Bytes, (random_bytes(random) for _ in range(50000)), 100))
    w.close()


def main():
    os.makedirs(DATA, exist_ok=True)
    if sys.argv[1:] == ["rest"]:
        write_nfc(os.path.join(DATA, "nfc.golden"))
        write_splits(os.path.join(DATA, "pretok.golden"))
        write_detokenizer(os.path.join(DATA, "detokenizer.golden"))
    elif sys.argv[1:] == ["small"]:
        tokens, merges = train()
        write_vocab(os.path.join(DATA, "vocab.bin"), tokens, merges)
        write_golden(os.path.join(DATA, "small.golden"), tokens, merges, True)
    elif len(sys.argv) == 3 and sys.argv[1] == "model":
        from gguf import GGUFReader

        fields = GGUFReader(sys.argv[2]).fields
        texts, merges, types = (fields["tokenizer.ggml." + k].contents() for k in ("tokens", "merges", "token_type"))
        merges = [tuple(m.split(" ")) for m in merges]
        write_golden(os.path.join(DATA, "smollm2.golden"), list(zip(texts, types)), merges, False)
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
