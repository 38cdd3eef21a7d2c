"""Algorithms: one file each, agent half and server half together."""

from fedpg.algorithms.base import Algorithm, LocalInfo, RoundInfo, ServerState
from fedpg.algorithms.fedhapg_m import fedhapg_m
from fedpg.algorithms.fedhapg_s import fedhapg_s
from fedpg.algorithms.fedsvrpg_m import fedsvrpg_m
from fedpg.algorithms.fedsvrpg_s import fedsvrpg_s
from fedpg.algorithms.heavy_ball import heavy_ball
from fedpg.algorithms.local_only import local_only
from fedpg.algorithms.pavg import pavg
from fedpg.algorithms.pooled import pooled

ALGORITHMS = {
    "fedsvrpg-m": fedsvrpg_m,
    "fedhapg-m": fedhapg_m,
    "fedsvrpg-s": fedsvrpg_s,
    "fedhapg-s": fedhapg_s,
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
    "fedhapg_s",
    "fedsvrpg_m",
    "fedsvrpg_s",
    "heavy_ball",
    "local_only",
    "pavg",
    "pooled",
]
