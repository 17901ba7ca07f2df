// Takes what the server sends and draws it, at most once a frame: whatever arrives in between replaces what it replaces.
import { ask } from "./ask.js";
import { byId, clock, mark } from "./dom.js";
import { drawAccount, drawPipeline, drawVerdict } from "./pipeline.js";
import { drawFaults } from "./faults.js";
import { drawJourney, drawEvents } from "./journey.js";
import { drawPhones } from "./phones.js";
import { drawStory } from "./drive.js";

const parts = {}; // name → { ok, data } or { ok: false, why, since, data }
const drawings = [ // what to draw anew when one of these parts has changed
  [["story"], () => drawStory(parts.story)],
  [["processes", "labour", "notification", "bus", "sms"], () => drawPipeline(parts)],
  [["account"], () => drawAccount(parts.account)],
  [["sms", "story"], () => drawPhones(parts.sms, parts.story)],
  [["labour", "notification", "story"], () => drawEvents(parts.labour, parts.notification, parts.story)],
  [["bus"], () => drawFaults(byId("bus-faults"), "bus", parts.bus)],
  [["sms"], () => drawFaults(byId("sms-faults"), "sms", parts.sms)],
  [["processes", "account", "bus", "sms"], () => drawVerdict(parts)],
];

let arrived = 0, heardAt = Date.now(), waiting = false;
const changed = new Set();

function draw() {
  waiting = false;
  for (const [names, paint] of drawings) if (names.some((name) => changed.has(name) && parts[name])) paint();
  changed.clear();
  document.documentElement.dataset.seq = arrived; // how far the page is: tests look at this
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

// The server says something every two seconds. When it does not, what is on the page is old, and looks it.
setInterval(() => {
  if (Date.now() - heardAt < 5000 || !byId("offline").hidden) return;
  byId("offline").textContent = `No word from the console since ${clock(heardAt)}. What you see is from then; trying again…`;
  byId("offline").hidden = false;
  document.body.classList.add("offline");
  mark(byId("verdict"), "unknown", "no word from the console");
}, 500);

function listen() {
  const feed = new EventSource("/api/live");
  feed.addEventListener("change", take);
  feed.addEventListener("ping", heard);
  feed.addEventListener("error", () => { // not every browser tries again by itself after every kind of failure
    if (feed.readyState === EventSource.CLOSED) setTimeout(listen, 1000);
  });
}
listen();

byId("clear").addEventListener("click", ({ currentTarget }) => ask(currentTarget, "POST", "/api/faults/clear"));
byId("event").addEventListener("change", () => drawJourney());

const HIDDEN = "hint-hidden";
try { byId("hint").hidden = localStorage.getItem(HIDDEN) !== null; } catch { byId("hint").hidden = false; }
byId("hide-hint").addEventListener("click", () => {
  byId("hint").hidden = true;
  try { localStorage.setItem(HIDDEN, "yes"); } catch { /* then it comes back */ }
  byId("drive").focus();
});
