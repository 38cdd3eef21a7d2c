"""Pages that a reader can follow: their commands and programs, taken from the Markdown and run in order in one folder.

How a page is read:

    ```bash               commands, run in one shell, so that variables and background processes live on
    ```console            the same: lines that begin with "$ " are commands, the others what they print
    ```python             a program, run by `python`
    # name.ext            as first line of a block in any language: the block is saved in that file instead
    ```text               directly below commands or a program: lines that it must print, in this order; lines "..." stand for others
    <!-- not run: why --> directly above a block: it is for another machine
"""

from __future__ import annotations

import contextlib
import fcntl
import math
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from helpers.real import MARK, alive

NEAR = 0.2
"""By how much, as a share, a decimal may differ from what the page shows: other processors round otherwise, and learning amplifies it."""
LATE = 124
"""The exit code of what took too long, as of the command timeout."""
GRACE = 20.0
"""Seconds for what a page has stopped to end."""
FENCE = re.compile(r"^```(\w+)[^\n]*\n(.*?)^```$", re.DOTALL | re.MULTILINE)
NOT_RUN = re.compile(r"<!-- not run: [^>]+ -->\s*\Z")
FILE = re.compile(r"\A# ([\w./@-]+\.\w+)\n")
DECIMAL = re.compile(r"-?\d+\.\d+(?:e-?\d+)?")


class Block(NamedTuple):
    """What a reader does in one step, and what they then see.

    Attributes:
        line: of the page, where it begins.
        language: bash, python, or that of a file.
        code: as it is run or saved.
        file: where it is saved; empty if it is run.
        shown: the lines that the page says it prints.
    """

    line: int
    language: str
    code: str
    file: str = ""
    shown: tuple[str, ...] = ()


def blocks(page: str) -> list[Block]:
    """What a reader of a page, given as its text, saves and runs."""
    found: list[Block] = []
    end = 0
    for match in FENCE.finditer(page):
        language, code, line = match[1], match[2], page.count("\n", 0, match.start()) + 1
        between, end = page[end : match.start()], match.end()
        if NOT_RUN.search(between):
            continue
        if named := FILE.match(code):
            found.append(Block(line, language, code, named[1]))
        elif language in ("bash", "python"):
            found.append(Block(line, language, code))
        elif language == "console":
            lines = code.splitlines()
            commands = "".join(f"{line[2:]}\n" for line in lines if line.startswith("$ "))
            found.append(Block(line, "bash", commands, shown=tuple(line for line in lines if not line.startswith("$ "))))
        elif language == "text" and not between.strip() and found and not found[-1].file:
            found[-1] = found[-1]._replace(shown=tuple(code.splitlines()))
    return found


def follow(page: Path, folder: Path, seconds: float = 600.0, programs: Path | None = None) -> str:
    """Does in an empty folder what a page says, in one shell that stops at the first failure, and checks what the page shows.

    Args:
        page: the page.
        folder: where it is done.
        seconds: after which it fails.
        programs: found before all others on the path; by default those of this Python's environment.

    Returns:
        What a reader has on the screen in the end: every command after "$ ", and what it printed.
    """
    steps = blocks(page.read_text())
    assert steps, f"{page.name} has nothing to run"
    marker = f"step {uuid.uuid4().hex} "
    with tempfile.TemporaryDirectory() as aside, _alone(steps):
        script, screen = Path(aside) / "script", Path(aside) / "screen"
        script.write_text(_script(steps, marker, Path(aside)))
        code = _run(script, screen, folder, seconds, programs or Path(sys.executable).parent)
        seen = screen.read_text(errors="replace").replace(f"{script}: ", "bash: ")
        parts = re.split(rf"^{marker}\d+\n", seen, flags=re.MULTILINE)[1:]
    for step, printed in zip(steps, parts if code == 0 else parts[:-1], strict=False):
        missing = first_missing(step.shown, printed)
        assert missing is None, f"{page.name}, line {step.line}: it does not print\n{missing}\nbut\n{printed}"
    ended = f"not done within {seconds:g} s" if code == LATE else f"ended with {code}"
    assert code == 0, f"{page.name}, line {steps[len(parts) - 1].line}: {ended}\n{parts[-1]}"
    return "\n".join(f"{typed(step)}{printed}" for step, printed in zip(steps, parts, strict=True))


