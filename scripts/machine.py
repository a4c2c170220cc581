"""What the machine is, for records of measurements."""

import json
import os
import pathlib
import re
import subprocess
import tempfile


def processor():
    """What the kernel calls the processor, and which of the instruction sets that matter it has."""
    fields = dict(re.findall(r"^([\w ]+?)\s*: (.*)$", pathlib.Path("/proc/cpuinfo").read_text(), re.M))
    known = ["avx2", "avx512f", "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_int8", "amx_bf16"]
    return {"cpu": fields.get("model name", "unknown"), "isa": [f for f in known if f in fields.get("flags", "").split()],
            "cores": len(os.sched_getaffinity(0))}


def limits_text(measured):
    """The limits in what `quire bench kernels --json` wrote, in one line."""
    return ", ".join(f"{limit['about']} {limit['value'] * 1e-9:.1f} {'GB/s' if limit['unit'] == 'bytes/s' else 'GOP/s'}"
                     for limit in measured["limits"] if "value" in limit)


def bench_kernels(quire, what):
    """What the program measures of the machine itself; what: --limits or --cores."""
    with tempfile.NamedTemporaryFile() as out:
        subprocess.run([quire, "bench", "kernels", what, "--json", out.name], check=True, stdout=subprocess.DEVNULL)
        return json.load(out)
