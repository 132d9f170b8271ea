// State: cycles as strips of phases; runs with cells, trails with stashes; a value, its versions and the diff of two.

import { explain, seg } from '../api.js';
import { clip, h, keyed, put, text } from '../dom.js';
import { diff } from '../diff.js';
import { age, duration, exact, hourOf, now, number, secondOf } from '../format.js';
import { listKeys, segments, table } from '../lists.js';
import { shape, stateOf } from '../shapes.js';
import { paced } from '../store.js';

const PHASES = ['plan', 'execute', 'express', 'review'];
const STATES = { completed: 'closed', in_progress: 'in_progress', failed: 'failed', pending: 'waiting' };
const VERSIONS = 50;
const SHOWN = 6; // versions on the strip
const FLAT = 72; // characters of a value inside another that stays on one line
const FEW = 10; // cells of a run at first
const VIEWS = [['value', 'value'], ['diff', 'diff'], ['history', 'history']];
const HEADS = [['Version', '', 84], ['By', '', 90], ['Operation', '', 144], ['Changed', ''], ['When', 'right', 90], ['Revision', 'right', 90]];

/** A value as one line. */
function flat(value) {
  if (value === null || typeof value !== 'object') return JSON.stringify(value);
  return Array.isArray(value) ? `[${value.map(flat).join(', ')}]` : `{${Object.entries(value).map(([key, each]) => `${JSON.stringify(key)}: ${flat(each)}`).join(', ')}}`;
}

/** A value as lines that a diff can compare; what is small stays on one. */
export function pretty(value, indent = '') {
  if (value === undefined) return '';
  const line = flat(value), list = Array.isArray(value), entries = value && typeof value === 'object' ? Object.entries(value) : [];
  if (!entries.length || (indent && line.length <= FLAT)) return line;
  const inner = `${indent}  `, parts = entries.map(([key, each]) => `${inner}${list ? '' : `${JSON.stringify(key)}: `}${pretty(each, inner)}`);
  return `${list ? '[' : '{'}\n${parts.join(',\n')}\n${indent}${list ? ']' : '}'}`;
}

/** The places where two values differ, as paths: steps[1].ok. At most eight. */
export function changed(before, after, path = '', found = []) {
  if (found.length >= 8 || JSON.stringify(before) === JSON.stringify(after)) return found;
  const both = [before, after].every((each) => each !== null && typeof each === 'object') && Array.isArray(before) === Array.isArray(after);
  if (!both) { found.push(path || 'all of it'); return found; }
  for (const key of new Set([...Object.keys(before), ...Object.keys(after)])) changed(before[key], after[key], Array.isArray(after) ? `${path}[${key}]` : path ? `${path}.${key}` : key, found);
  return found;
}

class State {
  constructor(context) {
    this.context = context;
    this.open = new Set();
    this.all = new Set(); // runs of which every cell is listed
    this.cells = new Map(); // run -> {names, more}
    const [kind, ...rest] = context.rest;
    this.chosen = kind ? { kind, rest } : null;
    this.infos = new Map(); // [run, cell] as JSON -> its version and age
    this.show = VIEWS.some(([show]) => show === context.query.get('show')) ? context.query.get('show') : 'value';
    this.search = '';
    this.summary = h('span.hint');
    const find = h('input', { type: 'search', 'aria-label': 'Run, cell, stash, cycle', placeholder: 'Run, cell, stash, cycle', on: { input: () => { this.search = find.value.trim().toLowerCase(); this.drawList(); } } });
    this.strip = h('div.panel.cycle-panel');
    this.list = h('nav.panel.state-list', { 'aria-label': 'runs and stashes' });
    this.detail = h('section.panel.state-detail', { 'aria-label': 'value' });
    this.element = h('div.view.state-view', null, h('div.view-head', null, h('h1', null, 'State'), this.summary, h('span.push', null, find)), this.strip, h('div.state-columns', null, this.list, this.detail));
    this.loading = paced(() => this.load(), 500);
    this.loading.ask();
  }

