// The stations of the stage, in the order of an event's path to the phones and back, and the controls of their processes.
import { ask } from "./ask.js";
import { attribute, byId, each, el, mark, text } from "./dom.js";

// `at` is the row and the column. If the `source` does not answer, the station is marked as stale.
const STATIONS = [
  { id: "client", at: [1, 1], name: "Client", lead: "taps for the mother", processes: { "console": "shows this page" } },
  { id: "api", at: [1, 2], name: "API", lead: "checks and commits", source: "labour", processes: { "labour-api": "commits" } },
  { id: "outbox", at: [1, 3], name: "Database", lead: "labour and its outbox", source: "labour", processes: { "postgres": "keeps every row" } },
  { id: "relay", at: [1, 4], name: "Relay", lead: "publishes in order", processes: { "labour-relay": "publishes" } },
  { id: "topic", at: [1, 5], name: "Topic", lead: "at least once, any order", target: "bus", processes: { "pubsub": "is the bus" } },
  { id: "consumer", at: [1, 6], name: "Consumer", lead: "takes each event once", processes: { "notification-consumer": "claims" } },
  { id: "ledger", at: [1, 7], name: "Ledger", lead: "and claims: one commit", source: "notification", processes: {} },
  { id: "dispatcher", at: [1, 8], name: "Dispatcher", lead: "sends, or asks", processes: { "notification-dispatcher": "sends" } },
  { id: "provider", at: [1, 9], name: "Provider", lead: "Twilio’s stand-in", target: "sms", source: "sms", processes: { "sms-sandbox": "is the provider" } },
  { id: "callback", at: [2, 8], name: "Callback", lead: "signed status reports", source: "notification", processes: { "notification-api": "hears the provider" } },
  { id: "back-outbox", at: [2, 7], name: "Outbox", lead: "beside the ledger", source: "notification", processes: {} },
  { id: "back-relay", at: [2, 6], name: "Relay", lead: "publishes the outcome", processes: { "notification-relay": "publishes" } },
  { id: "back-topic", at: [2, 5], name: "Topic", lead: "notification.*", processes: {} },
  { id: "labour-consumer", at: [2, 4], name: "Consumer", lead: "takes each status once", processes: { "labour-consumer": "claims" } },
  { id: "statistics", at: [2, 1], name: "Statistics", lead: "also takes labour.*", processes: { "labour-statistics": "counts" } },
];
export const NAMES = { ...Object.fromEntries(STATIONS.map(({ id, name }) => [id, name])), phones: "phone", told: "told" };

const stations = STATIONS.map((station) => makeStation(station));

function makeStation(station) {
  const { id, name, lead, target, at: [row, column] } = station;
  const slot = el("div", { class: "slot", "data-slot": id }), more = el("p", { class: "more" }), list = el("ul", { class: "processes" });
  const faults = target && el("button", { type: "button", class: "break", id: `break-${target}`, "aria-haspopup": "dialog" }, "Faults");
  const node = el("article", { class: `station row-${row} column-${column}`, "aria-label": name, "data-station": id },
    el("h3", {}, name), el("p", { class: "lead" }, lead), more, slot, list, ...(faults ? [faults] : []));
  byId("grid").append(node);
  return { ...station, node, more, list, faults };
}

export const slots = () => document.querySelectorAll("[data-slot]");

export function drawProcesses(part) {
  const rows = new Map((part?.data ?? []).map((row) => [row.process, row]));
  for (const station of stations) {
    const wanted = Object.entries(station.processes).flatMap(([name, verb]) => {
      const replicas = [...rows.keys()].filter((one) => one.startsWith(`${name}-`) && /^\d+$/.test(one.slice(name.length + 1)));
      return [name, ...replicas].map((one) => ({ name: one, verb }));
    });
    each(station.list, wanted, ({ name }) => name, makeProcess, (node, { name }) => node.change(part?.ok ? rows.get(name) : null, Boolean(part?.ok)));
    const states = wanted.map(({ name }) => healthOf(rows.get(name))[0]);
    attribute(station.node, "data-state", part?.ok ? ["bad", "wait"].find((state) => states.includes(state)) ?? "ok" : "unknown");
  }
}

function makeProcess({ name }) {
  const health = el("span"), again = el("span", { class: "soft", role: "img", hidden: true });
  const send = (change) => ({ currentTarget }) => ask(currentTarget, "POST", `/api/processes/${name}/${change}`);
  const kill = el("button", { type: "button", class: "kill", "aria-label": `Kill ${name}`, onclick: send("kill") }, "Kill");
  const hold = el("button", { type: "button", class: "kill", "aria-label": `Hold ${name} down`, onclick: send("hold") }, "Hold");
  const release = el("button", { type: "button", class: "next", "aria-label": `Release ${name}`, hidden: true, onclick: send("release") }, "Release");
  const node = el("li", { "data-process": name }, el("b", {}, name, " ", again), el("p", {}, health), el("p", { class: "controls" }, kill, ...(name === "console" ? [] : [hold]), release));
  node.change = (row, isKnown) => {
    const [state, words] = isKnown ? healthOf(row) : ["unknown", "not known"];
    mark(health, state, words.split(": ")[0]); // the title has the reason as well
    attribute(health, "title", words);
    const isHeld = Boolean(row?.is_held), hadFocus = [kill, hold, release].includes(document.activeElement);
    for (const [button, hidden] of [[kill, isHeld], [hold, isHeld], [release, !isHeld]]) if (button.hidden !== hidden) button.hidden = hidden;
    if (hadFocus && document.activeElement?.hidden) (isHeld ? release : hold).focus(); // a hidden button would lose the focus of the keyboard
    const restarts = row?.restarts ?? 0, label = `restarted ${restarts === 1 ? "once" : `${restarts} times`}`;
    again.hidden = !restarts;
    text(again, `↻${restarts}`);
    attribute(again, "aria-label", label);
    attribute(again, "title", label);
  };
  return node;
}

const LONG_START = 60; // seconds

export function healthOf(process) {
  if (!process) return ["bad", "not running"];
  const { health, state } = process;
  if (health === "healthy") return ["ok", "healthy"];
  if (health === "killed") return ["bad", "killed"];
  if (health.startsWith("not started: ")) return ["ok", "not started"];
  if (process.is_held) return ["bad", "held down"];
  if (health.startsWith("waiting: ")) return ["wait", health];
  if (["running", "starting"].includes(state) && !health.startsWith("no heartbeat for")) return ["wait", process.uptime_seconds > LONG_START ? "no answer" : "starting"];
  return ["bad", health === state ? "down" : health];
}

// Draws which sources do not answer, how many events wait beside the drawn tokens, and how many faults are on.
export function drawStations(flow, faults) {
  for (const { id, node, source, more, target, faults: button } of stations) {
    const silent = source && flow?.data?.silent[source];
    attribute(node, "data-stale", silent ? "" : null);
    const beyond = flow?.data?.more[id] ?? 0;
    text(more, silent ? "does not answer" : beyond ? `${beyond.toLocaleString("en")} more ${beyond === 1 ? "waits" : "wait"}` : "");
    if (!target) continue;
    const on = (faults?.data?.[target].items ?? []).filter((fault) => fault.active).length;
    text(button, on ? `Faults: ${on} on` : "Faults");
    attribute(button, "data-on", on ? "" : null);
  }
}

export const faultButton = (target) => stations.find((station) => station.target === target).faults;
