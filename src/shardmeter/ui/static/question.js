// The question: model, GPUs, islands, plan, stack, run. Every field writes its key of the address; nothing else is kept.

import { once, packed } from "./api.js";
import { combobox } from "./combobox.js";
import { byId, fill, fresh, h } from "./dom.js";
import { get, head, put } from "./plan_line.js";
import { brief, placeOf, told, violationsOf } from "./refusal.js";
import { become, commit, islandsOf, overrides, said, valueOf, whole } from "./state.js";

const FABRIC = "fleet.islands.0.fabric";
const RECOMPUTES = ["", "none", "selective", "full"];
const inputs = new Map();
let schema = new Map();
let choices = {};

/** Names of a catalog with their lines. */
const catalog = (kind) => async () => (await once(`catalog?kind=${kind}`)).rows.map((one) => ({ name: one.name, says: one.line, aliases: one.aliases }));

/** A labelled field: the label, its help, room for what is wrong. */
function wrapped(key, input, { label, help } = {}) {
  const about = schema.get(key) ?? {};
  const id = fresh("field");
  const problem = h("p", { class: "problem", id: `${id}-problem`, hidden: true });
  const hint = help ?? about.help;
  input.id = id;
  if (hint) input.title = hint;
  if (about.placeholder && !input.placeholder) input.placeholder = about.placeholder;
  inputs.set(key, { input, problem });
  return h("div", { class: "field", "data-key": key },
    h("label", { for: id }, label ?? about.label ?? key), input, problem);
}

/** A plain text field of one key. */
function plain(key, more = {}) {
  const input = h("input", { type: "text", autocomplete: "off", spellcheck: "false", inputmode: more.inputmode });
  input.addEventListener("change", () => commit({ [key]: input.value.trim() }));
  return wrapped(key, input, more);
}

/** A text field of the scenario that has no key of its own; with names to choose from, where it takes one of a kind of the catalog. */
function override(path, label, placeholder, { kind, help } = {}) {
  const input = h("input", { type: "text", autocomplete: "off", spellcheck: "false", placeholder });
  const others = () => overrides().filter((one) => !one.startsWith(`${path}=`));
  const write = () => commit({ set: input.value.trim() ? [...others(), `${path}=${input.value.trim()}`] : others() });
  const field = wrapped(path, input, { label, help });
  if (kind) combobox(input, catalog(kind), write);
  else input.addEventListener("change", write);
  inputs.get(path).show = () => document.activeElement !== input && (input.value = valueOf(path));
  return field;
}

function chosen(key, kind, more = {}) {
  const input = h("input", { type: "text" });
  const field = wrapped(key, input, more);
  combobox(input, catalog(kind), (value) => commit({ [key]: value }));
  return field;
}

/** `64xH100-SXM5-80GB` as a count and a name. */
const parted = (gpus) => /^(\d+)\s*x\s*(.*)$/.exec(gpus)?.slice(1) ?? ["", gpus];

function gpus() {
  const count = h("input", { type: "text", inputmode: "numeric", autocomplete: "off", "aria-label": "number of GPUs per island" });
  const name = h("input", { type: "text" });
  const field = wrapped("gpus", name, { label: "GPUs" });
  const write = () => commit({ gpus: count.value.trim() ? `${count.value.trim()}x${name.value.trim()}` : name.value.trim() });
  count.addEventListener("change", write);
  const box = combobox(name, catalog("accelerators"), write);
  const pair = h("span", { class: "pair" });
  box.replaceWith(pair);
  pair.append(count, h("span", { "aria-hidden": "true" }, "×"), box);
  inputs.get("gpus").show = () => ([count.value, name.value] = parted(said("gpus")));
  return field;
}

