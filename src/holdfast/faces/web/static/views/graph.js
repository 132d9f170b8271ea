// Graph: what waits for what, from left to right; the critical path by weight, states by colour. Zoom, pan, fold, save.

import { explain, seg } from '../api.js';
import { clip, h, keyed, put, svg, text } from '../dom.js';
import { attempt } from '../acts.js';
import { middle } from '../format.js';
import { few, listKeys, segments } from '../lists.js';
import { fold, layout, NODE, treeLayout } from '../layout.js';
import { COLOURS, glyph, shape, wordOf } from '../shapes.js';
import { paced } from '../store.js';

const MOST = 1000; // nodes drawn at once
const AUTO = 90; // more open tasks than that: begin below the tree that has most of them
const ZOOM = [0.1, 2.5];
const LEGIBLE = 0.7; // a picture begins at its left edge, where it can be read, rather than whole and too small
const LEGEND = ['ready', 'held', 'parked', 'review', 'blocked', 'waiting'];

/** The state of shapes.js of a node. */
function stateOf(node) {
  if (node.status === 'pending_merge') return 'review';
  if (node.status === 'in_progress') return node.parked ? 'parked' : 'held';
  if (node.status === 'open') return node.ready ? 'ready' : 'waiting';
  return node.status;
}

class Graph {
  constructor(context) {
    this.context = context;
    const { query, rest } = context;
    this.mode = query.get('tree') ? 'tree' : 'dependencies';
    this.closed = Boolean(query.get('closed'));
    this.root = rest[0] ?? query.get('root');
    this.folded = new Set();
    this.at = { x: 16, y: 40, k: 1 };
    this.words = h('span.hint');
    this.modes = segments('edges', [], this.mode, (mode) => { this.mode = mode; this.remember(); this.draw(true); });
    this.roots = h('select', { 'aria-label': 'root', on: { change: () => context.go('graph', ...(this.roots.value ? [this.roots.value] : ['all'])) } });
    this.toggle = h('button', { on: { click: () => { this.closed = !this.closed; this.remember(); this.loading.ask(); } } });
    this.save = h('button', { on: { click: () => this.download() } }, 'save SVG');
    [this.heads, this.lines, this.boxes] = [svg('g'), svg('g'), svg('g')];
    this.scene = svg('g', null, this.heads, this.lines, this.boxes);
    this.canvas = svg('svg.graph-canvas', { role: 'group', 'aria-label': 'graph of tasks', on: { pointerdown: (event) => this.pan(event), wheel: (event) => this.wheel(event) } }, markers(), this.scene);
    this.percent = h('span');
    const zoom = (words, factor, name) => h('button', { 'aria-label': name, on: { click: () => this.zoom(factor) } }, words);
    this.rail = h('aside.panel.graph-rail', { 'aria-label': 'what follows from it' });
    this.element = h('div.view.graph', null,
      h('div.view-head', null, h('h1', null, 'Graph'), this.words, h('span.line.push', null, this.modes.element, this.roots, this.toggle, this.save)),
      h('div.graph-columns', null,
        h('div.panel.graph-panel', null, this.canvas,
          h('div.segments.zoom', null, zoom('−', 1 / 1.25, 'zoom out'), h('span.percent', null, this.percent), zoom('+', 1.25, 'zoom in'), h('button', { on: { click: () => this.fit() } }, 'fit')),
          h('div.legend', null, LEGEND.map((state) => h('span.state', { class: `c-${COLOURS[state]}` }, shape(state, 12), wordOf(state))), h('span.state', null, svg('svg', { width: 30, height: 10, 'aria-hidden': 'true' }, svg('path.critical', { d: 'M0 5H24', 'marker-end': 'url(#head-critical)' })), 'critical path'), h('span.state', null, h('span.fold-sign'), 'folded'))),
        this.rail));
    this.loading = paced(() => this.load(), 1000);
    this.loading.ask();
  }

  remember() { this.context.setQuery({ tree: this.mode === 'tree' ? '1' : '', closed: this.closed ? '1' : '' }); }

  async load() {
    const { api, signal } = this.context;
    try {
      let root = this.root === 'all' ? null : this.root;
      this.whole ??= await api.get('/tasks/graph', { root: null }, { signal }).catch((error) => { if (error.status === 413) return null; throw error; });
      if (this.root === null && this.whole && this.whole.nodes.length > AUTO) root = largest(this.whole);
      const all = root === null && !this.closed ? this.whole : await api.get('/tasks/graph', { root, include_closed: this.closed || null }, { signal });
      const first = !this.graph;
      this.graph = all;
      this.shownRoot = root;
      this.draw(first);
    } catch (error) { if (error.name !== 'AbortError' && error.code !== 'UNREACHABLE') { this.graph = null; this.element.classList.add('failed'); put(this.words, h('span.note-red', { role: 'alert' }, shape('trouble', 12), explain(error), h('a.link', { href: this.context.href('graph') }, 'Show all'))); } }
  }

