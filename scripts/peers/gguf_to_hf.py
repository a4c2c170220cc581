#!/usr/bin/env python3
"""Makes a model folder of the Hugging Face layout from a GGUF file, for engines that cannot read GGUF.

For speed measurements only: the weights are those of the file's quantized format, dequantized. Transformers' own
conversion of the tokenizer is wrong for some models, so it is built anew here from the file's tokens and merges, and its
size is checked; byte-level BPE only."""

import argparse
import sys

import gguf
import tokenizers
import torch
import transformers

SPLITS = {  # tokenizer.ggml.pre -> how text is split before the merges
    "smollm": tokenizers.pre_tokenizers.Digits(individual_digits=True),
    "qwen2": tokenizers.pre_tokenizers.Split(
        tokenizers.Regex(r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
                         r"|\s*[\r\n]+|\s+(?!\S)|\s+"), "isolated"),
}


def text_field(reader, name):
    return reader.get_field(f"tokenizer.ggml.{name}").contents()


def tokenizer_of(path):
    reader = gguf.GGUFReader(path)
    pre = text_field(reader, "pre")
    if text_field(reader, "model") != "gpt2" or pre not in SPLITS:
        sys.exit(f"{path}: tokenizer {text_field(reader, 'model')}/{pre}; known are gpt2/{', gpt2/'.join(SPLITS)}")
    tokens, types = text_field(reader, "tokens"), text_field(reader, "token_type")
    merges = [tuple(merge.split(" ")) for merge in text_field(reader, "merges")]
    result = tokenizers.Tokenizer(tokenizers.models.BPE({t: i for i, t in enumerate(tokens)}, merges))
    result.pre_tokenizer = tokenizers.pre_tokenizers.Sequence(
        [SPLITS[pre], tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=pre == "smollm")])
    result.decoder = tokenizers.decoders.ByteLevel()
    result.add_special_tokens([t for t, kind in zip(tokens, types) if kind == gguf.TokenType.CONTROL])
    if result.get_vocab_size() != len(tokens):
        sys.exit(f"the tokenizer has {result.get_vocab_size()} tokens, the file {len(tokens)}")
    eos = tokens[int(text_field(reader, "eos_token_id"))]
    return transformers.PreTrainedTokenizerFast(tokenizer_object=result, eos_token=eos, pad_token=eos)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("gguf", help="GGUF file")
    p.add_argument("folder", help="model folder to write")
    args = p.parse_args()
    tokenizer_of(args.gguf).save_pretrained(args.folder)
    directory, _, name = args.gguf.rpartition("/")
    # Transformers 5.24 leaves weights in the file's blocks, which cannot be saved, unless it is told not to.
    dense = {"quantization_config": transformers.GgufConfig(dequantize=True)} if hasattr(transformers, "GgufConfig") else {}
    model = transformers.AutoModelForCausalLM.from_pretrained(directory or ".", gguf_file=name, dtype=torch.bfloat16, **dense)
    model.save_pretrained(args.folder)


main()
