// One event from the request to the phones, hop by hop. It follows the newest that anybody is told about, until you pick another.
import { attribute, byId, clock, each, el, text } from "./dom.js";

const NOTABLE = new Set(["labour.begun", "labour.announced", "labour.completed"]);
const select = byId("event");
let picked = null, drawn = "";
select.addEventListener("change", () => { picked = select.value; });

export function drawEvents(labour, notification) {
  const events = [...(labour?.data?.events ?? []), ...(notification?.data?.events ?? [])].sort((a, b) => b.recorded_at.localeCompare(a.recorded_at));
  byId("journey").querySelector(".empty").hidden = events.length > 0;
  select.parentElement.hidden = !events.length;
  if (picked && !events.some((event) => event.event_id === picked)) picked = null;
  each(select, events, (event) => event.event_id, (event) => el("option", { value: event.event_id }),
    (option, event) => text(option, `${event.type} at ${clock(event.occurred_at)}`));
  const shown = picked ?? (events.find((event) => NOTABLE.has(event.type)) ?? events[0])?.event_id;
  if (shown && select.value !== shown) select.value = shown;
  const now = JSON.stringify([shown, labour?.data?.claims, notification?.data?.claims, notification?.data?.ledger.states, events.find((event) => event.event_id === shown)]);
  if (shown && now !== drawn) { drawn = now; drawJourney(); }
}

let asked = 0;
export async function drawJourney() {
  const mine = ++asked, section = byId("journey");
  let steps;
  try {
    const answer = await fetch(`/api/journey/${select.value}`);
    if (!answer.ok) throw new Error(answer.status);
    ({ steps } = await answer.json());
  } catch {
    attribute(section, "data-stale", "");
    return;
  }
  if (mine !== asked) return; // a later one is on its way
  attribute(section, "data-stale", null);
  const began = steps.length ? Date.parse(steps[0].at) : 0;
  each(section.querySelector(".hops"), steps.map((step, place) => ({ ...step, place })), ({ place, hop }) => `${place} ${hop}`,
    () => el("li", {}, el("p", { class: "when" }), el("div", {}, el("b"), el("p", { class: "soft" }))),
    (item, { hop, at, facts }) => {
      text(item.firstElementChild, at ? `+${Math.max(0, Math.round(Date.parse(at) - began))} ms` : "");
      text(item.lastElementChild.firstElementChild, hop);
      text(item.lastElementChild.lastElementChild, Object.entries(facts ?? {}).filter(([, value]) => value !== null && value !== "").map(([name, value]) => `${name.replaceAll("_", " ")} ${value}`).join(" · "));
    });
}
