#!/usr/bin/env python3
"""Counts the instructions of one small call of each kernel, on the paths that valgrind can run (ref and avx2), and compares
with the figures kept in bench/callgrind.json. More than 3 % more is a failure. Ends with "N passed, N failed, N skipped".

usage: callgrind.py [--build FOLDER] [--keep]

Counts depend on the compiler and the C library, so figures are kept for each. --keep rewrites those of this compiler:
after a change of kernels that is meant. Speed itself is measured by `quire bench kernels`."""

import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
KEPT = ROOT / "bench" / "callgrind.json"
PATHS = ["ref", "avx2"]
MOST = 1.03


def run(command):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command[:3]))} ... failed:\n{done.stdout.strip()}")
    return done.stdout


def toolchain(build):
    """Compiler and C library, as in "gcc 12.2.0, glibc 2.36"."""
    text = next((build / "CMakeFiles").glob("*/CMakeCCompiler.cmake")).read_text()
    name = re.search(r'CMAKE_C_COMPILER_ID "(.*?)"', text)[1]
    version = re.search(r'CMAKE_C_COMPILER_VERSION "(.*?)"', text)[1]
    short = {"GNU": "gcc", "Clang": "clang"}.get(name, name)
    return f"{short} {version}, {os.confstr('CS_GNU_LIBC_VERSION')}"


def check_build(build):
    """The figures are those of the ordinary release build."""
    cache = (build / "CMakeCache.txt").read_text() if (build / "CMakeCache.txt").exists() else ""
    if not re.search(r"^CMAKE_BUILD_TYPE:\w+=(Release)?$", cache, re.M) or not re.search(r"^QUIRE_SANITIZE:\w+=$", cache, re.M):
        sys.exit(f"{build} is not a release build without sanitizers")


def kernels_of(program, path):
    """The names of the path's kernels; None where the machine lacks the path."""
    done = subprocess.run([program, path, "--list"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    return None if "has no path" in done.stderr else run([program, path, "--list"]).splitlines()


def count(program, path, names):
    """Instructions of each kernel: one profile is dumped after each call, in order."""
    with tempfile.TemporaryDirectory() as folder:
        run(["valgrind", "--tool=callgrind", "--toggle-collect=measured", "--dump-after=measured",
             f"--callgrind-out-file={folder}/out", program, path, *names])
        profiles = [pathlib.Path(folder, f"out.{number + 1}").read_text() for number in range(len(names))]
    return {name: int(re.search(r"^totals: (\d+)$", text, re.M)[1]) for name, text in zip(names, profiles)}


def compare(path, old, new):
    """Prints what is wrong. Returns (passed, failed, skipped)."""
    passed = failed = skipped = fewer = 0
    for name in [*new, *(name for name in old if name not in new)]:
        if name not in new:
            print(f"{path}: {name}: there is no such kernel any more (--keep if that is meant)")
            failed += 1
        elif name not in old:
            print(f"{path}: {name}: skipped: no figure kept (--keep)")
            skipped += 1
        elif new[name] > MOST * old[name]:
            print(f"{path}: {name}: {old[name]} instructions were kept, now {new[name]} (+{100 * new[name] / old[name] - 100:.1f} %)")
            failed += 1
        else:
            passed += 1
            fewer += new[name] < old[name] / MOST
    if fewer:
        print(f"{path}: {fewer} kernels take over 3 % fewer instructions than kept (--keep)")
    return passed, failed, skipped


def main():
    parser = argparse.ArgumentParser(usage=__doc__.replace("%", "%%"))
    parser.add_argument("--build", default=ROOT / "build", type=pathlib.Path)
    parser.add_argument("--keep", action="store_true")
    args = parser.parse_args()
    if not shutil.which("valgrind"):
        print("skipped: valgrind is not installed\n0 passed, 0 failed, 1 skipped")
        return 1 if args.keep else 0
    build = args.build.resolve()
    check_build(build)
    run(["ninja", "-C", build, "kern_once"])
    program, name = build / "tests" / "kern" / "kern_once", toolchain(build)
    kept = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    old, new, counts = kept.get(name), {}, [0, 0, 0]
    for path in PATHS:
        kernels = kernels_of(program, path)
        if kernels is None:
            print(f"{path}: skipped: this machine lacks it")
            counts[2] += 1
            continue
        new[path] = count(program, path, kernels)
        if old is not None and not args.keep:
            counts = [a + b for a, b in zip(counts, compare(path, old.get(path, {}), new[path]))]
    if args.keep:
        kept[name] = {**(old or {}), **new}
        KEPT.parent.mkdir(exist_ok=True)
        KEPT.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")
        print(f"kept {sum(map(len, new.values()))} figures for {name}")
        return 0
    if old is None:
        print(f"skipped: no figures kept for {name} (--keep)")
        counts[2] += 1
    print("{} passed, {} failed, {} skipped".format(*counts))
    return 1 if counts[1] else 0


sys.exit(main())
