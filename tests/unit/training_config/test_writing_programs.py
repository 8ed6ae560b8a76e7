"""Configurations that a program in the text of a launch script writes: what is known of them, and what is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.launches import known_facts

LAUNCH = "accelerate launch --config_file run.yaml train.py --bf16 true --learning_rate 1e-5 --output_dir o"
DUMP = "import yaml\nyaml.safe_dump({values}, open('run.yaml', 'w'))\n"
DDP = "{'distributed_type': 'MULTI_GPU', 'num_processes': 4}"
OF_VARIABLE = DDP.replace("4", "int(os.environ['N'])")
EDIT = "import yaml\nc = yaml.safe_load(open('run.yaml'))\nc['num_processes'] = 4\nyaml.safe_dump(c, open('run.yaml', 'w'))\n"
BESIDE = "distributed_type: MULTI_GPU\nnum_processes: 2\n"


def read(folder: Path, commands: str, beside: str = "") -> tuple[object, object]:
    """Return how the processes of a launch behind some commands work together, and their number."""
    files = {"run.sh": f"#!/bin/bash\n{commands}\n{LAUNCH}\n"}
    found = known_facts(folder, {**files, **({"run.yaml": beside} if beside else {})})
    return found.get("parallel"), found.get("world_size")


@pytest.mark.parametrize(
    ("commands", "expected"),
    [
        (f"python - <<'EOF'\n{DUMP.format(values=DDP)}EOF", ("ddp", 4)),
        (f"python3 <<'EOF'\n{DUMP.format(values=DDP)}EOF", ("ddp", 4)),
        (f'python -c "{DUMP.format(values=DDP)}"', ("ddp", 4)),
        (f"N=4\npython - <<EOF\n{DUMP.format(values=DDP.replace('4', '$N'))}EOF", ("ddp", 4)),
        (f"python - <<EOF\n{DUMP.format(values=DDP.replace('4', '$N'))}EOF", ("ddp", None)),
        (f"export N=4\npython - <<'EOF'\nimport os\n{DUMP.format(values=OF_VARIABLE)}EOF", ("ddp", 4)),
        (f"python - 4 <<'EOF'\nimport sys\n{DUMP.format(values=DDP.replace('4', 'int(sys.argv[1])'))}EOF", ("ddp", 4)),
        ("python - <<'EOF'\nimport json\nwith open('run.yaml', 'w') as f:\n    json.dump(dict(distributed_type='MULTI_GPU', num_processes=4), f)\nEOF", ("ddp", 4)),
        # What is computed, or may not have been written, is not known.
        (f"python - <<'EOF'\nimport torch\n{DUMP.format(values=DDP.replace('4', 'torch.cuda.device_count()'))}EOF", ("ddp", None)),
        ("python - <<'EOF'\nopen('run.yaml', 'w').write(text())\nEOF", (None, None)),
        ("python - <<'EOF'\nfrom pathlib import Path\nPath('run.yaml').write_text(text())\nEOF", (None, None)),
    ],
)  # fmt: skip
def test_a_program_in_a_script_writes_the_file_of_a_launch(
    tmp_path: Path, commands: str, expected: tuple[object, object]
) -> None:
    assert read(tmp_path, commands) == expected


@pytest.mark.parametrize(
    ("commands", "expected"),
    [
        ("", ("ddp", 2)),
        (f"python - <<'EOF'\n{EDIT}EOF", ("ddp", 4)),
        (f"cat > run.yaml <<EOF\ndistributed_type: FSDP\nEOF\npython - <<'EOF'\n{EDIT}EOF", ("fsdp1", 4)),
        (f"if [ -n \"$(nvidia-smi)\" ]; then\npython - <<'EOF'\n{EDIT}EOF\nfi", ("ddp", None)),
        (
            "python - <<'EOF'\nimport yaml\nprint(yaml.safe_load(open('run.yaml'))['num_processes'])\nEOF",
            ("ddp", 2),
        ),
        (
            "python - <<'EOF'\nfrom pathlib import Path\nPath('run.yaml').write_text(text())\nEOF",
            (None, None),
        ),
        ("python - <<'EOF'\nimport json\njson.dump({}, open('other.json', 'w'))\nEOF", ("ddp", 2)),
    ],
)
def test_a_program_in_a_script_changes_a_file(
    tmp_path: Path, commands: str, expected: tuple[object, object]
) -> None:
    assert read(tmp_path, commands, BESIDE) == expected
