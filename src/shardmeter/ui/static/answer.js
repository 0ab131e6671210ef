// The answer at a glance: figures, memory against its limit, what holds the step back, where it goes. Made once, then only written into.

import { byId, fill, h, settled, write } from "./dom.js";
import { MISSING, between, duration, fixed, number, text } from "./format.js";
import { focusField } from "./question.js";
import { override, said, whole } from "./state.js";

const rate = (value) => (value === null || value === undefined ? MISSING : number(value));
const FIGURES = [
  { key: "tokens_per_s", name: "Throughput", unit: "tokens/s", show: (of) => rate(of.tokens_per_s), range: (of) => between(of.intervals?.tokens_per_s) },
  { key: "tokens_per_s_per_gpu", name: "Per GPU", unit: "tokens/s", show: (of) => rate(of.tokens_per_s_per_gpu), range: (of) => (of.gpus ? `${number(of.gpus)} GPUs` : "") },
  { key: "mfu", name: "MFU", unit: "", show: (of) => text(of.mfu, "%"), range: (of) => (of.step_time_s ? `step ${text(of.step_time_s, "s")}` : "") },
  { key: "wall_clock_s", name: "Duration", unit: "", show: (of) => duration(of.wall_clock_s), range: (of) => between(of.intervals?.wall_clock_s, "s"), needs: ["tokens", "Say how many tokens"] },
  { key: "cost_usd", name: "Cost", unit: "", show: (of) => text(of.cost_usd, "USD"), range: (of) => between(of.intervals?.cost_usd, "USD"), needs: ["price", "Say a price"] },
];

/** Shades of the bar; a term beyond them begins anew. */
const TINTS = 10;
const parts = {};

function startFigures() {
  fill(byId("figures"), FIGURES.map((one) => {
    const value = h("span", { class: "big" });
    const range = h("dd", { class: "range" });
    const need = one.needs && h("button", { type: "button", class: "way", hidden: true, onclick: (event) => focusField(event.currentTarget.dataset.field) });
    parts[one.key] = { value, range, need };
    return h("div", { "data-figure-of": one.key }, h("dt", null, one.name, one.unit && h("span", { class: "of" }, one.unit)), h("dd", null, value), range, need && h("dd", { class: "need" }, need));
  }));
}

function showFigures(of) {
  for (const one of FIGURES) {
    const { value, range, need } = parts[one.key];
    write(value, one.show(of));
    write(range, one.range(of));
    if (!need) continue;
    const known = (key) => of[key] !== null && of[key] !== undefined;
    need.hidden = known(one.key);
    const missing = one.key === "cost_usd" && known("wall_clock_s") && of.islands > 1 && (said("price") !== "" || whole()) ? ["fleet.wan.default.egress", "Say what traffic costs"] : one.needs;
    write(need, missing[1]);
    need.dataset.field = missing[0];
  }
}

/** What is said of the memory, from the figures alone. */
function fit(of) {
  const size = `${fixed(of.peak_gib, 1)} of ${fixed(of.limit_gib, 1)} GiB on the fullest GPU`;
  const near = of.fits_probability > 0.1 && of.fits_probability < 0.9;
  if (near && Math.abs(of.peak_gib - of.limit_gib) <= 0.1 * of.limit_gib) return ["unsure", `Borderline: ${size}, ${text(of.fits_probability, "%")} likely to fit`];
  if (of.fits) return ["good", `Fits: ${size}`];
  return ["bad", near ? `Does not fit by this estimate (a chance of ${text(of.fits_probability, "%")} that it does): ${size}` : `Does not fit: ${size}`];
}

