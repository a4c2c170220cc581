#!/usr/bin/env bash
# Puts what the program prints of itself into docs/*.md.
#
# usage: update_docs.sh [BINARY]
set -euo pipefail
cd "$(dirname "$0")/.."
binary=${1:-build/quire}

insert() { # insert FILE NAME TEXT: between the markers of that name
    python3 - "$@" <<'PYTHON'
import pathlib, re, sys
path, name, text = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
block = f"<!-- {name}:begin -->\n{text.strip()}\n<!-- {name}:end -->"
path.write_text(re.sub(rf"<!-- {name}:begin -->\n.*?<!-- {name}:end -->", lambda _: block, path.read_text(), flags=re.S))
PYTHON
}

insert docs/api.md api "$("$binary" serve --help-api)"
insert docs/flags.md flags "$("$binary" serve --help-markdown)"
insert docs/bench.md bench-serve "$("$binary" bench serve --help-markdown)"
insert docs/bench.md bench-ablation "$("$binary" bench ablation --help-markdown)"
insert docs/bench.md bench-engine "$("$binary" bench engine --help-markdown)"
insert docs/bench.md bench-compare "$("$binary" bench compare --help-markdown)"
insert docs/simulate.md simulate "$("$binary" simulate --help-markdown)"
insert docs/tuning.md tune "$("$binary" tune --help-markdown)"
