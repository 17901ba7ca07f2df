// A phone for each number, the latest first; it lights up when a text arrives.
import { attribute, byId, calm, clock, count, each, el, text } from "./dom.js";

const MOST_PHONES = 4, MOST_TEXTS = 3;
const STATUS = { accepted: "accepted", queued: "queued", sending: "sending", sent: "✓ sent", delivered: "✓✓ delivered", undelivered: "✕ not delivered", received: "" };
let known = null; // sids; none is new when the page opens

export function drawPhones({ ok, why, since, data }, story) {
  const section = byId("phones"), note = section.querySelector(".note");
  attribute(section, "data-stale", ok ? null : "");
  note.hidden = ok;
  if (!ok) text(note, `${why}. ${since ? `As of ${clock(since)}.` : ""}`);
  if (!data) return;
  attribute(byId("all-phones"), "href", data.url);
  const names = new Map((story?.data?.subscribers ?? []).map((person) => [person.phone, person.name]));
  const byNumber = new Map(); // newest first, as they come
  for (const message of data.texts) {
    const number = message.direction === "inbound" ? message.from : message.to;
    byNumber.set(number, [...(byNumber.get(number) ?? []), message]);
  }
  const fresh = new Set(known ? data.texts.filter((message) => !known.has(message.sid)).map((message) => message.sid) : []);
  known = new Set(data.texts.map((message) => message.sid));
  section.querySelector(".empty").hidden = byNumber.size > 0;
  each(section.querySelector(".phones"), [...byNumber].slice(0, MOST_PHONES), ([number]) => number, makePhone,
    (phone, [number, messages]) => changePhone(phone, number, names.get(number), messages, fresh));
  for (const sid of fresh) {
    const message = data.texts.find((one) => one.sid === sid);
    if (message.direction !== "inbound") text(byId("latest"), `New text for ${names.get(message.to) ?? message.to}: ${message.body}`);
  }
}

function makePhone() {
  return el("li", { class: "phone" }, el("header", {}, el("b"), el("span", { class: "soft" })), el("ol"));
}

function changePhone(phone, number, name, messages, fresh) {
  const [title, small] = phone.firstElementChild.children;
  text(title, name ?? number);
  text(small, `${name ? `${number} · ` : ""}${count(messages.length, "text")}`);
  each(phone.lastElementChild, messages.slice(0, MOST_TEXTS), (message) => message.sid,
    (message) => el("li", { class: message.direction === "inbound" ? "reply" : "" }, el("p", { class: "body" }, message.body), el("p", { class: "soft" })),
    (item, message) => text(item.lastElementChild, [clock(message.created_at), STATUS[message.status] ?? message.status].filter(Boolean).join(" · ")));
  if (messages.some((message) => fresh.has(message.sid))) light(phone);
}

function light(phone) {
  attribute(phone, "data-lit", "");
  clearTimeout(phone.dimmer);
  phone.dimmer = setTimeout(() => attribute(phone, "data-lit", null), 6000);
  if (!calm.matches) phone.animate([{ transform: "none" }, { transform: "rotate(-1.2deg)" }, { transform: "rotate(1.2deg)" }, { transform: "none" }], { duration: 180, iterations: 2 });
}
