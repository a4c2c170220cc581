#!/usr/bin/env python3
"""Writes tests/data/tokenizer/kinds/: small tokenizer.json files and SentencePiece models of every kind, and kinds.golden,
digests of what the references make of generated text with them.

    pip install tokenizers==0.23.3 sentencepiece==0.2.3 protobuf
    tests/golden/tokenizer_kinds.py
"""
import io
import json
import os
import sys
import tempfile

os.environ["TOKENIZERS_PARALLELISM"] = "false"
import sentencepiece
import sentencepiece.sentencepiece_model_pb2 as pb
from tokenizers import AddedToken, Regex, Tokenizer
from tokenizers import decoders as D
from tokenizers import models, processors, trainers
from tokenizers import normalizers as N
from tokenizers import pre_tokenizers as P

import tokenizer_corpus
from tokenizer_golden import (CONTRACTION, DATA, DEEPSEEK3, FRAGMENTS, GPT2, KANA, LLAMA3, QWEN2, Random, Writer, code_point_texts,
                              digests, long_words, random_texts, split)

ADDED = ["<s>", "</s>", "<tool>", " <tool>", "[X]", "[X] ", "word", " word ", "words", "  two", "   two ", "Ünï", "<NORM>",
         " <NORM>", "<|im_end|>", "[MASK]", " [MASK]", "[CLS]", "<unk>"]
RULES = [("\u00a0", " "), ("\u3000", " "), ("\t", " "), ("\n", " "), ("\ufb01", "fi"), ("\ufb03", "ffi"), ("\u2122", "tm"), ("\u00bd", "1\u20442"),
         ("\u0600", "n"), ("\ufeff", " "), ("\u200b", ""), ("e\u0301", "é"), ("é", "e"), ("…", "..."), ("＝", "="), ("１", "1"), ("ß", "ss"),
         ("\u0345", "ι"), ("\u1e9b\u0323", "ṩ"), ("中", "中 "), ("A", "a"), ("I", "i"), ("T", "t")]
TEXTS = list(tokenizer_corpus.texts())


def rules_file(folder):
    path = os.path.join(folder, "rules.tsv")
    with open(path, "w") as f:
        for a, b in RULES:
            f.write("%s\t%s\n" % (" ".join("%X" % ord(c) for c in a), " ".join("%X" % ord(c) for c in b)))
    return path


def sentencepiece_model(rules=False, **options):
    out = io.BytesIO()
    with tempfile.TemporaryDirectory() as folder:
        if rules:
            options["normalization_rule_tsv"] = rules_file(folder)
        else:
            options["normalization_rule_name"] = "identity"
        lines = [line for t in TEXTS for line in t.split("\n") if line]
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines), model_writer=out, minloglevel=2, num_threads=1, hard_vocab_limit=False,
            character_coverage=0.98, **{"vocab_size": 700, **options})
    return out.getvalue()


def charsmap():
    m = pb.ModelProto()
    m.ParseFromString(sentencepiece_model(rules=True, vocab_size=500))
    return m.normalizer_spec.precompiled_charsmap


def finish(t):
    t.add_special_tokens([AddedToken(x, normalized=False) for x in ("<s>", "</s>", "<unk>", "<|im_end|>")])
    t.add_tokens([AddedToken("<tool>", lstrip=True), AddedToken("[X]", rstrip=True, normalized=False),
                  AddedToken("word", single_word=True), AddedToken("  two", lstrip=True, rstrip=True, single_word=True), "Ünï",
                  AddedToken("<NORM>", special=True, normalized=True)])
    ids = [("<s>", t.token_to_id("<s>")), ("</s>", t.token_to_id("</s>"))]
    t.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=ids)
    return t


def byte_level(pre, norm=None, **options):
    t = Tokenizer(models.BPE(**options))
    t.pre_tokenizer = pre
    if norm:
        t.normalizer = norm
    t.train_from_iterator(TEXTS, trainers.BpeTrainer(vocab_size=600, initial_alphabet=P.ByteLevel.alphabet(), show_progress=False))
    t.decoder = D.ByteLevel()
    return finish(t)


