// The question is the page's address: every change is written there first, and everything shown follows from it.

import { get, head, put } from "./plan_line.js";

/** Keys that belong to the page or to one view; all others are the scenario's. */
const OF_PAGE = ["tab", "objective", "axis", "over", "scaling", "x", "y", "of", "measured", "term"];
/** What a page without a question starts with. */
const START = "model=llama-3.1-8b&gpus=64xH100-SXM5-80GB&plan=fsdp,recompute=selective&tokens=1T&price=$2.10/gpu/h";
/** Fields of a scenario that have a key of their own. */
const KEYS = {
  "plan.micro_batch": "micro_batch",
  "plan.sync.method": "method",
  "plan.sync.sync_every": "sync_every",
  "run.seq_len": "seq",
  "run.global_batch": "global_batch",
  "run.tokens": "tokens",
  "run.deadline": "deadline",
  "run.budget": "budget",
  "fleet.wan.default.bandwidth": "bandwidth",
  "fleet.wan.default.rtt": "rtt",
};
const OVER_ISLANDS = ["method", "sync_every", "bandwidth", "rtt"];
const EGRESS = "fleet.wan.default.egress";
/** What islands are joined by until a person says otherwise; what was said last is kept for going through one island and back. */
let joined = { bandwidth: "10 Gbps", rtt: "40 ms", method: "diloco", sync_every: "100", egress: "$0.02/GB" };

const listeners = [];
let params = new URLSearchParams();
let sliding = false;

/** Call with (what changed: `question`, `page` or `slide`) after every change. */
export const onState = (call) => listeners.push(call);

/** The text of one key, "" where it is not said. */
export const said = (key) => params.get(key) ?? "";
/** Overrides, `a.b=VALUE` each. */
export const overrides = () => params.getAll("set");
export const measured = () => params.getAll("measured");
/** Whether the question is a whole scenario (a text or an example) rather than the form's fields. */
export const whole = () => params.has("yaml") || params.has("example");

/** A query string that people can read: only what would be misread is escaped. */
function readable(from) {
  return from.toString().replace(/%(2C|24|2F|3A|3D|40|5B|5D|7B|7D)/g, (all, code) =>
    code === "3D" ? "=" : String.fromCharCode(parseInt(code, 16)));
}

/** The scenario's part as a query string, with what a view wants besides. */
export function question(more = {}) {
  const made = new URLSearchParams([...params].filter(([key]) => !OF_PAGE.includes(key)));
  for (const [key, value] of Object.entries(more)) {
    for (const one of [value].flat()) if (one !== "" && one !== null && one !== undefined) made.append(key, one);
  }
  return readable(made);
}

/** The address of this page with this question. */
export const address = () => `${location.origin}/?${readable(params)}`;

function write(next, how) {
  const text = readable(next);
  if (text === readable(params) && how !== "replace") return false;
  params = next;
  history[how === "push" ? "pushState" : "replaceState"](null, "", `/?${text}`);
  return true;
}

const tell = (what) => listeners.forEach((call) => call(what));

function changed(changes) {
  const next = new URLSearchParams(params);
  for (const [key, value] of Object.entries(changes)) {
    next.delete(key);
    for (const one of [value].flat()) if (one !== "" && one !== null && one !== undefined) next.append(key, one);
  }
  return next;
}

/** Change keys: a new entry of the browser's history. */
export function commit(changes) {
  if (write(changed(changes), "push")) tell("question");
}

/** Change keys of the page or of a view: also an entry, but the answer stays. */
export function turn(changes) {
  if (write(changed(changes), "push")) tell("page");
}

/** Change keys while a slider moves: one entry for the whole move, so that back undoes it. */
export function slide(changes) {
  const how = sliding ? "replace" : "push";
  sliding = true;
  if (write(changed(changes), how)) tell("slide");
}

/** The slider rests. */
export function rest() {
  if (!sliding) return;
  sliding = false;
  tell("question");
}

/** Another question altogether (an example, a found plan; "" is the one that a fresh page has); the tab stays unless it is said. */
export function become(query, tab = said("tab")) {
  const next = new URLSearchParams(query || START);
  if (tab) next.set("tab", tab);
  if (write(next, "push")) tell("question");
}

/** What changes of keys some overrides (`a.b=VALUE`) amount to: where the form has a field, the field changes. */
export function folded(sets) {
  const changes = {};
  let line = said("plan") || "fsdp";
  let list = overrides();
  const several = Number(said("islands")) > 1;
  for (const one of sets) {
    const [path, value] = [one.slice(0, one.indexOf("=")), one.slice(one.indexOf("=") + 1)];
    const key = KEYS[path];
    const simple = /^[\w.+-]+$/.test(value);
    list = list.filter((other) => other.slice(0, other.indexOf("=")) !== path);
    if (whole()) list.push(one);
    else if (key && (several || !OVER_ISLANDS.includes(key))) changes[key] = value;
    else if (path.startsWith("plan.") && simple && !path.startsWith("plan.sync.")) line = put(line, path.slice(5), value);
    else list.push(one);
  }
  return { ...changes, set: list, ...(whole() || line === (said("plan") || "fsdp") ? {} : { plan: line }) };
}

/** The changes that make it so many islands: the lines between them are said with the second one, and no more with the last. */
export function islandsOf(count) {
  const others = overrides().filter((one) => !one.startsWith(`${EGRESS}=`));
  if (Number(said("islands")) > 1) {
    const known = Object.fromEntries(OVER_ISLANDS.map((key) => [key, said(key) || joined[key]]));
    joined = { ...known, egress: valueOf(EGRESS) };
  }
  if (count <= 1) return { islands: "", ...Object.fromEntries(OVER_ISLANDS.map((key) => [key, ""])), set: others };
  const { egress, ...keys } = joined;
  return { islands: String(count), ...keys, set: egress ? [...others, `${EGRESS}=${egress}`] : others };
}

/** Apply overrides as one change. */
export const override = (sets) => commit(folded(sets));

/** The value of a field of the scenario as the question says it, "" where it does not. */
export function valueOf(path) {
  const found = overrides().find((one) => one.startsWith(`${path}=`));
  if (found) return found.slice(path.length + 1);
  if (whole()) return "";
  if (KEYS[path]) return said(KEYS[path]);
  if (path === "plan.sharding") return head(said("plan") || "fsdp");
  return path.startsWith("plan.") ? get(said("plan") || "fsdp", path.slice(5)) : "";
}

function load() {
  params = new URLSearchParams(location.search);
  if (!["model", "gpus", "yaml", "example"].some((key) => params.has(key))) {
    const start = new URLSearchParams(START);
    for (const [key, value] of params) start.append(key, value);
    params = start;
    history.replaceState(null, "", `/?${readable(params)}`);
  }
}

/** Read the address, now and whenever the browser goes back or forth. */
export function startState() {
  load();
  addEventListener("popstate", () => {
    sliding = false;
    load();
    tell("question");
  });
}
