"""Tokenizers of one token a character, for models that start from random weights."""

from __future__ import annotations

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

PAD, BOS, EOS = "<pad>", "<bos>", "<eos>"


def character_tokenizer(characters: str) -> PreTrainedTokenizerBase:
    """Three special tokens, then `characters` in their order; encoding puts `<bos>` in front. The tokenizer raises for
    any other character."""
    ids = {token: i for i, token in enumerate((PAD, BOS, EOS, *characters))}
    tokenizer = Tokenizer(models.WordLevel(ids))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    tokenizer.decoder = decoders.Fuse()
    tokenizer.post_processor = processors.TemplateProcessing(single=f"{BOS} $A", special_tokens=[(BOS, ids[BOS])])
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=tokenizer,
        pad_token=PAD,
        bos_token=BOS,
        eos_token=EOS,
        clean_up_tokenization_spaces=False,
    )
