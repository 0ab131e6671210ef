// The tabs below the answer: each is asked only when it is opened, and again when the question has changed.

import { byId, fill, h } from "./dom.js";
import { said, turn } from "./state.js";

/** The word of the tab that is shown. */
export const current = (views) => (views.some((view) => view.id === said("tab")) ? said("tab") : views[0].id);

/** Build tabs and their panels; `views` have `id` and `label`. */
export function startTabs(views) {
  const list = byId("tabs");
  fill(list, views.map((view) => h("button", { type: "button", role: "tab", id: `tab-${view.id}`, "aria-controls": `panel-${view.id}`, onclick: () => open(views, view.id) }, view.label)));
  fill(byId("panels"), views.map((view) => h("div", { role: "tabpanel", id: `panel-${view.id}`, "aria-labelledby": `tab-${view.id}`, tabindex: "0", hidden: true })));
  list.addEventListener("keydown", (event) => {
    const at = views.findIndex((view) => `tab-${view.id}` === document.activeElement?.id);
    const next = { ArrowRight: (at + 1) % views.length, ArrowLeft: (at + views.length - 1) % views.length, Home: 0, End: views.length - 1 }[event.key];
    if (at < 0 || next === undefined) return;
    event.preventDefault();
    open(views, views[next].id);
    byId(`tab-${views[next].id}`).focus();
  });
}

const open = (views, id) => turn({ tab: id === views[0].id ? "" : id });

/** Show the tab that the address names; its panel is returned. */
export function showTab(views) {
  const now = current(views);
  for (const view of views) {
    const tab = byId(`tab-${view.id}`);
    const chosen = view.id === now;
    tab.setAttribute("aria-selected", String(chosen));
    tab.tabIndex = chosen ? 0 : -1;
    byId(`panel-${view.id}`).hidden = !chosen;
    if (chosen) {
      const list = byId("tabs");
      if (tab.offsetLeft < list.scrollLeft || tab.offsetLeft + tab.offsetWidth > list.scrollLeft + list.clientWidth) list.scrollLeft = tab.offsetLeft - 16;
    }
  }
  return views.find((view) => view.id === now);
}
