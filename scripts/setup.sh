#!/usr/bin/env bash
# Gets what building (serve), testing (test) or making a .deb (package) needs: Debian packages with apt-get where that is
# possible, else the line to run; for the tests also a Python environment in .venv. Does nothing, quickly, when nothing is
# missing.
#
# usage: setup.sh serve|test|package
set -euo pipefail
cd "$(dirname "$0")/.."
what=${1:?usage: setup.sh serve|test|package}
stamp=build/.setup-$what

# done before, and neither this script nor the requirements have changed since
[ "$stamp" -nt "$0" ] && { [ "$what" != test ] || [ "$stamp" -nt tests/requirements.txt -a -x .venv/bin/python ]; } && exit 0

missing=()
need() { # need PACKAGES COMMAND...: the packages are missing if the command fails
    local packages=$1
    shift
    "$@" >/dev/null 2>&1 || missing+=($packages)
}
compiles() { printf '#include <stdio.h>\nint main(void) { return 0; }\n' | cc -x c - -o /dev/null; }
has_header() { cc -E -include "$1" -x c /dev/null -o /dev/null; }
fuzzes() {
    printf '#include <stddef.h>\nint LLVMFuzzerTestOneInput(const char *p, size_t n) { return 0; }\n' |
        clang -fsanitize=fuzzer,address,undefined -x c - -o /dev/null
}

need "gcc libc6-dev" compiles
need cmake cmake --version
need ninja-build ninja --version
need pkg-config pkg-config --version
need libevent-dev pkg-config --exists libevent_core libevent_pthreads libevent_openssl
need libssl-dev pkg-config --exists openssl
need libcurl4-openssl-dev pkg-config --exists libcurl
need libjansson-dev pkg-config --exists jansson
need libhwloc-dev pkg-config --exists hwloc
need "python3 python3-pip ca-certificates" python3 -m pip --version # quire pull
need curl curl --version # the first request
if [ "$what" = test ]; then
    need g++ c++ --version
    need libcmocka-dev pkg-config --exists cmocka
    need "clang libclang-rt-dev" fuzzes
    need libsimde-dev has_header simde/x86/avx512.h
    need valgrind valgrind --version
    need python3-venv python3 -c "import venv, ensurepip"
fi
if [ "$what" = package ]; then
    need dpkg-dev dpkg-shlibdeps --version
    need file file --version
fi

if [ ${#missing[@]} -gt 0 ]; then
    install="apt-get install -y --no-install-recommends ${missing[*]}"
    as_root=
    if [ "$(id -u)" != 0 ]; then
        as_root=sudo
        sudo -n true 2>/dev/null || [ -t 0 -a -n "$(command -v sudo)" ] || as_root=none
    fi
    if [ "$as_root" = none ] || ! command -v apt-get >/dev/null; then
        printf 'Some packages are missing. As root, run:\n\n    apt-get update && %s\n\n' "$install" >&2
        exit 1
    fi
    echo "installing ${missing[*]}"
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get update -q
    $as_root env DEBIAN_FRONTEND=noninteractive $install -q
fi

if [ "$what" = test ]; then
    [ -x .venv/bin/python ] || python3 -m venv .venv
    .venv/bin/python -m pip install -q --disable-pip-version-check -r tests/requirements.txt
fi

mkdir -p build
touch "$stamp"
