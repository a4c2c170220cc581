"""The type of each tensor in a published GGUF file, for tests of planning for weights that are not there.

    python plan_quantized.py FILE.gguf config.json OUT.json

Needs gguf. FILE is a model that its makers, or llama-quantize, have quantized; config.json is that of the model it was
made from, with tie_word_embeddings as FILE has it (some have an output matrix of their own though it says true). tests/data/plan/qwen2.5-coder-1.5b-q4_k_m.json is from Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF."""

import json
import sys

from gguf import GGUFReader

reader = GGUFReader(sys.argv[1])
tensors = {t.name: [t.tensor_type.name, [int(d) for d in t.shape]] for t in reader.tensors}
with open(sys.argv[2]) as config, open(sys.argv[3], "w") as out:
    json.dump({"config": json.load(config), "tensors": tensors}, out, separators=(",", ":"), sort_keys=True)
    out.write("\n")