  async load() {
    const { api, signal } = this.context;
    try {
      const [runs, stashes, trails, cycles] = await Promise.all([api.page('/cells', { limit: 200 }, { signal }), api.get('/stashes', { limit: 500 }, { signal }), api.get('/trails', { limit: 200 }, { signal }), api.get('/cycles', { limit: 100 }, { signal })]);
      Object.assign(this, { runs: runs.data, moreRuns: Boolean(runs.cursor), stashes, trails, cycles });
      if (!this.chosen && runs.data.length) { const run = runs.data.at(-1); this.open.add(run); await this.names(run); const cell = this.cells.get(run).names[0]; if (cell !== undefined) this.chosen = { kind: 'cell', rest: [run, cell] }; }
      if (this.chosen?.kind === 'cell') this.open.add(this.chosen.rest[0]);
      await Promise.all([...this.open].filter((name) => this.runs.includes(name)).map((run) => this.names(run)));
      for (const trail of trails) if (trail.state === 'active' && !this.touched) this.open.add(trail.id);
      this.drawList();
      await Promise.all([this.drawCycles(), this.read(), this.learn()]);
    } catch (error) { if (error.name !== 'AbortError' && error.code !== 'UNREACHABLE') put(this.detail, h('div.note-red', { role: 'alert' }, shape('trouble'), h('div', null, explain(error), ' ', h('a.link', { href: this.context.href('state') }, 'All runs')))); }
  }

  async names(run) {
    const page = await this.context.api.page(`/cells/${seg(run)}`, { limit: 200 }, { signal: this.context.signal });
    this.cells.set(run, { names: page.data, more: Boolean(page.cursor) });
  }

  /** Ask for the versions and ages of the cells that are listed, of each once until it changes. */
  async learn() {
    const asked = this.shown.filter((key) => !this.infos.has(key));
    await Promise.all(asked.map(async (key) => { const [run, cell] = JSON.parse(key); this.infos.set(key, await this.context.api.get(`/cells/${seg(run)}/${seg(cell)}/info`, {}, { signal: this.context.signal })); }));
    if (asked.length) this.drawList();
  }

  forget(events) { for (const { kind, scope, id } of events) if (kind === 'cell') this.infos.delete(JSON.stringify([scope, id])); }

  async turn(name) {
    this.touched = true;
    if (this.open.has(name)) this.open.delete(name); else { this.open.add(name); if (this.runs.includes(name)) await this.names(name); }
    this.drawList(); await this.learn();
  }

