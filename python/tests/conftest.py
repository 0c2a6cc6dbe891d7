"""What the tests share: the model compiled in, and the program to compare with."""

import importlib.util
import json
import os
import pathlib
import re
import subprocess

import numpy as np
import pytest

import spa

ROOT = pathlib.Path(__file__).parents[2]
# Threads, so that two of them are tested against one.
QUESTIONS = [
    "not ( True and False ) or False is",
    "False or not ( True ) is",
    "True and not not ( False ) is",
]


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """With CI=true in the environment a skipped test is a failure, as in tests/no_skips.cc."""
    report = (yield).get_result()
    if report.skipped and not hasattr(report, "wasxfail") and os.environ.get("CI") == "true":
        report.outcome = "failed"
        report.longrepr = f"Skipped although CI=true: {call.excinfo.value}"


@pytest.fixture(scope="session")
def model():
    return spa.Model(threads=2)


@pytest.fixture(scope="session")
def program():
    """Runs `spa ARGUMENTS...` and returns what it printed."""
    path = os.environ.get("SPA_PROGRAM", str(ROOT / "build/release/spa"))

    def run(*arguments: str, text: str = "") -> str:
        done = subprocess.run(
            [path, *arguments], input=text, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.fixture(scope="session")
def generate(program):
    """`spa generate --json` on a question."""

    def run(question: str, *arguments: str) -> dict:
        return json.loads(program("generate", "-p", question, "--json", *arguments))

    return run


def example(name: str):
    """A module of examples/python."""
    path = ROOT / "examples" / "python" / f"{name}.py"
    specification = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def same(a, b) -> bool:
    return np.array_equal(np.asarray(a), np.asarray(b))


@pytest.fixture(scope="session")
def serve():
    """Starts `spa serve ARGUMENTS...` and returns its address; it ends with the tests."""
    path = os.environ.get("SPA_PROGRAM", str(ROOT / "build/release/spa"))
    running = []

    def start(*arguments: str) -> str:
        command = [path, "serve", "--port", "0", "--quiet", "--threads", "2", *arguments]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        running.append(process)
        first = process.stdout.readline()
        found = re.search(r"http://[0-9.:]+", first)
        assert found, first
        return found.group()

    yield start
    for process in running:
        process.terminate()
        process.wait(30)
