// Ticks of an axis: round numbers of one unit, or each with its own on a logarithmic axis over many sizes.

import { number, text, unitFor } from "./format.js";

const OWN_UNITS = 500; // largest over smallest value beyond which every tick carries its own unit
const TIMES = [1e-9, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 0.01, 0.1, 1, 10, 60, 600, 3600, 36e3, 864e2, 864e3, 864e4, 864e5];
const STEPS = [1, 2, 2.5, 5, 10];
const SIZED = ["s", "B", "B/s", "bit/s", "FLOP", "FLOP/s", "W", "W*s"];

function even(low, high, size, most) {
  const least = (high - low) / size / most;
  const power = 10 ** Math.floor(Math.log10(least));
  const step = STEPS.find((one) => one * power >= least * (1 - 1e-9)) * power * size;
  const made = [];
  for (let at = Math.ceil(low / step - 1e-9); at * step <= high * (1 + 1e-9) && made.length < 50; at += 1) made.push(at * step);
  return made;
}

function powers(low, high, unit, size, most) {
  if (unit === "s" && high / low > OWN_UNITS) return thin(TIMES.filter((one) => one >= low && one <= high), most);
  const decades = [];
  for (let at = Math.floor(Math.log10(low / size)); at <= Math.ceil(Math.log10(high / size)); at += 1) decades.push(at);
  for (const between of [[1, 2, 3, 4, 5, 6, 7, 8, 9], [1, 2, 5], [1, 3], [1]]) {
    const made = decades.flatMap((at) => between.map((one) => Number((one * 10 ** at).toPrecision(6)) * size)).filter((one) => one >= low && one <= high);
    if (made.length <= most) return made.length > 1 ? made : even(low, high, size, most);
  }
  return thin(decades.map((at) => 10 ** at * size).filter((one) => one >= low && one <= high), most);
}

const thin = (ticks, most) => ticks.filter((_, at) => at % Math.max(1, Math.ceil(ticks.length / most)) === 0);

/** Ends, ticks with their texts and the title with its unit, for a scale over values; `ends` where they are given. */
export function axisOf(scale, values, { most = 7, ends = null } = {}) {
  if (scale.labels?.length) {
    return { low: -0.6, high: scale.labels.length - 0.4, ticks: scale.labels.map((one, at) => [at, one]), title: scale.title, log: false };
  }
  const known = [...new Set(values.filter((one) => Number.isFinite(one) && (one > 0 || !scale.log)))].sort((a, b) => a - b);
  if (!known.length) known.push(1, 2);
  const [low, high] = ends ?? around(scale, known);
  const own = scale.log && known.at(-1) / known[0] > OWN_UNITS && SIZED.includes(scale.unit);
  const [size, name] = scale.log && ["", "×"].includes(scale.unit) ? [1, scale.unit] : unitFor(scale.log ? Math.sqrt(low * high) : Math.max(Math.abs(low), Math.abs(high)), scale.unit);
  const few = known.length > 2 && known.length <= 2 * most && scale.log && !own && apart(known);
  const at = few ? thin(known, most) : scale.log ? powers(low, high, scale.unit, size, most) : even(low, high, size, most);
  const said = own ? (one) => text(one, scale.unit) : (one) => number(Number((one / size).toPrecision(6)));
  return { low, high, ticks: at.map((one) => [one, said(one)]), title: own || !name ? scale.title : `${scale.title} (${name})`, log: scale.log };
}

function around(scale, known) {
  const [low, high] = [known[0], known.at(-1)];
  if (scale.log) {
    const air = Math.max((high / low) ** 0.05, 1.05);
    return [low / air, high * air];
  }
  const room = high - low || Math.abs(high) || 1;
  return [low >= 0 && low <= 0.3 * high ? 0 : low - 0.06 * room, high <= 0 && -low > high ? 0 : high + 0.08 * room];
}

const apart = (known) => known.every((one, at) => at === 0 || Math.log(one / known[at - 1]) > 0.07 * Math.log(known.at(-1) / known[0]));

/** Edges of the cells around centres. */
export function edges(centres, log) {
  const at = log ? centres.map(Math.log) : [...centres];
  const middle = at.slice(1).map((one, k) => (one + at[k]) / 2);
  const [first, last] = middle.length ? [2 * at[0] - middle[0], 2 * at.at(-1) - middle.at(-1)] : [at[0] - 1, at[0] + 1];
  return [first, ...middle, last].map((one) => (log ? Math.exp(one) : one));
}

/** A value of a scale as a text of its own. */
export const told = (value, scale) => (value !== null && scale.labels?.length ? (scale.labels[value] ?? "–") : text(value, scale.unit));