  drawList() {
    if (!this.runs) return;
    const failed = this.cycles.filter((cycle) => ['failed', 'corrupt'].includes(cycle.status)).length, flying = this.cycles.filter((cycle) => cycle.status === 'in_progress').length;
    text(this.summary, `${this.runs.length}${this.moreRuns ? '+' : ''} ${this.runs.length === 1 ? 'run' : 'runs'}, ${this.stashes.length} ${this.stashes.length === 1 ? 'stash' : 'stashes'} on ${this.trails.length} ${this.trails.length === 1 ? 'trail' : 'trails'}, ${flying} ${flying === 1 ? 'cycle' : 'cycles'} in flight${failed ? `, ${failed} failed` : ''}`);
    const fits = (...words) => !this.search || words.some((each) => each.toLowerCase().includes(this.search));
    const head = (name, label, right) => h('div.tree-row', null, h('button.quiet.turn', { type: 'button', 'aria-expanded': String(this.open.has(name)), on: { click: () => this.turn(name) } }, shape(this.open.has(name) ? 'down' : 'right', 12), shape('folder'), h('b.one', null, clip(label, 40))), h('span.push.small.ink-3', null, right));
    const entry = (kind, rest, label, ...right) => { const here = this.chosen?.kind === kind && JSON.stringify(this.chosen.rest) === JSON.stringify(rest); return h('a.tree-row.leaf', { href: this.context.href('state', kind, ...rest), 'aria-current': here ? 'true' : null, class: here ? 'selected' : '' }, h('span.mono.one', { title: label }, clip(label, 80)), right.map((words) => h('span.small.ink-3', null, words))); };
    const rows = [h('h3', null, 'Cells')], info = (run, name) => { const key = JSON.stringify([run, name]), found = this.infos.get(key); this.shown.push(key); return found?.exists ? [`v${found.version}`, age(found.updated_at)] : []; };
    this.shown = [];
    for (const run of [...this.runs].reverse()) {
      const known = this.cells.get(run), names = (known?.names ?? []).filter((name) => fits(run, name));
      if (!fits(run) && !names.length) continue;
      rows.push(head(run, run, known ? `${known.names.length}${known.more ? '+' : ''} ${known.names.length === 1 ? 'cell' : 'cells'}` : ''));
      if (!this.open.has(run)) continue;
      const few = this.search || this.all.has(run) ? names : names.slice(0, Math.max(FEW, 1 + names.indexOf(this.chosen?.rest[1])));
      rows.push(few.map((name) => entry('cell', [run, name], name, ...info(run, name))));
      if (few.length < names.length) rows.push(h('button.quiet.tree-more', { type: 'button', on: { click: () => { this.all.add(run); this.drawList(); this.learn(); } } }, `${names.length - few.length}${known.more ? '+' : ''} more`));
    }
    if (!this.runs.length) rows.push(h('p.hint', null, 'No cell yet. ', h('code', null, 'holdfast cell set run-1 port 9191'), ' makes one.'));
    rows.push(h('h3', null, 'Stashes'));
    for (const trail of [...this.trails.map((each) => ({ ...each, label: `trail: ${each.name}` })), { id: null, label: 'global', state: '' }]) {
      const mine = this.stashes.filter((stash) => stash.trail === trail.id && fits(trail.label, stash.name)), key = trail.id ?? ' global';
      if (!mine.length && (trail.id === null || !fits(trail.label))) continue;
      rows.push(head(key, trail.label, trail.state || `${mine.length} ${mine.length === 1 ? 'stash' : 'stashes'}`));
      if (this.open.has(key)) rows.push(mine.map((stash) => entry('stash', [stash.id], stash.name, stash.stash_type, `v${stash.version}`, age(stash.updated_at))));
    }
    put(this.list, rows);
  }

  /** The newest cycle in flight as a strip; the others by name. */
  async drawCycles() {
    const { api, signal, href } = this.context;
    const wanted = this.chosen?.kind === 'cycle' ? this.chosen.rest[0] : null;
    const shown = this.cycles.find((cycle) => cycle.key === wanted) ?? this.cycles.find((cycle) => cycle.status === 'in_progress') ?? this.cycles[0];
    this.strip.hidden = !shown;
    if (!shown) return;
    const print = JSON.stringify([this.cycles, shown]);
    if (print === this.stripPrint) return;
    const [cycle, events] = await Promise.all([api.get(`/cycles/${seg(shown.key)}`, {}, { signal }), api.get('/events', { kinds: 'cycle', id: shown.key, after: 0, limit: 200 }, { signal }).catch(() => [])]);
    this.stripPrint = print;
    const by = Object.fromEntries(events.filter((event) => event.op === 'start_phase').map((event) => [event.data.phase, event.actor]));
    const others = this.cycles.filter((each) => each !== shown).sort((a, b) => (b.status === 'failed') - (a.status === 'failed')).slice(0, 3);
    put(this.strip, h('div.line', null, h('span.small.strong', null, 'Cycle'), h('a.mono.strong', { href: href('state', 'cycle', shown.key) }, shown.key), h('span.small.ink-3', null, `sequence ${shown.sequence}, ${shown.status.replace('_', ' ')} for `, age(shown.created_at)),
      h('span.push.line.small', null, others.length > 0 && 'other:', others.map((each) => h('a.line', { href: href('state', 'cycle', each.key) }, h('span.mono', null, clip(each.key.replace(/^peer:/, ''), 40)), stateOf(STATES[each.status] ?? 'failed', each.status === 'failed' ? `failed in ${each.current_phase}` : each.status.replace('_', ' '), 12))))),
    h('div.phase-strip', null, PHASES.map((name, n) => {
      const phase = cycle.phases[name], state = STATES[phase.status], errors = phase.errors?.length ?? 0;
      const words = errors ? clip(typeof phase.errors.at(-1) === 'string' ? phase.errors.at(-1) : phase.errors.at(-1)?.message ?? '', 60) : phase.output ? clip(JSON.stringify(phase.output), 40) : '';
      return [n > 0 && shape('right', 14), h('div.phase', { class: `phase-${phase.status}` }, h('div.line', null, shape(state), h('b', null, name), h('span.push.small.ink-3', null, phase.status.replace('_', ' '))), h('p.small', null, by[name] ?? (phase.started_at ? '' : 'nobody yet'), phase.started_at && `, ${duration(((phase.completed_at ? Date.parse(phase.completed_at) : now()) - Date.parse(phase.started_at)) / 1000)}`), h('p.small.ink-3.one', { title: words }, errors ? `${errors} ${errors === 1 ? 'error' : 'errors'}: ${words}` : words || '\u00a0'))];
    })));
    this.cycle = cycle;
  }

