// The deeper questions: what each asks besides the scenario, and how its answer is shown.

import { ask, once } from "./api.js";
import { combobox } from "./combobox.js";
import { copy, documentOf, section } from "./document.js";
import { byId, fill, fresh, h } from "./dom.js";
import { figureOf } from "./figure.js";
import { text } from "./format.js";
import { told, violationsOf } from "./refusal.js";
import { said, measured, question, turn } from "./state.js";
import { searchPanel } from "./search.js";
import { timelineOf } from "./timeline.js";

const FIELDS = [
  ["bandwidth", "between islands, or between nodes"], ["H", "steps between syncs"], ["fabric", "bandwidth between nodes"], ["nodes", "of every island"], ["islands", "how many"], ["rtt", "between islands"],
  ["plan.micro_batch", "sequences"], ["plan.tp", "degree"], ["plan.pp", "degree"], ["run.global_batch", "sequences"], ["run.seq_len", "tokens"],
].map(([name, says]) => ({ name, says }));
const AXES = [["gpus", "the nodes of every island"], ["islands", "how many"], ["fabric", "bandwidth between nodes"], ["wan", "bandwidth between islands"], ["run.global_batch", "sequences"], ["run.seq_len", "tokens"]].map(([name, says]) => ({ name, says }));
const ANSWERS = [["tokens_per_s", "throughput"], ["step_time_s", "time of a step"], ["mfu", "MFU"], ["memory.peak_gib", "memory peak"], ["run.wall_clock_s", "length of the run"], ["run.cost_usd", "cost of the run"],
  ["run.energy_kwh", "electricity of the run"]].map(([name, says]) => ({ name, says }));
const MEASURED = { tokens_per_s_per_gpu: "tokens/s per GPU", tokens_per_s: "tokens/s, all GPUs", step_time: "time of a step", mfu: "MFU", tflops_per_gpu: "TFLOP/s per GPU", its_per_s: "steps/s", samples_per_s: "samples/s",
  memory: "memory of a process", memory_reserved: "memory reserved", forward: "forward passes of a step", backward: "backward passes of a step" };

/** A text field of a view's word. */
function word(key, label, entries, placeholder = "") {
  const id = fresh("word");
  const input = h("input", { type: "text", id, placeholder, value: said(key) });
  const field = h("div", { class: "field" }, h("label", { for: id }, label), input);
  combobox(input, async () => entries, (value) => turn({ [key]: value }));
  return field;
}

function choice(key, label, words, names = {}) {
  const id = fresh("word");
  const made = h("select", { id }, words.map((one) => h("option", { value: one }, names[one] ?? one)));
  made.value = said(key) || words[0];
  made.addEventListener("change", () => turn({ [key]: made.value === words[0] ? "" : made.value }));
  return h("div", { class: "field" }, h("label", { for: id }, label), made);
}

/** What a person measured: a figure and its value, more than one if they like. */
function measurements() {
  const rows = (measured().length ? measured() : [""]).map((one) => one.split("="));
  const fields = rows.map(([name, value = ""]) => {
    const pick = h("select", { "aria-label": "what was measured" }, Object.entries(MEASURED).map(([one, says]) => h("option", { value: one }, says)));
    if (name && !(name in MEASURED)) pick.append(h("option", { value: name }, name));
    pick.value = name || Object.keys(MEASURED)[0];
    return [pick, h("input", { type: "text", value, placeholder: "6000, 2.4 s, 34 GiB, 45 %", "aria-label": "its value, with a unit" })];
  });
  const write = (more = []) => turn({ measured: [...fields.map(([pick, input]) => (input.value.trim() ? `${pick.value}=${input.value.trim()}` : "")), ...more] });
  return h("form", { class: "controls", onsubmit: (event) => { event.preventDefault(); write(); } },
    fields.map(([pick, input]) => h("span", { class: "pair" }, pick, input)),
    h("button", { type: "submit", class: "main" }, "Why?"),
    measured().length > 0 && measured().length < 4 && h("button", { type: "button", class: "quiet", onclick: () => write(["step_time="]) }, "Another figure"));
}

/** A plan of words: keys → what is said. */
const wordsOf = (...keys) => Object.fromEntries(keys.map((key) => [key, said(key)]));

export const VIEWS = [
  { id: "predict", label: "Breakdown", says: "" },
  { id: "plan", label: "Plan search", panel: searchPanel },
  { id: "returns", label: "Returns", says: "What more of one thing buys: throughput, days and dollars along an axis, and its knee.",
    controls: () => [word("axis", "Along", AXES, "gpus"), choice("scaling", "Global batch", ["", "strong", "weak"], { "": "as the question says", strong: "stays (strong scaling)", weak: "grows too (weak scaling)" })], words: () => wordsOf("axis", "scaling") },
  { id: "transitions", label: "Transitions", says: "Where another part of the machine takes over. Two axes make a map.",
    controls: () => [word("x", "Along", FIELDS, "the likeliest"), said("x") !== "" && word("y", "and along", FIELDS, "one axis only")], words: () => wordsOf("x", ...(said("x") ? ["y"] : [])) },
  { id: "sensitivity", label: "Sensitivity", says: "Every number of the question, by what a percent of it does to the answer.", controls: () => [word("of", "Of", ANSWERS, "throughput")], words: () => wordsOf("of") },
  { id: "tradeoffs", label: "Trade-offs", says: "Throughput against loss, memory and traffic, knob by knob." },
  { id: "doctor", label: "Doctor", says: "You measured something else? The single causes that would explain it, and what to measure next.", controls: () => [measurements()],
    words: () => ({ measured: measured() }), idle: () => measured().length === 0 },
  { id: "trace", label: "Timeline", says: "One step, task by task; of several islands, rounds: who waits for whom.", extra: (answer) => answer.timeline && timelineOf(answer.timeline) },
  { id: "explain", label: "Formulas", says: "Every formula that was called, with its numbers and its source.", controls: () => [word("term", "Of the term", terms, "all")], words: () => wordsOf("term") },
  { id: "scenario", label: "Scenario", panel: scenarioPanel },
];

