#!/usr/bin/env python3
"""Runs the test parts and ends with one line, "N passed, N failed", that sums them all. Exit code 1 if anything failed.

usage: run_tests.py [PART|TIER ...] [--fuzz-seconds N]

parts   release   build with warnings as errors, all ctest tests but the long ones
        long      the ctest tests labelled full: law 1 over the whole matrix
        quick     the same build, tests labelled quick
        e2e       pytest on the real binary (tests/e2e)
        e2e-asan  the same, but for the tests marked full, on the asan build
        callgrind instructions of each kernel beside the kept figures (scripts/callgrind.py)
        asan      AddressSanitizer and UndefinedBehaviorSanitizer build, quick tests
        tsan      ThreadSanitizer build, quick tests
        o0        builds without optimisation
        clang     builds with clang
        fuzz      each fuzz target on its kept corpus, for N seconds
tiers   test      release e2e callgrind asan e2e-asan o0 clang; with CI=true also fuzz
        full      test, long and fuzz

A test that fails is run once more; the log shows both runs. Logs are kept in
build/test-logs/. Set-up (packages, .venv) is scripts/setup.sh's; `make test` calls both."""

import argparse
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import time
import xml.etree.ElementTree as xml

ROOT = pathlib.Path(__file__).resolve().parent.parent
LOGS = ROOT / "build" / "test-logs"
JOBS = len(os.sched_getaffinity(0))
BUILDS = {  # folder and CMake arguments
    "release": ("build", ["-DQUIRE_TESTS=ON"]),
    "asan": ("build-asan", ["-DQUIRE_TESTS=ON", "-DQUIRE_SANITIZE=address,undefined"]),
    "tsan": ("build-tsan", ["-DQUIRE_TESTS=ON", "-DQUIRE_SANITIZE=thread"]),
    "o0": ("build-o0", ["-DQUIRE_TESTS=ON", "-DCMAKE_BUILD_TYPE=Debug"]),
    "clang": ("build-clang", ["-DQUIRE_TESTS=ON", "-DCMAKE_C_COMPILER=clang"]),
    "fuzz": ("build-fuzz", ["-DQUIRE_TESTS=ON", "-DQUIRE_FUZZ=ON", "-DCMAKE_C_COMPILER=clang"]),
}
TEST = ["release", "e2e", "callgrind", "asan", "e2e-asan", "o0", "clang"]
TIERS = {"test": TEST, "full": [*TEST, "long", "fuzz"]}


class Part:
    """One row of the report: what passed, failed and was skipped, and what to print of the failures."""

    def __init__(self, name, passed=0, failed=0, skipped=0, details=""):
        self.name, self.passed, self.failed, self.skipped, self.details = name, passed, failed, skipped, details
        self.retried = 0  # of the passed ones: only on the second run


def run(command, log, timeout_s, env=None):
    """Runs a command with its output in build/test-logs/<log>.log. Returns (exit code, output)."""
    path = LOGS / f"{log}.log"
    with open(path, "wb") as out:
        try:
            process = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
                                     timeout=timeout_s, env={**os.environ, **(env or {})})
            code = process.returncode
        except subprocess.TimeoutExpired:
            out.write(f"\nstopped after {timeout_s} s\n".encode())
            code = 124
        except OSError as error:
            out.write(f"{error}\n".encode())
            code = 127
    return code, path.read_text(errors="replace")


def tail(text, lines=60):
    return "\n".join(text.rstrip().splitlines()[-lines:])


def build(kind):
    """Configures and builds. Returns None, or the failure as a Part."""
    folder, arguments = BUILDS[kind]
    code, output = run(["cmake", "-G", "Ninja", "-S", ".", "-B", folder, *arguments], f"{kind}-configure", 300)
    if code == 0:
        targets = ["fuzz_targets"] if kind == "fuzz" else []
        code, output = run(["ninja", "-C", folder, *targets], f"{kind}-build", 1800)
    wrong = "\n".join(line for line in output.splitlines() if not re.match(r"\[\d+/\d+\] ", line))
    return Part(f"{kind} build", failed=1, details=tail(wrong)) if code else None


def read_junit(path, name, code, output):
    """The counts of a JUnit file, as ctest and pytest write it. No file or no test is a failure."""
    try:
        cases = list(xml.parse(path).getroot().iter("testcase"))
    except (OSError, xml.ParseError):
        cases = []
    # pytest lists a test that was run again twice, ctest only says so in its output; the last run counts
    last = {(case.get("classname"), case.get("name")): case for case in cases}
    again = {case.get("name") for case in cases if case not in last.values()}
    again |= set(re.findall(r"Test +#\d+: (\S+) \.*[\w ]*\*\*\*", output))
    part, details = Part(name), []
    for case in last.values():
        kinds = {child.tag for child in case}
        title = f"{case.get('classname', '')} {case.get('name')}".strip()
        if "failure" in kinds or "error" in kinds or case.get("status") == "fail":
            part.failed += 1
            text = "\n".join((child.text or child.get("message") or "") for child in case if child.tag != "properties")
            details.append(f"-- {title}\n{tail(text)}")
        elif "skipped" in kinds or case.get("status") in ("notrun", "disabled"):
            part.skipped += 1
        else:
            part.passed += 1
            part.retried += case.get("name") in again
        # a cmocka program goes on after a check that it cannot make here, and says so
        part.skipped += len(re.findall(r"^SKIPPED: ", case.findtext("system-out") or "", re.MULTILINE))
    if not cases or (code and not part.failed):  # nothing ran, or the runner itself failed
        part.failed += 1
        details.append(tail(output))
    part.details = "\n".join(details)
    return part


