// An event in words a person reads: who did what, with diffs. Tokens are never shown.

import { clip, h } from './dom.js';
import { age, number } from './format.js';
import { hunks } from './diff.js';
import { markdown } from './markdown.js';
import { COLOURS, shape } from './shapes.js';

export const KINDS = ['task', 'message', 'path', 'lock', 'cell', 'run', 'cell-lock', 'lease', 'stash', 'stash-lock', 'trail', 'link', 'cycle', 'agent', 'template', 'route', 'config', 'clock', 'log'];
const UUID = /^[0-9a-f]{8}-[0-9a-f-]{27}$/;
const HIDDEN = new Set(['token', 'note', 'status', 'claimed_by', 'grimoire', 'deadline', 'result', 'ticket', 'waiter']);
const DONE = {
  create: 'made it', claim: 'claimed it', release: 'released it', expire: 'ended the claim of', complete: 'completed it', note: 'noted', block: 'blocked it',
  unblock: 'unblocked it', approve: 'approved it', reject: 'rejected it', close: 'closed it', cancel: 'cancelled it', reopen: 'reopened it', update: 'changed it', add_tags: 'tagged it', remove_tags: 'tagged it', set_tags: 'tagged it',
  depend: 'made it wait for', undepend: 'freed it from', park: 'parked it', reparent: 'moved it', delete: 'deleted it', restore: 'restored it', reclaim: 'took it over',
  undo: 'took back a change of it:',
};
const SHAPES = { create: 'plus', claim: 'in_progress', reclaim: 'in_progress', expire: 'expired', complete: 'closed', close: 'closed', approve: 'closed', block: 'blocked', reject: 'blocked', release: 'released', park: 'parked' };
const KIND_SHAPES = { message: 'mail', path: 'lock', lock: 'lock', 'cell-lock': 'lock', 'stash-lock': 'lock' };

/** The state of shapes.js that a status of a task is. */
export function stateOfTask(task) {
  if (task.status === 'pending_merge') return 'review';
  if (task.status === 'in_progress') return task.parked || task.deadline === null ? 'parked' : 'in_progress'; // parked: a claim without an end
  if (task.status === 'open') return task.ready === false ? 'waiting' : 'ready';
  return ['closed', 'blocked'].includes(task.status) ? task.status : 'closed';
}

export const wordOfStatus = (status) => ({ pending_merge: 'review', in_progress: 'in progress' })[status] ?? status;

/** A value as a short text. */
function shown(value) {
  if (value === null || value === undefined) return '–';
  return clip(typeof value === 'string' ? value : JSON.stringify(value), 200);
}

function change(field, [before, after]) {
  if (field === 'priority') return [' priority ', before !== null && [h('s.ink-3', null, `P${before}`), ' → '], h('b', null, `P${after}`)];
  if (field === 'tags') {
    const added = (after ?? []).filter((tag) => !(before ?? []).includes(tag)), gone = (before ?? []).filter((tag) => !(after ?? []).includes(tag));
    return [added.length > 0 && [' added ', added.map((tag) => h('span.chip', null, tag))], gone.length > 0 && [' removed ', gone.map((tag) => h('span.chip', null, h('s', null, tag)))]];
  }
  if (before === null || before === undefined) return [` ${field.replaceAll('_', ' ')} `, h('b', null, shown(after))];
  return [` ${field.replaceAll('_', ' ')} `, h('s.ink-3', null, shown(before)), ' → ', h('b', null, shown(after))];
}

/** The lines of a difference. */
export function diffBlock(before, after) {
  return h('div.diff', null, hunks(before ?? '', after ?? '').slice(0, 400).map(([sign, line]) => (sign === '…' ? h('div.ink-3', null, `… ${line} lines as before`)
    : h('div', { class: { '-': 'removed', '+': 'added' }[sign] ?? '' }, h('span.sign', null, sign), h('span', null, clip(line, 5000))))));
}

