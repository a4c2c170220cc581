"""quire pull ORG/NAME and serving by hub id, against a small hub on loopback; its API is read by huggingface_hub as well."""

import json
import os
import pathlib
import random
import subprocess

import gguf
import hf_folder
import huggingface_hub
import numpy as np
import pytest
from harness import BINARY, Server, environment, run
from hub import COMMIT, Hub

BIG = random.Random(7).randbytes(300_000)
FOLDER = {
    "config.json": b'{"model_type": "llama"}',
    "generation_config.json": b"{}",
    "tokenizer.json": b"{}" * 800,
    "model.safetensors.index.json": b"{}",
    "model-00001-of-00002.safetensors": BIG,
    "model-00002-of-00002.safetensors": BIG[:5000],
    "1_Pooling/config.json": b"{ }",
    "consolidated.safetensors": b"other",
    "original/params.json": b"other",
    "pytorch_model.bin": b"other",
    "modeling_x.py": b"import os",
    "README.md": b"# x",
}
GGUFS = {
    "README.md": b"# x",
    "x-Q4_K_M.gguf": b"GGUF4m" + BIG,
    "x-Q4_K.gguf": b"GGUF4",
    "x-Q8_0.gguf": b"GGUF8",
    "mmproj-x-Q8_0.gguf": b"vision",
    "big/x-BF16-00001-of-00002.gguf": b"one",
    "big/x-BF16-00002-of-00002.gguf": b"two",
}


@pytest.fixture
def hub(tmp_path):
    hub = Hub({"org/folder": dict(FOLDER), "org/ggufs": dict(GGUFS), "org/empty": {"README.md": b"# x"}})
    hub.env = {"HF_ENDPOINT": hub.url + "/", "QUIRE_CACHE": str(tmp_path / "cache"), "HF_TOKEN": ""}
    hub.cache = tmp_path / "cache" / "hub"
    yield hub
    hub.close()


def pull(hub, name, **env):
    done = run("pull", name, env={**hub.env, **env})
    assert done.returncode == 0, done.stderr
    path = pathlib.Path(done.stdout.removesuffix("\n"))
    assert path.exists()
    return path


def refused(hub, name, *says, **env):
    done = run("pull", name, env={**hub.env, **env})
    assert done.returncode in (1, 2) and not done.stdout, (done.returncode, done.stdout)
    line = done.stderr.strip().splitlines()[-1]
    for text in says:
        assert text in line, line
    return line


