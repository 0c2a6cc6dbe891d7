#!/usr/bin/env bash
# The virtual environment in which the Python package is built for the tests and tested: Debian's
# Python takes no packages from PyPI itself.
#   python_environment.sh FOLDER          makes it, or completes it
#   python_environment.sh --check FOLDER  says how to make it unless it is there
#   python_environment.sh --all FOLDER    adds what the slow tests need: the extras of pyproject.toml
set -euo pipefail
packages=(nanobind scikit-build-core numpy pytest)
modules="import nanobind, numpy, pytest, scikit_build_core"

complete() { [ -x "$1/bin/python" ] && "$1/bin/python" -c "$modules" 2> /dev/null; }
install() { "$1/bin/pip" install --quiet --disable-pip-version-check "${@:2}"; }

case $1 in
  --check)
    complete "$2" && exit
    echo "the tests need a Python environment in $2: \`make deps\` makes it" >&2
    exit 1 ;;
  --all)
    mapfile -t extras < <("$2/bin/python" - << 'END'
import pathlib, tomllib
project = tomllib.loads(pathlib.Path("pyproject.toml").read_text())["project"]
for extra in project["optional-dependencies"].values():
    print(*extra, sep="\n")
END
    )
    install "$2" "${extras[@]}"
    exit ;;
esac
complete "$1" && exit
# The system's own Python, which has headers; another one first in PATH may not.
python=/usr/bin/python3
[ -x "$python" ] || python=python3
echo "Making $1: ${packages[*]}"
"$python" -m venv "$1"
install "$1" "${packages[@]}"
