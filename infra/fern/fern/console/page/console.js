// Draws what the server sends. The effects of an event are drawn when the film plays them, so nothing appears before its cause.
import { drawAccount, drawVerdict } from "./account.js";
import { ask } from "./ask.js";
import { attribute, byId, clock, mark, text } from "./dom.js";
import { drawStory, drawTold } from "./drive.js";
import { bindFaults, drawFaults } from "./faults.js";
import { Film } from "./film.js";
import { drawEvents, onReplay, refreshJourney, refreshWaterfall } from "./journey.js";
import { drawMetrics } from "./metrics.js";
import { drawPhones } from "./phones.js";
import { drawSetAside } from "./set_aside.js";
import { run, startStage } from "./stage.js";
import { drawProcesses, drawStations } from "./stations.js";
import { loadStories } from "./stories.js";

const kept = (name, otherwise) => { try { return localStorage.getItem(name) ?? otherwise; } catch { return otherwise; } };
const keep = (name, value) => { try { localStorage.setItem(name, value); } catch { /* kept until the page is closed */ } };

const parts = {}; // name → { ok, data } or { ok: false, why, data }
const film = new Film(kept("slow", "yes") === "yes");
let arrived = 0, heardAt = Date.now(), waiting = false;
const changed = new Set();

function draw() {
  waiting = false;
  if (changed.has("processes")) drawProcesses(parts.processes);
  if (changed.has("faults")) drawFaults(parts.faults);
  if (changed.has("flow") && parts.flow?.data) {
    const flow = parts.flow.data;
    film.take(flow.tokens);
    drawStory(flow.story, flow.silent.labour);
    drawEvents(byId("events"), flow);
    refreshJourney();
    run();
  }
  if (changed.has("traces")) refreshWaterfall();
  if (parts.flow?.data) film.mark({ account: parts.flow.data.account, metrics: parts.metrics });
  changed.clear();
  drawPlayed();
  document.documentElement.dataset.seq = arrived; // how far the page is: tests look at this
}

// Draws what depends on how far the film has played.
function drawPlayed() {
  const flow = parts.flow?.data, { account, metrics } = lastPlayed();
  if (flow) {
    drawPhones(flow, hasArrived);
    drawTold(flow.story, pending);
    drawStations(parts.flow, parts.faults);
    drawAccount(account, flow.silent);
    drawSetAside(parts.faults?.data?.dead, account?.parked);
  }
  drawMetrics(metrics);
  drawVerdict(parts, account);
  drawBar();
}

// The numbers of the newest snapshot that was played. The last account is kept while a service does not answer.
const played = { account: null, metrics: null };
function lastPlayed() {
  const { account, metrics } = film.marked ?? {};
  return Object.assign(played, { account: account ?? played.account, metrics: metrics ?? played.metrics });
}

// A text without a token belongs to an older event, whose journey is over.
function hasArrived({ sid, status }) {
  const token = parts.flow.data.tokens.find((one) => one.sid === sid);
  return token ? film.hasReached(token.id, "phones") : status === "delivered";
}

// The number of events of this type whose status for this person is still on its way in the film.
function pending(personId, type) {
  const isOnTheWay = (one) => !film.hasReached(one.id, "told");
  const of = parts.flow.data.tokens.filter((one) => one.kind === "status" && one.person_id === personId && one.about === type);
  return new Set(of.filter((one) => isOnTheWay(one) && !of.some((other) => other.event_id === one.event_id && !isOnTheWay(other))).map((one) => one.event_id)).size;
}

function drawBar() {
  attribute(byId("slow"), "aria-checked", String(film.isSlow));
  attribute(byId("consent"), "aria-checked", String(parts.faults?.data?.consent === "required"));
  text(byId("pause"), film.isPaused ? "Go on" : "Pause");
  const pace = film.isSlow ? "about 20 times slower" : "about as fast as it was";
  text(byId("pace"), film.isPaused ? "paused" : film.isIdle ? "nothing moves" : `replaying ${pace}`);
  document.documentElement.dataset.film = film.isIdle ? "idle" : "playing";
}

function take({ data }) {
  const { seq, parts: fresh } = JSON.parse(data);
  arrived = seq;
  heard();
  for (const [name, part] of Object.entries(fresh)) { parts[name] = part; changed.add(name); }
  if (!waiting) { waiting = true; requestAnimationFrame(draw); }
}

function heard() {
  heardAt = Date.now();
  if (!byId("offline").hidden) { byId("offline").hidden = true; document.body.classList.remove("offline"); }
}

// The server sends an event at least every two seconds. After five seconds without one, the page is marked as stale.
setInterval(() => {
  if (Date.now() - heardAt < 5000 || !byId("offline").hidden) return;
  byId("offline").textContent = `No answer from the console since ${clock(heardAt)}. The page shows the state of then. Trying again…`;
  byId("offline").hidden = false;
  document.body.classList.add("offline");
  mark(byId("verdict"), "unknown", "no answer from the console");
}, 500);

function listen() {
  const feed = new EventSource("/api/live");
  feed.addEventListener("change", take);
  feed.addEventListener("ping", heard);
  feed.addEventListener("error", () => { // not every browser tries again by itself after every kind of failure
    if (feed.readyState === EventSource.CLOSED) setTimeout(listen, 1000);
  });
}

byId("clear").addEventListener("click", ({ currentTarget }) => ask(currentTarget, "POST", "/api/faults/clear"));
byId("slow").addEventListener("click", () => { film.slow(!film.isSlow); keep("slow", film.isSlow ? "yes" : "no"); drawPlayed(); run(); });
byId("consent").addEventListener("click", ({ currentTarget }) =>
  ask(currentTarget, "PUT", "/api/consent", { mode: parts.faults?.data?.consent === "required" ? "assumed" : "required" }));
byId("pause").addEventListener("click", () => { film.pause(!film.isPaused); drawPlayed(); run(); });
onReplay((eventId) => { film.replay(eventId); run(); });
bindFaults(() => parts.faults);
startStage(film, drawPlayed);
loadStories();
listen();
