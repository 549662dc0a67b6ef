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
OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 "$bin/python" -m pytest "$@"
