// The account over all stages, and the verdict at the top of the page.
import { attribute, byId, count, each, el, mark, text } from "./dom.js";
import { healthOf } from "./stations.js";

// Three equations. "=" when they hold, "…" while the rest is on its way, ">" when the rest was set aside, "≠" when something has no
// cause.
export function drawAccount(data, silent) {
  const why = Object.values(silent).map((one) => one.why).join(" and ");
  attribute(byId("account"), "data-stale", why ? "" : null);
  text(byId("account-note"), why ? `${why}, so the account cannot be drawn up now.` : "");
  if (!data) return;
  const equations = [
    ["every event", [["committed", data.recorded], ["published", data.published]]],
    ["wanted by consumers", [["wanted", data.wanted], ["claimed", data.claimed]]],
    ["people to text", [["effects", data.owed], ["sent", data.sent], ["SMS", data.texts]]],
  ].map(([title, terms]) => ({ title, terms, sign: terms.every(([, value]) => value === terms[0][1]) ? "=" : data.unexplained ? "≠" : data.on_the_way ? "…" : ">" }));
  const rest = [
    { title: "duplicates", number: data.repeats, words: "absorbed", state: "ok" },
    { title: "still", number: data.on_the_way, words: "on the way", state: data.on_the_way ? "wait" : "ok" },
    ...["parked", "dead", "discarded", "refused"].filter((name) => data[name]).map((name) => ({ title: "set aside", number: data[name], words: name, state: "wait" })),
    ...(data.awaiting_consent ? [{ title: "held", number: data.awaiting_consent, words: "wait for consent", state: "wait" }] : []),
    ...(data.superseded ? [{ title: "not sent", number: data.superseded, words: "superseded by a newer text", state: "ok" }] : []),
    { title: "unexplained", number: data.unexplained, words: data.unexplained ? "look into it: fern audit" : "all accounted for", state: data.unexplained ? "bad" : "ok" },
  ];
  each(byId("equations"), [...equations, ...rest], (one) => one.title + (one.terms ? "" : one.words),
    (one) => one.terms
      ? el("div", { class: "equation" }, el("dt", {}, one.title), el("dd", {}, ...one.terms.flatMap(([name], place) => [
        ...(place ? [el("i", {})] : []), el("span", {}, el("b", {}), el("small", {}, name))])))
      : el("div", { class: "rest" }, el("dt", {}, one.title), el("dd", {}, el("p"))),
    (node, one) => {
      if (!one.terms) { mark(node.querySelector("p"), one.state, `${one.number.toLocaleString("en")} ${one.words}`); return; }
      node.querySelectorAll("b").forEach((number, place) => text(number, one.terms[place][1].toLocaleString("en")));
      node.querySelectorAll("i").forEach((sign) => text(sign, one.sign));
    });
}

// `account` is the one that is shown, so that the verdict is not ahead of the stage.
export function drawVerdict({ processes, faults }, account) {
  const unwell = processes?.ok ? processes.data.filter((item) => healthOf(item)[0] !== "ok") : [];
  const targets = faults?.ok ? [faults.data.bus, faults.data.sms] : [];
  const on = targets.flatMap((target) => target.items).filter((fault) => fault.active).length;
  const [state, words] = account?.unexplained ? ["bad", `${account.unexplained} unexplained`]
    : unwell.length ? [unwell.every((item) => healthOf(item)[0] === "wait") ? "wait" : "bad", unwell.length === 1 ? `${unwell[0].process}: ${healthOf(unwell[0])[1]}` : `${unwell.length} processes are not healthy`]
    : on ? ["wait", `${count(on, "fault")} on, on purpose`]
    : account?.parked || account?.dead ? ["wait", `${count(account.parked + account.dead, "message")} set aside, for you to decide`]
    : account?.on_the_way ? ["ok", `${account.on_the_way} on the way`]
    : processes?.ok && account ? ["ok", "everything is healthy"] : ["unknown", "not known yet"];
  mark(byId("verdict"), state, words);
  attribute(byId("verdict"), "title", words); // a long one is cut, so that it does not move the page
  const isHeld = unwell.some((item) => item.is_held);
  byId("clear").classList.toggle("next", on > 0 || isHeld);
}
