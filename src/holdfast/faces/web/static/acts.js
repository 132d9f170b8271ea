// Acts on what needs a person: the same dialogs wherever they are offered. Each returns a promise.

import { explain, seg } from './api.js';
import { nameOf } from './agents.js';
import { ask, notice } from './dialog.js';
import { clip } from './dom.js';

const who = (context) => `${context.session.name}, ${context.session.role}`;

/** The agents that are known, also before the frame has heard of them. */
export const agentNames = async (context) => (context.store.get('status') ?? await context.api.get('/status')).agents.map((agent) => agent.name);

/** Call and say so if it is refused. */
export async function attempt(work) {
  try { return await work(); } catch (error) { notice(explain(error), true); return undefined; }
}

const task = (id) => `/tasks/${seg(id)}`;

export const approve = (context, id) => attempt(() => context.api.post(`${task(id)}/approve`));

export const reject = (context, id, title) => ask({
  title: `Reject ${id}?`, text: `${title} goes to blocked; its agent reads why.`, verb: 'Reject', as: who(context),
  field: { label: 'What is missing', area: true, required: true }, act: (reason) => context.api.post(`${task(id)}/reject`, { reason }),
});

export const answer = (context, id, title, reason) => ask({
  title: `Answer ${id}`, text: `${title}: ${reason ? `“${reason}”. ` : ''}It becomes open again, with your answer as a note.`, verb: 'Answer',
  as: who(context), field: { label: 'Answer', area: true, required: true }, act: (note) => context.api.post(`${task(id)}/unblock`, { note }),
});

export const closeTask = (context, id, title) => ask({
  title: `Close ${id}?`, text: `${title} is done or not wanted; what waits for it can go on.`, verb: 'Close', as: who(context),
  field: { label: 'Reason', required: true }, act: (reason) => context.api.post(`${task(id)}/close`, { reason }),
});

export const reply = (context, id, subject) => ask({
  title: `Reply to “${subject}”`, text: 'Your reply also acknowledges it.', verb: 'Reply', as: who(context), field: { label: 'Reply', area: true, required: true },
  act: async (body) => {
    const sent = await context.api.post(`/mail/${seg(id)}/reply`, { body });
    await context.api.post(`/mail/${seg(id)}/ack`).catch((error) => { if (error.status !== 409 && error.status !== 403) throw error; });
    return sent;
  },
});

/** Where a lock is released by force; those of cells and stashes are not, they end by themselves. */
const RELEASES = { path: () => '/paths/release', lock: ({ name }) => `/locks/${seg(name)}/release` };
export const forcible = (lock) => lock.kind in RELEASES;

/** Release a lock by force; `told` says who has it. */
export const releaseLock = (context, lock, told) => ask({
  title: `Release ${clip(nameOf(lock), 60)} by force?`, text: `${told} Its late writes will be fenced.`, verb: 'Release by force', force: true, as: who(context),
  field: { label: 'Reason, kept in the log', required: true }, act: (reason) => context.api.post(RELEASES[lock.kind](lock), { ...(lock.kind === 'path' && { id: lock.name }), force: true, reason }),
});
