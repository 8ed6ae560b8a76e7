"""What is said of code of projects, of shells in other languages, and of a run that goes on in vain."""

from __future__ import annotations

import pytest

from envcheck.reports.explanation import FAILED, NOTHING, UNEXPLAINED
from tests.support.logs import SITE, Explain, answer, cause_of, of_own_code, traceback


@pytest.mark.parametrize(
    "line",
    [
        "'llamafactory-cli' 不是内部或外部命令",
        "'llamafactory-cli' is not recognized as an internal or external command,",
        'Der Befehl "swift" ist entweder falsch geschrieben oder',
        '"swift" n\'est pas reconnu en tant que commande interne',
        "'swift' は、内部コマンドまたは外部コマンド、",
        "swift : 无法将“swift”项识别为 cmdlet、函数、脚本文件或可运行程序的名称。",
        '"swift" не является внутренней или внешней',
    ],
)
def test_windows_says_in_many_languages_that_a_command_is_not_there(line: str, explained: Explain) -> None:
    found = explained(f"C:\\train>run.bat\n{line}\n")

    assert found.code == FAILED
    assert "not on the PATH of this shell" in answer(found)


def test_other_text_in_such_a_language_is_no_failure(explained: Explain) -> None:
    assert explained("开始训练 外部命令已完成\n").code == NOTHING


def test_a_script_below_a_path_with_spaces_is_not_found(explained: Explain) -> None:
    start = "C:\\Program Files\\Python310\\python.exe: "
    lost = explained(f"{start}can't open file 'D:\\\\a\\\\train.py': [Errno 2] No such file or directory\n")

    assert "does not find" in answer(lost)


def test_a_program_that_lacks_a_command_may_be_another_package_s(explained: Explain) -> None:
    found = answer(explained("Usage: tune [OPTIONS] COMMAND [ARGS]...\n\nError: No such command 'run'.\n"))

    assert "no command of this name" in found
    assert "no command of this name" not in answer(explained("Error: No such file 'run'.\n"))


@pytest.mark.parametrize(
    ("message", "follows"),
    [
        ("Step 1 exited with non-zero status 1", True),
        ("Worker process 3 failed with exit code 1", True),
        ("Step 1 is not a number", False),
    ],
)
def test_a_program_that_only_reports_another_one_s_end(
    message: str, follows: bool, explained: Explain
) -> None:
    found = explained(of_own_code(f"RuntimeError: {message}", "raise RuntimeError(text)"))

    assert (found.diagnosis.cause is None) is follows
    assert ("ended with an error" in answer(found)) is follows


def test_a_path_of_none_is_a_setting(explained: Explain) -> None:
    form = "FileNotFoundError: [Errno 2] No such file or directory: {!r}"
    source = "open(path)"

    assert "value that is not set" in answer(explained(of_own_code(form.format("None"), source)))
    assert "an empty text" in answer(explained(of_own_code(form.format(""), source)))
    assert "value that is not set" not in answer(explained(of_own_code(form.format("NoneX"), source)))


def test_the_value_of_a_wrong_type_is_named(explained: Explain) -> None:
    has_no = "AttributeError: 'list' object has no attribute 'get'"

    assert "type    inputs is a list" in answer(explained(of_own_code(has_no, "x = inputs.get(key)")))
    both = of_own_code(has_no, "x = inputs.get('a').get('b')")
    assert "type    " not in answer(explained(both))
    number = "TypeError: argument of type 'int' is not iterable"
    assert "type    self.name is an int" in answer(explained(of_own_code(number, "if c in self.name:")))
    index = "TypeError: list indices must be integers or slices, not str"
    assert "type    " not in answer(explained(of_own_code(index, "x = a['b']['c']")))


_IMPORTLIB = "/usr/lib/python3.10/importlib/__init__.py"


def test_none_in_pythons_own_code_is_what_the_caller_passed(explained: Explain) -> None:
    frames = (
        ("/home/me/train.py", 9, "main", "network = importlib.import_module(args.network_module)"),
        (_IMPORTLIB, 117, "import_module", "if name.startswith('.'):"),
    )
    exception = "AttributeError: 'NoneType' object has no attribute 'startswith'"

    found = explained(traceback(exception, *frames))

    assert "None is args.network_module" in answer(found)
    assert cause_of(found).kind == "setting"
    two = (("/home/me/train.py", 9, "main", "network = importlib.import_module(a, b)"), frames[1])
    assert "None is name" in answer(explained(traceback(exception, *two)))


