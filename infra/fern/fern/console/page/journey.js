// One event from the request to the phones, hop by hop. It follows the newest event that notifies, until you pick another.
import { attribute, byId, clock, each, el, text } from "./dom.js";

const NOTABLE = new Set(["labour.begun", "labour.announced", "labour.completed"]);
const select = byId("event");
let picked = null, shown = null, drawn = "", kept = new Map();
select.addEventListener("change", () => { picked = select.value; });

export function drawEvents(labour, notification, story) {
  names = new Map((story?.data?.subscribers ?? []).map((one) => [one.id, one.name]));
  const events = [...(labour?.data?.events ?? []), ...(notification?.data?.events ?? [])].sort((a, b) => b.recorded_at.localeCompare(a.recorded_at));
  byId("journey").querySelector(".empty").hidden = events.length > 0;
  select.parentElement.hidden = !events.length;
  if (picked && !events.some((event) => event.event_id === picked)) events.push(kept.get(picked)); // no longer among the newest
  kept = new Map(events.map((event) => [event.event_id, event]));
  each(select, events, (event) => event.event_id, (event) => el("option", { value: event.event_id }),
    (option, event) => text(option, `${event.type} at ${clock(event.occurred_at)}`));
  const follow = picked ?? (events.find((event) => NOTABLE.has(event.type)) ?? events[0])?.event_id;
  if (follow && select.value !== follow) select.value = follow;
  const now = JSON.stringify([follow, labour?.data?.claims, notification?.data?.claims, notification?.data?.ledger.states, events.find((event) => event.event_id === follow)]);
  if (follow && now !== drawn) { drawn = now; drawJourney(); }
}

let names = new Map(), asking = false, askAgain = false;
export async function drawJourney() {
  if (asking) { askAgain = true; return; } // one question at a time, and the last one counts
  asking = true;
  const wanted = select.value;
  attribute(byId("journey"), "data-stale", wanted === shown ? null : ""); // what is there is another's
  try {
    const answer = await fetch(`/api/journey/${wanted}`);
    if (!answer.ok) throw new Error(answer.status);
    drawHops((await answer.json()).steps);
    shown = wanted;
    attribute(byId("journey"), "data-stale", null);
  } catch {
    attribute(byId("journey"), "data-stale", "");
    setTimeout(drawJourney, 2000);
  }
  asking = false;
  if (askAgain) { askAgain = false; drawJourney(); }
}

function drawHops(steps) {
  each(byId("journey").querySelector(".hops"), steps.map((step, place) => ({ ...step, key: `${place} ${step.hop}` })), (step) => step.key,
    () => el("li", {}, el("p", { class: "when" }), el("p", {}, el("b"), " ", el("span", { class: "soft" }))),
    (item, { hop, after_ms: after, facts }) => {
      const [when, what] = item.children;
      text(when, after === null ? "" : `+${Math.round(after).toLocaleString("en")} ms`);
      text(what.firstElementChild, hop);
      text(what.lastElementChild, Object.entries(facts).filter(([, value]) => value !== null).map(([name, value]) => `${name} ${shortly(value)}`.trim()).join(" · "));
    });
}

// Ids are long: people are shown by name, everything else by the end of its id.
const ID = /[0-9a-f]{8}-[0-9a-f-]{20}([0-9a-f]{7})/g;
const shortly = (value) => String(value).replace(ID, (id, end) => names.get(id) ?? `…${end}`);
