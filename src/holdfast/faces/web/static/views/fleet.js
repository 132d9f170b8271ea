// Fleet: what needs me, is it moving, who works on what, what is stuck.

import { answer, approve, closeTask, forcible, reject, releaseLock, reply } from '../acts.js';
import { bars } from '../chart.js';
import { clip, h, keyed, put, svg, text } from '../dom.js';
import { age, duration, exact, middle, now, number, timeLeft } from '../format.js';
import { few, flash, listKeys, NAME, segments, table, widen } from '../lists.js';
import { shape, stateOf } from '../shapes.js';
import { command } from '../sign_in.js';
import { isPerson, lines, nameOf, SILENT, standing } from '../agents.js';
import { paced } from '../store.js';

const SHOWN = matchMedia('(max-width: 820px)').matches ? 4 : 8; // needs at first
const HOURS = 6, BUCKET = 900;
const COUNTS = ['ready', 'waiting', 'in_progress', 'review', 'blocked'];
const FILTERS = { all: () => true, working: (each) => each.agent.task, trouble: (each) => each.at.trouble, 'no task': (each) => !each.agent.task };
const SHAPE = { blocked: 'blocked', review: 'review', mail: 'mail', escalation: 'mail', lock: 'lock' };

class Fleet {
  constructor(context) {
    this.context = context;
    this.filter = 'all';
    this.all = false;
    this.needs = table('Needs you', [['What', '', 104], ['', 'id-head', 74], ['', ''], ['Why', 'why', 384], ['From', 'from', 64], ['Since', 'right', 72], ['Holds up', 'right', 76], ['', 'acts', 164]]);
    this.agents = table('Agents', [['Agent', '', 72], ['State', '', 112], ['Working on', '', 0], ['For', 'right', 72], ['Claim ends in', '', 164], ['Seen', 'right', 72], ['Unread', 'right', 64]]);
    this.count = h('span.counter');
    this.more = h('button.quiet', { on: { click: () => { this.all = true; this.draw(); } } });
    this.counts = h('div.panel.counts');
    this.moving = h('div.moving');
    this.summary = h('span.line.small');
    this.filters = segments('which agents', [], 'all', (value) => { this.filter = value; this.draw(); });
    this.stuck = h('div.panel.stuck');
    this.calm = h('div.panel.empty', null, shape('closed'), 'Nothing needs you. Blocked tasks, reviews and questions to people come here.');
    this.first = steps();
    this.element = h('div.view.fleet', null,
      h('div.view-head', null, h('h1', null, 'Needs you'), this.count, this.order = h('span.hint', null, 'holding up most first, then oldest'),
        h('span.hint.push.keys', null, h('kbd', null, 'j'), ' ', h('kbd', null, 'k'), ' move ', h('kbd', null, 'a'), ' act')),
      this.needsPanel = h('div.panel', null, this.needs.element, this.more), this.calm,
      h('div.panel.band', null, this.counts, this.moving),
      h('div.fleet-columns', null,
        h('section', { 'aria-label': 'Agents' }, h('div.view-head', null, h('h2', null, 'Agents'), this.summary, h('span.push', null, this.filters.element)), this.agentsPanel = h('div.panel', null, this.agents.element), this.first),
        h('section', { 'aria-label': 'Stuck' }, h('div.view-head', null, h('h2', null, 'Stuck'), h('span.hint', null, 'and lately lost')), this.stuck)));
    this.activity = paced(() => this.ask(), 10_000);
    this.ends = [context.store.on('status', () => this.draw())];
    this.timer = setInterval(() => this.activity.ask(), 60_000);
    this.activity.ask();
    this.draw();
  }

  draw() {
    const status = this.context.store.get('status');
    if (!status) return;
    this.drawNeeds(status);
    put(this.counts, [...COUNTS.map((state) => [state, status.tasks[state]]), ['closed', status.tasks.closed_today]].map(([state, count]) =>
      h('div.count-box', { class: count ? '' : 'none' }, h('b', null, number(count)), stateOf(state, state === 'closed' ? 'closed today' : undefined))));
    this.drawAgents(status);
    this.drawStuck(status);
  }

