"""Damaged and hostile packets."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import numpy as np

from fedpg.errors import LONGEST_TEXT
from fedpg.flower.protocol import HEADER_START, MAGIC, Answer, pack, unpack

ODD = (-1, 0, 2**31, 2**63, 1e308, "", "\n\x1b[31m", None, True, [], {}, [[[]]], "x" * 5000, "../../x")
"""Values for a header that nobody expects."""


def assert_one_line(text: str) -> None:
    """Fit for a log."""
    assert text.isprintable()
    assert len(text) <= LONGEST_TEXT
    assert len(json.dumps(text)) < 6 * LONGEST_TEXT


def edited(packet: bytes, change: Callable[[dict], object]) -> bytes:
    """The packet with another header; `change` may edit the old one in place, or return another."""
    end = HEADER_START + int.from_bytes(packet[len(MAGIC) : HEADER_START], "big")
    header = json.loads(packet[HEADER_START:end])
    text = json.dumps(header if (other := change(header)) is None else other).encode()
    return MAGIC + len(text).to_bytes(4, "big") + text + packet[end:]


def mutations(packet: bytes, count: int, seed: int) -> Iterator[bytes]:
    """Seeded damage of every kind: flipped bytes, cuts, insertions, pieces moved, lengths that lie, headers rewritten, noise."""
    rng = np.random.default_rng(seed)
    lengths = (len(MAGIC), HEADER_START + int.from_bytes(packet[len(MAGIC) : HEADER_START], "big"))
    for i in range(count):
        data = bytearray(packet)
        place = int(rng.integers(len(data)))
        match i % 8:
            case 0:
                for _ in range(rng.integers(1, 9)):
                    data[rng.integers(len(data))] = rng.integers(256)
            case 1:
                del data[place:]
            case 2:
                del data[place : place + int(rng.integers(1, 40))]
            case 3:
                data[place:place] = rng.bytes(int(rng.integers(1, 40)))
            case 4:
                other, size = int(rng.integers(len(data))), int(rng.integers(1, 60))
                data[place : place + size] = data[other : other + size]
            case 5:
                where = lengths[rng.integers(2)]
                data[where : where + 4] = rng.bytes(4)
            case 6:
                data = edited(packet, lambda header: _rewritten(header, rng))
            case 7:
                data = data[: rng.integers(HEADER_START + 20)] + rng.bytes(int(rng.integers(1, 300)))
        yield bytes(data)


def _rewritten(header: dict, rng: np.random.Generator) -> object:
    names = list(header)
    name, odd = names[rng.integers(len(names))], ODD[rng.integers(len(ODD))]
    match rng.integers(4):
        case 0:
            del header[name]
        case 1:
            header[f"{name}{odd}"] = odd
        case 2:
            return odd
        case _:
            header[name] = odd
    return header


def with_arrays(packet: bytes, change: Callable[[dict[str, np.ndarray]], object]) -> bytes:
    """The answer with other arrays; `change` edits the arrays in place."""
    header, arrays = unpack(packet, Answer)
    arrays = {name: array.copy() for name, array in arrays.items()}
    change(arrays)
    return pack(header, arrays)
