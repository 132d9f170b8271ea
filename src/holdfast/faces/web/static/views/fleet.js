// Fleet: what needs me, is it moving, who works on what, what is stuck.

import { h, keyed, put } from '../dom.js';
import { age, number, timeLeft } from '../format.js';
import { stateOf } from '../shapes.js';

export const view = {
  name: 'fleet', title: 'Fleet', icon: 'fleet', key: 'f',
  count: (status) => status?.needs,
  open(context) {
    const rows = h('div.rows');
    const counts = h('div.panel.counts');
    const element = h('div.view', null, h('div.view-head', null, h('h1', null, 'Agents')), counts, h('div.panel', null, rows));
    const draw = () => {
      const status = context.store.get('status');
      if (!status) return;
      put(counts, ['ready', 'waiting', 'in_progress', 'review', 'blocked', 'closed'].map((state) =>
        h('div.counter-box', null, h('b', null, number(status.tasks[state])), stateOf(state))));
      keyed(rows, status.agents, (agent) => agent.name, (agent) => h('div.row', null, h('b', null, agent.name),
        agent.task ? [h('a.mono', { href: context.href('task', agent.task) }, agent.task), agent.title, timeLeft(agent.since, agent.until)] : 'no task',
        agent.seen_at && age(agent.seen_at)));
    };
    const end = context.store.on('status', draw);
    draw();
    return { element, close: end };
  },
};
