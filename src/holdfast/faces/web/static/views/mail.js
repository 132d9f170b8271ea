// Mail: threads, the thread that is open, and how it stands. A person writes, replies and acknowledges; reading does neither.

import { explain, seg } from '../api.js';
import { agentNames } from '../acts.js';
import { ask } from '../dialog.js';
import { clip, h, keyed, put, text } from '../dom.js';
import { age, exact, hourOf } from '../format.js';
import { few, listKeys, segments } from '../lists.js';
import { inline, markdown, plain } from '../markdown.js';
import { shape, wordOf } from '../shapes.js';
import { paced } from '../store.js';
import { stateOfTask } from '../sentences.js';

const BOXES = [['to', 'to me'], ['all', 'all'], ['sent', 'sent'], ['closed', 'closed']];
const TYPES = ['notify', 'request', 'decision-required', 'objection', 'handoff-ready'];
const STATUS = { unread: 'mail', acknowledged: 'closed', actioned: 'closed', blocked: 'blocked', closed: 'closed' };
const PAGE = 50;
const PEOPLE = 12; // recipients shown at first
/** Who was written to: you first, then those who have done something with it, then by name. */
const standingOf = (status, me) => Object.entries(status).sort(([a, x], [b, y]) => (b === me) - (a === me) || (x === 'unread') - (y === 'unread') || (a < b ? -1 : 1));
const everybody = (name) => (name === '*' ? 'everybody' : name);
const words = (type) => type.replaceAll('-', ' ');

class Mail {
  constructor(context) {
    this.context = context;
    this.me = context.session.name;
    this.box = context.query.get('box') ?? 'all';
    this.search = '';
    this.threads = [];
    this.cursor = null;
    this.open = context.rest[0] ?? null;
    this.drafts = new Map();
    this.wants = h('span.hint');
    this.boxes = segments('which threads', BOXES.filter(([box]) => this.me || !['to', 'sent'].includes(box)), this.box, (box) => { this.box = box; context.setQuery({ box: box === 'all' ? '' : box }, { step: true }); this.loading.ask(); });
    let timer = 0;
    const find = h('input', { type: 'search', 'aria-label': 'Subject or body', placeholder: 'Subject or body', on: { input: () => { clearTimeout(timer); timer = setTimeout(() => { this.search = find.value.trim(); this.loading.ask(); }, 200); } } });
    const write = h('button.primary', { data: { act: '' }, on: { click: () => this.write() } }, 'Write');
    this.list = h('div.threads', { role: 'list', 'aria-label': 'threads' });
    this.more = h('button.quiet', { hidden: true, on: { click: () => this.load(true) } }, 'more');
    this.thread = h('section.thread', { 'aria-label': 'thread' });
    this.rail = h('aside.mail-rail', { 'aria-label': 'how it stands' });
    this.element = h('div.view.mail', null,
      h('div.view-head', null, h('h1', null, 'Mail'), this.wants, h('span.line.push', null, this.boxes.element, find, context.may('agent') && write)),
      h('div.panel.mail-columns', null, h('div.thread-list', null, this.list, this.more), this.thread, this.rail));
    this.loading = paced(() => this.load());
    this.loading.ask();
  }

  async load(more = false) {
    const { api, signal } = this.context;
    try {
      if (this.search && /[\p{L}\p{N}]/u.test(this.search)) {
        const hits = await api.get('/mail/search', { text: `${this.search.replace(/["*]/g, ' ')}*`, limit: PAGE }, { signal });
        const seen = new Map();
        for (const { message } of hits) if (!seen.has(message.thread)) seen.set(message.thread, { thread: message.thread, first: message, messages: null, last_at: message.sent_at, unread: 0, wants: false });
        this.threads = [...seen.values()];
        this.cursor = null;
      } else {
        const page = await api.page('/mail/threads', { box: this.box, limit: more ? PAGE : Math.min(200, Math.max(PAGE, this.threads.length)), cursor: more ? this.cursor : null }, { signal });
        this.threads = more ? [...this.threads, ...page.data] : page.data;
        this.cursor = page.cursor;
      }
      if (!this.open && this.threads.length && !matchMedia('(max-width: 820px)').matches) this.open = [...this.threads].sort((a, b) => b.wants - a.wants || a.first.priority - b.first.priority)[0].thread;
      this.draw();
      await this.read();
    } catch (error) { if (error.name !== 'AbortError' && error.code !== 'UNREACHABLE') this.fail(explain(error)); }
  }

  fail(words) { put(this.rail); put(this.thread, h('div.note-red', { role: 'alert' }, shape('trouble'), h('div', null, words, ' ', h('a.link', { href: this.context.href('mail') }, 'All threads')))); }

