// Log: the event stream, live, with filters by kind, actor and record; jump to a revision.

import { explain } from '../api.js';
import { h, keyed, put } from '../dom.js';
import { number } from '../format.js';
import { listKeys } from '../lists.js';
import { eventRow, KINDS } from '../sentences.js';

const MOST = 300; // rows on the screen
const LIMIT = 1000; // events of an answer
const PAGE = 200; // revisions looked back at first

class Log {
  constructor(context) {
    this.context = context;
    this.events = [];
    this.seen = new Set();
    const { query } = context;
    this.filter = { kind: query.get('kind') ?? '', actor: query.get('actor') ?? '', id: query.get('id') ?? '' };
    this.from = Number(query.get('revision')) || null;
    const kind = h('select', { 'aria-label': 'kind', on: { change: () => this.set({ kind: kind.value }) } }, h('option', { value: '' }, 'every kind'), KINDS.map((each) => h('option', { value: each, selected: each === this.filter.kind }, each)));
    const field = (name, words) => { const input = h('input', { type: 'search', placeholder: words, 'aria-label': words, value: this.filter[name], on: { change: () => this.set({ [name]: input.value.trim() }) } }); return input; };
    const jump = h('input', { type: 'number', min: 1, placeholder: 'revision', 'aria-label': 'jump to a revision', value: this.from ?? '', on: { change: () => { this.from = Number(jump.value) || null; this.set({}); } } });
    this.note = h('span.hint', { 'aria-live': 'polite' });
    this.live = h('button', { type: 'button', hidden: this.from === null, on: { click: () => { this.from = null; jump.value = ''; this.set({}); } } }, 'back to live');
    this.rows = h('div.panel.events');
    this.element = h('div.view.log', null, h('div.view-head', null, h('h1', null, 'Log'), this.note, h('span.push.line.filters', null, kind, field('actor', 'actor'), field('id', 'record'), jump, this.live)), this.rows);
    this.load();
  }

  set(given) {
    Object.assign(this.filter, given);
    this.live.hidden = this.from === null;
    this.context.setQuery({ ...this.filter, revision: this.from }, { step: true });
    this.load();
  }

  fits(event) {
    const { kind, actor, id } = this.filter;
    return (!kind || event.kind === kind) && (!actor || event.actor === actor) && (!id || event.id === id || `${event.scope}/${event.id}` === id);
  }

  query(more) {
    const { kind, actor, id } = this.filter;
    return { kinds: kind || null, actor: actor || null, id: id || null, ...more };
  }

  async load() {
    const { api, signal } = this.context;
    try {
      const { revision } = await api.get('/revision', null, { signal });
      let found = [], back = PAGE;
      if (this.from !== null) found = await api.get('/events', this.query({ after: Math.max(0, this.from - 1), limit: MOST }), { signal });
      else { // the newest: look back further while too few were found
        for (; ; back *= 8) {
          found = await this.range(Math.max(0, revision - back));
          if (found.length >= MOST || back >= revision || back > 100_000) break;
        }
      }
      const live = this.from === null ? this.events.filter((event) => event.revision > revision) : [];
      this.seen = new Set();
      this.events = [];
      this.add([...found, ...live]);
    } catch (error) { if (error.name !== 'AbortError') put(this.note, explain(error)); }
  }

  /** All events after a revision; of very many only the last ones. */
  async range(after) {
    let found = [];
    for (let pages = 0; pages < 20; pages += 1) {
      const page = await this.context.api.get('/events', this.query({ after, limit: LIMIT }), { signal: this.context.signal });
      found = [...found, ...page].slice(-LIMIT);
      if (page.length < LIMIT) break;
      after = `${page.at(-1).revision}-${page.at(-1).position}`;
    }
    return found;
  }

  /** Add events, each once, in their order. */
  add(events) {
    for (const event of events) {
      const cursor = `${event.revision}-${event.position}`;
      if (this.seen.has(cursor) || !this.fits(event)) continue;
      this.seen.add(cursor);
      this.events.push(event);
    }
    while (this.events.length > MOST) { const gone = this.events.shift(); this.seen.delete(`${gone.revision}-${gone.position}`); }
    this.draw();
  }

  draw() {
    const link = (kind, id) => (kind === 'task' ? this.context.href('task', id) : kind === 'message' ? this.context.href('mail', id) : `${this.context.href('log')}?${new URLSearchParams({ kind, id })}`);
    const shown = this.from === null ? this.events.slice().reverse() : this.events;
    keyed(this.rows, shown, (event) => `${event.revision}-${event.position}`, (event) => eventRow(event, link), () => {});
    put(this.note, shown.length ? (this.from === null ? `the newest ${number(shown.length)}, live` : `from revision ${number(this.from)}`) : 'Nothing fits. Every change of the workspace comes here: create a task to see one.');
  }
}

export const view = {
  name: 'log', title: 'Log', icon: 'log', key: 'l', keys: [['j k', 'move'], ['Enter', 'open the record']],
  open(context) {
    const log = new Log(context);
    return {
      element: log.element,
      update: ({ events, reload }) => { if (log.from !== null) return; if (reload) log.load(); else log.add(events); },
      key: (event) => listKeys(log.element, '.event', event),
    };
  },
};
