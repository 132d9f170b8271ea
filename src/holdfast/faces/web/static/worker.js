// The SharedWorker: one stream for all tabs of this browser that show the same workspace.

import { Stream } from './stream.js';

const SILENT = 180_000; // milliseconds after which a tab that says nothing is gone: hidden ones are slowed to one a minute
const ports = new Map(); // port -> when it was heard last
let stream = null, credentials = '';

function tell(message) { for (const port of ports.keys()) port.postMessage(message); }

function open(port, { path, headers }) {
  const given = JSON.stringify([path, headers]);
  if (!stream || stream.closed || stream.connection.state === 'ended' || given !== credentials) {
    stream?.close();
    credentials = given;
    stream = new Stream(path, headers, tell, stream?.cursor ?? null);
  }
  port.postMessage({ type: 'state', ...stream.connection, cursor: stream.cursor });
}

function leave(port) {
  ports.delete(port);
  if (!ports.size) { stream?.close(); stream = null; }
}

setInterval(() => {
  for (const [port, heard] of ports) if (Date.now() - heard > SILENT) leave(port);
}, 30_000);

self.onconnect = ({ ports: [port] }) => {
  ports.set(port, Date.now());
  port.onmessage = ({ data }) => {
    ports.set(port, Date.now());
    if (data.type === 'open') open(port, data);
    else if (data.type === 'retry') stream?.retry();
    else if (data.type === 'bye') leave(port);
  };
};
