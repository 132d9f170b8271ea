// Durations, ages and times as words. Relative everywhere; the exact time is the title of the element.

import { h, text } from './dom.js';

let ahead = 0; // milliseconds that the server's clock is ahead of this browser's
let frozen = null; // the moment that is shown while there is no connection

/** The server's time, in milliseconds. */
export const now = () => Date.now() + ahead;

/** Learn the server's time from an answer of it. */
export function setClock(iso) { ahead = Date.parse(iso) - Date.now(); }

/** A duration in seconds: 40 s, 12 min, 1 h 12, 3 h 04, 2 d. */
export function duration(seconds) {
  const s = Math.max(0, Math.floor(seconds));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${String(Math.floor((s % 3600) / 60)).padStart(2, '0')}`;
  return `${Math.floor(s / 86400)} d`;
}

const FULL = 1800_000; // milliseconds that fill a bar: what a claim lasts unless something else is said
const clock = new Intl.DateTimeFormat('en-GB', { hour: '2-digit', minute: '2-digit' });
const seconds = new Intl.DateTimeFormat('en-GB', { timeStyle: 'medium' });
const grouped = new Intl.NumberFormat('en-US');
const whole = new Intl.DateTimeFormat('en-GB', { dateStyle: 'medium', timeStyle: 'medium' });

/** 12:41 */
export const hourOf = (time) => clock.format(new Date(time));
/** 12:41:07 */
export const secondOf = (time) => seconds.format(new Date(time));
/** 17 Nov 2026, 12:41:07 */
export const exact = (time) => whole.format(new Date(time));
/** 18,204 */
export const number = (value) => grouped.format(value);
/** A long name cut in its middle: ends tell names apart as well as beginnings. */
export const middle = (name, most) => (name.length > most ? `${name.slice(0, Math.ceil(most / 2) - 1)}…${name.slice(-Math.floor(most / 2))}` : name);
/** 1st, 2nd, 3rd */
export function ordinal(n) {
  const tens = n % 100;
  return `${n}${tens > 10 && tens < 14 ? 'th' : ['th', 'st', 'nd', 'rd'][n % 10] ?? 'th'}`;
}

/** A time element that says how long ago something was; it goes on by itself. `after` is appended, such as " ago". */
export function age(iso, after = '') {
  const element = h('time', { datetime: iso, title: exact(iso), data: { age: after } });
  refresh(element);
  return element;
}

/**
 * What is left of a claim or a lock, as a bar and a number that go on by themselves. until null: no end.
 * `wide` is the width in px, 88 in tables and 40 on cards.
 */
export function timeLeft(since, until, { wide = 88, lost = false } = {}) {
  const rest = h('span.bar-rest');
  const bar = h('span.bar', { style: { width: `${wide}px` }, 'aria-hidden': 'true' }, rest);
  const words = h('span.bar-words');
  const element = h('span.time-left', { data: { since: since ?? '', until: until ?? '' }, class: lost ? 'lost' : '' }, bar, words);
  if (until) element.title = `until ${exact(until)}`;
  tickBar(element);
  return element;
}

function tickBar(element) {
  const { since, until } = element.dataset;
  const [bar, words] = element.children;
  if (!until) {
    element.classList.add('endless');
    text(words, 'no end');
    return;
  }
  const end = Date.parse(until), start = Math.max(since ? Date.parse(since) : 0, end - FULL); // a claim that is renewed for hours is not nearly over
  const left = (end - now()) / 1000;
  const share = Math.min(1, Math.max(0, (left * 1000) / Math.max(1, end - start)));
  bar.firstElementChild.style.setProperty('width', `${(share * 100).toFixed(1)}%`);
  element.classList.toggle('soon', left <= 120);
  text(words, left <= 0 ? (frozen === null ? 'ends now' : 'ended?') : duration(left));
}

function refresh(element) {
  text(element, duration((now() - Date.parse(element.dateTime)) / 1000) + element.dataset.age);
}

/** Bring every age and bar below an element up to date; the frame does this once a second. */
export function tick(root) {
  for (const element of root.querySelectorAll('time[data-age]')) refresh(element);
  for (const element of root.querySelectorAll('.time-left')) tickBar(element);
}

/** Say that what is shown is as old as this moment (milliseconds), or null: it is live. */
export function freeze(moment) { frozen = moment; }
