#!/usr/bin/env bash
# For the batch scripts of this folder, which source it: goes to the root of the repository, reads the settings of the
# site, loads its modules, and defines
#
#   train CONFIG [KEY=VALUE …]
#   sft CONFIG [KEY=VALUE …]
#
# which become `tba-hpc train --srun` and `tba-hpc sft --srun`: the process that Slurm signals, and that has the job
# requeued.

cd "$SLURM_SUBMIT_DIR" || exit 2
# shellcheck source=slurm/sites/site.env
source "${TBA_HPC_SITE:-slurm/sites/site.env}" || exit 2

if [ -n "${TBA_HPC_MODULES:-}" ]; then
    read -ra modules <<< "$TBA_HPC_MODULES"
    module load "${modules[@]}" || exit 2
fi

train() {
    exec "$TBA_HPC_PYTHON" -m tba_hpc train --srun --resume auto "$@"
}

sft() {
    exec "$TBA_HPC_PYTHON" -m tba_hpc sft --srun --resume auto "$@"
}