  draw() {
    const wanting = this.threads.filter((each) => each.wants).length;
    text(this.wants, wanting ? `${wanting} ${wanting === 1 ? 'wants' : 'want'} an answer from you` : 'nobody waits for you');
    this.boxes.draw(BOXES.filter(([box]) => this.me || !['to', 'sent'].includes(box)), this.box);
    this.more.hidden = !this.cursor;
    keyed(this.list, this.threads.map((each) => ({ ...each, open: each.thread === this.open || each.first.id === this.open })), (each) => each.thread, (each) => {
      const { first } = each, to = first.to.filter((name) => name !== this.me).map(everybody);
      return h('a.thread-row', { role: 'listitem', href: this.context.href('mail', each.thread), 'aria-current': each.open ? 'true' : null, class: `${each.open ? 'selected' : ''}${each.unread ? ' unread' : ''}`, data: { thread: each.thread } },
        h('div.line', null, h('span.dot', each.wants ? { role: 'img', 'aria-label': 'wants an answer', class: 'on' } : null), h('b.one', null, clip(`${first.sender}${to.length ? ` → ${to.slice(0, 3).join(', ')}${to.length > 3 ? ' …' : ''}` : ''}`, 80)), h('span.ink-3.small', null, each.messages ?? ''), h('span.push.small.ink-3', null, age(each.last_at))),
        h('div.subject.one', null, clip(first.subject)), h('div.one.small.ink-3', null, h('span', { class: first.type === 'objection' ? 'c-amber' : each.wants ? 'c-accent strong' : 'ink-2' }, words(first.type)), ' ', clip(plain(first.body), 120)));
    });
    if (!this.threads.length) put(this.thread, h('div.empty', null, 'No mail here. Agents write with ', h('code', null, "holdfast mail send NAME 'subject'"), '; you write with the button above.'));
  }

  /** Show the thread that is open. */
  async read() {
    if (!this.open) return;
    const { api, signal } = this.context;
    this.messages = await api.get(`/mail/${seg(this.open)}/thread`, {}, { signal });
    const [first] = this.messages, asked = [...this.messages].reverse().find((each) => each.status[this.me] === 'unread') ?? [...this.messages].reverse().find((each) => each.sender !== this.me) ?? first;
    const steps = (await Promise.all(this.messages.slice(-20).map((each) => api.get(`/mail/${seg(each.id)}/history`, { limit: 50 }, { signal })))).flat().sort((a, b) => a.revision - b.revision);
    const task = first.task ? await api.get(`/tasks/${seg(first.task)}`, { include_deleted: true }, { signal }).catch(() => null) : null;
    const hangs = task ? (await api.get('/tasks/graph', { root: task.id }, { signal }).catch(() => ({ nodes: [] }))).nodes.filter((node) => node.depth > 0 || node.id === task.id).slice(0, 6).map((node) => (node.id === task.id ? { ...node, deadline: task.deadline } : node)) : [];
    const print = JSON.stringify([this.messages, steps.length, task?.version]);
    if (print === this.print) return;
    this.print = print;
    this.drawThread(first, task, steps);
    this.drawRail(asked, steps, hangs);
    this.form(asked);
  }

  drawThread(first, task, steps) {
    const { context } = this, parts = [];
    for (const message of this.messages) {
      parts.push(h('article.letter', { data: { message: message.id } }, h('div.line', null, h('span.initial', { 'aria-hidden': 'true' }, message.sender.charAt(0).toUpperCase()), h('b', null, message.sender), h('span.small.ink-3.one', null, `to ${clip(message.to.map(everybody).join(', '), 80)}`), h('span.chip', null, message.answers ? 'reply' : words(message.type)), h('span.push.small.ink-3', { title: exact(message.sent_at) }, age(message.sent_at, ' ago'), `, ${hourOf(message.sent_at)}`)),
        h('div.md.text', null, message.body ? markdown(message.body) : h('span.ink-3', null, 'no text'))));
      for (const step of steps.filter((each) => each.message === message.id && each.op !== 'send')) parts.push(h('div.letter-step', null, shape(STATUS[step.status] ?? 'closed', 12), h('b', null, step.agent), `${step.op === 'ack' ? 'acknowledged' : step.op} it`, step.note && h('span.text', null, '“', inline(clip(step.note, 300)), '”'), h('span.push', null, age(step.at, ' ago'), `, ${hourOf(step.at)}`)));
    }
    const kept = this.thread.querySelector('textarea');
    if (kept) this.drafts.set(this.drawn, kept.value);
    this.drawn = this.open;
    put(this.thread, h('header.thread-head', null, h('a.back', { href: context.href('mail') }, '‹ threads'), h('h2.text', null, first.subject), h('div.line.small', null, h('span', { class: first.type === 'objection' ? 'c-amber' : first.type === 'notify' ? 'ink-3' : 'c-accent strong' }, words(first.type)), h('span.ink-2', null, `P${first.priority}${task ? ', about' : ''}`), task && [shape(stateOfTask(task), 12), h('a.mono', { href: context.href('task', task.id) }, task.id), h('span.one', null, clip(task.title))])), h('div.letters', null, parts), this.foot = h('div'));
    this.element.classList.toggle('reading', true);
  }

