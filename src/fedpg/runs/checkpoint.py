"""Checkpoints: one safetensors file, written atomically, with a digest that a damaged file does not match."""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from fedpg.errors import UserError
from fedpg.runs.folder import write_atomically


def _digest(arrays: dict[str, np.ndarray], about: str) -> str:
    found = hashlib.sha256(about.encode())
    for name in sorted(arrays):
        found.update(name.encode() + str(arrays[name].dtype).encode() + str(arrays[name].shape).encode())
        found.update(np.ascontiguousarray(arrays[name]).tobytes())
    return found.hexdigest()


def write(path: Path, arrays: dict[str, np.ndarray], about: dict[str, Any]) -> None:
    """Writes `arrays` and the JSON-able `about` to one file."""
    text = json.dumps(about)
    write_atomically(path, save(arrays, {"about": text, "digest": _digest(arrays, text)}))


ADVICE = "restore it from a copy, or delete it to start this run again from round 0"


def read(path: Path, kind: str = "checkpoint", advice: str = ADVICE) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """What `write` wrote. `kind` and `advice` are for the error.

    Raises:
        UserError: if the file is cut short, changed, or not a checkpoint.
    """
    damaged = UserError(f"the {kind} {path} is damaged: {advice}")
    try:
        with safe_open(path, "numpy") as file:
            metadata = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dictionary
        about = json.loads(metadata["about"])
    except (SafetensorError, KeyError, ValueError, OSError) as error:
        raise damaged from error
    if metadata.get("digest") != _digest(arrays, metadata["about"]):
        raise damaged
    return arrays, about
