"""Checkpoints: what is written is read, and a damaged file is refused."""

from __future__ import annotations

import numpy as np
import pytest

from fedpg.errors import UserError
from fedpg.runs import checkpoint

ARRAYS = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.array([1, 2], np.int64)}


def test_checkpoint_round_trip(tmp_path):
    path = tmp_path / "state.safetensors"
    checkpoint.write(path, ARRAYS, {"round": 3})
    arrays, about = checkpoint.read(path)
    assert about["round"] == 3
    for name, array in ARRAYS.items():
        assert arrays[name].dtype == array.dtype
        np.testing.assert_array_equal(arrays[name], array)


@pytest.mark.parametrize("damage", ["empty", "half", "one short", "flipped bit", "text"])
def test_a_damaged_checkpoint_is_one_clear_error(tmp_path, damage):
    path = tmp_path / "state.safetensors"
    checkpoint.write(path, ARRAYS, {"round": 3})
    data = bytearray(path.read_bytes())
    flipped = data.copy()
    flipped[-1] ^= 1
    broken = {"empty": b"", "half": data[: len(data) // 2], "one short": data[:-1], "flipped bit": flipped, "text": b"hello"}[damage]
    path.write_bytes(bytes(broken))
    with pytest.raises(UserError, match="is damaged") as raised:
        checkpoint.read(path)
    assert "\n" not in str(raised.value)
    assert path.read_bytes() == bytes(broken)
