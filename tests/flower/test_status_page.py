"""The status page: two addresses, read only, and nothing that an agent says becomes more than text."""

from __future__ import annotations

import dataclasses
import http.client
import json
import re
import socket
import threading
from html.parser import HTMLParser
from pathlib import Path

import pytest
from fedpg.flower.page_style import SCRIPT, STYLE, fingerprint
from fedpg.flower.snapshot import Agent, Event, Metrics, Point, Status
from fedpg.flower.status_file import write

from fedpg.errors import UserError
from fedpg.flower import page, sheet
from fedpg.flower.status import Board
from fedpg.runs.config import Config

NASTY = """</script><script>alert('x')</script><img src=x onerror="alert(1)"> & "quoted" 'too'"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("page")


@pytest.fixture(scope="module")
def web(folder: Path):
    found = page.serve(folder / "status.json", "127.0.0.1", 0)
    yield found
    found.stop()


@pytest.fixture
def path(folder: Path) -> Path:
    (folder / "status.json").unlink(missing_ok=True)
    return folder / "status.json"


def ask(web, target: str = "/", method: str = "GET", **headers: str) -> tuple[http.client.HTTPResponse, str]:
    connection = http.client.HTTPConnection(web.address, timeout=10)
    connection.request(method, target, headers=headers)
    answer = connection.getresponse()
    body = answer.read().decode()
    connection.close()
    return answer, body


class Reader(HTMLParser):
    """What a browser would make of a page: its elements, its text, and the cells of its table."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements, self.attributes, self.text, self.rows, self.cell = [], [], "", [], False
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append(tag)
        self.attributes += attrs
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
        self.cell = tag in ("td", "th")

    def handle_endtag(self, tag):
        self.cell = False

    def handle_data(self, data):
        self.text += data
        if self.cell:
            self.rows[-1][-1] += data


def a_status() -> Status:
    agents = (
        Agent(0, True, 990.0, accepted=7, outcome="accepted", seconds=1.25),
        Agent(1, True, 997.0, at_work=True),
        Agent(2, True, 910.0, refused=3, outcome="refused", problem="a norm of 1e+30"),
        Agent(3, False, 100.0, missed=9, outcome="missed", problem="absent"),
        Agent(4),
    )
    metrics = Metrics(12, 182.4, 120.1, 1.25e6, 4500.0, 5600.0, epsilon=1.5)
    points = tuple(Point(round, 10.0 * round, 5.0 * round) for round in range(0, 13, 3))
    events = (Event(1, 995.0, 11, "training", 2, "refused: a norm of 1e+30", 3),)
    state = "round 13 of 100: 1 of 3 have answered"
    return Status("pavg", "cartpole", "training", state, 12, 100, agents, metrics, points, events, 2_000_000, 34_000, 500.0, 999.0)


def test_a_person_sees_it_at_a_glance():
    found = Reader(sheet.html(a_status(), 1000.0))
    assert found.rows == [
        ["Agent", "State", "Last seen", "Accepted", "Refused", "Missed", "Took", "Last problem"],
        ["0", "present", "10 s ago", "7", "0", "0", "1.2 s", ""],
        ["1", "at work", "3 s ago", "0", "0", "0", "", ""],
        ["2", "refused", "90 s ago", "0", "3", "0", "", "a norm of 1e+30"],
        ["3", "absent", "15 min ago", "0", "0", "9", "", "absent"],
        ["4", "not here yet", "never", "0", "0", "0", "", ""],
    ]
    for part in ("pavg on cartpole", "round 13 of 100: 1 of 3 have answered", "182.4worst agent 120.1", "3 of 53 refused, 9 missed"):
        assert part in found.text
    for part in ("1.25 M", "4.5 k34 kB received", "5.6 k2 MB sent", "Epsilon1.5", "last change now"):
        assert part in found.text
    assert "5 s ago, round 12agent 2: refused: a norm of 1e+30 3 times" in found.text


def test_texts_from_elsewhere_stay_texts():
    quiet, status = Reader(sheet.html(a_status(), 0.0)), a_status()
    agents = tuple(dataclasses.replace(agent, problem=NASTY, outcome=agent.outcome and NASTY) for agent in status.agents)
    events = tuple(dataclasses.replace(event, what=NASTY, during=NASTY) for event in status.events)
    texts = dict.fromkeys(("algorithm", "env", "phase", "state"), NASTY)
    loud = Reader(sheet.html(dataclasses.replace(status, agents=agents, events=events, **texts), 0.0))
    assert loud.text.count(NASTY) >= len(agents) + len(events) + 2
    assert loud.elements.count("script") == 1
    assert "img" not in loud.elements
    assert sorted(set(loud.elements)) == sorted(set(quiet.elements))
    assert [name for name, _ in loud.attributes] == [name for name, _ in quiet.attributes]
    assert ("class", f"state {NASTY}") in loud.attributes


