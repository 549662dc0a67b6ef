"""The objectives a run can train with: one file each, and its line here."""

from tba_hpc.objectives.base import LossInputs, Objective
from tba_hpc.objectives.dr_grpo import DrGRPO
from tba_hpc.objectives.grpo import GRPO
from tba_hpc.objectives.kimi import Kimi
from tba_hpc.objectives.online_dpo import OnlineDPO
from tba_hpc.objectives.proximal_rloo import ProximalRLOO
from tba_hpc.objectives.reinforce import Reinforce
from tba_hpc.objectives.rloo import RLOO
from tba_hpc.objectives.sft import SFT
from tba_hpc.objectives.tb_vargrad import TBVarGrad

OBJECTIVES: dict[str, type[Objective]] = {
    "tb_vargrad": TBVarGrad,
    "reinforce": Reinforce,
    "rloo": RLOO,
    "proximal_rloo": ProximalRLOO,
    "grpo": GRPO,
    "dr_grpo": DrGRPO,
    "online_dpo": OnlineDPO,
    "kimi": Kimi,
    "sft": SFT,
}

__all__ = ["OBJECTIVES", "LossInputs", "Objective"]
