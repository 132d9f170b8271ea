// Board: a column per status, open split into ready and waiting; cards move by dragging, by keys or by a menu.

import { explain } from '../api.js';
import { ask, notice, overtaken } from '../dialog.js';
import { cardOf } from '../cards.js';
import { clip, h, keyed, put, text } from '../dom.js';
import { now, number } from '../format.js';
import { inLine, lines } from '../agents.js';
import { listKeys } from '../lists.js';
import { force, foreign, move, moveOf, targetsOf, wayOf, whyNot } from '../moves.js';
import { COLOURS, shape, wordOf } from '../shapes.js';
import { paced } from '../store.js';

const FIRST = { ready: 4 }; // cards of the group that shares a column with another
const PAGE = 40, MOST = 1000, SOON = 120_000; // cards that a group shows at first, and adds; at most; milliseconds to the end
const COLUMNS = [['open', 'Open', ['ready', 'waiting']], ['in_progress', 'In progress', ['in_progress']], ['review', 'Review', ['review']], ['blocked', 'Blocked', ['blocked']], ['closed', 'Closed', ['closed']]];
const COLUMN_OF = Object.fromEntries(COLUMNS.flatMap(([name, , groups]) => groups.map((group) => [group, name])));
const NAMES = Object.fromEntries(COLUMNS.map(([name, words]) => [name, words.toLowerCase()]));
const KEYS = { c: { open: 'in_progress' }, r: { in_progress: 'open', blocked: 'open', closed: 'open' }, x: { in_progress: 'blocked', review: 'blocked' }, d: { open: 'closed', in_progress: 'closed', review: 'closed', blocked: 'closed' } };
const DEEDS = [['c', 'claim'], ['r', 'release'], ['x', 'block'], ['d', 'done'], ['m', 'move']];
const TYPES = ['task', 'feature', 'bug', 'epic', 'chore'];

class Board {
  constructor(context) {
    this.context = context;
    this.refusals = new Map(); // task id -> {words, error}
    this.failure = h('div.note-red', { role: 'alert', hidden: true });
    this.groups = new Map(COLUMNS.flatMap(([, , groups]) => groups).map((name) => [name, this.group(name)]));
    this.filters = this.filterBar();
    this.total = h('span.hint');
    this.hint = h('p.hint.board-hint');
    const fresh = h('button.primary', { data: { act: '' }, on: { click: () => { this.show('open'); this.fresh.focus(); } } }, shape('plus', 12), 'New', h('span.wide-only', null, ' task'));
    this.tabs = h('div.board-tabs', { role: 'tablist', 'aria-label': 'columns' });
    this.columns = new Map(COLUMNS.map(([name, words, groups]) => [name, this.column(name, words, groups)]));
    this.element = h('div.view.board', null,
      h('div.view-head', null, h('h1', null, 'Board'), this.total, h('span.line.filters.push', null, this.filters), this.toggle = h('button.filter-button', { 'aria-expanded': 'false', on: { click: () => this.fold() } }, 'filter'), context.may('agent') && fresh),
      this.failure, this.hint, this.tabs, h('div.columns', null, [...this.columns.values()].map((each) => each.element)));
    this.loading = paced(() => this.load());
    this.end = context.store.on('status', () => this.draw());
    if (this.narrowed) this.fold();
    this.show(context.query.get('column') ?? 'in_progress');
    this.say(); this.loading.ask();
  }

  /** Show or hide the filters of a narrow screen. */
  fold() { this.toggle.setAttribute('aria-expanded', String(this.element.classList.toggle('filtering'))); }

  group(name) {
    const cards = h('div.cards', { data: { group: name } });
    const more = h('button.quiet.more', { hidden: true, on: { click: () => this.more(name) } });
    const head = ['ready', 'waiting'].includes(name) ? h('h3.group-head', { class: `c-${COLOURS[name]}` }, shape(name, 12), wordOf(name), h('span.num')) : null;
    return { name, cards: [], cursor: null, total: null, wanted: FIRST[name] ?? PAGE, head, more, list: cards };
  }

