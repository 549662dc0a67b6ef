"""The GPUs that torch sees. Run as a program it says so in JSON, as starting CUDA may hang."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tba_hpc.doctor.asking import NoAnswerError, answer_of
from tba_hpc.doctor.finding import Finding, judge

_DRIVER = Path("/proc/driver/nvidia/version")


@dataclass(frozen=True, slots=True)
class Gpus:
    """What torch says."""

    torch: str = ""
    platform: str = ""
    """CUDA or ROCm, with the version that torch was built for; empty for a CPU build."""
    nccl: str = ""
    devices: list[dict[str, Any]] = field(default_factory=list)
    """Each with `name`, `bytes` and `uuid`."""
    complaint: str = ""
    """Why there are no devices, as far as torch tells."""
    error: str = ""
    """Why torch could not be asked."""


def ask_gpus() -> Gpus:
    try:
        return Gpus(**answer_of(__name__))
    except NoAnswerError as error:
        return Gpus(error=str(error))


def driver_version() -> str:
    """What the NVIDIA driver says of itself; empty where there is none."""
    return _DRIVER.read_text().splitlines()[0].removeprefix("NVRM version: ").strip() if _DRIVER.exists() else ""


def gpu_finding(gpus: Gpus, driver: str, environment: Mapping[str, str]) -> Finding:
    if gpus.error:
        return Finding("problem", "GPU", f"torch: {gpus.error}", "install torch anew, in the build for this machine")
    build = f"torch {gpus.torch} for {gpus.platform or 'CPUs'}"
    if gpus.devices:
        names = ", ".join(f"{device['name']} {device['bytes'] / 2**30:.0f} GiB" for device in gpus.devices)
        text = f"{len(gpus.devices)}: {names}; {build}, NCCL {gpus.nccl or 'missing'}; {driver or 'unknown driver'}"
        return judge(bool(gpus.nccl), "problem", "GPU", text, "weights travel by NCCL: install a torch that has it")
    if not driver or environment.get("CUDA_VISIBLE_DEVICES") == "":
        return Finding("ok", "GPU", f"{'hidden' if driver else 'none'}: CPU, Gloo; {build}")
    advice = "ask for GPUs in the job, or install a torch for the driver's CUDA, or run on CPUs (CUDA_VISIBLE_DEVICES=)"
    return Finding("warning", "GPU", f"{build} sees none, with {driver}; {gpus.complaint}".rstrip("; "), advice)


def _look() -> Gpus:
    import torch

    has_nccl = torch.distributed.is_available() and torch.distributed.is_nccl_available()
    hip, cuda = torch.version.hip, torch.version.cuda
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    properties = [torch.cuda.get_device_properties(index) for index in range(count)]
    return Gpus(
        torch=torch.__version__,
        platform=f"ROCm {hip}" if hip else f"CUDA {cuda}" if cuda else "",
        nccl=".".join(map(str, torch.cuda.nccl.version())) if has_nccl else "",  # type: ignore[no-untyped-call]
        devices=[{"name": each.name, "bytes": each.total_memory, "uuid": str(each.uuid)} for each in properties],
        complaint=str(caught[-1].message) if caught else "",
    )


if __name__ == "__main__":
    print(json.dumps(asdict(_look())), flush=True)  # noqa: T201
