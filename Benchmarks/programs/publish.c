// publish PORT PATH CONNECTIONS raw|pushpin: the source of messages for servers that accept them by HTTP POST.
//
// The command 'push COUNT RATE SIZE' on standard input is the same as for the sink. It sends COUNT messages of SIZE
// bytes, RATE per second (0: as fast as they are accepted), each with its time, and prints a JSON object after the last
// response. With 'pushpin', each message is wrapped in the format of Pushpin's control port.
#include "common.h"

struct publisher {
  int fd;
  bool busy;
  size_t count;
  char input[8192];
};

static int epoll, port;
static const char *path;
static bool is_pushpin;

static void open_publisher(struct publisher *publisher, uint64_t index) {
  publisher->fd = connect_to(port);
  watch(epoll, publisher->fd, EPOLLIN, index);
}

static void publish(struct publisher *publisher, size_t size) {
  static char body[1 << 20], request[(1 << 20) + 512];
  size_t length = 0;
  if (is_pushpin) {
    length += (size_t)sprintf(body, "{\"items\":[{\"channel\":\"bench\",\"formats\":{\"http-response\":{\"body\":\"");
    length += write_message(body + length, size, now(), "\\\"");
    length += (size_t)sprintf(body + length, "\"}}}]}");
  } else {
    length = write_message(body, size, now(), "\"");
  }
  size_t head = (size_t)sprintf(
      request, "POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n",
      path, length);
  memcpy(request + head, body, length);
  if (!write_all(publisher->fd, request, head + length)) die("the server closed a publisher's connection");
  publisher->busy = true;
}

static bool take_response(struct publisher *publisher, uint64_t index) {
  ssize_t received =
      recv(publisher->fd, publisher->input + publisher->count, sizeof publisher->input - publisher->count, 0);
  if (received < 0 && errno == EAGAIN) return false;
  if (received <= 0) die("the server closed a publisher's connection");
  publisher->count += (size_t)received;
  struct response response;
  if (!read_response(publisher->input, publisher->count, &response)) return false;
  if (response.status < 200 || response.status > 299)
    die("the server responded to a message with %d: %.*s", response.status, (int)response.body_length, response.body);
  publisher->count = 0;
  publisher->busy = false;
  if (response.closes) {
    close(publisher->fd);
    open_publisher(publisher, index);
  }
  return true;
}

int main(int count, char **arguments) {
  if (count != 5) die("usage: publish PORT PATH CONNECTIONS raw|pushpin");
  int connections = atoi(arguments[3]);
  port = atoi(arguments[1]);
  path = arguments[2];
  is_pushpin = strcmp(arguments[4], "pushpin") == 0;
  epoll = epoll_create1(EPOLL_CLOEXEC);
  struct publisher *all = calloc((size_t)connections, sizeof *all);
  for (int index = 0; index < connections; index++) open_publisher(&all[index], (uint64_t)index);
  while (true) {
    long long messages;
    double rate;
    size_t size;
    if (sscanf(read_command(), "push %lld %lf %zu", &messages, &rate, &size) != 3) die("no command");
    int64_t start = now(), interval = rate > 0 ? (int64_t)(1e9 / rate) : 0, next = start;
    long long sent = 0, completed = 0;
    int idle = connections - 1;
    while (completed < messages) {
      // Uses the idle connections in turn. If all are busy, the message is sent later, with the later time.
      while (sent < messages && now() >= next) {
        int tried = 0;
        while (tried < connections && all[idle = (idle + 1) % connections].busy) tried++;
        if (tried == connections) break;
        publish(&all[idle], size);
        sent++;
        next += interval;
      }
      struct epoll_event events[64];
      int64_t left = next - now();
      int ready = wait_for(epoll, events, 64, sent == messages ? NANOSECONDS : left > 0 ? left : 1000000);
      for (int index = 0; index < ready; index++) completed += take_response(&all[events[index].data.u64], events[index].data.u64);
    }
    printf("{\"pushed\":%lld,\"seconds\":%.6f}\n", completed, (double)(now() - start) / 1e9);
    fflush(stdout);
  }
}
