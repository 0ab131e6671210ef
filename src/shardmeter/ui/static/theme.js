// Light or dark: as the system has it until a person says otherwise; kept on this machine only.

const KEY = "shardmeter-theme";
const dark = matchMedia("(prefers-color-scheme: dark)");
const listeners = [];

function kept() {
  try {
    return localStorage.getItem(KEY);
  } catch {
    return null; // storage is closed to this page: the system's choice stands
  }
}

/** `light` or `dark`, whichever is shown. */
export const shown = () => document.documentElement.dataset.theme ?? (dark.matches ? "dark" : "light");

/** Call when the colours change. */
export const onTheme = (call) => listeners.push(call);

function show(theme) {
  if (theme) document.documentElement.dataset.theme = theme;
  listeners.forEach((call) => call(shown()));
}

/** Wire the button that turns it. */
export function startTheme(button) {
  const said = kept();
  if (said === "light" || said === "dark") document.documentElement.dataset.theme = said;
  const label = () => {
    const other = shown() === "dark" ? "light" : "dark";
    button.setAttribute("aria-label", `Show in ${other} colours`);
    button.title = `Show in ${other} colours`;
  };
  button.addEventListener("click", () => {
    const next = shown() === "dark" ? "light" : "dark";
    try {
      localStorage.setItem(KEY, next);
    } catch {
      // not kept beyond this page
    }
    show(next);
    label();
  });
  dark.addEventListener("change", () => {
    show(null);
    label();
  });
  label();
}

/** A colour of the style sheet. */
export const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

export const still = () => matchMedia("(prefers-reduced-motion: reduce)").matches;
