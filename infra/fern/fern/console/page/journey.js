// The journey of one event, hop by hop, from the request to the phones and back.
import { attribute, clock, count, each, el, text } from "./dom.js";
import { closePanel, openPanel } from "./panel.js";
import { makeWaterfall } from "./waterfall.js";

let replay = () => {}, names = new Map(), opened = null;
export const onReplay = (play) => { replay = play; };

export function openJourney(anchor, eventId) {
  const hops = el("ol", { class: "hops", tabindex: "0", "aria-label": "Hops" }), note = el("p", { class: "note", role: "status" }, "Looking…");
  const again = el("button", { type: "button", onclick: () => { closePanel(); replay(eventId); } }, "Play again on the stage");
  const waterfall = makeWaterfall(eventId);
  opened = { eventId, hops, note, waterfall, type: el("p", { class: "soft" }) };
  openPanel(anchor, "Journey of an event", [opened.type, el("p", {}, again), note, hops, waterfall.node], () => { opened = null; }, "tall");
  refreshJourney();
  refreshWaterfall();
}

export const refreshWaterfall = () => opened?.waterfall.refresh().catch(() => {}); // tried again when the next spans arrive

let asking = false, askAgain = false;
export async function refreshJourney() {
  if (!opened) return;
  if (asking) { askAgain = true; return; } // one request at a time, and one more after it
  asking = true;
  const { eventId, hops, note, type } = opened;
  try {
    const answer = await fetch(`/api/journey/${eventId}`), journey = await answer.json();
    if (!answer.ok) throw new Error(journey.detail);
    text(type, `${journey.type} of ${clock(journey.steps[0].at)}: ${count(journey.steps.length, "hop")}`);
    text(note, "");
    drawHops(hops, journey.steps);
  } catch (error) {
    text(note, error.message || "The console does not answer.");
  }
  asking = false;
  if (askAgain) { askAgain = false; refreshJourney(); }
}

function drawHops(list, steps) {
  each(list, steps.map((step, place) => ({ ...step, key: `${place} ${step.hop}` })), (step) => step.key,
    () => el("li", {}, el("p", { class: "when" }), el("p", {}, el("b"), " ", el("span", { class: "soft" }))),
    (item, { hop, after_ms: after, facts }) => {
      const [when, what] = item.children;
      text(when, after === null ? "" : `+${Math.round(after).toLocaleString("en")} ms`);
      text(what.firstElementChild, hop);
      text(what.lastElementChild, Object.entries(facts).filter(([, value]) => value !== null).map(([name, value]) => `${name} ${shortly(value)}`.trim()).join(" · "));
    });
}

// Draws the newest events as buttons, which open the journey also of an event that has left the stage.
export function drawEvents(list, flow) {
  names = new Map((flow.story?.subscribers ?? []).map((one) => [one.id, one.name]));
  const events = flow.tokens.filter((token) => token.kind === "event").reverse();
  each(list, events, (token) => token.id, (token) => el("li", {}, el("button", { type: "button", class: "chip", "data-journey": token.id,
    onclick: ({ currentTarget }) => openJourney(currentTarget, token.id) })),
    (item, token) => {
      text(item.firstChild, `${token.name} ${clock(token.hops[0][1])}`);
      attribute(item.firstChild, "aria-label", `Journey of ${token.type} of ${clock(token.hops[0][1])}`);
    });
}

// Ids are long: people are shown by name, everything else by the end of its id.
const ID = /[0-9a-f]{8}-[0-9a-f-]{20}([0-9a-f]{7})/g;
const shortly = (value) => String(value).replace(ID, (id, end) => names.get(id) ?? `…${end}`);
