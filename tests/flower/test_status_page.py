"""The status page: two addresses, read only, and nothing that an agent says becomes more than text."""

import base64
import hashlib
import http.client
import json
import re
import shutil
import socket
import subprocess
import threading
import time
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest

from fedpg.errors import UserError
from fedpg.flower import status_page, web
from fedpg.flower.status import AgentStatus, Event, Point, Status, StatusWriter
from fedpg.flower.status_page import MAX_CONNECTIONS, StatusPage
from fedpg.runs.config import Config

NASTY = """</script><script>alert('x')</script><img src=x onerror="alert(1)"> & "quoted" 'too'"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("page")


@pytest.fixture(scope="module")
def page(folder: Path):
    found = StatusPage(folder / "status.json")
    yield found
    found.stop()


@pytest.fixture
def path(folder: Path) -> Path:
    (folder / "status.json").unlink(missing_ok=True)
    return folder / "status.json"


def ask(page, target: str = "/", method: str = "GET", **headers: str) -> tuple[http.client.HTTPResponse, str]:
    connection = http.client.HTTPConnection(page.address, timeout=10)
    connection.request(method, target, headers=headers)
    answer = connection.getresponse()
    body = answer.read().decode()
    connection.close()
    return answer, body


def a_status(text: str = "refused: a norm of 1e+30") -> Status:
    """A running federation; `text` is where texts of agents go."""
    agents = [
        AgentStatus(0, "present", 990.0, accepted=7, seconds=1.25),
        AgentStatus(1, "at work", 997.0),
        AgentStatus(2, "refused", 910.0, refused=3, problem=text),
        AgentStatus(3, "absent", 100.0, missed=9, problem="absent"),
        AgentStatus(4),
    ]
    points = [Point(0, 0.0, -10.0), Point(5, 50.0, None), Point(10, 100.0, 50.0)]
    state, costs = "round 13 of 100: 1 of 3 have answered", (1.25e6, 4500.0, 5600.0, 1.5)
    events = [Event(1, 995.0, "round 12", 2, text, 3)]
    return Status("pavg", "cartpole", "training", state, 12, 100, agents, points, *costs, events, 2_000_000, 34_000, 500.0, 999.0)


def write(path: Path, status: Status) -> None:
    path.write_bytes(msgspec.json.encode(status))


def test_the_policy_allows_this_page_and_nothing_else(page):
    answer, body = ask(page)
    policy = dict(part.split(" ", 1) for part in answer.headers["Content-Security-Policy"].split("; "))
    assert policy["default-src"] == "'none'"
    for kind in ("script", "style"):
        (text,) = re.findall(rf"<{kind}[^>]*>(.*?)</{kind}>", body, re.DOTALL)
        assert policy[f"{kind}-src"] == f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
    assert re.findall(r"https?://\S+|url\(|@import", body) == ['http://www.w3.org/2000/svg",'], (
        "the name of SVG, which nothing is loaded from"
    )
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["X-Frame-Options"] == "DENY"
    assert answer.headers["Cache-Control"] == "no-store"
    assert "server" not in answer.headers


def test_the_script_makes_text_of_everything_and_sets_no_style():
    """What a browser makes of hostile texts is tested below, where there is one; this holds everywhere."""
    (script,) = re.findall(r"<script>(.*?)</script>", status_page.PAGE, re.DOTALL)
    assert not re.findall(
        r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\b|Function\(|\bon[a-z]+\s*=|\.style\b|href|src\b", script
    )
    assert not re.findall(r"\sstyle=|\son[a-z]+=", status_page.PAGE)
    tags = set(re.findall(r'make\("(\w+)"', script))
    assert tags <= {"p", "div", "dt", "dd", "small", "path", "svg", "span", "table", "thead", "tbody", "tr", "th", "td", "ul", "li", "time"}


def test_data_is_what_is_in_the_file(page, path):
    write(path, a_status())
    answer, body = ask(page, "/status.json?x=1")
    assert (answer.status, answer.headers["Content-Type"]) == (200, "application/json")
    assert json.loads(body) == json.loads(path.read_bytes())
    assert json.loads(body)["agents"][2]["refused"] == 3


@pytest.mark.parametrize("broken", [None, b"", b'{"round": 1', b"\xff\xfe", b'{"state": "<b>", "x": 1}'])
def test_without_a_status_it_is_starting(page, path, broken):
    if broken is not None:
        path.write_bytes(broken)
    answer, body = ask(page, "/status.json")
    assert answer.status == 200
    assert (json.loads(body)["phase"], json.loads(body)["agents"]) == ("starting", [])
    assert ask(page)[0].status == 200


@pytest.mark.parametrize(
    "target", ["/index.html", "/.", "/../status.json", "/status.json/", "/%2e%2e/etc/passwd", "//etc/passwd", "*", "/status.html"]
)
def test_nothing_else_is_there(page, path, target):
    (path.parent / "index.html").write_text("secret")
    write(path, a_status())
    answer, body = ask(page, target)
    assert answer.status == 404
    assert body == "there is only / and /status.json, to be read\n"
    assert "Content-Security-Policy" in answer.headers


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "BREW"])
def test_it_can_only_be_read(page, method):
    assert ask(page, "/", method)[0].status == 405


def test_head_is_get_without_the_text(page, path):
    write(path, a_status())
    answer, body = ask(page, "/status.json", "HEAD")
    assert (answer.status, body) == (200, "")
    assert int(answer.headers["Content-Length"]) == len(ask(page, "/status.json")[1])


def test_dns_rebinding_is_rejected(page):
    port = page.address.partition(":")[2]
    for host in (f"localhost:{port}", "127.0.0.1", f"[::1]:{port}", "LOCALHOST"):
        assert ask(page, Host=host)[0].status == 200
    for host in ("evil.example", f"evil.example:{port}", "127.0.0.1.evil.example", "8.8.8.8", "localhost.evil.example"):
        for target in ("/", "/status.json", "/other"):
            answer, body = ask(page, target, Host=host)
            assert (answer.status, body) == (421, "this page answers to localhost only\n")


def test_readers_come_while_it_is_written(page, path):
    writer = StatusWriter(path, Config(agents=5, rounds=10))
    stop, found = threading.Event(), []

    def read() -> None:
        while not stop.is_set():
            found.append(json.loads(ask(page, "/status.json")[1]))

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    end = time.monotonic() + 60
    while (len(found) < 100 or len({data["bytes_received"] for data in found}) <= 5) and time.monotonic() < end:
        writer.answered(1, 0.1, 5, "")
    stop.set()
    for thread in threads:
        thread.join()
    assert all(data["bytes_received"] == 5 * data["agents"][1]["accepted"] for data in found)
    assert len({data["bytes_received"] for data in found}) > 5


def test_a_crowd_is_turned_away_and_silent_visitors_are_cut_off(path, monkeypatch):
    monkeypatch.setattr(web, "REQUEST_SECONDS", 0.5)
    page = StatusPage(path)
    host, _, port = page.address.partition(":")
    silent = [socket.create_connection((host, int(port))) for _ in range(MAX_CONNECTIONS)]
    try:
        assert ask(page)[0].status == 503
        for connection in silent:
            connection.settimeout(5.0)
            assert connection.recv(1) == b"", "closed"
        assert ask(page)[0].status == 200
    finally:
        for connection in silent:
            connection.close()
        page.stop()


def test_addresses(path, page):
    host, _, port = page.address.partition(":")
    assert host == "127.0.0.1"
    with pytest.raises(UserError, match=f"cannot listen on 127.0.0.1:{port}: .*in use; choose another --status"):
        StatusPage(path, host, int(port))
    with pytest.raises(UserError, match="choose another --status"):
        StatusPage(path, host, 99999)
    again = StatusPage(path)
    again.stop()
    with pytest.raises(ConnectionError):
        ask(again)


class Reader(HTMLParser):
    """A page as a browser has it: its elements, its text, the cells of its table and its paths."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements, self.text, self.rows, self.paths, self.cell = [], "", [], {}, False
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append(tag)
        if tag == "path":
            self.paths.setdefault(dict(attrs)["class"], dict(attrs)["d"])
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