def metaspace(pre=None, norm=None, decoder=None, fallback=True, fuse=True):
    t = Tokenizer(models.BPE(byte_fallback=fallback, fuse_unk=fuse, unk_token="<unk>"))
    t.pre_tokenizer = P.Metaspace()
    byte_pieces = ["<0x%02X>" % i for i in range(256)] if fallback else []
    t.train_from_iterator(TEXTS, trainers.BpeTrainer(
        vocab_size=500 + len(byte_pieces), special_tokens=["<unk>", "<s>", "</s>"] + byte_pieces, limit_alphabet=90, show_progress=False))
    j = json.loads(t.to_str())
    j["added_tokens"] = [a for a in j["added_tokens"] if not a["content"].startswith("<0x")]
    j["pre_tokenizer"] = None
    t = Tokenizer.from_str(json.dumps(j))
    if pre:
        t.pre_tokenizer = pre
    if norm:
        t.normalizer = norm
    t.decoder = decoder
    return finish(t)


def unigram(pre, norm):
    t = Tokenizer(models.Unigram())
    t.pre_tokenizer, t.normalizer = pre, norm
    t.train_from_iterator(TEXTS, trainers.UnigramTrainer(
        vocab_size=500, unk_token="<unk>", special_tokens=["<s>", "<unk>", "</s>"], show_progress=False))
    t.decoder = D.Metaspace()
    return finish(t)


def wordpiece(norm, pre):
    t = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=40))
    t.normalizer, t.pre_tokenizer = norm, pre
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    t.train_from_iterator(TEXTS, trainers.WordPieceTrainer(vocab_size=700, special_tokens=special, limit_alphabet=200, show_progress=False))
    t.decoder = D.WordPiece(cleanup=False)
    t.add_tokens([AddedToken("[MASK]", lstrip=True, special=True, normalized=False)])
    t.post_processor = processors.BertProcessing(("[SEP]", t.token_to_id("[SEP]")), ("[CLS]", t.token_to_id("[CLS]")))
    return t


def llama_decoder(strip=True):
    return D.Sequence([D.Replace("▁", " "), D.ByteFallback(), D.Fuse()] + ([D.Strip(" ", 1, 0)] if strip else []))


