// Figures: the raw description of the answer, drawn by plotly from the package; its numbers in a table below for everybody.

import { axisOf, edges, told } from "./axis.js";
import { table } from "./document.js";
import { fill, fresh, h } from "./dom.js";
import { colour, onTheme } from "./theme.js";

const LINES = ["accent", "line-2", "line-3", "line-4", "line-5", "line-6", "line-7", "line-8"];
const MARKERS = ["circle", "square", "triangle-up", "diamond", "triangle-down", "pentagon", "x", "star"];
const HATCHES = ["", "/", ".", "x", "\\", "+"];

let loaded = null;
/** Plotly, fetched from this server when the first figure is shown. */
function plotly() {
  loaded ??= new Promise((done, failed) => {
    const script = h("script", { src: "/vendor/plotly.min.js" });
    script.onload = () => done(globalThis.Plotly);
    script.onerror = () => {
      loaded = null;
      script.remove();
      failed(new Error("The plotting library did not load."));
    };
    document.head.append(script);
  });
  return loaded;
}

const lying = (figure, line) => line.style === "bars" && figure.y.labels?.length > 0;
const finite = (values) => values.filter((one) => one !== null && one !== undefined);

function reach(figure) {
  const x = [];
  const y = [];
  for (const line of figure.lines) {
    const [along, across] = lying(figure, line) ? [y, x] : [x, y];
    along.push(...(along === y ? line.y : line.x));
    across.push(...finite(along === y ? line.x : line.y), ...finite(line.low), ...finite(line.high));
    x.push(...finite(line.left), ...finite(line.right));
    if (line.style === "bars" && !(across === x ? figure.x : figure.y).log) across.push(0);
  }
  for (const mark of figure.marks) {
    if (mark.x !== null) x.push(mark.x);
    if (mark.y !== null) y.push(mark.y);
  }
  return [x, y];
}

function axes(figure) {
  const small = innerWidth < 620;
  if (figure.field) {
    const ends = [edges(figure.field.x, figure.x.log), edges(figure.field.y, figure.y.log)].map((all) => [all[0], all.at(-1)]);
    return [axisOf(figure.x, figure.field.x, { ends: ends[0], most: small ? 4 : 7 }), axisOf(figure.y, figure.field.y, { ends: ends[1] })];
  }
  const [x, y] = reach(figure);
  return [axisOf(figure.x, x, { most: small ? 4 : 7 }), axisOf(figure.y, y)];
}

function errors(line, values, low, high, extra) {
  if (!line[low]?.length || !line[high]?.length) return undefined;
  const off = (ends, sign) => ends.map((end, at) => (end === null || values[at] === null ? 0 : Math.max(0, sign * (end - values[at]))));
  return { type: "data", symmetric: false, array: off(line[high], 1), arrayminus: off(line[low], -1), thickness: 1.2, width: 3, ...extra };
}

function hover(figure, line) {
  return line.x.map((x, at) => {
    const across = lying(figure, line) ? figure.x : figure.y;
    const ends = line.low?.length ? ` (${told(line.low[at], across)} to ${told(line.high[at], across)})` : "";
    return `${told(x, figure.x)}<br>${told(line.y[at], figure.y)}${ends}`;
  });
}

