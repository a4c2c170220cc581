"""`quire bench ablation` on a small model: one change a row, figures that follow from each other, no server left."""

import csv
import html.parser
import json
import os
import pathlib
import signal
import statistics
import subprocess
import time

import pytest
from conftest import make_model
from harness import BINARY, PATIENCE, environment, run

ROWS = [
    "static batching",
    "+ continuous batching",
    "+ paged KV",
    "+ chunked prefill",
    "+ prefix caching",
    "+ quantized weights",
    "+ 6 chunks of 20",
    "+ compressed to 3 K",
]
REPEATS = 3
QUICK = ["--scale", "0.05", "--seconds", "0.8", "--repeat", str(REPEATS), "--max-streams", "2", "--quality-windows", "1"]
QUICK += ["--slo", "e2e:600000"]


def servers():
    """Processes that are our servers: {pid: arguments}."""
    out = {}
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            arguments = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if arguments[:2] == [b"quire", b"serve"]:
            out[int(path.parent.name)] = arguments
    return out


def ours(name):
    return [pid for pid, arguments in servers().items() if b"--served-model-name=" + str(name).encode() in arguments]


WORDS = "the of and to in is was for that on with as by at from it he his an be this are or had not but".split()
SMALL = ["--type", "Q8_0", "--layers", "2", "--width", "64", "--ff", "96", "--head-dim", "16"]


def with_words(maker):
    """A tokenizer in which some common words are one token each, as conversations need."""

    def merges():
        known = set()
        for word in WORDS:
            so_far = "Ġ"
            for letter in word:
                if so_far + letter not in known:
                    yield so_far, letter
                so_far += letter
                known.add(so_far)
        yield from [("t", "h"), ("th", "e")]  # the first word of a prompt, which has no space before it

    maker.merge_list = merges


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A name of its own, so that its servers can be told from others."""
    path = tmp_path_factory.mktemp("ablation") / "model.gguf"
    os.symlink(make_model(*SMALL, key="words 2", change=with_words), path)
    return path


@pytest.fixture
def without_chat(tiny_model, tmp_path):
    """Its words are not one token each."""
    path = tmp_path / "model.gguf"
    os.symlink(tiny_model, path)
    return path


@pytest.fixture(scope="module")
def measured(model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("reports")
    paths = {kind: folder / f"a.{kind}" for kind in ("json", "csv", "html")}
    files = [x for kind, path in paths.items() for x in (f"--{kind}", path)]
    done = run("bench", "ablation", model, *QUICK, "--price", "2/h", *files, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    assert not ours(model)
    return json.loads(paths["json"].read_text()), done.stdout, paths


def flags(point):
    return {a.split("=")[0]: a for a in point["server_arguments"] if a.startswith("--")}


def test_one_change_a_row(measured):
    """Each row's server differs from the one before in what its name says, and in nothing else."""
    report = measured[0]
    points = report["points"]
    assert report["format"] == "quire-bench-ablation" and report["version"] == 1 and report["ended_early"] is None
    assert [p["title"] for p in points] == ROWS
    first = flags(points[0])
    assert first["--baseline-static"] == "--baseline-static=batch,reserve"
    assert "--no-enable-chunked-prefill" in first and "--no-enable-prefix-caching" in first
    changes = [set(a["server_arguments"]) ^ set(b["server_arguments"]) for a, b in zip(points, points[1:])]
    assert changes[0] == {"--baseline-static=batch,reserve", "--baseline-static=reserve"}
    assert changes[1] == {"--baseline-static=reserve", "--baseline-static=none"}
    assert changes[2] == {"--no-enable-chunked-prefill", "--enable-chunked-prefill"}
    assert changes[3] == {"--no-enable-prefix-caching", "--enable-prefix-caching"}
    assert len(changes[4]) == 2 and all(not c.startswith("--") for c in changes[4])  # the model
    assert not changes[5] and not changes[6]
    assert [p["workload"] for p in points] == ["rag20"] * 6 + ["rag6", "rag3k"]


def test_answers_stay(measured):
    """Law 1: the scheduler's settings change no answer."""
    points = measured[0]["points"]
    assert [p["same_answers"] for p in points] == [None, True, True, True, True, None, None, None]
    assert len({p["perplexity"] for p in points[:5]}) == 1 and len({p["perplexity"] for p in points[5:]}) == 1


