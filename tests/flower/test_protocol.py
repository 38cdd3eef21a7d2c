"""Packets: what goes in comes out, and whatever else somebody sends is refused, quickly and in one way only."""

from __future__ import annotations

import itertools
import json
import time
import tracemalloc

import jax
import numpy as np
import pytest
from fedpg.flower.packets import LONGEST_HEADER, MAGIC, START, Packet, Refused, checked, pack, schema, unpack

from fedpg.flower import packets
from helpers.hostile import mutations

TYPES = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64")
HEADER = {"round": 3, "name": "ä\n", "share": 0.5, "list": ["x", "y"], "off": False, "none": None}


def arrays() -> dict[str, np.ndarray]:
    return {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b['x']": np.array(True), "c": np.zeros((0, 2), np.int32)}


def raw(header: bytes, rest: bytes | None = None) -> bytes:
    """A packet with any bytes for a header."""
    after = pack({}, arrays())[START + len(b"{}") :] if rest is None else rest
    return MAGIC + len(header).to_bytes(4, "big") + header + after


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 4), (2, 3, 4)])
def test_every_type_and_shape_comes_back(kind, shape):
    rng = np.random.default_rng(1)
    whole = rng.integers(0, 256, (*shape, np.dtype(kind).itemsize), np.uint8)
    array = whole.view(kind).reshape(shape) if kind != "bool" else np.asarray(whole.reshape(shape) > 100)
    found = unpack(pack(HEADER, {"x.y[0]": array, "other": np.ones(1)}))
    assert found.header == HEADER
    assert set(found.arrays) == {"x.y[0]", "other"}
    back = found.arrays["x.y[0]"]
    assert (back.dtype, back.shape, back.tobytes()) == (array.dtype, array.shape, array.tobytes())


def test_arrays_that_are_views_of_others_come_back():
    table = np.arange(12.0).reshape(3, 4)
    for view in (table.T, table[::2, 1:], table[::-1]):
        assert unpack(pack({}, {"x": view})).arrays["x"].tolist() == view.tolist()


def test_nan_infinity_and_no_arrays_at_all_come_back():
    odd = np.array([np.nan, np.inf, -np.inf, -0.0, 5e-324])
    assert unpack(pack({}, {"x": odd})).arrays["x"].tobytes() == odd.tobytes()
    assert unpack(pack({}, {})) == Packet({}, {})


def test_schemas_are_equal_exactly_if_names_types_and_shapes_are():
    def shaped(*facts):
        return {name: jax.ShapeDtypeStruct(shape, kind) for name, kind, shape in facts}

    different = [
        shaped(),
        shaped(("a", "float32", ())),
        shaped(("a", "float32", (1,))),
        shaped(("a", "float64", ())),
        shaped(("a", "int32", ())),
        shaped(("b", "float32", ())),
        shaped(("a", "float32", (2, 3))),
        shaped(("a", "float32", (3, 2))),
        shaped(("a", "float32", (23,))),
        shaped(("a", "float32", ()), ("b", "float32", ())),
        shaped(("a <f4 []\nb", "float32", ())),  # would be the one before it, if names were put into lines
        shaped(('a", "<f4"], ["b', "float32", ())),
    ]
    for one, other in itertools.combinations(different, 2):
        assert schema(one) != schema(other), (one, other)
    there = {"b": np.zeros(2), "a": np.zeros((), np.int8)}
    assert schema(there) == schema(shaped(("a", "int8", ()), ("b", "float64", (2,)))) == schema(unpack(pack({}, there)).arrays)


def test_cut_short_at_any_byte_it_is_refused():
    whole = pack(HEADER, arrays())
    for length in range(len(whole)):
        with pytest.raises(Refused):
            unpack(whole[:length])
    with pytest.raises(Refused):
        unpack(whole + b"\0")


