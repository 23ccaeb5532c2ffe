// The official parser of Socket.IO (Debian's node-socket.io-parser), which SocketIOTests/OfficialParserTests.swift
// compares with our parser.
//
// `judge`: reads packets, one JSON object per line. Prints whether the official parser accepts each, and whether it
// reads the same content.
// `generate COUNT SEED`: prints random packets as the official encoder writes them.
"use strict";

// Debian's modules are here. Only Debian's node finds them by itself.
process.env.NODE_PATH = "/usr/share/nodejs";
require("module").Module._initPaths();
const { Decoder, Encoder, PacketType } = require("socket.io-parser");

// More than any packet of the test announces.
const MOST_ATTACHMENTS = 20;

function isPlaceholder(value) {
  return value !== null && typeof value === "object" && value._placeholder === true;
}

// The value, in which an attachment replaces each placeholder with its number.
function filled(value) {
  if (isPlaceholder(value)) return Buffer.from([value.num]);
  if (Array.isArray(value)) return value.map(filled);
  if (value === null || typeof value !== "object") return value;
  const result = {};
  for (const key of Object.keys(value)) {
    Object.defineProperty(result, key, { value: filled(value[key]), enumerable: true });
  }
  return result;
}

function judge(line) {
  const { text, reading } = JSON.parse(line);
  const decoder = new Decoder();
  let packet = null;
  decoder.on("decoded", (decoded) => (packet = decoded));
  let isAwaiting = false;
  try {
    decoder.add(text);
    for (let number = 0; packet === null && number < MOST_ATTACHMENTS; number++) decoder.add(Buffer.from([number]));
    isAwaiting = packet === null;
  } catch (error) {
    return { accepted: false, same: false };
  }
  if (isAwaiting || !reading) return { accepted: true, same: false };
  const isBinary = packet.type === PacketType.BINARY_EVENT || packet.type === PacketType.BINARY_ACK;
  const data = reading.data === "" ? undefined : JSON.parse(reading.data);
  const same =
    packet.type === reading.type && packet.nsp === reading.namespace &&
    (packet.id === undefined ? null : packet.id) === (reading.id === undefined ? null : reading.id) &&
    JSON.stringify(packet.data) === JSON.stringify(isBinary && reading.attachments > 0 ? filled(data) : data);
  return { accepted: true, same };
}

// A linear congruential generator, so that a failure can be repeated.
function random(seed) {
  let state = BigInt(seed);
  return (limit) => {
    state = (state * 6364136223846793005n + 1442695040888963407n) & 0xffffffffffffffffn;
    return Number((state >> 33n) % BigInt(limit));
  };
}

const STRINGS = ["", "a", "é", "😀", "\"", "\\", "]", "{", "\u0000\n", "\u2028", "_placeholder", "num", "__proto__", "\ud800"];

function value(below, depth) {
  switch (below(depth > 3 ? 5 : 8)) {
    case 0: return STRINGS[below(STRINGS.length)] + STRINGS[below(STRINGS.length)];
    case 1: return below(1000000) / 64 - 100;
    case 2: return below(2) === 0;
    case 3: return null;
    case 4: return Buffer.from(Array.from({ length: below(4) }, () => below(256)));
    case 5: return Array.from({ length: below(4) }, () => value(below, depth + 1));
    default: {
      const object = {};
      for (let count = below(4); count > 0; count--) object["k" + STRINGS[below(11)]] = value(below, depth + 1);
      return object;
    }
  }
}

function generate(count, seed) {
  const below = random(seed);
  const namespaces = ["/", "/admin", "/é", "/a-1", "/x?y=1"];
  for (let made = 0; made < count; ) {
    const packet = { type: below(5), nsp: namespaces[below(namespaces.length)] };
    if (packet.type === PacketType.EVENT) {
      packet.data = [STRINGS[below(STRINGS.length)]].concat(Array.from({ length: below(4) }, () => value(below, 0)));
      if (below(2)) packet.id = below(2 ** 31);
    } else if (packet.type === PacketType.ACK) {
      packet.data = Array.from({ length: below(4) }, () => value(below, 0));
      packet.id = below(100);
    } else if (packet.type === PacketType.CONNECT) {
      if (below(2)) packet.data = { sid: "x" };
    } else if (packet.type === PacketType.CONNECT_ERROR) {
      packet.data = below(2) ? "no" : { message: "no", data: null };
    }
    const [text, ...attachments] = new Encoder().encode(packet);
    if (attachments.length > 10) continue;
    made++;
    const data = packet.data === undefined ? "" : JSON.stringify(packet.data);
    console.log(JSON.stringify({
      text, attachments: attachments.map((bytes) => bytes.toString("base64")),
      type: packet.type, namespace: packet.nsp, id: packet.id, data,
    }));
  }
}

if (process.argv[2] === "generate") {
  generate(Number(process.argv[3]), Number(process.argv[4]));
} else {
  const lines = require("fs").readFileSync(0, "utf8").split("\n").filter((line) => line !== "");
  console.log(lines.map((line) => JSON.stringify(judge(line))).join("\n"));
}
