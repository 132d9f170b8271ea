// The frame around the views: top bar, navigation, banner, keys and search.

import { ask } from './dialog.js';
import { h, put, set, text } from './dom.js';
import { duration, exact, freeze, hourOf, number, ordinal, secondOf, tick } from './format.js';
import { searchBox } from './search.js';
import { icon, shape } from './shapes.js';
import { createTask } from './task_acts.js';

const TABS = ['fleet', 'board', 'timeline', 'mail']; // at the foot of a narrow page; the others are under More
const INPUTS = 'input, textarea, select, dialog, [contenteditable]';

export class Frame {
  constructor(store, api, views, { href, go, retry, signOut }) {
    Object.assign(this, { store, api, views, href, go, retry, signOut });
    this.main = h('main', { id: 'main', tabindex: -1 });
    this.banner = h('div.banner', { role: 'alert', hidden: true });
    this.revision = h('span.mono.revision');
    this.live = h('span.live');
    this.clock = h('span.clock');
    this.search = searchBox(api, href, () => store.get('status')?.agents ?? []);
    this.links = views.filter((view) => view.icon).map((view) => [view, this.link(view)]);
    this.element = h('div.frame', null, h('a.skip', { href: '#main', on: { click: (event) => { event.preventDefault(); this.main.focus(); } } }, 'Skip to the content'), this.top(), this.banner, this.side(), this.main, this.tabs());
    this.ends = [store.on('revision', () => this.count()), store.on('connection', () => this.connection()), store.on('status', () => this.counts())];
    this.timer = setInterval(() => this.second(), 1000);
    this.press = (event) => this.key(event);
    document.addEventListener('keydown', this.press);
    this.away = (event) => this.closeMenus(event.target);
    document.addEventListener('click', this.away);
    this.connection();
    this.second();
  }

  top() {
    const { workspace, session } = { workspace: this.store.get('workspace'), session: this.store.get('session') };
    const spot = h('select.workspace', { 'aria-label': 'workspace', on: { change: () => this.go(`/ui/${spot.value || '-'}/${this.views[0].name}`) } },
      session.workspaces.map((name) => h('option', { value: name, selected: name === workspace }, name || 'main')));
    const name = session.role === 'read' ? null : session.actor ?? session.name;
    const out = h('button.avatar', { title: `${name ?? 'reader'}, ${session.role}`, 'aria-label': 'account', on: { click: () => this.person() } }, (name ?? 'r').charAt(0).toUpperCase());
    return h('header.top', null,
      h('a.brand', { href: this.href(this.views[0].name), 'aria-label': 'Holdfast' }, icon('brand', 20), h('span', null, 'Holdfast')),
      spot, this.search.element, h('span.facts', null, this.revision, this.live, this.clock, out));
  }

  /** The list of keys. */
  help() {
    const row = ([key, words]) => h('div.row', null, h('kbd', null, key), h('span.push.small', null, words));
    const dialog = h('dialog.help', { 'aria-label': 'keys' }, h('div.dialog-head', null, h('h2', null, 'Keys')),
      h('div.dialog-body', null, [['/', 'search'], ['n', 'new task'], ['?', 'this list'], ...this.views.filter((view) => view.key).map((view) => [`g ${view.key}`, view.title.toLowerCase()]), ...(this.view?.keys ?? [])].map(row),
        h('form', { method: 'dialog' }, h('button.large', null, 'Close'))));
    dialog.addEventListener('close', () => dialog.remove());
    document.body.append(dialog);
    dialog.showModal();
  }

  /** The menu of the person: notifications, and signing out. */
  person() {
    const { session } = { session: this.store.get('session') };
    const told = globalThis.Notification?.permission ?? 'denied';
    const words = { granted: 'Notifications are on.', denied: 'Notifications are blocked by the browser.', default: 'Have the browser notify you when something new needs you?' }[told];
    ask({ title: `Signed in as ${session.role === 'read' ? 'a reader' : session.actor ?? session.name}`, text: `Role ${session.role}, until ${exact(session.expires_at)}. ${words}`, verb: 'Sign out',
      fields: told === 'default' ? [{ name: 'notify', label: 'Notifications', options: [['no', 'no'], ['yes', 'ask the browser, stay signed in']] }] : [],
      act: async (given) => { if (given?.notify === 'yes') await Notification.requestPermission(); else await this.signOut(); } });
  }

