// What is wrong with a question, said at its field, with the nearest ways out as buttons where they are values.

import { h } from "./dom.js";
import { commit, folded, overrides, said } from "./state.js";

/** Field of the scenario (or its beginning) → key of the form. */
const PLACES = [
  ["model", "model"],
  ["stack", "stack"],
  ["gpus", "gpus"],
  ["fleet.gpus", "gpus"],
  ["accelerator", "gpus"],
  ["instance", "gpus"],
  ["fleet.wan.default.bandwidth", "bandwidth"],
  ["fleet.wan.default.rtt", "rtt"],
  ["plan.sync.method", "method"],
  ["plan.sync.sync_every", "sync_every"],
  ["plan.micro_batch", "micro_batch"],
  ["plan", "plan"],
  ["run.global_batch", "global_batch"],
  ["run.seq_len", "seq"],
  ["run.tokens", "tokens"],
  ["run.deadline", "deadline"],
  ["run.budget", "budget"],
];
const KEYS = ["model", "gpus", "islands", "bandwidth", "rtt", "method", "sync_every", "plan", "stack", "seq", "micro_batch", "global_batch", "tokens", "price", "deadline", "budget"];

/** Fields of the form that have no key: the scenario's own names. */
const OVERRIDES = ["fleet.wan.default.egress", "fleet.islands.0.fabric"];

/** The key of the form where a violation belongs; "" where none is. */
export function placeOf(violation) {
  if (violation.key && violation.key !== "set") return violation.key;
  if (OVERRIDES.includes(violation.field)) return violation.field;
  const option = /^--([\w-]+)/.exec(violation.where ?? "")?.[1].replaceAll("-", "_");
  if (KEYS.includes(option)) return option;
  const field = violation.field ?? "";
  if (KEYS.includes(field)) return field;
  if (field.endsWith(".price")) return "price";
  if (field.startsWith("fleet.islands") && field.endsWith("accelerator")) return "gpus";
  const found = PLACES.find(([begin]) => field === begin || field.startsWith(`${begin}.`));
  return found ? found[1] : "";
}

/** Values that could stand there: those that the server lists, or that a way out names ("the nearest are 56 and 64", "did you mean 'full'?"). */
export function values(violation) {
  if (violation.values?.length) return violation.values.slice(0, 4);
  const wayOut = violation.way_out || violation.says;
  const meant = /did you mean '([^']+)'/.exec(wayOut);
  if (meant) return [meant[1]];
  const near = /nearest(?: [^:;()]*?)?(?:: | are:? | is )([^;()]+)/.exec(wayOut);
  const list = near ? near[1].replace(/[.?]$/, "").split(/, | and | or /).map((one) => one.trim()) : [];
  return list.filter((one) => /^[\w.@+-]+$/.test(one)).slice(0, 4);
}

/** The change of keys that gives a field a value. */
function change(violation, key, value) {
  if (key === "gpus") {
    const [, count, name] = /^(\d+)x(.*)$/.exec(said("gpus")) ?? [null, "8", said("gpus")];
    return { gpus: /^\d+$/.test(value) ? `${value}x${name}` : `${count}x${value}` };
  }
  const field = violation.field ?? "";
  const degree = /nearest (?:legal )?(tp|pp|cp|ep|etp)\b/.exec(violation.way_out ?? "")?.[1];
  if (key === "plan" && (degree || field.startsWith("plan."))) return folded([`plan.${degree ?? field.slice(5)}=${value}`]);
  if (key === "plan") return folded([`plan.sharding=${value}`]);
  return { [key]: value };
}

/** An error as violations, also where the server only has a sentence. */
export const violationsOf = (error) => (error.violations?.length ? error.violations : [{ field: "", says: error.message, way_out: "", where: "" }]);

/** What a violation says, without the ways out where these are buttons. */
export const brief = (violation, ways = true) => violation.says.replace(/ \(`shardmeter catalog[^)]*\)/, "").replace(ways ? /; the nearest.*/ : /$^/, "");

/** Take a way out; its button goes, so the keyboard is put into the field. */
function take(event, changes) {
  const field = event.currentTarget.closest(".field")?.querySelector("input, select");
  commit(changes);
  field?.focus();
}

/** A violation in words, its way out as buttons where it names values. */
export function told(violation) {
  const key = placeOf(violation);
  const at = overrides().some((one) => one.startsWith(`${violation.field}=`));
  const ways = key && !at ? values(violation) : [];
  return h("span", { class: "violation" },
    h("span", null, brief(violation, ways.length > 0), violation.rule ? ` (${violation.rule})` : "", violation.way_out && !ways.length ? `; ${violation.way_out}` : ""),
    ways.length > 0 && h("span", { class: "ways" }, ways.map((value) => h("button", { type: "button", class: "way", onclick: (event) => take(event, change(violation, key, value)) }, value))));
}
