"""A package that registers a model type is accused beside releases of transformers that have this type."""

from __future__ import annotations

import pytest

from envcheck.atlas.gaps import CodeGap, GapKind
from envcheck.atlas.reader import PackageReader
from envcheck.atlas.registrations import find_registrations
from tests.unit.atlas.releases import release
from tests.unit.atlas.sources import reader

MODELS = """
from .configuration_auto import CONFIG_MAPPING_NAMES
MODEL_MAPPING_NAMES = OrderedDict([("bert", "BertModel"){more}])
MODEL_MAPPING = _LazyAutoMapping(CONFIG_MAPPING_NAMES, MODEL_MAPPING_NAMES)
class AutoModel(_BaseAutoModelClass):
    _model_mapping = MODEL_MAPPING
class AutoModelForCausalLM(_BaseAutoModelClass):
    _model_mapping = MODEL_FOR_CAUSAL_LM_MAPPING
"""


def transformers(configs: str, models: str = "") -> dict[str, bytes]:
    auto = {
        "transformers/models/auto/configuration_auto.py": configs.encode(),
        "transformers/models/auto/modeling_auto.py": MODELS.replace("{more}", models).encode(),
    }
    return {"transformers/__init__.py": b"", **auto}


OLD = "CONFIG_MAPPING_NAMES = OrderedDict([('bert', 'BertConfig')])\n"
NEW = "CONFIG_MAPPING_NAMES = OrderedDict[str, str]([('bert', 'BertConfig'), ('bitnet', 'BitNetConfig')])\n"
NEWEST = "from .auto_mappings import CONFIG_MAPPING_NAMES\nCONFIG_MAPPING_NAMES.update({'bitnet': 'BitNetConfig', 'bert': 'BertConfig'})\n"
PARTNER = PackageReader(
    "transformers",
    [
        release("transformers", "4.51.0", more=transformers(OLD)),
        release("transformers", "4.52.0", more=transformers(NEW)),
        release("transformers", "5.0.0", more=transformers(NEWEST, ", ('bitnet', 'BitNetModel')")),
    ],
)


def registered(models: str, root: str = "from . import bitnet") -> list[CodeGap]:
    """Return the gaps of a small fla whose `fla/bitnet.py` holds `models`."""
    fla = release(
        "flash-linear-attention",
        "0.2.1",
        more={
            "fla/__init__.py": root.encode(),
            "fla/bitnet.py": f"from transformers import AutoConfig, AutoModel\nfrom fla.config import *\nfrom fla.config import BitNetConfig\n{models}\n".encode(),
            "fla/config.py": b"class BitNetConfig(PretrainedConfig):\n    model_type = 'bitnet'\nNAME = 'x'\n",
        },
    )
    return find_registrations(PackageReader("flash-linear-attention", [fla]), PARTNER)


@pytest.mark.parametrize("key", ["'bitnet'", "BitNetConfig.model_type"])
def test_a_type_that_transformers_has_is_refused(key: str) -> None:
    (gap,) = registered(f"AutoConfig.register({key}, BitNetConfig)")
    assert (gap.kind, gap.package, gap.entry) == (GapKind.REGISTER, "flash-linear-attention", "import fla")
    assert (gap.partner, gap.lacking) == ("transformers", ("4.52.0", "5.0.0"))
    assert (gap.needs, gap.places) == ("AutoConfig.register('bitnet')", ("fla/bitnet.py:4",))


def test_a_class_is_refused_where_its_type_has_a_model() -> None:
    (gap,) = registered("AutoModel.register(BitNetConfig, BitNetModel)")
    assert (gap.needs, gap.lacking) == ("AutoModel.register(BitNetConfig)", ("5.0.0",))


@pytest.mark.parametrize(
    "models",
    [
        "AutoConfig.register('bitnet', BitNetConfig, exist_ok=True)",
        "AutoConfig.register('bitnet', BitNetConfig, True)",
        "AutoConfig.register('bitnet', BitNetConfig, exist_ok=flag)",
        "try:\n    AutoConfig.register('bitnet', BitNetConfig)\nexcept ValueError:\n    pass\n",
        "import contextlib\nwith contextlib.suppress(ValueError):\n    AutoConfig.register('bitnet', BitNetConfig)\n",
        "if 'bitnet' not in CONFIG_MAPPING:\n    AutoConfig.register('bitnet', BitNetConfig)\n",
        "def register():\n    AutoConfig.register('bitnet', BitNetConfig)\n",
        "AutoConfig.register('own', BitNetConfig)",
        "AutoConfig.register(NAME, BitNetConfig)",
        "class AutoConfig: ...\nAutoConfig.register('bitnet', BitNetConfig)",
        "import abc\nclass AutoThing(abc.ABC): ...\nAutoThing.register(BitNetConfig)",
    ],
)
def test_what_may_be_there_or_may_not_run_is_not_accused(models: str) -> None:
    assert registered(models) == []


def test_what_the_entry_does_not_import_registers_nothing() -> None:
    assert registered("AutoConfig.register('bitnet', BitNetConfig)", root="") == []


def test_a_type_that_every_release_has_or_lacks_gives_no_verdict() -> None:
    assert registered("AutoConfig.register('bert', BitNetConfig)") == []
    assert registered("AutoModel.register(Other, BitNetModel)\nclass Other: ...\n") == []


def test_a_release_whose_tables_cannot_be_read_gives_no_verdict() -> None:
    unread = reader(
        "transformers",
        {"4.51.0": {"transformers/": "", "transformers.models.auto.configuration_auto": OLD}, "9.0.0": {}},
    )
    asking = reader(
        "flash-linear-attention",
        {
            "0.2.1": {
                "fla/": "from transformers import AutoConfig\nclass B:\n    model_type = 'bitnet'\nAutoConfig.register('bitnet', B)\n"
            }
        },
    )
    assert find_registrations(asking, unread) == []
