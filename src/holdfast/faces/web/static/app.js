// The page: signs in, opens the stream, draws the frame and shows the view that the address names.

import { Api } from './api.js';
import { clip, h, put } from './dom.js';
import { setClock } from './format.js';
import { Frame } from './frame.js';
import { href, parse, route } from './router.js';
import { elsewherePage, forget, keep, kept, namePage, onChange, renew, signIn, signInPage, signOut, takeTicket } from './sign_in.js';
import { paced, Store } from './store.js';
import { connect } from './stream.js';
import { VIEWS } from './views.js';

const MOST = 2000; // events that wait for a frame: beyond that a view asks for everything again
const PACE = 100; // milliseconds between two updates of a view
const POLL = 5000; // milliseconds between calls of status() while the page is visible
// Scripts of this page alone may become workers.
const policy = globalThis.trustedTypes?.createPolicy('holdfast', { createScriptURL: (url) => {
  if (url !== new URL('./worker.js', import.meta.url).href) throw new TypeError('not a script of this page');
  return url;
} });

class Page {
  constructor(session, workspace) {
    this.store = new Store({ session, workspace, connection: { state: 'connecting', at: null }, revision: null, status: null });
    this.api = new Api(session, workspace, (reason) => start({ message: reason ?? 'this session has ended', hint: 'run holdfast ui for a new link' }));
    this.pending = [];
    this.reload = false;
    this.view = null;
    this.status = paced(() => this.ask());
    this.timer = setInterval(() => { if (!document.hidden) this.status.ask(); }, POLL);
    this.visible = () => { if (!document.hidden) { this.status.ask(); this.soon(); } };
    document.addEventListener('visibilitychange', this.visible);
    const worker = new URL('./worker.js', import.meta.url).href;
    this.stream = connect(policy?.createScriptURL(worker) ?? worker, workspace, this.api.headers(), (message) => this.hear(message));
    this.frame = new Frame(this.store, this.api, VIEWS, { href: (...to) => href(workspace, ...to), go, retry: () => this.stream.retry(), signOut: () => leave(session) });
    put(document.body, this.frame.element);
    this.status.ask();
  }

  /** What cannot be told from events: renewals, who was seen when, refusals. */
  async ask() {
    const midnight = new Date();
    midnight.setHours(0, 0, 0, 0);
    try {
      const status = await this.api.get('/status', { midnight: midnight.toISOString() });
      setClock(status.time);
      this.store.set({ status, revision: Math.max(status.revision, this.store.get('revision') ?? 0) });
    } catch (error) { if (error.code !== 'UNREACHABLE' && error.code !== 'UNAUTHORIZED') throw error; }
  }

  hear(message) {
    if (message.type === 'state') {
      const { type: _, ...connection } = message;
      const was = this.store.get('connection').state;
      this.store.set({ connection });
      if (connection.state === 'ended') return start({ message: 'this session has ended', hint: 'run holdfast ui for a new link' });
      if (connection.state === 'live' && was === 'lost') this.status.ask();
    } else if (message.type === 'gap') {
      this.reload = true;
    } else if (message.type === 'events') {
      this.pending.push(...message.events);
      if (this.pending.length > MOST) { this.reload = true; this.pending.splice(0, this.pending.length - 1); }
    }
    this.soon();
  }

  /** Show what came, with the next frame, at most ten times a second: a thousand changes cost little more than ten. */
  soon() {
    if (this.planned || document.hidden || (!this.pending.length && !this.reload)) return;
    this.planned = true;
    setTimeout(() => requestAnimationFrame(() => {
      this.planned = false;
      this.drawn = performance.now();
      const change = { events: this.pending, reload: this.reload };
      this.pending = [];
      this.reload = false;
      const newest = change.events.at(-1);
      if (newest) this.store.set({ revision: Math.max(newest.revision, this.store.get('revision') ?? 0), connection: { ...this.store.get('connection'), at: Date.now() } });
      this.status.ask();
      this.view?.update?.(change);
    }), Math.max(0, (this.drawn ?? 0) + PACE - performance.now()));
  }

