"""The page: its answers are the judge's, it is one harmless file, and it works in a browser by keyboard and phone."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from envcheck.commands import matrix
from envcheck.core.facts import Fact, Inventory, Known
from envcheck.core.findings import Verdict
from envcheck.core.rules import Matrix
from envcheck.host.package_files import package_text
from envcheck.knowledge import site
from envcheck.knowledge.atlas import read_atlas
from envcheck.knowledge.site.choices import PageChoices
from envcheck.rules import derive, judge
from tests.support.running import envcheck
from tests.support.worlds import known, rule

LIMIT_BYTES = 3 * 1024 * 1024

TABLES = """
release = [
  { package = "deepspeed", version = "0.14.0", date = 2024-03-08 },
  { package = "deepspeed", version = "0.14.1", date = 2024-04-15 },
  { package = "deepspeed", version = "0.14.2", date = 2024-04-23 },
  { package = "deepspeed", version = "0.15.0", date = 2024-08-22, requires = { peft = "<0.15" } },
  { package = "deepspeed", version = "0.15.1", date = 2024-09-05, yanked = true },
  { package = "peft", version = "0.14.0", requires_python = ">=3.12" },
  { package = "peft", version = "0.15.0" },
]
[[torch]]
version = "2.4.0"
date = 2024-07-24
cuda = "12.1"
architectures = ["sm_80"]
python = ["3.11"]
[[torch]]
version = "2.5.0"
date = 2024-10-17
cuda = "12.4"
architectures = ["sm_80", "sm_90"]
python = ["3.11", "3.12", "3.13t"]
[[gpu]]
name = "NVIDIA A100-SXM4-80GB"
compute_capability = "8.0"
kind = "datacenter"
memory_gb = [80]
[[gpu]]
name = "NVIDIA H100 80GB HBM3"
compute_capability = "9.0"
kind = "datacenter"
memory_gb = [80]
[[family]]
major = 12
minimum_driver = "525.60.13"
[[branch]]
branch = 470
cuda = "11.4"
[[default]]
key = "train.use_reentrant"
value = true
when = { "train.trainer" = "absent", "pkg.peft" = "<0.15" }
source = "x"
"""

HEAD = """
updated = 2026-11-21
[target.zero3]
title = "ZeRO-3"
packages = ["torch", "deepspeed"]
train = { zero_stage = 3 }
free = ["use_reentrant"]
[target.ddp]
title = "DDP"
packages = ["torch"]
train = { parallel = "ddp" }
[[cell]]
target = "zero3"
outcome = "ok"
pkg = { torch = "2.4.0", deepspeed = "0.15.0" }
train = { use_reentrant = false }
device = "cpu"
date = 2026-11-20
test = "step"
[[cell]]
target = "zero3"
outcome = "fails"
rule = "checkpoint"
pkg = { torch = "2.5.0", deepspeed = "0.15.0" }
train = { use_reentrant = false }
device = "cpu"
date = 2026-11-20
test = "step"
"""

RULES = (
    rule(
        '{ "pkg.torch" = ">=2.5", "pkg.deepspeed" = "<0.16", "train.zero_stage" = 3, "train.use_reentrant" = false }',
        "checkpoint",
    )
    + rule('{ "pkg.torch" = ">=2.4", "pkg.deepspeed" = "<0.14.1" }', "elastic")
    + rule('{ "driver.version" = "<{cuda.minimum_driver}" }', "driver")
    + rule('{ "gpu.in_torch_build" = false }', "build")
    + rule('{ "pkg.torch" = ">=2.5", "train.parallel" = "ddp" }', "warned", "warning")
    + rule('{ "pkg.deepspeed" = "present", "pkg.numpy" = ">=2" }', "third-package")
)


@pytest.fixture(scope="module")
def world() -> Matrix:
    return known(RULES, TABLES, HEAD)


@pytest.fixture(scope="module")
def data(world: Matrix) -> dict[str, Any]:
    return site.assemble(world)


@pytest.fixture(scope="module")
def shipped_page(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the page of the shipped matrix as the command prints it; to make it takes half a minute."""
    folder = tmp_path_factory.mktemp("shipped")
    ran = envcheck("matrix", "html", "-o", "-", cwd=folder)
    assert (ran.code, ran.err, [*folder.iterdir()]) == (0, "", [])
    return ran.out


