// Numbers as people read them: three significant digits and always a unit. The same ladders as the command line has.

export const MISSING = "–";
const LADDERS = {
  s: [[172800, "d", 86400], [7200, "h", 3600], [120, "min", 60], [1, "s"], [1e-3, "ms"], [1e-6, "us"], [1e-9, "ns"]],
  B: [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"], [1, "B"]],
  "B/s": [[1e12, "TB/s"], [1e9, "GB/s"], [1e6, "MB/s"], [1e3, "kB/s"], [1, "B/s"]],
  "bit/s": [[1e12, "Tbit/s"], [1e9, "Gbit/s"], [1e6, "Mbit/s"], [1e3, "kbit/s"], [1, "bit/s"]],
  FLOP: [[1e18, "EFLOP"], [1e15, "PFLOP"], [1e12, "TFLOP"], [1e9, "GFLOP"], [1e6, "MFLOP"], [1, "FLOP"]],
  "FLOP/s": [[1e15, "PFLOP/s"], [1e12, "TFLOP/s"], [1e9, "GFLOP/s"], [1e6, "MFLOP/s"], [1, "FLOP/s"]],
  W: [[1e6, "MW"], [1e3, "kW"], [1, "W"]],
  "W*s": [[3.6e9, "MWh"], [3.6e6, "kWh"], [1, "J"]],
};
const COUNTS = [[1e12, "T"], [1e9, "B"], [1e6, "M"], [1e4, "k"]];

const COUNTED = ["sequences", "steps", "bits", "nodes", "islands"]; // words that lose their s with one

/** An exponent of two digits: 1.0e-08. */
const wide = (text) => text.replace(/e([+-])(\d)$/, "e$10$2");
const HALF = /^50*$/; // what is exactly between two, which the even digit gets, as the command line gives it
const odd = (digits) => Number(digits.at(-1)) % 2 === 1;

/** A number with so many places: its exact value rounded once. */
export function fixed(value, places) {
  if (!(Math.abs(value) < 1e21)) return String(value);
  const near = Math.abs(value).toFixed(places);
  const exact = Math.abs(value).toFixed(100);
  const end = exact.indexOf(".") + (places && 1 + places);
  const made = odd(near) && HALF.test(exact.slice(end).replace(".", "")) ? exact.slice(0, end) : near;
  return Object.is(value, -0) || value < 0 ? `-${made}` : made;
}

/** The same with so many significant digits, as an exponential: 1.23e+4. */
function precise(value, digits) {
  const near = value.toExponential(digits - 1);
  const [exact, power] = Math.abs(value).toExponential(99).split("e");
  const tie = odd(near.split("e")[0]) && HALF.test(exact.slice(digits + 1));
  return tie ? `${value < 0 ? "-" : ""}${exact.slice(0, digits + 1)}e${power}` : near;
}

const grouped = (value, places) => {
  const [whole, ...rest] = fixed(value, places).split(".");
  return [whole.replace(/\B(?=(\d{3})+$)/g, ","), ...rest].join(".");
};
const rounded = (value) => Number(precise(value, 3));

/** Three significant digits, no exponent unless extreme. */
function digits(value) {
  const near = rounded(value);
  if (near !== 0 && (near < 1e-9 || near >= 1e16)) return wide(String(near));
  return fixed(near, 12).replace(/\.?0+$/, "");
}

/** A time with the zeros at its end: 2.00 s. */
const padded = (value) => (rounded(value) >= 1e-3 && rounded(value) < 1e3 ? rounded(value).toPrecision(3) : digits(value));

/** Dollars: $2.10, $80,181, $1.66M. */
function money(value) {
  if (value < 0) return `-${money(-value)}`;
  for (const [size, suffix] of COUNTS.slice(0, 3)) if (rounded(value) >= size) return `$${digits(value / size)}${suffix}`;
  if (value >= 99.995) return `$${grouped(value, 0)}`;
  return value >= 0.995 || value === 0 ? `$${fixed(value, 2)}` : `$${digits(value)}`;
}

/** A bare number: whole and large ones with thousands apart, others with four digits. */
export function number(value) {
  if (value === 0) return "0";
  if (Math.abs(value) < 1e15 && (Number.isInteger(value) || Math.abs(value) >= 1e3)) return grouped(value, 0);
  if (Math.abs(value) >= 1e-3 && Math.abs(value) < 1e3) return String(Number(precise(value, 4)));
  return wide(precise(value, 4));
}

/** A value in SI with its unit; `%` takes a fraction, any unknown unit follows the number. */
export function text(value, unit = "") {
  if (value === null || value === undefined || (typeof value === "number" && !Number.isFinite(value))) return MISSING;
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value !== "number") return String(value);
  if (unit === "%") return `${fixed(100 * value, 1)} %`;
  if (unit === "±%") return Math.abs(value) < 5e-4 ? "0.0 %" : `${value > 0 ? "+" : ""}${fixed(100 * value, 1)} %`;
  if (unit === "GiB") return `${grouped(value, 2)} GiB`;
  if (unit === "s" && value > 0 && value < 1e-6) return "< 1 us";
  if (unit in LADDERS) return value < 0 ? `-${ladder(-value, unit)}` : ladder(value, unit);
  if (value < 0) return `-${text(-value, unit)}`;
  if (unit === "USD") return money(value);
  if (unit === "USD/s") return `$${grouped(value * 3600, 2)}/h`;
  if (unit === "tokens") return count(value, " tokens");
  return `${number(value)} ${value === 1 && COUNTED.includes(unit) ? unit.slice(0, -1) : unit}`.trimEnd();
}

