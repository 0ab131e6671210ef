// The search for a plan: an objective, a start, how far it is, a way to end it; every plan found is a question of its own.

import { askSearch, endSearch, leaveSearch, startSearch } from "./api.js";
import { documentOf } from "./document.js";
import { byId, fill, h, write } from "./dom.js";
import { figureOf } from "./figure.js";
import { text } from "./format.js";
import { told, violationsOf } from "./refusal.js";
import { become, question, said, turn } from "./state.js";

const PACE = 250; // milliseconds between two looks
const OBJECTIVES = [["time", "the shortest run"], ["cost", "the cheapest run"], ["throughput", "the most tokens a second"], ["energy", "the least energy"], ["time,cost", "time and cost: the front of both"], ["time,energy", "time and energy: the front of both"]];
let job = null;
let found = null; // the last result, and the question and objective it answers

const wanted = () => said("objective") || "time";

addEventListener("pagehide", () => job && leaveSearch(job));

export function searchPanel(panel) {
  if (panel.dataset.made) {
    byId("objective").value = wanted();
    return noteOther();
  }
  panel.dataset.made = "yes";
  const select = h("select", { id: "objective" }, OBJECTIVES.map(([value, name]) => h("option", { value }, name)));
  select.value = wanted();
  select.addEventListener("change", () => turn({ objective: select.value === "time" ? "" : select.value }));
  fill(panel, h("p", { class: "says" }, "Every legal plan for this model and these GPUs, the best by what you want; yours is placed among them."),
    h("div", { class: "controls" }, h("div", { class: "field" }, h("label", { for: "objective" }, "Find"), select),
      h("button", { type: "button", class: "main", id: "search-start", onclick: start }, "Search"),
      h("button", { type: "button", id: "search-cancel", hidden: true, onclick: cancel }, "Cancel")),
    h("div", { id: "search-progress", hidden: true }, h("progress", { max: "1", "aria-label": "search" }), h("p", { class: "took", role: "status" })),
    h("div", { id: "search-result" }));
  return undefined;
}

function noteOther() {
  const stale = byId("search-stale");
  if (stale) stale.hidden = !found || (found.query === question() && found.objective === wanted());
}

function running(yes) {
  byId("search-start").disabled = yes;
  byId("search-cancel").hidden = !yes;
  byId("search-progress").hidden = !yes;
}

async function start() {
  const [query, objective] = [question(), wanted()];
  fill(byId("search-result"));
  running(true);
  show({ done: 0, total: null, seconds: 0 });
  byId("search-cancel").focus();
  try {
    const mine = (job = (await startSearch(`${query}&objective=${objective}`)).job);
    for (;;) {
      await new Promise((later) => setTimeout(later, PACE));
      if (job !== mine) return;
      const state = await askSearch(mine);
      if (job !== mine) return;
      show(state);
      if (state.state === "running") continue;
      finish(state, query, objective);
      return;
    }
  } catch (error) {
    job = null;
    running(false);
    fill(byId("search-result"), refused(error));
  }
}

const refused = (error) => h("div", { class: "refusal", role: "alert" }, h("ul", null, violationsOf(error).map((one) => h("li", null, told(one)))));

async function cancel() {
  const mine = job;
  if (!mine) return;
  byId("search-cancel").disabled = true;
  try {
    await endSearch(mine);
    job = null;
    fill(byId("search-result"), h("p", { class: "says", role: "status" }, "Cancelled."));
  } catch (error) {
    fill(byId("search-result"), refused(error));
  }
  byId("search-cancel").disabled = false;
  running(false);
  byId("search-start").focus();
}

function show(state) {
  const bar = byId("search-progress").querySelector("progress");
  if (state.total) bar.value = state.done / state.total;
  else bar.removeAttribute("value");
  const much = [state.total ? `${state.done.toLocaleString("en")} of ${state.total.toLocaleString("en")}` : state.done ? state.done.toLocaleString("en") : "starting", state.rate ? `${Math.round(state.rate).toLocaleString("en")} a second` : "", state.seconds ? text(state.seconds, "s") : ""];
  write(byId("search-progress").querySelector("p"), much.filter(Boolean).join(" · "));
}

function finish(state, query, objective) {
  job = null;
  running(false);
  byId("search-start").focus();
  if (state.state !== "done") {
    fill(byId("search-result"), state.error ? refused({ message: state.error.says, violations: state.error.violations }) : h("p", { class: "says", role: "status" }, state.state === "cancelled" ? "Cancelled." : "The search did not end well."));
    return;
  }
  found = { query, objective };
  const { result } = state;
  const use = (plan) => {
    become(plan.state);
    found = { query: question(), objective: wanted() }; // the plan is one of those found: nothing is out of date
    noteOther();
    byId("answer").scrollIntoView();
    byId("answer").focus({ preventScroll: true });
  };
  const click = (line, at) => {
    const plan = atPoint(result, line, at);
    if (plan) use(plan);
  };
  const listed = (one) => (one.kind !== "table" ? undefined : /^The best plan/.test(one.title) ? result.plans : /front/i.test(one.title) ? result.pareto : undefined);
  const more = (one) => (listed(one)?.length >= one.rows?.length
    ? (at) => h("button", { type: "button", class: "apply", "aria-label": `Use plan ${at + 1}`, onclick: () => use(listed(one)[at]) }, "Use") : undefined);
  const [verdict, ...sections] = documentOf(result.document, more);
  fill(byId("search-result"),
    h("p", { id: "search-stale", class: "says", role: "status", hidden: true }, "The question has changed since: search again for the new one."),
    verdict, result.figures.map((one) => h("div", null, figureOf(one, { click }), h("p", { class: "caption" }, "A click on a point makes its plan the question."))), ...sections);
}

/** The plan of a point: the one of its list (the front's, or all that are listed) with these two figures. */
function atPoint(result, line, at) {
  const key = line.label === "the front" ? "pareto" : "plans";
  const place = result.data[key].findIndex((plan) => [line.x[at], line.y[at]].every((value) => Object.values(plan).includes(value)));
  return place >= 0 ? result[key][place] : null;
}
