// A document of an answer as HTML: facts, tables, notes, texts to copy. The same sections that the command line prints.

import { fresh, h } from "./dom.js";

const shown = (cell) => (cell !== null && typeof cell === "object" ? cell.text : String(cell ?? ""));
const raw = (cell) => (cell !== null && typeof cell === "object" ? cell.raw : cell);

/** A table that scrolls inside itself where the line is too short, and can be reached by keyboard then. */
export function scrolling(table, label) {
  const box = h("div", { class: "scroll", role: "region", "aria-label": label }, table);
  const reachable = () => (box.scrollWidth > box.clientWidth + 1 ? box.setAttribute("tabindex", "0") : box.removeAttribute("tabindex"));
  new ResizeObserver(reachable).observe(box);
  return box;
}

function bar(share) {
  const width = Math.max(0, Math.min(1, share ?? 0));
  return h("span", { class: "bar", "aria-hidden": "true" }, h("span", { style: { width: `${(100 * width).toFixed(1)}%` } }));
}

/** A table with its caption; rows are lists of cells in the order of the columns. `more(at)` may give each row a last cell (a button). */
export function table(section, more) {
  const places = section.columns.map((_, at) => at).filter((at) => !section.columns[at].bar || section.rows.length > 1);
  const side = (column) => (column.bar ? "bars" : column.number ? "num" : column.wide ? "wide" : null);
  const cell = (row, at, first) => {
    const column = section.columns[at];
    return h(first ? "th" : "td", { class: side(column), scope: first ? "row" : null }, column.bar ? bar(raw(row[at])) : shown(row[at] ?? ""));
  };
  const line = (row, last) => h("tr", null, places.map((at, place) => cell(row, at, place === 0)), last && h("td", null, last));
  const head = (column) => h("th", { scope: "col", class: side(column) }, column.title || h("span", { class: "unseen" }, column.bar ? "as a bar" : "remark"));
  const made = h("table", null,
    h("thead", null, h("tr", null, places.map((at) => head(section.columns[at])), more && h("th", { scope: "col" }, h("span", { class: "unseen" }, "use it")))),
    h("tbody", null, section.rows.map((row, at) => line(row, more?.(at)))),
    section.total && h("tfoot", null, line(section.total, more && " ")));
  const captions = [section.caption ?? []].flat().filter(Boolean);
  return [scrolling(made, section.title || "table"), captions.map((caption) => h("p", { class: "caption" }, caption))];
}

function facts(section) {
  const rows = section.facts.map((fact) => h("div", null,
    h("dt", null, fact.label),
    h("dd", null, h("span", { class: "value" }, shown(fact.value)), fact.note && h("span", { class: "note" }, fact.note))));
  return [h("dl", { class: "facts" }, rows), (section.caption ?? []).map((line) => h("p", { class: "caption" }, line))];
}

function verbatim(section) {
  const text = section.lines.join("\n");
  const button = h("button", { type: "button", class: "quiet", onclick: () => copy(text, button) }, "Copy");
  return h("div", { class: "verbatim" }, button, h("pre", { tabindex: "0", "aria-label": section.title }, text));
}

/** Copy a text and say so on the button. */
export async function copy(text, button) {
  const before = button.textContent;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    button.textContent = "Not allowed here";
  }
  setTimeout(() => (button.textContent = before), 1600);
}

const KINDS = {
  facts,
  table: (section, more) => table(section, more),
  notes: (section) => h("ul", { class: "notes" }, section.lines.map((line) => h("li", null, line))),
  verbatim,
};
const FOLDED = /^(Assumed|Regimes|Not listed|Illegal)/;

/** One section under its heading; long asides are folded. */
export function section(given, more) {
  const body = KINDS[given.kind]?.(given, more);
  if (!body) return null;
  if (FOLDED.test(given.title)) return h("details", { class: "section" }, h("summary", null, given.title), body);
  const id = fresh("section");
  return h("section", { class: "section", "aria-labelledby": given.title ? id : null }, given.title && h("h4", { id }, given.title), body);
}

/** A whole document: verdict first. `more(section)` may give a function that adds a last cell to that section's rows. */
export function documentOf(given, more) {
  const state = given.good ? (given.sure === false ? "unsure" : "good") : "bad";
  return [
    given.verdict && h("p", { class: `verdict ${state}` }, given.verdict),
    ...given.sections.filter((one) => one.kind !== "figure").map((one) => section(one, more?.(one))),
  ];
}