# --- data -------------------------------------------------------------------------------------------


def test_shown_versions_are_newest_patches_measured_ones_and_both_sides_of_bounds(
    data: dict[str, Any],
) -> None:
    # A bound lies between 0.14.0 and 0.14.1; 0.14.2 is the newest patch; a yanked release does not count.
    assert [row["v"] for row in data["packages"]["deepspeed"]] == ["0.14.0", "0.14.1", "0.14.2", "0.15.0"]


def test_releases_list_the_pythons_they_support(data: dict[str, Any]) -> None:
    assert [each["label"] for each in data["choices"]["python"]] == ["not said", "3.11", "3.12"]
    assert {row["v"]: row.get("python") for row in data["packages"]["peft"]} == {
        "0.14.0": "101",
        "0.15.0": None,
    }
    assert data["packages"]["torch"][0]["python"] == "110"


def test_a_target_is_shown_as_is_and_with_each_value_it_leaves_open(data: dict[str, Any]) -> None:
    assert [(each["target"], each["label"]) for each in data["choices"]["target"]] == [
        ("zero3", ""),
        ("zero3", "use_reentrant = false"),
        ("zero3", "use_reentrant = true"),
        ("ddp", ""),
    ]


def test_a_cell_belongs_to_its_own_training_and_is_near_the_one_that_leaves_it_open(
    data: dict[str, Any],
) -> None:
    assert [(cell["exact"], cell["near"]) for cell in data["cells"]] == [([1], [0]), ([1], [0])]


def test_metadata_bounds_list_the_versions_they_admit(data: dict[str, Any]) -> None:
    row = next(each for each in data["forbids"] if each["by"] == "deepspeed")
    assert (row["of"], row["bounds"], row["bound"]) == ("peft", ["", "<0.15"], [0, 0, 0, 1])
    assert row["admits"] == ["11", "10"]


def test_a_rule_that_needs_three_packages_has_no_entry(data: dict[str, Any]) -> None:
    assert "third-package" not in {data["rules"][entry["rule"]]["id"] for entry in data["entries"]}


def look_up(
    data: dict[str, Any], pair: tuple[tuple[str, int], tuple[str, int]], chosen: dict[str, int]
) -> tuple[set[int], set[int]]:
    """Look entries up as the page's script does."""
    options = {**chosen, **{name: place + 1 for name, place in pair}}
    broken, open_ = set(), set()
    for entry in data["entries"]:
        place = 0
        for dim, size, classes in zip(entry["dims"], entry["sizes"], entry["classes"], strict=True):
            place = place * size + classes[options.get(dim, 0)]
        if place in entry["broken"]:
            broken.add(entry["rule"])
        if place in entry["open"]:
            open_.add(entry["rule"])
    return broken, open_


def judged(
    of: Matrix,
    choices: PageChoices,
    pair: tuple[tuple[str, int], tuple[str, int]],
    chosen: dict[str, int],
) -> set[int]:
    """Return the numbers of the broken rules, judged on facts made here and not by the page."""
    train = choices.trainings[chosen["target"]].facts
    facts = {key: Fact(key, Known(value), "") for key, value in train.items()}
    for name, place in pair:
        facts[f"pkg.{name}"] = Fact(f"pkg.{name}", Known(choices.releases[name][place].version), "")
    if chosen["driver"]:
        facts["driver.version"] = Fact("driver.version", Known(choices.drivers[chosen["driver"]][1]), "")
    if chosen["python"]:
        facts["python.version"] = Fact("python.version", Known(f"{choices.pythons[chosen['python']]}.0"), "")
    devices: tuple[dict[str, Fact], ...] = ()
    if chosen["gpu"]:
        devices = ({"gpu.name": Fact("gpu.name", Known(choices.gpus[chosen["gpu"]][1]), "")},)
        facts["gpus.count"] = Fact("gpus.count", Known(1), "")
    judgement = judge.judge(derive.derive(Inventory(facts, devices), of), of.rules)
    ids = {each.rule.id for each in judgement.findings if each.verdict is Verdict.BROKEN}
    return {number for number, each in enumerate(of.rules) if each.id in ids}


