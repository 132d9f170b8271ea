// What can be done with a task, by its status, its holder and the role of the viewer.

import { agentNames, answer, approve, attempt, closeTask, reject } from './acts.js';
import { seg } from './api.js';
import { ask } from './dialog.js';
import { clip, h } from './dom.js';
import { hourOf, now } from './format.js';
import { diffBlock } from './sentences.js';

const TTL = 1800; // seconds of a claim from the page
const TYPES = ['task', 'bug', 'feature', 'chore', 'epic'];
const who = (context) => `${context.session.name}, ${context.session.role}`;
const path = (task) => `/tasks/${seg(task.id)}`;
const words = (text) => text.split(/[\s,]+/).filter(Boolean);

/** Ask for a new task and open it. */
export const createTask = (context, parent = null) => ask({
  title: parent ? `New task below ${parent}` : 'New task', lasting: true, verb: 'Create', as: who(context),
  fields: [{ name: 'title', label: 'Title', required: true }, { name: 'body', label: 'Body, Markdown', area: true }, { name: 'priority', label: 'Priority', options: ['0', '1', '2', '3', '4'], value: '2' }, { name: 'tags', label: 'Tags, with spaces between' }],
  act: async ({ title, body, priority, tags }) => {
    const made = await context.api.post('/tasks', { title, body, priority: Number(priority), tags: words(tags), ...(parent && { parent_id: parent }) });
    context.go('task', made.id);
  },
});

const claim = (context, task) => ask({
  title: `Claim ${task.id}?`, text: `${task.title} will be yours until ${hourOf(now() + TTL * 1000)}, unless you finish or release it before.`, verb: 'Claim', as: who(context),
  act: () => context.api.post(`${path(task)}/claim`, { ttl: TTL }),
});

const assign = async (context, task) => ask({
  title: `Assign ${task.id}?`, text: 'Only this agent can claim it then.', verb: 'Assign', as: who(context),
  field: { label: 'Agent', options: await agentNames(context) }, act: (assignee) => context.api.put(`${path(task)}/assignee`, { assignee }),
});

const reason = (verb, what, text, address, force = false, extra = {}) => (context, task) => ask({
  title: `${verb} ${task.id}${force ? ' by force' : ''}?`, text, verb: force ? `${verb} by force` : verb === 'Cancel' ? 'Cancel task' : verb, force, as: who(context),
  field: { label: what, required: verb === 'Block' || force, area: !force }, act: (given) => context.api.post(`${path(task)}/${address}`, { reason: given || null, ...extra }),
});

const release = reason('Release', 'Reason', 'It becomes open again, and others can claim it.', 'release');
const force = reason('Release', 'Reason, kept in the log', 'Its holder loses it; late writes of the holder will be fenced.', 'release', true, { force: true });
const block = reason('Block', 'Why nobody can go on', 'It waits until somebody unblocks it; the reason is shown to people.', 'block');
const cancel = reason('Cancel', 'Reason', 'It is closed without being done; what waits for it can go on.', 'cancel');
const reopen = reason('Reopen', 'Reason', 'It becomes open again.', 'reopen');

const done = (context, task) => ask({
  title: `Complete ${task.id}?`, text: 'It is closed, or goes to review if its route wants one.', verb: 'Complete', as: who(context), field: { label: 'Summary', area: true },
  act: (summary) => context.api.post(`${path(task)}/complete`, { summary: summary || null }),
});

const FIELDS = ['title', 'body', 'priority', 'type'];

/** What somebody else changed while a task was edited. Saved again, what is in the dialog counts. */
function conflict(before, now_, mine) {
  const theirs = FIELDS.filter((name) => now_[name] !== before[name]), both = theirs.filter((name) => name in mine);
  const error = new Error('somebody else changed it');
  error.shown = [h('p', null, 'Somebody else changed it meanwhile. ', both.length ? 'Save again to put yours in place of theirs, or cancel to keep theirs.' : 'Save again to keep both.'),
    theirs.map((name) => (name === 'body' ? [h('b', null, 'body'), diffBlock(before.body, now_.body)] : h('p', null, h('b', null, name), ` ${clip(String(before[name]), 100)} → ${clip(String(now_[name]), 100)}`)))];
  return error;
}

