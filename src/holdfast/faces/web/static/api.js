// Calls of operations. A page is a client like any other: it has the rights of its session and nothing else.

import { exact, hourOf, now } from './format.js';

/** A refusal or failure of the server: `message` says what is wrong, `hint` what to do, `code` names it. */
export class ApiError extends Error {
  constructor(status, body) {
    super(body.error ?? `the server answered ${status}`);
    this.status = status;
    this.code = body.code ?? '';
    this.hint = body.hint ?? '';
    this.details = body.details ?? {};
  }
}

/** The server cannot be reached. */
export class Unreachable extends Error {
  constructor() { super('the server cannot be reached'); this.code = 'UNREACHABLE'; this.hint = 'wait for the connection, then try again'; }
}

export class Api {
  /** `signedOut` is called when the session has ended. */
  constructor(session, workspace, signedOut = () => {}) {
    this.session = session;
    this.base = workspace ? `/${workspace}` : '';
    this.signedOut = signedOut;
  }

  headers() {
    const { secret, name, actor } = this.session;
    const headers = { authorization: `Bearer ${secret}` };
    if (name && !actor) headers['x-agent-id'] = encodeURIComponent(name);
    return headers;
  }

  /**
   * Call an operation: path below /api, such as `/tasks/${seg(id)}`. `query` and `body` are objects; null and undefined
   * in a query are left out. Returns {data, cursor, total}. Raises ApiError or Unreachable.
   */
  async call(method, path, { query, body, headers, signal } = {}) {
    let address = `${this.base}/api${path}`;
    const given = Object.entries(query ?? {}).filter(([, value]) => value !== null && value !== undefined);
    if (given.length) {
      const params = new URLSearchParams();
      for (const [name, value] of given) for (const each of [value].flat()) params.append(name, each);
      address += `?${params}`;
    }
    const sent = { ...this.headers(), ...headers };
    if (body !== undefined) sent['content-type'] = 'application/json';
    let answer;
    try {
      answer = await fetch(address, { method, headers: sent, signal, body: body === undefined ? undefined : JSON.stringify(body), credentials: 'omit', cache: 'no-store' });
    } catch (error) {
      if (error.name === 'AbortError') throw error;
      throw new Unreachable();
    }
    const text = await answer.text();
    const data = text && (answer.headers.get('content-type') ?? '').includes('json') ? JSON.parse(text) : text || null;
    if (answer.status === 401) this.signedOut(data?.error);
    if (!answer.ok) throw new ApiError(answer.status, data && typeof data === 'object' ? data : {});
    const total = answer.headers.get('x-total-count');
    return { data, cursor: answer.headers.get('x-next-cursor'), total: total === null ? null : Number(total) };
  }

  async get(path, query, options) { return (await this.call('GET', path, { query, ...options })).data; }
  async page(path, query, options) { return this.call('GET', path, { query, ...options }); }
  async post(path, body = {}) { return (await this.call('POST', path, { body })).data; }
  async put(path, body = {}) { return (await this.call('PUT', path, { body })).data; }
  async patch(path, body = {}) { return (await this.call('PATCH', path, { body })).data; }
  async delete(path, query) { return (await this.call('DELETE', path, { query })).data; }
}

/** A name as a segment of a path. */
export function seg(name) {
  const encoded = encodeURIComponent(name);
  return /^\.+$/.test(encoded) ? encoded.replaceAll('.', '%2E') : encoded;
}

// What to do, where the server tells a program how to call it.
const INSTEAD = {
  ALREADY_CLAIMED: 'take another one', TASK_NOT_FOUND: 'the search finds tasks by words or id', HELD: 'wait for it, or write to its holder',
};
const FOR_PROGRAMS = /\b(?:GET|POST|PUT|PATCH|DELETE) \/|\bheaders?\b|Content-|\b\w+=\w/i;
const TIMES = /\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:\d\d)/g;

/** What a person reads of an error: no addresses and headers, and times as on a clock. */
export function explain({ message, hint, code }) {
  const said = (words) => sentence(words.replace(TIMES, (iso) => (Math.abs(now() - Date.parse(iso)) < 43_200_000 ? hourOf : exact)(iso)));
  const long = /TOO_LARGE$/.test(code) && /Content-Length|\bheaders\b/.test(message); // told of the request, not of what is in it
  const what = said(long ? 'it is too long for the server: shorten it' : message), then = long || (hint && FOR_PROGRAMS.test(hint)) ? INSTEAD[code] : hint;
  return then ? `${what} ${said(then)}` : what;
}

function sentence(words) {
  const text = words.charAt(0).toUpperCase() + words.slice(1);
  return /[.?!]$/.test(text) ? text : `${text}.`;
}
