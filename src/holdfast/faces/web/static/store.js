// What the whole page knows: one object of facts and those who want to hear of their changes.

/**
 * Facts of the frame:
 *   session     {secret, role, actor, name, workspaces, expires_at}
 *   workspace   its name, '' for the main one
 *   connection  {state: 'connecting' | 'live' | 'lost' | 'ended', at, since, attempt, retryAt}; at: the last word of the server
 *   revision    the newest that was heard of
 *   status      the last answer of status(), asked every 5 s while the page is visible and soon after events
 */
export class Store {
  #facts = {};
  #listeners = new Set();

  constructor(facts = {}) { this.#facts = { ...facts }; }

  get(name) { return this.#facts[name]; }

  /** Change facts; listeners hear of it once, with the names of those that changed. */
  set(facts) {
    const changed = Object.keys(facts).filter((name) => this.#facts[name] !== facts[name]);
    if (!changed.length) return;
    Object.assign(this.#facts, facts);
    for (const each of [...this.#listeners]) if (each.names.some((name) => changed.includes(name))) each.listener(this);
  }

  /** Call a listener when one of these facts changes; returns the function that ends it. */
  on(names, listener) {
    const each = { names: [names].flat(), listener };
    this.#listeners.add(each);
    return () => this.#listeners.delete(each);
  }
}

/**
 * Ask for something again when it may have changed, but not more often than it can be answered: at once if it was quiet,
 * then at most every `least` ms, or four times as long as the last answer took. `load` is never run twice at a time.
 */
export function paced(load, least = 250) {
  let running = false, wanted = false, timer = 0, closed = false, next = 0;
  async function run() {
    if (closed) return;
    running = true; wanted = false; timer = 0;
    const began = performance.now();
    try { await load(); } finally {
      running = false;
      const took = performance.now() - began;
      next = performance.now() + Math.max(least, took * 4);
      if (wanted) plan();
    }
  }
  function plan() {
    if (!timer && !closed) timer = setTimeout(run, Math.max(0, next - performance.now()));
  }
  return {
    ask() { if (running) wanted = true; else plan(); },
    close() { closed = true; clearTimeout(timer); },
  };
}
