"""The package's annotations are right: for itself, and for those who use it with mypy."""

import pathlib
import subprocess
import sys

import pytest

import spa

USE = """
import spa
from typing import reveal_type

model = spa.Model()
reveal_type(model.generate("x"))  # Result
reveal_type(model.generate([1, 2]))  # Result
reveal_type(model.generate(["x", "y"]))  # list[Result]
reveal_type(model.loglikelihood("x", "y"))  # Likelihood
reveal_type(model.loglikelihood("x", ["y", "z"]))  # list[Likelihood]
"""


def mypy(*arguments: str) -> str:
    command = [sys.executable, "-m", "mypy", "--ignore-missing-imports", "--cache-dir=/dev/null"]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_mypy_finds_nothing():
    mypy(str(pathlib.Path(spa.__file__).parent))


@pytest.mark.slow
def test_a_list_gives_a_list(tmp_path):
    (tmp_path / "use.py").write_text(USE)
    told = [line for line in mypy(str(tmp_path / "use.py")).splitlines() if "Revealed type" in line]
    expected = [line.rpartition("# ")[2] for line in USE.splitlines() if "# " in line]
    assert len(told) == len(expected)
    for line, name in zip(told, expected):
        assert ("list[" in line) == name.startswith("list["), line