def test_another_version_says_so():
    data = bytearray(pack({}, {}))
    data[5] += 1
    with pytest.raises(Refused, match="a packet of format 2, here 1: one side runs another version of fedpg"):
        unpack(bytes(data))


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"", "not a packet of fedpg"),
        (b"PK\3\4 something else altogether", "not a packet of fedpg"),
        (MAGIC + b"\xff\xff\xff\xff{}", "cut short"),
        (MAGIC + (LONGEST_HEADER + 1).to_bytes(4, "big") + b" " * (LONGEST_HEADER + 1), "cut short"),
        (raw(b"[1, 2]"), "no header"),
        (raw(b"3"), "no header"),
        (raw(b"null"), "no header"),
        (raw(b""), "damaged"),
        (raw(b'{"a": NaN}'), "damaged"),
        (raw(b'{"a": -Infinity}'), "damaged"),
        (raw(b'{"a": ' + b"9" * 60_000 + b"}"), "damaged"),
        (raw(b"[" * 60_000), "damaged"),
        (raw(b'{"a":' * 10_000 + b"1" + b"}" * 10_000), "damaged"),
        (raw(b'{"a": "\xff"}'), "damaged"),
        (raw(b"{}", b""), "damaged"),
        (raw(b"{}", b"\xff" * 8), "damaged"),
        (raw(b"{}", (1 << 62).to_bytes(8, "little") + b"{}"), "damaged"),
    ],
)
def test_what_is_no_packet_is_refused(data, what):
    with pytest.raises(Refused, match=what):
        unpack(data)


def of_arrays(about: object, data: bytes = b"\0" * 8) -> bytes:
    """A packet whose arrays are described by whatever one likes."""
    text = json.dumps(about).encode()
    return raw(b"{}", len(text).to_bytes(8, "little") + text + data)


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
def test_arrays_that_cannot_be_are_refused(about):
    assert unpack(of_arrays({"x": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}})).arrays["x"].tolist() == [0.0, 0.0]
    with pytest.raises(Refused, match="damaged"):
        unpack(of_arrays({"x": about}))


def test_headers_and_packets_have_a_longest_length():
    with pytest.raises(Refused, match="longer than 65536"):
        pack({"text": "x" * LONGEST_HEADER}, {})
    assert unpack(pack({"text": "x" * (LONGEST_HEADER - 20)}, {})).header["text"]
    data = pack({}, {"x": np.zeros(100)})
    assert unpack(data, len(data)).arrays
    with pytest.raises(Refused, match="bytes are more than the"):
        unpack(data, len(data) - 1)


def test_checked_tells_what_does_not_fit():
    template = {"a": jax.ShapeDtypeStruct((2,), "float32"), "n": jax.ShapeDtypeStruct((), "int32")}
    good = {"a": np.array([3.0, 4.0], np.float32), "n": np.array(7, np.int32)}
    assert checked(good, template, 5.0) is good
    for change, what in [
        ({"a": good["a"][:1]}, r"a has shape \[1\] where \[2\] belongs"),
        ({"a": good["a"].astype(np.float16)}, "a is float16 where float32 belongs"),
        ({"n": np.array(7, np.int64)}, "n is int64 where int32 belongs"),
        ({"a": np.array([np.nan, 0], np.float32)}, "a is not finite"),
        ({"a": np.array([-np.inf, 0], np.float32)}, "a is not finite"),
        ({"a": np.full(2, 3e38, np.float32)}, "a norm of 4.24e.38 is above the bound of 5"),
        ({"extra\n\x1b[2J": np.zeros(1)}, r"the array 'extra\\n\\x1b\[2J' is not expected"),
    ]:
        with pytest.raises(Refused, match=what):
            checked(good | change, template, 5.0)
    with pytest.raises(Refused, match="the array 'n' is missing"):
        checked({"a": good["a"]}, template)
    with pytest.raises(Refused, match=r"norm of 5 is above the bound of 4\.99"):
        checked(good, template, 4.99)
    assert checked(good, template, 4.99, bounded="n") is good
    with pytest.raises(Refused, match="a norm of inf is above the bound of"):
        checked({"x": np.full(9, 1e308)}, {"x": jax.ShapeDtypeStruct((9,), "float64")}, 1e30)


def test_ten_thousand_fuzzed_packets_are_refused_or_read_and_nothing_else():
    """Whatever is not refused is what a packet is: plain values and arrays no larger than what came."""
    whole = pack(HEADER | {"round": 17}, {**arrays(), "w": np.linspace(-1, 1, 64, dtype=np.float16)})
    lines, read, slowest = set(), 0, 0.0
    tracemalloc.start()
    for data in mutations(whole, 10_000, seed=5):
        began = time.perf_counter()
        try:
            found = unpack(data, most_bytes=1 << 20)
        except Refused as refused:
            lines.add(str(refused))
        else:
            read += 1
            assert isinstance(found.header, dict)
            assert sum(array.nbytes for array in found.arrays.values()) <= len(data)
        slowest = max(slowest, time.perf_counter() - began)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert all(line.isprintable() for line in lines)
    assert 100 < read < 9_000, "the fuzz must reach both ends"
    assert most < 20 * packets.LONGEST_HEADER
    assert slowest < 1.0
