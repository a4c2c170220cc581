"""What the machine is, for records of measurements."""

import os
import pathlib
import re


def processor():
    """What the kernel calls the processor, and which of the instruction sets that matter it has."""
    fields = dict(re.findall(r"^([\w ]+?)\s*: (.*)$", pathlib.Path("/proc/cpuinfo").read_text(), re.M))
    known = ["avx2", "avx512f", "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_int8", "amx_bf16"]
    return {"cpu": fields.get("model name", "unknown"), "isa": [f for f in known if f in fields.get("flags", "").split()],
            "cores": len(os.sched_getaffinity(0))}