def test_figures_follow_from_each_other(measured):
    report, _, _ = measured
    points = report["points"]
    rates = [p["useful_tokens_per_s"] for p in points]
    for i, p in enumerate(points):
        tried, counts = p["loads"][:-1], p["loads"][-1]
        held = [x for x in tried if x["summary"]["good_share"] >= report["within"]]
        best = max(held, key=lambda x: x["summary"]["useful_tokens_per_s"])
        assert p["streams"] == best["concurrency"] == counts["concurrency"] and counts["summary"] == p["summary"]
        repeats = [r["summary"]["useful_tokens_per_s"] for r in p["repeats"]]
        assert len(repeats) == REPEATS == len(counts["repeats"])
        assert [r["summary"] for r in counts["repeats"]] == [r["summary"] for r in p["repeats"]]
        assert rates[i] == pytest.approx(statistics.median(repeats))
        assert p["useful_tokens_per_s_least"] == min(repeats) and p["useful_tokens_per_s_most"] == max(repeats)
        assert p["cost_per_1m_useful"] == pytest.approx(2 / 3600 / rates[i] * 1e6)
        if i:
            assert p["own_gain"] == pytest.approx(1 - rates[i - 1] / rates[i])
            assert p["total_gain"] == pytest.approx(1 - rates[0] / rates[i])
            # three repeats on each side: the interval goes from the one extreme of their quotients to the other
            before = [r["summary"]["useful_tokens_per_s"] for r in points[i - 1]["repeats"]]
            assert p["own_gain_low"] == pytest.approx(1 - max(before) / min(repeats))
            assert p["own_gain_high"] == pytest.approx(1 - min(before) / max(repeats))
            assert p["no_difference"] == (p["own_gain_low"] <= 0 <= p["own_gain_high"])
        else:
            assert p["own_gain"] is None and p["total_gain"] is None and p["no_difference"] is None
        assert p["server_cpu_s"] > 0 and p["server_peak_bytes"] > 0
        s = p["summary"]
        if p["workload"] == "rag20":  # nothing is left out: useful are all tokens of the requests that count
            assert s["failed"] == 0 and s["good_share"] == 1
            assert s["useful_tokens_per_s"] == pytest.approx(s["total_tokens_per_s"])
        else:  # prompts count as they were before
            assert s["useful_tokens_per_s"] > s["total_tokens_per_s"]
    hits = [p["summary"]["server"]["prefix_hit_rate"] for p in points]
    assert all(not h for h in hits[:4]) and all(h > 0 for h in hits[4:])


def test_left_out_tokens_are_counted(measured):
    """rag6 at scale 0.05: 14 of 20 documents of 35 tokens are missing in each question, none in the agent's steps."""
    for point, missing in zip(measured[0]["points"][6:], [14 * 35, 20 * 35 - 6 * 23], strict=True):
        records = [r["records"] for r in point["loads"][-1]["repeats"]]
        questions = sum(r["workload"].count(point["workload"]) for r in records)
        assert {name for r in records for name in r["workload"]} == {point["workload"], "agent", "chat"}
        s = point["summary"]
        more = (s["useful_tokens_per_s"] - s["total_tokens_per_s"]) * s["duration_s"]
        assert more == pytest.approx(questions * missing) and questions


def test_lengths_vary(measured):
    """Answers to questions differ in length, and a round has the same questions for all rows."""
    firsts = set()
    for point in measured[0]["points"]:
        lengths = set()
        for round_, r in enumerate(point["loads"][-1]["repeats"]):
            c = r["records"]
            rows = sorted(zip(c["due_s"], c["output_tokens"], c["workload"], strict=True))
            questions = [n for _, n, name in rows if name == point["workload"]]
            lengths.update(questions)
            firsts.add((round_, questions[0]))
        assert len(lengths) > 1
    assert len(firsts) == REPEATS


def test_memory_is_finite(measured):
    """KV memory is for a number of the longest sequences, the same for all rows."""
    kv = {flags(p)["--kv-cache-memory-bytes"] for p in measured[0]["points"]}
    longest = {flags(p)["--max-model-len"] for p in measured[0]["points"]}
    assert len(kv) == len(longest) == 1
    tokens = int(longest.pop().split("=")[1])
    done = run("bench", "ablation", "/no/such", "--kv-sequences", "0")
    assert done.returncode == 2 and "kv-sequences" in done.stderr
    assert any(f"up to {tokens} tokens" in n and "for 4 such sequences" in n for n in measured[0]["notes"])


