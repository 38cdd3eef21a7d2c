"""How pages are followed: what is run, saved and compared, and what fails."""

from __future__ import annotations

import pytest

from helpers.documents import Block, blocks, first_missing, follow

PAGE = """
Save a file, as `tool.py`.

```python
# tool.py
value = 7.0
```

```bash
cd .
name=two
sleep 0.1 &
```

```python
import tool
print("seven:", tool.value)
```

```text
seven: 6.9
```

<!-- not run: needs root -->
```bash
exit 9
```

```console
$ wait
$ echo one; echo "$name"
two
```

Not what a command prints:

```text
nothing
```
"""


def test_what_a_page_tells_a_reader_to_do():
    assert blocks(PAGE) == [
        Block(4, "python", "# tool.py\nvalue = 7.0\n", "tool.py"),
        Block(9, "bash", "cd .\nname=two\nsleep 0.1 &\n"),
        Block(15, "python", 'import tool\nprint("seven:", tool.value)\n', shown=("seven: 6.9",)),
        Block(29, "bash", 'wait\necho one; echo "$name"\n', shown=("two",)),
    ]


def written(folder, text):
    (folder / "page.md").write_text(text)
    (folder / "empty").mkdir()
    return folder / "page.md", folder / "empty"


def test_a_page_is_done_in_one_shell(tmp_path):
    screen = follow(*written(tmp_path, PAGE))
    assert "# saved as tool.py\n\n$ cd .\n" in screen
    assert '>>> import tool\n  print("seven:", tool.value)\nseven: 7.0\n' in screen
    assert screen.endswith('$ wait\n  echo one; echo "$name"\none\ntwo\n')
    assert (tmp_path / "empty" / "tool.py").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("seven: 6.9", "seven: 3.0"), "page.md, line 15: it does not print\nseven: 3.0\nbut\nseven: 7.0"),
        (("cd .", "false"), "page.md, line 9: ended with 1"),
        (("sleep 0.1 &", "true | false | true"), "page.md, line 9: ended with 1"),
        (("import tool", "import tools"), "line 15: ended with 1"),
    ],
)
def test_a_page_that_does_not_do_what_it_says_fails(tmp_path, change, message):
    with pytest.raises(AssertionError) as error:
        follow(*written(tmp_path, PAGE.replace(*change)))
    assert message in str(error.value)


def test_a_page_that_takes_too_long_fails(tmp_path):
    with pytest.raises(AssertionError, match=r"line 1: not done within 2 s"):
        follow(*written(tmp_path, "```bash\nsleep 60\n```\n"), seconds=2.0)


def test_a_page_leaves_no_process(tmp_path, monkeypatch):
    monkeypatch.setattr("helpers.documents.GRACE", 0.5)
    with pytest.raises(AssertionError, match="1 processes outlived the page"):
        follow(*written(tmp_path, "```bash\nsleep 60 > /dev/null &\n```\n"))


@pytest.mark.parametrize(
    ("shown", "printed", "missing"),
    [
        (("round  3", "..."), "x\nround 3\ny\n", None),
        (("b", "a"), "a\nb\n", "a"),
        (("return -23.0",), "return -25.1\n", None),
        (("return -23.0",), "return 23.0\n", "return -23.0"),
        (("return -23.0",), "return -33.0\n", "return -23.0"),
        (("round 3",), "round 4\n", "round 3"),
        (("0.5",), "0.5 0.6\n", "0.5"),
    ],
)
def test_lines_that_a_page_shows(shown, printed, missing):
    assert first_missing(shown, printed) == missing