  /** Read what is chosen and its versions, newest first. */
  async read() {
    const { api, signal } = this.context, { chosen } = this;
    if (!chosen) { put(this.detail, h('p.empty', null, 'Choose a cell, a stash or a cycle.')); return; }
    let name, versions, info = {};
    if (chosen.kind === 'cell') {
      const [run, cell] = chosen.rest;
      name = `${run} / ${cell}`;
      const address = `/cells/${seg(run)}/${seg(cell)}`;
      [versions, info] = await Promise.all([api.get(`${address}/history`, { limit: VERSIONS }, { signal }), api.get(`${address}/info`, {}, { signal })]);
      versions = versions.map((each) => ({ version: each.version, value: each.deleted ? undefined : each.value, by: each.actor, op: each.op, time: each.time, revision: each.revision }));
    } else if (chosen.kind === 'stash') {
      const address = `/stashes/${seg(chosen.rest[0])}`;
      const [stash, history, events] = await Promise.all([api.get(address, {}, { signal }), api.get(`${address}/history`, { limit: 1000 }, { signal }), api.get('/events', { kinds: 'stash', id: chosen.rest[0], after: 0, limit: 1000 }, { signal }).catch(() => [])]);
      const made = new Map(events.map((event) => [event.version, event]));
      name = stash.name;
      versions = history.slice(-VERSIONS).reverse().map((each) => ({ version: each.version, value: each.value, by: made.get(each.version)?.actor ?? '', op: each.operation, time: each.created_at, revision: made.get(each.version)?.revision ?? null }));
      info = { expires_at: stash.expires_at, size: pretty(stash.value).length };
    } else if (chosen.kind !== 'cycle') throw new Error(`there is nothing called ${chosen.kind} here: cell, stash or cycle`);
    else {
      const cycle = await api.get(`/cycles/${seg(chosen.rest[0])}`, {}, { signal });
      name = cycle.cycle_id;
      versions = [{ version: cycle.sequence, value: cycle, by: '', op: 'document', time: cycle.metadata.updated_at, revision: null }];
    }
    const print = JSON.stringify([chosen, versions.map((each) => [each.version, each.time]), this.show, this.picks]);
    if (print === this.print) return;
    this.print = print;
    this.drawDetail(name, versions, info);
  }

