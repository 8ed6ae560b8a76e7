"""`doctor --fix` and `pin --from-current` as a user meets them: real environments on disk, a real index."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest

from tests.command.test_command_line import BROKEN, FINE, RULE
from tests.command.test_pin_resolve import pinned, resolve, whole_stack
from tests.support.local_index import LocalIndex
from tests.support.running import Outcome, envcheck
from tests.unit.resolution.test_remediation import MANY_CONFLICTS

__all__ = ["whole_stack"]  # a fixture

STACK = {
    "torch": ("2.6.0", ()),
    "deepspeed": ("0.14.0", ("torch", "numpy", "pydantic")),
    "transformers": ("4.49.0", ("tokenizers<0.22,>=0.21", "huggingface-hub<1.0,>=0.26.0", "numpy>=1.17")),
    "tokenizers": ("0.21.0", ("huggingface-hub<1.0,>=0.16.4",)),
    "huggingface-hub": ("0.29.1", ()),
    "peft": ("0.14.0", ("torch>=1.13.0", "transformers")),
    "accelerate": ("1.4.0", ("numpy<3.0.0,>=1.17", "torch>=2.0.0")),
    "numpy": ("1.26.4", ()),
    "pydantic": ("2.0.0", ()),
    "pip": ("25.0", ()),
}


def environment(folder: Path, **changes: str | None) -> Path:
    """The stack above on disk, with other versions of some packages, or without them."""
    site = folder / "lib/python3.11/site-packages"
    (site / "torch").mkdir(parents=True)
    (folder / "pyvenv.cfg").write_text("home = /usr/bin\nversion = 3.11.9\n")
    (site / "torch/version.py").write_text("__version__ = '2.6.0+cu124'\ncuda: str | None = '12.4'\n")
    for name, (usual, requires) in STACK.items():
        version = changes.get(name.replace("-", "_"), usual)
        if version is None:
            continue
        record = site / f"{name.replace('-', '_')}-{version}.dist-info"
        record.mkdir()
        lines = "".join(f"Requires-Dist: {each}\n" for each in requires)
        (record / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{lines}\n"
        )
        (record / "RECORD").write_text("")
    return folder


MACHINE = ("--static", "--driver", "550.54.15", "--gpu", "A100 80GB")


def fix(env: Path, *more: str) -> Outcome:
    return envcheck("doctor", "--fix", "--target", "zero3-lora", "--python", str(env), *MACHINE, *more)


def rows(out: str) -> list[tuple[str, ...]]:
    """The table: what, now, then."""
    table = out.split("Nothing was changed\n")[1].splitlines()[1:]
    cells = [tuple(re.split(r" {2,}", line.strip())) for line in table if re.match(r" {4}\S.*  ", line)]
    return [each[:3] for each in cells if each[0] not in ("note", "set", "brings", "left")]


# --- doctor --fix -----------------------------------------------------------------------------------


def test_the_report_then_the_table_then_a_command(tmp_path: Path) -> None:
    code, out, err = fix(environment(tmp_path / "env"))
    assert (code, err) == (1, "")
    report, plan = out.split("\nThe smallest change for level error and above. Nothing was changed\n")
    without = envcheck("doctor", "--target", "zero3-lora", "--python", str(tmp_path / "env"), *MACHINE).out
    assert without.startswith(report), "a finding advises the same with and without --fix"
    what, *rest = plan.splitlines()
    assert what.split() == ["what", "now", "then", "required", "by", "costs"]
    assert rest[0].split() == ["deepspeed", "0.14.0", "0.14.4", "deepspeed-elastic-log-import-torch24"]
    command = f"            $ DS_BUILD_OPS=0 {tmp_path}/env/bin/python -m pip install 'deepspeed==0.14.4'"
    assert rest[1] == command
    assert f"    fix     deepspeed >=0.14.4\n{command}\n" in report


@pytest.mark.parametrize("absent", ["peft", "accelerate", "transformers"])
def test_a_missing_package_has_one_fix_with_and_without_fix(absent: str, tmp_path: Path) -> None:
    env = environment(tmp_path / "env", deepspeed="0.19.8", **{absent: None})
    report = fix(env).out.split("\nThe smallest change")[0]
    assert f"zero3-lora needs {absent}, which is not installed" in report
    assert f"{env}/bin/python -m pip install '{absent}==" in report
    without = envcheck("doctor", "--target", "zero3-lora", "--python", str(env), *MACHINE).out
    assert without.startswith(report)


def test_a_fix_of_two_changes_is_the_smallest_one(tmp_path: Path) -> None:
    facts = tmp_path / "facts.toml"
    facts.write_text(
        'complete = ["pkg"]\npython = { version = "3.11.9" }\n[pkg]\ntorch = "2.8.0"\n'
        'transformers = "4.51.3"\nhuggingface-hub = "0.29.2"\naccelerate = "1.6.0"\n'
    )
    with_fix = envcheck("doctor", "--facts", str(facts), "--fix").out.split("\nThe smallest change")[0]
    assert "pip install 'huggingface-hub==" in with_fix
    assert envcheck("doctor", "--facts", str(facts)).out.startswith(with_fix)


def test_a_fix_meets_the_requirements_on_the_package_that_it_changes(tmp_path: Path) -> None:
    """Transformers 5.4.0 has the name that vLLM 0.12.0 imports, but vLLM 0.12.0 asks for transformers <5."""
    facts = tmp_path / "facts.toml"
    facts.write_text(
        'complete = ["pkg"]\npython = { version = "3.11.9" }\n[pkg]\ntorch = "2.9.0"\n'
        'transformers = "5.2.0"\nvllm = "0.12.0"\n'
    )
    report = envcheck("doctor", "--facts", str(facts), "--fix").out.split("\nThe smallest change")[0]
    (change,) = set(re.findall(r"pip install '(transformers==[0-9.]+)'", report))
    assert change.startswith("transformers==4.")
    assert envcheck("doctor", "--facts", str(facts)).out.startswith(report)
    facts.write_text(facts.read_text().replace("5.2.0", change.partition("==")[2]))
    after = json.loads(envcheck("doctor", "--facts", str(facts), "--json").out)["findings"]
    assert not [each for each in after if each["rule"] == "requires-dist:vllm:transformers"]


def test_a_release_that_a_fix_installs_fits_the_packages_beside_it(tmp_path: Path) -> None:
    """Torchvision 0.24.0 is for torch 2.9.0 alone, and 0.24.1 for 2.9.1."""
    listed = tmp_path / "requirements.txt"
    listed.write_text("torch==2.9.1\ntorchvision==0.23.0\n")
    ran = envcheck("check", str(listed), "--json")
    fixes = [fix["set"] for each in json.loads(ran.out)["findings"] for fix in each["fix"]]
    assert {"pkg.torchvision": "==0.24.1"} in fixes
    assert {"pkg.torchvision": "==0.24.0"} not in fixes
    assert "+torchvision==0.24.1" in envcheck("check", str(listed)).out
    listed.write_text("torch==2.9.1\ntorchvision==0.24.1\n")
    assert envcheck("check", str(listed)).code == 0


def test_an_error_about_other_packages_leaves_a_warning_its_fixes(tmp_path: Path) -> None:
    """The atlas has a row on deepspeed and torch too, which the written rule hides in every judgement."""
    facts = tmp_path / "facts.toml"
    facts.write_text(
        'complete = ["pkg"]\npython = { version = "3.11.9" }\n[pkg]\ntorch = "2.4.0"\ndeepspeed = "0.14.0"\n'
        'transformers = "4.57.6"\naccelerate = "0.30.0"\nnumpy = "1.26.4"\n'
    )
    found = {
        each["rule"]: each
        for each in json.loads(envcheck("doctor", "--facts", str(facts), "--json").out)["findings"]
    }
    assert "deepspeed-elastic-log-import-torch24" in found
    fixes = found["transformers-keep-torch-compile-accelerate"]["fix"]
    assert {"pkg.accelerate"} in [set(each["set"]) for each in fixes]


def test_an_unmet_requirement_names_the_release_that_meets_it(tmp_path: Path) -> None:
    """The fix states the requirement, and its command installs a release that no other package refuses."""
    facts = tmp_path / "facts.toml"

    def fixes(vllm: str, transformers: str, *more: str) -> dict[str, list[dict[str, str]]]:
        packages = "".join(
            f"{each}\n" for each in (f'vllm = "{vllm}"', f'transformers = "{transformers}"', *more)
        )
        facts.write_text(f'python = {{ version = "3.10.17" }}\n[pkg]\n{packages}')
        tree = json.loads(envcheck("doctor", "--facts", str(facts), "--json").out)
        return {each["rule"]: [fix["set"] for fix in each["fix"]] for each in tree["findings"]}

    asked = fixes("0.8.3", "4.50.0")
    assert asked["requires-dist:vllm:transformers"] == [{"pkg.transformers": ">=4.51.0"}]
    assert "pip install 'transformers==4.51.0'" in envcheck("doctor", "--facts", str(facts)).out
    assert "requires-dist:vllm:transformers" not in fixes("0.8.3", "4.51.0")
    refused = fixes("0.8.3", "4.50.0", 'llamafactory = "0.9.0"')  # which asks for transformers<=4.45.0
    assert refused["requires-dist:vllm:transformers"] == []


@pytest.mark.parametrize(
    ("specifier", "advised"),
    [(">=4.50.0", True), (">=4.50.0';touch owned;'", False), (">=4.50.0 $(touch owned)", False)],
)
def test_a_command_installs_a_version_and_no_other_text_of_the_metadata(
    specifier: str, advised: bool, tmp_path: Path
) -> None:
    env = environment(tmp_path / "env", deepspeed="0.19.8")
    record = env / "lib/python3.11/site-packages/other-1.0.dist-info"
    record.mkdir()
    lines = f"Metadata-Version: 2.1\nName: other\nVersion: 1.0\nRequires-Dist: transformers{specifier}\n"
    (record / "METADATA").write_text(lines)
    out = envcheck("doctor", "--python", str(env), *MACHINE).out
    commands = [line for line in out.splitlines() if line.lstrip().startswith("$")]
    assert any("'transformers==4.50.0'" in line for line in commands) is advised
    assert not any("touch" in line for line in commands)


def test_one_problem_of_two_packages_is_told_once_with_the_releases_that_fit(tmp_path: Path) -> None:
    facts = tmp_path / "facts.toml"
    here = 'complete = ["pkg"]\nhost = { os = "linux", arch = "x86_64" }\n'
    facts.write_text(here + '[pkg]\ntorch = "2.6.0"\nxformers = "0.0.29"\n')
    found = {
        each["rule"]: each["fix"]
        for each in json.loads(envcheck("doctor", "--facts", str(facts), "--json").out)["findings"]
    }
    assert not any(rule.startswith("atlas:xformers:torch") for rule in found)
    assert {"pkg.xformers": "==0.0.29.post2"} in [each["set"] for each in found["xformers-torch-pair"]]
    alone = json.loads(envcheck("gate", "--facts", str(facts), "--only", "atlas:", "--json").out)
    assert any(each["rule"].startswith("atlas:xformers:torch") for each in alone["findings"])


def test_a_passing_environment_needs_no_change(tmp_path: Path) -> None:
    code, out, _ = fix(environment(tmp_path / "env", deepspeed="0.19.8"))
    assert code == 0
    assert "\nNothing needs to change: nothing is broken at level error or above\n" in out
    facts = tmp_path / "fine.toml"
    facts.write_text(FINE)
    report = json.loads(envcheck("doctor", "--facts", str(facts), "--fix", "--json").out)
    assert report["fix"]["moves"] == report["fix"]["commands"] == report["fix"]["not_mended"] == []
    assert "fix" not in json.loads(envcheck("doctor", "--facts", str(facts), "--json").out)


def test_json_has_the_same_plan(tmp_path: Path) -> None:
    env = environment(tmp_path / "env", peft=None)
    code, out, err = fix(env, "--json")
    assert (code, err) == (1, "")
    plan = json.loads(out)["fix"]
    assert [(each["what"], each["now"], each["then"]) for each in plan["moves"]] == [
        ("deepspeed", "0.14.0", "0.14.4"),
        ("peft", None, plan["moves"][1]["then"]),
    ]
    assert "target:zero3-lora:peft" in plan["moves"][1]["rules"]
    (command,) = plan["commands"]
    packages = f"'deepspeed==0.14.4' 'peft=={plan['moves'][1]['then']}'"
    assert command == f"DS_BUILD_OPS=0 {env}/bin/python -m pip install {packages}"
    assert command in fix(env).out


def test_the_environment_after_the_commands_passes(tmp_path: Path) -> None:
    before = fix(environment(tmp_path / "before", peft=None, tokenizers="0.20.3"), "--json").out
    moves = {each["what"].replace("-", "_"): each["then"] for each in json.loads(before)["fix"]["moves"]}
    assert {"deepspeed", "peft", "tokenizers"} == moves.keys()
    assert fix(environment(tmp_path / "after", **moves)).code == 0


def test_the_companions_of_torch_move_along(tmp_path: Path) -> None:
    facts = tmp_path / "facts.toml"
    facts.write_text(
        BROKEN.replace("0.16.4", "0.19.8").replace('"2.6.0+cu124"', '"2.6.0", torchvision = "0.21.0"')
    )
    ask = ("doctor", "--facts", str(facts), "--fix", "--driver", "580.95.05", "--gpu", "RTX 5090")
    out = envcheck(*ask).out
    assert rows(out) == [("torch", "2.6.0", "2.8.0"), ("torchvision", "0.21.0", "0.23.0")]
    assert "pip install 'torch==2.8.0' 'torchvision==0.23.0'\n" in out
    assert "moves with torch" in out
    assert "随 torch 一起变" in envcheck(*ask, "--lang", "zh").out


def test_an_environment_without_pip_gets_uv_commands_and_conda_is_named(tmp_path: Path) -> None:
    env = environment(tmp_path / "an env", pip=None)
    assert f"$ DS_BUILD_OPS=0 uv pip install --python '{env}/bin/python' 'deepspeed==0.14.4'" in fix(env).out
    (env / "pyvenv.cfg").unlink()
    (env / "conda-meta").mkdir()
    (env / "conda-meta/python-3.11.9-h955ad1f_0.json").write_text("{}")
    out = fix(env).out
    assert "pip install 'deepspeed==0.14.4'" in out
    assert "a conda environment: what conda installed, change with conda" in out


def test_a_configuration_is_changed_where_it_says_so(tmp_path: Path) -> None:
    facts, config = tmp_path / "facts.toml", tmp_path / "ds.json"
    facts.write_text('complete = ["pkg"]\npkg = { torch = "2.6.0", transformers = "4.49.0" }\n')
    config.write_text('{"zero_optimization": {"stage": 3}}')
    ask = ("doctor", "--facts", str(facts), "--fix", "--train", str(config), "--train")
    out = envcheck(*ask, "--attn_implementation flash_attention_2 --use_lora false").out
    assert ("train.attention", "flash_attention_2", "sdpa") in rows(out)
    assert "set     train.attention = sdpa (now from --train:1: attn_implementation)" in out


def test_a_step_that_needs_an_administrator_is_marked(tmp_path: Path) -> None:
    facts = tmp_path / "facts.toml"
    facts.write_text(FINE.replace('"2.6.0+cu124"', '"2.8.0"'))
    ask = ("doctor", "--facts", str(facts), "--fix", "--driver", "550.54.15", "--gpu", "B200")
    out = envcheck(*ask).out
    assert rows(out) == [("driver.version", "550.54.15", ">=580.65.06")]
    assert "administrator" in out
    assert "$" not in out.split("Nothing was changed")[1]
    (move,) = json.loads(envcheck(*ask, "--json").out)["fix"]["moves"]
    assert move["administrator"] is True


def test_findings_that_no_change_fixes_are_named_with_the_reason(tmp_path: Path) -> None:
    facts = tmp_path / "facts.toml"
    broken = 'driver = { error = "18 driver/library version mismatch" }\n'
    facts.write_text(FINE.replace("pkg =", f"{broken}pkg ="))
    code, out, _ = envcheck("doctor", "--facts", str(facts), "--fix")
    assert code == 1
    assert "No known change fixes what is broken at level error or above" in out
    assert "[driver-library-mismatch]" in out.split("No known change")[1]


def test_a_fix_has_the_change_that_another_one_calls_for(tmp_path: Path) -> None:
    facts = tmp_path / "facts.toml"
    facts.write_text(
        '[pkg]\ntorch = "2.10.0"\nopenrlhf = "0.11.0"\ndeepspeed = "0.19.5"\n'
        '[train]\ntrainer = "openrlhf"\nzero_stage = 3\noptimizer = "muon"\noffload_optimizer = "cpu"\n'
    )
    out = envcheck("doctor", "--facts", str(facts)).out
    finding = out[out.index("[openrlhf-muon-zero3]") :].splitlines()
    assert "train.zero_stage = 2 and train.offload_optimizer = none" in finding[1]


def test_warnings_are_fixed_only_on_request(tmp_path: Path) -> None:
    facts = tmp_path / "facts.toml"
    facts.write_text('complete = ["pkg"]\npkg = { torch = "2.6.0", triton = "3.1.0" }\n')
    assert "Nothing needs to change" in envcheck("doctor", "--facts", str(facts), "--fix").out
    out = envcheck("doctor", "--facts", str(facts), "--fix", "--fail-on", "warning").out
    assert rows(out) == [("triton", "3.1.0", "3.2.0")]


def test_many_conflicting_findings_take_at_most_a_second_more(tmp_path: Path) -> None:
    facts = tmp_path / "facts.toml"
    facts.write_text(MANY_CONFLICTS)
    seconds = []
    for more in ((), ("--fix",)):
        start = time.monotonic()
        assert envcheck("doctor", "--facts", str(facts), *more).code == 1
        seconds.append(time.monotonic() - start)
    assert seconds[1] < 5 * seconds[0] + 1  # other programs run beside it; alone it is half a second


def test_nothing_to_judge_needs_no_plan(tmp_path: Path) -> None:
    facts = tmp_path / "facts.toml"
    facts.write_text('complete = ["pkg"]\npkg = { numpy = "2.0.0" }\n')
    code, out, _ = envcheck("doctor", "--facts", str(facts), "--fix")
    assert code == 3
    assert "Nothing needs to change" not in out


def test_hostile_versions_are_planned_for_without_a_traceback(tmp_path: Path) -> None:
    facts = tmp_path / "facts.toml"
    for version in (
        "",
        "?",
        "2.6.0.dev20250101+cu124",
        "2.6.0a0+git1234567",
        "9" * 200,
        "\\u001b[31m",
        "1!2.0",
    ):
        facts.write_text(BROKEN.replace("2.6.0+cu124", version).replace("4.49.0", version))
        outcome = envcheck("doctor", "--facts", str(facts), "--fix")
        assert outcome.code in (0, 1, 2, 3)
        assert "internal error" not in outcome.err
        assert "\x1b" not in outcome.out


# --- pin --from-current -----------------------------------------------------------------------------


def near(index: LocalIndex, home: Path, env: Path, *more: str) -> Outcome:
    return resolve(
        index, home, "--target", "zero3-lora", "--from-current", "--python", str(env), *(more or MACHINE)
    )


def test_a_lock_near_the_current_one_changes_only_what_fails(whole_stack: LocalIndex, tmp_path: Path) -> None:
    outcome = near(whole_stack, tmp_path, environment(tmp_path / "env"))
    assert outcome.code == 0, outcome.err
    for name, (version, _) in STACK.items():
        if name not in ("pip", "deepspeed"):
            assert pinned(outcome.out, name) == version, name
    assert pinned(outcome.out, "deepspeed") == "0.14.4"
    assert rows(outcome.err) == [("deepspeed", "0.14.0", "0.14.4")]
    assert "$" not in outcome.err


def test_a_release_that_no_index_has_is_replaced_by_the_nearest(
    whole_stack: LocalIndex, tmp_path: Path
) -> None:
    env = environment(tmp_path / "env", deepspeed="0.16.4", transformers="4.46.0", tokenizers="0.20.3")
    outcome = near(whole_stack, tmp_path, env)  # 4.46.0 was withdrawn
    assert outcome.code == 0, outcome.err
    assert ("transformers", "4.46.0", "4.46.1") in rows(outcome.err)
    assert pinned(outcome.out, "transformers") == "4.46.1"
    assert pinned(outcome.out, "torch") == "2.6.0"


def test_no_lock_near_what_is_installed_is_exit_4(whole_stack: LocalIndex, tmp_path: Path) -> None:
    env = environment(tmp_path / "env")
    outcome = near(whole_stack, tmp_path, env, "--static", "--driver", "550.54.15", "--gpu", "B200")
    assert outcome.code == 4
    assert outcome.out == ""
    assert (
        "no lock close to the installed versions: other versions do not fix driver-before-gpu-generation"
        in outcome.err
    )


@pytest.mark.parametrize("other", [("--offline",), ("--python-version", "3.11")])
def test_options_that_contradict_it_are_wrong_use(other: tuple[str, ...], tmp_path: Path) -> None:
    outcome = envcheck("pin", "--target", "zero3-lora", "--from-current", *other, cwd=tmp_path)
    assert outcome.code == 2
    assert outcome.err.count("\n") == 1
    assert "not with --from-current" in outcome.err


def test_the_rule_of_the_front_page_is_fixed_by_one_change(tmp_path: Path) -> None:
    facts = tmp_path / "facts.toml"
    facts.write_text(BROKEN)
    out = envcheck("doctor", "--facts", str(facts), "--fix").out
    assert rows(out) == [("deepspeed", "0.16.4", "0.19.3")]
    assert RULE in out.split("Nothing was changed")[1]


def test_a_setting_to_change_is_named_as_the_user_wrote_it(tmp_path: Path) -> None:
    (tmp_path / "facts.toml").write_text('[pkg]\ntorch = "2.6.0"\ntransformers = "4.52.4"\n')
    (tmp_path / "sft.yaml").write_text("stage: sft\nfinetuning_type: lora\noptim: adamw_hf\n")
    outcome = envcheck("doctor", "--facts", "facts.toml", "--train", "sft.yaml", cwd=tmp_path)
    assert (
        "fix     train.optimizer = adamw_torch\n            train.optimizer is optim in sft.yaml:3\n"
        in outcome.out
    )
    assert "runs_training_arguments" not in outcome.out  # the trainer that runs them is shown instead
