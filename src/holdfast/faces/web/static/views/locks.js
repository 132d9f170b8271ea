// Locks: path locks as a tree of folders, named locks and leases in the same columns, lines of waiters, force with a reason.

import { forcible, releaseLock } from '../acts.js';
import { ask } from '../dialog.js';
import { clip, h, keyed, put } from '../dom.js';
import { age, duration, hourOf, middle, now, timeLeft } from '../format.js';
import { few, listKeys, NAME, segments, table, widen } from '../lists.js';
import { shape } from '../shapes.js';
import { nameOf } from '../agents.js';
import { paced } from '../store.js';

const HEADS = (first) => [[first, '', 292], ['Holder', '', 56], ['Task', '', 78], ['Mode', '', 80], ['Since', 'right', 66], ['Ends in', '', 164], ['Waiting in line', '']];
const FILTERS = [['all', 'all'], ['waiters', 'with waiters'], ['endless', 'without an end']];
const endless = (lock) => lock.until === null && !lock.task;

/**
 * The folders of path locks: rows in order, each {folder, depth, path, locks, waits} or {lock, depth, name}. A folder that has
 * nothing but another one is one line with it, and a folder of one lock is one line with the lock.
 */
export function tree(locks, folded) {
  const root = { folders: new Map(), locks: [] };
  for (const lock of locks) for (const pattern of lock.patterns) {
    const parts = pattern.split('/'), plain = parts.findIndex((part) => /[*?[{]/.test(part));
    const fixed = plain < 0 ? parts.length - 1 : plain; // leading parts without wildcards
    let at = root;
    for (const part of parts.slice(0, fixed)) { if (!at.folders.has(part)) at.folders.set(part, { folders: new Map(), locks: [] }); at = at.folders.get(part); }
    at.locks.push({ lock, name: parts.slice(fixed).join('/') });
  }
  const rows = [], leaves = (found, path, name, depth) => { for (const each of found.sort((a, b) => (a.name < b.name ? -1 : 1))) rows.push({ key: `${each.lock.name} ${path}${name}${each.name}`, lock: each.lock, name: `${name}${each.name}`, depth }); };
  const walk = (folder, depth, path) => {
    for (let [name, below] of [...folder.folders].sort(([a], [b]) => (a < b ? -1 : 1))) {
      while (!below.locks.length && below.folders.size === 1) { const [[next, deeper]] = below.folders; name += `/${next}`; below = deeper; }
      if (!below.folders.size && below.locks.length === 1) { leaves(below.locks, path, `${name}/`, depth); continue; }
      const here = `${path}${name}/`, all = every(below);
      rows.push({ key: `folder ${here}`, folder: name, path: here, depth, count: all.length, waits: waiting(all), holders: [...new Set(all.map((lock) => lock.holder))], folded: folded.has(here) });
      if (!folded.has(here)) walk(below, depth + 1, here);
    }
    leaves(folder.locks, path, '', depth);
  };
  walk(root, 0, '');
  return rows;
}

/** How many agents wait for some of these locks. */
const waiting = (locks) => new Set(locks.flatMap((lock) => lock.waiters.map((each) => each.name))).size;

function every(folder) { return [...folder.locks.map((each) => each.lock), ...[...folder.folders.values()].flatMap(every)]; }

class Locks {
  constructor(context) {
    this.context = context;
    this.filter = 'all';
    this.folded = new Set();
    this.leases = [];
    this.covered = null;
    this.chosen = context.rest[0] ?? null;
    this.words = h('span.line.small');
    this.filters = segments('which locks', FILTERS, 'all', (filter) => { this.filter = filter; this.draw(); });
    this.find = h('input', { type: 'search', 'aria-label': 'Who covers this path?', placeholder: 'Who covers this path?', on: { input: () => this.covering.ask() } });
    this.covering = paced(() => this.cover(), 200);
    this.paths = table('Path locks', HEADS('Path'));
    this.named = table('Named locks and leases', HEADS('Name'));
    this.empty = h('div.empty', null, 'No path is locked. An agent locks what it works on: ', h('code', null, "holdfast path lock 'src/parser/**'"));
    this.side = h('aside.locks-side', { 'aria-label': 'the lock that is chosen' });
    this.element = h('div.view.locks', null,
      h('div.view-head', null, h('h1', null, 'Locks'), this.words, h('span.line.push', null, this.find, this.filters.element)),
      h('div.locks-columns', null, h('div.stack', null, h('div.panel', { tabindex: 0, role: 'region', 'aria-label': 'path locks' }, this.paths.element, this.empty), h('h3', null, 'Named locks and leases'), h('div.panel', { tabindex: 0, role: 'region', 'aria-label': 'named locks' }, this.named.element, this.nameless = h('div.empty', null, 'No named lock and no lease. ', h('code', null, 'holdfast lock acquire deploy'), ' takes one.'))), this.side));
    this.end = context.store.on('status', () => this.draw());
    this.loading = paced(() => this.load(), 1000);
    this.loading.ask();
    this.draw();
  }

  async load() {
    try { this.leases = await this.context.api.get('/leases', { limit: 200 }, { signal: this.context.signal }); } catch (error) { if (error.name !== 'AbortError' && error.code !== 'UNREACHABLE') throw error; }
    this.draw();
  }

  /** Which locks cover the path that is typed. */
  async cover() {
    const path = this.find.value.trim().replace(/^\/+|\/+$/g, '');
    try { this.covered = path ? new Set((await this.context.api.get('/paths', { path }, { signal: this.context.signal })).map((lock) => lock.id)) : null; } catch (error) { if (error.name === 'AbortError') return; this.covered = new Set(); }
    this.draw();
  }

  draw() {
    const status = this.context.store.get('status');
    if (!status) return;
    const keep = (lock) => (this.filter === 'waiters' ? lock.waiters.length : this.filter === 'endless' ? endless(lock) : true) && (this.covered === null || this.covered.has(lock.name));
    const paths = status.locks.filter((lock) => lock.kind === 'path'), others = status.locks.filter((lock) => lock.kind !== 'path');
    const line = waiting(status.locks), without = status.locks.filter(endless).length;
    put(this.words, h('span.ink-3', null, `${paths.length} path ${paths.length === 1 ? 'lock' : 'locks'}, ${others.length} named, ${this.leases.length} ${this.leases.length === 1 ? 'lease' : 'leases'}`), line > 0 && h('b', null, `${line} ${line === 1 ? 'waits' : 'wait'} in line`), without > 0 && h('b.state.c-red.small', null, shape('trouble', 12), `${without} without an end`));
    this.filters.draw(FILTERS, this.filter);
    this.chosen ??= [...status.locks].sort((a, b) => b.waiters.length - a.waiters.length)[0]?.name ?? null;
    for (const each of [this.paths, this.named]) widen(each, 1, [...status.locks, ...this.leases].map((lock) => lock.holder));
    const rows = tree(paths.filter(keep), this.folded);
    this.empty.hidden = rows.length > 0;
    keyed(this.paths.body, rows.map((row) => ({ ...row, chosen: row.lock?.name === this.chosen })), (row) => row.key, (row) => (row.lock ? this.row(row.lock, row.name, row.depth, row.chosen) : this.folder(row)));
    const leases = this.filter === 'all' && this.covered === null ? this.leases.map((lease) => ({ kind: 'lease', name: lease.id, scope: '', holder: lease.holder, task: null, shared: false, since: lease.created_at, until: lease.expires_at, waiters: [], reason: null, patterns: [] })) : [];
    keyed(this.named.body, [...others.filter((lock) => keep(lock) && this.covered === null), ...leases].map((lock) => ({ ...lock, chosen: lock.name === this.chosen })), (lock) => `${lock.kind} ${lock.scope} ${lock.name}`, (lock) => this.row(lock, lock.kind === 'lease' ? `lease ${lock.name.slice(-6)}` : nameOf(lock), 0, lock.chosen));
    this.nameless.hidden = this.named.body.childElementCount > 0;
    this.drawSide(status);
  }

  folder(row) {
    const turn = () => { if (this.folded.has(row.path)) this.folded.delete(row.path); else this.folded.add(row.path); this.draw(); };
    return h('tr.folder', { tabindex: -1, on: { click: turn } }, h('td', { colspan: 6 }, h('span.line', { style: { 'padding-left': `${row.depth * 20}px` } }, h('button.quiet.turn', { type: 'button', 'aria-expanded': String(!row.folded), 'aria-label': `${row.folded ? 'unfold' : 'fold'} ${row.path}` }, shape(row.folded ? 'right' : 'down', 12)), shape('folder'), pathOf(`${row.folder}/`))),
      h('td.small.ink-3', null, `${row.count} ${row.count === 1 ? 'lock' : 'locks'} below${row.waits ? `, ${row.waits} ${row.waits === 1 ? 'waits' : 'wait'}` : ''}${row.folded ? `: ${row.holders.slice(0, 4).join(', ')}` : ''}`));
  }

  row(lock, name, depth, chosen) {
    const soon = endless(lock) || (lock.until && Date.parse(lock.until) - now() <= 120_000);
    const mode = lock.kind === 'path' ? (lock.shared ? 'shared' : 'exclusive') : lock.kind === 'lock' ? 'named' : lock.kind.replace('-lock', '');
    const choose = () => { this.chosen = lock.name; this.draw(); };
    return h('tr', { tabindex: -1, 'aria-selected': String(Boolean(chosen)), class: soon ? 'trouble' : '', data: { lock: lock.name }, on: { click: choose, focus: () => { if (this.chosen !== lock.name) choose(); } } },
      h('td', { title: nameOf(lock) || lock.name }, h('span.line', { style: { 'padding-left': `${depth * 20 + 16}px` } }, shape('lock'), pathOf(name))),
      h('td', { title: lock.holder }, h('b', null, middle(lock.holder, NAME))), h('td', null, lock.task && h('a.mono.ink-2', { href: this.context.href('task', lock.task) }, lock.task)), h('td.small.ink-2', null, mode),
      h('td.right.small', null, age(lock.since)), h('td', null, lock.until || endless(lock) ? timeLeft(lock.since, lock.until, { lost: endless(lock) }) : h('span.small.ink-3', null, 'with the claim')),
      h('td', { class: lock.waiters.length ? '' : 'none', title: lock.waiters.map((each) => each.name).join(', ') }, lock.waiters.length ? h('span.line', null, lock.waiters.slice(0, 3).map(({ name: waiter, since }, n) => h('span.chip', null, h('b', null, n + 1), middle(waiter, NAME), age(since))), lock.waiters.length > 3 && `and ${lock.waiters.length - 3} more`) : h('span.ink-3', null, '–')));
  }

  drawSide(status) {
    const { context } = this, lock = status.locks.find((each) => each.name === this.chosen) ?? null;
    const print = JSON.stringify([lock, status.locks.filter(endless).map((each) => [each.name, each.holder, each.waiters])]);
    if (print === this.print) return;
    this.print = print;
    const fact = (name, ...value) => h('div.fact', null, h('span.ink-3', null, name), h('span', null, value));
    const forced = (each) => context.may('admin') && forcible(each) && h('button.force.large', { type: 'button', data: { act: '' }, on: { click: () => this.force(each, status) } }, 'force release…');
    const card = lock && h('div.panel', null, h('div.section', null, h('div.line', null, shape('lock'), h('b.mono.text', null, nameOf(lock))), h('p.small.ink-2', null, lock.kind === 'path' ? 'and everything below' : 'a name', lock.reason && `; “${clip(lock.reason, 200)}”`)),
      h('div.section', null, fact('Holder', h('b.text', null, lock.holder)), lock.task && fact('Task', h('a.mono', { href: context.href('task', lock.task) }, lock.task)), fact('Since', age(lock.since), `, ${hourOf(lock.since)}`), fact('Ends in', timeLeft(lock.since, lock.until, { lost: endless(lock) })), lock.task && fact('Lives with', 'the claim')),
      lock.waiters.length > 0 && h('div.section', null, h('h3', null, 'Line, served in order'), few('line', lock.waiters, 12, (each, n) => this.waiter(each, n, status)), h('p.hint', null, 'A waiter that is gone loses its place after 10 s.')),
      h('div.section.line', null, context.may('agent') && h('button.large', { type: 'button', data: { act: '' }, on: { click: () => this.mail(lock) } }, `mail ${middle(lock.holder, NAME)}`), forced(lock)));
    put(this.side, card || h('div.panel.section.hint', null, 'Choose a lock to see who waits for it.'),
      few('endless', status.locks.filter((each) => endless(each) && each !== lock), 3, (each) => h('div.panel.section', null, h('div.line', null, shape('trouble'), h('b', null, `${nameOf(each)} has no end`)), h('p.small.ink-2', null, `${this.told(each, status)} Only a person can end it.`), forced(each))));
  }

  /** A place in the line: who, with which task, for how long, and for what if it is not the same. */
  waiter({ name, since, patterns }, n, status) {
    const task = status.agents.find((agent) => agent.name === name)?.task;
    return h('div.waiter', null, h('div.rail-row', null, h('b', null, n + 1), h('b', null, name), task && h('a.mono.ink-2', { href: this.context.href('task', task) }, task), h('span.push.small', null, age(since))),
      patterns.length > 0 && h('p.mono.ink-2.one', { title: patterns.join(', ') }, patterns.join(', ')));
  }

  /** Who has it and who waits, in a sentence. */
  told(lock, status) {
    const seen = status.agents.find((agent) => agent.name === lock.holder)?.seen_at;
    return `${lock.holder} holds it ${lock.until ? `until ${hourOf(lock.until)}` : 'without an end'}${seen ? ` and was seen ${duration((now() - Date.parse(seen)) / 1000)} ago` : ''}.${lock.waiters.length ? ` ${lock.waiters[0].name} gets it next.` : ''}`;
  }

  force(lock, status) {
    return releaseLock(this.context, lock, this.told(lock, status));
  }

  mail(lock) {
    return ask({ title: `Mail to ${lock.holder}`, text: `About ${clip(nameOf(lock), 80)}.`, verb: 'Send', as: `${this.context.session.name}, ${this.context.session.role}`, field: { label: 'Text', area: true, required: true },
      act: (body) => this.context.api.post('/mail', { to: [lock.holder], subject: clip(`About the lock ${nameOf(lock)}`, 200), body, type: 'request', ack: true, ...(lock.task && { task: lock.task }) }) });
  }
}

/** A path whose beginning is cut where it does not fit: the end stays. */
function pathOf(name) {
  const cut = name.lastIndexOf('/', name.length - 2) + 1;
  return h('b.mono.path', null, cut > 0 && h('span.one', null, name.slice(0, cut)), h('span.one.path-end', null, name.slice(cut)));
}

export const view = {
  name: 'locks', title: 'Locks', icon: 'locks', key: 'k', keys: [['j k', 'from lock to lock'], ['Enter', 'open its task']],
  open(context) {
    const locks = new Locks(context);
    return { element: locks.element, key: (event) => listKeys(locks.element, 'tbody tr', event), update: ({ events, reload }) => { if (reload || events.some((event) => event.kind === 'lease')) locks.loading.ask(); }, close: () => { locks.end(); locks.loading.close(); locks.covering.close(); } };
  },
};
