#!/usr/bin/env bash
# Installs everything into .venv and trains a small model with asynchronous TBA over 4 MPI ranks on this machine's CPU:
#   bash tools/quickstart.sh [OVERRIDES]      e.g.  bash tools/quickstart.sh seed=1 run_dir=runs/seed1
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

bash tools/setup.sh
export CUDA_VISIBLE_DEVICES=  # on the CPU, also where there are GPUs (but fewer than ranks)
exec "${VENV:-.venv}/bin/tba-hpc" train configs/quickstart.yaml --ranks 4 --overwrite "$@"
