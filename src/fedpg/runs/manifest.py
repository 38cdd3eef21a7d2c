"""What a run was made with: versions, devices, precision, flags. Written once, read by people and by `fedpg report`."""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import os
import platform
import sys
from pathlib import Path
from typing import Any

import jax

from fedpg.runs.folder import write_atomically

PACKAGES = ("fedpg", "jax", "jaxlib", "numpy", "safetensors", "gymnasium", "mujoco", "mujoco-mjx")


def version(package: str) -> str | None:
    """The installed version of a package, None if it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def collect(extra: dict[str, Any]) -> dict[str, Any]:
    """The manifest as a dictionary; `extra` is what the run knows about itself."""
    return {
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": {name: version(name) for name in PACKAGES},
        "backend": jax.default_backend(),
        "devices": [device.device_kind for device in jax.devices()],
        "matmul_precision": jax.config.jax_default_matmul_precision or "default",
        "x64": bool(jax.config.jax_enable_x64),
        "xla_flags": os.environ.get("XLA_FLAGS", ""),
    } | extra


def add_resume(path: Path, round: int) -> None:
    """Records in manifest.json that the run went on from `round`, and with what: it may be another machine."""
    found = json.loads(path.read_text())
    found.setdefault("resumed", []).append(collect({"round": round}))
    write_atomically(path, (json.dumps(found, indent=2) + "\n").encode())


def write(path: Path, extra: dict[str, Any]) -> None:
    """Writes manifest.json."""
    write_atomically(path, (json.dumps(collect(extra), indent=2) + "\n").encode())
