"""Packets: what goes in comes out, and anything else is refused, quickly and in one way only."""

import itertools
import json
import time
import tracemalloc

import jax
import msgspec
import numpy as np
import pytest

from fedpg.flower.protocol import HEADER_START, MAGIC, MAX_HEADER, Answer, Refused, Task, Update, pack, read_arrays, unpack
from fedpg.flower.server import RemoteAgents, Rules, RunTerms
from helpers.hostile import assert_one_line, mutations

TYPES = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64")
TASK = Task("update", "run-ä\n", 'env = "x"', serial=2**62, round=3, seconds=0.5)


def arrays() -> dict[str, np.ndarray]:
    return {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b['x']": np.array(True), "c": np.zeros((0, 2), np.int32)}


def raw(header: bytes, rest: bytes | None = None) -> bytes:
    """A packet with any bytes for a header."""
    whole = pack(TASK, arrays())
    after = whole[HEADER_START + int.from_bytes(whole[len(MAGIC) : HEADER_START], "big") :] if rest is None else rest
    return MAGIC + len(header).to_bytes(4, "big") + header + after


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 4), (2, 3, 4)])
def test_every_type_and_shape_comes_back(kind, shape):
    rng = np.random.default_rng(1)
    whole = rng.integers(0, 256, (*shape, np.dtype(kind).itemsize), np.uint8)
    array = whole.view(kind).reshape(shape) if kind != "bool" else np.asarray(whole.reshape(shape) > 100)
    header, found = unpack(pack(TASK, {"x.y[0]": array, "other": np.ones(1)}), Task)
    assert header == TASK
    assert set(found) == {"x.y[0]", "other"}
    back = found["x.y[0]"]
    assert (back.dtype, back.shape, back.tobytes()) == (array.dtype, array.shape, array.tobytes())


def test_arrays_that_are_views_of_others_come_back():
    table = np.arange(12.0).reshape(3, 4)
    for view in (table.T, table[::2, 1:], table[::-1]):
        assert unpack(pack(TASK, {"x": view}), Task)[1]["x"].tolist() == view.tolist()


def test_nan_infinity_and_no_arrays_at_all_come_back():
    odd = np.array([np.nan, np.inf, -np.inf, -0.0, 5e-324])
    assert unpack(pack(TASK, {"x": odd}), Task)[1]["x"].tobytes() == odd.tobytes()
    answer = Answer(1, "run", 2, "no", True, True, ("one", "two"))
    assert unpack(pack(answer, {}), Answer) == (answer, {})


def test_cut_short_at_any_byte_it_is_refused():
    whole = pack(TASK, arrays())
    for length in range(len(whole)):
        with pytest.raises(Refused):
            unpack(whole[:length], Task)
    with pytest.raises(Refused):
        unpack(whole + b"\0", Task)


def test_another_version_says_so():
    data = bytearray(pack(TASK, {}))
    data[5] += 1
    with pytest.raises(Refused, match="a packet of format 4, here 3: one side runs another version of fedpg"):
        unpack(bytes(data), Task)


