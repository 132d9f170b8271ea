// The views, in the order of the navigation. One line each.

import { view as fleet } from './views/fleet.js';
import { view as board } from './views/board.js';
import { view as graph } from './views/graph.js';
import { view as timeline } from './views/timeline.js';
import { view as mail } from './views/mail.js';
import { view as locks } from './views/locks.js';
import { view as server } from './views/server.js';
import { view as state } from './views/state.js';
import { view as log } from './views/log.js';
import { view as task } from './views/task.js';

export const VIEWS = [fleet, board, graph, timeline, mail, locks, state, log, server, task];
