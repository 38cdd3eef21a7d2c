"""Results of an experiment: one table of rows, identified by typed fields, from which all tables and figures are made."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from fedpg.paper.verdict import Verdict
from fedpg.report.statistics import Estimate, estimate
from fedpg.runs.folder import manifest

Tell = Callable[[str, float], None]
"""tell(what, share): reports what is being done and the share of the experiment that is done, 0 to 1."""


class Row(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One measured number and what identifies it; fields that do not apply keep their defaults.

    Attributes:
        against: name of the method it is compared with; `comparison` says how.
        K, eta, beta, N, heterogeneity, eps: local steps, step-size, beta, agents, heterogeneity, accuracy.
        against_eta: step-size of the method it is compared with, where it differs.
        ratio: lambda / (eta K).
        noise: on messages, in units of the clip.
        x: position in a figure where no other field gives it: trajectories or environment steps.
        mean, low, high: the number and its 95 % interval; None if not finite.
        n: seeds behind it.
        published, error: the paper's number and what it prints after +-.
        flags: remarks.
    """

    quantity: str
    method: str = ""
    against: str = ""
    comparison: str = ""
    task: str = ""
    K: int | None = None
    eta: float | None = None
    against_eta: float | None = None
    ratio: float | None = None
    beta: float | None = None
    N: int | None = None
    heterogeneity: float | None = None
    eps: float | None = None
    noise: float | None = None
    attack: str = ""
    round: int | None = None
    x: float | None = None
    mean: float | None = None
    low: float | None = None
    high: float | None = None
    n: int = 1
    published: float | None = None
    error: float | None = None
    verdict: Verdict | None = None
    flags: tuple[str, ...] = ()


class Plot(msgspec.Struct, frozen=True, kw_only=True):
    """One panel of a figure: a selection of rows and how to draw it.

    Attributes:
        quantity: which rows; several are told apart by their markers, in a panel with names.
        where: values that other fields must have, or lists of allowed values.
        x: the field along x; in a heat map that of the columns. Without it means are along x, and `names` along y.
        names: the field whose values are along y, best first, or in the order of `order`.
        series: the fields that tell lines apart; in a panel with names, their markers.
        x_label, y_label, x_scale, y_scale, guides: see `fedpg.report.figures.Panel`.
        heat: a heat map of means.
        points: points without a line.
        lowest_first: least means are best.
        markers: matplotlib's, of the series of a panel with names.
        fit: add the fitted power law of each line.
        slope: add a dashed line of this exponent.
    """

    title: str
    quantity: str | tuple[str, ...]
    where: dict[str, Any] = {}
    x: str = ""
    names: str = ""
    order: tuple[str, ...] = ()
    series: tuple[str, ...] = ("method",)
    x_label: str = ""
    y_label: str = ""
    x_scale: str = "linear"
    y_scale: str = "linear"
    guides: tuple[float, ...] = ()
    heat: bool = False
    points: bool = False
    lowest_first: bool = False
    markers: str = "osD^v"
    fit: bool = False
    slope: float | None = None


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """Panels in one file, NAME.svg or NAME-SUFFIX.svg.

    Attributes:
        rows: what is drawn.
        columns, height: panels side by side, and inches of each.
    """

    plots: list[Plot]
    rows: list[Row]
    suffix: str = ""
    columns: int = 2
    height: float = 2.7


