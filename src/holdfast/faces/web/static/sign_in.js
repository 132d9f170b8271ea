// Signing in, without cookies: a link with a ticket, or a token. The session is kept in localStorage of this origin.

import { explain, ApiError, Unreachable } from './api.js';
import { h, put } from './dom.js';
import { icon, shape } from './shapes.js';

const KEPT = 'holdfast.session';
const LONGEST = 1000; // characters that are taken for a token

/** The session that this browser keeps, or null. */
export function kept() {
  try {
    const session = JSON.parse(localStorage.getItem(KEPT));
    return session?.secret && Date.parse(session.expires_at) > Date.now() ? session : null;
  } catch { return null; }
}

export function keep(session) { localStorage.setItem(KEPT, JSON.stringify(session)); }
export function forget() { localStorage.removeItem(KEPT); }

/** Call a function when another tab signs in or out. */
export function onChange(listener) { addEventListener('storage', (event) => { if (event.key === KEPT) listener(); }); }

async function request(method, body, secret) {
  let answer;
  try {
    answer = await fetch('/ui/session', {
      method, credentials: 'omit', cache: 'no-store',
      headers: { ...(body && { 'content-type': 'application/json' }), ...(secret && { authorization: `Bearer ${secret}` }) },
      body: body && JSON.stringify(body),
    });
  } catch { throw new Unreachable(); }
  const data = answer.status === 204 ? null : await answer.json();
  if (!answer.ok) throw new ApiError(answer.status, data);
  return data;
}

/** What a kept session may do now. */
export const renew = async (session) => ({ ...session, ...(await request('GET', null, session.secret)) });

/** End the session at the server and here. */
export async function signOut(session) {
  forget();
  await request('DELETE', null, session.secret).catch(() => {});
}

/** Take the ticket out of the address, at once; null if there is none. */
export function takeTicket() {
  const found = /^#ticket=([A-Za-z0-9_-]+)$/.exec(location.hash);
  if (!found) return null;
  history.replaceState(null, '', location.pathname + location.search);
  return found[1];
}

/** Exchange a ticket or token for a session, and keep it. */
export async function signIn(credentials) {
  const session = await request('POST', credentials);
  keep(session);
  return session;
}

/** The page that signs in; done(session) is called once it has. `failure` is an error to show. */
export function signInPage(done, failure = null) {
  const reason = h('div.note-red', { role: 'alert', hidden: failure === null });
  const show = (error) => { put(reason, shape('trouble'), h('span', null, h('b', null, explain({ ...error, message: error.message, hint: '' })), error.hint && ` ${explain({ message: error.hint })}`)).hidden = false; };
  if (failure) show(failure);
  const token = h('input', { type: 'password', id: 'token', autocomplete: 'off', spellcheck: 'false', required: true });
  const refused = h('p.note-red', { role: 'alert', hidden: true });
  const form = h('form.sign-in-form', null,
    h('label', { for: 'token' }, 'Or paste a token'), token,
    h('p.hint', null, 'Kept in this browser for 12 hours, never in a cookie. A token of role read sees, agent acts in its own name, admin also forces.'),
    refused, h('button.primary.large', { type: 'submit' }, 'Sign in'));
  form.addEventListener('submit', async (event) => {
    event.preventDefault();
    const given = token.value.trim();
    try { if (given.length > LONGEST) throw new Error(`that is no token: it has ${given.length} characters. Paste what holdfast token create printed`); done(await signIn({ token: given })); } catch (error) {
      put(refused, shape('trouble'), h('span', null, explain(error))).hidden = false;
    }
  });
  return h('main.sign-in', null,
    h('div.brand', null, icon('brand', 24), 'Holdfast'),
    h('div.panel', null,
      h('section', null, h('h1', null, 'Sign in to this server'),
        h('p', null, 'The quickest way is a link from your machine. It works once, for 10 minutes.'),
        command('holdfast ui'), reason),
      h('section', null, form)),
    h('p.hint', null, location.host));
}

/** The page that asks once for a name, for a token that is bound to none. save(name) may raise. */
export function namePage(save) {
  const name = h('input', { type: 'text', id: 'name', autocomplete: 'username', spellcheck: 'false', required: true, maxlength: 64 });
  const refused = h('p.note-red', { role: 'alert', hidden: true });
  const form = h('form.sign-in-form', null, h('label', { for: 'name' }, 'Your name'), name,
    h('p.hint', null, 'Agents see it: what you do here is done in this name, and mail to it reaches you. It is registered as a person.'),
    refused, h('button.primary.large', { type: 'submit' }, 'Go on'));
  name.addEventListener('input', () => { refused.hidden = true; });
  form.addEventListener('submit', async (event) => {
    event.preventDefault();
    try { await save(name.value.trim()); } catch (error) {
      put(refused, shape('trouble'), h('span', null, explain(error))).hidden = false;
    }
  });
  queueMicrotask(() => name.focus());
  return h('main.sign-in', null, h('div.brand', null, icon('brand', 24), 'Holdfast'),
    h('div.panel', null, h('section', null, h('h1', null, 'Who are you?'), form)), h('p.hint', null, location.host));
}

/** The page of a workspace that does not exist, or that the token may not see; `spaces` are [[words, address]] that it may. */
export const elsewherePage = (name, spaces, leave) => h('main.sign-in', null, h('div.brand', null, icon('brand', 24), 'Holdfast'),
  h('div.panel', null, h('section', null, h('h1', null, 'No such workspace'), h('p', null, 'There is no ', h('b.text', null, name || 'main'), ' here that your token may see.'),
    spaces.map(([words, address]) => h('p', null, h('a.link', { href: address }, words))), h('button.large', { on: { click: leave } }, 'Sign out'))), h('p.hint', null, location.host));

/** A command to copy. */
export function command(words) {
  const copy = h('button', { type: 'button', on: { click: async () => {
    await navigator.clipboard?.writeText(words);
    put(copy, 'copied');
    setTimeout(() => put(copy, 'copy'), 1500);
  } } }, 'copy');
  return h('div.command', null, h('span', null, h('span.ink-3', { 'aria-hidden': 'true' }, '$ '), words), copy);
}