function islands() {
  const box = h("input", { type: "checkbox", id: "several" });
  const more = h("div", { class: "grid two", id: "over-islands" },
    plain("islands", { label: "Islands", inputmode: "numeric" }), plain("bandwidth", { label: "Bandwidth between" }), plain("rtt", { label: "Round trip" }),
    override("fleet.wan.default.egress", "Price of traffic", "$0.02/GB"), method(), plain("sync_every", { label: "Steps a sync (H)", inputmode: "numeric" }));
  box.addEventListener("change", () => commit(islandsOf(box.checked ? 2 : 1)));
  inputs.set("several", { show: () => {
    box.checked = said("islands") !== "";
    more.hidden = !box.checked;
  } });
  return [h("label", { class: "check", for: "several" }, box, "Several islands, over a wide-area network"), more];
}

/** A choice of words, with one that is not among them kept as it is. */
function select(words, names = {}) {
  const made = h("select", null, words.map((word) => h("option", { value: word }, names[word] ?? word)));
  return [made, (value) => {
    if (![...made.options].some((one) => one.value === value)) made.append(h("option", { value }, value));
    made.value = value;
  }];
}

function method() {
  const words = choices.methods ?? [];
  const [made, show] = select(words);
  const field = wrapped("method", made, { label: "Kept together by" });
  made.addEventListener("change", () => commit({ method: made.value }));
  inputs.get("method").show = () => show(said("method") || words[0]);
  return field;
}

function plan() {
  const line = h("input", { type: "text", autocomplete: "off", spellcheck: "false" });
  const field = wrapped("plan", line, { label: "Plan in one line" });
  line.addEventListener("change", () => commit({ plan: line.value.trim() }));
  const [sharding, showSharding] = select(choices.plans ?? [], { auto: "auto: the best there is" });
  const [recompute, showRecompute] = select(RECOMPUTES, { "": "as usual" });
  const turn = (key, value) => commit({ plan: put(said("plan") || "fsdp", key, value) });
  sharding.addEventListener("change", () => turn("sharding", sharding.value));
  recompute.addEventListener("change", () => turn("recompute", recompute.value));
  const degrees = ["tp", "pp", "cp"].map((key) => {
    const input = h("input", { type: "text", inputmode: "numeric", autocomplete: "off", placeholder: "1" });
    input.addEventListener("change", () => turn(key, input.value.trim()));
    return [key, input];
  });
  inputs.get("plan").show = () => {
    const now = said("plan") || "fsdp";
    line.value = now;
    showSharding(head(now));
    showRecompute(get(now, "recompute"));
    for (const [key, input] of degrees) input.value = get(now, key);
  };
  const small = (label, input, title) => {
    input.id = fresh("field");
    input.title = title;
    return h("div", { class: "field" }, h("label", { for: input.id }, label), input);
  };
  const names = { tp: "tensor-parallel degree", pp: "pipeline stages", cp: "context-parallel degree" };
  return [
    h("div", { class: "grid two" }, small("Sharding", sharding, "how parameters, gradients and optimizer state are spread"), small("Recompute", recompute, "which activations are computed again in the backward")),
    h("div", { class: "grid four" }, degrees.map(([key, input]) => small(key, input, names[key])), plain("micro_batch", { label: "micro-batch", inputmode: "numeric" })),
    field,
  ];
}

/** Overrides as chips, each with a button that takes it back. */
function chips() {
  const list = overrides().filter((one) => !inputs.has(one.slice(0, one.indexOf("="))));
  byId("chips").hidden = !list.length;
  fill(byId("chips"), list.length > 0 && h("p", { class: "label" }, "Besides"), h("ul", null, list.map((one) =>
    h("li", null, h("code", { title: one }, one.length > 60 ? `${one.slice(0, 58)}…` : one),
      h("button", { type: "button", class: "quiet", "aria-label": `Take back ${one}`, onclick: () => commit({ set: overrides().filter((other) => other !== one) }) }, "×")))));
}

