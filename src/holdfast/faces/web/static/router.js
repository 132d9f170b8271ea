// Addresses: /ui/WORKSPACE/VIEW/REST?QUERY, where the main workspace is '-'. And the contract of views.
//
// A view is one file in views/ that exports `view`, and a line in views.js. It imports dom.js, format.js, shapes.js,
// dialog.js, api.js and pure modules, and no other view. At most 250 lines.
//
//   export const view = {
//     name: 'board',           // VIEW in the address
//     title: 'Board',          // in the navigation, and of the document
//     icon: 'board',           // of shapes.js; no icon: not in the navigation, where `under` names the view it belongs to
//     key: 'b',                // `g b` opens it
//     keys: [['c', 'claim']],  // its own keys, for the list that `?` shows
//     open(context) { ...; return { element, update, close, key } },
//   };
//
// open returns at once, with `element` (the view fills it when its answers come) and, each of them optional:
//   update({events, reload})  once a frame at most, with the events since the last one in order, never one twice, as
//                             GET /api/events has them. reload: some were missed (the tab was hidden for long, or the log
//                             was compacted); ask for everything again.
//   close()                   the view is left: end timers and requests. Requests given `context.signal` end by themselves.
//   key(event)                a key was pressed outside of inputs and dialogs; true if the view used it.
//
// context: {
//   workspace, rest,           // rest: the decoded segments of the address after VIEW
//   query,                     // URLSearchParams of the address
//   api,                       // calls of operations (api.js)
//   store,                     // facts of the frame (store.js); store.get('status') is at most 5 s old
//   session: {role, name},     // role: read, agent, admin; name: as whom this page acts, null with the role read
//   may(role),                 // whether an act that needs this role is offered
//   can(role),                 // whether it can be done now: false while the connection is lost
//   href(view, ...rest),       // an address in this workspace; links are plain <a href>, the frame opens them in place
//   go(view, ...rest),         // open a view
//   setQuery(object, {step}),  // change the query of the address (filters), without opening the view again; with step, Back undoes it
//   signal,                    // ends with the view
// }
// Acts (buttons that write) have data-act: the frame disables them while the connection is lost. After an act nothing needs to be fetched: its event comes through update.

/** What an address means: {workspace, view, rest, query}; view is '' at the start. */
export function parse(location) {
  const [, , space = '', view = '', ...rest] = location.pathname.split('/');
  return {
    workspace: space === '-' ? '' : decodeURIComponent(space),
    named: space !== '',
    view: decodeURIComponent(view),
    rest: rest.filter(Boolean).map(decodeURIComponent),
    query: new URLSearchParams(location.search),
  };
}

/** The address of a view. */
export function href(workspace, view, ...rest) {
  return `/ui/${[workspace || '-', view, ...rest].map(encodeURIComponent).join('/')}`;
}

/** Open links of the page in place; `open` is called after every change of the address. Returns go(address). */
export function route(open) {
  const go = (address, { replace = false } = {}) => {
    history[replace ? 'replaceState' : 'pushState'](null, '', address);
    open();
  };
  addEventListener('popstate', () => open());
  document.addEventListener('click', (event) => {
    const link = event.target.closest?.('a[href]');
    const plain = event.button === 0 && !event.metaKey && !event.ctrlKey && !event.shiftKey && !event.altKey;
    if (!link || !plain || link.target || link.hasAttribute('download') || event.defaultPrevented) return;
    const address = new URL(link.href);
    if (address.origin !== location.origin || !address.pathname.startsWith('/ui/')) return;
    event.preventDefault();
    go(address.pathname + address.search);
  });
  return go;
}
