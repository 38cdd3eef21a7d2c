"""Algorithms: one file each, agent half and server half together."""

from fedpg.algorithms.base import Algorithm, LocalInfo, RoundInfo, ServerState
from fedpg.algorithms.fedhapg_m import fedhapg_m
from fedpg.algorithms.fedsvrpg_m import fedsvrpg_m
from fedpg.algorithms.heavy_ball import heavy_ball
from fedpg.algorithms.local_only import local_only
from fedpg.algorithms.pavg import pavg
from fedpg.algorithms.pooled import pooled

ALGORITHMS = {
    "fedsvrpg-m": fedsvrpg_m,
    "fedhapg-m": fedhapg_m,
    "pavg": pavg,
    "heavy-ball": heavy_ball,
    "local-only": local_only,
    "pooled": pooled,
}

__all__ = [
    "ALGORITHMS",
    "Algorithm",
    "LocalInfo",
    "RoundInfo",
    "ServerState",
    "fedhapg_m",
    "fedsvrpg_m",
    "heavy_ball",
    "local_only",
    "pavg",
    "pooled",
]
