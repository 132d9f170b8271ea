// The frame around the views: top bar, navigation, banner, keys and search.

import { h, put, set, text } from './dom.js';
import { duration, exact, freeze, hourOf, number, ordinal, secondOf, tick } from './format.js';
import { icon, shape } from './shapes.js';

const INPUTS = 'input, textarea, select, dialog, [contenteditable]';

export class Frame {
  constructor(store, api, views, { href, go, retry, signOut }) {
    Object.assign(this, { store, api, views, href, go, retry, signOut });
    this.main = h('main', { id: 'main', tabindex: -1 });
    this.banner = h('div.banner', { role: 'alert', hidden: true });
    this.revision = h('span.mono.revision');
    this.live = h('span.live');
    this.clock = h('span.clock');
    this.links = views.filter((view) => view.icon).map((view) => [view, this.link(view)]);
    this.element = h('div.frame', null, this.top(), this.banner, this.side(), this.main, this.tabs());
    this.ends = [store.on(['connection', 'revision'], () => this.connection()), store.on('status', () => this.counts())];
    this.timer = setInterval(() => this.second(), 1000);
    this.press = (event) => this.key(event);
    document.addEventListener('keydown', this.press);
    this.connection();
    this.second();
  }

  top() {
    const { workspace, session } = { workspace: this.store.get('workspace'), session: this.store.get('session') };
    const spaces = session.workspaces.includes(workspace) ? session.workspaces : [workspace, ...session.workspaces];
    const spot = h('select.workspace', { 'aria-label': 'workspace', on: { change: () => this.go(`/ui/${spot.value || '-'}/${this.views[0].name}`) } },
      spaces.map((name) => h('option', { value: name, selected: name === workspace }, name || 'main')));
    const name = session.role === 'read' ? null : session.actor ?? session.name;
    const out = h('button.avatar', { title: `${name ?? 'reader'}, ${session.role}: sign out`, 'aria-label': 'sign out', on: { click: () => this.signOut() } }, (name ?? 'r').charAt(0).toUpperCase());
    return h('header.top', null,
      h('a.brand', { href: this.href(this.views[0].name) }, icon('brand', 20), h('span', null, 'Holdfast')),
      spot, h('span.search'), h('span.facts', null, this.revision, this.live, this.clock, out));
  }

  link(view) {
    const count = h('span.count');
    const element = h('a', { href: this.href(view.name), title: view.key ? `g ${view.key}` : null }, icon(view.icon), h('span', null, view.title), count);
    return { element, count };
  }

  side() {
    const { session } = { session: this.store.get('session') };
    const who = session.role === 'read' ? 'read' : `${session.actor ?? session.name}, ${session.role}`;
    return h('nav.side', { 'aria-label': 'views' },
      this.links.map(([, { element }]) => element),
      h('div.side-foot', null, h('div', null, h('kbd', null, '?'), ' keys ', h('kbd', null, 'g b'), ' board'), h('div', null, who)));
  }

  tabs() {
    return h('nav.tabs', { 'aria-label': 'views' }, this.views.filter((view) => view.icon).slice(0, 5).map((view) =>
      h('a', { href: this.href(view.name), data: { view: view.name } }, icon(view.icon, 20), h('span', null, view.title))));
  }

  /** Show a view. */
  show(view, opened) {
    this.opened = opened;
    document.title = `${view.title} · Holdfast`;
    put(this.main, opened.element);
    for (const [each, { element }] of this.links) set(element, { 'aria-current': each === view ? 'page' : null });
    for (const element of this.element.querySelectorAll('.tabs a')) set(element, { 'aria-current': element.dataset.view === view.name ? 'page' : null });
  }

  connection() {
    const { state, since, attempt, retryAt, at } = this.store.get('connection');
    const revision = this.store.get('revision');
    text(this.revision, revision === null ? '' : `rev ${number(revision)}`);
    const lost = state === 'lost';
    document.body.classList.toggle('lost', lost);
    for (const button of document.querySelectorAll('[data-act]')) button.disabled = lost;
    freeze(lost ? at : null);
    const old = lost ? duration((Date.now() - (at ?? since)) / 1000) : '';
    this.live.className = `live ${lost ? 'c-red' : 'c-accent'}`;
    put(this.live, shape(lost ? 'offline' : 'live', 12), lost ? `${old} old` : state === 'live' ? 'live' : 'connecting');
    this.banner.hidden = !lost;
    if (!lost) return;
    const wait = Math.max(0, Math.ceil((retryAt - Date.now()) / 1000));
    const button = this.banner.querySelector('button') ?? h('button.force', { on: { click: () => this.retry() } }, 'try now');
    put(this.banner, shape('offline'), h('span.what', null, h('b', null, `Connection lost at ${secondOf(since)}.`), ` What you see is ${old} old, revision ${number(revision ?? 0)}. It goes on from there without a gap.`),
      h('span.again', { 'aria-live': 'off' }, `trying again in ${wait} s, ${ordinal(attempt)} time`), button);
  }

  counts() {
    const status = this.store.get('status');
    for (const [view, { count }] of this.links) if (view.count) text(count, view.count(status, this.store) || '');
  }

  second() {
    text(this.clock, hourOf(Date.now()));
    set(this.clock, { title: exact(Date.now()) });
    tick(this.main);
    if (this.store.get('connection').state === 'lost') this.connection();
  }

  key(event) {
    if (event.target.closest?.(INPUTS) || event.metaKey || event.ctrlKey || event.altKey) return;
    if (this.prefix) {
      this.prefix = false;
      const view = this.views.find((each) => each.key === event.key);
      if (view) { event.preventDefault(); this.go(this.href(view.name)); }
    } else if (event.key === 'g') this.prefix = true;
    else if (this.opened?.key?.(event)) event.preventDefault();
  }

  close() {
    clearInterval(this.timer);
    for (const end of this.ends) end();
    document.removeEventListener('keydown', this.press);
  }
}

