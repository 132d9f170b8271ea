// What lists share: j and k, Enter and the act of a row, segments, and tables.

import { h, put } from './dom.js';

export const NAME = 16; // characters of a name in a column

const places = new WeakMap(); // root -> where the focus was, for a row that is gone by the next key

/** Keys of a list: j and k move the focus from row to row, Enter opens the row's link, `a` does its first act. */
export function listKeys(root, selector, event) {
  const rows = [...root.querySelectorAll(selector)].filter((row) => row.offsetParent !== null);
  const at = rows.findIndex((row) => row.contains(document.activeElement));
  if (event.key === 'j' || event.key === 'k') {
    const next = rows[at < 0 ? Math.min(rows.length - 1, places.get(root) ?? 0) : Math.min(rows.length - 1, Math.max(0, at + (event.key === 'j' ? 1 : -1)))];
    next?.focus();
    places.set(root, rows.indexOf(next));
    next?.scrollIntoView({ block: 'nearest' });
    return true;
  }
  if (event.key === 'Enter' && at >= 0 && document.activeElement === rows[at]) { rows[at].querySelector('a[href]')?.click(); return true; }
  if (event.key === 'a' && at >= 0) { rows[at].querySelector('button[data-act]:not(:disabled)')?.click(); return true; }
  return false;
}

/** A table with heads: [[words, class, width]]; its body is filled by keyed. */
export function table(name, heads) {
  const body = h('tbody');
  const element = h('table', { 'aria-label': name },
    h('colgroup', null, heads.map(([, , width]) => h('col', width ? { style: { width: `${width}px` } } : null))),
    h('thead', null, h('tr', null, heads.map(([words, right]) => h('th', { scope: 'col', class: right ?? '' }, words)))), body);
  return { element, body };
}

/** Make a column as wide as the names in it, between 6 and 16 characters; `middle` of format.js cuts what is longer. */
export function widen({ element }, at, names) {
  const longest = names.reduce((most, name) => Math.max(most, name.length), 0);
  element.querySelectorAll('col')[at].style.setProperty('width', `calc(${Math.min(NAME, Math.max(5, longest)) + 1}ch + 16px)`);
}

const unfolded = new Set(); // lists that are shown whole, for those that are drawn anew

/** The first of many, and the others behind a line that says how many they are. `name` is the list's own. */
export function few(name, items, most, make) {
  if (items.length <= most) return items.map(make);
  const turn = () => { if (rest.open) unfolded.add(name); else unfolded.delete(name); };
  const rest = h('details.few', { open: unfolded.has(name), on: { toggle: turn } }, h('summary.hint', null, `${items.length - most} more`), items.slice(most).map((item, n) => make(item, n + most)));
  return [items.slice(0, most).map(make), rest];
}

/** One of several choices: [[value, words]]. choose(value) is called when another one is picked. */
export function segments(name, choices, chosen, choose) {
  const element = h('div.segments', { role: 'group', 'aria-label': name });
  const draw = (given, now) => put(element, given.map(([value, words]) => h('button', { type: 'button', 'aria-pressed': String(value === now), on: { click: () => choose(value) } }, words)));
  draw(choices, chosen);
  return { element, draw };
}

/** Mark an element as just changed, for a second. */
export function flash(element) {
  element.classList.add('changed');
  setTimeout(() => element.classList.remove('changed'), 1000);
}