  drawRail(asked, steps, hangs) {
    const { context } = this, part = (head, rows) => rows.length > 0 && h('div.section', null, h('h3', null, head), rows);
    put(this.rail,
      part('Who has done what', few('mail', standingOf(asked.status, this.me), PEOPLE, ([name, status]) => h('div.rail-row', null, shape(STATUS[status] ?? 'mail', 12), h('b.one', { title: name }, name), h('span', { class: name === this.me && status === 'unread' ? 'c-accent strong' : 'ink-3' }, status), name === this.me && h('span.push.small.ink-3', null, 'you')))),
      part('What hangs on it', hangs.map((node) => h('div.rail-row', null, shape(stateOfTask(node), 12, wordOf(stateOfTask(node))), h('a.mono.ink-2', { href: context.href('task', node.id) }, node.id), node.claimed_by ? h('b', null, node.claimed_by) : h('span.one', null, clip(node.title, 40))))),
      part(steps.length > 10 ? 'Steps, the last 10' : 'Steps', steps.slice(-10).map((step) => h('p.small.ink-2', { title: exact(step.at) }, `${hourOf(step.at)} ${step.agent} ${step.op === 'ack' ? 'acknowledged' : step.op === 'send' ? 'sent' : step.op}`))));
  }

  form(asked) {
    const { context } = this;
    if (!context.may('agent')) return;
    const box = h('textarea', { 'aria-label': 'Your reply', rows: 3, placeholder: 'Your reply', value: this.drafts.get(this.open) ?? '' });
    const failure = h('p.note-red', { role: 'alert', hidden: true });
    const mine = asked.status[this.me] === 'unread';
    const act = async (reply, acknowledge) => {
      try {
        if (reply && !box.value.trim()) { box.focus(); return; }
        if (reply) await context.api.post(`/mail/${seg(asked.id)}/reply`, { body: box.value.trim() });
        if (acknowledge && mine) await context.api.post(`/mail/${seg(asked.id)}/ack`);
        box.value = '';
        this.drafts.delete(this.open);
        failure.hidden = true;
      } catch (error) { put(failure, shape('trouble', 12), explain(error)).hidden = false; }
    };
    box.addEventListener('keydown', (event) => { if (event.key === 'Enter' && event.ctrlKey) { event.preventDefault(); act(true, true); } });
    const button = (label, kind, ...given) => h('button', { type: 'button', class: `large ${kind}`, data: { act: '' }, on: { click: () => act(...given) } }, label);
    put(this.foot, h('div.reply', null, box, failure, h('div.line', null, mine ? [button('Reply and acknowledge', 'primary', true, true), button('Reply', '', true, false), button('Acknowledge only', '', false, true)] : button('Reply', 'primary', true, false),
      h('span.push.hint', null, `as ${this.me}, to ${clip(asked.sender === this.me ? asked.to.join(', ') : asked.sender, 40)} `, h('kbd', null, 'Ctrl Enter')))));
  }

  async write() {
    const names = (await agentNames(this.context)).filter((name) => name !== this.me);
    return ask({ title: 'New message', verb: 'Send', as: `${this.me}, ${this.context.session.role}`,
      fields: [{ name: 'to', label: 'To', options: [['', 'choose'], ['*', 'everybody'], ...names], required: true }, { name: 'subject', label: 'Subject', required: true }, { name: 'body', label: 'Text, Markdown', area: true }, { name: 'type', label: 'Type', options: TYPES, value: 'notify' }],
      act: async ({ to, ...rest }) => { const sent = await this.context.api.post('/mail', { to: [to], ...rest, ack: rest.type !== 'notify' }); this.context.go('mail', sent.thread); } });
  }
}

export const view = {
  name: 'mail', title: 'Mail', icon: 'mail', key: 'm', keys: [['j k', 'from thread to thread'], ['Enter', 'open'], ['w', 'write'], ['Ctrl Enter', 'send the reply']],
  count: (status, store) => { const { actor, name } = store.get('session') ?? {}; return status?.agents.find((agent) => agent.name === (actor ?? name))?.unacknowledged; },
  open(context) {
    const mail = new Mail(context);
    const key = (event) => { if (event.key === 'w' && context.can('agent')) { mail.write(); return true; } if (event.key === 'Enter' && document.activeElement?.matches('.thread-row')) { document.activeElement.click(); return true; } return listKeys(mail.element, '.thread-row', event); };
    return { element: mail.element, key, update: ({ events, reload }) => { if (reload || events.some((event) => event.kind === 'message')) mail.loading.ask(); }, close: () => mail.loading.close() };
  },
};
