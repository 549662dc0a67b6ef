"""The objectives a run can train with: one file each, and its line here."""

from tba_hpc.objectives.base import LossInputs, Objective
from tba_hpc.objectives.tb_vargrad import TBVarGrad

OBJECTIVES: dict[str, type[Objective]] = {
    "tb_vargrad": TBVarGrad,
}

__all__ = ["OBJECTIVES", "LossInputs", "Objective", "TBVarGrad"]