JSON = {
    "roberta": lambda: byte_level(P.ByteLevel(add_prefix_space=True)),
    "llama3": lambda: byte_level(split(LLAMA3), ignore_merges=True),
    "qwen2": lambda: byte_level(split(QWEN2), N.NFC()),
    "nfkc": lambda: byte_level(split(GPT2), N.Sequence([N.NFKC(), N.Lowercase(), N.Strip()])),
    "nfkd": lambda: byte_level(
        P.Sequence([P.Digits(False), P.Punctuation("contiguous"), P.ByteLevel(add_prefix_space=False, use_regex=False)]),
        N.Sequence([N.NFKD(), N.StripAccents()])),
    "falcon": lambda: byte_level(P.Sequence([P.Punctuation("contiguous"), P.ByteLevel(add_prefix_space=False), P.Digits(False),
                                             P.Split(Regex("[0-9][0-9][0-9]"), "isolated")])),
    "deepseek": lambda: byte_level(split(r"\p{N}{1,3}", KANA, DEEPSEEK3), N.Sequence([])),
    "llama2": lambda: metaspace(None, N.Sequence([N.Prepend("▁"), N.Replace(" ", "▁")]), llama_decoder()),
    "mistral": lambda: metaspace(P.Metaspace(prepend_scheme="first", split=False), None, llama_decoder()),
    "gemma": lambda: metaspace(P.Split(" ", "merged_with_previous"), N.Replace(" ", "▁"), llama_decoder(False)),
    "unk": lambda: metaspace(P.Metaspace(), None, D.Metaspace(), False),
    "unks": lambda: metaspace(P.Metaspace(prepend_scheme="never"), None, D.Metaspace(prepend_scheme="never"), False, False),
    "xlmr": lambda: unigram(P.Sequence([P.WhitespaceSplit(), P.Metaspace()]),
                            N.Sequence([N.Precompiled(charsmap()), N.Replace(Regex(" {2,}"), " ")])),
    "t5": lambda: unigram(P.Metaspace(), N.Precompiled(charsmap())),
    "nmt": lambda: unigram(P.Metaspace(prepend_scheme="first"), N.Sequence([N.Nmt(), N.NFD()])),
    "bert": lambda: wordpiece(N.BertNormalizer(), P.BertPreTokenizer()),
    "cased": lambda: wordpiece(N.BertNormalizer(lowercase=False), P.BertPreTokenizer()),
    "words": lambda: wordpiece(N.Sequence([N.NFD(), N.StripAccents(), N.Replace(Regex(r"\s+"), " ")]), P.Whitespace()),
    "pieces": lambda: wordpiece(N.BertNormalizer(clean_text=False, strip_accents=True, lowercase=False),
                                P.Sequence([P.WhitespaceSplit(), P.Punctuation(), P.Digits(True)])),
}
MODELS = {
    "llama": dict(model_type="bpe", byte_fallback=True, remove_extra_whitespaces=False, split_digits=True),
    "gemma": dict(model_type="bpe", byte_fallback=True, remove_extra_whitespaces=False, add_dummy_prefix=False,
                  user_defined_symbols=["▁▁", "▁▁▁", "\n", "\n\n", "<tool>", "<h1>", "ab", "xa"]),
    "rules": dict(model_type="bpe", rules=True, user_defined_symbols=["<tool>", "ﬁx"]),
    "across": dict(model_type="bpe", byte_fallback=True, allow_whitespace_only_pieces=True, split_by_whitespace=False),
    "unigram": dict(model_type="unigram", rules=True),
    "bytes": dict(model_type="unigram", rules=True, byte_fallback=True),
    "suffix": dict(model_type="unigram", remove_extra_whitespaces=False, treat_whitespace_as_suffix=True),
    "symbols": dict(model_type="unigram", user_defined_symbols=["'", ",", ".", "(", ")", "<tool>", "ab", "xa"]),
}


def added_texts(seed, n):
    random = Random(seed)
    for _ in range(n):
        parts = []
        for _ in range(1 + random.below(12)):
            kind = random.below(4)
            words = ADDED if kind == 0 else FRAGMENTS if kind < 3 else [" "]
            parts.append(words[random.below(len(words))])
        yield "".join(parts)


class Ids:
    def __init__(self, encode):
        self.encode = encode

    def encode_batch(self, texts, add_special_tokens):
        return [type("E", (), {"ids": ids}) for ids in self.encode(texts)]


def main():
    folder = os.path.join(DATA, "kinds")
    os.makedirs(folder, exist_ok=True)
    w = Writer(os.path.join(DATA, "kinds.golden"))
    w.fragments()
    files = [(name + ".json", make().to_str().encode()) for name, make in JSON.items()]
    files += [(name + ".model", sentencepiece_model(**options)) for name, options in MODELS.items()]
    for name, data in files:
        with open(os.path.join(folder, name), "wb") as f:
            f.write(data)
        if name.endswith(".json"):
            reference = Tokenizer.from_str(data.decode())
            ids = Ids(lambda texts: [e.ids for e in reference.encode_batch(texts, add_special_tokens=False)])
        else:
            processor = sentencepiece.SentencePieceProcessor(model_proto=data)
            ids = Ids(processor.EncodeAsIds)
        w.digests(name, "kinds", "random", 1, 1500, 75, digests(ids, random_texts(1, 1500), 75))
        w.digests(name, "kinds", "added", 2, 1500, 75, digests(ids, added_texts(2, 1500), 75))
        w.digests(name, "kinds", "code points", 0, 0, 256, digests(ids, code_point_texts(), 256))
        w.digests(name, "kinds", "long words", 9, 8, 1, digests(ids, long_words(9), 1))
        print(name, len(data), file=sys.stderr)
    w.close()


main()
