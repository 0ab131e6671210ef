// The one-line plan: NAME[,key=value…], as in fsdp,tp=8,recompute=full.

/** Its parts: commas inside brackets do not part. */
function parts(line) {
  const made = [""];
  let depth = 0;
  for (const letter of line) {
    if ("[({".includes(letter)) depth += 1;
    if ("])}".includes(letter)) depth -= 1;
    if (letter === "," && depth === 0) made.push("");
    else made[made.length - 1] += letter;
  }
  return made.map((part) => part.trim());
}

export const head = (line) => parts(line)[0];

/** The value of a key, "" where it is not said. */
export function get(line, key) {
  const found = parts(line).slice(1).find((part) => part.startsWith(`${key}=`));
  return found ? found.slice(key.length + 1) : "";
}

/** The line with a key set, or left out where the value is empty; `sharding` is its head. */
export function put(line, key, value) {
  const [name, ...pairs] = parts(line);
  if (key === "sharding") return [value || "fsdp", ...pairs].join(",");
  const at = pairs.findIndex((pair) => pair.startsWith(`${key}=`));
  if (value === "" && at >= 0) pairs.splice(at, 1);
  else if (value !== "" && at >= 0) pairs[at] = `${key}=${value}`;
  else if (value !== "") pairs.push(`${key}=${value}`);
  return [name, ...pairs].join(",");
}
