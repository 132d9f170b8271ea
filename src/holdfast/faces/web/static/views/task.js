// Task: left what was said and done, right what is true now.

import { ApiError, explain, seg } from '../api.js';
import { clip, h, keyed, put } from '../dom.js';
import { age, duration, exact, hourOf, now, number, timeLeft } from '../format.js';
import { overtaken } from '../dialog.js';
import { few, listKeys, segments } from '../lists.js';
import { markdown } from '../markdown.js';
import { shape, stateOf } from '../shapes.js';
import { paced } from '../store.js';
import { actsOf, note } from '../task_acts.js';
import { eventRow, sortOf, stateOfTask, wordOfStatus } from '../sentences.js';

const EVENTS = 1000; // of a history, at most
const NEAR = 12; // tasks of a list in the rail

class TaskPage {
  constructor(context, id) {
    Object.assign(this, { context, id, events: [], sort: 'all', rail: {} });
    this.head = h('div.task-head');
    this.body = h('div.panel.section', { hidden: true });
    this.rows = h('div.events');
    this.sorts = segments('which changes', [], 'all', (value) => { this.sort = value; this.drawHistory(); });
    this.input = h('input', { type: 'text', placeholder: 'Write a note, Markdown', 'aria-label': 'note' });
    this.form = h('form.note-form', { hidden: !context.may('agent'), on: { submit: (event) => this.addNote(event) } }, this.input, h('button.act.large', { type: 'submit', data: { act: '' } }, 'add note'));
    this.facts = h('aside.panel.facts-rail', { 'aria-label': 'what is true now' });
    this.element = h('div.view.task', null, this.head, this.columns = h('div.task-columns', null,
      h('div.stack', null, this.body, h('section.panel.history', { 'aria-label': 'History' }, h('div.history-head', null, h('h3', null, 'History'), h('span.push', null, this.sorts.element)), this.rows, this.form)), this.facts));
    this.record = paced(() => this.load());
    this.record.ask();
    this.loadEvents();
  }

  get(path, query) { return this.context.api.get(path, query, { signal: this.context.signal }); }

  async load() {
    const base = `/tasks/${seg(this.id)}`;
    try {
      const before = this.task;
      this.task = await this.get(base);
      this.id = this.task.id;
      if (before && (before.status !== this.task.status || before.claimed_by !== this.task.claimed_by)) overtaken(`Somebody was faster: it is ${wordOfStatus(this.task.status)}${this.task.claimed_by ? `, held by ${this.task.claimed_by}` : ''} by now.`);
      document.title = `${this.task.title} · Holdfast`;
      const optional = (work) => work.catch((error) => { if (error instanceof ApiError) return null; throw error; });
      const [reasons, links, children, locks, mail, route, graph, above, stashes] = await Promise.all([
        this.get(`${base}/explain`), this.get(`${base}/dependencies`), this.get(`${base}/children`), optional(this.get('/paths', { task: this.id })), optional(this.get(`${base}/mail`)),
        optional(this.get(`${base}/route`)), optional(this.get('/tasks/graph', { root: this.id, include_closed: true })), this.get(`${base}/ancestors`),
        optional(this.stashesOf()),
      ]);
      this.rail = { reasons, links, children, locks, mail, route, graph, above, stashes };
      this.task.ready = reasons.ready;
    } catch (error) {
      if (error.name === 'AbortError' || error.code === 'UNREACHABLE') return;
      put(this.head, h('h1', null, 'Task'), h('div.note-red', { role: 'alert' }, shape('trouble'), h('div', null, explain(error), ' ', h('a.link', { href: this.context.href('board') }, 'Board'))));
      this.columns.hidden = true;
      return;
    }
    this.draw();
  }

  /** The stashes of the trail that it belongs to. */
  async stashesOf() {
    const [link] = await this.get('/links', { link_type: 'belongs_to', from_id: this.id });
    return link ? this.get('/stashes', { trail: link.to_id }) : [];
  }

  async loadEvents() {
    try {
      let after = 0;
      const found = [];
      do {
        const page = await this.context.api.page('/events', { kinds: 'task', id: this.id, after, limit: EVENTS }, { signal: this.context.signal });
        found.push(...page.data);
        after = page.data.length === EVENTS ? `${page.data.at(-1).revision}-${page.data.at(-1).position}` : null;
      } while (after !== null && found.length < EVENTS * 5);
      const known = new Set(this.events.map((event) => `${event.revision}-${event.position}`));
      this.events = [...found.filter((event) => !known.has(`${event.revision}-${event.position}`)), ...this.events].sort((a, b) => a.revision - b.revision || a.position - b.position);
      this.drawHistory();
      if (this.task) this.draw();
    } catch (error) { if (error.name !== 'AbortError' && error.code !== 'UNREACHABLE') put(this.rows, h('p.section.ink-2', null, explain(error))); }
  }