  reload() { this.whole = undefined; this.loading.ask(); }

  draw(fit = false) {
    const { graph } = this;
    if (!graph) return;
    const tree = this.mode === 'tree';
    const parked = new Set((this.context.store.get('status')?.agents ?? []).filter((agent) => agent.parked).map((agent) => agent.task));
    this.nodes = new Map(graph.nodes.map((node) => [node.id, { ...node, parked: parked.has(node.id) }]));
    const parent = new Map(graph.nodes.filter((node) => node.parent_id).map((node) => [node.id, node.parent_id]));
    const linked = new Set(graph.edges.filter((edge) => edge.kind === 'depends').flatMap((edge) => [edge.id, edge.on]));
    const parents = new Set(parent.values());
    let shown = graph.nodes.filter((node) => tree || !(parents.has(node.id) && !linked.has(node.id) && !this.folded.has(node.id)));
    const cut = shown.length > MOST;
    if (cut) shown = [...shown].sort((a, b) => b.critical - a.critical || b.unblocks - a.unblocks).slice(0, MOST);
    const edges = graph.edges.filter((edge) => edge.kind === (tree ? 'parent' : 'depends')).map((edge) => ({ from: edge.on, to: edge.id }));
    const folded = fold(shown, edges, parent, this.folded);
    const print = JSON.stringify([folded.nodes.map((node) => node.id), folded.edges]);
    if (print !== this.print) { // else it only changed its states: everything stays where it is
      this.print = print;
      this.size = (tree ? treeLayout : layout)(folded.nodes, folded.edges);
      put(this.heads, Array.from({ length: this.size.layers }, (_, n) => svg('text.depth', { x: n * (NODE.width + NODE.across), y: -14 }, `depth ${n}`)));
      this.path = null;
    }
    const drawn = this.size;
    const step = new Map(graph.critical_path.map((id, n) => [id, n]));
    const critical = (edge) => !tree && step.has(edge.from) && step.get(edge.to) === step.get(edge.from) + 1;
    const path = graph.critical_path.join(' ');
    if (path !== this.path) {
      this.path = path;
      put(this.lines, [...drawn.edges].sort((a, b) => critical(a) - critical(b)).map((edge) => svg('path.edge', { d: edge.path, class: critical(edge) ? 'critical' : '', 'marker-end': `url(#head${critical(edge) ? '-critical' : ''})` })));
    }
    const items = drawn.nodes.map((place) => ({ place, node: this.nodes.get(place.id), hidden: folded.hidden.get(place.id) ?? 0, folds: parents.has(place.id), critical: step.has(place.id) && !tree }));
    keyed(this.boxes, items, (each) => each.place.id, (each) => this.node(each));
    this.head(graph, drawn, cut);
    this.drawRail(graph);
    if (fit) this.fit(LEGIBLE); else this.move();
  }

  node({ place: { id, x, y }, node, hidden, folds, critical }) {
    const state = stateOf(node), { context } = this;
    const lines = wrap(node.title, 18);
    const turn = (event) => { event.preventDefault(); event.stopPropagation(); if (this.folded.has(id)) this.folded.delete(id); else this.folded.add(id); this.draw(); };
    return svg('a.node', { href: context.href('task', id), transform: `translate(${x} ${y})`, class: `s-${COLOURS[state]}${critical ? ' on-path' : ''}${hidden ? ' folded' : ''}`, data: { id }, 'aria-label': `${id} ${clip(node.title, 80)}, ${wordOf(state)}${node.claimed_by ? ` by ${node.claimed_by}` : ''}${critical ? ', critical path' : ''}` },
      svg('title', null, `${id} ${clip(node.title, 300)}`),
      hidden > 0 && svg('rect.stack', { x: 4, y: 4, width: NODE.width, height: NODE.height, rx: 6 }),
      svg('rect.box', { width: NODE.width, height: NODE.height, rx: 6 }),
      glyph(state, 10, 9, 10), svg('text.node-id', { x: 28, y: 18 }, id), node.claimed_by && svg('text.node-holder', { x: NODE.width - 8, y: 18 }, middle(node.claimed_by, Math.max(3, 14 - id.length))),
      hidden ? svg('text.node-title', { x: 10, y: 34 }, `+ ${hidden} folded: ${clip(node.title, 9)}`) : lines.map((words, n) => svg('text.node-title', { x: 10, y: 34 + n * 15 }, words)),
      (folds || hidden > 0) && svg('g.fold-button', { role: 'button', tabindex: 0, 'aria-label': `${hidden ? 'unfold' : 'fold'} ${id}`, on: { click: turn, keydown: (event) => { if (event.key === 'Enter') turn(event); } } }, svg('circle', { cx: NODE.width, cy: NODE.height / 2, r: 7 }), svg('text', { x: NODE.width, y: NODE.height / 2 + 4 }, hidden ? '+' : '−')));
  }

