// The mother's side: her newest labour, and what she can do with it.
import { ask } from "./ask.js";
import { attribute, byId, count, each, el, text } from "./dom.js";

const NAMES = ["Grace", "Alan", "Edsger", "Barbara", "Donald", "Margaret", "Ken", "Radia", "Leslie", "Frances"];
const PHASES = { planned: "planned", early: "early labour", active: "active labour", transition: "transition", pushing: "pushing", complete: "complete" };
const verbs = new Map([...document.querySelectorAll("[data-verb]")].map((node) => [node.dataset.verb, node]));

for (const [verb, node] of verbs) {
  const run = (body) => ask(node.querySelector("button") ?? node, "POST", `/api/labour/${verb}`, body);
  if (node.tagName === "FORM") {
    node.addEventListener("submit", async (event) => {
      event.preventDefault();
      await run(Object.fromEntries(new FormData(node)));
      if (verb === "subscribe") node.querySelector("[name=name]").value = ""; // the next update proposes the next name
    });
  } else {
    node.addEventListener("click", () => run({}));
  }
}

export function drawStory({ ok, why, data }) {
  const people = (data?.subscribers ?? []).filter((one) => one.state === "approved");
  const told = data?.told ?? [];
  attribute(byId("drive"), "data-stale", ok ? null : "");
  text(byId("drive-title"), data ? `${data.mother_name}’s labour` : "No labour yet");
  text(byId("phase"), data ? PHASES[data.phase] ?? data.phase : "plan one");
  text(byId("told"), ok ? latest(told, people) : `${why}; this is how it was`);
  each(byId("people"), people, (one) => one.id, (one) => el("li", { class: "chip" }, one.name, el("small")),
    (chip, one) => text(chip.lastElementChild, toldWords(told.filter((status) => status.person_id === one.id))));
  text(verbs.get("contraction"), data?.contractions.some((one) => !one.ended_at) ? "End the contraction" : "Start a contraction");
  const next = !data || data.phase === "complete" ? "plan" : !people.length ? "subscribe" : data.phase === "planned" ? "begin" : "complete";
  for (const [verb, node] of verbs) (node.querySelector("button") ?? node).classList.toggle("next", verb === next);
  propose(people);
}

// "labour.completed: 2 of 2 told", of the latest event that anyone was told about.
function latest(told, people) {
  if (!people.length) return "the list is empty";
  if (!told.length) return `${count(people.length, "person", "people")} on the list`;
  const event = told.at(-1).event_type;
  const reached = new Set(told.filter((one) => one.event_type === event && isTold(one)).map((one) => one.person_id));
  return `${event}: ${reached.size} of ${people.length} told`;
}

const isTold = ({ status }) => status !== "failed" && status !== "superseded";

function toldWords(statuses) {
  if (!statuses.length) return "";
  const told = statuses.filter(isTold).length;
  if (told === statuses.length) return `told ${told === 1 ? "once" : `${told} times`}`;
  const others = ["failed", "superseded"].map((status) => [statuses.filter((one) => one.status === status).length, status]);
  return [[told, "told"], ...others.filter(([number]) => number)].map(([number, what]) => `${number} ${what}`).join(", ");
}

// A person who is not on the list yet, with a number reserved for fiction. Never while the user is typing.
function propose(people) {
  const form = verbs.get("subscribe"), [name, phone] = [form.elements.name, form.elements.phone];
  if (name.value || form.contains(document.activeElement) && document.activeElement.tagName === "INPUT") return;
  const numbers = new Set(people.map((one) => one.phone));
  name.value = NAMES.find((one) => !people.some((person) => person.name === one)) ?? "Guest";
  for (let tail = 11; tail < 100; tail += 11) {
    phone.value = `+120255501${tail}`;
    if (!numbers.has(phone.value)) break;
  }
}