  column(name, words, groups) {
    const count = h('span.num'), says = h('p.drop-says', { hidden: true });
    const element = h('section.column', { 'aria-label': words, data: { column: name }, on: {
      dragover: (event) => { if (this.drag) event.preventDefault(); },
      drop: (event) => { event.preventDefault(); if (this.drag && this.drag.from !== name) this.go(this.drag.card, this.drag.from, name); },
    } }, h('h2.column-head', { class: name === 'open' ? '' : `c-${COLOURS[name]}` }, name !== 'open' && shape(name), words, count), says);
    if (name === 'open' && this.context.may('agent')) {
      this.fresh = h('input', { 'aria-label': 'New task', placeholder: 'New task, Enter to create', data: { act: '' }, on: { keydown: (event) => { if (event.key === 'Enter') this.create(); } } });
      element.append(h('label.new-card', null, shape('plus', 12), this.fresh));
    }
    const parts = groups.map((group) => this.groups.get(group)), last = parts.at(-1);
    element.append(h('div.column-body', { tabindex: -1 }, parts.map((part) => [part.head, part.list, part !== last && part.more])), last.more);
    return { element, count, says };
  }

  filterBar() {
    const { query } = this.context;
    this.filter = Object.fromEntries(['text', 'tag', 'type', 'priority', 'holder'].map((name) => [name, query.get(name) ?? '']));
    let timer = 0;
    const input = h('input', { type: 'search', maxlength: 500, 'aria-label': 'Filter by text', placeholder: 'Filter by text', value: this.filter.text, on: { input: () => { clearTimeout(timer); timer = setTimeout(() => this.narrow('text', input.value.trim()), 200); } } });
    const select = (name, choices) => {
      const each = h('select', { 'aria-label': name, on: { change: () => this.narrow(name, each.value) } });
      each.fill = (given) => { const print = given.join('\0'); if (each.print === print) return; each.print = print; put(each, h('option', { value: '' }, name), [...new Set([...given, this.filter[name]].filter(Boolean))].map((value) => h('option', { value, selected: value === this.filter[name] }, name === 'priority' ? `P${value}` : value))); };
      each.fill(choices);
      return each;
    };
    this.tag = select('tag', []);
    this.holder = select('holder', []);
    return [input, this.tag, select('type', TYPES), select('priority', ['0', '1', '2', '3', '4']), this.holder];
  }

  narrow(name, value) {
    this.filter[name] = value;
    for (const group of this.groups.values()) group.wanted = FIRST[group.name] ?? PAGE;
    this.context.setQuery(this.filter, { step: name !== 'text' || this.narrowedBy !== name }); // a word that is typed is one step back
    this.narrowedBy = name;
    this.loading.ask();
  }

