// Lists by reason what waits for an operator's decision: dead letters and parked rows. Every change is previewed first.
import { ask } from "./ask.js";
import { byId, clock, count, each, el, text } from "./dom.js";
import { closePanel, openPanel } from "./panel.js";

const KINDS = {
  dead: {
    key: ({ topic, consumer, reason }) => ({ topic, consumer, reason }),
    title: ({ topic, consumer }) => `${topic}, for ${consumer}`,
    since: "oldest_died_at",
    things: (number) => count(number, "dead letter"),
    previews: {
      redrive: (group) => `${KINDS.dead.things(group.count)} will be published to ${group.topic} again. Every consumer of that topic gets it; one that has completed the event before ignores it, so no text is sent twice. If ${group.consumer} fails again, the message comes back here.`,
      discard: (group) => `${KINDS.dead.things(group.count)} will be acknowledged, and ${group.consumer} records that an operator discarded them. They never have an effect, not even after a replay, and the people whom they concern are not told. This cannot be undone.`,
    },
  },
  parked: {
    key: ({ service, type, reason }) => ({ service, type, reason }),
    title: ({ service, type }) => `${type}, in the outbox of ${service}`,
    since: "oldest_parked_at",
    things: (number) => count(number, "parked row"),
    previews: {
      retry: (group) => `The relay tries ${KINDS.parked.things(group.count)} of ${count(group.labours, "labour")} again, with all attempts left. Later events of these labours follow in order. If the bus still rejects a row, it is parked again.`,
      discard: (group) => `${KINDS.parked.things(group.count)} of ${count(group.labours, "labour")} will be discarded. They stay in the table, are never published and notify no person. Later events of these labours are no longer held up. This cannot be undone.`,
    },
  },
};
const VERBS = { redrive: "Redrive", retry: "Retry", discard: "Discard" };
const counts = { dead: null, parked: null };

export function drawSetAside(dead, parked) {
  for (const [kind, number] of [["dead", dead], ["parked", parked]]) {
    if (number === undefined || number === counts[kind]) continue;
    counts[kind] = number;
    load(kind);
  }
  byId("nothing-aside").hidden = counts.dead !== 0 || counts.parked !== 0; // hidden too while the counts are not known
}

async function load(kind) {
  const list = byId(`${kind}-list`), title = byId(`${kind}-title`);
  title.parentElement.hidden = !counts[kind];
  text(title, KINDS[kind].things(counts[kind] ?? 0));
  if (!counts[kind]) { each(list, [], () => "", el, () => {}); return; }
  try {
    const answer = await fetch(`/api/set-aside/${kind}`), { groups, more, detail } = await answer.json();
    if (!answer.ok) throw new Error(detail);
    each(list, groups, (group) => JSON.stringify(KINDS[kind].key(group)), (group) => makeGroup(kind, group), (row, group) => row.change(group));
    text(byId(`${kind}-note`), more ? `Only the first ${more.toLocaleString("en")} are listed.` : "");
    if (kind === "dead" && !groups.length) {
      text(byId("dead-note"), "Another look holds the dead letters for a moment. Trying again…");
      setTimeout(() => load(kind), 3000);
    }
  } catch (error) {
    text(byId(`${kind}-note`), `${error.message} Trying again…`);
    setTimeout(() => load(kind), 3000);
  }
}

function makeGroup(kind, first) {
  const reason = el("b"), what = el("span", { class: "soft" });
  let group = first;
  const name = () => `${KINDS[kind].things(group.count)}: ${group.reason}`;
  const buttons = [el("button", { type: "button", onclick: ({ currentTarget }) => look(kind, group, currentTarget) }, "Look"),
    ...Object.keys(KINDS[kind].previews).map((verb) => el("button", { type: "button", onclick: ({ currentTarget }) => preview(kind, verb, group, currentTarget) }, VERBS[verb]))];
  const row = el("li", {}, el("p", {}, reason, " ", what), el("p", { class: "controls" }, ...buttons));
  row.change = (fresh) => {
    group = fresh;
    text(reason, group.reason ?? "no reason recorded");
    text(what, `${count(group.count, "message")} · ${KINDS[kind].title(group)} · since ${clock(group[KINDS[kind].since])}`);
    buttons.forEach((button) => button.setAttribute("aria-label", `${button.textContent}: ${name()}`));
  };
  return row;
}

async function look(kind, group, anchor) {
  const list = el("ol", { class: "details", tabindex: "0", "aria-label": "Messages" }), note = el("p", { class: "note", role: "status" }, "Looking…");
  openPanel(anchor, KINDS[kind].title(group), [note, list]);
  try {
    const answer = await fetch(`/api/set-aside/${kind}/look`, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(KINDS[kind].key(group)) });
    const { items, total, detail } = await answer.json();
    if (!answer.ok) throw new Error(detail);
    text(note, `${items.length} of ${KINDS[kind].things(total)}, without names, numbers and texts.`);
    list.replaceChildren(...items.map((item) => el("li", {}, el("dl", {}, ...Object.entries(item).flatMap(([key, value]) => [
      el("dt", {}, key), el("dd", {}, typeof value === "string" ? value : JSON.stringify(value))])))));
  } catch (error) {
    text(note, error.message);
  }
}

function preview(kind, verb, group, anchor) {
  const confirm = el("button", { type: "button", class: verb === "discard" ? "kill" : "next" }, VERBS[verb]);
  confirm.addEventListener("click", async () => {
    await ask(confirm, "POST", `/api/set-aside/${kind}/change/${verb}`, KINDS[kind].key(group));
    closePanel();
    load(kind);
  });
  const cancel = el("button", { type: "button", class: "quiet", onclick: closePanel }, "Cancel");
  openPanel(anchor, `${VERBS[verb]}: what will happen`, [el("p", {}, KINDS[kind].previews[verb](group)), el("p", { class: "controls" }, confirm, cancel)]);
}
