// How an agent stands, in one state and a few words, from one status(). Pure: the time is an argument.

const SOON = 120_000; // milliseconds: a claim that ends within them is in trouble
export const SILENT = 900_000; // an agent that holds a lock without an end and was not seen for so long is in trouble
const ORDER = ['th', 'st', 'nd', 'rd'];

/** What agents wait for: name -> {lock, place, since}, place 1 is next. */
export function lines(locks) {
  const found = new Map();
  for (const lock of locks) lock.waiters.forEach(({ name, since }, at) => { if (!found.has(name)) found.set(name, { lock, place: at + 1, since }); });
  return found;
}

/** The name of a lock as people know it: its path, or its name. */
export const nameOf = (lock) => (lock.kind === 'path' ? lock.patterns.join(', ') : lock.stash || [lock.scope, lock.name].filter(Boolean).join('/'));

/**
 * {state, trouble, silent, words, since, chip}: state is one of shapes.js; words stand where the task would; chip says behind whom it waits.
 */
export function standing(agent, status, now, waits = lines(status.locks)) {
  const seen = agent.seen_at ? now - Date.parse(agent.seen_at) : Infinity;
  const waited = waits.get(agent.name);
  const lost = status.claims.find((claim) => claim.expired && claim.holder === agent.name);
  const fenced = status.refusals.find((each) => each.actor === agent.name && each.code === 'FENCED');
  const endless = status.locks.some((lock) => lock.holder === agent.name && lock.until === null && !lock.task);
  if (agent.task) {
    const soon = agent.until !== null && Date.parse(agent.until) - now <= SOON;
    const state = agent.parked ? 'parked' : waited ? 'in_line' : 'in_progress';
    return { state, trouble: soon, silent: soon, since: waited?.since, chip: waited ? behind(waited) : null };
  }
  if (waited) return { state: 'in_line', trouble: false, since: waited.since, words: `for ${waited.lock.kind === 'path' ? '' : 'lock '}${nameOf(waited.lock)}`, chip: behind(waited) };
  if (fenced) return { state: 'fenced', trouble: true, words: lost ? `lost ${lost.task}${lost.held_by ? ` to ${lost.held_by}` : ''}; a late write was refused` : 'a late write was refused', since: fenced.last };
  if (lost || (endless && seen > SILENT)) {
    const words = lost ? `last: ${lost.task}, claim ended${lost.held_by ? `, ${lost.held_by} has it` : ''}` : 'holds a lock without an end';
    return { state: 'not_seen', trouble: true, silent: true, words, since: lost?.at ?? null };
  }
  return { state: 'idle', trouble: false, words: 'no task' };
}

/** Behind whom somebody waits, and at which place. */
const behind = ({ lock, place }) => `behind ${lock.holder}, ${ordinal(place)}`;

/** For what somebody waits, in words; null for who does not. */
export const inLine = (waited) => (waited ? `in line for ${nameOf(waited.lock)}, ${behind(waited)}` : null);

function ordinal(n) { return `${n}${n % 100 > 10 && n % 100 < 14 ? 'th' : ORDER[n % 10] ?? 'th'}`; }

/** Persons are not agents: they decide, and are not rows of the fleet. */
export const isPerson = (agent) => agent.role === 'person' || agent.role === 'maintainer';