def ctest(kind, name, label=None):
    """Builds, then runs the tests of that build folder."""
    failure = build(kind)
    if failure:
        return [failure]
    junit = LOGS / f"{name}.xml"
    junit.unlink(missing_ok=True)
    command = ["ctest", "--test-dir", BUILDS[kind][0], "-j", str(JOBS), "--output-on-failure", "--no-tests=error",
               "--repeat", "until-pass:2", "--output-junit", str(junit), "--test-output-size-passed", "65536"]
    code, output = run(command + (["-L", label] if label else []), name, 7200)
    return [read_junit(junit, name, code, output)]


def pull_model():
    """The default model, which many tests run on. Returns None, or the failure as a Part."""
    code, output = run(["build/quire", "pull", "smollm2"], "pull", 900)
    return Part("default model", failed=1, details=tail(output)) if code else None


def release(name, label):
    failure = build("release") or pull_model()
    return [failure] if failure else ctest("release", name, label)


def compile_only(kind):
    return [build(kind) or Part(f"{kind} build", passed=1)]


def e2e(kind, name, options, env):
    """pytest on the binary of that build, a file of tests on each core: they wait more than they compute."""
    failure = build(kind) or build("release") or pull_model()
    if failure:
        return [failure]
    junit = LOGS / f"{name}.xml"
    junit.unlink(missing_ok=True)
    command = [".venv/bin/python", "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", "--reruns", "1",
               "-n", str(JOBS), "--dist", "loadfile", "--junit-xml", str(junit), *options, "tests/e2e"]
    code, output = run(command, name, 3600, {"QUIRE_BIN": str(ROOT / BUILDS[kind][0] / "quire"), **env})
    return [read_junit(junit, name, code, output)]


def callgrind():
    failure = build("release")
    if failure:
        return [failure]
    code, output = run([sys.executable, "scripts/callgrind.py"], "callgrind", 900)
    counts = re.search(r"^(\d+) passed, (\d+) failed, (\d+) skipped\n\Z", output, re.M)
    if not counts or (code and counts[2] == "0"):
        return [Part("callgrind", failed=1, details=tail(output))]
    return [Part("callgrind", *map(int, counts.groups()), details=tail(output))]


def fuzz_one(binary, seconds):
    """New inputs go to build/fuzz-corpus/, findings to build/fuzz-findings/; the kept corpus is only read."""
    found, new = ROOT / "build" / "fuzz-findings" / binary.name, ROOT / "build" / "fuzz-corpus" / binary.name
    found.mkdir(parents=True, exist_ok=True)
    new.mkdir(parents=True, exist_ok=True)
    dictionary = ROOT / "tests" / "fuzz" / f"{binary.name}.dict"
    words = [f"-dict={dictionary}"] if dictionary.exists() else []
    command = [str(binary), f"-max_total_time={seconds}", "-timeout=20", "-rss_limit_mb=2048", "-print_final_stats=1",
               f"-artifact_prefix={found}/", *words, str(new), str(ROOT / "tests" / "fuzz" / "corpus" / binary.name)]
    code, output = run(command, binary.name, seconds + 120)
    return Part(binary.name, passed=int(code == 0), failed=int(code != 0), details=tail(output) if code else "")


def fuzz(seconds):
    failure = build("fuzz")
    if failure:
        return [failure]
    binaries = sorted(p for p in (ROOT / "build-fuzz" / "tests").glob("fuzz_*") if p.is_file() and os.access(p, os.X_OK))
    if not binaries:
        return [Part("fuzz", failed=1, details="no fuzz target was built")]
    with concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
        return list(pool.map(lambda binary: fuzz_one(binary, seconds), binaries))


def show(part, seconds):
    counts = f"{part.passed} passed, {part.failed} failed" + (f", {part.skipped} skipped" if part.skipped else "")
    counts += f", {part.retried} on a second run" if part.retried else ""
    print(f"{part.name:<32} {counts:<36} {seconds:6.1f} s", flush=True)
    if part.failed and part.details:
        print(part.details, flush=True)


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("parts", nargs="*", default=["test"])
    parser.add_argument("--fuzz-seconds", type=int, default=20)
    args = parser.parse_args()
    runners = {
        "release": lambda: release("release", "quick"),
        "long": lambda: release("long", "full"),
        "quick": lambda: ctest("release", "quick", "quick"),
        "e2e": lambda: e2e("release", "e2e", [], {}),
        "e2e-asan": lambda: e2e("asan", "e2e-asan", ["-m", "not full"], {"QUIRE_PATIENCE": "5"}),
        "callgrind": callgrind,
        "asan": lambda: ctest("asan", "asan", "quick"),
        "tsan": lambda: ctest("tsan", "tsan", "quick"),
        "o0": lambda: compile_only("o0"),
        "clang": lambda: compile_only("clang"),
        "fuzz": lambda: fuzz(args.fuzz_seconds),
    }
    names = [name for part in args.parts for name in TIERS.get(part, [part])]
    if "test" in args.parts and os.environ.get("CI") == "true":
        names.append("fuzz")
    unknown = [name for name in names if name not in runners]
    if unknown:
        parser.error(f"unknown part {unknown[0]}; known are {', '.join([*runners, *TIERS])}")
    LOGS.mkdir(parents=True, exist_ok=True)
    total = Part("")
    for name in dict.fromkeys(names):
        start = time.monotonic()
        for part in runners[name]():
            show(part, time.monotonic() - start)
            total.passed, total.failed, total.skipped = (
                total.passed + part.passed, total.failed + part.failed, total.skipped + part.skipped)
    skipped = f", {total.skipped} skipped" if total.skipped else ""
    print(f"{total.passed} passed, {total.failed} failed{skipped}")
    return 1 if total.failed or not total.passed else 0


sys.exit(main())
