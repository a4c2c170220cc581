"""`quire bench serve` and files that are not quite what they should be: each is read, or refused in one line; no file is lost."""

import csv
import json
import os
import resource
import subprocess

import pytest
from harness import BINARY, environment, run
from mock import Mock

AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
BURST = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
CHAT = {"messages": [{"role": "user", "content": "a b"}], "max_tokens": 3}
BATCH = json.dumps({"custom_id": "1", "method": "POST", "url": "/v1/chat/completions", "body": CHAT}) + "\n"
TALK = json.dumps([{"conversations": [{"from": "human", "value": "hello you"}, {"from": "gpt", "value": "hi there"}]}])


def moon(**fields):
    return json.dumps({"timestamp": 0, "input_length": 600, "output_length": 2, **fields}) + "\n"


@pytest.fixture(scope="module")
def server():
    with Mock(ttft=1, tpot=0.2) as mock:
        yield mock.url


def measure(url, folder, text, workload, *arguments, time_scale=1e5):
    path = folder / "in"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    scale = ["--time-scale", time_scale] if workload == "trace" else ["--requests", 1]
    return run("bench", "serve", url, "--workload", workload, "--file", path, *scale, "--no-progress", *arguments)


@pytest.mark.parametrize("workload,text,tokens", [
    # the columns of the published files: Azure 2023, 2024 (a zone) and its multimodal trace, BurstGPT 1 and 3
    ("trace", AZURE + "2023-11-16 18:17:03.9799600,48,10\n", [48]),
    ("trace", AZURE + "2024-05-10 00:00:00.009930+00:00,27,3\n", [27]),
    ("trace", "TIMESTAMP,NumImages,ContextTokens,GeneratedTokens\n2024-10-15 00:00:00.0000000,2,90,12\n", [90]),
    ("trace", BURST + "5,ChatGPT,47,18,65,Conversation log\n", [47]),
    ("trace", "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
              "19440110.0,1722ac82-0a46-4bf0-aa08-89794e7a2b3f,43,GPT-4,90,4,94,Conversation log\n", [90]),
    ("trace", moon(hash_ids=[4294967295, 0]), [600]),
    ("trace", AZURE + "2024-02-29 23:59:59,4,2\n2024-02-29 00:00:00,5,2\n", [5, 4]),  # not in order
    ("trace", b"\xef\xbb\xbf" + (AZURE + "2023-11-16 18:17:03,48,10\n").replace("\n", "\r\n").encode(), [48]),
    ("trace", "\n\n" + AZURE + "\n2023-11-16 18:17:03,48,10\n\n", [48]),
    ("trace", "  " + moon(), [600]),
    ("batch", b"\xef\xbb\xbf" + BATCH.replace("\n", "\r\n").encode(), [9]),
    ("batch", "  \n\t\n" + BATCH, [9]),
    ("sharegpt", b"\xef\xbb\xbf" + TALK.encode(), [9]),
])
def test_read(server, tmp_path, workload, text, tokens):
    out = tmp_path / "out.json"
    done = measure(server, tmp_path, text, workload, "--json", out)
    assert done.returncode == 0 and not done.stderr, done.stderr
    records = json.loads(out.read_text())["points"][0]["repeats"][0]["records"]
    by_due = sorted(zip(records["due_s"], records["input_tokens"], strict=True))
    assert [n for _, n in by_due] == tokens


@pytest.mark.parametrize("workload,text,says", [
    ("trace", AZURE + "2023-02-29 00:00:00,4,2\n", 'the timestamp "2023-02-29 00:00:00"'),
    ("trace", AZURE + "2023-02-10 24:00:00,4,2\n", 'the timestamp "2023-02-10 24:00:00"'),
    ("trace", AZURE + "2023-02-10 00:60:00,4,2\n", 'the timestamp "2023-02-10 00:60:00"'),
    ("trace", AZURE + '"2023-02-10 00:00:00","4","2"\n', "the timestamp"),
    ("trace", AZURE.replace(",", ";"), "the header is not that of TIMESTAMP,ContextTokens"),
    ("trace", AZURE.replace(",", "\t"), "the header is not that of TIMESTAMP,ContextTokens"),
    ("trace", AZURE.encode("utf-16"), "no known trace"),
    ("trace", "[" + moon() + "]", "no known trace: azure (TIMESTAMP,ContextTokens,GeneratedTokens), burstgpt"),
    ("trace", b"\x89PNG\r\n\x1a\n", "no known trace"),
    ("trace", BURST + "nan,ChatGPT,4,2,6,x\n", 'the timestamp "nan"'),
    ("trace", BURST + "-1,ChatGPT,4,2,6,x\n", 'the timestamp "-1"'),
    ("trace", BURST + "1,ChatGPT,4,2,6,x\n999999999999,ChatGPT,4,2,6,x\n", "are spread over 1e+12 seconds"),
    ("trace", moon(timestamp=-1), 'in:1: expected "timestamp"'),
    ("trace", moon() + moon(timestamp=1e308), 'in:2: expected "timestamp"'),
    ("trace", moon(hash_ids=["a"]), '"hash_ids" has a member that is no integer from 0'),
    ("trace", moon(hash_ids=[1, -1]), '"hash_ids" has a member that is no integer from 0'),
    ("trace", moon(hash_ids=[4294967296]), '"hash_ids" has a member that is no integer from 0'),
    ("trace", moon() + '{"timestamp": ' + "[" * 100_000, "in:2: not JSON"),
    ("batch", BATCH + BATCH[:40], "in:2: not JSON"),
    ("sharegpt", TALK[:-9], "not JSON"),
])
def test_refused(server, tmp_path, workload, text, says):
    done = measure(server, tmp_path, text, workload, time_scale=1)
    lines = done.stderr.splitlines()
    assert done.returncode in (1, 2) and len(lines) == 1 and says in lines[0] and not done.stdout, (done.stderr, done.stdout)