def test_limits_from_a_question_alone(model, tmp_path):
    """Without --slo: TTFT and TPOT ten times, the longest ITL 25 times TPOT, of what a question alone has."""
    path = tmp_path / "a.json"
    quick = QUICK[: QUICK.index("--slo")]
    done = run("bench", "ablation", model, *quick, "--within", "0.01", "--json", path, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    report = json.loads(path.read_text())
    alone = report["points"][0]["loads"][0]
    assert alone["title"] == "questions alone" and alone["concurrency"] == 1 and alone["summary"]["ok"] == 4
    limits = {k: float(v) for k, v in (x.split(":") for x in report["slo"].split(","))}
    s = alone["summary"]
    for name, basis in (("ttft", 10 * s["ttft_ms"]["p50"]), ("tpot", 10 * s["tpot_ms"]["p50"]), ("itl", 25 * s["tpot_ms"]["p50"])):
        assert basis <= limits[name] <= 1.1 * basis  # two digits, upwards


class Checker(html.parser.HTMLParser):
    VOID = {"meta", "br", "path", "rect", "circle", "line"}

    def __init__(self):
        super().__init__()
        self.text, self.rows = [], 0

    def handle_starttag(self, tag, attributes):
        self.rows += tag == "tr"
        for name, value in attributes:
            assert name not in ("src", "href") or value.startswith("#"), (tag, value)

    def handle_data(self, data):
        self.text.append(data)


def test_reports_agree(measured):
    report, table, paths = measured
    rows = list(csv.DictReader(paths["csv"].open()))
    assert [r["row"] for r in rows] == ROWS
    for row, point in zip(rows, report["points"], strict=True):
        assert float(row["useful_tokens_per_s"]) == pytest.approx(point["useful_tokens_per_s"], rel=1e-4)
        assert int(row["streams"]) == point["streams"]
    page = Checker()
    page.feed(paths["html"].read_text())
    text = "".join(page.text)
    assert page.rows == 1 + len(ROWS) and "cannot be shown" in text
    for name in ROWS:
        assert name in text and name in table


def test_compare_reads_it(measured, tmp_path):
    path = measured[2]["json"]
    done = run("bench", "compare", path, path)
    assert done.returncode == 0 and "+ prefix caching" in done.stdout and "cost of 1M useful" in done.stdout
    other = tmp_path / "serve.json"
    other.write_text(json.dumps({"format": "quire-bench-serve", "version": 1, "points": [{"title": "x"}]}))
    done = run("bench", "compare", path, other)
    assert done.returncode == 2 and "quire-bench-ablation" in done.stderr and "quire-bench-serve" in done.stderr


def test_interrupted(without_chat, tmp_path):
    """What was measured is kept, and the server that ran is gone."""
    path, model = tmp_path / "a.json", without_chat
    command = [str(BINARY), "bench", "ablation", str(model), *QUICK, "--json", str(path)]
    command[command.index("--seconds") + 1] = "1"
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment())
    try:
        line = process.stdout.readline()  # of the first row, when it is done
        assert line.startswith("static batching"), line
        end = time.monotonic() + 60 * PATIENCE
        while not ours(model) and time.monotonic() < end:
            time.sleep(0.01)
        assert ours(model)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60 * PATIENCE)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 1 and "interrupted" in err, err
    assert not ours(model)
    report = json.loads(path.read_text())
    assert report["ended_early"] and report["points"][0]["useful_tokens_per_s"] > 0
    assert "static batching" in out and any("all sessions are rag" in n for n in report["notes"])


def test_killed(model):
    """Nothing is left either when the process itself has no say."""
    command = [str(BINARY), "bench", "ablation", str(model), *QUICK]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment())
    end = time.monotonic() + 60 * PATIENCE
    while not ours(model) and time.monotonic() < end:
        time.sleep(0.01)
    started = ours(model)
    process.kill()
    process.wait()
    while ours(model) and time.monotonic() < end:
        time.sleep(0.01)
    assert started and not ours(model)


@pytest.mark.parametrize(
    "arguments, says",
    [
        ([], "which model"),
        (["MODEL", "x"], '"x" is one too many'),
        (["MODEL", "--scale", "1"], "the model has 4096"),
        (["MODEL", "--scale", "0.05", "--max-model-len", "100"], "--max-model-len has 100"),
        (["MODEL", "--slo", "ttft"], "--slo"),
        (["MODEL", "--price", "x"], "--price"),
        (["MODEL", "--enable-prefix-caching"], "--enable-prefix-caching"),
        (["MODEL", "--baseline-static", "none"], "--baseline-static"),
        (["MODEL", "--within", "0"], "--within"),
        (["MODEL", "--quantized", "/no/such/model.gguf", "--scale", "0.05"], "/no/such/model.gguf"),
    ],
)
def test_refused(model, arguments, says):
    done = run("bench", "ablation", *[str(model) if a == "MODEL" else a for a in arguments])
    assert done.returncode == 2 and says in done.stderr, (done.returncode, done.stderr)
    assert not ours(model)