  drawDetail(name, versions, info) {
    const [last] = versions;
    if (!last) { put(this.detail, h('p.empty', null, `${name} has no version that the log still has.`)); return; }
    const known = versions.map((each) => each.version);
    if (!this.picked || !this.picks.every((version) => known.includes(version))) this.picks = [known[Math.min(1, known.length - 1)], known[0]]; // the last change
    const [a, b] = [...this.picks].sort((x, y) => x - y).map((version) => versions.find((each) => each.version === version));
    const pick = (version) => { this.picks = [this.picks[1], version]; this.picked = true; this.show = 'diff'; this.print = null; this.drawDetail(name, versions, info); };
    const shows = segments('what to show', VIEWS, this.show, (show) => { this.show = show; this.context.setQuery({ show: show === 'value' ? '' : show }); this.drawDetail(name, versions, info); });
    const strip = versions.slice(0, SHOWN).reverse(), between = versions.filter((each) => each.version > a.version && each.version < b.version);
    const lines = diff(pretty(a.value), pretty(b.value)), added = lines.filter(([sign]) => sign === '+').length, removed = lines.filter(([sign]) => sign === '-').length;
    let left = 0, right = 0;
    const code = this.show === 'diff' && a === b ? h('p.empty', null, 'There is one version: nothing to compare yet.') : this.show === 'diff' ? h('div.code', { tabindex: 0, role: 'region', 'aria-label': 'difference' }, lines.slice(0, 2000).map(([sign, words]) => { if (sign !== '+') left += 1; if (sign !== '-') right += 1; return h('div', { class: { '+': 'added', '-': 'removed' }[sign] ?? '' }, h('span.line-number', null, sign === '+' ? '' : left), h('span.line-number', null, sign === '-' ? '' : right), h('span.sign', null, sign), h('span', null, clip(words, 5000))); }))
      : this.show === 'value' ? h('pre.code', { tabindex: 0, role: 'region', 'aria-label': 'value' }, last.value === undefined ? 'deleted' : clip(pretty(last.value), 200_000)) : null;
    const history = table('versions', HEADS);
    keyed(history.body, versions.slice(0, this.show === 'history' ? VERSIONS : 4), (each) => each.version, (each) => { const before = versions[versions.indexOf(each) + 1]; return h('tr', { tabindex: -1 }, h('td', null, h('b.mono', null, `v${each.version}`)), h('td', null, h('b', null, each.by)), h('td.small.ink-2', null, each.op.replace('_', ' ').replace('cas', 'compare-and-swap')), h('td.mono.ink-2', null, before ? clip(changed(before.value, each.value).join(', '), 80) : ''), h('td.right.small', null, age(each.time)), h('td.right.mono.ink-3', null, each.revision === null ? '–' : number(each.revision))); });
    put(this.detail, h('div.detail-head', null, h('b.mono.text', null, name), h('span.small.ink-3', null, `version ${last.version}${last.by ? `, ${last.by}` : ''}, `, age(last.time, ' ago'), `, ${secondOf(last.time)}${last.revision === null ? '' : `, rev ${number(last.revision)}`}`), h('span.push', null, shows.element)),
      this.show === 'diff' && h('div.detail-head', null, h('span.small.ink-3', null, 'Compare'), versions.length > SHOWN && h('span.small.ink-3', null, `${versions.length - SHOWN}${versions.length === VERSIONS ? '+' : ''} older`), strip.map((each) => h('button.version', { type: 'button', 'aria-pressed': String(this.picks.includes(each.version)), title: exact(each.time), on: { click: () => pick(each.version) } }, h('b.mono', null, `v${each.version}`), h('span', null, each.by))), h('span.push.small', null, `v${a.version}${a.by ? ` by ${a.by}` : ''}, ${hourOf(a.time)} → v${b.version}${b.by ? ` by ${b.by}` : ''}, ${hourOf(b.time)}`)),
      code, history.element,
      h('div.detail-foot.small', null, this.show === 'diff' && [h('b.c-added', null, `+${added}`), h('b.c-removed', null, `−${removed}`), ' lines', between.length > 0 && h('span.ink-2', null, `v${between[0].version} by ${between[0].by} lies between: ${between[0].op}`)], h('span.push.ink-3', null, `${info.size === null || info.size === undefined ? '' : `${number(info.size)} ${info.size === 1 ? 'byte' : 'bytes'}, `}${info.expires_at ? `until ${exact(info.expires_at)}` : 'no ttl'}`)));
  }
}

export const view = {
  name: 'state', title: 'State', icon: 'state', key: 's', keys: [['j k', 'from cell to cell'], ['v d h', 'value, diff, history']],
  open(context) {
    const state = new State(context);
    const keys = { v: 'value', d: 'diff', h: 'history' };
    const key = (event) => { if (keys[event.key]) { state.show = keys[event.key]; state.print = null; state.read(); return true; } if (event.key === 'Enter' && document.activeElement?.matches('.leaf')) { document.activeElement.click(); return true; } return listKeys(state.element, '.leaf, tbody tr', event); };
    return { element: state.element, key, update: ({ events, reload }) => { if (reload) state.infos.clear(); else state.forget(events); if (reload || events.some((event) => ['cell', 'run', 'stash', 'trail', 'cycle'].includes(event.kind))) state.loading.ask(); }, close: () => state.loading.close() };
  },
};
