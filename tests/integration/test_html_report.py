"""The HTML report in a headless Chromium: it shows the broken link, loads nothing, and runs no foreign script."""

from __future__ import annotations

from itertools import cycle, islice
from pathlib import Path
from typing import Any

import pytest

from envcheck.core.facts import Fact, Known
from envcheck.core.findings import Report
from envcheck.core.sanitize import Private
from envcheck.reports import render
from tests.integration.test_matrix_page import Page, browser
from tests.support.hostile import TEXTS
from tests.support.running import envcheck
from tests.unit.reports.test_formats import poisoned, rich

__all__ = ["browser"]

LIMIT_BYTES = 200_000
CONTRAST = """() => {
  const light = (rgb) => { const [r, g, b] = rgb.map((c) => { c /= 255; return c <= .03928 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4; }); return .2126 * r + .7152 * g + .0722 * b; };
  const parse = (text) => text.match(/[\\d.]+/g).map(Number);
  const ground = (element) => { for (let at = element; at; at = at.parentElement) { const c = parse(getComputedStyle(at).backgroundColor); if (c.length < 4 || c[3] > 0) return c.slice(0, 3); } return [255, 255, 255]; };
  const found = [];
  for (const element of document.querySelectorAll("h1, h2, h3, p, dt, dd, th, td, pre, .pill, label, summary, figcaption, footer")) {
    if (!element.getClientRects().length) continue;
    const one = light(parse(getComputedStyle(element).color).slice(0, 3)), two = light(ground(element));
    const ratio = (Math.max(one, two) + .05) / (Math.min(one, two) + .05);
    if (ratio < 4.5) found.push([element.tagName, element.className, ratio]);
  }
  return found;
}"""


def page_of(report: Report) -> str:
    return render.rendered("html", report, Private())


def opened(browser: Any, folder: Path, text: str = "", **context: Any) -> Page:
    return Page(browser, text or page_of(rich()), folder, **context)


def test_a_full_report_is_one_small_file_that_loads_nothing() -> None:
    text = page_of(rich())
    assert len(text.encode()) < LIMIT_BYTES
    assert "default-src 'none'" in text
    assert "unsafe" not in text
    for outside in ("<link", " src=", "@import", "url(", "fetch(", "XMLHttpRequest", "style="):
        assert outside not in text


def test_code_in_a_title_is_shown_as_code_and_a_second_fix_as_another_way(tmp_path: Path) -> None:
    facts = tmp_path / "facts.toml"
    facts.write_text(
        'complete = ["pkg"]\n[pkg]\ntorch = "2.9.0"\nvllm = "0.12.0"\ntransformers = "5.2.0"\n', "utf-8"
    )
    page = envcheck("doctor", "--facts", str(facts), "--output", str(tmp_path / "page.html"))
    text = (tmp_path / "page.html").read_text("utf-8")
    assert page.code == 1
    assert "<h3><code>from vllm import LLM</code> fails" in text
    assert "<dt>or</dt>" in text


def test_a_page_of_a_thousand_packages_is_small_too() -> None:
    site = "lib/python3.11/site-packages"
    many = [Fact(f"pkg.p-{n}", Known(f"{n}.0.1"), f"{site}/p_{n}-{n}.0.1.dist-info") for n in range(1000)]
    report = rich()
    assert len(page_of(report._replace(inventory=report.inventory.with_facts(many))).encode()) < LIMIT_BYTES


@pytest.mark.browser
def test_the_broken_link_is_marked_and_leads_to_its_finding(browser: Any, tmp_path: Path) -> None:
    page = opened(browser, tmp_path)
    marks = page.page.locator("svg.wide a")
    said = marks.locator("title").all_text_contents()
    driver = next(each for each in said if each.startswith("Driver + CUDA: "))
    assert "too old" in driver
    assert any(each.startswith("torch + Libraries: ") for each in said)
    page.page.locator("svg.wide a", has_text="Driver + CUDA").locator("circle").click()
    target = page.page.locator(":target")
    assert "The NVIDIA driver is too old" in target.inner_text()
    assert target.get_attribute("class") == "error"
    assert page.complaints == []
    assert {each.partition("#")[0] for each in page.asked} == {f"file://{tmp_path}/index.html"}