def test_the_policy_allows_this_page_and_nothing_else(web):
    answer, body = ask(web)
    policy = dict(part.split(" ", 1) for part in answer.headers["Content-Security-Policy"].split("; "))
    assert policy["default-src"] == "'none'"
    inline = {kind: re.findall(rf"<{kind}>(.*?)</{kind}>", body, re.S) for kind in ("script", "style")}
    assert inline == {"script": [SCRIPT], "style": [STYLE]}
    assert {f"{kind}-src": fingerprint(texts[0]) for kind, texts in inline.items()}.items() <= policy.items()
    assert not re.findall(r"https?://|//[a-z]|url\(|@import", body)
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["X-Frame-Options"] == "DENY"
    assert answer.headers["Cache-Control"] == "no-store"
    assert "Python" not in answer.headers["Server"]


def test_data_is_what_is_in_the_file(web, path):
    write(path, a_status())
    answer, body = ask(web, "/status.json?x=1")
    assert (answer.status, answer.headers["Content-Type"]) == (200, "application/json; charset=utf-8")
    assert json.loads(body) == json.loads(path.read_bytes())
    assert json.loads(body)["agents"][2]["refused"] == 3


@pytest.mark.parametrize("broken", [None, b"", b'{"round": 1', b"\xff\xfe", b'{"state": "<b>"}'])
def test_without_a_status_it_is_starting(web, path, broken):
    if broken is not None:
        path.write_bytes(broken)
    for target in ("/", "/status.json"):
        answer, body = ask(web, target)
        assert answer.status == 200
        assert "starting" in body
    assert json.loads(body)["agents"] == []


@pytest.mark.parametrize(
    "target", ["/index.html", "/.", "/../status.json", "/status.json/", "/%2e%2e/etc/passwd", "//etc/passwd", "*", "x"]
)
def test_nothing_else_is_there(web, path, target):
    (path.parent / "index.html").write_text("secret")
    write(path, a_status())
    answer, body = ask(web, target)
    assert answer.status == 404
    assert body == "there is only / and /status.json\n"
    assert "Content-Security-Policy" in answer.headers


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_it_can_only_be_read(web, method):
    answer, _ = ask(web, "/", method)
    assert (answer.status, answer.headers["Allow"]) == (405, "GET, HEAD")
    assert ask(web, "/", "BREW")[0].status == 501


def test_head_is_get_without_the_text(web, path):
    write(path, a_status())
    for target in ("/status.json", "/other"):
        long, body = ask(web, target)
        host, _, port = web.address.partition(":")
        with socket.create_connection((host, int(port)), 10) as connection:
            connection.sendall(f"HEAD {target} HTTP/1.0\r\n\r\n".encode())
            said = connection.makefile().read()
        assert said.startswith(f"HTTP/1.0 {long.status} ")
        assert f"Content-Length: {len(body)}\n" in said
        assert said.endswith("\n\n")
        assert said.count("\n\n") == 1


def test_a_website_cannot_pretend_to_be_this_machine(web):
    port = web.address.partition(":")[2]
    for host in (f"localhost:{port}", "127.0.0.1", f"[::1]:{port}", "LOCALHOST"):
        assert ask(web, Host=host)[0].status == 200
    for host in ("evil.example", f"evil.example:{port}", "127.0.0.1.evil.example", "8.8.8.8"):
        assert ask(web, Host=host)[0].status == 421


def test_readers_come_while_it_is_written(web, path):
    board = Board(path, Config(agents=5, rounds=10), every=0)
    stop, found = threading.Event(), []

    def read() -> None:
        while not stop.is_set():
            found.append(json.loads(ask(web, "/status.json")[1]))

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    while len(found) < 100:
        board.heard(1, 0.1, 5, "")
    stop.set()
    for thread in threads:
        thread.join()
    assert all(data["bytes_received"] == 5 * data["agents"][1]["accepted"] for data in found)
    assert len({data["bytes_received"] for data in found}) > 5


def test_a_crowd_is_turned_away(web):
    host, _, port = web.address.partition(":")
    silent = [socket.create_connection((host, int(port))) for _ in range(page.MOST_VISITORS)]
    with pytest.raises((http.client.HTTPException, ConnectionError)):
        ask(web)
    for connection in silent:
        connection.close()
    for _ in range(100):
        try:
            assert ask(web)[0].status == 200
            break
        except (http.client.HTTPException, ConnectionError):
            continue
    else:
        pytest.fail("nobody was let in again")


def test_addresses(path, web):
    host, _, port = web.address.partition(":")
    assert host == "127.0.0.1"
    with pytest.raises(UserError, match=f"cannot show the status on 127.0.0.1:{port}: .*in use; give another address"):
        page.serve(path, host, int(port))
    with pytest.raises(UserError, match="give another address"):
        page.serve(path, host, 99999)
    again = page.serve(path)
    again.stop()
    with pytest.raises(ConnectionError):
        ask(again)
