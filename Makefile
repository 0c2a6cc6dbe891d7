# Two commands: `make demo` and `make test`. Each installs what is missing, builds and runs.
.PHONY: build demo test sanitize deps clean

PACKAGES = g++ cmake ninja-build pkg-config libhwy-dev libeigen3-dev nlohmann-json3-dev \
           libcli11-dev libcpp-httplib-dev libedit-dev libutf8proc-dev libfmt-dev libgtest-dev

build: deps
	@cmake --preset release > /dev/null
	@cmake --build --preset release

demo: build
	@build/release/spa demo

test: build
	@ctest --preset release --parallel 2

# The whole test suite under the address, undefined-behaviour and thread sanitizers.
sanitize: deps
	cmake --preset asan > /dev/null && cmake --build --preset asan && ctest --preset asan
	cmake --preset tsan > /dev/null && cmake --build --preset tsan && ctest --preset tsan

deps:
	@scripts/install_packages.sh $(PACKAGES)

clean:
	rm -rf build
