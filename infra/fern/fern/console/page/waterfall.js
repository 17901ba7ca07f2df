// The waterfall of an event's trace: one row for each span, with a bar where the span was on the time axis.
import { count, each, el, text } from "./dom.js";

const PROCESSES = ["labour-api", "labour-relay", "notification-consumer", "notification-dispatcher", "notification-api", "notification-relay", "labour-consumer", "labour-statistics"];
const ms = (number) => `${number < 10 ? number.toFixed(1) : Math.round(number).toLocaleString("en")} ms`;

// The place of a time on the axis, in per cent. A long time in which no span runs takes 8 %, and is marked.
function axisOf(spans) {
  const end = Math.max(...spans.map((span) => span.start_ms + span.duration_ms), 1), gaps = [];
  let until = 0;
  for (const { start_ms: start, duration_ms: takes } of [...spans].sort((one, other) => one.start_ms - other.start_ms)) {
    if (start - until > end / 8) gaps.push({ from: until, to: start });
    until = Math.max(until, start + takes);
  }
  const idle = gaps.reduce((sum, gap) => sum + gap.to - gap.from, 0), scale = (100 - 8 * gaps.length) / Math.max(end - idle, 0.1);
  const at = (time) => gaps.reduce((place, { from, to }) => {
    const inside = Math.min(Math.max(time - from, 0), to - from);
    return place - inside * scale + 8 * inside / (to - from);
  }, Math.max(0, time) * scale);
  return { at, gaps, end };
}

export function makeWaterfall(eventId) {
  const title = el("h3", { id: "waterfall-title" }, "Trace"), note = el("p", { class: "soft" }, "No spans. The console keeps the newest traces, in memory, until it is restarted.");
  const breaks = el("span", { class: "breaks" }), axis = el("p", { class: "axis", "aria-hidden": "true" }, el("span", {}, "0"), breaks, el("span"));
  const rows = el("ol", { class: "spans" });
  const node = el("section", { class: "waterfall", "aria-labelledby": "waterfall-title" }, title, note, axis, rows);
  let shown = null; // the linked trace that was opened instead of the event's own

  async function look(path) {
    const answer = await fetch(path);
    return answer.ok ? answer.json() : null;
  }
  async function refresh() {
    const [first] = shown ? [{ id: shown }] : (await look(`/api/traces?event_id=${eventId}`)) ?? [];
    const trace = first ? await look(`/api/traces/${first.id}`) : null;
    if (trace) draw(trace);
  }
  function draw(trace) {
    const { at, gaps, end } = axisOf(trace.spans);
    const processes = new Set(trace.spans.map((span) => span.process)).size;
    text(note, `${count(trace.spans.length, "span")} of ${count(processes, "process", "processes")}, ${ms(end)}${trace.dropped ? `; ${trace.dropped} more are not kept` : ""}`);
    text(axis.lastElementChild, ms(end));
    each(rows, trace.spans, (span) => span.span_id, make, (row, span) => {
      const bar = row.querySelector(".bar");
      bar.style.left = `${at(span.start_ms)}%`;
      bar.style.width = `${at(span.start_ms + span.duration_ms) - at(span.start_ms)}%`;
    });
    each(breaks, gaps, (gap) => String(gap.from), () => el("span"), (item, gap) => {
      item.style.left = `${at(gap.from)}%`;
      text(item, "⋯");
    });
  }
  function make(span) {
    const hue = `p${PROCESSES.indexOf(span.process) + 1}`;
    const words = `${span.failed ? "✕ " : ""}${span.name}`;
    const facts = { process: `${span.process} (${span.instance.split(":").pop()})`, begins: `+${ms(span.start_ms)}`, takes: ms(span.duration_ms), ...span.attributes };
    const links = span.links.filter((link) => link.is_kept).map((link) => el("button", { type: "button", class: "chip",
      onclick: () => { shown = link.trace_id; refresh(); } }, `linked trace ${link.trace_id.slice(-7)}`));
    return el("li", { class: `${hue}${span.failed ? " failed" : ""}`, "data-span": span.name }, el("details", {},
      el("summary", {}, el("span", { class: "label" }, el("b", {}, words), " ", el("span", { class: "soft" }, `${span.process}, ${ms(span.duration_ms)}`)), el("span", { class: "track", "aria-hidden": "true" }, el("span", { class: "bar" }))),
      el("dl", {}, ...Object.entries(facts).flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, String(value))])), ...links));
  }
  return { node, refresh };
}