def agree(of: Matrix, data: dict[str, Any], tries: int, seed: int) -> None:
    choices = PageChoices(of)
    drawn = random.Random(seed)  # noqa: S311 - a sample, not a secret
    names = sorted(choices.releases)
    for _ in range(tries):
        one, other = drawn.sample(names, 2)
        pair = tuple((name, drawn.randrange(len(choices.releases[name]))) for name in (one, other))
        chosen = {
            name: drawn.randrange(choices.option_count(name))
            for name in ("target", "gpu", "driver", "python")
        }
        assert len(pair) == 2
        assert look_up(data, pair, chosen)[0] == judged(of, choices, pair, chosen), (pair, chosen)


def test_every_answer_for_a_small_matrix_equals_the_judges(world: Matrix, data: dict[str, Any]) -> None:
    agree(world, data, 600, seed=1)


@pytest.mark.parametrize(
    ("package", "gpu", "python", "rule"),
    [
        ("torch 2.7.0", "7.0", "", "triton33-16bit-before-ampere"),  # it brings Triton 3.3
        ("torch 2.6.0", "7.0", "", ""),
        ("triton 3.3.1", "7.0", "", "triton33-16bit-before-ampere"),
        ("torch 2.3.1", "", "3.12", "dynamo-python-too-new"),
        ("torch 2.3.1", "", "3.11", ""),
    ],
)
def test_what_follows_from_a_package_or_a_python_decides_on_the_page_too(
    shipped_page: str, package: str, gpu: str, python: str, rule: str
) -> None:
    of = matrix._with_releases(())
    choices = PageChoices(of)
    name, _, version = package.partition(" ")
    release = next(n for n, row in enumerate(choices.releases[name]) if row.version == version)
    pair = ((name, release), ("peft", 1))
    chosen = {
        "target": next(n for n, each in enumerate(choices.trainings) if not each.facts),
        "gpu": next((n for n, (label, _) in enumerate(choices.gpus) if gpu and label.startswith(gpu)), 0),
        "driver": 0,
        "python": choices.pythons.index(python) if python else 0,
    }
    begins = '<script type="application/json" id="data">'
    data = json.loads(shipped_page.partition(begins)[2].partition("</script>")[0])
    answers = look_up(data, pair, chosen)[0]
    assert answers == judged(of, choices, pair, chosen)
    told = {of.rules[number].id for number in answers}
    assert told & {"triton33-16bit-before-ampere", "dynamo-python-too-new"} == ({rule} if rule else set())


def test_answers_on_the_shipped_page_equal_the_judges(shipped_page: str) -> None:
    begins = '<script type="application/json" id="data">'
    data = json.loads(shipped_page.partition(begins)[2].partition("</script>")[0])
    agree(matrix._with_releases(()), data, 250, seed=2)


def test_a_rule_that_depends_only_on_an_open_setting_is_open(data: dict[str, Any], world: Matrix) -> None:
    unsaid = {"target": 0, "gpu": 0, "driver": 0, "python": 0}
    pair = (("torch", 1), ("deepspeed", 3))
    _, open_ = look_up(data, pair, unsaid)
    assert {world.rules[number].id for number in open_} == {"checkpoint"}


