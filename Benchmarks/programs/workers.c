// workers PORT CONNECTIONS COUNT PATH LIMIT: the workers of a work-sharing consumer, with one worker on each
// connection.
//
// Each receives up to LIMIT messages (POST PATH/receive) and acknowledges them (POST PATH/settle), again and again,
// until all workers together have acknowledged COUNT messages. COUNT messages must exist. Prints a JSON object with the
// seconds and the number of requests.
#include "common.h"

struct worker {
  int fd;
  // The number of messages that the worker now acknowledges. 0 while it receives.
  long long leases;
  size_t count;
  char input[1 << 18];
};

static int port, limit;
static const char *path;
static long long acknowledged, requests;

static void send_request(struct worker *worker, const char *action, const char *body, size_t length) {
  static char request[1 << 17];
  int head = sprintf(request, "POST %s/%s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n",
                     path, action, length);
  memcpy(request + head, body, length);
  if (!write_all(worker->fd, request, (size_t)head + length)) die("the server closed a worker's connection");
  requests++;
}

static void receive(struct worker *worker) {
  char action[64];
  sprintf(action, "receive?wait=5&limit=%d", limit);
  worker->leases = 0;
  send_request(worker, action, "", 0);
}

// Acknowledges the messages of a response. If there are none, receives again.
static void acknowledge(struct worker *worker, const struct response *response) {
  static const char name[] = "\"lease\":\"";
  static char body[1 << 16];
  const char *bytes = response->body, *end = bytes + response->body_length;
  size_t length = (size_t)sprintf(body, "{\"ack\":[");
  while ((bytes = memmem(bytes, (size_t)(end - bytes), name, sizeof name - 1))) {
    bytes += sizeof name - 1;
    const char *quote = memchr(bytes, '"', (size_t)(end - bytes));
    if (!quote || length + (size_t)(quote - bytes) + 8 > sizeof body) die("a lease is too long");
    length += (size_t)sprintf(body + length, "%s\"%.*s\"", worker->leases > 0 ? "," : "", (int)(quote - bytes), bytes);
    worker->leases++;
  }
  if (worker->leases == 0) return receive(worker);
  length += (size_t)sprintf(body + length, "]}");
  send_request(worker, "settle", body, length);
}

static void read_worker(struct worker *worker) {
  ssize_t received = recv(worker->fd, worker->input + worker->count, sizeof worker->input - worker->count, 0);
  if (received < 0 && errno == EAGAIN) return;
  if (received <= 0) die("the server closed a worker's connection");
  worker->count += (size_t)received;
  struct response response;
  if (!read_response(worker->input, worker->count, &response)) {
    if (worker->count == sizeof worker->input) die("a response of more than %zu bytes", worker->count);
    return;
  }
  if (response.status != 200) die("the response to a worker is %d: %.*s", response.status, (int)response.body_length, response.body);
  worker->count = 0;
  acknowledged += worker->leases;
  if (worker->leases > 0) receive(worker);
  else acknowledge(worker, &response);
}

int main(int count, char **arguments) {
  if (count != 6) die("usage: workers PORT CONNECTIONS COUNT PATH LIMIT");
  port = atoi(arguments[1]);
  int connections = atoi(arguments[2]);
  long long wanted = atoll(arguments[3]);
  path = arguments[4];
  limit = atoi(arguments[5]);
  int epoll = epoll_create1(EPOLL_CLOEXEC);
  struct worker *all = calloc((size_t)connections, sizeof *all);
  int64_t start = now();
  for (int index = 0; index < connections; index++) {
    all[index].fd = connect_to(port);
    watch(epoll, all[index].fd, EPOLLIN, (uint64_t)index);
    receive(&all[index]);
  }
  struct epoll_event events[256];
  while (acknowledged < wanted) {
    int ready = wait_for(epoll, events, 256, 10 * NANOSECONDS);
    if (ready == 0) die("no response within 10 seconds, after %lld messages", acknowledged);
    for (int index = 0; index < ready; index++) read_worker(&all[events[index].data.u64]);
  }
  printf("{\"messages\":%lld,\"seconds\":%.6f,\"requests\":%lld}\n", acknowledged, (double)(now() - start) / NANOSECONDS, requests);
}
