#!/usr/bin/env python3
"""Makes tests/data/weights/split-*.gguf, a model of random tensors split by the gguf package, and split.txt: one line for each
tensor in the order of files, part (from 0), name, bytes, CRC-32 of its data."""
import pathlib
import sys
import zlib

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type


def write(folder):
    rng = np.random.default_rng(20240301)
    w = gguf.GGUFWriter(folder / "split.gguf", "llama", split_max_tensors=3)
    w.add_name("split")
    w.add_block_count(2)
    for i in range(7):
        rows = rng.integers(1, 5)
        if i % 2:
            w.add_tensor(f"tensor.{i}", rng.integers(0, 256, (rows, 34), dtype=np.uint8), raw_dtype=Type.Q8_0)
        else:
            w.add_tensor(f"tensor.{i}", rng.standard_normal((rows, 10)).astype(np.float32))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def describe(folder):
    text = ""
    for part, path in enumerate(sorted(folder.glob("split-*.gguf"))):
        for t in gguf.GGUFReader(path).tensors:
            text += f"{part} {t.name} {t.n_bytes} {zlib.crc32(t.data.tobytes()):08x}\n"
    (folder / "split.txt").write_text(text)


if __name__ == "__main__":
    target = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent / "data/weights")
    write(target)
    describe(target)
