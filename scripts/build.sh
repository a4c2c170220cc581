#!/usr/bin/env bash
# Configures build/ where that is due and builds the given targets (all if none), quietly when there is nothing to do.
set -euo pipefail
cd "$(dirname "$0")/.."
[ -f build/build.ninja ] || cmake -G Ninja -S . -B build >build/configure.log 2>&1 || { cat build/configure.log >&2; exit 1; }
if [ -t 1 ]; then
    exec ninja -C build "$@"
fi
[ -f build/quire ] || echo "building quire: a few minutes the first time"
ninja -C build --quiet "$@" | sed '/^ninja: no work to do/d'
