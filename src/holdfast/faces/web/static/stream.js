// The events of a workspace, live: read with fetch (which can send a Bearer token), resumed from the cursor after a
// lost connection, so that nothing is missed and nothing comes twice. One SharedWorker reads for all tabs of a browser.

const WAITS = [500, 1000, 2000, 4000, 5000]; // milliseconds before an attempt
const SILENCE = 25_000; // the server sends a bookmark every 10 s: without one the connection is dead

/** Parse server-sent events. push(text) returns whole frames: {event, id, data}. */
export class Frames {
  #rest = '';
  push(text) {
    this.#rest += text;
    const parts = this.#rest.split('\n\n');
    this.#rest = parts.pop();
    return parts.map((part) => {
      const frame = { event: 'message', id: null, data: '' };
      for (const line of part.split('\n')) {
        const at = line.indexOf(': ');
        if (at > 0) frame[line.slice(0, at)] = line.slice(at + 2);
      }
      return frame;
    });
  }
}

/** Whether cursor a (revision-position, or revision) is after b. */
export function isAfter(a, b) {
  if (b === null) return true;
  const [x, p] = a.split('-').map(Number), [y, q] = b.split('-').map(Number);
  return x > y || (x === y && (p ?? Infinity) > (q ?? Infinity));
}

/**
 * One stream. tell(message) gets {type: 'events', events}, {type: 'state', ...connection} and {type: 'gap'}, after which
 * everything must be asked for again, because the log was compacted beyond the cursor.
 */
export class Stream {
  constructor(path, headers, tell, cursor = null) {
    this.path = path;
    this.headers = headers;
    this.tell = tell;
    this.cursor = cursor;
    this.connection = { state: 'connecting', at: null, since: null, attempt: 0, retryAt: null };
    this.closed = false;
    this.run();
  }

  say(facts) {
    this.connection = { ...this.connection, ...facts };
    this.tell({ type: 'state', ...this.connection, cursor: this.cursor });
  }

  async run() {
    while (!this.closed) {
      let reason = 'lost';
      try { reason = await this.read(); } catch { reason = 'lost'; }
      if (this.closed) return;
      if (reason === 'ended') { this.say({ state: 'ended' }); return; }
      const { attempt, since } = this.connection;
      const wait = WAITS[Math.min(attempt, WAITS.length - 1)];
      this.say({ state: 'lost', since: since ?? Date.now(), attempt: attempt + 1, retryAt: Date.now() + wait });
      await new Promise((resolve) => { this.wake = resolve; this.timer = setTimeout(resolve, wait); });
      clearTimeout(this.timer);
    }
  }

  /** Read until the connection ends; returns 'lost' or 'ended'. */
  async read() {
    const abort = this.abort = new AbortController();
    let alive = setTimeout(() => abort.abort(), SILENCE);
    const headers = { ...this.headers, accept: 'text/event-stream' };
    if (this.cursor !== null) headers['last-event-id'] = this.cursor;
    try {
      const answer = await fetch(`${this.path}/api/events`, { headers, signal: abort.signal, credentials: 'omit', cache: 'no-store' });
      if (answer.status === 401 || answer.status === 403) return 'ended';
      if (answer.status === 410) { this.cursor = null; this.tell({ type: 'gap' }); return 'lost'; }
      if (!answer.ok) return 'lost';
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      const frames = new Frames();
      for (;;) {
        const { value, done } = await reader.read();
        if (done) return 'lost';
        clearTimeout(alive);
        alive = setTimeout(() => abort.abort(), SILENCE);
        const reason = this.take(frames.push(value));
        if (reason) return reason;
      }
    } finally { clearTimeout(alive); abort.abort(); }
  }

  take(frames) {
    const events = [];
    let reason = null;
    for (const { event, id, data } of frames) {
      if (event === 'message') {
        if (id !== null && isAfter(id, this.cursor)) events.push(JSON.parse(data));
      } else if (event === 'error') {
        const failure = JSON.parse(data);
        if (failure.code === 'UNAUTHORIZED') reason = 'ended';
        else { this.cursor = null; this.tell({ type: 'gap' }); reason = 'lost'; }
        continue;
      }
      if (id !== null) this.cursor = id;
    }
    if (events.length) this.tell({ type: 'events', events });
    const live = { state: 'live', at: Date.now(), since: null, attempt: 0, retryAt: null };
    if (this.connection.state !== 'live') this.say(live);
    else if (frames.length) this.connection = live;
    return reason;
  }

  retry() { this.wake?.(); }
  close() { this.closed = true; this.abort?.abort(); this.wake?.(); }
}

/** The stream of a workspace for this tab: through the SharedWorker where there is one, else by itself. */
export function connect(script, workspace, headers, tell) {
  const path = workspace ? `/${workspace}` : '';
  if (typeof SharedWorker === 'undefined') {
    const stream = new Stream(path, headers, tell);
    return { retry: () => stream.retry(), close: () => stream.close() };
  }
  const worker = new SharedWorker(script, { type: 'module', name: `holdfast ${workspace}` });
  const { port } = worker;
  port.onmessage = ({ data }) => tell(data);
  worker.onerror = () => tell({ type: 'state', state: 'lost', at: null, since: Date.now(), attempt: 1, retryAt: null });
  port.postMessage({ type: 'open', path, headers });
  const beat = setInterval(() => port.postMessage({ type: 'here' }), 15_000);
  const close = () => { clearInterval(beat); port.postMessage({ type: 'bye' }); port.close(); };
  addEventListener('pagehide', close, { once: true });
  return { retry: () => port.postMessage({ type: 'retry' }), close };
}