function showMemory(of) {
  const [state, said] = fit(of);
  byId("fit").className = `fit ${state}`;
  write(byId("fit"), said);
  const end = Math.max(of.limit_gib, of.peak_gib, of.intervals?.memory_peak_gib?.[1] ?? 0) * 1.02;
  const share = (gib) => `${((100 * gib) / end).toFixed(3)}%`;
  const terms = of.memory.filter((one) => one.gib > 0.005);
  const bar = byId("memory-bar");
  const names = terms.map((one) => one.term).join();
  if (bar.dataset.terms !== names) {
    bar.dataset.terms = names;
    fill(bar, terms.map((_, at) => h("span", { class: `term tint-${at % TINTS}` })), h("span", { class: "over" }), h("span", { class: "limit" }), h("span", { class: "whisker" }));
    fill(byId("memory-terms"), terms.map((one, at) => h("li", null, h("i", { class: `tint-${at % TINTS}`, "aria-hidden": "true" }), h("span", null, one.term), h("b", null))));
  }
  terms.forEach((one, at) => {
    const size = text(one.gib, "GiB");
    bar.children[at].style.width = share(one.gib);
    bar.children[at].title = `${one.term}: ${size}`;
    write(byId("memory-terms").children[at].lastElementChild, size);
  });
  bar.setAttribute("aria-label", said);
  const limit = bar.querySelector(".limit");
  const whisker = bar.querySelector(".whisker");
  limit.style.left = share(of.limit_gib);
  Object.assign(bar.querySelector(".over").style, { left: share(of.limit_gib), width: share(Math.max(0, of.peak_gib - of.limit_gib)) });
  limit.title = `limit ${text(of.limit_gib, "GiB")}`;
  const range = of.intervals?.memory_peak_gib;
  whisker.hidden = !range;
  if (range) Object.assign(whisker.style, { left: share(range[0]), width: share(range[1] - range[0]) });
  write(byId("memory-scale"), range ? `limit ${text(of.limit_gib, "GiB")} · 90 %: ${between(range, "GiB")}` : `limit ${text(of.limit_gib, "GiB")}`);
}

const CAUSES = { compute: "Compute", "memory bandwidth": "Memory bandwidth", fabric: "The network inside the island", "scale-up link": "The links inside a node", "wide-area link": "The lines between islands" };

function showBottleneck(of) {
  const it = of.bottleneck;
  if (!it) return;
  const cause = CAUSES[it.cause] ?? `${it.cause.charAt(0).toUpperCase()}${it.cause.slice(1)}`;
  const share = fixed(100 * (it.cause_share ?? it.share), 0);
  const made = (it.cause_terms ?? []).map((one) => `${one.term} ${fixed(100 * one.share, 0)} %`).join(", ");
  write(byId("bottleneck"), `${cause} limits it: ${share} % of the step${made ? ` (${made})` : ""}.`.replaceAll(" %", "\u00a0%"));
  if (it.relief === undefined) return byId("relief").classList.add("stale");
  byId("relief").classList.remove("stale");
  const ways = of.fits ? [] : (of.way_out ?? []);
  const worth = it.relief.filter((one) => one.gain >= 0.01 && one.fits);
  const some = [["set", 4], ["bought", 1], ["supposed", 1]].flatMap(([reach, most]) => worth.filter((one) => one.reach === reach).slice(0, most));
  fill(byId("relief"),
    ways.length > 0 && [h("p", { class: "label" }, "What would make it fit: one change each"), h("ul", null, ways.slice(0, 5).map(relief))],
    !of.fits ? ways.length === 0 && h("p", { class: "label" }, "No single change that was tried makes it fit.") : some.length ? [h("p", { class: "label" }, "What would make it faster: one change each, of the step's time, and the memory then"), h("ul", null, some.map(relief))]
      : h("p", { class: "label" }, "No single change that was tried makes it faster."));
}

/** Apply a change; its button goes, so the keyboard is put where the answer begins. */
function apply(sets) {
  override(sets);
  byId("answer").focus({ preventScroll: true });
}

function relief(one) {
  const gain = one.gain >= 0 ? `saves ${text(one.gain, "%")}` : `takes ${text(-one.gain, "%")} more`;
  const fits = one.fits === false ? "does not fit" : text(one.memory_peak_gib, "GiB");
  const name = one.set?.length ? h("button", { type: "button", class: "apply", onclick: () => apply(one.set) }, one.change) : h("span", { class: "plainly" }, one.change);
  return h("li", null, name, h("span", { class: "gain" }, gain), h("span", { class: one.fits === false ? "note bad" : "note" }, fits),
    one.reach in HAD && h("span", { class: "had" }, HAD[one.reach]));
}

