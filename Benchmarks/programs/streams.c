// streams PORT CONNECTIONS PATH: opens event streams and holds them.
//
// Prints a JSON object when each stream has received the head of its response. For each line 'expect N MILLISECONDS' on
// standard input, counts messages that contain a time, until there are N or the time is over. Then prints a JSON object
// with latencies in microseconds, from the time in the message to its arrival. Fails if a stream is refused or ends.
#include "common.h"

#define TIME_LENGTH 20

struct stream {
  int fd;
  bool is_open;
  // The beginning of a time at the end of the last read.
  uint8_t rest_count;
  char rest[TIME_LENGTH];
};

static struct expectation expectation;
static int opened;

static void read_stream(struct stream *stream) {
  // The last byte is for the end of a number.
  static char buffer[(1 << 20) + 1];
  memcpy(buffer, stream->rest, stream->rest_count);
  ssize_t received = recv(stream->fd, buffer + stream->rest_count, sizeof buffer - 1 - stream->rest_count, 0);
  if (received < 0 && errno == EAGAIN) return;
  if (received <= 0) die("a stream ended");
  int64_t time = now();
  if (!stream->is_open) {
    // The servers send a head in one segment.
    if (received < 12 || memcmp(buffer, "HTTP/1.1 200", 12) != 0) die("not a stream: %.*s", (int)received, buffer);
    stream->is_open = true;
    opened++;
  }
  const char *bytes = buffer, *end = buffer + stream->rest_count + received;
  *(char *)end = 0;
  add_messages(&expectation, &bytes, end, time);
  const char *mark = memchr(bytes, '@', (size_t)(end - bytes));
  stream->rest_count = mark ? (uint8_t)(end - mark) : 0;
  if (mark) memcpy(stream->rest, mark, stream->rest_count);
}

int main(int count, char **arguments) {
  if (count != 4) die("usage: streams PORT CONNECTIONS PATH");
  raise_descriptor_limit();
  int port = atoi(arguments[1]), connections = atoi(arguments[2]);
  setvbuf(stdin, NULL, _IONBF, 0);
  char request[1024];
  int length = snprintf(request, sizeof request, "GET %s HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/event-stream\r\n\r\n",
                        arguments[3]);
  if (length >= (int)sizeof request) die("the path is too long");

  int epoll = epoll_create1(EPOLL_CLOEXEC);
  struct stream *all = calloc((size_t)connections, sizeof *all);
  for (int index = 0; index < connections; index++) {
    all[index].fd = connect_to(port);
    watch(epoll, all[index].fd, EPOLLIN, (uint64_t)index);
    write_all(all[index].fd, request, (size_t)length);
  }
  watch(epoll, STDIN_FILENO, EPOLLIN, UINT64_MAX);

  bool has_reported = false;
  struct epoll_event events[512];
  while (true) {
    int ready = wait_expecting(&expectation, epoll, events, 512);
    for (int index = 0; index < ready; index++) {
      uint64_t which = events[index].data.u64;
      if (which == UINT64_MAX) begin_expectation(&expectation);
      else read_stream(&all[which]);
    }
    if (!has_reported && opened == connections) {
      printf("{\"held\":%d}\n", opened);
      fflush(stdout);
      has_reported = true;
    }
    report_expectation(&expectation);
  }
}