  /** Notify, with leave, of what needs a person and did not before. */
  notify(status) {
    const ids = new Set(status.needs_you.map((need) => `${need.kind} ${need.id}`));
    const fresh = this.known ? status.needs_you.filter((need) => !this.known.has(`${need.kind} ${need.id}`)) : [];
    this.known = ids;
    if (!fresh.length || globalThis.Notification?.permission !== 'granted') return;
    const [first] = fresh;
    const shown = new Notification(fresh.length > 1 ? `${fresh.length} things need you` : `${first.kind}: ${first.title}`, { body: first.reason ?? '', tag: `holdfast ${this.store.get('workspace')}` });
    shown.onclick = () => { window.focus(); this.go(this.href(this.views[0].name)); };
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
      this.links.map(([view, { element }]) => [view.name === 'server' && h('hr'), element]),
      h('div.side-foot', null, h('div', null, h('kbd', null, '?'), ' keys ', h('kbd', null, 'g b'), ' board'), h('div', null, who)));
  }

  tabs() {
    const shown = this.views.filter((view) => view.icon), first = TABS.map((name) => shown.find((view) => view.name === name)).filter(Boolean);
    const tab = (view) => h('a', { href: this.href(view.name), data: { view: view.name } }, icon(view.icon, 20), h('span', null, view.title), h('span.count'));
    const rest = shown.filter((view) => !first.includes(view));
    const more = h('details.menu.more', null, h('summary', null, icon('more', 20), h('span', null, 'More')), h('div.menu-list', null, rest.map(tab), h('button', { type: 'button', on: { click: () => this.person() } }, 'Account')));
    return h('nav.tabs', { 'aria-label': 'views, narrow' }, first.map(tab), more);
  }

  /** Show a view. */
  show(view, opened) {
    this.opened = opened;
    this.view = view;
    document.title = `${view.title} · Holdfast`;
    put(this.main, opened.element);
    for (const [each, { element }] of this.links) set(element, { 'aria-current': each === view ? 'page' : each.name === view.under ? 'true' : null });
    for (const element of this.element.querySelectorAll('.tabs a')) set(element, { 'aria-current': element.dataset.view === view.name ? 'page' : null });
    this.offer();
  }

  /** Acts are off while the connection is lost. */
  offer() {
    const lost = this.store.get('connection').state === 'lost';
    for (const each of document.querySelectorAll('[data-act]')) each.disabled = lost;
  }

  /** A menu closes when something in it is chosen, by a click elsewhere and by Escape. */
  closeMenus(target = null) {
    if (!target || !this.search.element.contains(target)) this.search.close();
    const open = [...document.querySelectorAll('details.menu[open]')].filter((menu) => !target || !menu.contains(target) || target.closest('.menu-list :is(a, button)'));
    for (const menu of open) menu.open = false;
    return open;
  }

  count() {
    const revision = this.store.get('revision');
    text(this.revision, revision === null ? '' : `rev ${number(revision)}`);
  }

  connection() {
    const { state, since, attempt, retryAt, at } = this.store.get('connection');
    if (state === 'live' && this.state === state) return; // only its time changed, with every event
    this.state = state;
    const revision = this.store.get('revision'), lost = state === 'lost';
    document.body.classList.toggle('lost', lost);
    this.offer();
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
    this.notify(status);
    for (const element of this.element.querySelectorAll('.tabs [data-view]')) {
      const view = this.views.find((each) => each.name === element.dataset.view);
      if (view.count) text(element.querySelector('.count'), view.count(status, this.store) || '');
    }
    for (const [view, { count }] of this.links) if (view.count) text(count, view.count(status, this.store) || '');
  }

  second() {
    text(this.clock, hourOf(Date.now()));
    set(this.clock, { title: exact(Date.now()) });
    tick(this.main);
    if (this.store.get('connection').state === 'lost') this.connection();
  }

  key(event) {
    if (event.key === 'Escape') this.closeMenus()[0]?.querySelector('summary').focus();
    if (event.target.closest?.(INPUTS) || event.metaKey || event.ctrlKey || event.altKey) return;
    if (this.prefix) {
      this.prefix = false;
      const view = this.views.find((each) => each.key === event.key);
      if (view) { event.preventDefault(); this.go(this.href(view.name)); }
    } else if (event.key === 'g') this.prefix = true;
    else if (event.key === '/') { event.preventDefault(); this.search.focus(); }
    else if (event.key === '?') this.help();
    else if (event.key === 'n' && this.store.get('session').role !== 'read' && this.state !== 'lost') { event.preventDefault(); createTask(this.context()); }
    else if (this.opened?.key?.(event)) event.preventDefault();
  }

  /** What acts of the frame need of a view's context. */
  context() {
    const session = this.store.get('session');
    return { api: this.api, store: this.store, session: { role: session.role, name: session.actor ?? session.name }, go: (...to) => this.go(this.href(...to)) };
  }

  close() {
    document.removeEventListener('click', this.away);
    clearInterval(this.timer);
    for (const end of this.ends) end();
    document.removeEventListener('keydown', this.press);
  }
}

