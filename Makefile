# The front door; CMake, Ninja and scripts/ do the work. Everything lands in build*/ and .venv/.

MODEL ?= smollm2
ARGS ?=
PREFIX ?= /usr/local
FUZZ_SECONDS ?= 60
TESTS := python3 scripts/run_tests.py

.PHONY: all serve test test-quick test-full bench asan tsan fuzz format install package clean help

all: setup-serve ## the release build: build/quire
	@scripts/build.sh quire

serve: all ## build and serve MODEL=smollm2 with ARGS="--port 8000 ..."
	@exec build/quire serve $(MODEL) $(ARGS)

test: setup-test ## all tests; ends with "N passed, N failed"
	@$(TESTS) test

test-quick: setup-test ## build and the quick unit tests only
	@$(TESTS) quick

test-full: setup-test ## as test, law 1 over its whole matrix (long), and 20 s per fuzz target
	@$(TESTS) full

bench: setup-test all ## kernels and server measured; with LLAMA_SERVER=PATH or PEERS=FILE beside others
	@$(if $(PEERS),python3 scripts/peers/versus.py $(ARGS) $(PEERS),python3 scripts/bench.py $(ARGS))

asan: setup-test ## quick tests under AddressSanitizer and UndefinedBehaviorSanitizer
	@$(TESTS) asan

tsan: setup-test ## quick tests under ThreadSanitizer
	@$(TESTS) tsan

fuzz: setup-test ## each fuzz target for FUZZ_SECONDS=60
	@$(TESTS) fuzz --fuzz-seconds $(FUZZ_SECONDS)

format: ## clang-format on all sources
	@git ls-files -z 'src/*.[ch]' 'src/*.inc' 'include/*.h' 'tests/*.[ch]' | xargs -0 clang-format -i

install: all ## into PREFIX=/usr/local (and DESTDIR): program, man page, systemd unit
	@cmake -S . -B build -DCMAKE_INSTALL_PREFIX=$(PREFIX) >/dev/null
	@cmake --install build --strip

package: setup-package all ## a .deb in build/
	@cmake -S . -B build -DCMAKE_INSTALL_PREFIX=/usr >/dev/null
	@cd build && cpack >cpack.log || { cat cpack.log; exit 1; }
	@ls build/*.deb

clean: ## remove the build folders
	rm -rf build build-asan build-tsan build-fuzz build-o0 build-clang

setup-%:
	@scripts/setup.sh $*

help: ## this list
	@sed -nE 's/^([a-z-]+):.*## (.*)/  make \1 \t\2/p' Makefile | expand -t 20
