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
const grouped = (value, places) => value.toLocaleString("en", { minimumFractionDigits: places, maximumFractionDigits: places });
const rounded = (value) => Number(value.toPrecision(3));

/** Three significant digits, no exponent unless extreme. */
function digits(value) {
  const near = rounded(value);
  if (near !== 0 && (near < 1e-9 || near >= 1e16)) return wide(String(near));
  return near.toLocaleString("en", { maximumFractionDigits: 12, useGrouping: false });
}

/** A time with the zeros at its end: 2.00 s. */
const padded = (value) => (rounded(value) >= 1e-3 && rounded(value) < 1e3 ? value.toPrecision(3).replace(/e\+2$/, "") : digits(value));

/** Dollars: $2.10, $80,181, $1.66M. */
export function money(value) {
  if (value < 0) return `-${money(-value)}`;
  for (const [size, suffix] of COUNTS.slice(0, 3)) if (rounded(value) >= size) return `$${digits(value / size)}${suffix}`;
  if (value >= 99.995) return `$${grouped(value, 0)}`;
  return value >= 0.995 || value === 0 ? `$${value.toFixed(2)}` : `$${digits(value)}`;
}

/** A bare number: whole and large ones with thousands apart, others with four digits. */
export function number(value) {
  if (Number.isInteger(value) && Math.abs(value) < 1e15) return value.toLocaleString("en");
  if (Math.abs(value) >= 1e3 && Math.abs(value) < 1e15) return Math.round(value).toLocaleString("en");
  if (Math.abs(value) >= 1e-3 && Math.abs(value) < 1e3) return String(Number(value.toPrecision(4)));
  return wide(value.toExponential(3));
}

/** A value in SI with its unit; `%` takes a fraction, any unknown unit follows the number. */
export function text(value, unit = "") {
  if (value === null || value === undefined || (typeof value === "number" && !Number.isFinite(value))) return MISSING;
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value !== "number") return String(value);
  if (unit === "%") return `${(100 * value).toFixed(1)} %`;
  if (unit === "±%") return Math.abs(value) < 5e-4 ? "0.0 %" : `${value > 0 ? "+" : ""}${(100 * value).toFixed(1)} %`;
  if (unit === "GiB") return `${grouped(value, 1)} GiB`;
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
  return `${digits(value)}${word}`;
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
  if (seconds >= 172800) return `${digits(seconds / 86400)} days`;
  return text(seconds, "s");
}

/** Two ends of an interval: "406,000 to 521,000". Three digits of each in SI, and then the unit, as `predict` prints them. */
export function between(ends, show) {
  if (!ends || ends[0] === null || ends[1] === null) return "";
  const [[low, ...unit], [high, ...same]] = ends.map((one) => show(rounded(one)).split(" "));
  return `${[low, ...(unit.join(" ") === same.join(" ") ? [] : unit)].join(" ")} to ${[high, ...same].join(" ")}`; // the unit once
}

/** The same in the unit of the value. */
export const span = (ends, unit) => between(ends, (one) => text(one, unit));

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
