// The faults of the bus and of the provider, as their APIs list them, each with its settings as fields.
import { ask } from "./ask.js";
import { attribute, each, el, text } from "./dom.js";
import { openPanel } from "./panel.js";
import { faultButton } from "./stations.js";

const TITLES = { bus: "Break the bus", sms: "Break the provider" };
const UNITS = { rate: "share, in %", seconds: "seconds", code: "error code", times: "how often", topic: "topic" };
const HINTS = { times: "always", topic: "every topic" };
const lists = new Map(); // target → the list in the panel, once it was opened

export function bindFaults(latest) {
  for (const target of Object.keys(TITLES)) {
    faultButton(target).addEventListener("click", ({ currentTarget }) => {
      if (!lists.has(target)) lists.set(target, { note: el("p", { class: "note" }), list: el("ul", { class: "faults" }) });
      const { note, list } = lists.get(target);
      drawFaults(latest());
      openPanel(currentTarget, TITLES[target], [note, list]);
    });
  }
}

export function drawFaults(faults) {
  for (const [target, { note, list }] of lists) {
    const { why, items } = faults?.data?.[target] ?? { why: "not known yet", items: [] };
    note.hidden = !why;
    text(note, why ?? "");
    each(list, items, (fault) => fault.name, (fault) => makeFault(target, fault), (row, fault) => row.change(fault));
  }
}

// The settings that this fault has. The bus names only those that are set.
function settingsOf(target, fault) {
  if (target === "bus") return { ...(fault.name === "delay" ? { seconds: fault.seconds ?? 5 } : {}), topic: fault.topic ?? "" };
  const { name, description, active, rate, seed, ...settings } = fault;
  return settings;
}

function makeFault(target, fault) {
  const { name, description } = fault, id = `${target}-${name}`, fields = new Map();
  const button = el("button", { type: "button", role: "switch", class: "switch", "aria-checked": "false", "aria-labelledby": id, "aria-describedby": `${id}-what`,
    onclick: () => send(!isOn()) });
  const isOn = () => button.getAttribute("aria-checked") === "true", refused = el("p", { class: "refused", role: "alert" });
  for (const key of ["rate", ...Object.keys(settingsOf(target, fault))]) {
    const kind = key === "topic" ? { type: "text" } : { type: "number", min: key === "rate" || key === "times" ? 1 : 0, max: key === "rate" ? 100 : null, step: key === "seconds" ? "any" : 1 };
    fields.set(key, el("input", { ...kind, name: key, placeholder: HINTS[key], autocomplete: "off", onchange: () => { if (isOn()) send(true); } }));
  }
  fields.get("rate").value = "100";
  let sent = Promise.resolve(); // a press before the last one was answered is sent after it, not lost
  const send = (on) => { sent = sent.then(async () => show(await ask(button, "PUT", `/api/faults/${target}/${name}`, on ? wanted() : { rate: 0 }))); };
  const show = (results) => { // a refused field is marked; the others keep what was typed
    const wrong = results.find((result) => !result.ok)?.words ?? "";
    text(refused, wrong.replace(/^Refused: /, ""));
    for (const [key, input] of fields) attribute(input, "aria-invalid", wrong.includes(key) ? "true" : null);
  };
  const wanted = () => {
    const body = {};
    for (const [key, { value }] of fields) if (value !== "") body[key] = key === "topic" ? value : key === "rate" ? value / 100 : Number(value);
    return body;
  };
  const row = el("li", {}, button, el("div", {}, el("b", { id }, name), el("p", { id: `${id}-what`, class: "soft" }, ...description.split("`").map((part, place) => place % 2 ? el("code", {}, part) : part)),
    el("div", { class: "settings" }, ...[...fields].map(([key, input]) => el("label", {}, UNITS[key] ?? key, input))), refused));
  row.change = (fresh) => {
    attribute(button, "aria-checked", String(fresh.active));
    attribute(row, "data-on", fresh.active ? "" : null);
    const values = { ...settingsOf(target, fresh), ...(fresh.active ? { rate: Math.round(fresh.rate * 100) } : {}) };
    for (const [key, value] of Object.entries(values)) {
      const input = fields.get(key);
      if (input && input !== document.activeElement && (fresh.active || input.value === "")) input.value = value ?? "";
    }
  };
  return row;
}