def test_no_regular_file(server, tmp_path):
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path, tmp_path / "fifo", "/dev/zero"):
        done = run("bench", "serve", server, "--workload", "trace", "--file", path, timeout=60)
        assert done.returncode == 1 and done.stderr.endswith("is not a regular file\n") and len(done.stderr.splitlines()) == 1


def test_no_report_over_another_file(server, tmp_path):
    """Not over a report of the same run, nor over what is read, whatever the path looks like."""
    trace = tmp_path / "trace.csv"
    trace.write_text(AZURE + "2023-11-16 18:17:03,48,10\n")
    (tmp_path / "link").symlink_to(trace)
    for arguments in (["--json", tmp_path / "x", "--csv", tmp_path / "x"], ["--html", trace], ["--csv", tmp_path / "link"]):
        done = run("bench", "serve", server, "--workload", "trace", "--file", trace, *arguments)
        assert done.returncode == 2 and "each needs its own" in done.stderr and len(done.stderr.splitlines()) == 1
    assert trace.read_text() == AZURE + "2023-11-16 18:17:03,48,10\n"


def test_one_file_cannot_be_written(server, tmp_path):
    """The others are, and the table is shown: what was measured is kept."""
    rows, page = tmp_path / "a.csv", tmp_path / "a.html"
    done = run("bench", "serve", server, "--requests", 2, "--input-tokens", 8, "--output-tokens", 2, "--json", "/dev/full", "--csv", rows,
               "--html", page)
    assert done.returncode == 1 and "--json /dev/full cannot be written: No space left on device" in done.stderr
    assert len(done.stderr.splitlines()) == 1 and "TTFT" in done.stdout
    assert [row["ok"] for row in csv.DictReader(rows.open())] == ["2"] and "</html>" in page.read_text()


def test_output_that_is_lost(server, tmp_path):
    """A full disk behind standard output is an error; a limit on the size of files is one of the file, not the end of the process."""
    arguments = [BINARY, "bench", "serve", server, "--requests", "2", "--input-tokens", "8", "--output-tokens", "2"]
    with open("/dev/full", "wb") as full:
        done = subprocess.run(arguments, stdout=full, stderr=subprocess.PIPE, env=environment(), text=True)
    assert done.returncode == 1 and done.stderr == "quire: standard output could not be written\n"
    out = tmp_path / "out.json"
    done = subprocess.run([*arguments, "--json", str(out)], capture_output=True, env=environment(), text=True,
                          preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100)))
    assert done.returncode == 1 and "cannot be written: File too large" in done.stderr and "TTFT" in done.stdout, done.stderr


def test_names_are_not_obeyed(server, tmp_path):
    """Bytes that are no UTF-8 reach no report, and a key with a line end makes no header."""
    out, rows, page = tmp_path / "a.json", tmp_path / "a.csv", tmp_path / "a.html"
    few = ["--requests", "1", "--input-tokens", "8", "--output-tokens", "2"]
    done = subprocess.run([os.fsencode(BINARY), b"bench", b"serve", server.encode(), *map(str.encode, few), b"--label", b"a\xffb",
                           b"--json", bytes(out), b"--csv", bytes(rows), b"--html", bytes(page)], capture_output=True, env=environment())
    assert done.returncode == 0, done.stderr
    assert json.loads(out.read_text())["label"] == "a\ufffdb"
    assert next(csv.DictReader(rows.open(encoding="utf-8")))["label"] == "a\ufffdb"
    assert "a\ufffdb" in page.read_text(encoding="utf-8")
    for key in ("abc\n", "abc\r\nX-Other: 1", "a b"):
        done = run("bench", "serve", server, *few, env={"QUIRE_API_KEY": key})
        assert done.returncode == 2 and "blank or control character at position" in done.stderr and len(done.stderr.splitlines()) == 1
