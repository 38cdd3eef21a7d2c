"""`held-out` on control tasks: LunarLander and Acrobot of Gymnasium, and MuJoCo's robots with different physics and bodies."""

from typing import Any

from fedpg.paper.compare import ENTRANTS
from fedpg.paper.held_out import CONTROL, ROOTS, SMOKE, figures, run

__all__ = ["SCALES", "TITLE", "figures", "run"]

TITLE = "CALM against the best of its rivals on control tasks where nothing was tuned"
SCALES: dict[str, dict[str, Any]] = {
    "smoke": SMOKE | {"entries": CONTROL[:1], "tuning": 1, "seeds": 2},
    "full": {"roots": ROOTS, "tuning": 2, "seeds": 8, "entries": CONTROL, "methods": ENTRANTS},
}
