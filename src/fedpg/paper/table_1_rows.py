"""The rows and pictures of `table-1`, and whether they agree with what the paper says."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedpg.paper.fits import Fit, fitted
from fedpg.paper.floors import ratio, typical
from fedpg.paper.outcome import Row, row
from fedpg.paper.table_1_floors import Floor
from fedpg.paper.table_1_speedup import ETAS, Wandering, exponents
from fedpg.paper.table_1_systems import Claim
from fedpg.report.figures import Line, Panel
from fedpg.report.stats import Estimate, estimate

EXACT = 1e-12
"""|grad J|^2 below this share of the start's is rounding: exact."""
ENOUGH = 0.9
"""Who gets this share of the best gain in J with agents that differ, supports that they do."""
NEAR = 0.15
"""How far a fitted exponent may be from the published one."""
PLAIN = "PAvg"
LEAST = 1e-32
"""What pictures show of 0, and what ratios take it for."""


class Counted(NamedTuple):
    """What the engine counts.

    Attributes:
        up, down: floats per agent and round, in multiples of d.
        exchanges: per round.
    """

    up: float
    down: float
    exchanges: int


class Found(NamedTuple):
    """Everything measured of one system.

    Attributes:
        floors: by K.
        noise: None for systems that draw nothing, or where it was not asked for.
        counted: by the engine.
        claim: the paper's; None where it has none.
    """

    floors: dict[int, Floor]
    noise: Wandering | None
    counted: Counted
    claim: Claim | None


def share(floor: Floor, best: np.ndarray) -> Estimate:
    """Of the best gain in J that anybody found in each federation, the part that a system got; over seeds that did not fail."""
    gained = (floor.objective - floor.start_objective) / (best - floor.start_objective)
    return estimate(gained[np.isfinite(gained)]) if np.isfinite(gained).any() else Estimate(*(np.array(np.nan),) * 3, 0)


def agreement(claimed: bool | None, measured: bool, words: tuple[str, str]) -> str:
    """A verdict on a claim that holds or not; `words` for what was measured if so, and if not.

    >>> agreement(True, False, ("exact", "inexact")), agreement(None, True, ("exact", "inexact"))
    ('differs: inexact', 'exact')
    """
    said = words[0] if measured else words[1]
    return said if claimed is None else f"{'agrees' if claimed == measured else 'differs'}: {said}"


def convergence(floor: Floor, claim: Claim | None) -> str:
    """Exact or inexact, beside the paper's word: exact if the interval of the typical floor is below `EXACT`.

    Not settled yet if any seed's floor that is more than rounding moved by 1 % over the last tenth.
    """
    left = floor.at / floor.start
    exact = bool(typical(left).high < EXACT)
    moving = np.nanmax(np.where(left > EXACT, np.abs(floor.before / floor.at - 1.0), 0.0)) > 0.01 and not exact
    said = agreement(claim and claim.exact, exact, ("exact", "inexact"))
    return said + (f" (paper: {claim.convergence})" if claim else "") + (", not settled yet" if moving else "")


def faster(fit: Fit, claim: Claim | None, collapsed: bool) -> str:
    """The verdict on an exponent."""
    warned = "; J falls below its start for some N" if collapsed else ""
    if claim is None:
        return warned.removeprefix("; ")
    off = abs(float(fit.value) - claim.exponent)
    inside = fit.low - NEAR <= claim.exponent <= fit.high + NEAR
    return ("agrees" if inside else f"differs by {off:.2f}") + warned


def of_fit(what: str, fit: Fit, **more: object) -> Row:
    return Row(what, float(fit.value), float(fit.low), float(fit.high), fit.seeds, **more)


def rows_of(label: str, found: Found, plain: Floor, best: np.ndarray, many: int) -> list[Row]:
    """A system's rows; `plain` is PAvg at K = `many`, `best` the best J that anybody found, by seed."""
    claim, floor, table = found.claim, found.floors[many], []
    for steps, each in sorted(found.floors.items()):
        said = convergence(each, claim if steps == many else None)
        table.append(row(f"{label}: floor of |grad J|^2, K={steps}, share of the start's", typical(each.at / each.start), verdict=said))
    moves = bool(np.nanmax(floor.drift) > 0)
    if label != PLAIN:
        said = agreement(claim and claim.local_updates, moves, ("agents take local steps", "agents take no local steps"))
        table.append(row(f"{label}: floor at K={many} / {PLAIN}'s", ratio(floor.at, plain.at), verdict=said))
    supported = share(floor, best)
    said = agreement(claim and claim.heterogeneity, bool(supported.mean >= ENOUGH), ("gets there", "does not get there"))
    table.append(row(f"{label}: share of the best gain in J, different agents", supported, verdict=said))
    apart = ratio(np.maximum(floor.at, LEAST), np.maximum(floor.twins, LEAST))
    table.append(row(f"{label}: |grad J|^2, different / identical agents", apart))
    table += noise_rows(label, found.noise, claim)
    counted = {"floats up, in d": found.counted.up, "floats down, in d": found.counted.down}
    if found.noise is not None:
        counted |= {"trajectories": found.noise.per_agent}
    for what, number in counted.items():
        more = f"{found.counted.exchanges} exchanges" if found.counted.exchanges > 1 and "up" in what else ""
        if what == "trajectories" and found.noise.server:
            more = f"and {found.noise.server} by the server"
        table.append(Row(f"{label}: {what} per agent and round", number, number, number, 1, verdict=more))
    return table


def noise_rows(label: str, noise: Wandering | None, claim: Claim | None) -> list[Row]:
    """The exponents, the paper's beside that of short steps."""
    table = []
    for e, fit in enumerate(exponents(noise) if noise is not None else []):
        collapsed = bool((np.nan_to_num(noise.gains[..., e], nan=-np.inf).mean(axis=0) < 0).any())
        published = claim.exponent if claim and e == 0 else None
        said = faster(fit, claim if e == 0 else None, collapsed)
        table.append(of_fit(f"{label}: exponent of the speed-up in N, eta={ETAS[e]:g}", fit, published=published, verdict=said))
    return table


def pictures(found: dict[str, Found], many: int) -> list[Panel]:
    """Floors and exponents by system, and noise against N of those in the paper."""
    floors = [typical(np.maximum(each.floors[many].at / each.floors[many].start, LEAST)) for each in found.values()]
    y, low, high = ([max(float(one[i]), LEAST) for one in floors] for i in range(3))
    drawn = [Line(f"exact gradients, K = {many}", list(range(len(found))), y, low, high, "o")]
    panels = [Panel("Where systems settle", "", "|grad J|^2 / start", drawn, y_log=True, places=list(found))]
    noisy = {label: each for label, each in found.items() if each.noise is not None}
    if not noisy:
        return panels
    fits = [exponents(each.noise) for each in noisy.values()]
    lines = []
    for e, eta in enumerate(ETAS):
        y, low, high = ([float(one[e][i]) for one in fits] for i in range(3))
        lines.append(Line(f"eta = {eta:g}", (np.arange(len(noisy)) + 0.2 * e).tolist(), y, low, high, "o"))
    panels.append(Panel("Speed-up N^p", "", "p", lines, places=list(noisy)))
    lines = []
    for label, each in noisy.items():
        if each.claim is not None:
            one = fitted(each.noise.slopes[..., 0], lambda means: means)
            lines.append(Line(label, each.noise.agents, one.value, one.low, one.high, "o-"))
    title = f"Noise against N, eta = {ETAS[0]:g}"
    return [*panels, *([Panel(title, "agents N", "|grad J|^2 / start", lines, x_log=True, y_log=True)] if lines else [])]
