// Server: the workspaces, health, requests and latency, backups. What only admins may see says so.

import { explain } from '../api.js';
import { h, keyed, put } from '../dom.js';
import { age, exact, number } from '../format.js';
import { stateOf } from '../shapes.js';

const EVERY = 5000; // milliseconds between looks
const KEPT = 60; // looks that the bars show

/** The numbers of a page of metrics: name -> [[labels, value]]. */
export function parse(text) {
  const found = new Map();
  for (const line of text.split('\n')) {
    const parts = /^([a-z_]+)(?:\{(.*)\})? (\S+)$/.exec(line);
    if (!parts) continue;
    const labels = Object.fromEntries([...(parts[2] ?? '').matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)].map((each) => [each[1], each[2]]));
    found.set(parts[1], [...(found.get(parts[1]) ?? []), [labels, Number(parts[3])]]);
  }
  return found;
}

const ONLY_ADMINS = 'Requests, latency and backups are for tokens of the role admin, for all workspaces.';
const sum = (found, name) => (found.get(name) ?? []).reduce((total, [, value]) => total + value, 0);

/** The latency below which a share of the requests between two looks lies, in seconds; null if there were none. */
export function quantile(before, after, share) {
  const counts = new Map();
  for (const [sign, found] of [[1, after], [-1, before]]) for (const [{ le }, value] of found.get('holdfast_request_seconds_bucket') ?? []) counts.set(le, (counts.get(le) ?? 0) + sign * value);
  const bounds = [...counts].map(([le, count]) => [le === '+Inf' ? Infinity : Number(le), count]).sort((a, b) => a[0] - b[0]);
  const total = bounds.at(-1)?.[1] ?? 0;
  return total > 0 ? bounds.find(([, count]) => count >= share * total)[0] : null;
}

class Server {
  constructor(context) {
    this.context = context;
    this.rates = [];
    this.health = h('div.panel.counts');
    this.spaces = h('div.panel.rows');
    this.bars = h('div.rate-bars', { role: 'img' });
    this.note = h('p.hint', { 'aria-live': 'polite' });
    this.more = h('div.panel.rows');
    this.element = h('div.view.server', null, h('div.view-head', null, h('h1', null, 'Server'), h('span.hint', null, location.host)), this.health,
      h('div.panel.section', null, h('h3', null, 'Requests per second, every 5 s'), this.bars, this.note), h('h2', null, 'Backups'), this.backups = h('div.panel.section', null, ONLY_ADMINS), h('h2', null, 'Workspaces'), this.spaces,
      this.raw = h('details.few', { hidden: true }, h('summary', null, 'All figures, by their names in /metrics'), this.more));
    this.timer = setInterval(() => { if (!document.hidden) this.load(); }, EVERY);
    this.load();
    this.list();
  }

  list() {
    const { workspaces } = this.context.store.get('session');
    keyed(this.spaces, workspaces, (name) => name, (name) => h('div.row', null, h('a.link', { href: `/ui/${name || '-'}/fleet` }, h('b', null, name || 'main')), name === this.context.workspace && h('span.chip', null, 'shown now')));
  }

  async load() {
    const { api, signal, session } = this.context;
    const began = performance.now();
    try {
      const { revision, clock_ahead: ahead } = await api.get('/revision', null, { signal });
      const took = performance.now() - began;
      const box = (value, words) => h('div.count-box', null, h('b', null, value), words);
      const small = (words) => h('span.small.ink-2', null, words);
      const facts = [box(`${took.toFixed(0)} ms`, small('round trip')), box(number(revision), small('revision')), ahead ? box(`${ahead} s`, small('clock ahead')) : null];
      if (session.role === 'admin') facts.push(...(await this.metrics(box))); else put(this.note, ONLY_ADMINS);
      put(this.health, box(this.ill === undefined ? 'up' : this.ill ?? 'healthy', this.ill ? stateOf('failed', 'see the log of the server') : stateOf('live', 'answers')), facts, this.version && box(this.version, small('version')));
    } catch (error) { if (error.name !== 'AbortError' && error.code !== 'UNREACHABLE') put(this.note, explain(error)); }
  }

  /** Whether all workspaces answer and the work behind them succeeds; and the newest backup. */
  judge(found) {
    const down = (found.get('holdfast_workspace_up') ?? []).filter(([, value]) => !value).map(([{ workspace }]) => workspace || 'main'), failed = sum(found, 'holdfast_upkeep_failures_total');
    this.ill = down.length ? `${down.join(', ')} cannot be read` : failed ? `${number(failed)} ${failed === 1 ? 'failure' : 'failures'} of upkeep` : null;
    const [newest] = found.get('holdfast_newest_backup_timestamp_seconds') ?? [];
    put(this.backups, newest ? [h('b', null, 'The newest is ', age(new Date(newest[1] * 1000).toISOString(), ' old')), h('p.mono.ink-2.text', null, newest[0].file)] : ['This server makes none while it runs. ', h('code', null, 'holdfast serve --backup-dir FOLDER --backup-every 1h'), ' has it do so; ', h('code', null, 'holdfast backup'), ' makes one now.']);
    this.version = found.get('holdfast_info')?.[0][0].version;
    this.raw.hidden = false;
  }

  async metrics(box) {
    const answer = await fetch('/metrics', { headers: this.context.api.headers(), credentials: 'omit', cache: 'no-store', signal: this.context.signal });
    if (!answer.ok) { put(this.note, ONLY_ADMINS); return []; }
    const now = { found: parse(await answer.text()), at: performance.now() }, { last } = this;
    this.last = now;
    const rate = last ? (sum(now.found, 'holdfast_requests_total') - sum(last.found, 'holdfast_requests_total')) / ((now.at - last.at) / 1000) : null;
    if (rate !== null) this.rates = [...this.rates, rate].slice(-KEPT);
    const most = Math.max(1, ...this.rates);
    const grow = (element, { value }) => { element.style.setProperty('height', `${Math.max(2, (value / most) * 100)}%`); element.title = `${value.toFixed(1)} a second`; return element; };
    keyed(this.bars, this.rates.map((value, at) => ({ at, value })), (each) => each.at, (each) => grow(h('span.rate-bar'), each), grow);
    this.bars.setAttribute('aria-label', `requests per second: ${this.rates.map((each) => each.toFixed(1)).join(', ')}`);
    put(this.note, rate === null ? 'Counting for 5 seconds.' : `${rate.toFixed(1)} a second now`);
    this.judge(now.found);
    keyed(this.more, [...now.found].filter(([name]) => !name.endsWith('_bucket')), ([name]) => name, ([name, values]) => h('div.row', null, h('span.mono.one', null, name), h('span.push.mono', { title: exact(Date.now()) }, number(values.reduce((total, [, value]) => total + value, 0)))));
    const late = last && quantile(last.found, now.found, 0.95);
    return [box(rate === null ? '–' : rate.toFixed(1), h('span.small.ink-2', null, 'requests a second')), box(late ? (late === Infinity ? 'over 1 s' : `≤ ${late * 1000} ms`) : '–', h('span.small.ink-2', null, '95 % within')), box(number(sum(now.found, 'holdfast_watchers')), h('span.small.ink-2', null, sum(now.found, 'holdfast_watchers') === 1 ? 'stream' : 'streams'))];
  }
}

export const view = {
  name: 'server', title: 'Server', icon: 'server', key: 'v',
  open(context) {
    const server = new Server(context);
    return { element: server.element, close: () => clearInterval(server.timer) };
  },
};