@pytest.mark.browser
def test_without_findings_nothing_is_marked(browser: Any, tmp_path: Path) -> None:
    report = rich()
    fine = report._replace(judgement=report.judgement._replace(findings=()), diagnostics=(), plan=None)
    page = opened(browser, tmp_path, page_of(fine))
    assert page.page.locator("svg a").count() == 0
    assert page.page.inner_text("h1").endswith("\nNo known problem")
    assert page.page.locator("#filter").count() == 0


@pytest.mark.browser
def test_findings_are_filtered_by_severity_and_by_words(browser: Any, tmp_path: Path) -> None:
    page = opened(browser, tmp_path)
    shown = page.page.locator("article:visible")
    everything = len(rich().judgement.findings) + len(rich().diagnostics)
    assert shown.count() == everything
    page.page.fill("[name=q]", "driver too old")
    assert shown.count() == 1
    assert page.page.inner_text("#left") == f"1 / {everything}"
    page.page.fill("[name=q]", "")
    page.page.uncheck("[name=mark][value=error]")
    assert page.page.locator("article.error:visible").count() == 0
    assert shown.count() > 0
    page.page.evaluate("location.hash = 'f1'")
    page.page.wait_for_selector("#f1:visible")


@pytest.mark.browser
def test_it_works_without_a_script_and_by_keyboard(browser: Any, tmp_path: Path) -> None:
    page = opened(browser, tmp_path, java_script_enabled=False)
    assert not page.page.is_visible("#filter")
    assert page.page.locator("article:visible").count() == len(rich().judgement.findings) + len(
        rich().diagnostics
    )
    again = opened(browser, tmp_path)
    seen = set()
    for _ in range(30):
        again.page.keyboard.press("Tab")
        seen.add(again.page.evaluate("document.activeElement.tagName.toLowerCase()"))
    assert {"a", "input", "summary"} <= seen


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_enough_contrast_in_light_dark_and_print(browser: Any, tmp_path: Path, scheme: str) -> None:
    page = opened(browser, tmp_path, color_scheme=scheme)
    assert page.page.evaluate(CONTRAST) == []
    page.page.emulate_media(media="print")
    assert page.page.evaluate(CONTRAST) == []
    assert page.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert not page.page.is_visible("#filter")
    last = page.page.locator("article").last.locator("dl, table").first
    assert last.bounding_box()["height"] > 0  # folded on the screen, not on paper


@pytest.mark.browser
@pytest.mark.parametrize("width", [320, 390, 820, 1600])
def test_nothing_overflows(browser: Any, tmp_path: Path, width: int) -> None:
    page = opened(browser, tmp_path, viewport={"width": width, "height": 800})
    page.page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    assert page.page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.page.locator("svg:visible").count() == 1


@pytest.mark.browser
@pytest.mark.parametrize("start", range(0, len(TEXTS), 40))
def test_hostile_text_runs_nothing_and_loads_nothing(browser: Any, tmp_path: Path, start: int) -> None:
    texts = cycle(islice(cycle(TEXTS), start, start + 40))
    page = opened(browser, tmp_path, page_of(poisoned(texts)))
    page.page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    page.page.wait_for_timeout(50)
    assert page.complaints == []
    assert page.asked == [f"file://{tmp_path}/index.html"]
    assert page.page.locator("article").count() == len(rich().judgement.findings) + len(rich().diagnostics)
    assert page.page.locator("img, iframe, object, embed, link, base, audio, video").count() == 0
    assert page.page.locator("script").count() == 1


@pytest.mark.browser
def test_the_security_policy_stops_unescaped_markup(browser: Any, tmp_path: Path) -> None:
    evil = "<script>document.title='run'</script><style>h1{display:none}</style>"
    page = opened(browser, tmp_path, page_of(rich()).replace("<main>", f"<main>{evil}"))
    assert page.page.title() != "run"
    assert page.page.is_visible("h1")
    assert any("Content Security Policy" in each for each in page.complaints)
