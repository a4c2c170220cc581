"""Pages that are printed by the program are current, and what they point to is there."""

import re

import pytest
from harness import ROOT, run

DOCS = ROOT / "docs"


def between(text, name):
    return re.search(rf"<!-- {name}:begin -->\n(.*?)<!-- {name}:end -->", text, re.S)[1].strip()


def test_api_tables_are_current():
    assert (
        between((DOCS / "api.md").read_text(), "api") == run("serve", "--help-api").stdout.strip()
    ), "run scripts/update_docs.sh"


def test_flags_are_current():
    assert (
        between((DOCS / "flags.md").read_text(), "flags") == run("serve", "--help-markdown").stdout.strip()
    ), "run scripts/update_docs.sh"


@pytest.mark.parametrize("command", ["serve", "compare", "ablation", "engine"])
def test_bench_options_are_current(command):
    assert (
        between((DOCS / "bench.md").read_text(), f"bench-{command}")
        == run("bench", command, "--help-markdown").stdout.strip()
    ), "run scripts/update_docs.sh"


@pytest.mark.parametrize("page, command", [("simulate", "simulate"), ("tuning", "tune")])
def test_options_of_other_commands_are_current(page, command):
    text = (DOCS / f"{page}.md").read_text()
    assert between(text, command) == run(command, "--help-markdown").stdout.strip(), "run scripts/update_docs.sh"


def test_every_flag_is_explained():
    rows = re.findall(
        r"^\| `--(?:\[no-\])?([\w-]+)[^|]*\|([^|]*)\|([^|]*)\| (.+) \|$", (DOCS / "flags.md").read_text(), re.M
    )
    assert len(rows) > 60
    for name, _, _, meaning in rows:
        assert len(meaning) > 10, name


@pytest.mark.parametrize("page", sorted(p.name for p in DOCS.glob("*.md")))
def test_links(page):
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", (DOCS / page).read_text()):
        assert target.startswith("http") or (DOCS / target).exists(), target


def test_flags_that_pages_name_exist():
    known = set(re.findall(r"--(?:\[no-\])?([\w-]+)", run("serve", "--help").stdout)) | {
        "help-api",
        "help-markdown",
        "help",
        "name",
    }
    for page in ("api.md", "operations.md", "metrics.md", "flags.md"):
        for name in re.findall(r"`--(?:\[no-\])?([a-z][\w-]+)", (DOCS / page).read_text()):
            assert name.removeprefix("no-") in known, (page, name)
