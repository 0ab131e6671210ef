// What if: island size, islands, bandwidth, H and batch on logarithmic sliders. While one moves, only its key of the address changes.

import { byId, fill, fresh, h, write } from "./dom.js";
import { bandwidth, bits } from "./format.js";
import { folded, islandsOf, rest, said, slide, valueOf, whole } from "./state.js";

const doubled = (from, to) => Array.from({ length: Math.log2(to / from) + 1 }, (_, at) => from * 2 ** at);
const steps = (from, to) => {
  const made = [];
  for (let ten = from; ten <= to; ten *= 10) for (const one of [1, 2, 5]) if (ten * one <= to) made.push(ten * one);
  return made;
};

let batch = null;
let period = null;
let several = false;

const parted = () => /^(\d+)\s*x\s*(.*)$/.exec(said("gpus"));

/** A field over islands: its key, or an override of a whole scenario. */
const across = (path, value) => folded([`${path}=${value}`]);

const SLIDERS = [
  {
    name: "GPUs per island", values: doubled(1, 16384), now: () => Number(parted()?.[1]) || null, text: (value) => value.toLocaleString("en"),
    change: (value) => ({ gpus: `${value}x${parted()?.[2] ?? ""}` }), open: () => !whole(), why: "the scenario's text says its islands",
  },
  {
    name: "Islands", values: [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64], now: () => Number(said("islands")) || 1, text: String,
    change: islandsOf, open: () => !whole(), why: "the scenario's text says its islands",
  },
  {
    name: "Bandwidth between islands", values: steps(1e8, 8e11), now: () => bits(valueOf("fleet.wan.default.bandwidth")), text: bandwidth,
    change: (value) => across("fleet.wan.default.bandwidth", bandwidth(value)), open: () => several, why: "one island has no lines to others",
  },
  {
    name: "Steps between syncs (H)", values: steps(1, 5000), now: () => Number(valueOf("plan.sync.sync_every")) || period, text: (value) => value.toLocaleString("en"),
    change: (value) => across("plan.sync.sync_every", value), open: () => several && (whole() || said("method") !== "every_step"), why: "needs several islands, and a method that syncs less than every step",
  },
  {
    name: "Global batch", values: doubled(1, 65536), now: () => Number(valueOf("run.global_batch")) || batch, text: (value) => `${value.toLocaleString("en")} sequences`,
    change: (value) => across("run.global_batch", value), open: () => true, why: "",
  },
];

/** The values of a slider with its own among them, in order. */
const withOwn = (values, own) => (own === null || values.includes(own) ? values : [...values, own].sort((a, b) => a - b));

function slider(one) {
  const id = fresh("slider");
  const input = h("input", { type: "range", id, min: "0", step: "1", "data-slider": one.name });
  const output = h("output", { for: id });
  const note = h("span", { class: "note" });
  const row = h("div", { class: "slider" }, h("label", { for: id }, one.name), output, input, note);
  let values = one.values;
  const tell = (value) => {
    const text = value === null ? "as it says" : one.text(value);
    write(output, text);
    input.setAttribute("aria-valuetext", text);
  };
  input.addEventListener("input", () => {
    const value = values[Number(input.value)];
    tell(value);
    slide(one.change(value));
  });
  input.addEventListener("change", rest);
  one.show = () => {
    const own = one.now();
    const open = one.open();
    input.disabled = !open;
    write(note, open ? "" : one.why);
    if (document.activeElement !== input || !values.includes(own)) values = withOwn(one.values, own);
    input.max = String(values.length - 1);
    const at = own === null ? Math.floor(values.length / 2) : values.indexOf(own);
    if (Number(input.value) !== at) input.value = String(at);
    tell(open ? own : own ?? null);
    if (!open) write(output, "–");
  };
  return row;
}

/** Put the address, and what the answer says of the batch and the islands, into the sliders. */
export function showSliders(answer) {
  if (answer) {
    several = answer.islands > 1;
    batch = answer.batch ?? batch;
    period = answer.period ?? null;
  } else if (!whole()) several = Number(said("islands")) > 1;
  for (const one of SLIDERS) one.show();
}

export function startSliders() {
  fill(byId("sliders"), SLIDERS.map(slider));
  showSliders(null);
}