function ladder(value, unit) {
  if (value === 0) return `0 ${unit === "W*s" ? "J" : unit}`;
  const steps = LADDERS[unit];
  const [size, name, whole] = steps.find(([least, , one]) => rounded(value / (one ?? least)) >= least / (one ?? least)) ?? steps.at(-1);
  return `${(unit === "s" ? padded : digits)(value / (whole ?? size))} ${name}`;
}

/** A large number in short: 465k, 1.5T. */
export function count(value, word = "") {
  for (const [size, suffix] of COUNTS) {
    if (rounded(value) >= size) return `${digits(value / (suffix === "k" ? 1e3 : size))}${suffix}${word}`;
  }
  return `${Number.isInteger(value) ? fixed(value, 0) : digits(value)}${word}`;
}

/** The size and name of the one unit in which an axis up to `value` reads best. */
export function unitFor(value, unit) {
  const size = Math.abs(value);
  if (unit === "%" || unit === "±%") return [0.01, "%"];
  if (unit === "USD/s") return [1 / 3600, "$/h"];
  if (unit in LADDERS) {
    const [least, name, whole] = LADDERS[unit].find(([one]) => size >= one) ?? [1, unit];
    return [whole ?? least, name];
  }
  const [by, suffix] = COUNTS.slice(0, 3).find(([one]) => size >= one) ?? [1, ""];
  if (unit === "USD") return [by, `$${suffix}`];
  return [by, `${suffix} ${unit}`.trim()];
}

/** A duration for a headline: 24.9 days; hours and minutes below two days. */
export function duration(seconds) {
  if (seconds === null || seconds === undefined) return MISSING;
  if (seconds >= 172800) return `${padded(seconds / 86400)} days`;
  return text(seconds, "s");
}

const DOLLARS = 99.995; // from which on they are whole
const ITS_OWN = ["%", "±%", "GiB", "USD/s", "tokens"]; // units that `text` writes with few digits by itself

/** A value that is known roughly, as an end of an interval: three significant digits in its unit, rounded once. */
function coarse(value, unit) {
  const kept = unit in LADDERS || ITS_OWN.includes(unit) || (unit === "USD" && Math.abs(value) < DOLLARS);
  return text(kept ? value : rounded(value), unit);
}

/** Both ends of an interval, as `predict` prints them: "406,000 to 521,000"; a unit that both have is said once. */
export function between(ends, unit = "") {
  if (!ends || ends[0] === null || ends[1] === null) return "";
  const [[low, ...one], [high, ...other]] = ends.map((end) => coarse(end, unit).split(" "));
  return `${[low, ...(one.join(" ") === other.join(" ") ? [] : one)].join(" ")} to ${[high, ...other].join(" ")}`;
}

/** Bandwidth, bytes a second → text that a scenario takes: 25 Gbps. */
export function bandwidth(bits) {
  const [size, name] = [[1e12, "Tbps"], [1e9, "Gbps"], [1e6, "Mbps"], [1e3, "kbps"]].find(([one]) => bits >= one) ?? [1, "bps"];
  return `${Number((bits / size).toPrecision(3))} ${name}`;
}

/** What a person wrote as a rate of bits (`25 Gbps`, `100 Mbit/s`) in bit/s; null where it is none. */
export function bits(said) {
  const found = /^\s*([\d.]+)\s*([kMGT]?)(bps|bit\/s)\s*$/.exec(said ?? "");
  return found ? Number(found[1]) * { "": 1, k: 1e3, M: 1e6, G: 1e9, T: 1e12 }[found[2]] : null;
}
