"""`quire bench kernels`: what is measured is there, positive and below its limit, in the table and in the JSON."""

import json
import pathlib
import re

import pytest
from harness import run

FLAGS = pathlib.Path("/proc/cpuinfo").read_text().split("flags", 1)[-1].split("\n", 1)[0].split()
HAS = {
    "ref": True,
    "avx2": {"avx2", "fma", "f16c"} <= set(FLAGS),
    "avx512": {"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_vnni", "avx512vbmi"} <= set(FLAGS),
    "amx": {"amx_tile", "amx_int8", "amx_bf16"} <= set(FLAGS),
}
LIMITS = ["read_16kb", "read_256kb", "read_94mb", "read_2gb", "f32", "bf16_dot", "int8", "amx_bf16", "amx_int8"]


def measure(tmp_path, *args, env=None):
    """The lines of the table and the JSON of one run."""
    path = tmp_path / "bench.json"
    done = run("bench", "kernels", *args, "--json", path, env=env, timeout=300)
    assert done.returncode == 0 and not done.stderr, done.stderr
    return done.stdout.splitlines(), json.loads(path.read_text())


def check_fields(measured):
    assert list(measured) == ["format", "machine", "threads", "path", "cpu_limit", "paths", "cores", "limits", "kernels"]
    check_cores(measured["cores"])
    assert measured["format"] == 1
    assert list(measured["machine"]) == ["cpu", "features"] and measured["machine"]["cpu"]
    assert set(measured["machine"]["features"]) <= set(FLAGS)
    assert [limit["name"] for limit in measured["limits"]] == LIMITS
    for limit in measured["limits"]:
        assert limit["unit"] == ("bytes/s" if limit["name"].startswith("read") else "ops/s") and limit["about"]
        assert ("skipped" in limit) != ("value" in limit)
        assert "skipped" in limit or 1e7 < limit["value"] < 1e15 and isinstance(limit["apart"], bool)
    for row in measured["kernels"]:
        fields = ["kernel", "shape", "seconds", "bytes_per_s", "ops_per_s", "limit", "share", "apart"]
        assert list(row) == fields and row["kernel"] and row["shape"]
        assert row["seconds"] > 0 and row["bytes_per_s"] > 0 and row["share"] > 0
        assert row["ops_per_s"] is None or row["ops_per_s"] > 0
        limit = next(limit for limit in measured["limits"] if limit["name"] == row["limit"])
        reached = row["bytes_per_s"] if limit["unit"] == "bytes/s" else row["ops_per_s"]
        assert row["share"] == pytest.approx(reached / limit["value"])


def check_cores(cores):
    assert list(cores) == ["clock_hz", "share", "share_p10", "share_p90"]
    assert 2e8 < cores["clock_hz"] < 1e10  # what a processor of a server may have, and a slowed one
    assert 0 < cores["share_p10"] <= cores["share"] <= cores["share_p90"] <= 1


def value(measured, name):
    return next(limit.get("value") for limit in measured["limits"] if limit["name"] == name)


def test_limits(tmp_path):
    lines, measured = measure(tmp_path, "--limits", "--threads", "1")
    check_fields(measured)
    assert measured["kernels"] == [] and measured["threads"] == 1 and measured["cpu_limit"] is None
    assert not any(line.startswith("kernel ") for line in lines)
    assert lines[0] == f"machine: {measured['machine']['cpu']}, 1 thread"
    best = max((name for name in HAS if HAS[name] and name != "amx"), key=list(HAS).index)
    assert measured["path"] == best
    # what the hardware says of itself: a cache is faster than memory, 8-bit products than float32 ones
    assert value(measured, "read_16kb") > value(measured, "read_94mb") / 2
    if HAS["avx2"]:
        assert value(measured, "int8") > value(measured, "f32")
    assert (value(measured, "bf16_dot") is None) == (not (HAS["avx512"] and "avx512_bf16" in FLAGS))
    assert (value(measured, "amx_int8") is None) == (not HAS["amx"])


def test_cores(tmp_path):
    lines, measured = measure(tmp_path, "--cores")
    assert list(measured) == ["format", "machine", "threads", "path", "cpu_limit", "paths", "cores"]
    check_cores(measured["cores"])
    assert f"cores: {measured['cores']['clock_hz'] * 1e-9:.2f} GHz" in lines[-1]
    for other in ("--limits", "--only=q4"):
        done = run("bench", "kernels", "--cores", other)
        assert done.returncode and "--cores measures no" in done.stderr