const HAD = { bought: "has to be bought", supposed: "only supposed: nobody sells it alone" };
const rows = new Map();

/** Where a step goes: every term from where the one before ended; those of the ruling cause in the accent. */
function showLedger(of) {
  const body = byId("ledger");
  const terms = of.ledger.filter((one) => one.share >= 5e-5 || (one.hidden_seconds ?? 0) > 1e-6);
  const most = Math.max(of.step_time_s ?? 0, of.intervals?.step_time_s?.[1] ?? 0) || terms.reduce((all, one) => all + one.seconds, 0);
  const names = terms.map((one) => one.term);
  if (names.join() !== [...rows.keys()].join()) {
    rows.clear();
    fill(body, terms.map((one) => {
      const bar = h("span");
      const cells = { bar, seconds: h("td", { class: "num" }), share: h("td", { class: "num" }), hidden: h("td", { class: "num hid" }), row: null };
      cells.row = h("tr", null, h("th", { scope: "row" }, one.term), h("td", { class: "fall", "aria-hidden": "true" }, bar), cells.seconds, cells.share, cells.hidden);
      rows.set(one.term, cells);
      return cells.row;
    }));
  }
  let at = 0;
  for (const one of terms) {
    const cells = rows.get(one.term);
    Object.assign(cells.bar.style, { left: `${((100 * at) / most).toFixed(3)}%`, width: `${((100 * one.seconds) / most).toFixed(3)}%` });
    cells.bar.classList.toggle("ruling", one.cause === of.bottleneck?.cause);
    cells.row.title = one.cause;
    write(cells.seconds, text(one.seconds, "s"));
    write(cells.share, text(one.share, "%"));
    write(cells.hidden, one.hidden_seconds > 1e-6 ? text(one.hidden_seconds, "s") : "");
    at += one.seconds;
  }
  showTotal(of, at, most);
}

function showTotal(of, sum, most) {
  const range = of.intervals?.step_time_s;
  write(byId("step-seconds"), text(of.step_time_s ?? sum, "s"));
  write(byId("step-range"), `${range ? `A step takes ${between(range, "s")} in nine runs of ten. ` : ""}In colour: what limits it. Hidden: behind compute, at no cost.`);
  byId("step-bar").style.width = `${((100 * sum) / most).toFixed(3)}%`;
  const whisker = byId("step-whisker");
  whisker.hidden = !range;
  if (range) Object.assign(whisker.style, { left: `${(100 * range[0]) / most}%`, width: `${(100 * (range[1] - range[0])) / most}%` });
}

const announce = settled(700, (of) => {
  const said = [fit(of)[1], of.tokens_per_s ? `${rate(of.tokens_per_s)} tokens a second` : "", of.wall_clock_s ? duration(of.wall_clock_s) : "", of.cost_usd ? text(of.cost_usd, "USD") : "",
    of.bottleneck ? `limited by ${of.bottleneck.cause}` : ""];
  write(byId("live"), `${said.filter(Boolean).join(", ")}.`);
});

/** Write numbers (of `numbers`, or of a whole prediction) into the page. */
export function showNumbers(of) {
  byId("answer").classList.remove("stale", "empty");
  showFigures(of);
  showMemory(of);
  showBottleneck(of);
  showLedger(of);
  announce(of);
}

/** A prediction's JSON as the figures that are shown. */
export const figuresOf = (data) => ({
  ...data, ...data.run, peak_gib: data.memory.peak_gib, limit_gib: data.memory.limit_gib, memory: data.memory.terms, islands: data.islands.length, period: data.sync?.period_steps ?? null,
  batch: data.samples_per_s && data.step_time_s ? Math.round(data.samples_per_s * data.step_time_s) : null,
});

/** What stands is of another question than the one asked. */
export const staleAnswer = () => byId("answer").classList.add("stale");

export const startAnswer = startFigures;
