// The film plays every hop of every token, in the order in which they happened, slowly enough to be followed.
//
// A snapshot has the real time of each hop. Hops that are new are put at the end of the film, sorted by their real times, so that
// nothing is shown before its cause. The time between two hops is the real one: as it was, or twenty times as long in slow motion,
// but never shorter than can be seen, and a wait longer than `most` is cut to it.
const PACES = {
  live: { factor: 1, least: 40, most: 300, travel: 200, behind: 2500 },
  slow: { factor: 20, least: 220, most: 1200, travel: 600, behind: 30000 },
};
const LINGER = { phones: 500, told: 900, other: 4000 }; // milliseconds for which a token that has arrived stays

export class Film {
  #stopped = 0; // how long the clock has stood still
  #paused = null;
  #end = 0; // when the last hop is played
  #last = null; // its real time
  #pace;
  #marks = []; // { value, play }: what may be shown once everything before it was played

  constructor(slow) {
    this.actors = new Map(); // token id → { token, hops: [{ station, at, made, play, first }], lane }
    this.#pace = slow ? PACES.slow : PACES.live;
  }

  now() { return (this.#paused ?? performance.now()) - this.#stopped; }
  get isPaused() { return this.#paused !== null; }
  get isSlow() { return this.#pace === PACES.slow; }
  get isIdle() { return this.now() >= this.#end; } // everything known was played
  get isOver() { return this.now() >= this.#end + LINGER.other; }

  pause(on) {
    if (on && this.#paused === null) this.#paused = performance.now();
    else if (!on && this.#paused !== null) { this.#stopped += performance.now() - this.#paused; this.#paused = null; }
  }

  slow(on) {
    this.#pace = on ? PACES.slow : PACES.live;
    this.#shorten();
  }

  take(tokens) {
    const isFirst = !this.actors.size && this.#last === null, fresh = [];
    tokens.forEach((token, order) => {
      const actor = this.actors.get(token.id) ?? { hops: [], known: [], lane: null };
      actor.token = token;
      actor.isListed = true;
      this.actors.set(token.id, actor);
      for (const [station, at] of added(actor.known, token.hops)) {
        const hop = { station, at, order: order + actor.hops.length / 1000, made: this.now(), play: -Infinity, first: -Infinity };
        actor.hops.push(hop);
        fresh.push(hop);
      }
      actor.known = token.hops;
    });
    const ids = new Set(tokens.map((token) => token.id));
    for (const [id, actor] of this.actors) {
      if (ids.has(id)) continue;
      actor.isListed = false; // no longer among the newest
      if (this.hasArrived(actor)) this.actors.delete(id);
    }
    if (!isFirst) this.#schedule(fresh, true);
    this.#last ??= 0;
  }

  // Keeps what belongs to the snapshot that was taken last, until all its hops were played. Under load the film never ends.
  mark(value) {
    const last = this.#marks.at(-1), play = Math.max(last?.play ?? 0, this.#end);
    if (last?.play === play) this.#marks.pop();
    this.#marks.push({ value, play });
  }

  // The newest value whose hops were all played.
  get marked() {
    while (this.#marks[1]?.play <= this.now()) this.#marks.shift();
    return this.#marks[0]?.play <= this.now() ? this.#marks[0].value : undefined;
  }

  // Plays an event and everything that follows from it once more. What the phones show stays as it is.
  replay(eventId) {
    const family = [...this.actors.values()].filter((actor) => actor.token.event_id === eventId);
    this.#end = this.now();
    this.#schedule(family.flatMap((actor) => actor.hops), false);
    for (const actor of family) actor.lane = null;
  }

  #schedule(hops, isFirstTime) {
    hops.sort((one, other) => one.at - other.at || one.order - other.order);
    const { factor, least, most } = this.#pace, now = this.now();
    let cursor = Math.max(this.#end, now);
    hops.forEach((hop, place) => {
      const gap = place ? hop.at - hops[place - 1].at : 0;
      cursor += Math.min(Math.max(gap * factor, least), most);
      hop.play = cursor;
      hop.made = now;
      if (isFirstTime) hop.first = cursor;
      this.#last = hop.at;
    });
    if (hops.length) this.#end = cursor;
    this.#shorten();
  }

  // If the film is too far behind, what is left is played faster.
  #shorten() {
    const now = this.now(), left = this.#end - now;
    if (left <= this.#pace.behind) return;
    const earlier = (time) => (time > now ? now + ((time - now) * this.#pace.behind) / left : time);
    for (const { hops } of this.actors.values()) for (const hop of hops) { hop.play = earlier(hop.play); hop.first = earlier(hop.first); }
    for (const one of this.#marks) one.play = earlier(one.play);
    this.#end = earlier(this.#end);
  }

  // Where a token is: between two stations, `part` of the way; null before its first hop.
  place(actor, now = this.now()) {
    const { hops } = actor;
    let place = hops.findIndex((hop) => hop.play > now);
    if (place < 0) place = hops.length;
    if (!place) return null;
    const from = hops[place - 1], to = hops[place];
    if (!to) return { from: from.station, to: from.station, part: 0, since: from.play };
    const leaves = Math.max(from.play, to.play - this.#pace.travel, to.made);
    return { from: from.station, to: to.station, part: Math.max(0, (now - leaves) / (to.play - leaves)), since: from.play };
  }

  // Whether the token has been seen at a station.
  hasReached(id, station) {
    const hop = this.actors.get(id)?.hops.find((one) => one.station === station);
    return hop !== undefined && hop.first <= this.now();
  }

  hasArrived(actor) { return (actor.hops.at(-1)?.play ?? 0) <= this.now(); }

  // Whether a token is on the stage: while it moves or waits, and for a while after it has arrived.
  isShown(actor) {
    const now = this.now(), last = actor.hops.at(-1)?.play ?? -Infinity;
    if (!actor.hops.length || actor.hops[0].play > now) return false;
    const stays = actor.isListed && ["waits", "bad"].includes(actor.token.state);
    return stays || now < last + (LINGER[actor.hops.at(-1).station] ?? LINGER.other);
  }
}

// The hops that were not known before. If a token turned back, its last hop.
function added(known, hops) {
  let same = 0;
  while (same < known.length && same < hops.length && known[same][0] === hops[same][0]) same += 1;
  return same < known.length && same === hops.length ? hops.slice(-1) : hops.slice(same);
}
