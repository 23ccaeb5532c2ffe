// sink PORT [deflate|echo]: the upstream of every bridge under test. It is a WebSocket server that counts received
// messages and pushes messages on command, fast enough not to limit the measurement.
//
// Commands on standard input; each prints a JSON object:
//   stats                  messages and bytes received so far, open connections, and how many of them sent no message
//   push COUNT RATE SIZE   sends COUNT messages of SIZE bytes with times to every connection, RATE per second (0: at
//                          once)
//   blast COUNT SIZE       the same to one connection, as fast as it reads them, and then a ping. 'seconds' is the time
//                          until the pong, when the peer has read all messages.
// With 'echo' it returns each message to the connection that sent it. With 'deflate' it accepts permessage-deflate (RFC
// 7692, context takeover) and compresses the messages of a blast.
#include "common.h"

#include <openssl/evp.h>
#include <openssl/sha.h>
#include <zlib.h>

struct peer {
  int fd;
  bool open, deflates, has_sent, closes;
  int window;
  // Remaining bytes of a payload to skip, and the received part of an incomplete frame.
  size_t skip, rest_count;
  uint8_t rest[4096];
};

static int epoll;
static struct peer *peers[65536];
static int newest = -1;
static bool offers_deflate, is_echo;
static int64_t messages, bytes_received, connections;

// The frames of the current blast, and its progress.
static struct {
  uint8_t *bytes;
  size_t length, offset;
  long long left, count, per_round;
  int64_t start;
  bool awaits_pong;
} blast;

static void print_reply(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vprintf(format, arguments);
  va_end(arguments);
  fflush(stdout);
}

// Writes the header of a frame. Returns its length.
static size_t write_header(uint8_t *target, uint8_t first, size_t length) {
  target[0] = first;
  if (length < 126) {
    target[1] = (uint8_t)length;
    return 2;
  }
  target[1] = 126;
  target[2] = (uint8_t)(length >> 8);
  target[3] = (uint8_t)length;
  return 4;
}

// ----------------------------------------------------------------------------------------------------------- Receiving

static void drop(struct peer *peer) {
  if (newest == peer->fd) newest = -1;
  if (peer->open) connections--;
  close(peer->fd);
  peers[peer->fd] = NULL;
  free(peer);
}

