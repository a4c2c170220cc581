"""Servers that tests share, and the model files they run on.

QUIRE_BIN    the binary under test (build/quire)
QUIRE_PATIENCE  factor on all time limits, for slow builds"""

import contextlib
import hashlib
import importlib.util
import os
import pathlib
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from harness import BINARY, CACHE, ROOT, SANITIZED, Server, environment  # noqa: E402

DEFAULT_MODEL = "SmolLM2-135M-Instruct.Q4_1.gguf"


def pytest_configure(config):
    config.addinivalue_line("markers", "full: takes long; not part of the quick run (-m 'not full')")
    if not BINARY.exists():
        raise pytest.UsageError(f"{BINARY} is not there: build it first, or set QUIRE_BIN")


def load_maker():
    """scripts/make_test_gguf.py as a module of its own, so that a test may change it."""
    spec = importlib.util.spec_from_file_location("make_test_gguf", ROOT / "scripts" / "make_test_gguf.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def make_model(*args, key="", change=None):
    """A tiny model file, kept by the hash of what it is made of."""
    source = (ROOT / "scripts" / "make_test_gguf.py").read_bytes()
    digest = hashlib.sha256(source + repr((args, key)).encode()).hexdigest()[:16]
    path = CACHE / f"tiny-{digest}.gguf"
    if not path.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        maker = load_maker()
        if change:
            change(maker)
        temporary = path.with_suffix(f".{os.getpid()}")
        maker.Maker(maker.options([str(temporary), *args]), str(temporary)).write()
        temporary.rename(path)
    return path


@pytest.fixture(scope="session")
def tiny_model():
    return make_model("--type", "Q8_0", "--layers", "2", "--width", "64", "--ff", "96", "--head-dim", "16")


@pytest.fixture(scope="session")
def bos_model():
    """Adds BOS, and its template writes BOS too."""

    def change(maker):
        maker.CHAT_TEMPLATE = "{{ bos_token }}" + maker.CHAT_TEMPLATE
        writer = maker.gguf.GGUFWriter

        class WithBos(writer):
            def add_add_bos_token(self, value):
                writer.add_add_bos_token(self, True)

        maker.gguf = type("gguf", (), {**vars(maker.gguf), "GGUFWriter": WithBos})

    return make_model("--layers", "1", "--width", "64", "--ff", "64", key="bos", change=change)


def default_model_path():
    env = environment()
    folder = env.get("QUIRE_CACHE") or os.path.join(
        env.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "quire"
    )
    return pathlib.Path(folder) / DEFAULT_MODEL


@pytest.fixture(scope="session")
def default_model():
    if not default_model_path().exists():
        pytest.skip("the default model is not in the cache (quire pull smollm2)")
    return "smollm2"


@pytest.fixture(scope="session")
def tiny_server(tiny_model):
    with Server(tiny_model, "--served-model-name", "tiny", "--kv-cache-memory-bytes", "8Mi") as server:
        yield server


@pytest.fixture(scope="session")
def smollm2_server(default_model):
    with Server(default_model, "--kv-cache-memory-bytes", "384Mi", timeout=120) as server:
        yield server


@contextlib.contextmanager
def unharmed(server):
    yield server
    server.healthy()
    server.wait_idle()


@pytest.fixture
def tiny(tiny_server):
    """The shared server of the tiny model. After each test it must be healthy, idle and hold no KV."""
    with unharmed(tiny_server):
        yield tiny_server


@pytest.fixture
def smollm2(smollm2_server):
    with unharmed(smollm2_server):
        yield smollm2_server


@pytest.fixture(scope="session")
def sanitized():
    return SANITIZED


@pytest.fixture(scope="session")
def certificate(tmp_path_factory):
    """A self-signed certificate of this machine and its key."""
    folder = tmp_path_factory.mktemp("tls")
    cert, key = folder / "cert.pem", folder / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", key, "-out", cert],
        check=True, capture_output=True)
    return cert, key
