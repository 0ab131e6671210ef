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

/** A text whose long words may part after a comma. */
const parting = (said) => (said.length > 18 && !said.includes(" ") ? said.replaceAll(",", ",\u200b") : said);

/** A text that may go on in a next line where the table has no room. */
const isPhrase = (said) => said.length > 18 && said.includes(" ");

/** A table with its caption; rows are lists of cells in the order of the columns, sentences of a column that says so stand below their row.
 * `more(at)` may give each row a first cell (a button). */
export function table(section, more) {
  const { columns } = section;
  const places = columns.map((_, at) => at).filter((at) => !columns[at].below && (!columns[at].bar || section.rows.length > 1));
  const below = columns.map((_, at) => at).filter((at) => columns[at].below);
  const worded = new Set(columns.filter((_, at) => section.rows.some((row) => isPhrase(shown(row[at] ?? "")))));
  const side = (column) => (column.bar ? "bars" : column.number ? "num" : column.wide ? "wide" : worded.has(column) ? "worded" : null);
  const cell = (row, at, first) => h(first ? "th" : "td", { class: side(columns[at]), scope: first ? "row" : null }, columns[at].bar ? bar(raw(row[at])) : parting(shown(row[at] ?? "")));
  const line = (row, begin) => {
    const texts = below.map((at) => shown(row[at] ?? "")).filter((one) => one && one !== "–");
    const aside = texts.length > 0 && h("tr", { class: "below" }, h("td", { colspan: String(places.length + (begin ? 1 : 0)) }, texts.map((one) => h("p", null, one))));
    return [h("tr", { class: aside ? "above" : null }, begin && h("td", null, begin), places.map((at, place) => cell(row, at, place === 0))), aside];
  };
  const head = (column) => h("th", { scope: "col", class: side(column) }, column.title || h("span", { class: "unseen" }, column.bar ? "as a bar" : "remark"));
  const made = h("table", null,
    h("thead", null, h("tr", null, more && h("th", { scope: "col" }, h("span", { class: "unseen" }, "use it")), places.map((at) => head(columns[at])))),
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
  const before = [...button.childNodes];
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    button.textContent = "Not allowed here";
  }
  setTimeout(() => button.replaceChildren(...before), 1600);
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