  update({ events, reload }) {
    const own = events.filter((event) => event.kind === 'task' && event.id === this.id);
    if (own.length) { this.events.push(...own); this.drawHistory(); }
    if (reload) { this.events = []; this.loadEvents(); }
    const near = new Set([...(this.rail.links ?? []).flatMap((link) => [link.id, link.on]), ...(this.rail.children ?? []).map((child) => child.id)]);
    if (own.length || reload || events.some((event) => (event.kind === 'task' && (near.has(event.id) || event.data?.parent_id)) || ['path', 'message', 'stash', 'link'].includes(event.kind))) this.record.ask();
  }

  drawHistory() {
    const link = (kind, id) => this.context.href(kind === 'task' ? 'task' : 'log', ...(kind === 'task' ? [id] : []));
    const counts = { all: this.events.length, notes: 0, status: 0, fields: 0 };
    for (const event of this.events) counts[sortOf(event)] += 1;
    this.sorts.draw(Object.entries(counts).map(([which, count]) => [which, `${which} ${count}`]), this.sort);
    const shown = this.events.filter((event) => this.sort === 'all' || sortOf(event) === this.sort).reverse();
    keyed(this.rows, shown, (event) => `${event.revision}-${event.position}`, (event) => eventRow(event, link, this.id), () => {});
  }

  draw() {
    const { context, task, rail } = this;
    const state = stateOfTask(task);
    const acts = actsOf(context, task);
    const button = (act) => h('button.large', { type: 'button', class: act.kind ?? '', data: { act: '', name: act.id }, on: { click: () => act.run(context, task) } }, act.label, act.key && h('kbd', null, act.key));
    const menu = acts.filter((act) => act.more);
    const open = this.head.querySelector('details')?.open ?? false;
    put(this.head,
      h('nav.crumbs.small', { 'aria-label': 'where it is' }, h('a', { href: context.href('board') }, 'Board'), (rail.above ?? []).slice().reverse().map((each) => [' › ', h('a', { href: context.href('task', each.id) }, h('span.mono', null, each.id), ' ', clip(each.title, 40))]), ' › ', h('span.mono', null, task.id)),
      h('div.task-title', null, h('h1', { dir: 'auto' }, task.title), h('div.acts', null, acts.length > 0 && button({ id: 'note', label: 'note', key: 'm', run: () => this.input.focus() }), acts.filter((act) => !act.more && act.kind !== 'force').map(button),
        menu.length > 0 && h('details.menu', { open }, h('summary.button', null, 'more', shape('down', 12)), h('div.menu-list', null, menu.map(button))), acts.filter((act) => act.kind === 'force').map(button))),
      h('div.line.small.ink-2.task-facts', null, stateOf(state, wordOfStatus(state === 'waiting' || state === 'ready' ? state : task.status)),
        task.claimed_by && h('span', null, 'held by ', h('b', null, task.claimed_by), ' for ', age(task.claimed_at)), h('span', null, `P${task.priority}`),
        task.tags.map((tag) => h('a.chip', { href: `${context.href('board')}?tag=${encodeURIComponent(tag)}` }, tag)), h('span.ink-3', null, `${task.type}, version ${task.version}, made ${this.maker}`, age(task.created_at, ' ago'))));
    this.body.hidden = !task.body;
    put(this.body, h('h3', null, 'Body'), h('div.md', { dir: 'auto' }, markdown(task.body)));
    put(this.facts, this.claim(), this.deps(), this.below(), this.locks(), this.stashes(), this.mail(), this.route(), this.packet());
  }

  /** Who made it, as far as the log reaches. */
  get maker() { const [first] = this.events; return first?.op === 'create' ? `by ${first.actor} ` : ''; }

  section(head, hint, ...rows) { return h('div.section', null, h('h3', null, head, hint && h('span.ink-2', null, '  ', hint)), rows); }

  claim() {
    const { task, rail } = this, seen = this.context.store.get('status')?.agents.find((agent) => agent.name === task.claimed_by)?.seen_at;
    if (task.claimed_by) return this.section('Claim', null, h('div.line.claim-left', null, timeLeft(task.claimed_at, task.deadline, { wide: 176 }), task.deadline && h('span.small.ink-3', null, `of ${duration((Date.parse(task.deadline) - Date.parse(task.claimed_at)) / 1000)}`)),
      h('p.small.ink-2', null, `${task.claimed_by}, since ${hourOf(task.claimed_at)}`, task.deadline ? `, ends ${hourOf(task.deadline)}` : ', parked', seen && [', seen ', age(seen, ' ago')]));
    if (task.status !== 'open' || !rail.reasons) return null;
    return this.section(rail.reasons.ready ? 'Ready' : 'Not ready', null, rail.reasons.ready && h('p.small.ink-2', null, task.assigned_to ? `For ${task.assigned_to}.` : 'Nobody has it.'), rail.reasons.reasons.slice(0, 6).map((reason) => h('p.small.ink-2', { title: exact(now()) }, clip(reason.text))));
  }

