"""The site builds without a warning and without the network, and what is generated is up to date."""

from __future__ import annotations

import dataclasses
import os
import re
import runpy
import subprocess
import sys
import time
from html.parser import HTMLParser
from pathlib import Path

import yaml
from mkdocstrings_handlers.python import GoogleStyleOptions, PythonOptions

import fedpg
from helpers.browser import CHROMIUM, Page, browser

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"


class Requests(HTMLParser):
    """What a browser fetches for a page, as far as it is elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.elsewhere: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        address = found.get("src") or (found.get("href") if tag == "link" else None) or ""
        if re.match(r"(https?:)?//", address):
            self.elsewhere.append(address)


def requests(html: str) -> list[str]:
    """The addresses on other machines that a page makes a browser fetch."""
    parser = Requests()
    parser.feed(html)
    return parser.elsewhere + re.findall(r"@import[^;]*//[^;]*|url\(['\"]?(?:https?:)?//[^)]*", html)


def test_the_site_builds_without_a_warning_and_fetches_nothing(tmp_path):
    """Strict: broken links, broken anchors, pages that are not in the navigation and wrong docstrings are errors."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    proxies = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:9")
    built = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=os.environ | proxies | {"NO_MKDOCS_2_WARNING": "1"})
    assert built.returncode == 0, built.stderr
    pages = list((tmp_path / "site").rglob("*.html"))
    assert len(pages) > 40
    assert [(page.name, found) for page in pages for found in requests(page.read_text())] == []
    assert "simulator" in (tmp_path / "site" / "search" / "search_index.json").read_text()
    api = [page.read_text() for page in (tmp_path / "site" / "reference" / "api").glob("*.html")]
    assert sum(page.count("doc-function") for page in api) > 5
    assert [name for page in api for name in re.findall(r">(\w+),</", page)] == [], "a docstring describes two attributes in one line"
    if CHROMIUM is not None:  # from disk and without a network
        with browser(tmp_path / "profile") as page:
            assert found_by_search(page, tmp_path / "site" / "index.html", "server rate") > 0


def found_by_search(page: Page, path: Path, words: str) -> int:
    """How many pages the search finds."""
    page.open(path)
    page.run("document.querySelector('[data-md-toggle=search]').click()")
    for _ in range(100):
        page.run(f"query = document.querySelector('.md-search__input'); query.value = {words!r}; query.focus(); 0")
        page.run("query.dispatchEvent(new KeyboardEvent('keyup', {bubbles: true})); 0")
        if found := page.run("document.querySelectorAll('.md-search-result__item').length"):
            assert page.errors == []
            return found
        time.sleep(0.2)
    return 0


def test_options_of_the_site_exist():
    """Where pydantic is installed mkdocstrings ignores an unknown option; elsewhere it is an error."""
    options = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["plugins"][2]["mkdocstrings"]["handlers"]["python"]["options"]
    assert set(options) <= {field.name for field in dataclasses.fields(PythonOptions)}
    assert set(options["docstring_options"]) <= {field.name for field in dataclasses.fields(GoogleStyleOptions)}


def test_a_request_to_another_machine_is_found():
    assert requests('<script src="//cdn.example/x.js"></script><link href="https://fonts.example/a.css">') != []
    assert requests('<style>@import "https://a.example/x.css";</style>') != []
    assert requests('<a href="https://docs.jax.dev">JAX</a><img src="a.png">') == []


def test_the_command_line_is_that_of_the_flags():
    writer = runpy.run_path(str(ROOT / "tools" / "write_command_line.py"))
    assert writer["PAGE"].read_text() == writer["page"](), "run python tools/write_command_line.py"


def test_every_public_name_is_in_the_reference():
    shown = "\n".join(path.read_text() for path in (DOCS / "reference" / "api").glob("*.md"))
    documented = {name.rpartition(".")[2] for name in re.findall(r"^::: (fedpg\S+)", shown, re.MULTILINE)}
    modules = {"algorithms", "envs", "policies", "theory"}
    assert set(fedpg.__all__) - modules <= documented
