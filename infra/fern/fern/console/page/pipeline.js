// Where everything is: what waits at each stage and since when, who moves it on, and the account over all of it.
import { ask } from "./ask.js";
import { age, attribute, byId, calm, clock, count, each, el, mark, text } from "./dom.js";

const SLOW = 2; // seconds after which something that waits is late
const sum = (items, value) => items.reduce((total, item) => total + value(item), 0);

// A tile says which parts it needs and what it sees in them: a number, words for it, more facts, and a state.
const TILES = {
  there: [
    { name: "Labour outbox", lead: "committed with the change", parts: ["labour"], see: ({ labour }) => outbox(labour.outbox),
      processes: { "labour-api": "commits", "labour-relay": "publishes" } },
    { name: "Topics", lead: "at least once, in any order", parts: ["bus"], see: ({ bus }) => topics(bus, ["notification"]),
      processes: { pubsub: "keeps", "notification-consumer": "claims" } },
    { name: "Claims and ledger", lead: "one transaction", parts: ["notification"], see: ({ notification }) => ledger(notification),
      processes: { "notification-dispatcher": "sends, or asks" } },
    { name: "Phones", lead: "one text each", parts: ["sms", "notification"], see: ({ sms, notification }) => texts(sms, notification),
      processes: { "sms-sandbox": "is Twilio here", "notification-api": "hears back" } },
  ],
  back: [
    { name: "Notification outbox", lead: "committed with the ledger", parts: ["notification"], see: ({ notification }) => outbox(notification.outbox),
      processes: { "notification-relay": "publishes" } },
    { name: "Topics", lead: "to the Labour service", parts: ["bus"], see: ({ bus }) => topics(bus, ["labour", "statistics"]),
      processes: { "labour-consumer": "claims", "labour-statistics": "claims" } },
    { name: "Told and statistics", lead: "what the mother sees", parts: ["labour"], see: ({ labour }) => claims(labour.claims), processes: {} },
    { name: "Underneath", lead: "holds every row; shows this page", parts: [], see: () => null,
      processes: { postgres: "remembers", console: "shows" } },
  ],
};

function outbox({ recorded, published, waiting, parked, discarded, oldest_waiting_seconds: oldest }) {
  const facts = [`${published} of ${recorded} published`];
  if (oldest > SLOW) facts.push(`oldest ${age(oldest)}`);
  if (discarded) facts.push(`${discarded} discarded`);
  if (parked) return { number: waiting + parked, words: "waiting", facts, state: "bad", why: `${parked} parked` };
  return { number: waiting, words: "waiting", facts, ...lateness(waiting, oldest) };
}

function topics({ backlog, dead }, consumers) {
  const mine = backlog.filter((item) => consumers.some((consumer) => item.subscription.startsWith(`${consumer}.`)));
  const waiting = sum(mine, (item) => item.unacked);
  const facts = [...new Set(mine.map((item) => item.topic))].slice(0, 2);
  if (!facts.length) facts.push("nothing on the way");
  const seen = { number: waiting, words: "not acked", facts, ...lateness(waiting, Math.max(...mine.map((item) => item.oldest_seconds ?? 0))) };
  return dead && consumers.includes("notification") ? { ...seen, state: "bad", why: count(dead, "dead letter") } : seen;
}

function ledger({ claims: { completed, repeats }, ledger: { states, oldest_unsettled_seconds: oldest } }) {
  const unsettled = states.PENDING + states.SENDING + states.IN_DOUBT;
  const facts = [`${completed} claimed, ${count(repeats, "repeat")} absorbed`];
  if (states.FAILED) facts.push(`${states.FAILED} refused for good`);
  if (states.SUPERSEDED) facts.push(`${states.SUPERSEDED} superseded`);
  const seen = { number: unsettled, words: "to settle", facts, ...lateness(unsettled, oldest) };
  return states.IN_DOUBT ? { ...seen, state: "wait", why: `${states.IN_DOUBT} in doubt` } : seen;
}

function texts({ total }, { ledger: { states } }) {
  const facts = [`${states.DELIVERED} reported delivered`];
  if (states.UNDELIVERED) facts.push(`${states.UNDELIVERED} not delivered`);
  return { number: total, words: total === 1 ? "text" : "texts", facts, state: "ok", why: !total ? "quiet" : states.DELIVERED < total ? "arriving" : "all arrived" };
}

