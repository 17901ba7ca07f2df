// The mother's side: her newest labour, what she can do with it, and what each person was told.
import { ask, markRefused } from "./ask.js";
import { attribute, byId, each, el, text } from "./dom.js";

const PEOPLE = ["Grace", "Alan", "Edsger", "Barbara", "Donald", "Margaret", "Ken", "Radia", "Leslie", "Frances"];
const PHASES = { planned: "planned", early: "early labour", active: "active labour", transition: "transition", pushing: "pushing", complete: "complete" };
const EVENTS = { "labour.begun": "begun", "labour.announced": "announced", "labour.completed": "born", "consent.requested": "asked" };
const verbs = new Map([...document.querySelectorAll("[data-verb]")].map((node) => [node.dataset.verb, node]));

for (const [verb, node] of verbs) {
  const run = (body) => ask(node.querySelector("button") ?? node, "POST", `/api/labour/${verb}`, body);
  if (node.tagName === "FORM") {
    node.addEventListener("submit", async (event) => {
      event.preventDefault();
      const results = await run(Object.fromEntries(new FormData(node)));
      markRefused(node, results);
      if (verb === "subscribe" && results.length && results.every((one) => one.ok)) node.elements.name.value = ""; // the next is proposed
    });
  } else {
    node.addEventListener("click", () => run({}));
  }
}

export function drawStory(story, silent) {
  const people = (story?.subscribers ?? []).filter((one) => one.state === "approved");
  attribute(byId("drive"), "data-stale", silent ? "" : null);
  text(byId("drive-title"), story ? `${story.mother_name}’s labour` : "No labour yet");
  text(byId("phase"), silent ? "not known: labour-api does not answer" : story ? PHASES[story.phase] ?? story.phase : "plan one");
  text(verbs.get("contraction"), story?.contractions.some((one) => !one.ended_at) ? "End the contraction" : "Start a contraction");
  const next = recommended(story, people);
  for (const [verb, node] of verbs) (node.querySelector("button") ?? node).classList.toggle("next", verb === next);
  propose(people);
}

// The step that a newcomer should take next, in every state.
function recommended(story, people) {
  if (!story || story.phase === "complete") return "plan";
  if (!people.length) return "subscribe";
  if (story.phase === "planned") return "begin";
  return story.is_announced ? "complete" : "announce";
}

// Who is on the list, and what each was told: "begun ✓ announced ✓ born ✓". `isPending` says how many are still on the film.
export function drawTold(story, pending) {
  const people = (story?.subscribers ?? []).filter((one) => one.state === "approved");
  byId("no-people").hidden = people.length > 0;
  each(byId("people"), people, (one) => one.id, (one) => el("li", {}, el("b", {}, one.name), " ", el("span")),
    (item, one) => text(item.lastElementChild, words(story.told.filter((status) => status.person_id === one.id), (type) => pending(one.id, type))));
}

function words(statuses, pending) {
  const left = {};
  const told = statuses.filter(({ event_type: type }) => {
    left[type] ??= statuses.filter((one) => one.event_type === type).length - pending(type);
    return left[type]-- > 0;
  });
  if (!told.length) return "nothing yet";
  return told.map(({ event_type: type, status }) => {
    const name = EVENTS[type] ?? type;
    return status === "failed" ? `${name} ✕` : status === "superseded" ? `${name} (superseded)` : `${name} ✓`;
  }).join(" ");
}

// A person who is not on the list yet, with a number reserved for fiction. Never while the user is typing.
function propose(people) {
  const form = verbs.get("subscribe"), { name, phone } = form.elements;
  if (name.value || form.contains(document.activeElement) && document.activeElement.tagName === "INPUT") return;
  const numbers = new Set(people.map((one) => one.phone));
  name.value = PEOPLE.find((one) => !people.some((person) => person.name === one)) ?? "Guest";
  for (let tail = 11; tail < 100; tail += 11) {
    phone.value = `+120255501${tail}`;
    if (!numbers.has(phone.value)) break;
  }
}
