"""Compare algorithms on agents that want different things, with exact objectives and intervals over seeds.

Run it: python examples/compare_algorithms.py
"""

import tempfile

import fedpg
from fedpg.report.statistics import estimate

with tempfile.TemporaryDirectory() as folder:
    for algorithm in ("fedsvrpg-m", "pavg", "local-only", "pooled"):
        run = fedpg.train(env="conflict", algorithm=algorithm, agents=4, rounds=40, local_steps=16, seeds=20, out=f"{folder}/{algorithm}")
        last = run.rows[-1]
        objective, slope = estimate(last["objective_per_seed"]), estimate(last["grad_norm_sq_per_seed"])
        print(f"{algorithm:11} J {objective.mean:6.2f} [{objective.low:.2f}, {objective.high:.2f}]   |grad J|^2 {slope.mean:.3f}")
