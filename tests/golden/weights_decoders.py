#!/usr/bin/env python3
"""Makes tests/data/weights/decoders.bin, f16.crc and types.txt: what the gguf package says about element formats,
and ml_dtypes about 8-bit floats.

decoders.bin holds, for each format, u32 type, u32 n_blocks, the blocks, and their elements as float32. Blocks are extreme and
random bits; the expected floats are the package's.
"""
import pathlib
import sys
import zlib

import gguf
import ml_dtypes
import numpy as np
from gguf import GGMLQuantizationType as Type

FORMATS = ["F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K",
           "IQ4_NL", "IQ4_XS", "MXFP4"]
# offsets of the binary16 scales in a block
SCALES = {"Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q2_K": [80, 82], "Q3_K": [108],
          "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "IQ4_NL": [0], "IQ4_XS": [0]}
# formats that GGUF does not have: id in src/weights/tensor.h, and the type; all 256 values
FLOAT8 = {62: ml_dtypes.float8_e4m3fn, 63: ml_dtypes.float8_e5m2}
EXTREME_F16 = [0x0000, 0x8000, 0x0001, 0x83FF, 0x0400, 0x7BFF, 0xFBFF, 0x3C00]


def blocks_of(name, rng):
    elems, size = gguf.GGML_QUANT_SIZES[Type[name]]
    n_random = 3 if elems == 256 else 12
    fills = [np.full(size, fill, np.uint8) for fill in (0x00, 0x55, 0xAA)]
    fills += [rng.integers(0, 256, size, dtype=np.uint8) for _ in range(n_random)]  # scales of any bits, NaN too
    if name == "MXFP4":
        for exponent in (0, 1, 2, 3, 127, 128, 253, 254, 255):
            fills.append(np.concatenate([[np.uint8(exponent)], rng.integers(0, 256, size - 1, dtype=np.uint8)]))
    if name not in SCALES:
        return np.stack(fills * 4 if elems == 1 else fills)
    for bits in EXTREME_F16:
        block = rng.integers(0, 256, size, dtype=np.uint8)
        for i, at in enumerate(SCALES[name]):
            block[at : at + 2] = np.frombuffer(np.uint16(bits ^ (0x8000 * i)).tobytes(), np.uint8)
        fills.append(block)
    full = np.full(size, 0xFF, np.uint8)
    for at in SCALES[name]:
        full[at : at + 2] = np.frombuffer(np.float16(0.37).tobytes(), np.uint8)
    return np.stack(fills + [full])


def write_decoders(folder):
    rng = np.random.default_rng(20240229)
    out = b""
    for name in FORMATS:
        blocks = blocks_of(name, rng)
        with np.errstate(all="ignore"):
            floats = gguf.dequantize(blocks, Type[name]).astype(np.float32)
        out += np.array([Type[name].value, len(blocks)], np.uint32).tobytes() + blocks.tobytes() + floats.tobytes()
    for ident, dtype in FLOAT8.items():
        values = np.arange(256, dtype=np.uint8)
        out += np.array([ident, 256], np.uint32).tobytes() + values.tobytes() + values.view(dtype).astype(np.float32).tobytes()
    (folder / "decoders.bin").write_bytes(out)


def write_f16(folder):
    """CRC-32 of all 65,536 binary16 values as float32, each NaN as 7fc00000."""
    with np.errstate(all="ignore"):
        floats = np.arange(65536, dtype=np.uint16).view(np.float16).astype(np.float32)
    bits = np.where(np.isnan(floats), np.uint32(0x7FC00000), floats.view(np.uint32))
    (folder / "f16.crc").write_text(f"{zlib.crc32(bits.astype(np.uint32).tobytes()):08x}\n")


def write_types(folder):
    lines = [f"{t.value} {t.name} {gguf.GGML_QUANT_SIZES[t][0]} {gguf.GGML_QUANT_SIZES[t][1]}\n" for t in Type]
    (folder / "types.txt").write_text("".join(lines))


if __name__ == "__main__":
    target = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent / "data/weights")
    write_decoders(target)
    write_f16(target)
    write_types(target)
