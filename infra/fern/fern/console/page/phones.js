// A phone for each person on the list, and for others who got texts. A text is shown when its token has arrived; then the phone lights.
import { ask } from "./ask.js";
import { attribute, byId, calm, clock, count, each, el, text } from "./dom.js";

const MOST_PHONES = 6, MOST_TEXTS = 3;
let known = null; // sids; none is new when the page opens

export function drawPhones({ story, texts, more_texts: more, phones: url, silent }, hasArrived) {
  const section = byId("phones"), note = byId("phones-note");
  attribute(section, "data-stale", silent.sms ? "" : null);
  attribute(byId("all-phones"), "href", url);
  const names = new Map((story?.subscribers ?? []).filter((one) => one.state === "approved").map((person) => [person.phone, person.name]));
  const shown = texts.filter((message) => message.direction === "inbound" || hasArrived(message));
  const byNumber = new Map([...names.keys()].map((number) => [number, []])); // people of this labour first, then the newest
  for (const message of shown) {
    const number = message.direction === "inbound" ? message.from : message.to;
    byNumber.set(number, [...(byNumber.get(number) ?? []), message]);
  }
  const fresh = new Set(known ? shown.filter((message) => !known.has(message.sid)).map((message) => message.sid) : []);
  known = new Set([...(known ?? []), ...shown.map((message) => message.sid)]);
  byId("no-phones").hidden = byNumber.size > 0;
  const left = byNumber.size - MOST_PHONES;
  text(note, [
    silent.sms ? `${silent.sms.why}; the texts are those from before.` : "",
    more && !silent.sms ? `From the newest ${texts.length} texts; ${count(more, "earlier one")} on the phones’ own page.` : "",
    left > 0 ? `${count(left, "more phone")} on their own page.` : "",
  ].filter(Boolean).join(" "));
  each(section.querySelector(".phones"), [...byNumber].slice(0, MOST_PHONES), ([number]) => number, makePhone,
    (phone, [number, messages]) => changePhone(phone, number, names.get(number), messages, fresh));
  for (const message of shown) {
    if (fresh.has(message.sid) && message.direction !== "inbound") text(byId("latest"), `New text for ${names.get(message.to) ?? message.to}: ${message.body}`);
  }
}

function makePhone([number]) {
  const answer = (body) => el("button", { type: "button", class: "reply", "aria-label": `${number} answers ${body}`,
    onclick: ({ currentTarget }) => ask(currentTarget, "POST", "/api/phones/reply", { phone: number, body }) }, body);
  return el("li", { class: "phone", "data-slot": `phones ${number}` }, el("header", {}, el("b"), el("span", { class: "soft" })), el("ol"), el("p", { class: "soft" }),
    el("p", { class: "replies" }, el("span", { class: "soft" }, "answer"), answer("YES"), answer("STOP")));
}

function changePhone(phone, number, name, messages, fresh) {
  const [header, list, earlier] = phone.children, [title, small] = header.children;
  text(title, name ?? number);
  text(small, name ? number : "");
  each(list, messages.slice(0, MOST_TEXTS), (message) => message.sid,
    (message) => el("li", { class: message.direction === "inbound" ? "answer" : "" }, el("p", { class: "body" }, message.body), el("p", { class: "soft" })),
    (item, message) => text(item.lastElementChild, clock(message.direction === "inbound" ? message.created_at : message.updated_at)));
  text(earlier, messages.length > MOST_TEXTS ? `and ${count(messages.length - MOST_TEXTS, "earlier text")}` : messages.length ? "" : "no text yet");
  if (messages.some((message) => fresh.has(message.sid))) light(phone);
}

function light(phone) {
  attribute(phone, "data-lit", "");
  clearTimeout(phone.dimmer);
  phone.dimmer = setTimeout(() => attribute(phone, "data-lit", null), 6000);
  if (!calm.matches) phone.animate([{ transform: "none" }, { transform: "rotate(-1.2deg)" }, { transform: "rotate(1.2deg)" }, { transform: "none" }], { duration: 180, iterations: 2 });
}