  head(graph, drawn, cut) {
    const root = this.shownRoot && this.nodes.get(this.shownRoot), whole = this.whole?.nodes.length ?? graph.nodes.length;
    put(this.words, `${drawn.nodes.length} of ${whole} open tasks`, root && [', below ', h('span.mono', null, root.id), ` ${clip(root.title, 40)}`], cut && `; the first ${MOST}, choose a root`);
    this.modes.draw([['dependencies', 'dependencies'], ['tree', 'tree']], this.mode);
    const all = this.whole ?? graph, above = new Set(all.nodes.map((node) => node.parent_id).filter(Boolean));
    const choices = all.nodes.filter((node) => above.has(node.id) || node.id === this.shownRoot);
    put(this.roots, h('option', { value: '' }, 'all open tasks'), choices.map((node) => h('option', { value: node.id, selected: node.id === this.shownRoot }, `root ${node.id} ${clip(node.title, 24)}`)));
    text(this.toggle, `closed: ${this.closed ? 'shown' : 'hidden'}`);
  }

  drawRail(graph) {
    const { context } = this;
    const row = (id, right = null) => { const node = this.nodes.get(id); return node && h('div.rail-row', { tabindex: -1 }, shape(stateOf(node)), h('a.mono.ink-2', { href: context.href('task', id) }, id), h('span.one', { title: node.title }, clip(node.title)), right); };
    const ready = graph.nodes.filter((node) => node.status === 'open' && node.ready).slice(0, 8);
    const count = graph.nodes.filter((node) => node.status === 'open' && node.ready).length;
    const first = graph.critical_path.map((id) => this.nodes.get(id)).find((node) => node && node.status !== 'closed');
    const track = (ids) => { const nodes = ids.map((id) => this.nodes.get(id)).filter(Boolean), held = nodes.filter((node) => node.claimed_by).length, stopped = nodes.some((node) => node.status === 'blocked'); return h('div.rail-row', null, h('span.one', null, clip(nodes[0]?.title ?? '')), h(`span.push.small${stopped ? '.c-amber' : '.ink-3'}`, null, `${ids.length} tasks, ${stopped ? 'blocked' : `${held} held`}`)); };
    const part = (head, hint, rows) => rows.length > 0 && h('div.section', null, h('h3', null, head, h('span.hint', null, ` ${hint}`)), rows);
    put(this.rail,
      part('Critical path', `${graph.critical_path.length} tasks, slack 0`, [...graph.critical_path.slice(0, 8).map((id) => row(id)), first && h('p.hint', null, 'Next move: ', h('b', null, next(first)))]),
      part('Top blockers', 'unblocks', graph.blockers.filter((id) => this.nodes.get(id)?.unblocks).slice(0, 6).map((id) => row(id, h('b.push', null, this.nodes.get(id)?.unblocks)))),
      part('Parallel tracks', String(graph.tracks.length), few('tracks', graph.tracks, 5, track)),
      part('Ready now', `${count}, nobody has them`, ready.map((node) => row(node.id, context.may('agent') && h('button.quiet.push.claim', { data: { act: '' }, 'aria-label': `claim ${node.id}`, on: { click: () => attempt(() => context.api.post(`/tasks/${seg(node.id)}/claim`, { ttl: 1800 })) } }, 'claim')))));
    if (!this.rail.childElementCount) put(this.rail, h('div.section.hint', null, 'No open tasks. ', h('code', null, "holdfast create 'write the parser'"), ' makes one.'));
  }

  move() {
    this.scene.setAttribute('transform', `translate(${this.at.x} ${this.at.y}) scale(${this.at.k})`);
    text(this.percent, `${Math.round(this.at.k * 100)} %`);
  }

  /** Show all of it, but not smaller than `least`. */
  fit(least = ZOOM[0]) {
    const { clientWidth: width, clientHeight: height } = this.canvas;
    if (!width || !this.size) return;
    const k = Math.min(1, (width - 32) / Math.max(1, this.size.width), (height - 60) / Math.max(1, this.size.height));
    this.at = { k: Math.max(least, k), x: 16, y: 40 };
    const first = this.size.nodes.find((node) => node.id === this.graph.critical_path[0]), low = (first?.y ?? 0) * this.at.k;
    if (this.mode !== 'tree' && low > height - 120) this.at.y = height / 2 - low; // the critical path is in view
    this.move();
  }

  zoom(factor, x = this.canvas.clientWidth / 2, y = this.canvas.clientHeight / 2) {
    const k = Math.min(ZOOM[1], Math.max(ZOOM[0], this.at.k * factor));
    this.at = { k, x: x - ((x - this.at.x) * k) / this.at.k, y: y - ((y - this.at.y) * k) / this.at.k };
    this.move();
  }

