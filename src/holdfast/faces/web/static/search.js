// Search: tasks by words, by id or by filters such as status:blocked, and agents by name.

import { explain, seg } from './api.js';
import { clip, h, keyed } from './dom.js';
import { stateOfTask, wordOfStatus } from './sentences.js';
import { icon, shape } from './shapes.js';

const MOST = 8; // tasks that are shown
const FILTER = /^(status|tag|holder|type|priority):(\S+)$/i;
const GROUPS = ['ready', 'waiting']; // what an open task can be: columns of the board
const STATUS = { review: 'pending_merge', held: 'in_progress', 'in-progress': 'in_progress' };

/** What is typed: {filters: {status, tag, holder, type, priority}, text}. */
export function parseSearch(typed) {
  const filters = {}, words = [];
  for (const word of typed.trim().split(/\s+/)) {
    const found = FILTER.exec(word);
    if (found) filters[found[1].toLowerCase()] = found[2]; else words.push(word);
  }
  return { filters, text: words.join(' ') };
}

/** The tasks that are meant; the last word may be the beginning of one. Raises what the server refuses. */
async function findTasks(api, typed) {
  const { filters: { status, holder, priority, ...rest }, text } = parseSearch(typed);
  const plain = text.replace(/["*]/g, ' ').trim(), words = /[\p{L}\p{N}]/u.test(plain) ? `${plain}*` : null;
  const query = { ...rest, priority: priority?.replace(/^p/i, ''), text: words, limit: MOST };
  if (GROUPS.includes(status)) return (await api.get('/board', { ...query, column: status, holder })).map((card) => ({ ...card, status: 'open', ready: status === 'ready' }));
  if (status || holder || priority || Object.keys(rest).length) return api.get('/tasks', { ...query, status: STATUS[status] ?? status, claimed_by: holder });
  const [hits, exactly] = await Promise.all([words ? api.get('/tasks/search', { text: words, limit: MOST }) : [], /^\S+$/.test(text) ? api.get(`/tasks/${seg(text)}`).catch(() => null) : null]);
  return [...(exactly ? [exactly] : []), ...hits.map((hit) => hit.task).filter((task) => task.id !== exactly?.id)];
}

/** The box in the top bar: {element, focus, close}; close hides what was found. `agents()` returns those that are known. */
export function searchBox(api, href, agents) {
  const list = h('div.search-list', { role: 'listbox', id: 'found', 'aria-label': 'found', hidden: true });
  let asked = 0, timer = 0;
  const close = () => { asked += 1; list.hidden = true; input.setAttribute('aria-expanded', 'false'); };
  const look = async () => {
    const typed = input.value.trim(), number = ++asked;
    if (!typed) { close(); return; }
    let failure = 'nothing found';
    const tasks = await findTasks(api, typed).catch((error) => { failure = explain(error); return []; });
    if (number !== asked) return;
    const people = agents().filter((agent) => agent.name.toLowerCase().includes(typed.toLowerCase())).slice(0, 3);
    const found = [...tasks.map((task) => ({ key: task.id, to: href('task', task.id), parts: [shape(stateOfTask(task), 14, wordOfStatus(task.status)), h('span.mono.ink-2', null, task.id), h('span.one', null, clip(task.title))] })),
      ...people.map((agent) => ({ key: `agent ${agent.name}`, to: agent.task ? href('task', agent.task) : `${href('log')}?actor=${encodeURIComponent(agent.name)}`, parts: [icon('fleet', 14), h('b', null, agent.name), h('span.ink-3.one', null, agent.title ?? 'no task')] }))];
    keyed(list, found.length ? found : [{ key: failure }], (each) => each.key, (each) => (each.to ? h('a', { href: each.to, role: 'option', on: { click: close } }, each.parts) : h('span.ink-3', { role: 'option', 'aria-disabled': 'true' }, each.key)), () => {});
    list.hidden = false;
    input.setAttribute('aria-expanded', 'true');
  };
  const input = h('input', { type: 'search', placeholder: 'Search tasks, agents', title: 'words, an id, or status: tag: holder: type: priority:', 'aria-label': 'search', autocomplete: 'off', maxlength: 500, role: 'combobox', 'aria-expanded': 'false', 'aria-controls': 'found', on: {
    input: () => { clearTimeout(timer); timer = setTimeout(look, 120); },
    focus: () => { if (input.value) look(); },
    keydown: (event) => {
      if (event.key === 'Escape') { close(); input.blur(); }
      if (event.key === 'ArrowDown') { event.preventDefault(); list.querySelector('a')?.focus(); }
      if (event.key === 'Enter') list.querySelector('a')?.click();
    },
  } });
  list.addEventListener('keydown', (event) => {
    const next = { ArrowDown: 'nextElementSibling', ArrowUp: 'previousElementSibling' }[event.key];
    if (next) { event.preventDefault(); (document.activeElement[next] ?? input).focus(); }
    if (event.key === 'Escape') { close(); input.focus(); }
  });
  return { element: h('div.search', { role: 'search' }, h('span.search-box', null, shape('search'), input, h('kbd', null, '/')), list), focus: () => input.focus(), close };
}
