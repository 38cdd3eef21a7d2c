"""What crosses a wire: one packet of bytes, a header of names and named arrays. Nothing is trusted when it is read.

    FEDPG + version, 1 byte | length of the header, 4 bytes | header, JSON | arrays, safetensors

The header is a flat JSON object; the arrays go by their paths (`fedpg.named_arrays`), each with its type and shape. Both are
plain data: reading a packet runs no code of its sender's.
"""

from __future__ import annotations

import hashlib
import json
import math
from typing import Any, NamedTuple

import numpy as np
import safetensors
import safetensors.numpy

VERSION = 1
MAGIC = b"FEDPG" + bytes([VERSION])
LONGEST_HEADER = 1 << 16
START = len(MAGIC) + 4


class Refused(Exception):
    """A packet, or what is in it, is not what was asked for. The text is one line for the log."""


class Packet(NamedTuple):
    """Attributes:
    header: names and plain values.
    arrays: by path.
    """

    header: dict[str, Any]
    arrays: dict[str, np.ndarray]


def pack(header: dict[str, Any], arrays: dict[str, np.ndarray]) -> bytes:
    """The packet as bytes."""
    text = json.dumps(header, allow_nan=False).encode()
    if len(text) > LONGEST_HEADER:
        raise Refused(f"a header of {len(text)} bytes is longer than {LONGEST_HEADER}")
    # safetensors copies the memory where an array begins, whatever its strides
    whole = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    return MAGIC + len(text).to_bytes(4, "big") + text + safetensors.numpy.save(whole)


def unpack(data: bytes, most_bytes: int = 1 << 30) -> Packet:
    """The packet in `data`.

    >>> unpack(pack({"round": 3}, {"params": np.ones(2)})).header
    {'round': 3}

    Raises:
        Refused: for anything else than what `pack` makes, whatever its sender meant by it.
    """
    if len(data) > most_bytes:
        raise Refused(f"{len(data)} bytes are more than the {most_bytes} allowed")
    if data[:5] != MAGIC[:5] or len(data) < START:
        raise Refused("not a packet of fedpg")
    if data[: len(MAGIC)] != MAGIC:
        raise Refused(f"a packet of format {data[5]}, here {VERSION}: one side runs another version of fedpg")
    length = int.from_bytes(data[len(MAGIC) : START], "big")
    if length > min(LONGEST_HEADER, len(data) - START):
        raise Refused("a packet cut short")
    try:
        header = json.loads(data[START : START + length].decode(), parse_constant=_no_number)
        found = safetensors.deserialize(data[START + length :])
        arrays = {name: _array(about) for name, about in found}
    except (ValueError, RecursionError, safetensors.SafetensorError, KeyError, TypeError, OverflowError) as error:
        raise Refused(f"a damaged packet ({type(error).__name__})") from None
    if not isinstance(header, dict):
        raise Refused("a damaged packet (no header)")
    return Packet(header, arrays)


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _array(about: dict[str, Any]) -> np.ndarray:
    kinds = {"F": "f", "I": "i", "U": "u"}
    name = about["dtype"]
    kind = np.dtype(bool) if name == "BOOL" else np.dtype(f"{kinds[name[0]]}{int(name[1:]) // 8}")
    return np.frombuffer(about["data"], kind).reshape(about["shape"])


def schema(arrays: dict[str, Any]) -> str:
    """A digest of the names, types and shapes of arrays (or of `jax.ShapeDtypeStruct`s): equal if and only if they fit each other."""
    facts = sorted([name, np.dtype(array.dtype).str, *array.shape] for name, array in arrays.items())
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:32]


def checked(
    arrays: dict[str, np.ndarray], template: dict[str, Any], largest_norm: float = math.inf, bounded: str = ""
) -> dict[str, np.ndarray]:
    """`arrays` if they have the names, types and shapes of `template`, are finite, and are no longer than `largest_norm`.

    Only those whose names begin with `bounded` count for the norm.

    Raises:
        Refused: otherwise.
    """
    for name in sorted(set(arrays) ^ set(template))[:1]:
        raise Refused(f"the array {name[:80]!r} is {'missing' if name in template else 'not expected'}")
    square = 0.0
    for name, wanted in template.items():
        found = arrays[name]
        if found.shape != tuple(wanted.shape):
            raise Refused(f"{name} has shape {list(found.shape)} where {list(wanted.shape)} belongs")
        if found.dtype != np.dtype(wanted.dtype):
            raise Refused(f"{name} is {found.dtype} where {np.dtype(wanted.dtype)} belongs")
        if found.dtype.kind == "f":
            if not np.isfinite(found).all():
                raise Refused(f"{name} is not finite")
            with np.errstate(over="ignore"):  # an infinite norm is above every bound
                square += float(np.sum(np.square(found, dtype=np.float64))) if name.startswith(bounded) else 0.0
    if not math.sqrt(square) <= largest_norm:
        raise Refused(f"a norm of {math.sqrt(square):.3g} is above the bound of {largest_norm:.3g}")
    return arrays