def test_a_command_without_its_package_is_a_broken_installation(explained: Explain) -> None:
    exception = "ModuleNotFoundError: No module named 'nemo_gym'"
    command = ("/home/me/Gym/.venv/bin/ng_run", 4, "<module>", "from nemo_gym.cli import run")

    found = explained(traceback(exception, command))

    assert "the command ng_run is there" in answer(found).splitlines()[0]
    assert "/bin/ng_run:4" in answer(found)
    assert "/home/me" not in answer(found)
    script = ("/home/me/Gym/run.py", 4, "<module>", "from nemo_gym.cli import run")
    assert "the command" not in answer(explained(traceback(exception, script))).splitlines()[0]


def test_a_package_that_imports_a_folder_of_its_repository(explained: Explain) -> None:
    exception = "ModuleNotFoundError: No module named 'scripts'"
    package = (f"{SITE}/nemo_gym/hf_utils.py", 23, "<module>", "from scripts.update import visit")

    found = explained(traceback(exception, package))

    assert "a folder of its repository" in answer(found).splitlines()[0]
    own = of_own_code(exception, "from scripts.update import visit")
    assert "a folder of its repository" not in answer(explained(own))


def test_an_init_file_that_lacks_a_name_may_have_passed_over_an_error(explained: Explain) -> None:
    exception = "ImportError: cannot import name 'LlavaModel' from 'llava.model' ({})"
    asks = ("/home/me/LLaVA/llava/__init__.py", 1, "<module>", "from .model import LlavaModel")

    passed = answer(explained(traceback(exception.format("/home/me/LLaVA/llava/model/__init__.py"), asks)))

    assert "an error of that import was passed over" in passed
    file = answer(explained(traceback(exception.format("/home/me/LLaVA/llava/model/base.py"), asks)))
    assert "passed over" not in file


def test_an_attribute_that_a_method_sets_may_not_be_there_yet(explained: Explain) -> None:
    exception = "AttributeError: 'GRPOTrainer' object has no attribute 'current_gradient_accumulation_steps'"
    asks = (f"{SITE}/trl/trainer/grpo_trainer.py", 1920, "_compute_loss", "loss = loss / self.x")

    evaluates = (f"{SITE}/transformers/trainer.py", 4489, "evaluate", "output = eval_loop(")

    before = answer(explained(traceback(exception, evaluates, asks)))

    assert "the object has it only once _run_epoch() has run" in before
    running = (f"{SITE}/transformers/trainer.py", 1500, "_run_epoch", "loss = self.training_step(model)")
    assert "only once _run_epoch() has run" not in answer(explained(traceback(exception, running, asks)))


def test_a_class_of_torch_in_a_line_of_a_project(explained: Explain) -> None:
    exception = "AttributeError: 'ConcatDataset' object has no attribute 'modality_lengths'"

    found = explained(of_own_code(exception, "lengths = self.train_dataset.modality_lengths"))

    assert "holds other data sets" in answer(found)
    assert "release of torch" not in answer(found)


def test_a_loss_that_is_not_a_number_is_a_remark(explained: Explain) -> None:
    found = explained(
        "steps:   1%| | 1/160 [00:30<13:20, 30.0s/it, avr_loss=nan]\nsteps: 2%| | avr_loss=0.1\n"
    )

    assert found.code == NOTHING
    assert answer(found).startswith("No failure found, but the loss is not a number (line 1)")
    failed = explained(f"{{'loss': nan, 'epoch': 0.1}}\n{of_own_code('KeyError: 3', 'x[3]')}")
    assert failed.code == FAILED
    assert "not a number" not in answer(failed).splitlines()[0]


def test_advice_for_another_platform_keeps_its_own_sentences(explained: Explain) -> None:
    path = f"{SITE}/bitsandbytes/libbitsandbytes_rocm80.so"
    said = answer(explained(f"RuntimeError: Configured ROCm binary not found at {path}\n"))

    assert "BNB_ROCM_VERSION" in said
    assert "BNB_CUDA_VERSION" not in said


def test_a_text_of_one_package_names_the_one_that_is_published(explained: Explain) -> None:
    known = explained(of_own_code("ModuleNotFoundError: No module named 'toml'", "import toml"))
    unknown = explained(of_own_code("ModuleNotFoundError: No module named 'helpers'", "import helpers"))

    assert (known.code, unknown.code) == (FAILED, UNEXPLAINED)
    assert "install toml" in answer(known)
