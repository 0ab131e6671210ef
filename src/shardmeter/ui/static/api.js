// Questions to the server that gave the page; nobody else is ever asked.

const CLIENT = Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");

/** What the server says is wrong: a sentence, and every violation with its field and way out. */
export class Refusal extends Error {
  constructor(status, error) {
    super(error?.says ?? `the server answered ${status}`);
    this.status = status;
    this.violations = error?.violations ?? [];
  }
}

async function json(path, options) {
  let response;
  try {
    response = await fetch(path, { ...options, headers: { "X-Client": CLIENT, ...options?.headers } });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refusal(0, { says: "The server does not answer. Is `shardmeter ui` still running?" });
  }
  const body = await response.json().catch(() => null);
  if (!response.ok) throw new Refusal(response.status, body?.error);
  return body;
}

/** The answer of a view to a question (a query string). */
export const ask = (view, query, signal) => json(`/api/${view}?${query}`, { signal });

const found = new Map();
/** Something that does not change while the page is open: a catalog, the examples, the form. */
export function once(path) {
  if (!found.has(path)) {
    found.set(path, json(`/api/${path}`).catch((error) => {
      found.delete(path);
      throw error;
    }));
  }
  return found.get(path);
}

export const startSearch = (query) =>
  json("/api/search", { method: "POST", body: query, headers: { "Content-Type": "application/x-www-form-urlencoded" } });
export const askSearch = (job) => json(`/api/search/${encodeURIComponent(job)}`);
export const endSearch = (job) => json(`/api/search/${encodeURIComponent(job)}`, { method: "DELETE" });
/** End a search while the page is left: nobody waits for the answer. */
export const leaveSearch = (job) => void fetch(`/api/search/${encodeURIComponent(job)}`, { method: "DELETE", keepalive: true, headers: { "X-Client": CLIENT } });

/** A text as the `yaml` of a question: deflated, in letters that an address may have. */
export async function packed(text) {
  const squeezed = new Blob([text]).stream().pipeThrough(new CompressionStream("deflate-raw"));
  const bytes = new Uint8Array(await new Response(squeezed).arrayBuffer());
  const letters = Array.from(bytes, (byte) => String.fromCharCode(byte)).join("");
  return btoa(letters).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
}
