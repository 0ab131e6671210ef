// A text field with a list to choose from: typed words narrow it, arrows move in it, Enter takes, Escape closes.

import { fill, fresh, h } from "./dom.js";

const MOST = 60;

/** How well an entry answers typed words: 0 not at all, else the larger the better. */
function rank(entry, words) {
  const name = entry.name.toLowerCase();
  const all = [name, entry.says ?? "", ...(entry.aliases ?? [])].join(" ").toLowerCase();
  if (!words.every((word) => all.includes(word))) return 0;
  if (!words.length) return 1;
  return name.startsWith(words[0]) ? 4 : words.every((word) => name.includes(word)) ? 3 : 2;
}

/** Make an input a combobox. `entries()` gives (a promise of) `{name, says}`; `take(value)` is called on a choice or an edit. */
export function combobox(input, entries, take) {
  const list = h("ul", { role: "listbox", id: fresh("list"), class: "options", hidden: true });
  const box = h("span", { class: "combobox" });
  input.replaceWith(box);
  box.append(input, list);
  for (const [name, value] of Object.entries({ role: "combobox", "aria-expanded": "false", "aria-controls": list.id, "aria-autocomplete": "list", autocomplete: "off", spellcheck: "false" })) {
    input.setAttribute(name, value);
  }
  let active = -1;
  let before = input.value;

  const options = () => [...list.children].filter((one) => one.role === "option" || one.getAttribute("role") === "option");
  const close = () => {
    list.hidden = true;
    active = -1;
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
  };
  const point = (at) => {
    const all = options();
    all.forEach((one, k) => one.setAttribute("aria-selected", String(k === at)));
    active = at;
    if (at < 0) return input.removeAttribute("aria-activedescendant");
    input.setAttribute("aria-activedescendant", all[at].id);
    all[at].scrollIntoView({ block: "nearest" });
  };
  const choose = (value) => {
    input.value = value;
    before = value;
    close();
    take(value);
  };
  const open = async (typed) => {
    const known = await entries().catch(() => []);
    if (document.activeElement !== input) return;
    const words = typed ? input.value.toLowerCase().split(/\s+/).filter(Boolean) : [];
    const ranked = known.map((entry, at) => [rank(entry, words), -at, entry]).filter(([one]) => one > 0).sort((a, b) => b[0] - a[0] || b[1] - a[1]);
    const shown = ranked.slice(0, MOST).map(([, , entry]) => h("li", { role: "option", id: fresh("option"), "aria-selected": "false", "data-name": entry.name,
      onmousedown: (event) => event.preventDefault(), onclick: () => choose(entry.name) }, h("span", { class: "name" }, entry.name), entry.says && h("span", { class: "says" }, entry.says)));
    fill(list, shown, ranked.length > MOST && h("li", { class: "rest", role: "presentation" }, `and ${ranked.length - MOST} more: type to narrow`),
      !ranked.length && h("li", { class: "rest", role: "presentation" }, "Nothing in the catalog has this name."));
    list.hidden = false;
    input.setAttribute("aria-expanded", "true");
    active = -1;
    const own = shown.findIndex((one) => one.dataset.name === input.value);
    if (!typed && own >= 0) point(own);
  };

  input.addEventListener("input", () => open(true));
  input.addEventListener("click", () => (list.hidden ? open(false) : close()));
  input.addEventListener("keydown", (event) => {
    const all = options();
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      if (list.hidden) open(false);
      else if (all.length) point(event.key === "ArrowDown" ? (active + 1) % all.length : (active + all.length - (active < 0 ? 0 : 1)) % all.length);
    } else if (event.key === "Enter") {
      if (!list.hidden && active >= 0) {
        event.preventDefault();
        choose(all[active].dataset.name);
      } else {
        event.preventDefault();
        choose(input.value.trim());
      }
    } else if (event.key === "Escape" && !list.hidden) {
      event.preventDefault();
      input.value = before;
      close();
    }
  });
  input.addEventListener("focus", () => (before = input.value));
  input.addEventListener("blur", () => {
    close();
    if (input.value.trim() !== before) choose(input.value.trim());
  });
  return box;
}