def drawn(page) -> Reader:
    """What Chromium makes of the page."""
    words = ["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=3000", "--dump-dom", f"http://{page.address}/"]
    done = subprocess.run([shutil.which("chromium"), *words], capture_output=True, text=True, timeout=120, check=True)
    return Reader(re.sub(r"<(script|style)>.*?</\1>", r"<\1></\1>", done.stdout, flags=re.DOTALL))


@pytest.mark.federation
@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs Chromium")
def test_a_browser_draws_it_and_texts_stay_texts(page, path, monkeypatch):
    write(path, a_status())
    found = drawn(page)
    assert found.rows[0] == ["Agent", "State", "Last seen", "Accepted", "Refused", "Missed", "Took", "Last problem"]
    assert [cells[:2] + cells[3:] for cells in found.rows[1:]] == [
        ["0", "present", "7", "0", "0", "1.3 s", ""],
        ["1", "at work", "0", "0", "0", "", ""],
        ["2", "refused", "0", "3", "0", "", "refused: a norm of 1e+30"],
        ["3", "absent", "0", "0", "9", "", "absent"],
        ["4", "not here yet", "0", "0", "0", "", ""],
    ]
    for part in ("pavg on cartpole", "round 13 of 100: 1 of 3 have answered", "100.0worst agent 50.0", "3 of 53 refused, 9 missed"):
        assert part in found.text
    for part in ("1.25 M", "4.5 k34 kB received", "5.6 k2 MB sent", "Epsilon1.50", "round 12agent 2: refused: a norm of 1e+303 times"):
        assert part in found.text
    # 1000 wide over rounds 0 to 10; 100 high over -50 to 100
    assert found.paths["mean"] == "M0.0 66.67L500.0 33.33L1000.0 0.00"
    assert found.paths["worst"] == "M0.0 73.33L1000.0 33.33"
    assert "100500-50round 0round 10" in found.text, "the levels and the rounds"
    write(path, a_status(NASTY))
    loud = drawn(page)
    assert loud.text.count(NASTY) == 2
    assert sorted(loud.elements) == sorted(found.elements), "no element more"