  /** Show what the address names. */
  open({ view: name, rest, query }) {
    const found = VIEWS.find((each) => each.name === name) ?? missing(name);
    this.view?.close?.();
    this.ending?.abort();
    const ending = this.ending = new AbortController();
    const { workspace, session } = { workspace: this.store.get('workspace'), session: this.store.get('session') };
    const ranks = ['read', 'agent', 'admin'], may = (role) => ranks.indexOf(session.role) >= ranks.indexOf(role);
    this.view = found.open({
      workspace, rest, query, api: this.api, store: this.store, signal: ending.signal,
      session: { role: session.role, name: session.role === 'read' ? null : session.actor ?? session.name },
      may, can: (role) => may(role) && this.store.get('connection').state !== 'lost',
      href: (...to) => href(workspace, ...to),
      go: (...to) => go(href(workspace, ...to)),
      setQuery: (given, { step = false } = {}) => {
        const params = new URLSearchParams(Object.entries(given).filter(([, value]) => value));
        history[step ? 'pushState' : 'replaceState'](null, '', location.pathname + (params.size ? `?${params}` : ''));
      },
    });
    this.frame.show(found, this.view);
  }

  close() {
    this.ending?.abort();
    this.view?.close?.();
    this.stream.close();
    this.status.close();
    clearInterval(this.timer);
    document.removeEventListener('visibilitychange', this.visible);
    this.frame.close();
  }
}

/** The view of an address that names none. */
const missing = (name) => ({ name: '', title: 'No such page', open: ({ href: to }) => ({ element: h('div.view', null, h('h1', null, 'No such page'),
  h('p', null, 'There is no view ', h('b.text', null, clip(name, 80)), '. There are ', VIEWS.filter((each) => each.icon).map((each, n) => [n > 0 && ', ', h('a.link', { href: to(each.name) }, each.title)]), '.')) }) });

let page = null;
const go = route(() => show());

function show() {
  const session = kept();
  if (!session) return start();
  const wanted = parse(location);
  const first = session.workspaces[0] ?? '';
  if (!wanted.named || !wanted.view) return go(href(wanted.named ? wanted.workspace : first, VIEWS[0].name), { replace: true });
  if (!session.workspaces.includes(wanted.workspace)) {
    page?.close();
    page = null;
    return put(document.body, elsewherePage(wanted.workspace, session.workspaces.map((name) => [name || 'main', href(name, VIEWS[0].name)]), () => leave(session)));
  }
  if (!session.actor && !session.name && session.role !== 'read') return ask(session, wanted.workspace);
  if (!page || page.store.get('workspace') !== wanted.workspace || page.store.get('session').secret !== session.secret) {
    page?.close();
    page = new Page(session, wanted.workspace);
  }
  page.open(wanted);
}

/** Ask for the name of a person, once. */
function ask(session, workspace) {
  put(document.body, namePage(async (name) => {
    const api = new Api({ ...session, name }, workspace);
    const agents = await api.get(`/agents/${encodeURIComponent(name)}`).catch((error) => { if (error.status === 404) return null; throw error; });
    if (agents && agents.registered_at && !['person', 'maintainer'].includes(agents.role)) throw new Error(`the name ${name} belongs to an agent: choose another one`);
    if (!agents || agents.role === 'agent') await api.post('/agents', { name, role: 'person' });
    keep({ ...session, name });
    show();
  }));
}

async function leave(session) {
  await signOut(session);
  start();
}

/** Begin: with the ticket of the address, the session that is kept, or the form. */
async function start(failure = null) {
  page?.close();
  page = null;
  const ticket = takeTicket();
  if (ticket) {
    try { await signIn({ ticket }); return show(); } catch (error) { failure = error; }
  }
  const session = kept();
  if (session && !failure) {
    show(); // with what is kept; what the session may see now is asked beside it
    try {
      const fresh = await renew(session);
      if (['role', 'actor', 'workspaces'].every((name) => JSON.stringify(fresh[name]) === JSON.stringify(session[name]))) return undefined;
      keep({ ...kept(), ...fresh });
      page?.close();
      page = null;
      return show();
    } catch (error) {
      if (error.code === 'UNREACHABLE') return undefined;
      page?.close();
      page = null;
      forget();
      failure = error;
    }
  } else if (failure && !ticket) forget();
  document.title = 'Sign in · Holdfast';
  put(document.body, signInPage(() => show(), failure));
}

addEventListener('hashchange', () => { if (location.hash.startsWith('#ticket=')) start(); });
onChange(() => { if (!kept()) start(); else if (!page) show(); });
start();

