#!/usr/bin/env python3
"""Makes tests/data/weights/metadata.gguf with the gguf package's writer, every metadata type in it, and metadata.txt: what
its reader reads back, one line a key: key, type, count, values (integers in decimal, floats and strings in hex)."""
import pathlib
import struct
import sys

import gguf
import numpy as np
from gguf import GGUFValueType as Value

INTS = {"UINT8": (0, 255), "INT8": (-128, 127), "UINT16": (0, 65535), "INT16": (-32768, 32767), "UINT32": (0, 2**32 - 1),
        "INT32": (-(2**31), 2**31 - 1), "UINT64": (0, 2**64 - 1), "INT64": (-(2**63), 2**63 - 1)}
NAMES = {"UINT8": "u8", "INT8": "i8", "UINT16": "u16", "INT16": "i16", "UINT32": "u32", "INT32": "i32", "UINT64": "u64",
         "INT64": "i64", "FLOAT32": "f32", "FLOAT64": "f64", "BOOL": "boolean", "STRING": "string"}
FLOATS = [0.0, -0.0, 1.5, -2.25e-3, float("inf"), float("nan")]
STRINGS = ["", "a", "nul\0within", "Ġthe", "\u4e2d\u6587 \U0001f469\u200d\U0001f467", "x" * 300]


def write(path):
    w = gguf.GGUFWriter(path, "round-trip")
    for name, (low, high) in INTS.items():
        w.add_key_value(f"scalar.{name}.low", low, Value[name])
        w.add_key_value(f"scalar.{name}.high", high, Value[name])
        w.add_key_value(f"array.{name}", [low, 1, high], Value.ARRAY, sub_type=Value[name])
    for name in ("FLOAT32", "FLOAT64"):
        for i, v in enumerate(FLOATS):
            w.add_key_value(f"scalar.{name}.{i}", v, Value[name])
        w.add_key_value(f"array.{name}", FLOATS, Value.ARRAY, sub_type=Value[name])
    w.add_bool("scalar.BOOL.no", False)
    w.add_bool("scalar.BOOL.yes", True)
    w.add_key_value("array.BOOL", [True, False, True], Value.ARRAY, sub_type=Value.BOOL)
    for i, v in enumerate(STRINGS):
        w.add_key_value(f"scalar.STRING.{i}", v, Value.STRING)
    w.add_array("array.STRING", STRINGS)
    w.add_key_value("\u043a\u043b\u044e\u0447", 7, Value.UINT8)
    w.add_tensor("first", np.arange(12, dtype=np.float32).reshape(3, 4))
    w.add_tensor("second", np.arange(7, dtype=np.float16))
    w.add_tensor("deep", np.arange(120, dtype=np.float32).reshape(2, 3, 4, 5))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def shown(value, kind):
    if kind == Value.STRING:
        return bytes(value).hex() or "-"
    if kind == Value.FLOAT32:
        return struct.pack(">f", value).hex()
    if kind == Value.FLOAT64:
        return struct.pack(">d", value).hex()
    return str(int(value))


def dump(path):
    for key, field in gguf.GGUFReader(path).fields.items():
        if key.startswith("GGUF."):
            continue
        is_array = field.types[0] == Value.ARRAY
        kind = field.types[-1]
        values = [shown(field.parts[i] if kind == Value.STRING else field.parts[i][0], kind) for i in field.data]
        kinds = ("array " if is_array else "") + NAMES[kind.name]
        yield f"{key} {kinds} {len(values)} {' '.join(values)}\n"


if __name__ == "__main__":
    target = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent / "data/weights")
    write(target / "metadata.gguf")
    (target / "metadata.txt").write_text("".join(dump(target / "metadata.gguf")))
