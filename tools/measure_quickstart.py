"""Runs the quickstart with several seeds and reports the gain in held-out greedy accuracy.

    .venv/bin/python tools/measure_quickstart.py --seeds 0 1 2 [--ranks 4] [OVERRIDES …]

Prints a row a seed, and one JSON object on the last line.
"""

from __future__ import annotations

from recipe_runs import parser, print_summary, run_seeds


def main() -> None:
    arguments = parser(__doc__, "runs/measure_quickstart").parse_intermixed_args()
    print_summary("quickstart", run_seeds("configs/quickstart.yaml", arguments))


if __name__ == "__main__":
    main()
