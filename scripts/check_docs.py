#!/usr/bin/env python3
"""Runs every command block of the documents, with small stand-ins for the models they name.

A fenced block marked sh is run by bash in a folder of its own. One that cannot be says why in a comment
before it: <!-- not run: REASON -->. A block that holds commands and is not marked sh is a mistake, and so
is a link to a file or a heading that does not exist, or from docs/ to a file outside of it.
Usage: check_docs.py path/to/spa [DOCUMENT...]
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
DATA = ROOT / "tests/data"
DOCS = ROOT / "docs"
COMMAND = re.compile(r"^(\$ )?(spa|lm_eval|make|npm|node|pip|python3?|curl|cmake|git|sudo|apt-get|\w*/\w+\.(sh|py))\b", re.M)
FENCE = re.compile(r"^```(\S*)[^\n]*\n(.*?)^```$", re.M | re.S)
REASON = re.compile(r"<!-- not run: (.+?) -->\s*$")
SECONDS = 600  # a hang, not a slow machine

# A server answers in the background, on a port of its own, until the block ends.
PREAMBLE = r"""
set -euo pipefail
ulimit -f 1048576  # 1 GiB: a block that writes more is not one for a test
exec < /dev/null
spa() {
  if [ "$1" != serve ] || [ "${2-}" = --help ]; then command spa "$@"; return; fi
  local arguments=() skip=
  for argument in "${@:2}"; do
    if [ -n "$skip" ]; then skip=; elif [ "$argument" = --port ]; then skip=1; else arguments+=("$argument"); fi
  done
  command spa serve --port 0 "${arguments[@]}" > served 2> served.log &
  servers+=("$!")
  until port=$(grep -o ':[0-9]\+ ' served | tr -d ': '); do
    kill -0 "$!" || { cat served.log; return 1; }
    sleep 0.1
  done
}
curl() { command curl --fail-with-body -sS "${@/localhost:8080/127.0.0.1:$port}"; }
servers=()
trap 'for server in "${servers[@]}"; do kill "$server"; wait "$server" || true; done' EXIT
"""


def blocks(path):
    """(line, language, text, reason not to run it) of every fenced block."""
    text = path.read_text()
    for match in FENCE.finditer(text):
        reason = REASON.search(text[:match.start()])
        yield text[:match.start()].count("\n") + 1, match[1], match[2], reason and reason[1]


def stand_ins(folder):
    """Small files under the names that the documents use."""
    for name in ("LLaDA-8B-Instruct-Q4_0.gguf", "llada-8b.gguf", "llada-8b-q4_0.gguf"):
        shutil.copy(DATA / "mini.gguf", folder / name)
    for name in ("LLaDA-8B-Instruct", "Dream-v0-Instruct-7B"):
        shutil.copytree(DATA / "tiny-llada-hf", folder / name)
    (folder / "question.txt").write_text("not ( True ) is\n")
    (folder / "boolean_expressions.json").write_text(
        '{"examples": [{"input": "not ( True ) is", "target": "False"}, {"input": "True is", "target": "True"}]}')
    (folder / "questions.jsonl").write_text('{"question": "not ( True ) is", "answer": "False"}\n')


def run(spa, text):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        stand_ins(folder)
        (folder / "bin").mkdir()
        (folder / "bin/spa").symlink_to(spa)
        environment = dict(os.environ, PATH=f"{folder}/bin:{os.environ['PATH']}", XDG_CACHE_HOME=f"{folder}/cache",
                           HOME=name, SPA_SOURCE=str(ROOT))
        return subprocess.run(["bash", "-c", PREAMBLE + text], cwd=folder, env=environment, timeout=SECONDS,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)


def anchors(path):
    """The names the site gives to a document's headings."""
    for heading in re.findall(r"^#+ (.+)$", FENCE.sub("", path.read_text()), re.M):
        yield re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower())


def dead_links(path):
    prose = FENCE.sub("", path.read_text())
    for target in re.findall(r"\]\(([^)\s]+)\)|<img[^>]* src=\"([^\"]+)\"", prose):
        target = "".join(target)
        if "://" in target or target.startswith("mailto:"):
            continue
        name, _, anchor = target.partition("#")
        file = (path.parent / name).resolve() if name else path
        # The site is made of docs/ alone.
        if not file.exists() or (DOCS in path.parents and not file.is_relative_to(DOCS)):
            yield target
        elif anchor and file.suffix == ".md" and anchor not in anchors(file):
            yield target


def main():
    spa = pathlib.Path(sys.argv[1]).resolve()
    documents = [pathlib.Path(name).resolve() for name in sys.argv[2:]] or sorted(
        [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("models/*.md"), *ROOT.glob("web/*.md"),
         *ROOT.glob("tools/*/*.md")])
    failed = ran = left_out = 0
    for path in documents:
        name = path.relative_to(ROOT)
        for target in dead_links(path):
            failed += 1
            print(f"FAILED {name}: there is no {target}, or not on the site")
        for line, language, text, reason in blocks(path):
            if language not in ("", "sh", "bash", "console", "shell"):
                continue
            if language != "sh":
                if COMMAND.search(text):
                    failed += 1
                    print(f"FAILED {name}:{line}: holds commands, but is not marked sh")
                continue
            if reason:
                left_out += 1
                print(f"not run {name}:{line}: {reason}")
                continue
            ran += 1
            result = run(spa, text)
            if result.returncode != 0:
                failed += 1
                print(f"FAILED {name}:{line} (exit code {result.returncode})\n{text}{result.stdout[-2000:]}")
    print(f"{ran} blocks run, {left_out} left out, {failed} failures")
    sys.exit(failed > 0)


main()