# --- the file ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("place", "file"),
    [
        ("x.html", "x.html"),
        ("X.HTM", "X.HTM"),
        ("site", "site/index.html"),
        ("new/site", "new/site/index.html"),
        ("folder.html", "folder.html/index.html"),
        ("-", ""),
    ],
)
def test_the_page_is_a_file_or_the_index_of_a_folder(
    place: str, file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.html").mkdir()
    said = matrix.write_page(place, lambda: "<!DOCTYPE html>é")
    written = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert written == ({file} if file else set())
    if file:
        assert (tmp_path / file).read_text(encoding="utf-8") == "<!DOCTYPE html>é"
        assert said == f"{file}: 0 KiB, opens without a network\n"
    else:
        assert said == "<!DOCTYPE html>é"


def test_the_page_is_one_small_file_without_requests(shipped_page: str) -> None:
    page = shipped_page
    assert len(page.encode()) < LIMIT_BYTES
    assert "default-src 'none'" in page
    for outside in ("<link", "src=", "@import", "url(", "fetch(", "XMLHttpRequest", "{{"):
        assert outside not in page.split('<script type="application/json"')[0], outside


def test_the_data_cannot_leave_its_script() -> None:
    page = site.render({"x": "</script><script>alert(1)</script><!--"}, "<p>{{DATA}}</p>")
    assert "<script" not in page
    assert json.loads(page[3:-4]) == {"x": "</script><script>alert(1)</script><!--"}


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    ran = envcheck("matrix", "html", "-o", str(tmp_path / "file/site"))
    assert ran.code == 2
    assert len(ran.err.splitlines()) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_wrong_overlay_leaves_no_empty_page(tmp_path: Path) -> None:
    (tmp_path / "wrong.toml").write_text("[[rule]]\nid = 1\n")
    ran = envcheck("matrix", "html", "-o", "site", "--matrix", "wrong.toml", cwd=tmp_path)
    assert ran.code == 2
    assert "wrong.toml" in ran.err
    assert [path.name for path in tmp_path.iterdir()] == ["wrong.toml"]


# --- in a browser -----------------------------------------------------------------------------------

EVIL = (
    rule('{ "pkg.torch" = ">=2.4", "pkg.deepspeed" = "<0.14.1" }', "evil")
    .replace("it breaks", "<img src=x onerror=alert(1)><b>bold</b>")
    .replace("https://example.org/1", "javascript:alert(1)")
)

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    api = pytest.importorskip(
        "playwright.sync_api", reason="NOT TESTED IN A BROWSER: no playwright (pip install playwright)"
    )
    if CHROMIUM is None:
        pytest.skip("NOT TESTED IN A BROWSER: no chromium (apt-get install chromium)")
    with api.sync_playwright() as playwright:
        started = playwright.chromium.launch(
            executable_path=CHROMIUM,
            args=["--no-sandbox", "--headless=new", "--disable-gpu", "--disable-dev-shm-usage"],
        )
        yield started
        started.close()


class Page:
    """A page opened from a file, with its requests and its errors."""

    def __init__(self, browser: Any, text: str, folder: Path, address: str = "", **context: Any) -> None:
        (folder / "index.html").write_text(text)
        self.context = browser.new_context(**context)
        self.page = self.context.new_page()
        self.page.set_default_timeout(10_000)
        self.complaints: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", self._refuse)
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(f"file://{folder}/index.html{address}")

    def _refuse(self, dialog: Any) -> None:
        self.complaints.append(dialog.message)
        dialog.dismiss()

    def cell(self, starts: str) -> Any:
        return self.page.locator(f'td[aria-label^="{starts}"]')

    def state(self, starts: str) -> str:
        return str(self.cell(starts).get_attribute("aria-label")).partition(": ")[2]

    def choose(self, **chosen: str) -> None:
        for name, label in chosen.items():
            self.page.select_option(f"#{name}", label=label)

    def evidence(self) -> str:
        return str(self.page.inner_text("#evidence"))


def page_of(of: Matrix) -> str:
    return site.render(site.assemble(of), package_text("knowledge/site.html"))


@pytest.mark.browser
def test_the_page_shows_every_state_and_requests_nothing(browser: Any, world: Matrix, tmp_path: Path) -> None:
    page = Page(browser, page_of(world), tmp_path)
    assert page.page.input_value("#rows") == "torch"
    assert page.page.input_value("#columns") == "deepspeed"
    assert page.state("torch 2.4.0, deepspeed 0.15.0") == "measured good"
    assert page.state("torch 2.5.0, deepspeed 0.15.0") == "measured bad"
    assert page.state("torch 2.5.0, deepspeed 0.14.2") == "known bad"
    assert page.state("torch 2.4.0, deepspeed 0.14.2") == "never tried"
    page.choose(variant="as the trainer decides")
    assert page.state("torch 2.5.0, deepspeed 0.14.2") == "depends on what is open"
    page.choose(target="ddp: DDP")
    assert page.state("torch 2.5.0, deepspeed 0.14.2") == "never tried, with a warning"
    page.choose(rows="peft")
    assert page.state("peft 0.15.0, deepspeed 0.15.0") == "metadata forbids"
    assert page.state("peft 0.14.0, deepspeed 0.15.0") == "never tried"
    page.choose(python="3.11")
    assert page.state("peft 0.14.0, deepspeed 0.15.0") == "metadata forbids"
    assert page.complaints == []
    assert page.asked == [f"file://{tmp_path}/index.html"]


GAPS = """
read = 2026-11-22
["import peft"]
accelerate = [["name", "accelerate.utils.clear_device_cache", "0.15.0", "1.0.0", "peft/helpers.py:7"]]
["peft.PeftModel.save_pretrained(...)"]
accelerate = [["keyword", "accelerate.save(safe=)", "0.14.0", "1.0.0", "peft/peft_model.py:9"]]
"""
PACKAGES = """
[package.peft]
optional = ["peft.PeftModel.save_pretrained(...)"]
"""
RELEASES = {"peft": ("0.14.0", "0.15.0"), "accelerate": ("1.0.0", "1.1.0")}


@pytest.mark.browser
def test_gaps_in_the_code_are_shown_with_their_file_and_line(
    browser: Any, world: Matrix, tmp_path: Path
) -> None:
    atlas = read_atlas({"packages.toml": PACKAGES, "gaps/peft.toml": GAPS}, RELEASES)
    page = Page(browser, page_of(world._replace(atlas=lambda: atlas)), tmp_path)
    page.choose(rows="peft", columns="accelerate")

    assert page.state("peft 0.15.0, accelerate 1.0.0") == "known bad"
    assert page.state("peft 0.14.0, accelerate 1.0.0") == "no gap found in the code, with a warning"
    assert page.state("peft 0.15.0, accelerate 1.1.0") == "no gap found in the code"
    page.cell("peft 0.15.0, accelerate 1.0.0").click()
    assert "needs accelerate.utils.clear_device_cache (peft/helpers.py:7 in peft 0.15.0)" in page.evidence()
    assert page.complaints == []


@pytest.mark.browser
def test_driver_and_gpu_change_the_grid(browser: Any, world: Matrix, tmp_path: Path) -> None:
    page = Page(browser, page_of(world), tmp_path)
    cell = "torch 2.4.0, deepspeed 0.14.2"
    page.choose(driver="R470, speaks CUDA 11.4")
    assert page.state(cell) == "known bad"
    page.choose(driver="not said", gpu="9.0: H100")
    assert page.state(cell) == "known bad"
    page.choose(gpu="8.0: A100")
    assert page.state(cell) == "never tried"


@pytest.mark.browser
def test_a_cell_opens_its_evidence_and_survives_another_choice(
    browser: Any, world: Matrix, tmp_path: Path
) -> None:
    page = Page(browser, page_of(world), tmp_path)
    page.cell("torch 2.5.0, deepspeed 0.15.0").click()
    said = page.evidence()
    assert said.startswith("torch 2.5.0")
    assert "failed 2026-11-20 on cpu: torch 2.5.0, deepspeed 0.15.0" in said
    assert "it breaks" in said
    page.page.click("summary")
    assert "example.org/1" in page.evidence()
    assert page.page.get_attribute("#evidence a", "href") == "https://example.org/1"
    page.choose(variant="as the trainer decides")
    assert "MEASURED WITH OTHER SETTINGS" in page.evidence().upper()


@pytest.mark.browser
def test_the_grid_works_by_keyboard_alone(browser: Any, world: Matrix, tmp_path: Path) -> None:
    page = Page(browser, page_of(world), tmp_path)
    keys = page.page.keyboard
    for _ in range(8):  # seven choices, then the grid
        keys.press("Tab")
    focused = "document.activeElement.getAttribute('aria-label')"
    while "torch" not in str(page.page.evaluate(focused)):
        keys.press("Tab")
    assert str(page.page.evaluate(focused)).startswith("torch 2.5.0, deepspeed 0.15.0")
    for key in ("ArrowDown", "ArrowRight", "ArrowLeft", "End", "Home", "PageUp", "PageDown", "ArrowDown"):
        keys.press(key)
    assert str(page.page.evaluate(focused)).startswith("torch 2.4.0, deepspeed 0.15.0")
    keys.press("Enter")
    assert page.evidence().startswith("torch 2.4.0")
    assert page.page.evaluate("document.activeElement.id") == "panel"
    keys.press("Escape")
    assert str(page.page.evaluate(focused)).startswith("torch 2.4.0, deepspeed 0.15.0")


@pytest.mark.browser
def test_the_address_keeps_what_was_chosen(browser: Any, world: Matrix, tmp_path: Path) -> None:
    page = Page(browser, page_of(world), tmp_path)
    page.choose(rows="peft", target="ddp: DDP", python="3.12")
    address = str(page.page.url).partition("#")[2]
    again = Page(browser, page_of(world), tmp_path, f"#{address}")
    assert again.page.input_value("#rows") == "peft"
    assert again.page.input_value("#target") == "ddp"
    assert again.page.evaluate("document.getElementById('python').selectedOptions[0].text") == "3.12"


@pytest.mark.browser
def test_texts_of_an_overlay_are_never_markup(browser: Any, tmp_path: Path) -> None:
    page = Page(
        browser, page_of(known(EVIL, TABLES, HEAD.replace('rule = "checkpoint"', 'rule = "evil"'))), tmp_path
    )
    page.cell("torch 2.4.0, deepspeed 0.14.0").click()
    page.page.click("summary")
    assert "<img src=x onerror=alert(1)><b>bold</b>" in page.evidence()
    assert page.page.locator("#evidence img, #evidence b, #evidence a").count() == 0
    assert "javascript:alert(1)" in page.evidence()
    assert page.complaints == []


@pytest.mark.browser
def test_evidence_takes_no_room_until_a_cell_is_chosen(
    browser: Any, shipped_page: str, tmp_path: Path
) -> None:
    page = Page(browser, shipped_page, tmp_path, viewport={"width": 1440, "height": 900})

    def widths() -> tuple[float, bool]:
        return page.page.locator("#scroll").bounding_box()["width"], page.page.is_visible("#panel")

    assert widths()[0] > 1300
    assert not widths()[1]
    page.page.locator("tbody tr").first.locator("td:not(:empty)").nth(40).click()
    assert widths()[0] < 1100
    assert page.page.is_visible("#panel")
    cell, grid = (page.page.locator(each).bounding_box() for each in ("td.open", "#scroll"))
    assert cell["x"] + cell["width"] <= grid["x"] + grid["width"]
    page.page.click("#close")
    assert widths()[0] > 1300


@pytest.mark.browser
def test_on_a_phone_nothing_overflows_and_the_panel_leaves_the_cell_in_sight(
    browser: Any, shipped_page: str, tmp_path: Path
) -> None:
    size = {"width": 390, "height": 844}
    page = Page(browser, shipped_page, tmp_path, viewport=size, is_mobile=True, has_touch=True)
    assert page.page.evaluate("[innerWidth, document.documentElement.scrollWidth]") == [390, 390]
    page.page.locator("td.known").first.tap()
    assert page.page.evaluate("[innerWidth, document.documentElement.scrollWidth]") == [390, 390]
    panel = page.page.locator("#panel").bounding_box()
    cell = page.page.locator("td.open").bounding_box()
    assert cell["y"] + cell["height"] <= panel["y"]
    page.page.click("#close")
    assert not page.page.is_visible("#panel")
    assert page.page.locator("td").first.bounding_box()["height"] >= 32  # a finger's worth


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_state_can_be_read_in_light_and_dark(
    browser: Any, shipped_page: str, tmp_path: Path, scheme: str
) -> None:
    page = Page(browser, shipped_page, tmp_path, color_scheme=scheme)
    ratios = page.page.evaluate(
        """() => {
          const light = (rgb) => { const [r, g, b] = rgb.map((c) => { c /= 255; return c <= .03928 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4; }); return .2126 * r + .7152 * g + .0722 * b; };
          const parse = (text) => text.match(/[\\d.]+/g).slice(0, 3).map(Number);
          const found = {};
          for (const state of ["good", "bad", "known", "depends", "forbid"]) {
            const key = document.querySelector(`.legend .${state}`), style = getComputedStyle(key);
            const one = light(parse(style.color)), two = light(parse(style.backgroundColor));
            found[state] = (Math.max(one, two) + .05) / (Math.min(one, two) + .05);
          }
          const body = getComputedStyle(document.body);
          const one = light(parse(body.color)), two = light(parse(body.backgroundColor));
          found.text = (Math.max(one, two) + .05) / (Math.min(one, two) + .05);
          return found;
        }"""
    )
    assert all(ratio >= 4.5 for ratio in ratios.values()), ratios  # WCAG 2.1, contrast (minimum)