const edit = async (context, shown) => {
  let task = await context.api.get(path(shown)); // what is on the screen may be a moment old
  const first = { ...task, body: task.body.trim(), title: task.title.trim() };
  return ask({
    title: `Edit ${task.id}`, text: 'If somebody else changes it meanwhile, you see how before it is saved.', verb: 'Save', lasting: true, as: who(context),
    fields: [{ name: 'title', label: 'Title', value: task.title, required: true }, { name: 'body', label: 'Body, Markdown', value: task.body, area: true }, { name: 'priority', label: 'Priority', options: ['0', '1', '2', '3', '4'], value: String(task.priority) }, { name: 'type', label: 'Type', options: [...new Set([...TYPES, task.type])], value: task.type }],
    act: async ({ priority, ...rest }) => {
      const wanted = { ...rest, priority: Number(priority) }, mine = Object.fromEntries(FIELDS.filter((name) => wanted[name] !== first[name]).map((name) => [name, wanted[name]]));
      if (!Object.keys(mine).length) return undefined;
      try { return await context.api.patch(path(task), { ...mine, expected: task.version }); } catch (error) {
        if (error.code !== 'VERSION_MISMATCH') throw error;
        const before = task;
        task = await context.api.get(path(task));
        throw conflict(before, task, mine);
      }
    },
  });
};

const tag = (context, task) => ask({
  title: `Tags of ${task.id}`, lasting: true, verb: 'Save', as: who(context), field: { label: 'Tags, with spaces between', value: task.tags.join(' ') },
  act: (tags) => context.api.put(`${path(task)}/tags`, { tags: words(tags) }),
});

const depend = (context, task) => ask({
  title: `What does ${task.id} wait for?`, lasting: true, text: 'It becomes ready when that is closed.', verb: 'Depend', as: who(context), field: { label: 'Id of the other task', required: true },
  act: (on) => context.api.post(`${path(task)}/dependencies`, { on }),
});

const named = (id, label, run, more = {}) => ({ id, label, run, ...more });

/** The acts of a task, in the order of harmlessness: {id, label, key, run(context, task), kind, more}. `more`: in the menu. */
export function actsOf(context, task) {
  if (!context.may('agent') || task.deleted_at) return [];
  const mine = task.claimed_by === context.session.name, { status } = task;
  const open = status === 'open', held = status === 'in_progress', blocked = status === 'blocked', review = status === 'pending_merge';
  const fit = [
    named('edit', 'edit', edit, { key: 'e' }),
    open && named('claim', 'claim', claim, { key: 'c', kind: 'act' }),
    held && mine && named('done', 'done', done, { key: 'd', kind: 'act' }),
    held && mine && named('release', 'release', release, { key: 'r' }),
    review && named('approve', 'approve', (c, t) => approve(c, t.id), { kind: 'act' }),
    review && named('reject', 'reject', (c, t) => reject(c, t.id, t.title)),
    blocked && named('answer', 'unblock', (c, t) => answer(c, t.id, t.title), { kind: 'act' }),
    status === 'closed' && named('reopen', 'reopen', reopen, { kind: 'act' }),
    named('depend', 'depend', depend),
    open && named('assign', 'assign', assign),
    named('tag', 'tags', tag, { more: true }),
    named('child', 'new task below', (c, t) => createTask(c, t.id), { more: true }),
    held && mine && named('block', 'block', block, { key: 'x', more: true }),
    (open || blocked) && named('close', 'close', (c, t) => closeTask(c, t.id, t.title), { key: 'd', more: true }),
    (open || blocked) && named('cancel', 'cancel', cancel, { more: true }),
    held && !mine && context.may('admin') && named('force', 'force release', force, { kind: 'force' }),
  ];
  return fit.filter(Boolean);
}

/** Write a note. */
export const note = (context, task, text) => attempt(() => context.api.post(`${path(task)}/note`, { text }));