  /** What is asked for: words that the search can find, the last one as a beginning. */
  asked() {
    const { text: words, ...rest } = this.filter;
    const plain = words.replace(/["*]/g, ' ').trim();
    return { ...Object.fromEntries(Object.entries(rest).map(([name, value]) => [name, value || null])), text: /[\p{L}\p{N}]/u.test(plain) ? `${plain}*` : null };
  }

  get narrowed() { return Object.values(this.asked()).some((value) => value !== null); }

  async load(only = [...this.groups.keys()]) {
    const asked = this.asked(), total = this.narrowed ? true : null;
    try {
      await Promise.all(only.map(async (name) => {
        const group = this.groups.get(name);
        const page = await this.context.api.page('/board', { column: name, ...asked, limit: Math.min(MOST, group.wanted), total }, { signal: this.context.signal });
        Object.assign(group, { cards: page.data, cursor: page.cursor, total: page.total });
      }));
    } catch (error) { if (error.name !== 'AbortError' && error.code !== 'UNREACHABLE') this.fail(error); return; }
    this.fail(null);
    this.draw();
  }

  /** Show why there are no cards, in their place; null: there are. */
  fail(error) {
    this.failure.hidden = !error;
    this.element.classList.toggle('failed', Boolean(error));
    if (error) put(this.failure, shape('trouble', 12), h('div', null, explain(error), ' ', h('a.link', { href: this.context.href('board') }, 'Show all tasks')));
  }

  async more(name) {
    const group = this.groups.get(name);
    const page = await this.context.api.page('/board', { column: name, ...this.asked(), limit: PAGE, cursor: group.cursor }, { signal: this.context.signal });
    const known = new Set(group.cards.map((card) => card.id));
    group.cards.push(...page.data.filter((card) => !known.has(card.id)));
    group.wanted = Math.min(MOST, group.cards.length);
    group.cursor = page.cursor;
    this.draw();
  }

  counts() {
    const tasks = this.context.store.get('status')?.tasks;
    return Object.fromEntries([...this.groups].map(([name, group]) => [name, this.narrowed ? group.total ?? group.cards.length : tasks?.[name] ?? group.cards.length]));
  }

  draw() {
    if (this.drag) return; // cards stay where they are while one is on its way
    this.overtake();
    const held = document.activeElement.closest('.card');
    const counts = this.counts(), tags = new Set(), status = this.context.store.get('status'), waits = lines(status?.locks ?? []), of = ([name, , groups]) => groups.reduce((sum, group) => sum + counts[group], 0);
    text(this.total, `${number(COLUMNS.reduce((sum, column) => sum + of(column), 0))} tasks`);
    for (const column of COLUMNS) {
      const today = column[0] === 'closed' && !this.narrowed && status ? `, today ${number(status.tasks.closed_today)}` : '';
      text(this.columns.get(column[0]).count, number(of(column)) + today);
    }
    put(this.tabs, COLUMNS.map(([name, words, groups]) => h('button', { role: 'tab', 'aria-selected': String(name === this.shown), on: { click: () => this.show(name) } }, shape(name === 'open' ? 'ready' : name), words, h('span.num', null, number(of([name, words, groups]))))));
    for (const group of this.groups.values()) {
      for (const card of group.cards) for (const tag of card.tags) tags.add(tag);
      const items = group.cards.map((card) => ({ ...card, line: inLine(waits.get(card.holder)), refusal: this.refusals.get(card.id)?.words ?? null, forcible: this.refusals.get(card.id)?.error.status === 403 && Boolean(card.holder) && this.context.may('admin') }));
      const ends = (card) => (card.until && Date.parse(card.until) - now() <= SOON ? 0 : 1);
      if (group.name === 'in_progress') items.sort((a, b) => ends(a) - ends(b) || a.priority - b.priority);
      keyed(group.list, items, (card) => card.id, (card) => cardOf(this.context, this, card, group.name, COLUMN_OF[group.name]));
      if (group.head) text(group.head.lastChild, number(counts[group.name]));
      const rest = Math.max(0, counts[group.name] - group.cards.length);
      group.more.hidden = !group.cursor; text(group.more, rest ? `${number(rest)} more` : 'more');
    }
    if (held && !held.isConnected) this.focus(held.dataset.id); // the keys follow a card to its new column
    this.tag.fill([...tags].sort()); this.holder.fill((status?.agents ?? []).map((agent) => agent.name));
  }

  open(id) { this.context.go('task', id); }
  force(card) { this.touch(card.id); force(this.context, card); }

  /** Take the refusal from a card; true if it had one. */
  touch(id) {
    const had = this.refusals.delete(id);
    if (had) setTimeout(() => this.draw()); // after the click, which is on what is there now
    return had;
  }

  /** Say in the dialog that is open that its card was moved by somebody else. */
  overtake() {
    if (!this.moving) return;
    const { id, from } = this.moving, there = [...this.groups].find(([, group]) => group.cards.some((card) => card.id === id));
    if (there && COLUMN_OF[there[0]] !== from) overtaken(`${there[1].cards.find((card) => card.id === id).holder ?? 'Somebody'} was faster: it is ${NAMES[COLUMN_OF[there[0]]]} by now.`);
  }

  take(event, card, from) {
    event.dataTransfer.setData('text/plain', card.id);
    event.dataTransfer.effectAllowed = 'move';
    this.drag = { card, from };
    setTimeout(() => this.say(), 0); // a card that changes while its picture is taken is not dragged
  }

  letGo() { this.drag = null; this.say(); this.draw(); }
  /** What can be done, or where the card on its way can go. */
  say() {
    const { drag } = this;
    for (const [name, { element, says }] of this.columns) {
      const found = drag && !foreign(this.context, drag.card, drag.from) && moveOf(drag.from, name);
      element.classList.toggle('target', Boolean(found));
      element.classList.toggle('no-target', Boolean(drag) && !found && name !== drag.from);
      says.hidden = !found; if (found) text(says, found.says(this.context));
    }
    if (drag) put(this.hint, 'Moving ', h('b', null, drag.card.id), `. ${wayOf(this.context, drag.card, drag.from, NAMES)} `, h('kbd', null, 'Esc'), ' puts it back');
    else put(this.hint, this.context.may('agent') && ['Drag a card, or focus it with ', h('kbd', null, 'j'), ' ', h('kbd', null, 'k'), ' and press ', DEEDS.map(([key, words]) => [h('kbd', null, key), ` ${words} `])]);
  }

  /** Move a card; a refusal is shown at it, and it goes back by staying where it is. */
  async go(card, from, to) {
    this.letGo();
    this.refusals.delete(card.id);
    this.moving = { id: card.id, from };
    if (!moveOf(from, to)) this.refusals.set(card.id, { words: wayOf(this.context, card, from, NAMES), error: {} });
    else try { await move(this.context, card, from, to); } catch (error) { this.refusals.set(card.id, { words: whyNot(error, card, NAMES[to]), error }); }
    this.moving = null;
    this.loading.ask();
    this.draw();
    this.focus(card.id);
  }

  focus(id) { this.element.querySelector(`[data-id="${CSS.escape(id)}"]`)?.focus(); }

  async menu(card, from) {
    const to = await ask({ title: `Move ${card.id}?`, text: clip(card.title, 200), verb: 'Move', field: { label: 'To', options: targetsOf(from).map((name) => [name, NAMES[name]]), value: targetsOf(from)[0] }, act: (given) => given });
    if (to) await this.go(card, from, to);
  }

  async create() {
    const title = this.fresh.value.trim(); if (!title) return;
    try { const made = await this.context.api.post('/tasks', { title }); this.fresh.value = ''; notice(`${made.id} is made: ${clip(title, 60)}`); } catch (error) { notice(explain(error), true); }
  }

  show(name) {
    this.shown = this.columns.has(name) ? name : 'in_progress';
    for (const [each, { element }] of this.columns) element.classList.toggle('shown', each === this.shown);
    this.draw();
  }

  key(event) {
    const element = document.activeElement?.closest?.('.card');
    const card = element && [...this.groups.values()].flatMap((group) => group.cards).find((each) => each.id === element.dataset.id);
    if (card && this.context.can('agent')) {
      const from = element.dataset.column, ways = KEYS[event.key];
      if (ways) { this.go(card, from, ways[from]); return true; }
      if (event.key === 'm') { this.menu(card, from); return true; }
    }
    return listKeys(this.element, '.card', event);
  }
}

export const view = {
  name: 'board', title: 'Board', icon: 'board', key: 'b', keys: [['j k', 'from card to card'], ['c', 'claim'], ['r', 'release or reopen'], ['x', 'block or reject'], ['d', 'done, approve or close'], ['m', 'move to another column'], ['Enter', 'open']],
  open(context) {
    const board = new Board(context);
    return { element: board.element, update: ({ events, reload }) => { if (reload || events.some((event) => event.kind === 'task')) board.loading.ask(); }, key: (event) => board.key(event), close: () => { board.loading.close(); board.end(); } };
  },
};
