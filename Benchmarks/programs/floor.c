// floor PORT [UPSTREAM-PORT]: the least work that a bridge can do, on one thread with epoll. It is the reference for
// other servers.
//
// POST gets 202, GET /short gets one message of 100 bytes, and GET /hold is held until the upstream, a WebSocket
// server, sends a push. The program does not check, store, number or forward anything. The next poll returns a push
// that came without a held poll.
#include "common.h"

// It is as long as the gateway's responses, so that both servers write the same number of bytes.
static const char accepted[] =
    "HTTP/1.1 202 Accepted\r\nDate: Sat, 01 Jan 2000 00:00:00 GMT\r\nContent-Type: application/json\r\n"
    "Location: /v1/deliveries/0123456789.1234567\r\nContent-Length: 65\r\n\r\n"
    "{\"id\":\"0123456789.1234567\",\"state\":\"queued\",\"session\":\"default\"}\n";
static const char head[] =
    "HTTP/1.1 200 OK\r\nDate: Sat, 01 Jan 2000 00:00:00 GMT\r\nContent-Type: application/json\r\n"
    "Gateway-Cursor: 0123456789.1234567\r\nCache-Control: no-store\r\nContent-Length: %zu\r\n\r\n";

static char short_response[1024];
static size_t short_length;
// The held polls, and the pushes for the next poll.
static int held[65536], held_count;
static char pending[1 << 20];
static size_t pending_count;

static void respond_to_poll(int fd, const char *body, size_t length) {
  static char response[(1 << 20) + 512];
  size_t count = (size_t)sprintf(response, head, length);
  memcpy(response + count, body, length);
  send(fd, response, count + length, MSG_NOSIGNAL);
}

static void push(const char *message, size_t length) {
  if (held_count == 0 && pending_count + length <= sizeof pending) {
    memcpy(pending + pending_count, message, length);
    pending_count += length;
  }
  int count = held_count;
  held_count = 0;
  for (int index = 0; index < count; index++) respond_to_poll(held[index], message, length);
}

// Reads the complete frames at the start of `bytes`. Returns their number of bytes.
static size_t take_frames(const char *bytes, size_t count) {
  size_t offset = 0;
  while (count - offset >= 2) {
    const uint8_t *frame = (const uint8_t *)bytes + offset;
    size_t length = frame[1] & 0x7F, header = length == 126 ? 4 : 2;
    if (count - offset < header) break;
    if (length == 126) length = (size_t)(frame[2] << 8 | frame[3]);
    if (count - offset < header + length) break;
    if ((frame[0] & 0x0F) < 8) push((const char *)frame + header, length);
    offset += header + length;
  }
  return offset;
}

static int open_upstream(int port) {
  int fd = connect_to(port);
  const char request[] =
      "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
      "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n";
  write_all(fd, request, sizeof request - 1);
  char response[1024];
  size_t count = 0;
  while (!memmem(response, count, "\r\n\r\n", 4)) {
    ssize_t received = recv(fd, response + count, sizeof response - count, 0);
    if (received > 0) count += (size_t)received;
    else if (received == 0 || errno != EAGAIN) die("the upstream closed the connection");
  }
  return fd;
}

static void read_client(int fd) {
  char request[16384];
  ssize_t received = recv(fd, request, sizeof request, 0);
  if (received < 0 && errno == EAGAIN) return;
  if (received <= 0) {
    close(fd);
    return;
  }
  // The load generators send each request in one segment.
  const char *end = memmem(request, (size_t)received, "\r\n\r\n", 4);
  if (!end) die("a request is incomplete");
  if (memcmp(request, "POST", 4) == 0) {
    send(fd, accepted, sizeof accepted - 1, MSG_NOSIGNAL);
  } else if (memcmp(request, "GET /short", 10) == 0) {
    send(fd, short_response, short_length, MSG_NOSIGNAL);
  } else if (pending_count > 0) {
    respond_to_poll(fd, pending, pending_count);
    pending_count = 0;
  } else {
    held[held_count++] = fd;
  }
}

int main(int count, char **arguments) {
  if (count < 2) die("usage: floor PORT [UPSTREAM-PORT]");
  raise_descriptor_limit();
  short_length = (size_t)sprintf(short_response, head, (size_t)200);
  memset(short_response + short_length, ' ', 100);
  write_message(short_response + short_length + 100, 100, 1, "\"");
  short_length += 200;

  int epoll = epoll_create1(EPOLL_CLOEXEC), listener = listen_on(atoi(arguments[1]));
  int upstream = count > 2 ? open_upstream(atoi(arguments[2])) : -1;
  watch(epoll, listener, EPOLLIN, (uint64_t)listener);
  if (upstream >= 0) watch(epoll, upstream, EPOLLIN, (uint64_t)upstream);

  static char input[1 << 16];
  size_t input_count = 0;
  struct epoll_event events[512];
  while (true) {
    int ready = epoll_wait(epoll, events, 512, -1);
    for (int index = 0; index < ready; index++) {
      int fd = (int)events[index].data.u64;
      if (fd == listener) {
        int client;
        while ((client = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
          setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
          watch(epoll, client, EPOLLIN, (uint64_t)client);
        }
      } else if (fd == upstream) {
        ssize_t received = recv(fd, input + input_count, sizeof input - input_count, 0);
        if (received == 0) exit(0);
        if (received < 0) continue;
        input_count += (size_t)received;
        size_t taken = take_frames(input, input_count);
        memmove(input, input + taken, input_count -= taken);
      } else {
        read_client(fd);
      }
    }
  }
}