/** {shape, head, body}: head is one line of nodes, body what is below it or null. `link(kind, id)` makes addresses, or null. */
export function tell(event, link, about = null) {
  const { op, kind, data, actor, id } = event;
  const own = about !== null && id === about;
  const whole = [event.scope, id].filter(Boolean).join('/');
  const named = own ? null : h('a.mono', { href: link(kind, id), class: 'ink-2', title: whole }, UUID.test(whole) ? `${whole.slice(0, 4)}…${whole.slice(-6)}` : clip(whole, 60));
  const fields = Object.keys(data ?? {}).filter((field) => !HIDDEN.has(field));
  const one = kind === 'task' && op === 'update' && fields.length === 1 && own;
  const verb = one ? (fields[0] === 'body' ? 'changed the' : 'set') : own && op.endsWith('_tags') ? '' : kind === 'task' ? DONE[op] ?? op.replaceAll('_', ' ') : op.replaceAll('_', ' ');
  const words = own || kind !== 'task' ? verb : verb.replace(/\bit\b/, '');
  const deed = DEEDS[kind]?.(event);
  if (deed) return { shape: KIND_SHAPES[kind] ?? 'note', head: [h('b', null, actor), ' ', deed], body: null };
  const head = [h('b', null, data?.author ?? actor), ' ', kind === 'task' ? words : `${kind} ${words}`, named && [' ', named]];
  const body = [];
  if (event.redacted) return { shape: 'note', head: [...head, h('span.ink-3', null, ' (redacted)')], body: null };
  if (kind === 'message' && op === 'send') return letter(event, link);
  if (kind === 'undo') return { shape: 'note', head: [h('b', null, actor), ` took back revision ${id}`], body: null };
  if (kind === 'task' && op === 'expire') return { shape: SHAPES.expire, head: ['The claim of ', h('b', null, shown(data?.claimed_by?.[0])), ' ', named && ['on ', named, ' '], 'expired'], body: null };
  const status = data?.status;
  if (Array.isArray(status) && status[0]) head.push(': ', stateWord(status[0]), ' → ', stateWord(status[1]));
  for (const [field, value] of Object.entries(data ?? {})) {
    if (value === null || (Array.isArray(value) && value.length === 2 && empty(value[0]) && empty(value[1]))) continue;
    if (HIDDEN.has(field) || field === 'author' || (op === 'create' && kind === 'task' && field !== 'parent_id')) continue;
    if (kind === 'task' && op === 'create') head.push(' below ', h('a.mono.ink-2', { href: link('task', value[1]) }, value[1]));
    else if (!Array.isArray(value) || value.length !== 2) head.push(` ${field.replaceAll('_', ' ')} `, h('span.ink-2', null, shown(value)));
    else if (field === 'depends_on') head.push(' ', h('a.mono.ink-2', { href: link('task', value[1] ?? value[0]) }, value[1] ?? value[0]));
    else if (typeof value[1] === 'string' && (value[1].length > 80 || value[1].includes('\n') || field === 'body')) { head.push(` ${field}`); body.push(diffBlock(value[0], value[1])); }
    else head.push(change(field, value));
  }
  if (!own && kind === 'task' && op === 'create' && newOf(data?.title)) head.push(': ', clip(newOf(data.title), 200));
  if (typeof data?.note === 'string' && data.note) body.push(h('div.md', null, markdown(data.note)));
  return { shape: kind === 'task' ? SHAPES[op] ?? 'note' : KIND_SHAPES[kind] ?? 'note', head, body: body.length ? body : null };
}

/** What a field became, or what it was if it is gone. */
const newOf = (change) => (Array.isArray(change) && change.length === 2 ? change[1] ?? change[0] : change) ?? '';
const VERBS = { acquire: 'took', lock: 'locked', release: 'released', wait: 'waits for', leave: 'no longer waits for' };
// Events that say more in words than as fields.
const DEEDS = {
  path: ({ op, data }) => VERBS[op] && [`${op === 'acquire' ? 'locked' : VERBS[op]} `, newOf(data?.patterns) ? h('span.mono', null, clip([newOf(data.patterns)].flat().join(' '), 200)) : 'paths', newOf(data?.reason || data?.note) && `: ${clip(String(newOf(data.reason || data.note)), 200)}`],
  lock: ({ op, id, data }) => VERBS[op] && [`${VERBS[op]} the lock `, h('span.mono', null, clip(id, 60)), data?.note && `: ${clip(String(data.note), 200)}`],
  agent: ({ op, id, data, actor }) => op === 'register' && [`registered${id === actor ? '' : ` ${clip(id, 60)}`}`, ['role', 'program', 'model'].map((name) => newOf(data?.[name]) && `, ${name} ${clip(String(newOf(data[name])), 60)}`)],
};

const empty = (value) => value === null || value === undefined || value === false;

/** A message that was sent: to whom, about what. */
function letter({ actor, id, data }, link) {
  const plain = (value) => (Array.isArray(value) && value.length === 2 && value[0] === null ? value[1] : value);
  const all = [data.to].flat().filter(Boolean), to = all.slice(0, 5).join(', ') + (all.length > 5 ? ` and ${all.length - 5} more` : '');
  return { shape: 'mail', head: [h('b', null, plain(data.sender) ?? actor), ' wrote to ', h('b', null, to), ': ', h('a', { href: link('message', id) }, clip(String(plain(data.subject) ?? ''), 200))], body: plain(data.body) ? [h('div.md.ink-2', null, markdown(clip(String(plain(data.body)), 2000)))] : null };
}

const stateWord = (status) => h('span', { class: `c-${COLOURS[stateOfTask({ status })]}` }, wordOfStatus(status));

/** A row of a history: shape, words, age, revision. */
export function eventRow(event, link, about = null) {
  const { shape: drawn, head, body } = tell(event, link, about);
  return h('div.event', { tabindex: -1, data: { revision: event.revision, cursor: `${event.revision}-${event.position}`, op: event.op } },
    shape(drawn), h('div.event-words', null, h('div.event-head', null, head), body), h('span.small.ink-3', null, age(event.time)), h('span.mono.ink-3', null, number(event.revision)));
}

/** What an event is, for the segments of a history. */
export function sortOf(event) {
  if (event.op === 'note') return 'notes';
  return event.data?.status ? 'status' : 'fields';
}
