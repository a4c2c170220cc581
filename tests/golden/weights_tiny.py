#!/usr/bin/env python3
"""Makes tests/data/weights/tiny.txt: size and CRC-32 of what scripts/make_test_gguf.py writes (with the gguf package) for some
options; tests/util/tiny_model.c has to write the same bytes. One line: width ff head_dim layers vocab type embed_type tied
sliding_window rope_scaling rope_freqs seed size crc."""
import pathlib
import subprocess
import sys
import tempfile
import zlib

from gguf import GGMLQuantizationType as Type

HERE = pathlib.Path(__file__).resolve().parent
NARROW, WIDE = (96, 160, 32, 3), (256, 256, 64, 2)
CASES = [(NARROW, "F32", "F32", {}), (NARROW, "F32", "F32", {"tied": True, "vocab": 259}),
         (NARROW, "F16", "F16", {"sliding": 64}), (NARROW, "BF16", "BF16", {"scaling": "linear"}),
         (NARROW, "Q8_0", "Q8_0", {"scaling": "yarn", "seed": 7}), (NARROW, "Q4_0", "F16", {"freqs": True}),
         (NARROW, "Q4_1", "Q8_0", {"tied": True, "freqs": True, "vocab": 1000})]
CASES += [(WIDE, name, "Q8_0", {}) for name in ("Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K")]


def line(shape, kind, embed, extra, path):
    width, ff, head_dim, layers = shape
    o = {"tied": False, "sliding": 0, "scaling": None, "freqs": False, "seed": 1, "vocab": 600, **extra}
    args = ["--width", width, "--ff", ff, "--head-dim", head_dim, "--layers", layers, "--vocab", o["vocab"], "--type", kind,
            "--embed-type", embed, "--sliding-window", o["sliding"], "--seed", o["seed"]]
    args += ["--tied"] * o["tied"] + ["--rope-freqs"] * o["freqs"]
    args += ["--rope-scaling", o["scaling"]] if o["scaling"] else []
    script = HERE.parent.parent / "scripts/make_test_gguf.py"
    subprocess.run([sys.executable, script, path, *map(str, args)], check=True)
    data = pathlib.Path(path).read_bytes()
    fields = [width, ff, head_dim, layers, o["vocab"], Type[kind].value, Type[embed].value, int(o["tied"]), o["sliding"],
              o["scaling"] or "none", int(o["freqs"]), o["seed"], len(data), f"{zlib.crc32(data):08x}"]
    return " ".join(map(str, fields)) + "\n"


if __name__ == "__main__":
    target = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else HERE.parent / "data/weights"
    with tempfile.TemporaryDirectory() as folder:
        text = "".join(line(*case, f"{folder}/tiny.gguf") for case in CASES)
    (target / "tiny.txt").write_text(text)
