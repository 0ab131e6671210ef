// The page: the address is the question, the server answers it, and what is shown follows.

import { ask, once } from "./api.js";
import { figuresOf, showNumbers, staleAnswer, startAnswer } from "./answer.js";
import { copy } from "./document.js";
import { byId, fill, h, write } from "./dom.js";
import { focusField, showProblems, showQuestion, showScenario, startQuestion } from "./question.js";
import { told } from "./refusal.js";
import { showSliders, startSliders } from "./sliders.js";
import { address, become, onState, question, startState } from "./state.js";
import { showTab, startTabs } from "./tabs.js";
import { startTheme } from "./theme.js";
import { VIEWS, learn, showBreakdown, showView } from "./views.js";

const PATIENCE = 250; // milliseconds after which a question of a slider is given up for a newer one
const LATER = [0, 429, 503, 504]; // refusals that another time may not get
const remembered = new Map();
let asking = null;
let waiting = null;
let predicting = null;
let drawn = "";
let refused = null;

/** Say what is wrong: at its fields, and above the figures. */
function refuse(error) {
  refused = error;
  const { left, marked } = showProblems(error);
  staleAnswer();
  byId("answer").classList.add("refused");
  const links = marked.map((one) => h("li", null, h("button", { type: "button", class: "link", onclick: () => focusField(one.key) }, one.label), `: ${one.says}`));
  fill(byId("problems"), h("div", { class: "refusal" }, h("ul", null, left.map((one) => h("li", null, one.field && h("code", null, one.field), " ", told(one))), links),
    LATER.includes(error.status) && h("button", { type: "button", class: "way", onclick: askPrediction }, "Ask again")));
}

function accept() {
  refused = null;
  byId("answer").classList.remove("refused");
  showProblems(null);
  fill(byId("problems"));
}

function remember(query, numbers) {
  remembered.set(query, numbers);
  if (remembered.size > 300) remembered.delete(remembered.keys().next().value);
}

function draw(query, numbers) {
  drawn = query;
  accept();
  showNumbers(numbers);
  performance.mark("redrawn", { detail: query });
}

/** Numbers while a slider moves: one question at a time, the newest next, one that takes long given up. */
async function askNumbers() {
  const query = question();
  if (remembered.has(query)) return draw(query, remembered.get(query));
  if (asking) {
    waiting = query;
    if (performance.now() - asking.since > PATIENCE) asking.abort.abort();
    return undefined;
  }
  const mine = (asking = { abort: new AbortController(), since: performance.now() });
  try {
    const numbers = await ask("numbers", query, mine.abort.signal);
    remember(query, numbers);
    draw(query, numbers);
  } catch (error) {
    if (error.name !== "AbortError" && (error.status === 422 || query === question())) refuse(error);
  }
  asking = null;
  if (waiting !== null && waiting !== query) {
    waiting = null;
    return askNumbers();
  }
  waiting = null;
  return undefined;
}

/** The whole prediction, once the question stands. */
async function askPrediction() {
  const query = question();
  predicting?.abort();
  const mine = (predicting = new AbortController());
  byId("answer").setAttribute("aria-busy", "true");
  if (query !== drawn) staleAnswer();
  try {
    const answer = await ask("predict", query, mine.signal);
    if (mine.signal.aborted) return;
    const numbers = figuresOf(answer.data);
    remember(query, { ...numbers, bottleneck: { ...numbers.bottleneck, relief: undefined } });
    draw(query, numbers);
    write(byId("title"), answer.document.title || "How fast, how long, how much");
    document.title = `${answer.data.model?.name ?? "ShardMeter"} · ShardMeter`;
    fill(byId("warnings"), (answer.data.warnings ?? []).map((one) => h("li", null, one)));
    showScenario(answer.scenario_yaml);
    showSliders(numbers);
    showBreakdown(answer);
    learn(answer);
  } catch (error) {
    if (error.name !== "AbortError") refuse(error);
  } finally {
    if (predicting === mine) byId("answer").removeAttribute("aria-busy");
  }
}

function follow(what) {
  if (what === "slide") {
    byId("relief").classList.add("stale");
    showQuestion();
    showSliders(null);
    askNumbers();
    return;
  }
  if (what === "question") {
    showQuestion();
    showSliders(null);
    askPrediction();
  }
  showView(showTab(VIEWS));
}

async function startExamples() {
  const menu = byId("examples");
  const { examples } = await once("examples");
  menu.append(...examples.map((one) => h("option", { value: one.name, title: one.line }, one.name)));
  menu.addEventListener("change", () => {
    const name = menu.value;
    menu.value = "";
    if (name) become(`example=${encodeURIComponent(name)}`);
  });
}

async function start() {
  startTheme(byId("theme"));
  byId("fields").addEventListener("submit", (event) => event.preventDefault());
  byId("copy-link").addEventListener("click", () => copy(address(), byId("copy-link")));
  startState();
  startAnswer();
  startTabs(VIEWS);
  startSliders();
  onState(follow);
  askPrediction();
  try {
    await startQuestion();
    if (refused) refuse(refused); // it came before there were fields to say it at
    await startExamples();
  } catch (error) {
    refuse(error);
  }
  showView(showTab(VIEWS));
}

start();
