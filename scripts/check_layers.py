#!/usr/bin/env python3
"""Checks that no folder of src/ includes more than its row allows (docs/architecture.md, "The layers"), that every public
header compiles alone in C and C++, and that files keep their length. Prints what is wrong; exit code 1 if anything is.

usage: check_layers.py [ROOT]"""

import pathlib
import re
import shutil
import subprocess
import sys

MAX_FILE_LINES = 900
MAX_LINES = {"include/quire/quire.h": 249}

# folder: (folders of src/, public headers, libraries) it may include besides itself and libc.
ERROR, STATS, QUIRE, SCORE = "quire/error.h", "quire/stats.h", "quire/quire.h", "quire/score.h"
STEP = "quire/step.h"
ALL = {"base", "text", "weights", "kern", "backend", "model", "engine", "net", "serve", "bench", "http", "fetch", "load",
       "sim", "tune", "advise", "eval", "plan", "cli"}
LAYERS = {
    "base": (set(), {ERROR, STATS, QUIRE}, {"pthread"}),
    "text": ({"base"}, {ERROR}, {"jansson", "pcre2", "utf8proc"}),
    "weights": ({"base"}, {ERROR}, {"jansson"}),
    "kern": ({"base"}, {ERROR}, {"x86"}),
    "backend": ({"base", "kern"}, {ERROR}, {"hwloc", "pthread"}),
    "model": ({"base", "weights", "backend"}, {ERROR}, set()),
    "engine": ({"base", "model", "backend"}, {ERROR, STATS, QUIRE, SCORE, STEP}, {"pthread"}),
    "net": ({"base"}, {ERROR}, {"libevent", "openssl", "pthread"}),
    "serve": ({"base", "net", "text"}, {ERROR, STATS, QUIRE}, {"jansson", "pthread"}),
    "bench": ({"base", "kern", "weights"}, {ERROR, QUIRE, STEP}, {"pthread", "x86"}),
    "http": ({"base"}, {ERROR}, {"curl"}),
    "fetch": ({"base", "http"}, {ERROR}, {"jansson", "openssl"}),
    "load": ({"base", "http"}, {ERROR}, {"jansson"}),
    "sim": ({"base", "engine", "load", "bench"}, {ERROR, QUIRE, STEP}, {"jansson"}),
    "advise": ({"base", "http", "load"}, {ERROR}, {"jansson"}),
    "tune": ({"base", "load", "sim"}, {ERROR}, {"jansson"}),
    "eval": ({"base", "text", "http"}, {ERROR, QUIRE, SCORE}, {"jansson"}),
    "plan": ({"base", "weights", "backend", "model", "engine", "bench", "kern"}, {ERROR, QUIRE}, set()),
    "cli": (ALL, {ERROR, STATS, QUIRE, STEP}, {"jansson", "openssl", "pthread"}),
}

# Headers that belong to a library; everything else in <> counts as libc.
LIBRARIES = [
    ("jansson", r"jansson"),
    ("hwloc", r"hwloc"),
    ("pcre2", r"pcre2"),
    ("utf8proc", r"utf8proc"),
    ("libevent", r"event2?/|event\.h|evhttp\.h"),
    ("openssl", r"openssl/"),
    ("curl", r"curl/"),
    ("pthread", r"pthread\.h|semaphore\.h|threads\.h"),
    ("x86", r"\w*intrin\.h|cpuid\.h"),
]
# kern is arithmetic on plain pointers: it neither allocates, locks, waits, reads the environment nor does I/O.
KERN_FORBIDDEN = {"stdlib.h", "stdio.h", "unistd.h", "fcntl.h", "errno.h", "time.h", "signal.h", "malloc.h", "sched.h",
                  "sys/mman.h", "sys/stat.h", "sys/types.h"}

GENERATED = re.compile(r"/\* Made by \S+\.py ")  # tables that nobody reads
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def library_of(header):
    for name, pattern in LIBRARIES:
        if re.match(pattern, header):
            return name
    return None


def included_wrongly(folder, header, quoted):
    """Why this folder may not include this header; None if it may."""
    folders, public, libraries = LAYERS[folder]
    if header.startswith("quire/"):
        return None if header in public else "is not for this folder"
    if quoted:
        if "/" not in header:
            return "is not written from src/"
        other = header.split("/")[0]
        return None if other == folder or other in folders else f"is of {other}/"
    library = library_of(header)
    if library and library not in libraries:
        return f"belongs to {library}"
    if folder == "kern" and header in KERN_FORBIDDEN:
        return "is not for kernels"
    return None


def check_includes(root, problems):
    for path in sorted((root / "src").rglob("*")):
        if path.suffix not in (".c", ".h", ".inc"):
            continue
        folder = path.relative_to(root / "src").parts[0]
        name = path.relative_to(root)
        if folder not in LAYERS:
            problems.append(f"{name}: the folder has no row in scripts/check_layers.py")
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            match = INCLUDE.match(line)
            why = match and included_wrongly(folder, match[2], match[1] == '"')
            if why:
                problems.append(f"{name}:{number}: {folder} may not include {match[2]}: it {why}")


def check_lengths(root, problems):
    for top in ("src", "include"):
        for path in sorted((root / top).rglob("*")):
            if path.suffix not in (".c", ".h", ".inc"):
                continue
            name = str(path.relative_to(root))
            text = path.read_text(encoding="utf-8")
            lines, most = text.count("\n"), MAX_LINES.get(name, MAX_FILE_LINES)
            if lines > most and not GENERATED.match(text):
                problems.append(f"{name}: {lines} lines, at most {most} are allowed")


def check_public_headers(root, problems):
    """Each header alone, twice, as strict C and as C++."""
    compilers = [("C", ["cc", "-x", "c", "-std=c17", "-pedantic-errors"])]
    cxx = shutil.which("c++") or shutil.which("clang++")
    if cxx:
        compilers.append(("C++", [cxx, "-x", "c++", "-std=c++17"]))
    for path in sorted((root / "include").rglob("*.h")):
        header = str(path.relative_to(root / "include"))
        source = f"#include <{header}>\n#include <{header}>\n"
        for language, command in compilers:
            run = subprocess.run(
                [*command, "-Wall", "-Wextra", "-Werror", "-fsyntax-only", f"-I{root / 'include'}", "-"],
                input=source, capture_output=True, text=True)
            if run.returncode:
                problems.append(f"include/{header} does not compile alone in {language}:\n{run.stderr.rstrip()}")
    if not cxx:
        print("no C++ compiler: the public headers were compiled in C only")


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent).resolve()
    problems = []
    check_includes(root, problems)
    check_lengths(root, problems)
    check_public_headers(root, problems)
    print("\n".join(problems) if problems else "layers, lengths and public headers are in order")
    return 1 if problems else 0


sys.exit(main())