/** The form of a whole scenario: its name, and its text to edit. */
function scenarioForm() {
  const area = h("textarea", { id: "scenario-text", rows: "18", spellcheck: "false", "aria-describedby": "scenario-problem" });
  const use = h("button", { type: "button", class: "main", onclick: async () => become(`yaml=${await packed(area.value)}`) }, "Ask this");
  inputs.set("yaml", { input: area, problem: h("p", { class: "problem", id: "scenario-problem", hidden: true }) });
  return h("div", { id: "scenario-form", hidden: true },
    h("p", { class: "label", id: "scenario-name" }),
    h("details", null, h("summary", null, "The scenario as a text, to change"), h("label", { for: "scenario-text", class: "unseen" }, "Scenario as YAML"), area, inputs.get("yaml").problem, use),
    h("button", { type: "button", class: "quiet", onclick: () => become("") }, "Back to the form"));
}

/** Show the text of the answered scenario, unless a person is editing it. */
export function showScenario(text) {
  const area = byId("scenario-text");
  if (area && document.activeElement !== area) area.value = text ?? "";
}

/** Put the address into the fields. */
export function showQuestion() {
  const all = whole();
  byId("fields").hidden = all;
  byId("scenario-form").hidden = !all;
  byId("scenario-name").textContent = said("example") ? `Example: ${said("example")}` : "A scenario of your own";
  for (const [key, { input, show }] of inputs) {
    if (show) show();
    else if (input && key !== "yaml" && document.activeElement !== input) input.value = said(key);
  }
  chips();
}

/** Say at each field what is wrong with it; what has no field is returned. */
export function showProblems(error) {
  const left = [];
  const at = new Map();
  for (const violation of error ? violationsOf(error) : []) {
    const key = whole() ? "yaml" : placeOf(violation);
    if (inputs.get(key)?.problem) at.set(key, [...(at.get(key) ?? []), violation]);
    else left.push(violation);
  }
  for (const [key, { input, problem }] of inputs) {
    if (!problem) continue;
    const found = at.get(key);
    problem.hidden = !found;
    fill(problem, found?.map(told) ?? []);
    if (found) {
      input.setAttribute("aria-invalid", "true");
      input.setAttribute("aria-describedby", problem.id);
    } else {
      input.removeAttribute("aria-invalid");
      input.removeAttribute("aria-describedby");
    }
  }
  if (at.has("yaml")) byId("scenario-form").querySelector("details").open = true;
  return { left, marked: [...at].flatMap(([key, found]) => found.map((one) => ({ key, label: byId("question").querySelector(`[data-key="${key}"] label`)?.textContent ?? "Scenario", says: brief(one) }))) };
}

/** Put the keyboard into the field of a key. */
export function focusField(key) {
  byId("asked").open = true;
  const text = byId("scenario-text");
  if (whole()) text.closest("details").open = true;
  (whole() ? text : inputs.get(key)?.input)?.focus();
}

/** Build the form from the server's description of its fields; on a narrow screen it is folded, so that the answer comes first. */
export async function startQuestion() {
  const wide = matchMedia("(min-width: 821px)");
  const fold = () => (byId("asked").open = wide.matches);
  wide.addEventListener("change", fold);
  fold();
  const described = await once("schema");
  schema = new Map(described.fields.map((one) => [one.key, one]));
  choices = described.choices;
  fill(byId("fields"),
    h("fieldset", null, h("legend", null, "What is trained"), chosen("model", "models", { label: "Model" })),
    h("fieldset", null, h("legend", null, "On what"), gpus(), h("div", { class: "grid two" },
      plain("price", { label: "Price" }),
      override(FABRIC, "Network of nodes", "as usual", { kind: "fabrics", help: "What joins nodes inside an island; left out, what these GPUs usually have." })), islands()),
    h("fieldset", null, h("legend", null, "How it is laid out"), plan(), chosen("stack", "stacks", { label: "Software" })),
    h("fieldset", null, h("legend", null, "The run"), h("div", { class: "grid two" },
      plain("tokens", { label: "Tokens" }), plain("global_batch", { label: "Global batch" }), plain("seq", { label: "Sequence" }),
      plain("deadline", { label: "Deadline" }), plain("budget", { label: "Budget" }))));
  byId("asked").append(scenarioForm(), h("div", { id: "chips", hidden: true }));
  showQuestion();
}
