"""Dark and light, narrow and wide, by keyboard alone, read aloud, printed, without motion."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.browser
ANSWERED = "#answer:not(.empty):not(.stale):not([aria-busy])"
QUESTION = "model=llama-3.1-8b&gpus=64xH100-SXM5-80GB&plan=fsdp,recompute=selective&tokens=1T&price=$2.10/gpu/h"
ISLANDS = f"{QUESTION}&islands=3&bandwidth=10 Gbps&rtt=40 ms&method=diloco&sync_every=100&set=fleet.wan.default.egress=$0.02/GB"
VIEWS = (
    "predict",
    "plan",
    "returns",
    "transitions",
    "sensitivity",
    "tradeoffs",
    "doctor",
    "trace",
    "explain",
    "scenario",
)
LUMINANCE = """() => {
  const [red, green, blue] = getComputedStyle(document.documentElement).backgroundColor.match(/[\\d.]+/g).map(Number);
  return (0.2126 * red + 0.7152 * green + 0.0722 * blue) / 255;
}"""
CONTRAST = """() => {
  const rgb = (text) => text.startsWith("color(srgb") ? text.match(/[\\d.]+/g).map(Number).map((one, at) => (at < 3 ? 255 * one : one)) : text.match(/[\\d.]+/g).map(Number);
  const light = (one) => { one /= 255; return one <= 0.03928 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4; };
  const luminance = ([red, green, blue]) => 0.2126 * light(red) + 0.7152 * light(green) + 0.0722 * light(blue);
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const found = rgb(getComputedStyle(at).backgroundColor);
      if (found.length < 4 || found[3] > 0.99) return found;
    }
    return [255, 255, 255];
  };
  const weak = [];
  for (const element of document.querySelectorAll("body *")) {
    const own = [...element.childNodes].some((one) => one.nodeType === 3 && one.textContent.trim());
    if (!own || element.closest("svg, .unseen, .skip, [hidden], option") || element.disabled || element.closest(":disabled") || !element.getClientRects().length) continue;
    const style = getComputedStyle(element);
    const [front, back] = [luminance(rgb(style.color)), luminance(behind(element))];
    const ratio = (Math.max(front, back) + 0.05) / (Math.min(front, back) + 0.05);
    const large = parseFloat(style.fontSize) >= 24 || (parseFloat(style.fontSize) >= 18.66 && Number(style.fontWeight) >= 700);
    if (ratio < (large ? 3 : 4.5)) weak.push(`${element.tagName}.${element.className} "${element.textContent.slice(0, 30)}" ${ratio.toFixed(2)}`);
  }
  return weak;
}"""
NAMES = """() => {
  const named = (one) => one.getAttribute("aria-label") || (one.getAttribute("aria-labelledby") ?? "").split(" ").map((id) => document.getElementById(id)?.textContent ?? "").join("")
    || [...(one.labels ?? [])].map((label) => label.textContent).join("") || (["BUTTON", "A", "SUMMARY"].includes(one.tagName) ? one.textContent.trim() : "");
  const wrong = [];
  for (const one of document.querySelectorAll("input, select, textarea, button, a[href], summary, progress, [role=img], [role=tablist], [role=tab], [role=tabpanel], [role=region], nav, [role=combobox]")) {
    if (!named(one)) wrong.push(`no name: ${one.outerHTML.slice(0, 120)}`);
  }
  const ids = [...document.querySelectorAll("[id]")].map((one) => one.id);
  for (const id of new Set(ids)) if (ids.filter((one) => one === id).length > 1) wrong.push(`twice: #${id}`);
  for (const name of ["aria-controls", "aria-labelledby", "aria-describedby", "for", "aria-activedescendant"]) {
    for (const one of document.querySelectorAll(`[${name}]`)) for (const id of one.getAttribute(name).split(" ")) if (!document.getElementById(id)) wrong.push(`${name} of nothing: ${id}`);
  }
  for (const cell of document.querySelectorAll("th")) if (!cell.getAttribute("scope")) wrong.push(`th without scope: ${cell.textContent}`);
  for (const cell of document.querySelectorAll("th")) if (!cell.textContent.trim()) wrong.push(`th without text in ${cell.closest("table").textContent.slice(0, 60)}`);
  for (const one of document.querySelectorAll("img, svg:not([aria-hidden]):not([role])")) if (!one.closest("[role=img], [aria-hidden]")) wrong.push(`a picture without words: ${one.outerHTML.slice(0, 80)}`);
  if (document.querySelectorAll("h1").length !== 1) wrong.push("not one h1");
  if (!document.documentElement.lang) wrong.push("no language");
  return wrong;
}"""


@pytest.fixture(params=["light", "dark"])
def scheme(request):
    return request.param


def test_texts_stand_out_from_what_is_behind_them(opened, scheme):
    for query in (ISLANDS, "example=does-not-fit", f"{QUESTION}&tab=returns", f"{QUESTION}&tab=scenario"):
        page = opened(query, scheme=scheme)
        page.locator("[role=tabpanel]:not([hidden]) :is(.took, pre)").first.wait_for()
        assert page.evaluate(CONTRAST) == []


def test_problems_stand_out_too(opened, scheme):
    page = opened("model=lama-3.1-8b&gpus=63xH100-SXM5-80GB", scheme=scheme, refused=True)
    assert page.evaluate(CONTRAST) == []


def test_dark_is_the_systems_choice_and_a_turn_is_kept(opened):
    page = opened(QUESTION, scheme="dark")
    assert page.evaluate(LUMINANCE) < 0.1
    page.click("#theme")
    assert page.evaluate(LUMINANCE) > 0.9
    page.reload()
    page.wait_for_selector(ANSWERED)
    assert page.evaluate(LUMINANCE) > 0.9
    assert page.get_attribute("#theme", "aria-label") == "Show in dark colours"


@pytest.mark.parametrize("view", VIEWS)
def test_nothing_is_wider_than_a_narrow_screen(opened, view):
    more = {"doctor": "&measured=step_time=3 s", "transitions": "&x=bandwidth&y=H"}.get(view, "")
    page = opened(f"{ISLANDS}&tab={view}{more}", width=360, height=740)
    page.locator(f"#panel-{view} :is(.took, pre, #search-start)").first.wait_for(timeout=20_000)
    for plot in page.locator(".plot").all():
        plot.locator(".main-svg").first.wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    page.click("#asked > summary")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_a_narrow_screen_shows_the_answer_first(opened):
    page = opened(QUESTION, width=360, height=740)
    figure = page.locator("[data-figure-of=tokens_per_s] .big").bounding_box()
    assert figure["y"] + figure["height"] < 740


@pytest.mark.parametrize("view", VIEWS)
def test_everything_has_a_name(opened, view):
    more = {"doctor": "&measured=step_time=3 s"}.get(view, "")
    page = opened(f"{ISLANDS}&tab={view}{more}")
    page.locator(f"#panel-{view} :is(.took, pre, #search-start)").first.wait_for(timeout=20_000)
    assert page.evaluate(NAMES) == []


def _to(page, selector):
    """Press Tab until an element has the keyboard."""
    for _ in range(80):
        if page.evaluate("selector => document.activeElement.matches(selector)", selector):
            return
        page.keyboard.press("Tab")
    raise AssertionError(f"{selector} is not reached by Tab")


def _outlined(page):
    return page.evaluate(
        "getComputedStyle(document.activeElement).outlineStyle !== 'none' && parseFloat(getComputedStyle(document.activeElement).outlineWidth) >= 2"
    )


def test_all_is_done_by_keyboard(opened, until):
    page = opened(QUESTION)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    _to(page, "[data-key=model] input")
    assert _outlined(page)
    page.keyboard.press("Control+a")
    page.keyboard.type("llama 3.1 70b")
    page.wait_for_selector("[data-key=model] [role=option]")
    page.keyboard.press("ArrowDown")
    assert (
        page.evaluate(
            "document.getElementById(document.activeElement.getAttribute('aria-activedescendant')).dataset.name"
        )
        == "llama-3.1-70b"
    )
    page.keyboard.press("Enter")
    until(page, "document.getElementById('title').textContent.startsWith('llama-3.1-70b')")
    assert page.evaluate("document.activeElement.matches('[data-key=model] input')"), "the field keeps the keyboard"
    _to(page, "[data-slider='GPUs per island']")
    assert _outlined(page)
    page.keyboard.press("ArrowRight")
    until(page, "location.search.includes('gpus=128x')")
    page.wait_for_selector(ANSWERED)
    assert page.get_attribute("[data-slider='GPUs per island']", "aria-valuetext") == "128"
    _to(page, "[role=tab]")
    page.keyboard.press("End")
    page.wait_for_selector("#panel-scenario:not([hidden])")
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    page.wait_for_selector("#panel-plan:not([hidden])")
    assert _outlined(page)
    _to(page, "#search-start")


def test_escape_leaves_the_list_and_what_was_there(opened):
    page = opened(QUESTION)
    page.click("[data-key=model] input")
    page.keyboard.type("zzz")
    page.wait_for_selector("[data-key=model] .rest")
    page.keyboard.press("Escape")
    assert page.input_value("[data-key=model] input") == "llama-3.1-8b"
    assert page.locator("[data-key=model] .options").is_hidden()


def test_figures_are_read_aloud_once_they_rest(opened, until):
    page = opened(QUESTION)
    live = page.locator("#live")
    assert live.get_attribute("aria-live") == "polite"
    until(page, "document.getElementById('live').textContent.includes('tokens a second')")
    said = live.inner_text()
    page.locator("[data-slider='GPUs per island']").focus()
    page.keyboard.press("ArrowRight")
    until(page, "was => document.getElementById('live').textContent !== was", said)
    assert "limited by compute" in live.text_content()


def test_nothing_moves_for_who_wants_no_motion(opened):
    page = opened(QUESTION, reduced_motion="reduce")
    moving = page.evaluate(
        "[...document.querySelectorAll('*')].filter((one) => parseFloat(getComputedStyle(one).transitionDuration) > 0).length"
    )
    assert moving == 0


def test_a_print_is_the_answer_without_controls(opened):
    page = opened(QUESTION)
    page.emulate_media(media="print")
    for gone in ("#question", "#tabs", "header nav", "#sliders"):
        assert page.locator(gone).is_hidden()
    assert page.locator("#figures").is_visible()
    assert page.locator("#ledger-table").is_visible()