function claims({ completed, repeats }) {
  return { number: completed, words: "claimed", facts: [`${count(repeats, "repeat")} absorbed`], state: "ok", why: "up to date" };
}

function lateness(waiting, oldest) {
  if (!waiting) return { state: "ok", why: "nothing waits" };
  if (oldest < SLOW) return { state: "ok", why: "on the way" };
  return { state: "wait", why: `behind: ${age(oldest)}` };
}

const tiles = Object.entries(TILES).flatMap(([lane, list]) => list.map((tile) => makeTile(byId(lane), tile)));

function makeTile(lane, tile) {
  const state = el("p"), number = el("b"), words = el("span"), facts = el("p", { class: "facts" }), flow = el("i", { class: "flow", "aria-hidden": "true" });
  const list = el("ul", { class: "processes" }), rows = {};
  for (const [name, verb] of Object.entries(tile.processes)) {
    const health = el("span"), again = el("span", { class: "soft", role: "img", hidden: true });
    const button = el("button", { type: "button", class: "kill", "aria-label": `Kill ${name}`,
      onclick: ({ currentTarget }) => ask(currentTarget, "POST", `/api/processes/${name}/kill`) }, "Kill");
    list.append(el("li", {}, el("div", {}, el("b", {}, name), el("p", {}, health, " ", el("span", { class: "soft" }, verb), " ", again)), button));
    rows[name] = { health, again };
  }
  const figure = el("div", { class: "figure" }, el("p", {}, number, " ", words), state);
  const node = el("article", { class: "tile" }, el("h4", {}, tile.name), el("p", { class: "soft" }, tile.lead), figure, ...(tile.parts.length ? [facts] : []), list, flow);
  lane.append(node);
  return { ...tile, node, state, number, words, facts, flow, rows, passed: null };
}

export function drawPipeline(parts) {
  const processes = new Map((parts.processes?.data ?? []).map((item) => [item.process, item]));
  for (const tile of tiles) {
    const missing = tile.parts.map((name) => parts[name]).filter((part) => !part?.ok);
    const known = tile.parts.every((name) => parts[name]?.data);
    attribute(tile.node, "data-stale", missing.length && tile.parts.length ? "" : null);
    let unwell = null;
    for (const [name, { health, again }] of Object.entries(tile.rows)) {
      const [state, words] = parts.processes?.ok ? healthOf(processes.get(name)) : ["unknown", "not known"];
      mark(health, state, words);
      if (state !== "ok" && unwell?.[0] !== "bad") unwell = [state, `${name.split("-").at(-1)} ${words}`];
      showRestarts(again, processes.get(name)?.restarts ?? 0);
    }
    const seen = known ? tile.see(Object.fromEntries(tile.parts.map((name) => [name, parts[name].data]))) : null;
    const [state, why] = missing.length ? ["unknown", missing[0]?.since ? `as of ${clock(missing[0].since)}` : "not known"]
      : unwell && seen?.state !== "bad" ? unwell
      : [seen?.state ?? "ok", seen?.why ?? "fine"];
    mark(tile.state, state, why);
    attribute(tile.node, "data-state", state);
    if (!seen) continue;
    text(tile.number, seen.number.toLocaleString("en"));
    text(tile.words, seen.words);
    text(tile.facts, seen.facts.join(" · "));
    flow(tile, seen);
  }
}

function healthOf(process) {
  if (!process) return ["bad", "not running"];
  if (process.health === "healthy") return ["ok", "healthy"];
  if (process.health.startsWith("not started: ")) return ["ok", "not started"];
  if (process.health.startsWith("waiting: ")) return ["wait", process.health];
  if (["running", "starting"].includes(process.state) && !process.health.startsWith("no heartbeat for")) return ["wait", "starting"];
  return ["bad", process.health === process.state ? "down" : process.health];
}

function showRestarts(node, restarts) {
  node.hidden = !restarts;
  text(node, `↻${restarts}`);
  attribute(node, "aria-label", `restarted ${restarts === 1 ? "once" : `${restarts} times`}`);
  attribute(node, "title", node.getAttribute("aria-label"));
}

