"""The step-sizes of `fedpg demo`: every method at five step-sizes, on seeds that the demo does not use; writes docs/data/demo_tuning.json.

Run it: python benchmarks/tune_demo.py
"""

import json
import tempfile
from pathlib import Path

from fedpg.cli.demo import METHODS, TASK
from fedpg.report.statistics import estimate
from fedpg.runs.training import train

RATES = (3e-4, 6e-4, 1e-3, 3e-3, 1e-2)
SETTINGS = TASK | {"rounds": 20, "seeds": 8, "seed": 100, "eval_every": 20}

if __name__ == "__main__":
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for name in METHODS:
            for rate in RATES:
                run = train(algorithm=name, local_lr=rate, out=Path(folder) / f"{name}-{rate}", **SETTINGS)
                mean, low, high, _ = estimate(run.rows[-1]["return_per_seed"])
                numbers = [round(float(value), 1) for value in (mean, low, high)]
                found.append({"method": name, "local_lr": rate, "return": numbers[0], "interval": numbers[1:]})
                print(found[-1], flush=True)
    path = Path(__file__).parents[1] / "docs" / "data" / "demo_tuning.json"
    path.write_text(json.dumps({"settings": SETTINGS, "results": found}, indent=1) + "\n")
