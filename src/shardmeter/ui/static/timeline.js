// The timeline: a row per rank and stream, bars by kind, waits hatched, an axis in seconds; and the same as a table of seconds.

import { axisOf } from "./axis.js";
import { table } from "./document.js";
import { fresh, h, svg } from "./dom.js";
import { text } from "./format.js";

const LEFT = 112;
const RIGHT = 14;
const WIDTH = 860;
const TALL = { compute: 24 };
const THINNEST = 0.7;

/** A kind's fill: its colour, or a hatch. */
const fillOf = (kinds, kind) => (kind === "wait" ? "url(#hatch)" : kinds[kind]?.colour ?? "#888888");

function row(one, y, height, scale, kinds) {
  const name = one.stream === "compute" ? one.name : one.stream;
  const label = svg("text", { x: LEFT - 8, y: y + height / 2, class: one.stream === "compute" ? "rank" : "stream" }, name.length > 17 ? `${name.slice(0, 16)}…` : name);
  const bars = one.bars.map((bar) => {
    const width = Math.max((bar.end_s - bar.begin_s) * scale, THINNEST);
    const said = `${kinds[bar.kind]?.label ?? bar.kind}${bar.text ? ` ${bar.text}` : ""}: ${text(bar.end_s - bar.begin_s, "s")} from ${text(bar.begin_s, "s")}`;
    return svg("rect", { x: LEFT + bar.begin_s * scale, y, width, height, fill: fillOf(kinds, bar.kind) }, svg("title", null, said));
  });
  const numbers = one.stream === "compute" ? one.bars.filter((bar) => bar.text && (bar.end_s - bar.begin_s) * scale > 9 + 5 * bar.text.length).map((bar) =>
    svg("text", { x: LEFT + ((bar.begin_s + bar.end_s) / 2) * scale, y: y + height / 2, class: "number" }, bar.text)) : [];
  return [label, ...bars, ...numbers];
}

/** Seconds of every kind in every row. */
function sums(given) {
  const kinds = Object.keys(given.kinds);
  const columns = [{ title: "row" }, ...kinds.map((kind) => ({ title: given.kinds[kind].label, number: true }))];
  const rows = given.rows.map((one) => [`${one.name} ${one.stream}`, ...kinds.map((kind) => {
    const sum = one.bars.filter((bar) => bar.kind === kind).reduce((all, bar) => all + bar.end_s - bar.begin_s, 0);
    return sum ? text(sum, "s") : "";
  })]);
  return table({ title: "Seconds by row", columns, rows, caption: "What is too short to see is one with its neighbour." });
}

/** The chart of `gantt.rows`, with its legend and its table. */
export function timelineOf(given) {
  const scale = (WIDTH - LEFT - RIGHT) / given.span_s;
  const axis = axisOf({ title: "time", unit: "s", log: false }, [0, given.span_s], { ends: [0, given.span_s], most: 8 });
  const drawn = [];
  let y = 6;
  let before = given.rows[0]?.rank;
  for (const one of given.rows) {
    if (one.rank !== before) y += 10;
    before = one.rank;
    const height = TALL[one.stream] ?? 11;
    drawn.push(...row(one, y, height, scale, given.kinds));
    y += height + 3;
  }
  const ticks = axis.ticks.flatMap(([at, said]) => [
    svg("line", { x1: LEFT + at * scale, x2: LEFT + at * scale, y1: 0, y2: y + 4, class: "grid" }),
    svg("text", { x: LEFT + at * scale, y: y + 16, class: "tick" }, said)]);
  const hatch = svg("defs", null, svg("pattern", { id: "hatch", width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" }, svg("line", { x1: 0, y1: 0, x2: 0, y2: 6, class: "hatch" })));
  const id = fresh("figure");
  const chart = svg("svg", { viewBox: `0 0 ${WIDTH} ${y + 38}`, role: "img", "aria-labelledby": id, class: "gantt" }, hatch, ticks, drawn, svg("text", { x: LEFT + (WIDTH - LEFT - RIGHT) / 2, y: y + 33, class: "tick" }, axis.title));
  const legend = Object.entries(given.kinds).map(([kind, one]) => h("li", null, h("i", { class: kind === "wait" ? "hatched" : null, style: kind === "wait" ? {} : { background: one.colour }, "aria-hidden": "true" }), one.label));
  return h("figure", { "data-figure": "timeline" }, h("h4", { id }, `What runs when: ${text(given.span_s, "s")}`),
    h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Timeline" }, chart), h("ul", { class: "legend" }, legend),
    given.left_out > 0 && h("p", { class: "caption" }, `${given.left_out} further stages are left out.`),
    h("details", { class: "numbers" }, h("summary", null, "The seconds as a table"), sums(given)));
}
