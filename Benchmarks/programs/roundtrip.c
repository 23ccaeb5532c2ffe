// roundtrip PORT COUNT RATE SIZE: measures the time from a POST to the response of the poll that returns the upstream's
// echo of the message.
//
// One connection holds a long poll at /v1/messages, and repeats it with the cursor of each response. Another connection
// posts COUNT messages of SIZE bytes to the same path, RATE per second. If a response is late, so is the next message;
// its time is the time of its write. Each message must be returned once, in order and unchanged. Otherwise the program
// fails. The server must have the gateway's cursors, and its upstream must return each message. Prints a JSON object,
// with times in microseconds.
#include "common.h"

struct connection {
  int fd;
  size_t count;
  char input[1 << 20];
};

static struct connection poller, poster;
static struct samples latencies;
static int epoll, size;
static char cursor[64];
// The time at which each message was written. It identifies the message.
static int64_t *times;
static int64_t expected, posted, returned;

static void open_connection(struct connection *connection, int port, uint64_t index) {
  connection->fd = connect_to(port);
  watch(epoll, connection->fd, EPOLLIN, index);
}

static void send_poll(int wait) {
  char request[512];
  int length = sprintf(request, "GET /v1/messages?wait=%d%s%s HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", wait,
                       *cursor ? "&cursor=" : "", cursor);
  if (!write_all(poller.fd, request, (size_t)length)) die("the server closed the connection of the poll");
}

static void send_message(void) {
  char body[4096], request[8192];
  times[posted] = now();
  // No two messages are equal, even if the clock is coarse.
  if (posted > 0 && times[posted] <= times[posted - 1]) times[posted] = times[posted - 1] + 1;
  size_t length = write_message(body, (size_t)size, times[posted], "\"");
  size_t head = (size_t)sprintf(request,
                                "POST /v1/messages HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
                                "Content-Length: %zu\r\n\r\n",
                                length);
  memcpy(request + head, body, length);
  if (!write_all(poster.fd, request, head + length)) die("the server closed the connection of the posts");
  posted++;
}

// The response on a connection, or NULL if it is incomplete.
static struct response *read_connection(struct connection *connection) {
  static struct response response;
  ssize_t received =
      recv(connection->fd, connection->input + connection->count, sizeof connection->input - connection->count, 0);
  if (received < 0 && errno == EAGAIN) return NULL;
  if (received <= 0) die("the server closed a connection");
  connection->count += (size_t)received;
  if (!read_response(connection->input, connection->count, &response)) return NULL;
  if (response.total != connection->count) die("the server sent more than one response");
  if (response.status < 200 || response.status > 299)
    die("a response has the status %d: %.*s", response.status, (int)response.body_length, response.body);
  if (response.closes) die("the server closes the connection after a response");
  connection->count = 0;
  return &response;
}

static void take_poll(const struct response *response) {
  int64_t time = now();
  size_t length;
  const char *value = field(response, "gateway-cursor:", &length);
  if (!value || length >= sizeof cursor) die("a poll returned no Gateway-Cursor");
  memcpy(cursor, value, length);
  cursor[length] = 0;
  const char *bytes = response->body, *end = bytes + response->body_length, *start = bytes;
  for (int64_t sent; (sent = next_time(&bytes, end));) {
    if (returned >= posted || sent != times[returned])
      die("message %lld was expected, but another was returned: %.*s", (long long)returned, (int)response->body_length, response->body);
    // The message is unchanged, as a JSON value or inside a JSON string.
    char plain[4096], quoted[4096];
    size_t plain_length = write_message(plain, (size_t)size, sent, "\"");
    size_t quoted_length = write_message(quoted, (size_t)size, sent, "\\\"");
    if (!memmem(start, (size_t)(end - start), plain, plain_length) && !memmem(start, (size_t)(end - start), quoted, quoted_length))
      die("message %lld was changed: %.*s", (long long)returned, (int)response->body_length, response->body);
    add_sample(&latencies, time - sent);
    returned++;
  }
}

int main(int count, char **arguments) {
  if (count != 5 || (size = atoi(arguments[4])) > 4000) die("usage: roundtrip PORT COUNT RATE SIZE, of at most 4000");
  int port = atoi(arguments[1]);
  expected = atoll(arguments[2]);
  int64_t interval = (int64_t)(1e9 / atof(arguments[3]));
  times = calloc((size_t)expected, sizeof *times);
  epoll = epoll_create1(EPOLL_CLOEXEC);
  open_connection(&poller, port, 0);
  open_connection(&poster, port, 1);

  // The first poll only gets a cursor, so that the held poll misses no message, however late it arrives.
  struct epoll_event events[2];
  struct response *response = NULL;
  send_poll(0);
  while (!response) {
    if (wait_for(epoll, events, 1, 5 * NANOSECONDS) == 0) die("no response to the first poll for five seconds");
    response = read_connection(&poller);
  }
  take_poll(response);
  send_poll(50);

  // The first message is posted after an interval. The poll is held by then.
  int64_t next = now() + interval, last = now();
  bool is_busy = false;
  while (returned < expected || is_busy) {
    if (!is_busy && posted < expected && now() >= next) {
      send_message();
      is_busy = true;
      next += interval;
    }
    int64_t left = !is_busy && posted < expected ? next - now() : NANOSECONDS;
    int ready = wait_for(epoll, events, 2, left > 0 ? left : 0);
    if (ready > 0) last = now();
    if (now() - last > 5 * NANOSECONDS + interval)
      die("nothing for five seconds; %lld of %lld messages were returned", (long long)returned, (long long)posted);
    for (int index = 0; index < ready; index++) {
      if (events[index].data.u64 == 1) {
        if (read_connection(&poster)) is_busy = false;
      } else if ((response = read_connection(&poller))) {
        take_poll(response);
        if (returned < expected) send_poll(50);
      }
    }
  }
  printf("{\"returned\":%lld", (long long)returned);
  print_percentiles(&latencies);
  printf("}\n");
}