let terms = [];
let yaml = "";
let running = null;
const shownFor = new Map();

/** What the last prediction tells the views: its terms, its scenario. */
export function learn(answer) {
  terms = answer.data.ledger.map((one) => ({ name: one.term, says: one.cause }));
  yaml = answer.scenario_yaml;
  if (!byId("panel-scenario").hidden) scenarioPanel(byId("panel-scenario"));
}

/** A scenario as a file, the answer as data, the launch config of a trainer. */
async function scenarioPanel(panel) {
  const { formats, svg } = await once("schema");
  const query = question();
  const format = h("select", { id: "launch-format" }, formats.map((one) => h("option", { value: one.name }, one.name)));
  const launch = h("a", { class: "button", href: `/download/launch?format=${formats[0].name}&${query}`, download: "" }, "Download");
  format.addEventListener("change", () => (launch.href = `/download/launch?format=${format.value}&${query}`));
  const figures = svg ? ["ledger", "memory"].map((slug) => h("a", { class: "button", href: `/download/figure-${slug}.svg?${query}`, download: "" }, `${slug}.svg`)) : [];
  fill(panel, h("p", { class: "says" }, "The question as a file, the answer as data, and the configuration of your trainer or launcher."),
    h("div", { class: "controls" }, h("a", { class: "button", href: `/download/scenario.yaml?${query}`, download: "" }, "scenario.yaml"), h("a", { class: "button", href: `/download/answer.json?${query}`, download: "" }, "answer.json"),
      h("a", { class: "button", href: `/download/answer.csv?${query}`, download: "" }, "answer.csv"), figures),
    h("div", { class: "controls" }, h("div", { class: "field" }, h("label", { for: "launch-format" }, "Configuration for"), format), launch),
    yaml && section({ kind: "verbatim", title: "The scenario", lines: yaml.trimEnd().split("\n") }));
}

/** What keeps a view from an answer, with ways out. */
export function problem(error) {
  return h("div", { class: "refusal", role: "alert" }, h("ul", null, violationsOf(error).map((one) => h("li", null, one.field && h("code", null, one.field), " ", told(one)))));
}

function jsonLink(view, query) {
  return h("a", { class: "json", href: `/api/${view.id}?${query}`, target: "_blank", rel: "noopener" }, "This as JSON");
}

function shell(panel, view, query, ...body) {
  const controls = view.controls?.().filter(Boolean);
  fill(panel, view.says && h("p", { class: "says" }, view.says), controls?.length > 0 && h("div", { class: "controls" }, controls), ...body, !view.idle?.() && jsonLink(view, query));
}

/** The answer of a view as it stands in its panel. */
export function answered(view, answer, query) {
  const figures = view.id === "predict" ? [] : answer.figures;
  const file = (one) => `/download/figure-${one.slug}.svg?${query}&view=${view.id}`;
  const [verdict, ...sections] = documentOf(answer.document);
  return [verdict, view.extra?.(answer), ...figures.map((one) => figureOf(one, { file: file(one) })), ...sections, h("p", { class: "took" }, answer.cached ? "Remembered from before." : `Answered in ${text(answer.took_s, "s")}.`)];
}

/** Show a view, asking only where the question has changed since. */
export async function showView(view) {
  const panel = byId(`panel-${view.id}`);
  if (view.panel) return view.panel(panel);
  if (view.id === "predict") return undefined;
  const query = question(view.words?.() ?? {});
  if (shownFor.get(view.id) === query) return undefined;
  running?.abort();
  if (view.idle?.()) return shell(panel, view, query);
  const mine = (running = new AbortController());
  shell(panel, view, query, h("p", { class: "wait", role: "status" }, "Asking…"));
  panel.setAttribute("aria-busy", "true");
  try {
    const answer = await ask(view.id, query, mine.signal);
    shell(panel, view, query, answered(view, answer, query));
    shownFor.set(view.id, query);
  } catch (error) {
    if (error.name === "AbortError") return undefined;
    shell(panel, view, query, problem(error));
  } finally {
    if (running === mine) panel.removeAttribute("aria-busy");
  }
  return undefined;
}

/** The breakdown: the page that `predict` prints, without what stands above. */
export function showBreakdown(answer) {
  const view = VIEWS[0];
  const rest = { ...answer.document, verdict: "", sections: answer.document.sections.filter((one) => !/^(Where a step goes|Bottleneck|Speed|What would (relieve|make))/.test(one.title)) };
  shell(byId("panel-predict"), view, question(), answered(view, { ...answer, document: rest }, question()));
}

export { copy };
