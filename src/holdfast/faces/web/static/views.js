// The views, in the order of the navigation. One line each.

import { view as fleet } from './views/fleet.js';

export const VIEWS = [fleet];