GOOD = json.dumps(msgspec.to_builtins(TASK))


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"", "not a packet of fedpg"),
        (b"PK\3\4 something else altogether", "not a packet of fedpg"),
        (MAGIC + b"\xff\xff\xff\xff{}", "cut short"),
        (MAGIC + (MAX_HEADER + 1).to_bytes(4, "big") + b" " * (MAX_HEADER + 1), "cut short"),
        (raw(b"[1, 2]"), "Expected `object`, got `array`"),
        (raw(b"null"), "Expected `object`, got `null`"),
        (raw(b"{}"), "missing required field `kind`"),
        (raw(GOOD.replace('"update"', '"obey"').encode()), "Invalid enum value 'obey'"),
        (raw(GOOD.replace('"round": 3', '"round": true').encode()), "Expected `int`, got `bool`"),
        (raw(GOOD.replace('"round": 3', '"round": -2').encode()), "Expected `int` >= -1"),
        (raw(GOOD.replace('"round": 3', '"round": 3, "code": 1').encode()), "unknown field `code`"),
        (raw(b""), "damaged"),
        (raw(GOOD.replace("0.5", "NaN").encode()), "damaged"),
        (raw(GOOD.replace("0.5", "-Infinity").encode()), "damaged"),
        (raw(GOOD.replace('"round": 3', '"round": ' + "9" * 60_000).encode()), "- at `$.round`"),
        (raw(b"[" * 60_000), "."),
        (raw(b'{"kind":' * 7_000 + b"1" + b"}" * 7_000), "."),
        (raw(b'{"kind": "\xff"}'), "damaged"),
        (raw(GOOD.encode(), b""), "damaged"),
        (raw(GOOD.encode(), b"\xff" * 8), "damaged"),
        (raw(GOOD.encode(), (1 << 62).to_bytes(8, "little") + b"{}"), "damaged"),
    ],
)
def test_what_is_no_packet_is_refused(data, what):
    with pytest.raises(Refused, match=what.replace("$", r"\$")) as refused:
        unpack(data, Task)
    assert_one_line(str(refused.value))


def of_arrays(about: object, data: bytes = b"\0" * 8) -> bytes:
    """A packet whose arrays are described in any way."""
    text = json.dumps(about).encode()
    return raw(GOOD.encode(), len(text).to_bytes(8, "little") + text + data)


@pytest.mark.parametrize(
    "about",
    [
        {"dtype": "F32", "shape": [2**62, 2**62], "data_offsets": [0, 8]},
        {"dtype": "F32", "shape": [1 << 40], "data_offsets": [0, 1 << 42]},
        {"dtype": "F32", "shape": [-2], "data_offsets": [0, 8]},
        {"dtype": "F32", "shape": [2], "data_offsets": [8, 0]},
        {"dtype": "F32", "shape": [3], "data_offsets": [0, 8]},
        {"dtype": "F32", "shape": 2, "data_offsets": [0, 8]},
        {"dtype": "BF16", "shape": [4], "data_offsets": [0, 8]},
        {"dtype": "F8_E4M3", "shape": [8], "data_offsets": [0, 8]},
        {"dtype": "O64", "shape": [1], "data_offsets": [0, 8]},
        {"shape": [2], "data_offsets": [0, 8]},
        [],
        None,
    ],
)
def test_impossible_arrays_are_refused(about):
    good = of_arrays({"x": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}})
    assert unpack(good, Task)[1]["x"].tolist() == [0.0, 0.0]
    with pytest.raises(Refused, match="damaged"):
        unpack(of_arrays({"x": about}), Task)


def test_headers_and_packets_have_a_longest_length():
    with pytest.raises(Refused, match="longer than 65536"):
        pack(Task("update", "run", "x" * MAX_HEADER), {})
    assert unpack(pack(Task("update", "run", "x" * (MAX_HEADER - 300)), {}), Task)[0].config
    data = pack(TASK, {"x": np.zeros(100)})
    assert unpack(data, Task, len(data))[1]
    with pytest.raises(Refused, match="bytes are more than the"):
        unpack(data, Task, len(data) - 1)