  near(id) {
    const node = this.rail.graph?.nodes.find((each) => each.id === id);
    return h('div.stuck-row', null, node ? shape(stateOfTask(node), 14, wordOfStatus(node.status)) : h('span.gap'), h('a.mono.ink-2', { href: this.context.href('task', id) }, id), h('span.one', { title: node?.title }, node?.title ?? ''), node?.claimed_by && h('b.push', null, node.claimed_by));
  }

  deps() {
    const { links = [], graph } = this.rail;
    const needs = links.filter((link) => link.id === this.id), holds = links.filter((link) => link.on === this.id);
    const done = needs.filter((link) => graph?.nodes.find((node) => node.id === link.on)?.status === 'closed').length;
    const all = graph?.nodes.find((node) => node.id === this.id)?.unblocks ?? holds.length;
    return [needs.length > 0 && this.section('Waits for', done === needs.length ? `nothing more, ${done} of ${needs.length} closed` : `${needs.length - done} of ${needs.length}`, needs.slice(0, NEAR).map((link) => this.near(link.on))),
      holds.length > 0 && this.section('Holds up', `${holds.length} directly, ${all} in all`, holds.slice(0, NEAR).map((link) => this.near(link.id)))];
  }

  below() {
    const { children = [] } = this.rail;
    if (!children.length) return null;
    const closed = children.filter((child) => child.status === 'closed').length;
    return this.section('Children', `${closed} of ${children.length}`, children.slice(0, NEAR).map((child) => h('div.stuck-row', null, shape(stateOfTask(child), 14, wordOfStatus(child.status)), h('a.mono.ink-2', { href: this.context.href('task', child.id) }, child.id), h('span.one', { title: child.title }, child.title))),
      children.length > NEAR && h('p.small.ink-3', null, `${number(children.length - NEAR)} more`));
  }

  locks() {
    const { locks } = this.rail;
    if (!locks?.length) return null;
    const waits = (id) => (this.context.store.get('status')?.locks.find((lock) => lock.name === id)?.waiters ?? []).map((each) => each.name);
    return this.section('Path locks', null, locks.slice(0, NEAR).map((lock) => h('div.stuck-row', null, shape('lock'), h('span.mono.one', { title: lock.patterns.join(', ') }, lock.patterns.join(', ')), h('span.push.small.ink-3', null, waits(lock.id).length ? `${waits(lock.id).length} ${waits(lock.id).length === 1 ? 'waits' : 'wait'}: ${waits(lock.id).join(', ')}` : 'nobody waits'))));
  }

  stashes() {
    const { stashes } = this.rail;
    if (!stashes?.length) return null;
    return this.section('Stashes of its trail', stashes.length, stashes.slice(0, NEAR).map((each) => h('div.stuck-row', null, h('a.mono.one', { href: this.context.href('state', 'stash', each.id) }, each.name), h('span.push.small.ink-3', null, `${each.stash_type}, v${each.version}`))));
  }

  mail() {
    const { mail } = this.rail;
    if (!mail?.length) return null;
    return this.section('Mail', mail.length, mail.slice(0, NEAR).map((each) => h('div.stuck-row', null, shape('mail'), h('b', null, each.sender), h('a.one', { href: this.context.href('mail', each.id), title: each.subject }, each.subject), h('span.push.small.ink-3', null, age(each.created_at ?? each.sent_at)))));
  }

  route() {
    const { route } = this.rail;
    if (!route) return null;
    return this.section('Route', null, h('p.small.ink-2', null, h('b', null, route.selected_grimoire ?? 'none'), `: ${route.reason}`, route.needs.length > 0 && [', needs ', route.needs.map((need) => h('code', null, need))], route.require_review ? '; review wanted' : '; no review wanted'));
  }

  packet() {
    const show = h('button.quiet.link', { type: 'button', on: { click: async () => {
      const text = JSON.stringify(await this.get(`/tasks/${seg(this.id)}/resume`), (key, value) => (key === 'token' ? undefined : value), 2);
      put(out, h('pre', { tabindex: 0 }, text));
      out.hidden = false;
    } } }, 'Resume packet');
    const out = h('div.md', { hidden: true });
    return h('div.section', null, show, out);
  }

  async addNote(event) {
    event.preventDefault();
    const text = this.input.value.trim();
    if (text && await note(this.context, this.task, text)) this.input.value = '';
  }

  key(event) {
    if (event.key === 'm') { this.input.focus(); return true; }
    const act = this.task && this.context.can('agent') && actsOf(this.context, this.task).find((each) => each.key === event.key);
    if (act) act.run(this.context, this.task);
    return Boolean(act) || listKeys(this.element, '.event', event);
  }
}

export const view = {
  name: 'task', title: 'Task', under: 'board', keys: [['m', 'write a note'], ['e', 'edit'], ['c', 'claim'], ['r', 'release'], ['d', 'done'], ['x', 'block'], ['j k', 'move in the history']],
  open(context) {
    const page = new TaskPage(context, context.rest[0] ?? '');
    return { element: page.element, update: (change) => page.update(change), key: (event) => page.key(event), close: () => page.record.close() };
  },
};
