// Sends the request of a button, and writes its result, or why it was refused, into the log. Returns the results.
import { byId, clock, el } from "./dom.js";

const MOST_SAID = 100; // the page states this number
export function say(answers) {
  const list = byId("said");
  list.querySelector(".empty")?.remove();
  for (const { ok, words } of answers) {
    const sign = el("span", { class: ok ? "sign ok" : "sign bad", "aria-label": ok ? "done" : "not done", role: "img" }, ok ? "✓" : "✕");
    list.prepend(el("li", {}, sign, el("span", {}, words), el("time", {}, clock(Date.now()))));
  }
  const last = answers.find(({ ok }) => !ok) ?? answers.at(-1); // also shown beside the buttons, because the log may be outside the window
  if (last) {
    byId("result").textContent = `${last.ok ? "✓" : "✕"} ${last.words}`;
    byId("result").className = last.ok ? "ok" : "bad";
  }
  while (list.children.length > MOST_SAID) list.lastElementChild.remove();
  list.parentElement.scrollTop = 0;
}

export async function ask(button, method, path, body = {}) {
  if (button.getAttribute("aria-busy") === "true") return [];
  button.setAttribute("aria-busy", "true");
  byId("result").textContent = "Waiting for the answer…";
  byId("result").className = "";
  let results;
  try {
    const answer = await fetch(path, { method, headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
    const told = await answer.json();
    results = answer.ok ? told : [{ ok: false, words: told.detail ?? `The console answered ${answer.status}.` }];
  } catch {
    results = [{ ok: false, words: "No answer from the console; it may be starting again." }];
  } finally {
    button.removeAttribute("aria-busy");
  }
  say(results);
  return results;
}

// Marks the field that was refused, or none. All fields keep what was typed.
export function markRefused(form, results) {
  const refused = results.find((result) => !result.ok && result.field);
  for (const input of form.elements) {
    if (!input.name) continue;
    const isWrong = refused?.field === input.name;
    if (isWrong) { input.setAttribute("aria-invalid", "true"); input.focus(); } else input.removeAttribute("aria-invalid");
    input.setCustomValidity?.("");
  }
  let note = form.querySelector(".refused");
  if (!refused) { note?.remove(); return; }
  if (!note) form.append(note = el("p", { class: "refused", role: "alert" }));
  note.textContent = refused.words.replace(/^Refused: /, "");
}
