#!/usr/bin/env bash
# Installs tba_hpc and everything it needs into .venv:  bash tools/setup.sh [EXTRAS]
#
# EXTRAS are the package's extras, comma-separated (default: mpich, an MPI that comes as a wheel). Versions are those of
# tools/constraints-cpu.txt; CONSTRAINTS=FILE chooses others, PYTHON=… another interpreter, VENV=… another place.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

extras="${1:-mpich}"
python="${PYTHON:-python3}"
venv="${VENV:-.venv}"
constraints="${CONSTRAINTS:-tools/constraints-cpu.txt}"

"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
    echo "tba_hpc needs Python 3.11 or newer; $python is $("$python" --version 2>&1). Set PYTHON=/path/to/python3.11." >&2
    exit 1
}
if [ ! -x "$venv/bin/python" ]; then
    "$python" -m venv "$venv" || {
        echo "Could not make a virtual environment. On Debian or Ubuntu: apt-get install python3-venv" >&2
        exit 1
    }
fi

# One fingerprint of what decides the installation: a second call returns at once.
wanted="$(cat setup.cfg pyproject.toml "$constraints" <(echo "$extras") | sha256sum)"
[ "$(cat "$venv/.tba_hpc_installed" 2>/dev/null)" = "$wanted" ] && exit 0

echo "Installing into $venv (a minute or two) …"
"$venv/bin/pip" install --quiet --constraint "$constraints" torch
"$venv/bin/pip" install --quiet --constraint "$constraints" --editable ".[$extras]"
echo "$wanted" > "$venv/.tba_hpc_installed"