static void upgrade(struct peer *peer, const char *request, size_t count) {
  struct response head = {.head = request, .head_length = count};
  size_t length, offered_length = 0;
  const char *key = field(&head, "sec-websocket-key:", &length);
  if (!key || length != 24) die("a request without a WebSocket key");
  char text[64];
  memcpy(text, key, 24);
  strcpy(text + 24, "258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
  uint8_t digest[SHA_DIGEST_LENGTH];
  char encoded[64], extension[128] = "";
  SHA1((uint8_t *)text, strlen(text), digest);
  EVP_EncodeBlock((uint8_t *)encoded, digest, sizeof digest);
  const char *offered = field(&head, "sec-websocket-extensions:", &offered_length);
  if (offers_deflate && offered && memmem(offered, offered_length, "permessage-deflate", 18)) {
    peer->deflates = true;
    peer->window = 15;
    const char *window = memmem(offered, offered_length, "server_max_window_bits=", 23);
    if (window) peer->window = atoi(window + 23);
    sprintf(extension, "Sec-WebSocket-Extensions: permessage-deflate%s", window ? "; server_max_window_bits=" : "");
    if (window) sprintf(extension + strlen(extension), "%d", peer->window);
    strcat(extension, "\r\n");
  }
  char response[512];
  int size = sprintf(response,
                     "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                     "Sec-WebSocket-Accept: %s\r\n%s\r\n",
                     encoded, extension);
  write_all(peer->fd, response, (size_t)size);
  peer->open = true;
  newest = peer->fd;
  connections++;
}

static void control(struct peer *peer, const uint8_t *frame, size_t header, size_t length) {
  int opcode = frame[0] & 0x0F;
  if (opcode == 10 && blast.awaits_pong) {
    blast.awaits_pong = false;
    print_reply("{\"messages\":%lld,\"seconds\":%.6f}\n", blast.count, (double)(now() - blast.start) / 1e9);
  }
  // During a blast, the last frame may be incomplete, and a pong inside it would corrupt the stream.
  if ((opcode != 9 && opcode != 8) || blast.left > 0) return;
  // The reply to a ping has the ping's payload, and the reply to a close frame has its code.
  uint8_t reply[128] = {(uint8_t)(0x80 | (opcode == 9 ? 10 : 8)), (uint8_t)length};
  for (size_t index = 0; index < length; index++) reply[2 + index] = frame[header + index] ^ frame[header - 4 + index % 4];
  write_all(peer->fd, reply, 2 + length);
  peer->closes |= opcode == 8;
}

// Returns a message of one frame to its sender, whose masked payload begins at `payload`.
static void echo(struct peer *peer, uint8_t first, const uint8_t *payload, size_t length) {
  uint8_t frame[4096];
  size_t header = write_header(frame, first, length);
  for (size_t index = 0; index < length; index++) frame[header + index] = payload[index] ^ payload[(ssize_t)(index % 4) - 4];
  write_all(peer->fd, frame, header + length);
}

// Reads frames. Returns the number of consumed bytes. Skips the payloads of messages, unless they are echoed.
static size_t take_frames(struct peer *peer, const uint8_t *bytes, size_t count) {
  size_t offset = 0;
  while (offset < count) {
    if (peer->skip > 0) {
      size_t skipped = peer->skip < count - offset ? peer->skip : count - offset;
      peer->skip -= skipped;
      offset += skipped;
      continue;
    }
    const uint8_t *frame = bytes + offset;
    size_t left = count - offset;
    if (left < 14 && (left < 6 || (frame[1] & 0x7F) > 125)) break;
    size_t length = frame[1] & 0x7F, header = 6;
    if (length == 126) {
      length = (size_t)(frame[2] << 8 | frame[3]);
      header = 8;
    } else if (length == 127) {
      length = 0;
      for (int index = 2; index < 10; index++) length = length << 8 | frame[index];
      header = 14;
    }
    if (frame[0] & 0x08) {
      if (left < header + length) break;
      control(peer, frame, header, length);
      offset += header + length;
    } else if (is_echo) {
      if (length > 4000 || !(frame[0] & 0x80)) die("no echo of fragments, or of more than 4,000 bytes");
      if (left < header + length) break;
      messages++;
      peer->has_sent = true;
      echo(peer, frame[0], frame + header, length);
      offset += header + length;
    } else {
      if (frame[0] & 0x80) messages++;
      peer->has_sent = true;
      bytes_received += (int64_t)length;
      offset += header;
      peer->skip = length;
    }
  }
  return offset;
}

static void read_peer(struct peer *peer) {
  static uint8_t buffer[1 << 18];
  memcpy(buffer, peer->rest, peer->rest_count);
  ssize_t received = recv(peer->fd, buffer + peer->rest_count, sizeof buffer - peer->rest_count, 0);
  if (received < 0 && errno == EAGAIN) return;
  if (received <= 0) {
    drop(peer);
    return;
  }
  size_t count = peer->rest_count + (size_t)received, taken = 0;
  if (!peer->open) {
    uint8_t *end = memmem(buffer, count, "\r\n\r\n", 4);
    if (end) {
      taken = (size_t)(end - buffer) + 4;
      upgrade(peer, (char *)buffer, taken);
    }
  }
  if (peer->open) taken += take_frames(peer, buffer + taken, count - taken);
  // The server closes the connection after the close frames (RFC 6455, section 7.1.1). The gateway waits for it.
  if (peer->closes) {
    drop(peer);
    return;
  }
  peer->rest_count = count - taken;
  if (peer->rest_count > sizeof peer->rest) die("a request head of more than %zu bytes", sizeof peer->rest);
  memcpy(peer->rest, buffer + taken, peer->rest_count);
}

// ------------------------------------------------------------------------------------------------------------- Sending

static void push_one(size_t size) {
  static uint8_t frame[1 << 17];
  char message[1 << 16];
  size_t length = write_message(message, size, now(), "\"");
  size_t header = write_header(frame, 0x81, length);
  memcpy(frame + header, message, length);
  for (int fd = 0; fd < 65536; fd++) {
    if (peers[fd] && peers[fd]->open) write_all(fd, frame, header + length);
    if (fd > newest && newest >= 0 && connections == 1) break;
  }
}

// Prepares some megabytes of frames that are sent repeatedly. This also works for compressed frames: the first message
// does not refer to earlier data, so it does not depend on the receiver's history.
static void prepare_blast(size_t size, const struct peer *peer) {
  size_t capacity = 8 << 20;
  blast.bytes = realloc(blast.bytes, capacity + (1 << 18));
  blast.length = 0;
  blast.per_round = 0;
  z_stream stream = {0};
  if (peer->deflates) deflateInit2(&stream, 6, Z_DEFLATED, -peer->window, 8, Z_DEFAULT_STRATEGY);
  while (blast.length < capacity && blast.per_round < (1 << 16)) {
    char message[1 << 16];
    uint8_t compressed[(1 << 16) + 1024];
    // Similar to market data: constant names, with numbers that change with every message.
    size_t length = 0;
    int number = rand();
    for (; length + 80 < size; number = rand())
      length += (size_t)sprintf(message + length, "{\"symbol\":\"ABC%d\",\"price\":%d.%02d,\"size\":%d},", number % 50,
                                number % 1000, number % 100, number % 10000);
    length += (size_t)sprintf(message + length, "{\"sequence\":%08lld,\"pad\":\"", blast.per_round);
    while (length + 2 < size) message[length++] = (char)('a' + rand() % 26);
    memcpy(message + length, "\"}", 2);
    length += 2;
    uint8_t *target = blast.bytes + blast.length;
    if (peer->deflates) {
      stream.next_in = (uint8_t *)message;
      stream.avail_in = (uint32_t)length;
      stream.next_out = compressed;
      stream.avail_out = sizeof compressed;
      deflate(&stream, Z_SYNC_FLUSH);
      size_t result = sizeof compressed - stream.avail_out - 4;
      size_t header = write_header(target, 0xC1, result);
      memcpy(target + header, compressed, result);
      blast.length += header + result;
    } else {
      size_t header = write_header(target, 0x81, length);
      memcpy(target + header, message, length);
      blast.length += header + length;
    }
    blast.per_round++;
  }
  if (peer->deflates) deflateEnd(&stream);
}

static void rearm(int fd, uint32_t interest) {
  struct epoll_event event = {.events = interest, .data.u64 = (uint64_t)fd};
  epoll_ctl(epoll, EPOLL_CTL_MOD, fd, &event);
}

static void continue_blast(int fd) {
  while (blast.left > 0) {
    ssize_t sent = send(fd, blast.bytes + blast.offset, blast.length - blast.offset, MSG_NOSIGNAL);
    if (sent < 0 && errno == EAGAIN) return;
    if (sent < 0) die("the peer closed its connection");
    blast.offset += (size_t)sent;
    if (blast.offset < blast.length) continue;
    blast.offset = 0;
    blast.left -= blast.per_round;
  }
  rearm(fd, EPOLLIN);
  blast.awaits_pong = true;
  write_all(fd, (uint8_t[]){0x89, 0}, 2);
}

// ----------------------------------------------------------------------------------------------------------- Main loop

static struct {
  long long left, count;
  int64_t interval, next, start;
  size_t size;
} pushing;

static void run_command(const char *line) {
  long long count;
  double rate;
  size_t size;
  if (strncmp(line, "stats", 5) == 0) {
    long long silent = 0;
    for (int fd = 0; fd < 65536; fd++) silent += peers[fd] && peers[fd]->open && !peers[fd]->has_sent;
    print_reply("{\"messages\":%lld,\"bytes\":%lld,\"connections\":%lld,\"silent\":%lld}\n", (long long)messages,
           (long long)bytes_received, (long long)connections, silent);
  } else if (sscanf(line, "push %lld %lf %zu", &count, &rate, &size) == 3 && size <= 65000) {
    pushing.left = pushing.count = count;
    pushing.interval = rate > 0 ? (int64_t)(1e9 / rate) : 0;
    pushing.size = size;
    pushing.start = pushing.next = now();
  } else if (sscanf(line, "blast %lld %zu", &count, &size) == 2 && size <= 65000) {
    if (newest < 0) die("no peer is connected");
    prepare_blast(size, peers[newest]);
    blast.offset = 0;
    blast.count = (count + blast.per_round - 1) / blast.per_round * blast.per_round;
    blast.left = blast.count;
    blast.start = now();
    rearm(newest, EPOLLIN | EPOLLOUT);
  } else {
    die("unknown command: %s", line);
  }
}

static void continue_pushing(void) {
  while (pushing.left > 0 && now() >= pushing.next) {
    push_one(pushing.size);
    pushing.next += pushing.interval;
    if (--pushing.left == 0)
      print_reply("{\"pushed\":%lld,\"seconds\":%.6f}\n", pushing.count, (double)(now() - pushing.start) / 1e9);
  }
}

int main(int count, char **arguments) {
  if (count < 2) die("usage: sink PORT [deflate|echo]");
  raise_descriptor_limit();
  offers_deflate = count > 2 && strcmp(arguments[2], "deflate") == 0;
  is_echo = count > 2 && strcmp(arguments[2], "echo") == 0;
  setvbuf(stdin, NULL, _IONBF, 0);
  epoll = epoll_create1(EPOLL_CLOEXEC);
  int listener = listen_on(atoi(arguments[1]));
  watch(epoll, listener, EPOLLIN, (uint64_t)listener);
  watch(epoll, STDIN_FILENO, EPOLLIN, STDIN_FILENO);
  struct epoll_event events[256];
  while (true) {
    int64_t left = pushing.left > 0 ? pushing.next - now() : -1;
    int ready = wait_for(epoll, events, 256, pushing.left > 0 && left < 0 ? 0 : left);
    for (int index = 0; index < ready; index++) {
      int fd = (int)events[index].data.u64;
      if (fd == STDIN_FILENO) {
        run_command(read_command());
      } else if (fd == listener) {
        int client;
        while ((client = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
          setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
          peers[client] = calloc(1, sizeof **peers);
          peers[client]->fd = client;
          watch(epoll, client, EPOLLIN, (uint64_t)client);
        }
      } else if (peers[fd]) {
        if (events[index].events & EPOLLOUT) continue_blast(fd);
        if (peers[fd] && events[index].events & ~(uint32_t)EPOLLOUT) read_peer(peers[fd]);
      }
    }
    continue_pushing();
  }
}
