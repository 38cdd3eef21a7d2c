"""`fedpg doctor`: what is installed, which devices there are, which extras are missing."""

import dataclasses
import importlib.metadata
import json
import os
import platform
import re
from pathlib import Path
from typing import Any

from fedpg import cache
from fedpg.cli.parse import parse
from fedpg.errors import require
from fedpg.machine import cores


@dataclasses.dataclass(frozen=True)
class DoctorOptions:
    """Show what is installed, which devices there are, and how to install what is missing."""

    json: bool = False
    """Print one JSON object instead of lines."""


def examine() -> dict[str, Any]:
    """What was found, as plain data; `packages` maps extra -> package -> version, None if missing. Required packages have extra "".

    `cache` is the folder of compiled programs and its size; the folder is None if none are kept. `kernels` maps a platform to the reason
    why there is no kernel for finite MDPs, None if there is one (`fedpg.native`).
    """
    from fedpg.runs.folder import version

    require(version("fedpg") is not None, "fedpg runs from a folder that is not installed: pip install -e .")
    packages: dict[str, dict[str, str | None]] = {}
    for requirement in importlib.metadata.requires("fedpg") or []:  # such as: mujoco<5,>=4; extra == "mujoco"
        name, extra = re.match(r"([\w.-]+)(?:.*extra == .([\w-]+))?", requirement).groups("")
        if name != "fedpg":  # an extra that consists of others
            packages.setdefault(extra, {})[name] = version(name)
    devices, problem, kernels = [], None, {}
    try:
        import jax

        devices = [f"{device.platform}: {device.device_kind}" for device in jax.devices()]
    except Exception as error:  # a broken accelerator driver can raise anything
        problem = str(error).splitlines()[0]
    if devices:
        from fedpg import native

        kernels = {platform: native.why_not(platform) for platform in native.PLATFORMS}
    place = kept_programs()
    programs = {"folder": place and str(place), "bytes": cache.size(place) if place else 0, "most_bytes": cache.MOST_BYTES}
    machine = {"fedpg": version("fedpg"), "python": platform.python_version(), "cores": cores()}
    return machine | {"devices": devices, "device_problem": problem, "kernels": kernels, "cache": programs, "packages": packages}


def kept_programs() -> Path | None:
    """The folder in which compiled programs are kept by this process."""
    given = os.environ.get(cache.FOLDER_OF_JAX)
    return Path(given) if given else None


def main(argv: list[str]) -> int:
    """Prints; returns the exit code: 0 if everything that fedpg cannot do without is there."""
    options = parse(DoctorOptions, argv, "fedpg doctor")
    found = examine()
    if options.json:
        print(json.dumps(found))
    else:
        print(f"fedpg {found['fedpg']}, Python {found['python']}, {found['cores']} cores")
        print(f"devices: {', '.join(found['devices']) or found['device_problem']}")
        for platform, reason in found["kernels"].items():
            print(f"kernels for finite MDPs, {platform}: {f'not used ({reason})' if reason else 'used'}")
        folder, megabytes = found["cache"]["folder"], found["cache"]["bytes"] / 1e6
        print(f"compiled programs: {f'{megabytes:.0f} MB in {folder}' if folder else 'not kept'}")
        for extra, versions in found["packages"].items():
            print(f"{extra or 'required'}: " + ", ".join(f"{name} {version or 'MISSING'}" for name, version in versions.items()))
            if None in versions.values():
                print("  to install what is missing: pip install " + (f"'fedpg[{extra}]'" if extra else "fedpg"))
    return int(None in found["packages"][""].values() or found["device_problem"] is not None)