def test_arrays_that_do_not_fit_are_refused_with_the_reason():
    template = {"a": jax.ShapeDtypeStruct((2,), "float32"), "n": jax.ShapeDtypeStruct((), "int32")}
    good = {"['a']": np.array([3.0, 4.0], np.float32), "['n']": np.array(7, np.int32)}
    assert read_arrays(template, good, 5.0)["n"] == 7
    for change, what in [
        ({"['a']": np.zeros((2, 1), np.float32)}, r"\['a'\] is float32\[2, 1\], expected float32\[2\]"),
        ({"['n']": np.array(7, np.int64)}, r"\['n'\] is int64\[\], expected int32\[\]"),
        ({"['a']": np.array([np.nan, 0], np.float32)}, r"\['a'\] is not finite"),
        ({"['a']": np.array([-np.inf, 0], np.float32)}, r"\['a'\] is not finite"),
        ({"['a']": np.full(2, 3e38, np.float32)}, "a norm of 4.24e.38 is above the bound of 5"),
        ({"extra\n\x1b[2J": np.zeros(1)}, r"extra  \[2J on one side only"),
    ]:
        with pytest.raises(Refused, match=what):
            read_arrays(template, good | change, 5.0)
    with pytest.raises(Refused, match=r"\['n'\] on one side only"):
        read_arrays(template, {"['a']": good["['a']"]})
    with pytest.raises(Refused, match=r"norm of 5 is above the bound of 4\.99"):
        read_arrays(template, good, 4.99)
    assert read_arrays(template, good, 4.99, bounded="['n']")["n"] == 7
    with pytest.raises(Refused, match="a norm of inf is above the bound of"):
        read_arrays({"x": jax.ShapeDtypeStruct((9,), "float64")}, {"['x']": np.full(9, 1e308)}, 1e30)


def test_ten_thousand_fuzzed_packets_are_refused_or_read_and_nothing_else():
    """A packet that is not refused has a header of the right types, and arrays no larger than the packet."""
    whole = pack(TASK, {**arrays(), "w": np.linspace(-1, 1, 64, dtype=np.float16)})
    lines, read, slowest = set(), 0, 0.0
    tracemalloc.start()
    for data in mutations(whole, 10_000, seed=5):
        began = time.perf_counter()
        try:
            header, found = unpack(data, Task, max_bytes=1 << 20)
        except Refused as refused:
            lines.add(str(refused))
        else:
            read += 1
            assert isinstance(header, Task)
            assert type(header.serial) is int
            assert sum(array.nbytes for array in found.values()) <= len(data)
        slowest = max(slowest, time.perf_counter() - began)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    for line in lines:
        assert_one_line(line)
    assert 100 < read < 9_000, "the fuzz must reach both ends"
    assert most < 20 * MAX_HEADER
    assert slowest < 1.0


class Fuzzed:
    """A link to `count` agents that all answer with damaged packets."""

    def __init__(self, count, arrays):
        self.count, self.arrays, self.seeds = count, arrays, itertools.count(1)

    def present(self):
        return set(range(self.count))

    def late(self):
        return {}

    def leaving(self):
        return set()

    def farewell(self, agent):
        pass

    def ask(self, sent, seconds, enough):
        seed = next(self.seeds)
        for agent, packet in sent.items():
            task, _ = unpack(packet, Task)
            good = pack(Answer(task.serial, task.run, agent), self.arrays)
            yield agent, list(mutations(good, agent % 8 + 1, seed=1000 * seed + agent))[-1]


def test_ten_thousand_fuzzed_answers():
    """Each is refused with one line, or holds what was asked for: arrays of the right names, types and shapes, finite, not too long."""
    template = Update(jax.ShapeDtypeStruct((4, 3), "float32"), jax.ShapeDtypeStruct((), "int32"))
    link = Fuzzed(500, {"message": np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3), "info": np.array(4, np.int32)})
    agents = RemoteAgents(RunTerms("run-0", "", 500), Rules(norm_bound=100.0), link)
    used = 0
    for _ in range(20):
        heard = agents.ask(Task("update", "", ""), {}, template, list(range(500)))
        refused = [event for event in agents.events.take() if event["what"].startswith("refused: ")]
        assert [event["agent"] for event in refused] == [
            agent for agent, one in enumerate(heard) if one.tree is None and agent not in agents.seats.left
        ]
        for event in refused:
            assert_one_line(event["what"])
        for agent, one in enumerate(heard):
            assert one.answered or agent in agents.seats.left
            assert not one.withheld
            if one.tree is not None:
                used += 1
                message, info = one.tree
                assert (message.shape, message.dtype, info.shape, info.dtype) == ((4, 3), np.float32, (), np.int32)
                assert np.isfinite(message).all()
                assert np.linalg.norm(message.astype(float)) <= 100.0
    assert 0 < used < 2_500, "damage to the numbers themselves cannot be seen, most other damage can"