// A spark along the way whenever something has moved on. One at a time, and none for those who want it calm.
function flow(tile, { number, facts }) {
  const now = `${number} ${facts}`;
  if (tile.passed !== null && tile.passed !== now && !calm.matches && !tile.flow.getAnimations().length) {
    tile.flow.animate([{ left: "0%", opacity: 0 }, { opacity: 1, offset: 0.2 }, { opacity: 1, offset: 0.8 }, { left: "100%", opacity: 0 }], { duration: 700, easing: "ease-in-out" });
  }
  tile.passed = now;
}

// Three equations. "=" when they hold, "…" while the rest is on its way, "≠" when something came from nowhere.
export function drawAccount({ ok, why, since, data }) {
  attribute(byId("account"), "data-stale", ok ? null : "");
  byId("account-note").hidden = ok;
  if (!ok) text(byId("account-note"), `${why}, so it cannot be drawn up now. ${since ? `This is as of ${clock(since)}.` : ""}`);
  if (!data) return;
  const equations = [
    ["every event", [["committed", data.recorded], ["published", data.published]]],
    ["wanted by consumers", [["wanted", data.wanted], ["claimed", data.claimed]]],
    ["people to text", [["effects", data.owed], ["sent", data.sent], ["SMS", data.texts]]],
  ].map(([title, terms]) => ({ title, terms, sign: terms.every(([, value]) => value === terms[0][1]) ? "=" : data.unexplained ? "≠" : "…" }));
  const rest = [
    { title: "repeats", number: data.repeats, words: "absorbed", state: "ok" },
    { title: "still", number: data.on_the_way, words: "on the way", state: data.on_the_way ? "wait" : "ok" },
    ...["parked", "dead", "discarded", "refused"].filter((name) => data[name]).map((name) => ({ title: "set aside", number: data[name], words: name, state: "wait" })),
    ...(data.superseded ? [{ title: "not sent", number: data.superseded, words: "superseded by a newer text", state: "ok" }] : []),
    { title: "unexplained", number: data.unexplained, words: data.unexplained ? "look into it: fern audit" : "all accounted for", state: data.unexplained ? "bad" : "ok" },
  ];
  each(byId("equations"), [...equations, ...rest], (one) => one.title + (one.terms ? "" : one.words),
    (one) => one.terms
      ? el("div", { class: "equation" }, el("dt", {}, one.title), el("dd", {}, ...one.terms.flatMap(([name], place) => [
        ...(place ? [el("i", {})] : []), el("span", {}, el("b", {}), el("small", {}, name))])))
      : el("div", { class: "rest" }, el("dt", {}, one.title), el("dd", {}, el("p"))),
    (node, one) => {
      if (!one.terms) { mark(node.querySelector("p"), one.state, `${one.number.toLocaleString("en")} ${one.words}`); return; }
      node.querySelectorAll("b").forEach((number, place) => text(number, one.terms[place][1].toLocaleString("en")));
      node.querySelectorAll("i").forEach((sign) => text(sign, one.sign));
    });
}

export function drawVerdict({ processes, account, bus, sms }) {
  const down = processes?.ok ? processes.data.filter((item) => healthOf(item)[0] !== "ok") : [];
  const faults = [bus, sms].flatMap((part) => (part?.ok ? part.data.faults : [])).filter((fault) => fault.active).length;
  const [state, words] = account?.ok && account.data.unexplained ? ["bad", `${account.data.unexplained} unexplained`]
    : down.length ? [down.every((item) => healthOf(item)[0] === "wait") ? "wait" : "bad", down.length === 1 ? `${down[0].process}: ${healthOf(down[0])[1]}` : `${down.length} processes are not well`]
    : faults ? ["wait", `${count(faults, "fault")} on, on purpose`]
    : account?.ok && account.data.on_the_way ? ["ok", `${account.data.on_the_way} on the way`]
    : processes?.ok ? ["ok", "all is well"] : ["unknown", "not known"];
  mark(byId("verdict"), state, words);
  byId("clear").classList.toggle("next", faults > 0 || Boolean(account?.data?.parked));
}
