// Shows a phone per number and its texts as they arrive. All text enters the page through textContent: it is never markup.
"use strict";

const STATUS = {
  accepted: ["◌", "Accepted"], queued: ["◌", "Queued"], sending: ["↑", "Sending"], sent: ["✓", "Sent"],
  delivered: ["✓✓", "Delivered"], undelivered: ["✕", "Not delivered"], received: ["", ""],
};
const MAX_PHONES = 100, MAX_TEXTS = 500;
const phones = new Map(); // number → { card, list, texts: sid → { item, message } }
const byId = (id) => document.getElementById(id);
const stamp = (id) => byId(id).content.firstElementChild.cloneNode(true);

function phoneOf(number) {
  if (!phones.has(number)) {
    const card = stamp("phone");
    const [list, form] = [card.querySelector("ol"), card.querySelector("form")];
    card.querySelector("h2").textContent = number;
    card.setAttribute("aria-label", `Phone ${number}`);
    list.setAttribute("aria-label", `Texts on ${number}`);
    form.body.setAttribute("aria-label", `Reply from ${number}`);
    form.addEventListener("submit", (event) => { event.preventDefault(); reply(number, form); });
    byId("phones").prepend(card);
    phones.set(number, { card, list, texts: new Map() });
    if (phones.size > MAX_PHONES) removePhone(phones.keys().next().value);
  }
  return phones.get(number);
}

function removePhone(number) {
  phones.get(number).card.remove();
  phones.delete(number);
}

function show(message) {
  const isReply = message.direction === "inbound";
  const { list, texts } = phoneOf(isReply ? message.from : message.to);
  const known = texts.get(message.sid);
  if (known && known.message.updated_at > message.updated_at) return false;
  const atEnd = list.scrollHeight - list.scrollTop - list.clientHeight < 40;
  const item = known ? known.item : stamp("text");
  const [sign, word] = STATUS[message.status] ?? ["", message.status];
  const at = new Date(message.created_at);
  item.className = `${message.status} ${isReply ? "reply" : ""}`;
  item.querySelector(".body").textContent = message.body;
  item.querySelector("time").textContent = at.toLocaleTimeString();
  item.querySelector("time").dateTime = message.created_at;
  item.querySelector("time").title = at.toLocaleString();
  item.querySelector(".segments").textContent = message.segments > 1 ? `${message.segments} segments` : "";
  item.querySelector(".status").textContent = `${sign} ${word}${message.error_message ? ": " + message.error_message : ""}`;
  texts.set(message.sid, { item, message });
  if (!known) {
    const same = [...texts.values()].filter((text) => text.message.body === message.body && !isReply);
    item.querySelector(".again").hidden = same.length < 2;
    list.append(item);
    if (texts.size > MAX_TEXTS) forget(texts, texts.keys().next().value);
  }
  if (atEnd) list.scrollTop = list.scrollHeight;
  return !known;
}

function forget(texts, sid) {
  texts.get(sid).item.remove();
  texts.delete(sid);
}

function summarise() {
  const count = [...phones.values()].reduce((sum, phone) => sum + phone.texts.size, 0);
  const words = (n, word) => `${n} ${word}${n === 1 ? "" : "s"}`;
  byId("summary").textContent = count ? `${words(count, "text")} on ${words(phones.size, "phone")}` : "Waiting for the first text";
  byId("empty").hidden = phones.size > 0;
}

function showFaults(items) {
  const on = items.filter((fault) => fault.active);
  const percent = (rate) => `${Math.round(rate * 1000) / 10} %`;
  const left = (fault) => (fault.times === null ? "" : `, ${fault.times} more`);
  byId("faults").hidden = on.length === 0;
  byId("fault-list").textContent = on.map((fault) => `${fault.name} (${percent(fault.rate)}${left(fault)})`).join(", ");
}

function showOptOuts(numbers) {
  for (const [number, { card }] of phones) card.querySelector(".opted-out").hidden = !numbers.includes(number);
}

const read = async (path) => (await fetch(path)).json();
const tell = (text) => { byId("announcement").textContent = text; };

async function refresh() {
  const [{ items }, faults, optOuts] = await Promise.all(
    ["/sandbox/messages?limit=1000", "/faults", "/sandbox/opt-outs"].map(read));
  const present = new Set(items.map((message) => message.sid));
  for (const [number, { texts }] of phones) {
    for (const sid of [...texts.keys()]) if (!present.has(sid)) forget(texts, sid);
    if (texts.size === 0) removePhone(number);
  }
  items.reverse().forEach(show);
  showFaults(faults.items);
  showOptOuts(optOuts.items);
  summarise();
}

async function reply(number, form) {
  const body = JSON.stringify({ from: number, body: form.body.value });
  const answer = await fetch("/sandbox/inbound", { method: "POST", headers: { "Content-Type": "application/json" }, body });
  if (answer.ok) form.reset(); else tell((await answer.json()).detail);
}

// Events are applied one after the other, so that none is applied before the snapshot that `ready` asks for.
let work = Promise.resolve();
const feed = new EventSource("/sandbox/events");
const on = (name, apply) => feed.addEventListener(name, ({ data }) => {
  work = work.then(() => apply(JSON.parse(data))).catch((error) => console.error(error));
});
on("ready", async () => { await refresh(); byId("offline").hidden = true; });
on("message", (message) => {
  if (show(message)) tell(message.direction === "inbound" ? "" : `New text for ${message.to}: ${message.body}`);
  summarise();
});
on("faults", async () => showFaults((await read("/faults")).items));
on("opt-outs", ({ items }) => showOptOuts(items));
on("cleared", refresh);
feed.addEventListener("error", () => { byId("offline").hidden = false; }); // the browser connects again by itself

byId("base-url").textContent = `client.api.base_url = "${location.origin}"`;
byId("clear").addEventListener("click", () => fetch("/sandbox/messages", { method: "DELETE" }));
byId("clear-faults").addEventListener("click", () => fetch("/faults", { method: "DELETE" }));