def tree(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_the_hub_is_one(hub, tmp_path):
    """What the mock answers is what the public client understands."""
    api = huggingface_hub.HfApi(endpoint=hub.url)
    info = api.model_info("org/folder", files_metadata=True)
    assert info.sha == COMMIT
    sizes = {one.rfilename: (one.size, one.lfs and one.lfs.sha256) for one in info.siblings}
    assert {name: size for name, (size, _) in sizes.items()} == {name: len(data) for name, data in FOLDER.items()}
    assert sizes["tokenizer.json"][1] and not sizes["config.json"][1]


def test_a_folder(hub):
    path = pull(hub, "org/folder")
    assert path == hub.cache / "org" / "folder" / COMMIT
    left_out = {"consolidated.safetensors", "original/params.json", "pytorch_model.bin", "modeling_x.py", "README.md"}
    assert tree(path) == {name: data for name, data in FOLDER.items() if name not in left_out}
    n = len(hub.log)
    assert pull(hub, "org/folder") == path
    assert [p for p, _ in hub.log[n:]] == ["/api/models/org/folder/revision/main"]  # all there: only asked what it means


@pytest.mark.parametrize("name, files", [
    ("org/ggufs", ["x-Q4_K_M.gguf"]),  # the usual one among several
    ("org/ggufs:q8_0", ["x-Q8_0.gguf"]),  # and no vision tower
    ("org/ggufs:Q4_K", ["x-Q4_K.gguf"]),  # a word of its own
    ("org/ggufs:mmproj-x-Q8_0.gguf", ["mmproj-x-Q8_0.gguf"]),  # by its whole name anything
    ("org/ggufs@v1:BF16", ["big/x-BF16-00001-of-00002.gguf", "big/x-BF16-00002-of-00002.gguf"]),
    ("org/ggufs:big/x-BF16-00002-of-00002.gguf", ["big/x-BF16-00001-of-00002.gguf", "big/x-BF16-00002-of-00002.gguf"]),
])
def test_gguf_files(hub, name, files):
    path = pull(hub, name)
    folder = hub.cache / "org" / "ggufs" / COMMIT
    assert tree(folder) == {file: GGUFS[file] for file in files}
    assert str(path.relative_to(folder)) in files


def test_what_cannot_be_meant(hub):
    refused(hub, "org/none", "org/none", "404", "there is none")
    refused(hub, "org/ggufs@v9", "org/ggufs@v9", "404")
    refused(hub, "org/empty", "config.json", ".gguf")
    refused(hub, "org/folder:Q4_0", '"Q4_0" is none', "none")
    assert "mmproj" not in refused(hub, "org/ggufs:Q5_0", '"Q5_0" is none of its .gguf files', "x-Q4_K_M.gguf", "x-Q8_0.gguf")
    hub.repos["org/ggufs"].pop("x-Q4_K_M.gguf")
    refused(hub, "org/ggufs", "several .gguf files", "x-Q4_K.gguf", "x-Q8_0.gguf")
    refused(hub, "org/ggufs:x", "fits 3 of its .gguf files")
    hub.repos["org/ggufs"].pop("big/x-BF16-00002-of-00002.gguf")
    refused(hub, "org/ggufs:bf16", "one of 2 parts, of which it holds 1")
    for bad in ("org/..", "org/x y", "org/x:", "org/x@", "org/x:../../etc/passwd", "org/x@../y", "o" * 97 + "/x"):
        refused(hub, bad, "is no")
    assert refused(hub, "nothing", "not a known name", "hub id")
    assert not hub.cache.exists() or not list(hub.cache.rglob("*.part"))


def test_interrupted_downloads_go_on(hub):
    """A connection that breaks is tried again and goes on where it stopped; so does a later pull."""
    hub.faults["x-Q4_K_M.gguf"] = ["cut", 503]
    assert pull(hub, "org/ggufs").read_bytes() == GGUFS["x-Q4_K_M.gguf"]
    ranges = [asked for path, asked in hub.log if path.startswith("/store/")]
    assert ranges[0] is None and ranges[1] == ranges[2] != None  # noqa: E711
    part = hub.cache / "org" / "ggufs" / COMMIT / "x-Q8_0.gguf.part"
    part.write_bytes(b"GG")
    assert pull(hub, "org/ggufs:Q8_0").read_bytes() == b"GGUF8" and hub.log[-1][1] == "bytes=2-"


@pytest.mark.parametrize("start", [b"GGUFx", b"GG", b"GGUF8 and more", b"xx"])
def test_leftovers(hub, start):
    """Whatever an earlier try left, the file is right in the end or refused; the next pull starts anew."""
    pull(hub, "org/ggufs:Q4_K")
    (hub.cache / "org" / "ggufs" / COMMIT / "x-Q8_0.gguf.part").write_bytes(start)
    if start in (b"GGUFx", b"xx"):
        refused(hub, "org/ggufs:Q8_0", "x-Q8_0.gguf", "expected", "not kept")
    assert pull(hub, "org/ggufs:Q8_0").read_bytes() == b"GGUF8"


def test_a_server_without_ranges(hub):
    pull(hub, "org/ggufs:Q4_K")
    (hub.cache / "org" / "ggufs" / COMMIT / "x-Q8_0.gguf.part").write_bytes(b"GG")
    hub.faults["x-Q8_0.gguf"] = ["no-range"]
    assert pull(hub, "org/ggufs:Q8_0").read_bytes() == b"GGUF8"


def test_other_bytes_are_not_kept(hub):
    for name, file in (("org/ggufs", "x-Q4_K_M.gguf"), ("org/ggufs:Q8_0", "x-Q8_0.gguf")):
        hub.faults[file] = ["wrong"]
        refused(hub, name, file, "expected", "not kept")
        hub.faults[file] = ["long"]
        refused(hub, name, file, "more than the")
        assert pull(hub, name).read_bytes() == GGUFS[file]
    hub.faults["config.json"] = [404]
    refused(hub, "org/folder", "config.json", "404")
    hub.faults["config.json"] = [500] * 4
    refused(hub, "org/folder", "config.json", "500")


def test_lists_that_are_wrong(hub):
    good = hub.info("org/ggufs")
    entry = good["siblings"][1]
    cases = [
        (b"<html>", "not JSON"),
        (b"", "not JSON"),
        ({**good, "sha": "../../x"}, "commit"),
        ({**good, "siblings": []}, "0 entries"),
        ({**good, "siblings": None}, "0 entries"),
        ({**good, "siblings": [{}]}, "rfilename"),
        ({**good, "siblings": [{**entry, "rfilename": "../x.gguf"}]}, "not a safe relative path"),
        ({**good, "siblings": [{**entry, "rfilename": "/etc/x.gguf"}]}, "not a safe relative path"),
        ({**good, "siblings": [{**entry, "rfilename": "a//x.gguf"}]}, "not a safe relative path"),
        ({**good, "siblings": [{**entry, "rfilename": "a\nx.gguf"}]}, "not a safe relative path"),
        ({**good, "siblings": [{**entry, "size": -1}]}, "no size for x-Q4_K_M.gguf"),
        ({**good, "siblings": [{**entry, "size": None}]}, "no size for x-Q4_K_M.gguf"),
        ({**good, "siblings": [{**entry, "lfs": {}}]}, "no SHA-256"),
        ({**good, "siblings": [{**entry, "lfs": None, "blobId": "x"}]}, "no hash"),
    ]
    for body, says in cases:
        hub.faults["org/ggufs"] = [body if isinstance(body, bytes) else json.dumps(body).encode()]
        refused(hub, "org/ggufs", "org/ggufs", says)
    assert not hub.cache.exists()


def test_tokens(hub):
    hub.token = "hf_secret"
    assert "hf_" not in refused(hub, "org/folder", "401", "set HF_TOKEN")
    assert "hf_" not in refused(hub, "org/folder", "401", "HF_TOKEN may not", HF_TOKEN="hf_wrong")
    pull(hub, "org/folder", HF_TOKEN="hf_secret")
    assert hub.stored_tokens and not any(hub.stored_tokens)  # the store is another host: it never sees the token


def test_hubs_that_are_not_there(hub):
    refused(hub, "org/folder", "HF_ENDPOINT", "http://", HF_ENDPOINT="ftp://x")
    hub.close()
    refused(hub, "org/folder", "org/folder", "onnect")


def test_two_pulls_at_once(hub):
    env = environment(**hub.env)
    both = [subprocess.Popen([BINARY, "pull", "org/folder"], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            for _ in range(2)]
    outs = [one.communicate(timeout=60) for one in both]
    assert [one.returncode for one in both] == [0, 0], outs
    assert outs[0][0] == outs[1][0]
    fetched = [path for path, _ in hub.log if path.endswith("/model-00001-of-00002.safetensors") and "/store/" in path]
    assert len(fetched) == 1


def test_serving_by_id(hub, tiny_model, monkeypatch):
    """Fetched when it is first named; after that the hub is not needed."""
    hub.repos["org/tiny"] = {"tiny.gguf": pathlib.Path(tiny_model).read_bytes()}
    for name, value in hub.env.items():
        monkeypatch.setenv(name, value)
    done = run("run", "org/tiny", "hello", "--max-tokens", "2", env=hub.env)
    assert done.returncode == 0, done.stderr
    hub.close()
    with Server("org/tiny", "--kv-cache-memory-bytes", "8Mi") as server:
        models = server.get("/v1/models").json()
        assert models["data"][0]["id"] == "org/tiny"


def test_no_room_in_the_cache(hub, tmp_path):
    (tmp_path / "file").write_text("")
    refused(hub, "org/folder", str(tmp_path / "file"), QUIRE_CACHE=str(tmp_path / "file"))
    if os.geteuid():
        (tmp_path / "shut").mkdir(mode=0o555)
        refused(hub, "org/folder", "shut", QUIRE_CACHE=str(tmp_path / "shut"))


def test_what_is_meant_as_a_file(hub):
    """A path is not looked up on a hub, and where one is asked it is said."""
    n = len(hub.log)
    refused(hub, "models/my.gguf", "models/my.gguf", "not a file or folder here")
    assert len(hub.log) == n
    assert "asked the hub" in refused(hub, "org/none", "no file or folder here")


def test_an_error_without_end(hub):
    hub.faults["org/ggufs"] = ["endless"]
    refused(hub, "org/ggufs", "404", "there is none")


def test_plan_fetches_no_weights(hub, tmp_path, tiny_model):
    """Only the small files; what is planned is the folder with its weights, which a later pull completes."""
    source = hf_folder.write(tmp_path / "source", tiny_model)
    files = {p.name: p.read_bytes() for p in source.iterdir()}
    whole = Hub({"org/tiny": files})
    env = {**hub.env, "HF_ENDPOINT": whole.url + "/"}
    flags = ("--max-num-seqs", "2", "--max-model-len", "64", "--json")
    try:
        done = run("plan", "org/tiny", *flags, env=env)
        assert done.returncode == 0, done.stderr
        planned = json.loads(done.stdout)
        assert planned["model"]["hub_bytes"] == len(files["model.safetensors"])
        folder = hub.cache / "org" / "tiny" / COMMIT
        assert (folder / "config.json").exists() and not list(folder.glob("*.safetensors"))
        assert json.loads(run("plan", source, *flags).stdout)["memory"] == planned["memory"]
        assert (pull(hub, "org/tiny", HF_ENDPOINT=env["HF_ENDPOINT"]) / "model.safetensors").exists()
    finally:
        whole.close()


PLAN = ("--max-num-seqs", "2", "--max-model-len", "64", "--device-memory", "8G", "--json")


@pytest.fixture(scope="module")
def described(tmp_path_factory):
    """A model of 3 MB, half of it names, as one .gguf file, and in parts of which the last two hold tensors alone."""
    rng, folder = np.random.default_rng(1), tmp_path_factory.mktemp("described")
    n_vocab = 40000
    for name, most in (("x-Q4_K_M.gguf", 0), ("x-BF16.gguf", 9)):
        w = gguf.GGUFWriter(folder / name, "llama", split_max_tensors=most)
        for key, value in (("block_count", 2), ("context_length", 64), ("embedding_length", 16), ("feed_forward_length", 32),
                           ("attention.head_count", 2), ("attention.head_count_kv", 1), ("rope.dimension_count", 8)):
            w.add_uint32(f"llama.{key}", value)
        w.add_float32("llama.attention.layer_norm_rms_epsilon", 1e-5)
        w.add_array("tokenizer.ggml.tokens", [f"a word with the number {i:08}" for i in range(n_vocab)])
        shapes = {"token_embd.weight": (n_vocab, 16), "output_norm.weight": (16,)}
        for i in range(2):
            shapes |= {f"blk.{i}.{k}.weight": s for k, s in {
                "attn_norm": (16,), "ffn_norm": (16,), "attn_q": (16, 16), "attn_k": (8, 16), "attn_v": (8, 16),
                "attn_output": (16, 16), "ffn_gate": (32, 16), "ffn_up": (32, 16), "ffn_down": (16, 32)}.items()}
        for tensor, shape in shapes.items():
            w.add_tensor(tensor, rng.standard_normal(shape).astype(np.float32))
        w.write_header_to_file()
        w.write_kv_data_to_file()
        w.write_tensors_to_file()
        w.close()
    assert len(list(folder.glob("x-BF16-*.gguf"))) == 3
    return folder


@pytest.fixture
def gguf_hub(described, hub):
    whole = Hub({"org/only": {p.name: p.read_bytes() for p in described.iterdir()}})
    hub.env["HF_ENDPOINT"] = whole.url
    yield whole
    whole.close()


def test_plan_reads_the_beginning_of_a_gguf_file(hub, gguf_hub, described):
    """By ranges, as many as its description takes; the plan is that of the whole file. Nothing of it is taken for a pulled
    model, and a second plan asks for no byte more."""
    size = (described / "x-Q4_K_M.gguf").stat().st_size
    done = run("plan", "org/only", *PLAN, env=hub.env)
    assert done.returncode == 0, done.stderr
    planned = json.loads(done.stdout)
    local = json.loads(run("plan", described / "x-Q4_K_M.gguf", *PLAN).stdout)
    assert planned["model"].pop("hub_bytes") == size and local["model"].pop("hub_bytes") == 0
    assert planned["model"].pop("name") and local["model"].pop("name")
    assert planned == local
    ranges = [r for p, r in gguf_hub.log if p.startswith("/store/")]
    assert ranges == ["bytes=0-1048575", f"bytes=1048576-{min(size, 4 << 20) - 1}"]
    assert not (hub.cache / "org" / "only" / COMMIT / "x-Q4_K_M.gguf").exists()
    kept = hub.cache / "org" / "only" / "headers" / COMMIT / "x-Q4_K_M.gguf"
    assert kept.stat().st_size == size and not list(kept.parent.parent.rglob("*.part/*.gguf"))
    n = len(gguf_hub.log)
    assert json.loads(run("plan", "org/only", *PLAN, env=hub.env).stdout)["memory"] == local["memory"]
    assert [p for p, _ in gguf_hub.log[n:]] == ["/api/models/org/only/revision/main"]
    assert pull(hub, "org/only").read_bytes() == (described / "x-Q4_K_M.gguf").read_bytes()
    n = len(gguf_hub.log)
    assert json.loads(run("plan", "org/only", *PLAN, env=hub.env).stdout)["model"]["hub_bytes"] == 0
    assert gguf_hub.log[n:] == []


def test_plan_reads_the_beginnings_of_all_parts(hub, gguf_hub, described):
    done = run("plan", "org/only:BF16", *PLAN, env=hub.env)
    assert done.returncode == 0, done.stderr
    planned = json.loads(done.stdout)
    assert planned["memory"] == json.loads(run("plan", next(described.glob("x-BF16-00001*")), *PLAN).stdout)["memory"]
    assert planned["model"]["hub_bytes"] == sum(p.stat().st_size for p in described.glob("x-BF16-*"))


@pytest.mark.parametrize("fault", ["cut", 503, "no-range"])
def test_plan_survives_faults_of_the_hub(fault, hub, gguf_hub):
    gguf_hub.faults["x-Q4_K_M.gguf"] = [fault, fault]
    done = run("plan", "org/only", *PLAN, env=hub.env)
    assert done.returncode == 0, done.stderr


def test_plan_of_what_is_no_gguf_file(hub, gguf_hub):
    for name, data, says in (("noise-Q4_K_M.gguf", random.Random(3).randbytes(3 << 20), "GGUF"),
                             ("empty-Q4_K_M.gguf", b"", "0 bytes"), ("short-Q4_K_M.gguf", b"GGUF\3\0\0\0", "8 bytes")):
        gguf_hub.repos["org/bad"] = {name: data}
        done = run("plan", "org/bad", env=hub.env)
        assert done.returncode != 0 and says in done.stderr.splitlines()[-1], done.stderr
        assert not list(hub.cache.rglob(f"headers/{COMMIT}/*.gguf"))
    assert [r for p, r in gguf_hub.log if "noise" in p and p.startswith("/store/")] == ["bytes=0-1048575"]
    gguf_hub.faults["x-Q4_K_M.gguf"] = [404]
    assert "404" in run("plan", "org/only", env=hub.env).stderr.splitlines()[-1]