  drawNeeds(status) {
    const { context } = this;
    const shown = this.all ? status.needs_you : status.needs_you.slice(0, SHOWN);
    text(this.count, status.needs);
    this.count.hidden = this.order.hidden = this.needsPanel.hidden = status.needs === 0;
    this.calm.hidden = status.needs > 0;
    this.more.hidden = shown.length === status.needs;
    put(this.more, `${number(status.needs - shown.length)} more`, shape('right', 12));
    widen(this.needs, 4, shown.map((need) => need.by ?? ''));
    keyed(this.needs.body, shown, (need) => `${need.kind} ${need.id}`, (need) => h('tr', { tabindex: -1, data: { need: need.id } },
      h('td.what', null, stateOf(SHAPE[need.kind], SHAPE[need.kind])),
      h('td.mono.ink-2.id', { title: need.id }, need.kind === 'lock' ? clip(need.id, 12) : SHAPE[need.kind] === 'mail' ? '' : need.id),
      h('td.title', { title: need.title }, h('a', { href: target(context, need) }, clip(need.kind === 'lock' ? `${need.title === need.id ? 'named lock' : need.title} without an end` : need.title))),
      h('td.why.small.ink-2', { title: need.reason ?? '' }, why(need, status)),
      h('td.from.small', { title: need.by }, middle(need.by ?? '', NAME)), h('td.right.small.since', null, age(need.since)),
      h('td.right.holds', { class: need.holds_up ? '' : 'none' }, need.holds_up ? h('b', null, need.holds_up) : h('span.ink-3', null, '–')),
      h('td.acts', null, acts(context, need))));
  }

  drawAgents(status) {
    const waits = lines(status.locks), time = now();
    const every = status.agents.filter((agent) => !isPerson(agent) || agent.task).map((agent) => ({ agent, at: standing(agent, status, time, waits) }));
    const counted = (which) => every.filter(FILTERS[which]).length;
    put(this.summary, every.length ? h('span.ink-3', null, `${counted('working')} of ${every.length} working`) : h('span.ink-3', null, 'nobody yet'),
      counted('trouble') > 0 && h('b.state.c-red.small', null, shape('trouble', 12), `${counted('trouble')} in trouble`));
    this.filters.draw(Object.keys(FILTERS).map((which) => [which, `${which} ${counted(which)}`]), this.filter);
    this.first.hidden = every.length > 0;
    this.agentsPanel.hidden = this.filters.element.hidden = every.length === 0;
    const shown = every.filter(FILTERS[this.filter]);
    widen(this.agents, 0, every.map(({ agent }) => agent.name));
    keyed(this.agents.body, shown, ({ agent }) => agent.name, (each) => {
      const row = h('tr', { tabindex: -1 });
      fillAgent(this.context, row, each);
      return row;
    }, (row, each) => { if (row.print !== print(each)) { fillAgent(this.context, row, each); flash(row); } else if (row.seen !== each.agent.seen_at) put(row.cells[5], seen(each)); row.seen = each.agent.seen_at; });
  }

