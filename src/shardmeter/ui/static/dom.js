// Elements of the page, made from words: no markup is ever built from text, so no text of an answer can become markup.

const SVG = "http://www.w3.org/2000/svg";

/** Put attributes on an element: `on…` listens, `class`, `text`, `style` (an object) and booleans as people expect. */
function dress(element, attributes) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "text") element.textContent = value;
    else if (name === "style") for (const [key, said] of Object.entries(value)) element.style.setProperty(key, said);
    else if (name === "value") element.value = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
}

/** An HTML element with attributes and children (elements, texts, or nothing). */
export function h(tag, attributes, ...children) {
  const element = document.createElement(tag);
  dress(element, attributes);
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** The same of SVG. */
export function svg(tag, attributes, ...children) {
  const element = document.createElementNS(SVG, tag);
  dress(element, attributes);
  element.append(...children.flat(Infinity).filter(Boolean));
  return element;
}

export const byId = (id) => document.getElementById(id);

/** Replace what stands in an element. */
export function fill(element, ...children) {
  element.replaceChildren(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** Set a text only where it differs: what has not changed is neither painted nor read out again. */
export function write(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

let last = 0;
/** An id that nothing else on the page has. */
export const fresh = (stem) => `${stem}-${++last}`;

/** Call a function when no further call has come for `wait` milliseconds. */
export function settled(wait, call) {
  let timer = 0;
  return (...given) => {
    clearTimeout(timer);
    timer = setTimeout(() => call(...given), wait);
  };
}