@pytest.mark.parametrize("path", ["ref", "avx2", "avx512"])
def test_a_path_is_chosen_and_shown(tmp_path, path):
    """Lowered by the environment; what the machine lacks is named as skipped, never left out."""
    lines, measured = measure(tmp_path, "--only", "rms_norm", env={"QUIRE_CPU": path})
    check_fields(measured)
    assert measured["cpu_limit"] == path
    assert [row["name"] for row in measured["paths"]] == list(HAS)
    for row in measured["paths"]:
        if not HAS[row["name"]]:
            assert (row["state"], row["reason"]) == ("skipped", "this machine lacks it")
            assert f"  {row['name']:<8} skipped: this machine lacks it" in lines
        elif row["state"] == "skipped":
            assert row["name"] == "amx" and row["reason"] == "this build has no such path"
        else:
            assert row["state"] == ("chosen" if row["name"] == measured["path"] else "available")
    if HAS[path]:
        assert measured["path"] == path and f"  {path:<8} chosen, limited to {path}" in lines
    skipped = {limit["name"]: limit["skipped"] for limit in measured["limits"] if "skipped" in limit}
    assert skipped["read_2gb"] == "only with --limits"
    assert skipped["amx_int8"] == ("above the limit set" if HAS["amx"] else "this machine lacks it")
    if path != "avx512" and "avx512_bf16" in FLAGS:
        assert skipped["bf16_dot"] == "above the limit set"
    assert [row["kernel"] for row in measured["kernels"]] == ["rms_norm"]


def test_the_option_wins_over_the_environment(tmp_path):
    _, measured = measure(tmp_path, "--only", "rms_norm", "--cpu", "ref", env={"QUIRE_CPU": "avx2"})
    assert (measured["path"], measured["cpu_limit"]) == ("ref", "ref")


def test_products(tmp_path):
    """One format in all its shapes: few rows are bound by memory, many by arithmetic."""
    lines, measured = measure(tmp_path, "--only", "Q8_0", "--threads", "2")
    check_fields(measured)
    rows = measured["kernels"]
    assert all("q8_0" in row["kernel"] for row in rows)
    assert {row["kernel"].startswith("pack ") for row in rows} == {True, False}
    counts = {int(re.search(r", (\d+) rows?$", row["shape"])[1]) for row in rows if row["ops_per_s"]}
    assert counts == {1, 2, 4, 8, 16, 32, 64, 128, 256, 512}
    assert {row["limit"] for row in rows if row["shape"].endswith(", 512 rows")} == {"int8"}
    if HAS["avx512"]:
        assert {row["limit"] for row in rows if row["shape"].endswith(", 1 row")} == {"read_94mb"}
    table = lines[next(i for i, line in enumerate(lines) if line.startswith("kernel ")) + 1 :]
    for line, row in zip(table, rows, strict=False):
        assert line.startswith(row["kernel"]) and row["shape"] in line and f"{100 * row['share']:.1f} %" in line


@pytest.mark.full
def test_every_kernel(tmp_path):
    """The default run: every format that the path has, attention and the rest, within a minute."""
    lines, measured = measure(tmp_path)
    check_fields(measured)
    names = " ".join(row["kernel"] for row in measured["kernels"])
    for text in ("q4_1", "q4_k", "q6_k", "bf16", "pack q4_1", "attention bf16", "attention f32", "swiglu", "softmax_terms"):
        assert text in names, text


def test_wrong_use(tmp_path):
    def fails(*args, says, env=None, code=2):
        done = run("bench", *args, env=env)
        assert done.returncode == code and not done.stdout
        lines = done.stderr.splitlines()
        assert len(lines) == 1 and lines[0].startswith("quire bench") and says in lines[0], done.stderr

    fails("kernls", says="did you mean kernels")
    fails("nothing", says='"nothing"')
    fails("kernels", "--ony", "x", says="did you mean --only?")
    fails("kernels", "--only", "frobnicate", says='"frobnicate"')
    fails("kernels", "--only", "", says="--only may not be empty")
    fails("kernels", "--only", "x", "--limits", says="--only")
    fails("kernels", "--threads", "257", says="256")
    fails("kernels", "--threads", "-1", says="threads")
    fails("kernels", "--json", tmp_path / "no" / "such.json", says="such.json")
    fails("kernels", "q4_1", says='"q4_1"')
    fails("kernels", "--cpu", "sse9", says="ref")
    fails("kernels", says="QUIRE_CPU", env={"QUIRE_CPU": "sse9"})


def test_help():
    done = run("bench")
    assert done.returncode == 2 and not done.stdout and done.stderr.startswith("usage: quire bench kernels")
    for args in (["--help"], ["-h"], ["x", "--help"]):
        done = run("bench", *args)
        assert done.returncode == 0 and done.stdout.startswith("usage: quire bench kernels") and not done.stderr
    done = run("bench", "kernels", "--help")
    assert done.returncode == 0 and done.stdout.startswith("usage: quire bench kernels [options]")
    for flag in ("--[no-]limits", "--only TEXT", "--threads N", "--json FILE", "--cpu ISA"):
        assert flag in done.stdout, flag
    assert "bench" in run("--help").stdout


def test_the_json_file_is_replaced(tmp_path):
    path = tmp_path / "bench.json"
    path.write_text("old " * 100000)
    run("bench", "kernels", "--only", "rms_norm", "--json", path)
    assert json.loads(path.read_text())["format"] == 1