  drawStuck(status) {
    const waited = status.locks.filter((lock) => lock.waiters.length);
    const refused = new Map();
    for (const each of status.refusals) refused.set(each.code, { code: each.code, count: (refused.get(each.code)?.count ?? 0) + each.count, by: [...(refused.get(each.code)?.by ?? []), each.actor] });
    const sections = [
      status.claims.length && ['Claims, ending and ended', null, few('claims', status.claims, 6, (claim) => h('div.stuck-row', null, shape(claim.expired ? 'expired' : 'trouble'), h('b', { title: claim.holder }, middle(claim.holder, NAME)), h('a.mono.ink-2', { href: this.context.href('task', claim.task), title: claim.title }, claim.task),
        h('span.push.small', { class: claim.expired ? 'ink-3' : 'c-red', title: exact(claim.at) }, claim.expired ? ['ended ', age(claim.at, ' ago')] : h('b', null, 'ends in ', timeLeft(null, claim.at).lastChild.textContent))))],
      waited.length && ['Waiting in line', null, few('waits', waited, 6, (lock) => [h('div.stuck-row', null, shape('lock'), h('span.mono.one', { title: nameOf(lock) }, nameOf(lock)), h('span.push.small', { class: lock.until || lock.task ? 'ink-3' : 'c-red', title: lock.holder }, middle(lock.holder, NAME), lock.until ? `, ${duration((Date.parse(lock.until) - now()) / 1000)} left` : lock.task ? ', with its claim' : ', no end')),
        h('div.stuck-line.small.ink-2', null, few(lock.name, lock.waiters, 6, ({ name, since }, at) => [at > 0 && ' · ', `${at + 1} `, h('b', null, name), ' ', age(since)]))])],
      refused.size && ['Refused in the last hour', 'this machine', [...refused.values()].map((each) => h('div.stuck-row', null, each.code === 'FENCED' ? shape('fenced') : h('span.gap'), each.code.toLowerCase().replaceAll('_', ' '), h('span.push.small.ink-3.one', null, each.by.length === 1 ? each.by[0] : `${each.by.length} agents`), h('b.num', null, each.count)))],
      status.cycles.length && ['Cycles in flight', null, few('cycles', status.cycles, 4, (cycle) => [h('a.mono.stuck-line', { href: this.context.href('state') }, cycle.key), phases(cycle.current_phase)])],
    ].filter(Boolean);
    put(this.stuck, sections.length ? sections.map(([head, hint, rows]) => h('div.section', null, h('h3', null, head, hint && h('span.hint', null, ` ${hint}`)), rows))
      : h('div.section.ink-2.small', null, 'Nothing is. Claims that end soon, lines of waiters and refusals come here.'),
    !status.agents.some((agent) => !isPerson(agent)) && h('div.section', null, h('h3', null, 'Just looking?'), h('p.hint', null, 'A demo plays a fleet of real processes.'), command('holdfast demo')));
  }

  /** Throughput from the log. */
  async ask() {
    const { api, signal } = this.context;
    const since = new Date(now() - HOURS * 3600_000).toISOString();
    try {
      const found = await api.get('/activity', { since, bucket: BUCKET }, { signal });
      const counts = found.total.closed.slice(-HOURS * 4), sum = (from, to) => counts.slice(from, to).reduce((a, b) => a + b, 0);
      put(this.moving, counts.some(Boolean) ? [h('div', null, h('b.small', null, `${sum(-4)} closed in the last hour`), h('div.hint', null, `${sum(-8, -4)} in the hour before`, h('span.wide-only', null, `; per 15 min, ${HOURS} h`))),
        svg('svg.spark', { viewBox: `0 0 ${counts.length * 10} 30`, role: 'img', 'aria-label': `closed per 15 minutes: ${counts.join(', ')}`, preserveAspectRatio: 'none' },
          bars(counts, counts.length * 10, 30).map(({ x, y, width, height, value }, at) => svg('rect', { x, y, width, height, class: at >= counts.length - 4 ? 'recent' : '' }, svg('title', null, `${value} closed`))))]
        : h('span.hint', null, 'Throughput appears with the first closed task.'));
    } catch (error) { if (error.code === 'COMPACTED') put(this.moving, h('span.hint', null, 'The log of the last hours was compacted.')); else if (error.name !== 'AbortError' && error.code !== 'UNREACHABLE') throw error; }
  }
}

function fillAgent(context, row, each) {
  const { agent, at } = each;
  row.print = print(each);
  row.seen = agent.seen_at;
  row.className = at.trouble ? 'trouble' : '';
  put(row, h('td.name', { title: agent.name }, h('b', null, middle(agent.name, NAME))), h('td.state-cell', null, stateOf(at.state)),
    agent.task ? h('td.work', { title: agent.title }, h('span.line', null, h('a.mono.ink-2', { href: context.href('task', agent.task) }, agent.task), h('span.one.work-title', null, clip(agent.title)), at.chip && h('span.chip', null, at.chip)))
      : h('td.work.small', { class: at.state === 'fenced' ? 'c-red' : 'ink-3', title: at.words }, at.words, at.since && [', ', age(at.since, at.state === 'in_line' ? '' : ' ago')], at.chip && h('span.chip', null, at.chip)),
    h('td.right.small.for', null, agent.since ? age(agent.since) : h('span.ink-3', null, '–')),
    h('td.ends', null, agent.task && timeLeft(agent.since, agent.until)), h('td.right.small.seen', null, seen(each)),
    h('td.right.unread', null, agent.unread ? h('b', null, agent.unread) : h('span.ink-3', null, '–')));
}

