// Small helpers. All text enters the page as text: it is never markup.
export const byId = (id) => document.getElementById(id);

export function el(tag, options = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(options)) {
    if (name === "class") node.className = value;
    else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children);
  return node;
}

export function text(node, words) {
  if (node.textContent !== words) node.textContent = words;
}

export function attribute(node, name, value) {
  if (value === null) node.removeAttribute(name);
  else if (node.getAttribute(name) !== value) node.setAttribute(name, value);
}

// Keeps one child for each item, in the order of the items. Children are made once and then only changed.
export function each(parent, items, key, make, change) {
  const kept = parent.kept ??= new Map();
  const wanted = new Set(items.map(key));
  for (const [name, child] of kept) if (!wanted.has(name)) { child.remove(); kept.delete(name); }
  items.forEach((item, place) => {
    const name = key(item), isNew = !kept.has(name);
    if (isNew) kept.set(name, make(item));
    const child = kept.get(name);
    if (parent.children[place] !== child) parent.insertBefore(child, parent.children[place] ?? null);
    change(child, item, isNew);
  });
}

export const count = (number, one, many = `${one}s`) => `${number.toLocaleString("en")} ${number === 1 ? one : many}`;
export const clock = (time) => new Date(time).toLocaleTimeString("en-GB");

export function age(seconds) {
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 120) return `${Math.round(seconds)} s`;
  return seconds < 7200 ? `${Math.round(seconds / 60)} min` : `${Math.round(seconds / 3600)} h`;
}

// "ok" | "wait" | "bad" | "unknown", each with a sign and words: colour alone says nothing.
const SIGNS = { ok: "✓", wait: "◷", bad: "✕", unknown: "?" };
export function mark(node, state, words) {
  attribute(node, "class", `mark ${state}`);
  text(node, `${SIGNS[state]} ${words}`);
}

export const calm = matchMedia("(prefers-reduced-motion: reduce)");
