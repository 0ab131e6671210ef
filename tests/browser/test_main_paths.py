"""What a person does with the page, in a real browser."""

from __future__ import annotations

import re
from typing import Any

import pytest

pytestmark = pytest.mark.browser
ANSWERED = "#answer:not(.empty):not(.stale):not([aria-busy])"
QUESTION = "model=llama-3.1-8b&gpus=64xH100-SXM5-80GB&plan=fsdp,recompute=selective&tokens=1T&price=$2.10/gpu/h"
ISLANDS = f"{QUESTION}&islands=3&bandwidth=10 Gbps&rtt=40 ms&method=diloco&sync_every=100&set=fleet.wan.default.egress=$0.02/GB"
TABS = (
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
SMALL = "model=llama-3.2-1b&gpus=8xH100-SXM5-80GB&plan=fsdp&global_batch=64&tokens=10B&price=$2/gpu/h"
LARGE = "model=llama-3.1-405b&gpus=4096xH100-SXM5-80GB&plan=fsdp&global_batch=4096&tokens=1T"
FIGURES = ("tokens_per_s", "tokens_per_s_per_gpu", "mfu", "wall_clock_s", "cost_usd")


def figures(page: Any) -> dict[str, str]:
    return {key: page.inner_text(f"[data-figure-of={key}] .big") for key in FIGURES}


def step(page: Any) -> str:
    return str(page.inner_text("#step-seconds"))


def test_a_fresh_page_says_how_long_how_much_and_what_limits_before_any_click(opened, asked):
    page = opened()
    shown, data = figures(page), asked(f"/api/predict?{QUESTION}")["data"]
    assert shown["tokens_per_s"] == f"{data['tokens_per_s']:,.0f}"
    assert shown["wall_clock_s"] == f"{data['run']['wall_clock_s'] / 86400:.3g} days"
    assert shown["cost_usd"] == f"${data['run']['cost_usd']:,.0f}"
    assert shown["mfu"] == f"{100 * data['mfu']:.1f} %"
    share = round(100 * data["bottleneck"]["cause_share"])
    assert page.inner_text("#bottleneck").replace("\xa0", " ").startswith(f"Compute limits it: {share} % of the step")
    assert page.inner_text("#fit") == f"Fits: {data['memory']['peak_gib']:.1f} of 80.0 GiB on the fullest GPU"


def test_another_model_is_answered_in_two_clicks(opened, until):
    page = opened()
    before = figures(page)
    page.click("[data-key=model] input")
    page.click("[role=option][data-name='llama-3.1-70b']")
    until(page, "document.getElementById('title').textContent.startsWith('llama-3.1-70b')")
    after = figures(page)
    assert all(after[key] != before[key] for key in FIGURES)
    assert "model=llama-3.1-70b" in page.url


def test_a_slower_network_of_nodes_is_chosen_and_taken_back(opened, until):
    page = opened()
    before = figures(page)
    field = page.get_by_label("Network of nodes")
    field.click()
    page.click("[role=option][data-name='ethernet-10g-tcp']")
    until(page, "document.getElementById('bottleneck').textContent.startsWith('The network inside the island')")
    assert "set=fleet.islands.0.fabric=ethernet-10g-tcp" in page.url
    assert figures(page)["wall_clock_s"] != before["wall_clock_s"]
    field.fill("")
    field.press("Tab")
    until(page, "document.getElementById('bottleneck').textContent.startsWith('Compute limits it')")
    assert "fabric" not in page.url
    assert figures(page) == before


def test_a_network_that_is_none_is_told_at_its_field(opened):
    page = opened(f"{QUESTION}&set=fleet.islands.0.fabric=ethernet-10g-tpc", refused=True)
    assert "ethernet-10g-tcp" in page.inner_text("[data-key='fleet.islands.0.fabric'] .problem")
    assert page.get_by_label("Network of nodes").get_attribute("aria-invalid") == "true"


def test_what_relieves_is_applied_by_its_button_and_taken_back_by_going_back(opened, until):
    page = opened(QUESTION)
    before = step(page)
    page.click("#relief button:text-is('recompute none')")
    until(page, "was => document.getElementById('step-seconds').textContent !== was", before)
    assert "plan=fsdp,recompute=none" in page.url
    assert page.input_value("[data-key=plan] input") == "fsdp,recompute=none"
    page.go_back()
    until(page, "was => document.getElementById('step-seconds').textContent === was", before)
    assert page.input_value("[data-key=plan] input") == "fsdp,recompute=selective"


def test_a_slider_is_one_step_of_the_history_however_far_it_is_drawn(opened, until):
    page = opened(ISLANDS)
    before, length = page.url, page.evaluate("history.length")
    slider = page.get_by_label("Islands", exact=True).and_(page.locator("input[type=range]"))
    slider.focus()
    for _ in range(4):
        page.keyboard.press("ArrowRight")
    page.wait_for_selector(ANSWERED)
    assert "islands=12" in page.url
    # every key rests the slider: each is a step; drawn with the mouse it is one
    assert page.evaluate("history.length") == length + 4
    box = slider.bounding_box()
    page.mouse.move(box["x"] + 40, box["y"] + box["height"] / 2)
    page.mouse.down()
    for share in (0.5, 0.7, 0.9):
        page.mouse.move(box["x"] + share * box["width"], box["y"] + box["height"] / 2, steps=3)
    page.mouse.up()
    assert page.evaluate("history.length") == length + 5
    page.wait_for_selector(ANSWERED)
    page.go_back()
    until(page, "location.search.includes('islands=12')")
    for _ in range(4):
        page.go_back()
    until(page, "was => location.href === was", before)
    page.wait_for_selector(ANSWERED)
    assert slider.get_attribute("aria-valuetext") == "3"


def test_a_plan_of_the_search_is_the_question_with_the_same_figures(opened, asked, until):
    page = opened(f"{SMALL}&tab=plan")
    page.click("#search-start")
    page.wait_for_selector("#search-result table .apply", timeout=60_000)
    rows = page.locator("#search-result table").first.locator("tbody tr").all_inner_texts()
    page.locator("#search-result .plot .point").first.wait_for()
    spots = page.locator("#search-result .plot .scatterlayer .point").all()
    spots[0].scroll_into_view_if_needed()
    best = max((spot.bounding_box() for spot in spots), key=lambda box: box["y"])  # the lowest: the shortest run
    page.mouse.click(best["x"] + best["width"] / 2, best["y"] + best["height"] / 2)
    until(page, "!location.search.includes('plan=fsdp&')")
    page.wait_for_selector(ANSWERED)
    assert page.evaluate("document.activeElement.id") == "answer"
    assert page.locator("#search-result table").first.is_visible(), "another plan may be taken after it"
    assert page.locator("#search-stale").is_hidden()
    # step and tokens/s of the row of that plan, as the prediction of its scenario says them
    assert [row for row in rows if step(page) in row and figures(page)["tokens_per_s"] in row]
    state = page.url.partition("?")[2].replace("&tab=plan", "")
    data = asked(f"/api/predict?{state}")["data"]
    assert f"{data['tokens_per_s']:,.0f}" == figures(page)["tokens_per_s"]


def test_a_search_is_gone_within_a_second_of_cancel(opened, asked, until):
    page = opened(f"{LARGE}&tab=plan")
    with page.expect_response("**/api/search") as started:
        page.click("#search-start")
    job = started.value.json()["job"]
    until(page, "/[1-9][\\d,]* (of|·)/.test(document.querySelector('#search-progress p').textContent)", seconds=30)
    took = page.evaluate(
        """async () => {
          const began = performance.now();
          document.getElementById('search-cancel').click();
          while (!document.getElementById('search-result').textContent.includes('Cancelled')) await new Promise(requestAnimationFrame);
          return performance.now() - began;
        }"""
    )
    assert took < 1000
    assert asked(f"/api/search/{job}")["state"] == "cancelled"
    assert page.locator("#search-start").is_enabled()
    assert page.locator("#search-cancel").is_hidden()


@pytest.mark.parametrize("tab", TABS)
def test_every_tab_answers_and_its_figures_have_tables(opened, tab):
    more = {"doctor": "&measured=tokens_per_s_per_gpu=6000", "transitions": "&x=bandwidth&y=H"}.get(tab, "")
    page = opened(f"{ISLANDS}&tab={tab}{more}")
    panel = page.locator(f"#panel-{tab}")
    done = {"plan": "#search-start", "scenario": "pre"}.get(tab, ".took")
    panel.locator(done).first.wait_for(timeout=20_000)
    assert panel.locator(".refusal").count() == 0
    assert panel.inner_text().strip()
    wanted = {"returns": 2, "transitions": 1, "sensitivity": 1, "doctor": 1, "trace": 1}.get(tab, 0)
    assert panel.locator("figure").count() >= wanted
    for figure in panel.locator("figure").all():
        figure.locator(".main-svg, .gantt").first.wait_for()
        figure.locator("summary").first.click()
        figure.locator("details table tbody tr").first.wait_for()
    for link in panel.locator("a.json").all():
        reply = page.request.get(link.evaluate("one => one.href"))
        assert reply.status == 200
        assert reply.json()["view"] == tab


def test_tabs_are_steps_of_the_history(opened):
    page = opened(QUESTION)
    page.click("#tab-returns")
    page.locator("#panel-returns .took").wait_for()
    page.click("#tab-trace")
    page.locator("#panel-trace .took").wait_for()
    page.go_back()
    page.wait_for_selector("#panel-returns:not([hidden])")
    page.go_back()
    page.wait_for_selector("#panel-predict:not([hidden])")
    assert "tab=" not in page.url


def test_a_wrong_field_is_told_at_the_field_and_its_way_out_is_a_button(opened):
    page = opened("model=lama-3.1-8b&gpus=63xH100-SXM5-80GB", refused=True)
    field = page.locator("[data-key=gpus]")
    assert "63 is no multiple of 8" in field.locator(".problem").inner_text()
    assert field.locator("input[aria-invalid=true]").count() == 1
    field.locator("button.way:text-is('64')").click()
    page.locator("[data-key=model] .problem button:text-is('llama-3.1-8b')").click()
    page.wait_for_selector(ANSWERED)
    assert re.search(r"model=llama-3.1-8b&gpus=64xH100-SXM5-80GB|gpus=64xH100-SXM5-80GB&model=llama-3.1-8b", page.url)
    assert page.locator("[aria-invalid=true]").count() == 0
    assert page.locator("#problems .refusal").count() == 0


def test_an_example_is_opened_changed_as_a_text_and_left_again(opened):
    page = opened(QUESTION)
    page.select_option("#examples", "does-not-fit")
    page.wait_for_selector("#fit.bad")
    page.click("#scenario-form summary")
    text = page.input_value("#scenario-text")
    assert "llama-3.1-70b" in text
    page.fill("#scenario-text", text.replace("llama-3.1-70b", "llama-3.2-1b"))
    page.click("#scenario-form button.main")
    page.wait_for_selector("#fit.good")
    assert "yaml=" in page.url
    page.reload()
    page.wait_for_selector("#fit.good")
    page.go_back()
    page.wait_for_selector("#fit.bad")
    page.click("#scenario-form button:text-is('Back to the form')")
    page.wait_for_selector("#fields fieldset")
    assert page.input_value("[data-key=model] input") == "llama-3.1-8b"


def test_a_text_of_a_scenario_is_shown_as_a_text(opened):
    page = opened(QUESTION)
    page.select_option("#examples", "does-not-fit")
    page.wait_for_selector("#fit.bad")
    page.click("#scenario-form summary")
    hostile = '<img src=x onerror="document.title=1">'
    page.fill("#scenario-text", f"name: '{hostile}'\nmodel: llama-3.2-1b\ngpus: 8xH100-SXM5-80GB\n")
    page.click("#scenario-form button.main")
    page.wait_for_selector("#fit.good")
    page.click("#tab-scenario")
    page.locator("#panel-scenario pre").wait_for()
    assert page.locator("img").count() == 0
    assert page.title().endswith("ShardMeter")


def test_downloads_are_files(opened):
    page = opened(f"{QUESTION}&tab=scenario")
    for name in ("scenario.yaml", "answer.json", "answer.csv"):
        with page.expect_download() as saved:
            page.locator(f"#panel-scenario a:text-is('{name}')").click()
        assert saved.value.suggested_filename == name
        assert saved.value.path().stat().st_size > 20
    page.select_option("#launch-format", "torchtitan")
    with page.expect_download() as saved:
        page.locator("#panel-scenario a:text-is('Download')").click()
    assert saved.value.path().stat().st_size > 100


def test_every_term_of_memory_has_a_colour_of_its_own(opened):
    page = opened(ISLANDS)
    colours = page.evaluate(
        "[...document.querySelectorAll('#memory-terms i')].map((one) => getComputedStyle(one).backgroundColor)"
    )
    assert len(colours) >= 8
    assert len(set(colours)) == len(colours)


def test_what_was_measured_is_named_in_words_and_nothing_asked_before_it_is_said(opened):
    page = opened(f"{QUESTION}&tab=doctor")
    names = page.locator("#panel-doctor select option").all_inner_texts()
    assert names[0] == "tokens/s per GPU"
    assert not [name for name in names if "_" in name or " per s" in name]
    assert page.locator("#panel-doctor a.json").count() == 0


def test_a_run_that_may_fit_against_the_estimate_is_told_its_chance(opened, asked):
    question = "model=qwen2.5-14b&gpus=16xH100-SXM5-80GB&plan=fsdp&seq=8192&global_batch=16"
    page, data = opened(question), asked(f"/api/predict?{question}")["data"]
    assert not data["fits"]
    assert page.inner_text("#fit").startswith(
        f"Does not fit by this estimate (a chance of {100 * data['fits_probability']:.1f} % that it does)"
    )


def test_how_plausible_a_cause_is_stands_in_view(opened, until):
    page = opened(f"{QUESTION}&tab=doctor")
    page.click("[role=tab]:has-text('Doctor')")
    field = page.locator("[role=tabpanel]:not([hidden]) input").first
    field.fill("3000")
    field.press("Enter")
    table = "[...document.querySelectorAll('.scroll')].find((one) => one.ariaLabel === 'What alone would explain it')"
    until(page, f"{table} !== undefined")
    assert page.evaluate(f"{table}.scrollWidth <= {table}.clientWidth + 1")
