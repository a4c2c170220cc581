"""Makes a `tokenizers` file of the default model from its GGUF: python model_tokenizer.py MODEL.gguf OUT.json"""

import sys

from gguf import GGUFReader
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

reader = GGUFReader(sys.argv[1])
tokens = reader.fields["tokenizer.ggml.tokens"].contents()
merges = reader.fields["tokenizer.ggml.merges"].contents()
types = reader.fields["tokenizer.ggml.token_type"].contents()
tokenizer = Tokenizer(models.BPE(vocab={t: i for i, t in enumerate(tokens)},
                                 merges=[tuple(m.split(" ")) for m in merges]))
tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
    pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])
tokenizer.decoder = decoders.ByteLevel()
tokenizer.add_special_tokens([AddedToken(t, special=True) for t, kind in zip(tokens, types) if kind == 3])
tokenizer.save(sys.argv[2])
