// Draws the tokens of the film, frame by frame: each at its place between two stations. A click opens the journey of its event.
import { attribute, byId, calm, each, el, text } from "./dom.js";
import { openJourney } from "./journey.js";
import { NAMES, slots } from "./stations.js";

const LANES = 4;
const layer = byId("tokens");
let film, onPlayed, places = new Map(), running = false, played = "";

export function startStage(shown, redraw) {
  [film, onPlayed] = [shown, redraw];
  new ResizeObserver(() => { measure(); run(); }).observe(byId("grid"));
  measure();
}

function measure() {
  const origin = layer.getBoundingClientRect();
  places = new Map([...slots()].map((slot) => {
    const box = slot.getBoundingClientRect();
    return [slot.dataset.slot, { x: box.left - origin.left + box.width / 2, y: box.top - origin.top, height: Math.min(box.height, 110), width: box.width }];
  }));
}

// Draws frame after frame until the film has ended and every token has left.
export function run() {
  if (running) return;
  running = true;
  requestAnimationFrame(frame);
}

function frame() {
  draw();
  running = !film.isPaused && !film.isOver;
  if (running) requestAnimationFrame(frame);
}

function draw() {
  const shown = [...film.actors.values()].filter((actor) => film.isShown(actor));
  for (const actor of film.actors.values()) if (!shown.includes(actor)) actor.lane = null;
  for (const actor of shown) actor.lane ??= freeLane(shown);
  each(layer, shown, (actor) => actor.token.id, makeToken, changeToken);
  const now = [...film.actors.values()].map((actor) => actor.hops.filter((hop) => hop.first <= film.now()).length).join() + film.isIdle;
  if (now !== played) { played = now; onPlayed(); measure(); }
}

function freeLane(shown) {
  const used = new Set(shown.map((actor) => actor.lane));
  let lane = 0;
  while (used.has(lane)) lane += 1;
  return lane;
}

function makeToken({ token }) {
  return el("button", { type: "button", class: `token ${token.kind}`, "data-token": token.id, "data-event": token.event_id,
    onclick: ({ currentTarget }) => openJourney(currentTarget, token.event_id) }, el("span", { "aria-hidden": "true" }));
}

function changeToken(node, actor) {
  const { token } = actor, { from, to, part } = film.place(actor);
  const [start, end] = [from, to].map((station) => places.get(`${station} ${token.phone}`) ?? places.get(station));
  if (!start || !end) return;
  const eased = calm.matches ? 0 : part * part * (3 - 2 * part);
  const lane = (place) => Math.min(place.height / LANES, 26) * (actor.lane % LANES + 0.5);
  const column = Math.floor(actor.lane / LANES), aside = (column % 3) * 12 - (Math.floor(column / 3) % 9) * 5; // so that no token covers another
  const x = start.x + aside + (end.x - start.x) * eased, y = start.y + lane(start) + (end.y + lane(end) - start.y - lane(start)) * eased;
  node.style.transform = `translate(${x.toFixed(1)}px, ${y.toFixed(1)}px) translate(-50%, -50%)`;
  node.style.maxWidth = `${Math.max(start.width + 14, 60)}px`;
  const hasArrived = film.hasArrived(actor), state = hasArrived ? token.state : "moves";
  attribute(node, "data-state", state);
  attribute(node, "data-at", from);
  text(node.firstChild, token.kind === "duplicate" ? `${token.name} ↩` : token.name);
  const words = [`${token.kind === "event" ? token.type : `${token.kind} ${token.name}`}`, `at: ${NAMES[from] ?? from}`, hasArrived ? token.words : "moving"];
  attribute(node, "aria-label", words.filter(Boolean).join(", "));
  attribute(node, "title", words.filter(Boolean).join("\n"));
}