def bare_machine(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The programs of a Python that has pip and nothing else; this environment, and what these tests set for JAX, are hidden."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    for name in [name for name in os.environ if name.startswith(("JAX_", "MAKE", "MFLAGS", "PYTEST_", "PYTHON", "VIRTUAL_ENV", "XLA_"))]:
        monkeypatch.delenv(name)
    here = {Path(sys.executable).parent.resolve(), Path(sys.executable).resolve().parent}
    path = [place for place in os.environ.get("PATH", "").split(os.pathsep) if Path(place).resolve() not in here]
    monkeypatch.setenv("PATH", os.pathsep.join(path))
    assert shutil.which("fedpg") is None, "fedpg is installed outside this environment"
    return folder / "bin"


def first_missing(shown: tuple[str, ...], printed: str) -> str | None:
    """The first line of `shown` that is not among those printed, in this order; spaces do not count, and decimals need only be near."""
    lines = iter(printed.splitlines())
    for wanted in shown:
        if wanted.strip() not in ("", "...") and not any(_alike(wanted, line) for line in lines):
            return wanted
    return None


def _alike(one: str, other: str) -> bool:
    words = (" ".join(DECIMAL.sub("#", line).split()) for line in (one, other))
    numbers = zip(*([float(number) for number in DECIMAL.findall(line)] for line in (one, other)), strict=False)
    return next(words) == next(words) and all(math.isclose(a, b, rel_tol=NEAR, abs_tol=0.02) for a, b in numbers)


def _script(steps: list[Block], marker: str, aside: Path) -> str:
    """All steps as one program of bash. What is saved or run by Python lies in files beside it."""
    lines = ["set -eo pipefail"]
    for number, step in enumerate(steps):
        lines.append(f"printf '%s%d\\n' '{marker}' {number}")
        if step.language == "bash" and not step.file:
            lines.append(step.code)
            continue
        (aside / str(number)).write_text(step.code)
        copy, kept = shlex.quote(str(aside / str(number))), shlex.quote(step.file)
        lines.append(f'mkdir -p "$(dirname {kept})"; cp {copy} {kept}' if step.file else f"python - < {copy}")
    return "\n".join(lines) + "\n"


def _run(script: Path, screen: Path, folder: Path, seconds: float, programs: Path) -> int:
    """The exit code of a script whose commands find `programs`, `LATE` if it took too long. Nothing that it starts is left."""
    mark, path = uuid.uuid4().hex, f"{programs}{os.pathsep}{os.environ.get('PATH', '')}"
    environment = dict(os.environ) | {MARK: mark, "PATH": path}
    with screen.open("wb") as out:
        process = subprocess.Popen(["bash", str(script)], cwd=folder, stdout=out, stderr=out, stdin=subprocess.DEVNULL, env=environment)
    code, left = LATE, list[int]()
    try:
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = process.wait(seconds)
        end = time.monotonic() + (GRACE if code == 0 else 0.0)
        while (left := alive(mark)) and time.monotonic() < end:
            time.sleep(0.2)
    finally:
        for one in alive(mark):
            with contextlib.suppress(ProcessLookupError):
                os.kill(one, signal.SIGKILL)
        process.wait()
    assert code != 0 or not left, f"{len(left)} processes outlived the page"
    return code


def typed(step: Block) -> str:
    """A step as it stands on the screen before its output."""
    if step.file:
        return f"# saved as {step.file}\n"
    lines = step.code.rstrip("\n").split("\n")
    first = {"bash": "$ ", "python": ">>> "}[step.language]
    return "".join(f"{first if i == 0 else '  '}{line}\n" for i, line in enumerate(lines))


@contextlib.contextmanager
def _alone(steps: list[Block]) -> Iterator[None]:
    """Waits until no other page with a server is followed on this machine: pages name ports."""
    if not any("fedpg serve" in step.code for step in steps):
        yield
        return
    with (Path(tempfile.gettempdir()) / "fedpg-pages.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
