#!/usr/bin/env bash
# Installs the test extras into .venv, then checks style, types and architecture and runs the tests:
#   bash tools/test.sh [PYTEST ARGUMENTS]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

bash tools/setup.sh mpich,dev
bin="${VENV:-.venv}/bin"
"$bin/ruff" check .
"$bin/ruff" format --check .
"$bin/mypy"
"$bin/lint-imports" --no-cache
export CUDA_VISIBLE_DEVICES=
export OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1
if [ $# -gt 0 ]; then
    exec "$bin/python" -m pytest "$@"
fi
# Unit tests side by side; those that start ranks one at a time, as each of them keeps all cores busy.
"$bin/python" -m pytest --numprocesses auto --maxprocesses 8 tests/unit
"$bin/python" -m pytest --ignore tests/unit
