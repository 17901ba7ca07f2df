// Draws metrics of the last five minutes as small lines, each with its value as text.
import { byId, count, each, el, text } from "./dom.js";

const WIDTH = 120, HEIGHT = 28, SVG = "http://www.w3.org/2000/svg";
const shown = (value, unit) => value === null ? "–" : unit === "count" ? count(Math.round(value), "time").replace(/ times?$/, "") : value < 1 ? `${Math.round(1000 * value)} ms` : `${value < 10 ? value.toFixed(1) : Math.round(value).toLocaleString("en")} s`;

export function drawMetrics(part) {
  each(byId("lines"), part?.data ?? [], (line) => line.name, make, (item, line) => {
    text(item.querySelector("b"), shown(line.now, line.unit));
    item.querySelector("path").setAttribute("d", path(line.values));
  });
}

function make(line) {
  const picture = document.createElementNS(SVG, "svg");
  for (const [name, value] of Object.entries({ viewBox: `0 0 ${WIDTH} ${HEIGHT}`, "aria-hidden": "true", preserveAspectRatio: "none" })) picture.setAttribute(name, value);
  picture.append(document.createElementNS(SVG, "path"));
  return el("li", { "data-line": line.name }, el("span", { class: "soft" }, line.title), el("b"), picture);
}

// The line has a gap where no value is known, and is at the bottom where nothing happened.
function path(values) {
  const most = Math.max(...values.map((value) => value ?? 0), 1e-9), step = WIDTH / (values.length - 1);
  return values.map((value, place) => value === null ? null : [place * step, HEIGHT - 2 - (HEIGHT - 4) * value / most])
    .map((point, place, all) => point && `${all[place - 1] ? "L" : "M"}${point.map((number) => number.toFixed(1)).join(" ")}${all[place - 1] || all[place + 1] ? "" : "h1"}`)
    .filter(Boolean).join("");
}
