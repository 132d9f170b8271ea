// Timeline: a lane per agent; claims as bars coloured by how they ended, locks as thin bars, mail as ticks; live at the right.

import { explain, seg } from '../api.js';
import { marks, scale, spans, ticks } from '../chart.js';
import { clip, h, keyed, put, svg, text } from '../dom.js';
import { duration, exact, hourOf, middle, now, secondOf } from '../format.js';
import { listKeys, NAME, segments } from '../lists.js';
import { glyph, shape, wordOf } from '../shapes.js';
import { isPerson, lines, nameOf, standing } from '../agents.js';
import { paced } from '../store.js';

const SPANS = [['60', '1 min'], ['900', '15 min'], ['3600', '1 h'], ['10800', '3 h'], ['86400', '1 d'], ['604800', '1 w']];
const LEAST = 3; // pixels: what is narrower is drawn with its neighbours
const ROOM = 0.05; // behind the line of now
const SHAPES = { closed: 'closed', review: 'review', blocked: 'blocked', released: 'released', expired: 'expired' };
const WORDS = { closed: 'closed', review: 'sent to review', blocked: 'blocked', released: 'released', expired: 'expired' };
const LEGEND = [['held', 'held now'], ['closed', 'closed'], ['review', 'to review'], ['blocked', 'blocked'], ['released', 'released'], ['expired', 'expired']];

class Timeline {
  constructor(context) {
    this.context = context;
    const { query } = context;
    this.span = SPANS.some(([seconds]) => seconds === query.get('span')) ? query.get('span') : '10800';
    this.until = Number(query.get('until')) || null; // null: follows now
    this.words = h('span.hint');
    this.choice = segments('how long', SPANS, this.span, (span) => { this.span = span; this.remember(); this.loading.ask(); });
    this.follow = h('button.act', { on: { click: () => { this.until = null; this.remember(); this.loading.ask(); } } });
    const step = (words, name, by) => h('button', { 'aria-label': name, on: { click: () => this.shift(by) } }, words);
    this.axis = svg('svg.axis', { 'aria-hidden': 'true' });
    this.lanes = h('div.lanes');
    this.hover = h('div.hover-card', { hidden: true, role: 'tooltip' });
    this.panel = h('div.panel.timeline-panel', null, h('div.lane.axis-row', null, h('span.lane-name.small.strong', null, 'Agent'), this.axis), this.lanes,
      h('div.legend', null, LEGEND.map(([how, words]) => h('span.state', null, h('span.sample', { class: `how-${how}` }), words)), h('span.state', null, shape('fenced', 12), 'fenced write'), h('span.state', null, h('span.sample-lock'), 'lock'), h('span.state', null, h('span.sample-line'), 'in line'), h('span.state', null, h('span.sample-mail'), 'mail')));
    this.element = h('div.view.timeline', null,
      h('div.view-head', null, h('h1', null, 'Timeline'), this.words, h('span.line.push', null, step('◂', 'earlier', -0.5), step('▸', 'later', 0.5), this.choice.element, this.follow)),
      this.panel, this.hover);
    this.loading = paced(() => this.load(), 500);
    this.ends = [context.store.on('status', () => this.draw())];
    this.timer = setInterval(() => { if (!this.until) this.draw(); }, 1000);
    this.loads = 0;
    this.resize = new ResizeObserver(() => this.draw());
    this.resize.observe(this.panel);
    this.loading.ask();
  }

  remember() { this.context.setQuery({ span: this.span === '10800' ? '' : this.span, until: this.until ? String(this.until) : '' }); }

  shift(by) {
    const until = (this.until ?? now()) + by * Number(this.span) * 1000;
    this.until = until >= now() ? null : Math.round(until);
    this.remember();
    this.loading.ask();
  }

  /** [from, until of the picture, until of what is known], in ms. It follows now from pixel to pixel. */
  get range() {
    const long = Number(this.span) * 1000, pixel = long / (this.axis.clientWidth || 1000), end = this.until ?? Math.ceil(now() / pixel) * pixel;
    return [end - long, this.until ? end : end + (long * ROOM) / (1 - ROOM), end];
  }

  async load() {
    const [from, , end] = this.range;
    try {
      const since = new Date(from).toISOString();
      this.data = await this.context.api.get('/timeline', { since, until: this.until ? new Date(end).toISOString() : null, resolution: (Number(this.span) * LEAST) / (this.axis.clientWidth || 1000) }, { signal: this.context.signal });
      this.failure = null;
      this.loads += 1;
      const ms = (each) => ({ id: each.id, how: each.how, before: each.since_before, count: each.count, start: Date.parse(each.start), end: each.end && Date.parse(each.end) });
      this.known = new Map(Object.entries(this.data.lanes).map(([name, lane]) => [name, { claims: lane.claims.map(ms), locks: lane.locks.map(ms), mail: lane.mail.map((time) => Date.parse(time)) }]));
    } catch (error) {
      if (error.name === 'AbortError' || error.code === 'UNREACHABLE') return;
      this.failure = explain(error);
    }
    this.draw();
  }

