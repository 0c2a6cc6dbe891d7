"""The Python code of the documents runs as it stands there."""

import doctest
import re

import pytest
from conftest import ROOT

import spa


@pytest.mark.parametrize(
    "document",
    ["README.md", "docs/python.md", pytest.param("docs/benchmarks.md", marks=pytest.mark.slow)],
)
def test_code_blocks_run(document):
    blocks = re.findall(r"^```python\n(.*?)^```$", (ROOT / document).read_text(), re.M | re.S)
    assert blocks
    names: dict = {"spa": spa}
    for block in blocks:
        if block.startswith(">>>"):
            example = doctest.DocTestParser().get_doctest(block, names, document, None, None)
            assert example.examples and doctest.DocTestRunner().run(example).failed == 0
        elif error := re.search(r"^# spa.Error: (.*?)( choose from)? \.\.\.$", block, re.M):
            with pytest.raises(spa.Error, match=re.escape(error[1])):
                exec(block, names)  # noqa: S102
        else:
            exec(block, names)  # noqa: S102
