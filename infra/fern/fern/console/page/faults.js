// A switch for everything that can go wrong on purpose, as the bus and the sandbox list it themselves.
import { ask } from "./ask.js";
import { attribute, each, el, text } from "./dom.js";

const RATES = [100, 50, 30, 10];

export function drawFaults(section, target, { ok, why, data }) {
  const note = section.querySelector(".note");
  attribute(section, "data-stale", ok ? null : "");
  note.hidden = ok;
  if (!ok) text(note, why);
  each(section.querySelector(".faults"), data?.faults ?? [], (fault) => fault.name,
    (fault) => makeFault(target, fault), (row, fault) => row.change(fault));
}

function makeFault(target, { name, description }) {
  const id = `${target}-${name}`;
  const rate = el("select", { "aria-label": `How often ${name} strikes`, onchange: () => { if (isOn()) send(); } }, ...RATES.map(option));
  const button = el("button", { type: "button", role: "switch", class: "switch", "aria-checked": "false", "aria-labelledby": id, "aria-describedby": `${id}-what`,
    onclick: () => send(!isOn()) });
  const isOn = () => button.getAttribute("aria-checked") === "true";
  let sent = Promise.resolve(); // a press before the last one was answered is sent after it, not lost
  const send = (on = true) => {
    const body = { rate: on ? rate.value / 100 : 0 };
    sent = sent.then(() => ask(button, "PUT", `/api/faults/${target}/${name}`, body));
  };
  const row = el("li", {}, button, el("div", {}, el("b", { id }, name), el("p", { id: `${id}-what`, class: "soft" }, description.replaceAll("`", ""))), rate);
  row.change = (fault) => {
    attribute(button, "aria-checked", String(fault.active));
    attribute(row, "data-on", fault.active ? "" : null);
    if (!fault.active || document.activeElement === rate) return;
    const percent = Math.round(fault.rate * 100);
    if (![...rate.options].some((one) => Number(one.value) === percent)) rate.append(option(percent)); // set by a command
    rate.value = percent;
  };
  return row;
}

const option = (percent) => el("option", { value: percent }, `${percent} %`);