  draw() {
    const status = this.context.store.get('status'), [from, until, end] = this.range;
    const wide = this.axis.clientWidth;
    if (!status || !this.known || !wide) { if (this.failure) put(this.lanes, h('div.empty', null, this.failure)); return; }
    const day = new Date(from).toDateString() === new Date(end).toDateString();
    text(this.words, `${day ? '' : `${exact(from).slice(0, 6)} `}${hourOf(from)} to ${hourOf(end)}${day && new Date().toDateString() === new Date(end).toDateString() ? ', today' : ''}`);
    this.choice.draw(SPANS, this.span);
    put(this.follow, !this.until && shape('live', 10), this.until ? 'follow now' : 'following now');
    const x = scale(from, until, wide), now_ = x(end);
    const grid = ticks(from, until, Math.max(2, Math.floor(wide / 140)));
    const label = Number(this.span) <= 900 ? secondOf : Number(this.span) > 86_400 ? (time) => exact(time).slice(0, 6) : hourOf;
    put(this.axis, svg('pattern', { id: 'hatch', width: 6, height: 6, patternUnits: 'userSpaceOnUse', patternTransform: 'rotate(45)' }, svg('path.hatch', { d: 'M0 0V6' })), grid.filter((time) => Math.abs(x(time) - now_) > 60).map((time) => svg('text.tick', { x: x(time), y: 22 }, label(time))),
      !this.until && [svg('rect.now-flag', { x: now_ - 44, y: 8, width: 44, height: 20, rx: 4 }), svg('text.now-words', { x: now_ - 22, y: 22 }, hourOf(end))]);
    const names = [...new Set([...status.agents.filter((agent) => !isPerson(agent)).map((agent) => agent.name), ...this.known.keys()])].sort().filter((name) => this.known.has(name) || status.agents.some((agent) => agent.name === name && agent.seen_at));
    const waits = lines(status.locks);
    keyed(this.lanes, names, (name) => name, (name) => h('div.lane', { tabindex: -1, data: { agent: name } }, h('div.lane-name', null, h('b.one', { title: name }, middle(name, NAME)), h('span.small.one')), svg('svg.lane-picture', { role: 'group' })),
      () => {});
    for (const element of this.lanes.children) this.lane(element, element.dataset.agent, { status, waits, from, until, end, wide, grid, x, now_ });
  }

  lane(element, name, { status, waits, from, until, end, wide, grid, x, now_ }) {
    const lane = this.known.get(name) ?? { claims: [], locks: [], mail: [] };
    const agent = status.agents.find((each) => each.name === name), at = agent && standing(agent, status, now(), waits);
    const [names, picture] = element.children, words = names.lastChild;
    words.className = `small one ${at?.trouble ? 'c-red strong' : 'ink-3'}`;
    text(words, at ? (at.trouble && agent.task ? `ends in ${duration((Date.parse(agent.until) - now()) / 1000)}` : at.state === 'not_seen' && agent.seen_at ? `not seen ${duration((now() - Date.parse(agent.seen_at)) / 1000)}` : `${wordOf(at.state)}${at.since ? ` ${duration((now() - Date.parse(at.since)) / 1000)}${at.state === 'fenced' ? ' ago' : ''}` : ''}`) : '');
    const waited = waits.get(name), fenced = status.refusals.find((each) => each.actor === name && each.code === 'FENCED');
    const endless = status.locks.find((lock) => lock.holder === name && lock.until === null && !lock.task);
    const print = [this.loads, from, until, wide, waited?.place, fenced?.last, endless?.name, agent?.task, agent?.parked].join(' ');
    if (element.print === print) return; // nothing moved by a pixel
    element.print = print;
    const claims = spans(lane.claims, from, end, now_, LEAST), locks = spans(lane.locks, from, end, now_, LEAST);
    const barOf = (lock) => locks.find((bar) => bar.items.some((each) => each.id === lock.name));
    const words_ = endless && `${nameOf(endless)}, no end`, long = 7 * (words_?.length ?? 0);
    let left = endless && Math.min(Math.max(6, barOf(endless)?.x ?? 6), Math.max(6, now_ - long));
    for (const each of claims) if (endless && each.x < left + long && each.x + each.width > left) left = each.x + each.width + 6;
    picture.setAttribute('aria-label', `${name}: ${lane.claims.length} claims, ${lane.locks.length} locks, ${lane.mail.length} messages`);
    put(picture, grid.map((time) => svg('line.grid', { x1: x(time), x2: x(time), y1: 0, y2: 57 })),
      marks(lane.mail, from, until, wide).map((left) => svg('line.mail-tick', { x1: left, x2: left, y1: 5, y2: 12 })),
      claims.map((bar) => this.bar(bar, name, agent)),
      locks.map((bar) => svg('rect.lock-bar', { x: bar.x, y: 44, width: bar.width, height: 4, rx: 2, class: endless && bar.items.some((each) => each.id === endless.name) ? 'endless-lock' : '', on: { pointerenter: (event) => this.show(event, bar, name, 'lock'), pointerleave: () => this.hide() } })),
      endless && left + long <= now_ && svg('text.lane-red', { x: left, y: 38 }, clip(words_, 60)),
      waited && svg('line.wait-line', { x1: Math.max(0, now_ - 40), x2: now_, y1: 46, y2: 46 }),
      fenced && Date.parse(fenced.last) > from && svg('g', { transform: `translate(${Math.max(0, x(Date.parse(fenced.last)) - 7)} 21)` }, shape('fenced', 14, 'fenced write')),
      !this.until && svg('line.now-line', { x1: now_, x2: now_, y1: 0, y2: 57 }));
  }