function lineTraces(figure, line, at) {
  const tint = line.style === "cloud" ? colour("muted") : colour(LINES[at % LINES.length]);
  const common = { x: line.x, y: line.y, name: line.label, text: hover(figure, line), hovertemplate: "%{text}<extra>%{fullData.name}</extra>" };
  if (line.style === "bars") {
    const flat = lying(figure, line);
    const base = (flat ? figure.x : figure.y).centre ?? 0;
    const size = flat ? line.x : line.y;
    const whisker = errors(line, size, "low", "high", { color: colour("ink") });
    return [{
      ...common, type: "bar", orientation: flat ? "h" : "v", base, [flat ? "x" : "y"]: size.map((one) => (one === null ? null : one - base)),
      [flat ? "error_x" : "error_y"]: whisker, marker: { color: tint, pattern: { shape: HATCHES[at % HATCHES.length], fgcolor: colour("panel"), bgcolor: tint, size: 7, solidity: 0.25 } }, textposition: "none",
    }];
  }
  const points = line.style === "points" || line.style === "cloud";
  const shape = line.style === "steps" ? "hv" : "linear";
  const trace = {
    ...common, type: "scatter", mode: points ? "markers" : line.x.length <= 24 ? "lines+markers" : "lines", connectgaps: false,
    line: { color: tint, width: 2, dash: line.style === "dashed" ? "dash" : "solid", shape },
    marker: { color: tint, size: line.style === "cloud" ? 4 : points ? 9 : 6, symbol: MARKERS[at % MARKERS.length], line: points ? { width: 1, color: colour("panel") } : undefined },
  };
  if (points) {
    return [{ ...trace, error_y: errors(line, line.y, "low", "high", { color: tint }), error_x: errors(line, line.x, "left", "right", { color: tint }) }];
  }
  return line.low?.length ? [...band(line, tint, shape), trace] : [trace];
}

function band(line, tint, shape) {
  const edge = { type: "scatter", mode: "lines", hoverinfo: "skip", showlegend: false, x: line.x, line: { width: 0, shape } };
  return [{ ...edge, y: line.low }, { ...edge, y: line.high, fill: "tonexty", fillcolor: faint(tint, 0.16) }];
}

