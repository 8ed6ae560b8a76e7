"""Launch scripts: recognise them; `_launch_documents`, imported only when needed, reads them."""

from __future__ import annotations

import re

from envcheck.core.patterns import pattern
from envcheck.training_config.document import Document
from envcheck.training_config.readers import Beside, ConfigReader

_STARTS_TRAINING = pattern(
    r"(?:^|[\s/(\"'`;&|=])(?:torchrun|deepspeed|accelerate[ \t]+launch|python[0-9.]*|llamafactory-cli|axolotl"
    r"|lmf|composer|srun|sbatch|swift|megatron|trl|xtuner|tune[ \t]+run|ray[ \t]+job[ \t]+submit"
    r"|torchx[ \t]+run|colossalai[ \t]+run|autotrain|litgpt)[ \t\\]"
    r"|(?:^|[\s;&|])[a-z][\w-]*[ \t]+(?:train|sft|dpo|grpo|rl|finetune|pretrain|fit)[ \t]"
    r"[^\n]*\.(?:ya?ml|json)\b"
    r"|(?:^|[\s;&|])(?:bash|sh|source|\.)[ \t]+[\w./${}-]+\.(?:sh|bash|slurm|sbatch)\b"
)
_COMMENT = pattern(r"^[ \t]*#[^\n]*", re.MULTILINE)  # a backslash at its end continues nothing
_CONTINUATION = pattern(r"\\\r?\n")
_COMMAND = pattern(r"[ \t]*[^\s#]")
_KEY_VALUE = pattern(r"[ \t]*[\w.-]+=\S*[ \t\r]*")


def recognises(text: str) -> bool:
    """Return whether a text starts a program that trains, or is more than one line of arguments."""
    if text.lstrip().startswith(("{", "[", "-")):
        return False
    joined = _CONTINUATION.sub(" ", _COMMENT.sub("", text))
    lines = [line for line in joined.split("\n") if _COMMAND.match(line)]
    only_pairs = all(_KEY_VALUE.fullmatch(line) for line in lines)
    return bool(lines) and (
        text.startswith("#!") or bool(_STARTS_TRAINING.search(text)) or (len(lines) > 1 and not only_pairs)
    )


def read(text: str, file: str, beside: Beside | None = None) -> tuple[Document, ...]:
    """Return the documents of each launch line that trains, including those in scripts that this one starts.

    Raises:
        InputError: the text is not a shell script, or nothing in it starts a training.
    """
    from envcheck.training_config.readers import _launch_documents

    return _launch_documents.documents(text, file, beside)


READER = ConfigReader("a launch script", 5, recognises, read, read)