  bar(bar, name, agent) {
    const [first] = bar.items, held = bar.open && !bar.how, parked = held && agent?.parked && agent.task === first.id;
    const how = held ? 'held' : bar.how, wide = bar.width;
    const show = (event) => this.show(event, bar, name, 'task');
    const many = bar.count > 1, log = new URLSearchParams({ kind: 'task', actor: name });
    return svg('a.claim-bar', { role: 'link', href: many ? `${this.context.href('log')}?${log}` : this.context.href('task', first.id), class: `how-${how}`, data: { task: first.id }, 'aria-label': many ? `${bar.count} claims of ${name}` : `${first.id} ${held ? 'held' : WORDS[how] ?? ''}`, on: { pointerenter: show, pointerleave: () => this.hide(), focus: show, blur: () => this.hide() } },
      svg('rect', { x: bar.x, y: 16, width: wide, height: 24, rx: held ? 4 : 6 }), parked && svg('rect.parked-hatch', { x: bar.x + wide / 3, y: 17, width: (wide * 2) / 3, height: 22 }),
      wide >= 24 && glyph(parked ? 'parked' : held ? 'in_progress' : SHAPES[how] ?? 'closed', bar.x + 8, 22, 12),
      wide >= 82 && svg('text.bar-id', { x: bar.x + 26, y: 32 }, many ? `${bar.count} claims` : first.id));
  }

  /** Exact times live in the hover card. */
  async show(event, bar, name, kind) {
    const each = bar.items[0], box = this.element.getBoundingClientRect(), at = event.currentTarget.getBoundingClientRect();
    const times = bar.count > 1 ? `${bar.count} from ${secondOf(each.start)} to ${secondOf(bar.items.at(-1).end ?? now())}` : `${name} ${kind === 'task' ? 'claimed' : 'locked'} it ${each.before ? 'before' : 'at'} ${secondOf(each.start)}${each.end ? `, ${kind === 'task' ? WORDS[each.how] ?? 'ended' : 'released'} ${secondOf(each.end)}` : ', still has it'}`;
    const lock = kind === 'lock' && (this.context.store.get('status')?.locks ?? []).find((found) => found.name === each.id);
    const title = h('b');
    put(this.hover, h('div.line', null, h('span.mono', null, lock ? nameOf(lock) : clip(each.id, 40)), title), h('p.small.ink-2', null, times), each.end && h('p.small.ink-3', null, `for ${duration((each.end - each.start) / 1000)}`)).hidden = false;
    this.hover.style.setProperty('left', `${Math.max(0, Math.min(at.left - box.left, box.width - 330))}px`);
    this.hover.style.setProperty('top', `${at.bottom - box.top + 8}px`);
    if (kind !== 'task' || bar.count > 1) return;
    this.titles ??= new Map();
    if (!this.titles.has(each.id)) this.titles.set(each.id, this.context.api.get(`/tasks/${seg(each.id)}`, {}, { signal: this.context.signal }).then((task) => task.title, () => ''));
    put(title, clip(await this.titles.get(each.id), 60));
  }

  hide() { this.hover.hidden = true; }
}

export const view = {
  name: 'timeline', title: 'Timeline', icon: 'timeline', key: 't', keys: [['j k', 'from lane to lane'], ['1 - 6', 'from a minute to a week'], ['[ ]', 'earlier, later'], ['.', 'follow now']],
  open(context) {
    const timeline = new Timeline(context);
    const key = (event) => {
      const found = SPANS[Number(event.key) - 1];
      if (found) { [timeline.span] = found; timeline.remember(); timeline.loading.ask(); } else if (event.key === '[') timeline.shift(-0.5); else if (event.key === ']') timeline.shift(0.5);
      else if (event.key === '.') timeline.follow.click(); else return listKeys(timeline.element, '.lanes .lane', event);
      return true;
    };
    return { element: timeline.element, key, update: ({ events, reload }) => { if (!timeline.until && (reload || events.some((event) => ['task', 'path', 'lock', 'message'].includes(event.kind)))) timeline.loading.ask(); },
      close: () => { timeline.loading.close(); clearInterval(timeline.timer); timeline.resize.disconnect(); for (const end of timeline.ends) end(); } };
  },
};
