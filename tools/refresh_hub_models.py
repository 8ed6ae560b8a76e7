"""Propose a diff of compat/hub_models/hub.txt.

`python tools/refresh_hub_models.py FOLDER` reads wheels that `pip download --no-deps` put into a folder: of
transformers and Unsloth the newest, of ms-swift several, since newer ones drop models. Prints a unified diff;
changes nothing without `--write`.
"""

from __future__ import annotations

import argparse
import re
import sys
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from table_diff import propose

from envcheck.atlas.auto_classes import types_by_class
from envcheck.atlas.hub_models import copies, registered_architectures, types_of_names
from envcheck.knowledge.hub_models import hub_models_text

TABLE = Path(__file__).resolve().parent.parent / "compat/hub_models/hub.txt"
REGISTRY = re.compile(r"swift/(llm/)?model/\S*\.py")
COPIES = re.compile(r"unsloth/models/mapper\.py")
AUTO = re.compile(r"transformers/models/auto/modeling_auto\.py")
OTHER_TYPE = re.compile(
    r"(moonshotai|unsloth)/Kimi-K2|deepseek-ai/deepseek-vl2|BAAI/Emu3|(baidu|PaddlePaddle)/ERNIE-4\.5-VL"
    r"|(zai-org|ZhipuAI)/glm-edge-v|\S*:audio$|(tencent|Tencent-Hunyuan)/Hunyuan-A13B"
)
"""Models whose config.json has a `model_type` of their own code, not that of their class in transformers."""

QUANTIZED: Mapping[str, str] = {
    r"-(AWQ|awq)(-Int4)?$": "awq",
    r"-GPTQ(-Int[48])?$": "gptq",
    r"-FP8$": "fp8",
    r"-bnb-4bit$": "nf4",
    r"^(openai|openai-mirror|unsloth)/gpt-oss-\d+b$": "mxfp4",
    r"^deepseek-ai/DeepSeek-(V3\S*|R1|R1-Zero|R1-0528)$": "fp8",
}
"""How the names of models say that their weights are quantised."""

LEFT_OUT = re.compile(r"(?i)AQLM|NVFP4|2Bit|-Int[48]$|-[48]bits$|quantized|-ms$")
"""Names of models that are quantised in a way for which there is no word, or perhaps."""


def members(wheel: Path, name: re.Pattern[str]) -> Iterator[str]:
    """Yield the texts of the files of a wheel that have such a name."""
    with zipfile.ZipFile(wheel) as archive:
        for each in archive.namelist():
            if name.fullmatch(each):
                yield archive.read(each).decode("utf-8")


def read_types(wheels: Sequence[Path]) -> dict[str, str]:
    """Return the type of each model that the registries in these wheels name.

    Raises:
        ValueError: one of the three packages is missing, or a table is written in a way that is not read.
    """
    registered = [
        each
        for wheel in wheels
        for text in members(wheel, REGISTRY)
        for each in registered_architectures(text)
    ]
    copied = [each for wheel in wheels for text in members(wheel, COPIES) for each in copies(text)]
    auto = [text for wheel in wheels for text in members(wheel, AUTO)]
    if not (registered and copied and auto):
        raise ValueError("expected wheels of ms-swift, unsloth and transformers in the folder")
    return types_of_names(registered, copied, types_by_class(auto[-1]))


def main(arguments: Sequence[str]) -> int:
    """Run the command and return the exit code."""
    parser = argparse.ArgumentParser(description="Propose a diff of compat/hub_models/hub.txt.")
    parser.add_argument("folder", type=Path, help="wheels of ms-swift, unsloth and transformers")
    parser.add_argument("--write", action="store_true", help="change the table")
    parser.add_argument("--table", type=Path, default=TABLE, help="the table to compare with")
    options = parser.parse_args(arguments)
    wheels = sorted(options.folder.glob("*.whl"))
    try:
        found = read_types(wheels)
    except (OSError, zipfile.BadZipFile, SyntaxError, ValueError) as error:
        print(error, file=sys.stderr)
        return 3
    quantized = {
        name: next((word for form, word in QUANTIZED.items() if re.search(form, name)), "") for name in found
    }
    types = {
        name: model_type
        for name, model_type in found.items()
        if not OTHER_TYPE.match(name) and (quantized[name] or not LEFT_OUT.search(name))
    }
    read = [" ".join(wheel.name.split("-")[:2]).replace("_", "-") for wheel in wheels]
    quantized = {name: word for name, word in quantized.items() if word}
    before = options.table.read_text("utf-8") if options.table.exists() else ""
    after = hub_models_text(types, quantized, read)
    return propose(options.table, before, after, write=options.write)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