class Result(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Everything one experiment found.

    Attributes:
        rows: the table.
        points: rows that are only drawn, such as the points of learning curves.
        notes: what happened in this run: what was left out, and which seeds failed.
        made_with: versions, devices and the command; filled in by `save`.
    """

    name: str = ""
    title: str = ""
    scale: str = ""
    settings: dict[str, Any] = {}
    rows: list[Row] = []
    points: list[Row] = []
    notes: list[str] = []
    made_with: dict[str, Any] = {}


def number(value: Any) -> float | None:
    """A float of six significant digits; None if it is not finite."""
    return float(f"{float(value):.6g}") if value is not None and np.isfinite(float(value)) else None


def row(quantity: str, found: Estimate, **keys: Any) -> Row:
    """The row of an estimate."""
    return Row(quantity=quantity, mean=number(found.mean), low=number(found.low), high=number(found.high), n=found.seeds, **keys)


def exactly(quantity: str, value: float, n: int = 1, **keys: Any) -> Row:
    """The row of a number without an interval."""
    return row(quantity, Estimate(value, value, value, n), **keys)


def line(quantity: str, found: Estimate, axis: str, values: Iterable[Any], **keys: Any) -> list[Row]:
    """One row for each entry of an estimate of arrays (T,); `values` are those of the field `axis`."""
    parts = zip(values, found.mean, found.low, found.high, strict=True)
    return [row(quantity, Estimate(*each, found.seeds), **{axis: _plain(value)}, **keys) for value, *each in parts]


def over_seeds(values: np.ndarray) -> Estimate:
    """Mean and interval over the seeds that are finite, (S,) to () or (E, S) to (E,); NaN where none is."""
    if values.ndim > 1:
        parts = [over_seeds(each) for each in values]
        return Estimate(*(np.array([part[i] for part in parts]) for i in range(3)), max(part.seeds for part in parts))
    finite = values[np.isfinite(values)]
    return estimate(finite) if len(finite) else Estimate(*(np.array(np.nan),) * 3, 0)


def changed(row: Row, times: float = 1.0, plus: float = 0.0, **fields: Any) -> Row:
    """The row with its mean and interval changed, and other fields."""
    parts = {"mean": row.mean, "low": row.low, "high": row.high}
    return msgspec.structs.replace(row, **{name: None if part is None else times * part + plus for name, part in parts.items()}, **fields)


def minus(rows: list[Row], baseline: list[Row], x: str) -> list[Row]:
    """The rows less the means of the baseline at the same x; intervals stay those of each row alone."""
    base = {getattr(each, x): each.mean for each in baseline if each.mean is not None}
    return [changed(each, plus=-base[getattr(each, x)]) for each in rows if getattr(each, x) in base]


def select(rows: Iterable[Row], **where: Any) -> list[Row]:
    """The rows whose fields have the given values; a list or tuple allows several. `flags` is one flag, or "" for rows without any."""
    return [row for row in rows if all(_matches(getattr(row, name), value) for name, value in where.items())]


def _matches(own: Any, wanted: Any) -> bool:
    allowed = wanted if isinstance(wanted, (list, tuple)) else [wanted]
    if isinstance(own, tuple):
        return any(one in own if one else not own for one in allowed)
    return any(np.isclose(own, one, rtol=1e-3) if isinstance(one, float) and own is not None else own == one for one in allowed)


def save(result: Result, folder: Path) -> Path:
    """Writes NAME.json with one row per line; returns its path."""
    if not result.made_with:
        made = manifest()
        result.made_with = {key: made[key] for key in ("created", "command", "python", "packages", "devices")}
    parts = []
    for name, value in msgspec.structs.asdict(result).items():
        if name in ("rows", "points"):
            text = "[\n" + ",\n".join(msgspec.json.encode(each, enc_hook=_plain).decode() for each in value) + "\n]"
        else:
            text = msgspec.json.encode(_plain(value)).decode()
        parts.append(f'"{name}": {text}')
    path = folder / f"{result.name}.json"
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text("{\n" + ",\n".join(parts) + "\n}\n")
    return path


def load(path: Path) -> Result:
    """Reads what `save` wrote."""
    return msgspec.json.decode(path.read_bytes(), type=Result)


def _plain(value: Any) -> Any:
    """NumPy values and containers as plain JSON values; numbers have six significant digits."""
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)) or (isinstance(value, np.ndarray) and value.ndim):
        return [_plain(each) for each in value]
    value = value.item() if hasattr(value, "dtype") else value
    return number(value) if isinstance(value, float) else value
