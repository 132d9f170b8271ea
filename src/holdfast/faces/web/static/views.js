// The views, in the order of the navigation. One line each.

import { view as fleet } from './views/fleet.js';
import { view as log } from './views/log.js';
import { view as task } from './views/task.js';

export const VIEWS = [fleet, log, task];
