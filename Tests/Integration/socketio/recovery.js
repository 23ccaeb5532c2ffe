// A small Socket.IO server of Engine.IO 4 with connection state recovery, on Debian's node-ws and official parser:
//
//   node recovery.js PORT '{"recovers": true, "ping_interval": 1}'
//
// It writes its reports to standard output, one JSON array per line. 'count' sends that many events to all clients, one
// per millisecond. 'drop' cuts the connection of the sender without a packet. 'sum' acknowledges with the sum of its
// arguments. With "recovers", a CONNECT with the 'pid' of an earlier connection gets the events after its 'offset'. The
// sessions outlive the process in the file "state", as with an adapter that has a database.

const fs = require("fs");
const { WebSocketServer } = require("ws");
const { Encoder, Decoder, PacketType } = require("socket.io-parser");

const port = Number(process.argv[2]);
const options = JSON.parse(process.argv[3] || "{}");
const interval = (options.ping_interval || 25) * 1000;
const say = (...items) => console.log(JSON.stringify(items));
const encoder = new Encoder();

let counter = 0;
const unique = () => `${process.pid.toString(36)}-${Date.now().toString(36)}-${(counter++).toString(36)}`;

// For each namespace, the events with their offsets, and the known private ids.
let state = {};
if (options.state && fs.existsSync(options.state)) state = JSON.parse(fs.readFileSync(options.state, "utf8"));
const space = (name) => (state[name] ??= { events: [], pids: [] });
const save = () => {
  if (!options.state) return;
  // The process may be killed at any time.
  fs.writeFileSync(options.state + ".new", JSON.stringify(state));
  fs.renameSync(options.state + ".new", options.state);
};

const clients = new Set();

class Client {
  constructor(socket) {
    this.socket = socket;
    this.joined = new Set();
    this.decoder = new Decoder();
    this.decoder.on("decoded", (packet) => this.receive(packet));
    socket.send(
      "0" + JSON.stringify({ sid: unique(), upgrades: [], pingInterval: interval, pingTimeout: 2 * interval, maxPayload: 1e6 }),
    );
    this.timer = setInterval(() => socket.send("2"), interval);
    socket.on("message", (data, isBinary) => this.message(data, isBinary));
    socket.on("error", () => {});
    socket.on("close", () => {
      clearInterval(this.timer);
      clients.delete(this);
      say("closed");
    });
    clients.add(this);
  }

  message(data, isBinary) {
    if (isBinary) return this.decoder.add(data);
    const text = data.toString();
    if (text[0] === "4") this.decoder.add(text.slice(1));
  }

  send(packet) {
    for (const part of encoder.encode(packet)) this.socket.send(typeof part === "string" ? "4" + part : part);
  }

  receive(packet) {
    const nsp = packet.nsp;
    if (packet.type === PacketType.CONNECT) return this.connect(nsp, packet.data || {});
    if (packet.type !== PacketType.EVENT && packet.type !== PacketType.BINARY_EVENT) return;
    const [name, ...args] = packet.data;
    say("event", nsp, name, args);
    if (!this.joined.has(nsp)) say("too early", nsp, name);
    if (name === "count") count(nsp, args[0]);
    if (name === "drop") this.socket.terminate();
    if (name === "sum" && packet.id !== undefined) {
      this.send({ type: PacketType.ACK, nsp, id: packet.id, data: [args.reduce((a, b) => a + b, 0)] });
    }
  }

  connect(nsp, auth) {
    say("connect", nsp, auth);
    this.joined.add(nsp);
    const { events, pids } = space(nsp);
    if (!options.recovers) return this.send({ type: PacketType.CONNECT, nsp, data: { sid: unique() } });
    const index = events.findIndex((event) => event[event.length - 1] === auth.offset);
    if (auth.pid && pids.includes(auth.pid) && index >= 0) {
      say("recovered", nsp, events.length - index - 1);
      // The official server has this order: its constructor of a socket sends the events before the response.
      for (const event of events.slice(index + 1)) this.send({ type: PacketType.EVENT, nsp, data: event });
      this.send({ type: PacketType.CONNECT, nsp, data: { sid: unique(), pid: auth.pid } });
      return;
    }
    const pid = unique();
    pids.push(pid);
    save();
    this.send({ type: PacketType.CONNECT, nsp, data: { sid: unique(), pid } });
  }
}

function emit(nsp, ...data) {
  const event = [...data];
  if (options.recovers) event.push(unique());
  space(nsp).events.push(event);
  save();
  for (const client of clients) if (client.joined.has(nsp)) client.send({ type: PacketType.EVENT, nsp, data: event });
}

function count(nsp, number) {
  let next = space(nsp).events.length;
  const last = next + number;
  const timer = setInterval(() => {
    if (next >= last) return clearInterval(timer);
    emit(nsp, "counted", next++);
  }, 1);
}

const server = new WebSocketServer({ host: "127.0.0.1", port, path: "/socket.io/" }, () => say("listening", port));
server.on("connection", (socket) => new Client(socket));
