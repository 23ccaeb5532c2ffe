// rate PORT CONNECTIONS SECONDS METHOD PATH [BODY [FIELD…]]: measures the requests per second on keep-alive connections, each
// with one request at a time, after a warm-up of a fifth of the time. BODY is sent unchanged; an empty one means no body.
// Prints a JSON object with times in microseconds. Only 'all' includes the warm-up.
#include "common.h"

struct connection {
  int fd;
  int64_t sent;
  size_t count;
  char input[16384];
};

static struct samples latencies;
static int64_t good, bad, reconnects, all_responses;

static void open_connection(struct connection *connection, int epoll, int port, uint64_t index) {
  connection->fd = connect_to(port);
  connection->count = 0;
  watch(epoll, connection->fd, EPOLLIN, index);
}

static void send_request(struct connection *connection, const char *request, size_t length) {
  connection->sent = now();
  if (!write_all(connection->fd, request, length)) die("the server closed a connection on a request");
}

int main(int count, char **arguments) {
  if (count < 6) die("usage: rate PORT CONNECTIONS SECONDS METHOD PATH [BODY [FIELD...]]");
  raise_descriptor_limit();
  int port = atoi(arguments[1]), connections = atoi(arguments[2]);
  int64_t duration = (int64_t)(atof(arguments[3]) * NANOSECONDS);
  const char *body = count > 6 ? arguments[6] : "";

  char *request = malloc(4096 + strlen(body));
  size_t length = (size_t)sprintf(request, "%s %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n", arguments[4], arguments[5], port);
  for (int index = 7; index < count; index++) length += (size_t)sprintf(request + length, "%s\r\n", arguments[index]);
  if (*body)
    length += (size_t)sprintf(request + length, "Content-Type: application/json\r\nContent-Length: %zu\r\n", strlen(body));
  length += (size_t)sprintf(request + length, "\r\n%s", body);

  int epoll = epoll_create1(EPOLL_CLOEXEC);
  struct connection *all = calloc((size_t)connections, sizeof *all);
  for (int index = 0; index < connections; index++) open_connection(&all[index], epoll, port, (uint64_t)index);
  int64_t start = now() + duration / 5, end = start + duration;
  for (int index = 0; index < connections; index++) send_request(&all[index], request, length);

  struct epoll_event events[256];
  int64_t time = 0;
  while (time < end) {
    int ready = wait_for(epoll, events, 256, 5 * NANOSECONDS);
    time = now();
    if (ready == 0) die("no response within 5 seconds, after %lld responses", (long long)good);
    for (int index = 0; index < ready; index++) {
      struct connection *connection = &all[events[index].data.u64];
      ssize_t received = recv(connection->fd, connection->input + connection->count,
                              sizeof connection->input - connection->count, 0);
      if (received < 0 && errno == EAGAIN) continue;
      bool ended = received <= 0;
      struct response response = {0};
      if (!ended) {
        connection->count += (size_t)received;
        if (!read_response(connection->input, connection->count, &response)) continue;
        all_responses++;
        if (time >= start) {
          if (response.status >= 200 && response.status < 300) good++; else bad++;
          add_sample(&latencies, time - connection->sent);
        }
      }
      connection->count = 0;
      if (ended || response.closes) {
        reconnects++;
        close(connection->fd);
        open_connection(connection, epoll, port, events[index].data.u64);
      }
      send_request(connection, request, length);
    }
  }
  printf("{\"rate\":%.1f,\"requests\":%lld,\"refused\":%lld,\"reconnects\":%lld,\"all\":%lld", (double)good * 1e9 / (double)duration,
         (long long)good, (long long)bad, (long long)reconnects, (long long)all_responses);
  print_percentiles(&latencies);
  printf("}\n");
}
