# `make deps` installs what is missing; everything else uses what is there.
.PHONY: build configure demo test test-build test-python test-web web-packages install package site lint check-format \
        format fuzz sanitize deps clean

PREFIX ?= /usr/local
JOBS ?= $(shell nproc 2> /dev/null || echo 2)
CLANG_FORMAT ?= clang-format-14
RUN_CLANG_TIDY ?= run-clang-tidy-14
FUZZ ?= fuzz
FUZZ_SECONDS ?= 60
DEPS ?= build test
VENV ?= .venv
PYTHON = $(abspath $(VENV))/bin/python

build: configure
	@cmake --build --preset release

configure:
	@scripts/install_packages.sh --tools
	@cmake --preset release -DSPA_TESTS=OFF -DSPA_PYTHON=OFF > /dev/null

# The program alone.
demo: configure
	@cmake --build --preset release --target spa
	@build/release/spa demo

# Results also go to build/release/tests.xml.
test: test-build
	@ctest --preset release --parallel $(JOBS) --output-junit tests.xml

test-build:
	@scripts/install_packages.sh --tools
	@scripts/python_environment.sh --check $(VENV)
	@cmake --preset release -DSPA_PYTHON=ON -DPython_EXECUTABLE=$(PYTHON) > /dev/null
	@cmake --build --preset release

# Every test of the Python package, the slow ones too, which need the lm-evaluation-harness and Ray.
test-python:
	@scripts/install_packages.sh --tools
	@scripts/python_environment.sh --check $(VENV)
	@scripts/python_environment.sh --all $(VENV)
	@cmake --preset release -DSPA_PYTHON=ON -DPython_EXECUTABLE=$(PYTHON) > /dev/null
	@cmake --build --preset release --target spa spa_python_package
	@PYTHONPATH=build/release/python SPA_PROGRAM=$(CURDIR)/build/release/spa \
	  XDG_CACHE_HOME=$(CURDIR)/build/release/test-cache $(PYTHON) -m pytest

# The page in a browser, against a server of its own.
test-web: web-packages
	@cd web && npm run --silent check && npm test --silent

# From npm's registry, on bad days at the second or third attempt.
web-packages:
	@cd web && for wait in 10 30 stop; do \
	  npm ci --prefer-offline --no-audit --no-fund --loglevel error && break; \
	  [ $$wait != stop ] && sleep $$wait || exit 1; done

# Honours DESTDIR.
install:
	@scripts/install_packages.sh --tools
	@cmake --preset release -DSPA_TESTS=OFF -DSPA_PYTHON=OFF -DCMAKE_INSTALL_PREFIX=$(PREFIX) > /dev/null
	@cmake --build --preset release
	@cmake --install build/release

# A .deb and a tarball that runs from any folder, into build/release.
package: build
	@cd build/release && cpack -G DEB && cpack -G TGZ

# The documents as searchable HTML in build/site; a link that leads nowhere fails.
site:
	@mkdocs build

check-format:
	@git ls-files '*.cc' '*.h' '*.c' '*.hpp' | xargs $(CLANG_FORMAT) --dry-run --Werror

lint: check-format
	@cmake --preset lint > /dev/null
	@$(RUN_CLANG_TIDY) -quiet -j $(JOBS) -p build/lint "\.(cc|cxx)$$"

format:
	@git ls-files '*.cc' '*.h' '*.c' '*.hpp' | xargs $(CLANG_FORMAT) -i

# Each fuzzer for FUZZ_SECONDS, as many at a time as there are cores. FUZZ=fuzz-volume is a faster build
# that notices less (docs/decisions.md).
fuzz:
	@cmake --preset $(FUZZ) > /dev/null
	@cmake --build --preset $(FUZZ) --target fuzzers
	@scripts/run_fuzzers.sh build/$(FUZZ) $(FUZZ_SECONDS) $(JOBS)

# The whole test suite under the address, undefined-behaviour and thread sanitizers.
sanitize:
	@for preset in asan tsan; do \
	  cmake --preset $$preset > /dev/null && cmake --build --preset $$preset && \
	  ctest --preset $$preset --parallel $(JOBS) --label-exclude install || exit 1; done

# What else there is to install: DEPS="build test format lint fuzz web site".
deps:
	@scripts/install_packages.sh $(DEPS)
	@case " $(DEPS) " in *" test "*) scripts/python_environment.sh $(VENV) ;; esac

clean:
	rm -rf build
