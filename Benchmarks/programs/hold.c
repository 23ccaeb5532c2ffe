// hold PORT CONNECTIONS PATH CURSOR: holds long polls, polls again after each response, and measures the latency of
// messages.
//
// CURSOR is the way in which a client of this server sends its position: 'gateway' (the Gateway-Cursor field as
// ?cursor=), 'nchan' (Last-Modified and Etag as If-Modified-Since and If-None-Match) or 'none'.
//
// Prints {"held":N} when every poll is sent. For each line 'expect N MILLISECONDS' on standard input, it counts
// messages that contain a time, until there are N or the time is over. Then it prints a JSON object with latencies in
// microseconds, from the time in the message to its arrival.
#include "common.h"

enum cursor { CURSOR_NONE, CURSOR_GATEWAY, CURSOR_NCHAN };

struct poller {
  int fd;
  // The received part of an incomplete response. Most responses arrive at once and need no memory.
  char *rest;
  size_t rest_count;
  char cursor[2][64];
};

static int port, epoll;
static const char *path;
static enum cursor style;
static struct expectation expectation;

static void poll_again(struct poller *poller) {
  char request[1024];
  int length;
  if (style == CURSOR_GATEWAY && poller->cursor[0][0])
    length = sprintf(request, "GET %s&cursor=%s HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", path, poller->cursor[0]);
  else if (style == CURSOR_NCHAN && poller->cursor[0][0])
    length = sprintf(request, "GET %s HTTP/1.1\r\nHost: 127.0.0.1\r\nIf-Modified-Since: %s\r\nIf-None-Match: %s\r\n\r\n",
                     path, poller->cursor[0], poller->cursor[1]);
  else
    length = sprintf(request, "GET %s HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", path);
  write_all(poller->fd, request, (size_t)length);
}

static void open_poller(struct poller *poller, uint64_t index) {
  poller->fd = connect_to(port);
  watch(epoll, poller->fd, EPOLLIN, index);
  poll_again(poller);
}

static void keep_field(const struct response *response, const char *name, char *target) {
  size_t length;
  const char *value = field(response, name, &length);
  if (!value || length >= 64) return;
  memcpy(target, value, length);
  target[length] = 0;
}

static void take_response(struct poller *poller, const struct response *response) {
  const char *bytes = response->body;
  add_messages(&expectation, &bytes, bytes + response->body_length, now());
  if (style == CURSOR_GATEWAY) keep_field(response, "gateway-cursor:", poller->cursor[0]);
  if (style == CURSOR_NCHAN) {
    keep_field(response, "last-modified:", poller->cursor[0]);
    keep_field(response, "etag:", poller->cursor[1]);
  }
}

static void read_poller(struct poller *poller, uint64_t index) {
  static char buffer[8 << 20];
  if (poller->rest_count > 0) memcpy(buffer, poller->rest, poller->rest_count);
  ssize_t received = recv(poller->fd, buffer + poller->rest_count, sizeof buffer - poller->rest_count, 0);
  if (received < 0 && errno == EAGAIN) return;
  struct response response = {0};
  size_t count = poller->rest_count + (size_t)(received > 0 ? received : 0);
  if (received > 0 && !read_response(buffer, count, &response)) {
    poller->rest = realloc(poller->rest, count);
    memcpy(poller->rest, buffer, count);
    poller->rest_count = count;
    return;
  }
  free(poller->rest);
  poller->rest = NULL;
  poller->rest_count = 0;
  if (received > 0) take_response(poller, &response);
  if (received > 0 && !response.closes) {
    poll_again(poller);
  } else {
    close(poller->fd);
    open_poller(poller, index);
  }
}

int main(int count, char **arguments) {
  if (count != 5) die("usage: hold PORT CONNECTIONS PATH gateway|nchan|none");
  raise_descriptor_limit();
  port = atoi(arguments[1]);
  int connections = atoi(arguments[2]);
  path = arguments[3];
  style = strcmp(arguments[4], "gateway") == 0 ? CURSOR_GATEWAY : strcmp(arguments[4], "nchan") == 0 ? CURSOR_NCHAN : CURSOR_NONE;
  setvbuf(stdin, NULL, _IONBF, 0);

  epoll = epoll_create1(EPOLL_CLOEXEC);
  struct poller *all = calloc((size_t)connections, sizeof *all);
  for (int index = 0; index < connections; index++) open_poller(&all[index], (uint64_t)index);
  watch(epoll, STDIN_FILENO, EPOLLIN, UINT64_MAX);
  printf("{\"held\":%d}\n", connections);
  fflush(stdout);

  struct epoll_event events[512];
  while (true) {
    int ready = wait_expecting(&expectation, epoll, events, 512);
    for (int index = 0; index < ready; index++) {
      uint64_t which = events[index].data.u64;
      if (which == UINT64_MAX) begin_expectation(&expectation);
      else read_poller(&all[which], which);
    }
    report_expectation(&expectation);
  }
}