/** A colour of the sheet (#rrggbb) with so much of it left. */
function faint(hex, share) {
  const [red, green, blue] = [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
  return `rgba(${red},${green},${blue},${share})`;
}

function fieldTraces(figure) {
  const { field } = figure;
  const named = field.scale.labels?.length > 0;
  const texts = field.values.map((row, j) => row.map((one, i) => `${told(field.x[i], figure.x)}<br>${told(field.y[j], figure.y)}<br>${told(one, field.scale)}`));
  const base = {
    type: "heatmap", x: edges(field.x, figure.x.log), y: edges(field.y, figure.y.log), text: texts, hovertemplate: "%{text}<extra></extra>",
    xgap: 0.5, ygap: 0.5,
  };
  if (named) {
    const tints = field.scale.labels.map((_, at) => colour(`region-${at % 8}`));
    const scale = tints.flatMap((tint, at) => [[at / tints.length, tint], [(at + 1) / tints.length, tint]]);
    const legend = field.scale.labels.map((label, at) => ({
      type: "scatter", mode: "markers", x: [null], y: [null], name: label, marker: { symbol: "square", size: 11, color: tints[at] },
    })).filter((_, at) => field.values.some((row) => row.includes(at)));
    return [{ ...base, z: field.values, zmin: -0.5, zmax: tints.length - 0.5, colorscale: scale, showscale: false }, ...legend];
  }
  const log = field.scale.log;
  const flat = field.values.flat().filter((one) => one !== null && (one > 0 || !log));
  const bar = axisOf(field.scale, flat, { ends: [Math.min(...flat), Math.max(...flat)] });
  const place = (one) => (one === null ? null : log ? Math.log10(one) : one);
  return [{
    ...base, z: field.values.map((row) => row.map(place)), zmid: field.scale.centre === null ? undefined : place(field.scale.centre),
    colorscale: field.scale.centre === null ? "Cividis" : "PuOr",
    colorbar: { title: { text: bar.title, side: "right" }, tickvals: bar.ticks.map(([at]) => place(at)), ticktext: bar.ticks.map(([, said]) => said), thickness: 12, outlinewidth: 0 },
  }];
}

function marks(figure, x, y) {
  const place = (value, axis) => (axis.log ? Math.log10(value) : value);
  const shapes = [];
  const notes = [];
  const upright = figure.marks.filter((mark) => mark.y === null).sort((a, b) => a.x - b.x);
  for (const mark of figure.marks) {
    const look = { line: { color: colour("muted"), width: 1, dash: "dot" } };
    if (mark.y === null) {
      shapes.push({ type: "line", xref: "x", yref: "paper", x0: mark.x, x1: mark.x, y0: 0, y1: 1, ...look });
    } else if (mark.x === null) {
      shapes.push({ type: "line", xref: "paper", yref: "y", x0: 0, x1: 1, y0: mark.y, y1: mark.y, ...look });
    }
    const right = mark.x !== null && (place(mark.x, x) - place(x.low, x)) / (place(x.high, x) - place(x.low, x)) > 0.6;
    const number = figure.marks.indexOf(mark) + 1;
    notes.push({
      text: `<b>${number}</b>`, hovertext: mark.says, font: { size: 11, color: colour("ink") }, bgcolor: colour("panel"), bordercolor: colour("line"), borderpad: 2,
      xref: mark.x === null ? "paper" : "x", yref: mark.y === null ? "paper" : "y",
      x: mark.x === null ? 1 : place(mark.x, x), y: mark.y === null ? 1 - 0.09 * (upright.indexOf(mark) % 4) : place(mark.y, y),
      xanchor: mark.x === null ? "right" : right ? "right" : "left", xshift: mark.x === null ? -2 : right ? -5 : 5, yanchor: mark.y === null ? "top" : "bottom",
      yshift: mark.y === null ? 0 : 5, showarrow: false, captureevents: true,
    });
  }
  return [shapes, notes];
}

function layoutOf(figure, [x, y]) {
  const place = (one, axis) => (axis.log ? Math.log10(one) : one);
  const font = { family: getComputedStyle(document.documentElement).fontFamily, size: 12, color: colour("ink-2") };
  const axis = (of, more) => ({
    type: of.log ? "log" : "linear", range: [place(of.low, of), place(of.high, of)], tickvals: of.ticks.map(([at]) => at), ticktext: of.ticks.map(([, said]) => wrapped(said, innerWidth < 620 ? 16 : 34)),
    title: { text: wrapped(of.title, innerWidth < 620 ? 38 : 70), font: { size: 12, color: colour("muted") }, standoff: 12 }, gridcolor: colour("grid"), zeroline: false, linecolor: colour("line"), automargin: true, fixedrange: true, ...more,
  });
  const names = figure.y.labels?.length ?? 0;
  const [shapes, annotations] = marks(figure, x, y);
  const many = figure.lines.length + figure.contours.length + (figure.field?.scale.labels?.length ?? 0);
  const lines = Math.max(1, ...(figure.y.labels ?? []).map((said) => wrapped(said, innerWidth < 620 ? 16 : 34).split("<br>").length));
  const height = Math.max(340, 120 + Math.max(26 * (figure.lines.length || 1), 10 + 16 * lines) * names) + 18 * Math.ceil(many / 3);
  return {
    font, paper_bgcolor: "transparent", plot_bgcolor: "transparent", height,
    margin: { l: 20, r: 12, t: 8, b: 40 }, hovermode: "closest", dragmode: false, barmode: "group", bargap: 0.25, showlegend: many > 1,
    legend: { orientation: "h", y: 0, yref: "container", yanchor: "bottom", x: 0, font: { size: 12 } }, shapes, annotations,
    xaxis: axis(x), yaxis: axis(y, names ? { autorange: false, range: [y.high, y.low] } : {}),
    hoverlabel: { bgcolor: colour("panel"), bordercolor: colour("line"), font: { ...font, color: colour("ink") } },
  };
}

function wrapped(said, width) {
  const lines = [""];
  for (const word of said.split(" ")) {
    if (lines.at(-1) && `${lines.at(-1)} ${word}`.length > width) lines.push(word);
    else lines[lines.length - 1] = `${lines.at(-1)} ${word}`.trim();
  }
  return lines.join("<br>");
}

function contour(line, at) {
  return {
    type: "scatter", mode: "lines", x: line.x, y: line.y, name: line.label || "border", showlegend: Boolean(line.label), hoverinfo: "name",
    line: { color: colour("ink"), width: 2, dash: line.style === "dashed" ? "dash" : ["solid", "solid", "dot"][at % 3] },
  };
}

const drawn = new Map();
onTheme(() => {
  for (const [box, draw] of drawn) box.isConnected ? draw() : drawn.delete(box);
});

/** Draw a figure into a box, again whenever the colours or the width change; a click on a point calls `click(line, at)`. */
function draw(box, figure, click) {
  const again = async () => {
    const Plotly = await plotly();
    const both = axes(figure);
    const field = figure.field ? fieldTraces(figure) : [];
    const lines = figure.lines.map((line, at) => lineTraces(figure, line, at));
    const owners = [...field.map(() => -1), ...lines.flatMap((traces, at) => traces.map(() => at))];
    const traces = [...field, ...lines.flat(), ...figure.contours.map(contour)];
    await Plotly.react(box, traces, layoutOf(figure, both), { displayModeBar: false, responsive: true });
    document.querySelectorAll("#js-plotly-tester").forEach((one) => one.setAttribute("aria-hidden", "true"));
    box.querySelectorAll("svg").forEach((one) => one.setAttribute("aria-hidden", "true"));
    if (click && !box.dataset.listens) {
      box.dataset.listens = "yes";
      box.on("plotly_click", ({ points }) => click(figure.lines[owners[points[0].curveNumber]], points[0].pointIndex));
    }
  };
  drawn.set(box, again);
  return again().catch((error) => fill(box, h("p", { class: "problem" }, error.message)));
}

/** Its numbers: a table a line, a grid for a field. */
function numbers(figure) {
  const made = [];
  for (const line of [...figure.lines, ...figure.contours]) {
    const across = lying(figure, line) ? figure.x : figure.y;
    const ends = line.low?.length > 0;
    const columns = [figure.x.title || "what", figure.y.title || "what", ...(ends ? ["from", "to"] : [])].map((title) => ({ title, number: true }));
    const rows = line.x.map((x, at) => [told(x, figure.x), told(line.y[at], figure.y), ...(ends ? [told(line.low[at], across), told(line.high[at], across)] : [])]);
    made.push(h("h5", null, line.label), table({ title: line.label || figure.title, columns, rows }));
  }
  if (figure.field) {
    const { field } = figure;
    const columns = [{ title: `${figure.y.title} \\ ${figure.x.title}` }, ...field.x.map((x) => ({ title: told(x, figure.x), number: true }))];
    const rows = field.values.map((row, j) => [told(field.y[j], figure.y), ...row.map((one) => told(one, field.scale))]).reverse();
    made.push(h("h5", null, field.scale.title), table({ title: field.scale.title, columns, rows }));
  }
  return made;
}

/** A figure with its title, captions, marks in words, and a table of its numbers. `file` is the address of its SVG. */
export function figureOf(figure, { click = null, file = null } = {}) {
  const id = fresh("figure");
  const box = h("div", { class: "plot", role: "img", "aria-labelledby": id });
  const details = h("details", { class: "numbers" }, h("summary", null, "The numbers as a table"));
  details.addEventListener("toggle", () => details.childElementCount === 1 && details.append(...numbers(figure).flat(3)), { once: true });
  const said = figure.marks.map((mark, at) => h("li", { value: at + 1 }, mark.says));
  const made = h("figure", { "data-figure": figure.slug },
    h("h4", { id }, figure.title), box,
    said.length > 0 && h("ol", { class: "marks", "aria-label": "Marked in the figure" }, said),
    figure.caption.length > 0 && h("figcaption", null, figure.caption.map((line) => h("p", null, line))),
    h("div", { class: "row" }, details, file && h("a", { href: file, download: "" }, "SVG")));
  draw(box, figure, click);
  return made;
}
