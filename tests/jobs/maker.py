"""Makes a job of `sample_data` with another speed: `python maker.py SCENARIO DIRECTORY SLOWER`.

Everything that a verdict is made of takes SLOWER times as long as usual: a busy machine holds up all alike.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

SAMPLES = Path(__file__).parents[2] / "sample_data"


def main(scenario: str, out: Path, slower: int) -> None:
    """Leaves the dumps in a directory of the name of the scenario."""
    sys.path.insert(0, str(SAMPLES))
    samples = importlib.import_module("make")
    samples.warm_up()
    # the ranks are forks of this process
    vars(samples).update(STILL_S=samples.STILL_S * slower, LONGEST_S=samples.LONGEST_S * slower)
    samples.traced.SLOW_S *= slower
    samples.make(scenario, out / scenario)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