  wheel(event) {
    event.preventDefault();
    const box = this.canvas.getBoundingClientRect();
    if (event.ctrlKey || event.metaKey || Math.abs(event.deltaX) < Math.abs(event.deltaY)) this.zoom(Math.exp(-event.deltaY / 500), event.clientX - box.x, event.clientY - box.y);
    else { this.at.x -= event.deltaX; this.move(); }
  }

  pan(event) {
    if (event.button !== 0 || event.target.closest('.node')) return;
    const from = { x: event.clientX - this.at.x, y: event.clientY - this.at.y };
    const go = (each) => { this.at.x = each.clientX - from.x; this.at.y = each.clientY - from.y; this.move(); };
    this.canvas.setPointerCapture(event.pointerId);
    this.canvas.addEventListener('pointermove', go);
    this.canvas.addEventListener('pointerup', () => this.canvas.removeEventListener('pointermove', go), { once: true });
  }

  /** The picture as a file: with its colours, since a file has no style sheet. */
  download() {
    const copy = this.canvas.cloneNode(true);
    const style = ['fill', 'stroke', 'stroke-width', 'stroke-dasharray', 'font-family', 'font-size', 'font-weight', 'text-anchor', 'color'];
    const from = this.canvas.querySelectorAll('*'), to = copy.querySelectorAll('*');
    from.forEach((element, n) => { const look = getComputedStyle(element); for (const name of style) to[n].setAttribute(name, look.getPropertyValue(name)); });
    copy.setAttribute('xmlns', 'http://www.w3.org/2000/svg');
    copy.setAttribute('viewBox', `-16 -40 ${this.size.width + 32} ${this.size.height + 56}`);
    copy.querySelector('g').removeAttribute('transform');
    const link = h('a', { href: URL.createObjectURL(new Blob([new XMLSerializer().serializeToString(copy)], { type: 'image/svg+xml' })), download: `graph${this.shownRoot ? `-${this.shownRoot}` : ''}.svg` });
    link.click();
    URL.revokeObjectURL(link.href);
  }
}

const next = (node) => ({ pending_merge: `approve ${node.id}`, blocked: `unblock ${node.id}`, in_progress: `${node.claimed_by} works on ${node.id}` })[node.status] ?? (node.ready ? `claim ${node.id}` : `${node.id} waits`);

/** The tree with most tasks in it: the id of its top. */
function largest(graph) {
  const parent = new Map(graph.nodes.map((node) => [node.id, node.parent_id])), sizes = new Map();
  for (const node of graph.nodes) { let top = node.id; for (let n = 0; parent.get(top) && parent.has(parent.get(top)) && n < 100; n += 1) top = parent.get(top); sizes.set(top, (sizes.get(top) ?? 0) + 1); }
  const [id, size] = [...sizes].sort((a, b) => b[1] - a[1])[0] ?? [null, 0];
  return size > 5 ? id : null;
}

/** A title in at most two lines. */
function wrap(title, wide) {
  const words = clip(title, 120).split(/\s+/), lines = [''];
  for (const word of words) {
    if ((lines.at(-1) + word).length + 1 > wide && lines.at(-1)) lines.push('');
    lines.push(`${lines.pop()} ${word}`.trim());
    while (lines.at(-1).length > wide) { const long = lines.pop(); lines.push(long.slice(0, wide), long.slice(wide)); }
  }
  return lines.length > 2 ? [lines[0], `${lines[1].slice(0, wide - 1)}…`] : lines;
}

function markers() {
  const head = (id, size) => svg('marker', { id, viewBox: '0 0 8 8', refX: 7, refY: 4, markerWidth: size, markerHeight: size, markerUnits: 'userSpaceOnUse', orient: 'auto' }, svg('path', { d: 'M0 .8 8 4 0 7.200z', class: id }));
  return svg('defs', null, head('head', 7), head('head-critical', 11));
}

export const view = {
  name: 'graph', title: 'Graph', icon: 'graph', key: 'r', keys: [['j k', 'from task to task'], ['+ −', 'zoom'], ['0', 'fit'], ['t', 'dependencies or tree']],
  open(context) {
    const graph = new Graph(context);
    const keys = { '+': () => graph.zoom(1.25), '-': () => graph.zoom(0.8), 0: () => graph.fit(), t: () => { graph.mode = graph.mode === 'tree' ? 'dependencies' : 'tree'; graph.remember(); graph.draw(true); } };
    return { element: graph.element, update: ({ events, reload }) => { if (reload || events.some((event) => event.kind === 'task')) graph.reload(); }, key: (event) => { if (keys[event.key]) { keys[event.key](); return true; } return listKeys(graph.element, '.node, .rail-row', event); }, close: () => graph.loading.close() };
  },
};