const print = ({ agent: { seen_at: _, ...agent }, at }) => JSON.stringify([agent, at]);
const seen = ({ agent, at }) => (agent.seen_at ? h('span', { class: at.silent ? 'c-red strong' : '' }, age(agent.seen_at)) : '–');

function why({ kind, id, by, reason }, status) {
  const agent = status.agents.find((each) => each.name === by);
  if (kind === 'lock') {
    const waiters = status.locks.find((lock) => lock.name === id)?.waiters ?? [], silent = agent?.seen_at && now() - Date.parse(agent.seen_at) > SILENT;
    return [`${by} holds it`, silent && [', not seen for ', age(agent.seen_at)], waiters.length > 0 && `; ${waiters.slice(0, 3).map((each) => each.name).join(', ')} ${waiters.length === 1 ? 'waits' : 'wait'} in line`];
  }
  if (SHAPE[kind] === 'mail') return [(reason ?? 'wants an answer').replaceAll('-', ' '), agent?.parked && `; ${by} is parked until you answer`];
  return kind === 'blocked' && reason ? `“${clip(reason)}”` : clip(reason ?? '');
}

function target(context, need) {
  if (need.kind === 'lock') return context.href('locks', need.id);
  return SHAPE[need.kind] === 'mail' ? context.href('mail', need.id) : context.href('task', need.id);
}

/** What can be done about it here: at most two, the likely one left. */
function acts(context, { kind, id, title, reason, by }) {
  const act = (words, run, more = '') => h('button', { type: 'button', class: more, data: { act: '' }, 'aria-label': `${words} ${id}`, on: { click: run } }, words);
  if (!context.may(kind === 'lock' ? 'admin' : 'agent')) return null;
  if (kind === 'blocked') return [act('answer', () => answer(context, id, title, reason), 'act'), act('close', () => closeTask(context, id, title))];
  if (kind === 'review') return [act('approve', () => approve(context, id), 'act'), act('reject', () => reject(context, id, title))];
  if (SHAPE[kind] === 'mail') return act('reply', () => reply(context, id, title), 'act');
  const lock = context.store.get('status').locks.find((each) => each.name === id);
  return lock && forcible(lock) && act('release', () => releaseLock(context, lock, `${by} holds it without an end; whoever waits gets it next.`), 'force');
}

function phases(current) {
  const all = ['plan', 'execute', 'express', 'review'], at = all.indexOf(current);
  return h('div.phases', null, all.map((phase, each) => h('span.chip', { class: each === at ? 'now' : '' }, shape(each < at ? 'closed' : each === at ? 'in_progress' : 'waiting', 10), phase)));
}

/** What to do first, where there is nobody yet. */
function steps() {
  const step = (n, head, hint, words) => h('div.step', null, h('span.step-number', null, n), h('div', null, h('b', null, head), h('p.hint', null, hint), command(words)));
  return h('div.panel.steps', { hidden: true }, h('div.section', null, h('b', null, 'No agent has written here yet'), h('p.ink-2', null, 'Three steps, about two minutes. This page fills by itself as they happen.')),
    step(1, 'Make a first task', ['Or press ', h('kbd', null, 'n'), '.'], "holdfast create 'write the parser' --tag backend --priority 1"),
    step(2, 'Give your client the tools', 'Or codex, cursor, gemini. Run it in the project that the agents work on.', 'holdfast setup claude'),
    step(3, 'Let an agent take it', 'The agent shows up here with its task and the time to the end of its claim.', 'holdfast next --actor ada'));
}

export const view = {
  name: 'fleet', title: 'Fleet', icon: 'fleet', key: 'f', keys: [['j k', 'move'], ['Enter', 'open'], ['a', 'act']],
  count: (status) => status?.needs,
  open(context) {
    const fleet = new Fleet(context);
    return {
      element: fleet.element,
      update: ({ events }) => { if (events.some((event) => event.kind === 'task')) fleet.activity.ask(); },
      key: (event) => listKeys(fleet.element, 'tbody tr', event),
      close: () => { fleet.activity.close(); clearInterval(fleet.timer); for (const end of fleet.ends) end(); },
    };
  },
};
