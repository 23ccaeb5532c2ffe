// A WebSocket server made from Node's own modules: node deflate.js PORT
//
// It returns each text, compressed with zlib.deflateRawSync. The result ends with a final block, which differs from RFC
// 7692 section 7.2.1, but many hand-written servers send it. Each message is a stream of its own.

const crypto = require("crypto");
const http = require("http");
const zlib = require("zlib");

const server = http.createServer();

server.on("upgrade", (request, socket) => {
  const accept = crypto
    .createHash("sha1")
    .update(request.headers["sec-websocket-key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11")
    .digest("base64");
  socket.write(
    "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" +
      `Sec-WebSocket-Accept: ${accept}\r\n` +
      "Sec-WebSocket-Extensions: permessage-deflate; server_no_context_takeover; client_no_context_takeover\r\n\r\n",
  );
  let input = Buffer.alloc(0);
  socket.on("error", () => {});
  socket.on("data", (data) => {
    input = Buffer.concat([input, data]);
    for (let frame; (frame = take()); ) obey(frame);
  });

  const send = (first, payload) => {
    const length = payload.length;
    const head =
      length < 126
        ? Buffer.from([first, length])
        : length < 65536
          ? Buffer.from([first, 126, length >> 8, length & 255])
          : Buffer.from([first, 127, 0, 0, 0, 0, length >>> 24, (length >> 16) & 255, (length >> 8) & 255, length & 255]);
    socket.write(Buffer.concat([head, payload]));
  };

  // The first masked frame of the input; undefined until it is complete.
  const take = () => {
    if (input.length < 2) return undefined;
    let [length, at] = [input[1] & 127, 2];
    const width = length === 126 ? 2 : length === 127 ? 8 : 0;
    if (input.length < at + width + 4) return undefined;
    if (width) length = Number("0x" + input.toString("hex", at, at + width));
    at += width;
    if (input.length < at + 4 + length) return undefined;
    const key = input.subarray(at, at + 4);
    const payload = Buffer.from(input.subarray(at + 4, at + 4 + length)).map((byte, index) => byte ^ key[index % 4]);
    const first = input[0];
    input = input.subarray(at + 4 + length);
    return { first, payload };
  };

  const obey = ({ first, payload }) => {
    const opcode = first & 15;
    if (opcode === 9) send(0x8a, payload);
    if (opcode === 8) socket.end(Buffer.concat([Buffer.from([0x88, payload.length]), payload]));
    if (opcode !== 1) return;
    const text =
      first & 0x40
        ? zlib.inflateRawSync(Buffer.concat([payload, Buffer.from([0, 0, 255, 255])]), {
            finishFlush: zlib.constants.Z_SYNC_FLUSH,
          })
        : payload;
    send(0xc1, zlib.deflateRawSync(text));
  };
});

server.listen(Number(process.argv[2]), "127.0.0.1");
