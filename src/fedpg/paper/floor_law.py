"""What the measured floors say: how they grow with eta K and with beta."""

from __future__ import annotations

import numpy as np

from fedpg.paper.floors import PRINTED, STABLE, Floors, ratio, slope, typical
from fedpg.paper.outcome import Row, row
from fedpg.report.figures import Line, Panel
from fedpg.report.stats import Estimate

SLOPE_TOLERANCE, RATIO_TOLERANCE = 0.1, 0.1
"""What higher orders of eta K may add to an exponent, and to a ratio."""
NOTHING = 1e-6
"""A floor this far below PAvg's counts as none."""
NOTE = (
    "Why: at a fixed point u = 0; printed, the local drift is eta k beta g_i and beta cancels from mean g_i(theta_k) = (1-beta) grad J, "
    "so the floor is PAvg's, (eta (K-1) / 2)^2 |mean H_i g_i|^2, at every beta > 0. Stabilised, the drift is the same, but u = 0 means "
    "that the mean gradient along the paths is 0, so the floor is beta^2 of that."
)


def near(found: Estimate, expected: float, tolerance: float) -> str:
    """The verdict on a law of leading order: the mean within a tolerance of it."""
    return f"{'holds' if abs(found.mean - expected) <= tolerance else 'does not hold'} (law: {expected:g})"


def law(place: str, found: dict[str, Floors]) -> list[Row]:
    """The rows of one kind of problem; `found` by algorithm, FedSVRPG-S among them."""
    stable = found[STABLE]
    length, pavg = stable.etas * stable.local_steps, stable.at[int(np.argmax(stable.betas))]
    middle = len(length) // 2
    exponent = slope(length, pavg)
    rows = [row(f"{place}, PAvg: exponent of the floor in eta K", exponent, verdict=near(exponent, 2.0, SLOPE_TOLERANCE))]
    for name, floors in found.items():
        known = floors.betas > 0
        least = int(np.argmin(np.where(known, floors.betas, np.inf)))
        power, beta = 0.0 if name == PRINTED else 2.0, float(floors.betas[least])
        exponent = slope(floors.betas[known], floors.at[known, middle])
        rows.append(row(f"{place}, {name}: exponent of the floor in beta", exponent, verdict=near(exponent, power, SLOPE_TOLERANCE)))
        share = ratio(floors.at[least, middle], pavg[middle])
        law, text = beta**power, f"{place}, {name}, beta={beta:g}: floor / PAvg's"
        rows.append(row(text, share, verdict=near(share, law, RATIO_TOLERANCE * law)))
        if (zero := floors.betas == 0.0).any():
            share = ratio(floors.at[zero][0, middle], pavg[middle])
            verdict = "vanishes" if share.high < NOTHING else "does not vanish"
            rows.append(row(f"{place}, {name}, beta=0: floor / PAvg's", share, verdict=verdict))
    return rows


def same_length(place: str, few: Floors, many: Floors) -> Row:
    """PAvg with more local steps at the same eta K: only (K-1)/K may differ."""
    one, middle = int(np.argmax(few.betas)), len(few.etas) // 2
    share = ratio(many.at[int(np.argmax(many.betas)), middle], few.at[one, middle])
    expected = ((1 - 1 / many.local_steps) / (1 - 1 / few.local_steps)) ** 2
    text = f"{place}, PAvg, same eta K: floor at K={many.local_steps} / K={few.local_steps}"
    return row(text, share, verdict=near(share, round(expected, 3), RATIO_TOLERANCE * expected))


def _line(label: str, x: np.ndarray, floors: np.ndarray, style: str) -> Line:
    found = [typical(values) for values in floors]
    y, low, high = (np.array([float(one[part]) for one in found]) for part in range(3))
    return Line(label, x, y, low, high, style) if style in ("-", "--") else Line(label, x, y, style=style)


def pictures(places: dict[str, dict[str, Floors]]) -> list[Panel]:
    """Floor against eta K, and against beta; points lie on the line of another algorithm where both have the same floor."""
    by_length, by_beta = [], []
    for number, (place, found) in enumerate(places.items()):
        dash = "-" if number == 0 else "--"
        for name, floors in found.items():
            known, middle, length = floors.betas > 0, len(floors.etas) // 2, floors.etas * floors.local_steps
            least = int(np.argmin(np.where(known, floors.betas, np.inf)))
            style = "o" if name == PRINTED else dash
            if name == STABLE:
                by_length.append(_line(f"PAvg, {place}", length, floors.at[int(np.argmax(floors.betas))], dash))
            if name in (STABLE, PRINTED):
                by_length.append(_line(f"{name}, {place}", length, floors.at[least], style))
            elif number == 0:  # the variants share one floor: seeing that once is enough
                style = ("s", "^", "x")[len(by_beta) % 3]
            else:
                continue
            by_beta.append(_line(f"{name}, {place}", floors.betas[known], floors.at[known, middle], style))
    beta = min(float(b) for found in places.values() for floors in found.values() for b in floors.betas if b > 0)
    given = {"y_label": "|grad J|^2 where it settles", "x_log": True, "y_log": True}
    return [
        Panel(f"Exact gradients: floor against eta K (beta = {beta:g})", "eta K", lines=by_length, **given),
        Panel("Exact gradients: floor against beta", "beta", lines=by_beta, **given),
    ]
