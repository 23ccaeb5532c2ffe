// Common code of the benchmark's programs: time, loopback sockets, percentiles, and a minimal HTTP client.
#pragma once

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define NANOSECONDS 1000000000LL

__attribute__((noreturn, format(printf, 1, 2))) static inline void die(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vfprintf(stderr, format, arguments);
  va_end(arguments);
  fputc('\n', stderr);
  exit(1);
}

// The monotonic clock is the same for all processes of a machine, so a receiver can subtract the time of the sender.
static inline int64_t now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * NANOSECONDS + time.tv_nsec;
}

// ------------------------------------------------------------------------------------------------------------- Sockets

static inline void raise_descriptor_limit(void) {
  struct rlimit limit;
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

static inline struct sockaddr_in loopback(int port) {
  return (struct sockaddr_in){
      .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

static inline void make_nonblocking(int fd) { fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK); }

// Connects, and returns a nonblocking socket. `source` is the last byte of the client's address, 127.0.0.x; 0 means any
// address.
static inline int connect_from(int source, int port) {
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  struct sockaddr_in address = loopback(port);
  if (source > 0) {
    // connect() chooses the port, which it may use once for each destination.
    struct sockaddr_in own = loopback(0);
    own.sin_addr.s_addr = htonl((INADDR_LOOPBACK & ~0xFFu) | (uint32_t)source);
    setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &(int){1}, sizeof(int));
    if (bind(fd, (struct sockaddr *)&own, sizeof own) != 0) die("cannot use 127.0.0.%d: %s", source, strerror(errno));
  }
  if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) != 0)
    die("cannot connect to port %d: %s", port, strerror(errno));
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
  make_nonblocking(fd);
  return fd;
}

static inline int connect_to(int port) { return connect_from(0, port); }

static inline int listen_on(int port) {
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
  setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &(int){1}, sizeof(int));
  struct sockaddr_in address = loopback(port);
  if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof address) != 0 || listen(fd, 4096) != 0)
    die("cannot listen on port %d: %s", port, strerror(errno));
  return fd;
}

static inline void watch(int epoll, int fd, uint32_t events, uint64_t data) {
  struct epoll_event event = {.events = events, .data.u64 = data};
  if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) != 0) die("epoll_ctl: %s", strerror(errno));
}

// Writes all bytes, in a busy loop while the peer is slow. Only for requests, which are small.
static inline bool write_all(int fd, const void *bytes, size_t count) {
  while (count > 0) {
    ssize_t written = send(fd, bytes, count, MSG_NOSIGNAL);
    if (written < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (written < 0) return false;
    bytes = (const char *)bytes + written;
    count -= (size_t)written;
  }
  return true;
}

// Waits with a resolution of nanoseconds. Waits forever if the time is negative.
static inline int wait_for(int epoll, struct epoll_event *events, int capacity, int64_t nanoseconds) {
  if (nanoseconds < 0) return epoll_wait(epoll, events, capacity, -1);
  struct timespec time = {.tv_sec = nanoseconds / NANOSECONDS, .tv_nsec = nanoseconds % NANOSECONDS};
  return epoll_pwait2(epoll, events, capacity, &time, NULL);
}

// Reads a command from standard input, and exits at the end of the input.
static inline char *read_command(void) {
  static char line[256];
  if (!fgets(line, sizeof line, stdin)) exit(0);
  return line;
}

// ------------------------------------------------------------------------------------------------------------- Samples

// The program keeps all samples, so percentiles are exact. A run has at most a few million.
struct samples {
  int64_t *values;
  size_t count, capacity;
};

static inline void add_sample(struct samples *samples, int64_t value) {
  if (samples->count == samples->capacity) {
    samples->capacity = samples->capacity ? samples->capacity * 2 : 1 << 16;
    samples->values = realloc(samples->values, samples->capacity * sizeof *samples->values);
    if (!samples->values) die("out of memory");
  }
  samples->values[samples->count++] = value;
}

static inline int compare_samples(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

// Prints the percentiles as fields of a JSON object, in microseconds, with a comma before them.
static inline void print_percentiles(struct samples *samples) {
  if (samples->count == 0) return;
  qsort(samples->values, samples->count, sizeof *samples->values, compare_samples);
  double p50 = (double)samples->values[samples->count / 2], p99 = (double)samples->values[samples->count * 99 / 100];
  double max = (double)samples->values[samples->count - 1];
  printf(",\"p50\":%.1f,\"p99\":%.1f,\"max\":%.1f", p50 / 1e3, p99 / 1e3, max / 1e3);
}

// ---------------------------------------------------------------------------------------------------------------- HTTP

struct response {
  int status;
  const char *head, *body;
  size_t head_length, body_length, total;
  bool closes;
};

// The value of a field, or NULL. `name` is in lower case, with its colon.
static inline const char *field(const struct response *response, const char *name, size_t *length) {
  size_t name_length = strlen(name);
  const char *line = response->head, *end = response->head + response->head_length;
  while (line < end) {
    const char *next = memchr(line, '\n', (size_t)(end - line));
    if (!next) return NULL;
    if ((size_t)(next - line) > name_length && strncasecmp(line, name, name_length) == 0) {
      const char *value = line + name_length;
      while (*value == ' ') value++;
      *length = (size_t)(next - value) - (next[-1] == '\r');
      return value;
    }
    line = next + 1;
  }
  return NULL;
}

// The end of the chunked body that begins at `bytes`, or NULL if it is incomplete.
static inline const char *end_of_chunks(const char *bytes, const char *end) {
  while (bytes < end) {
    const char *line = memmem(bytes, (size_t)(end - bytes), "\r\n", 2);
    if (!line) return NULL;
    size_t size = strtoul(bytes, NULL, 16);
    if ((size_t)(end - line) < size + 4) return NULL;
    bytes = line + 2 + size + 2;
    if (size == 0) return bytes;
  }
  return NULL;
}

// Reads the response at the start of `bytes`. Returns false if it is incomplete.
static inline bool read_response(const char *bytes, size_t count, struct response *response) {
  const char *end = memmem(bytes, count, "\r\n\r\n", 4);
  if (!end) return false;
  if (count < 12 || memcmp(bytes, "HTTP/1.1 ", 9) != 0) die("not an HTTP/1.1 response: %.*s", (int)(end - bytes), bytes);
  size_t length;
  const char *value;
  response->status = atoi(bytes + 9);
  response->head = bytes;
  response->head_length = (size_t)(end - bytes) + 2;
  response->body = end + 4;
  value = field(response, "connection:", &length);
  response->closes = value && length == 5 && strncasecmp(value, "close", 5) == 0;
  if ((value = field(response, "content-length:", &length))) {
    response->body_length = strtoul(value, NULL, 10);
  } else if (field(response, "transfer-encoding:", &length)) {
    const char *last = end_of_chunks(response->body, bytes + count);
    if (!last) return false;
    response->body_length = (size_t)(last - response->body);
  } else {
    response->body_length = 0;
  }
  response->total = (size_t)(response->body - bytes) + response->body_length;
  return response->total <= count;
}

// -------------------------------------------------------------------------------------------------- Messages with time

// A message is {"at":"@<19 digits of nanoseconds>","pad":"xxx…"}. A receiver finds the time inside any JSON that a
// gateway adds around the message. `quote` is the quotation mark: "\"", or "\\\"" inside a JSON string.
static inline size_t write_message(char *target, size_t size, int64_t time, const char *quote) {
  char *end = target;
  end += sprintf(end, "{%sat%s:%s@%019lld%s,%spad%s:%s", quote, quote, quote, (long long)time, quote, quote, quote, quote);
  size_t overhead = strlen("{\"at\":\"@1234567890123456789\",\"pad\":\"\"}");
  if (size > overhead) {
    memset(end, 'x', size - overhead);
    end += size - overhead;
  }
  end += sprintf(end, "%s}", quote);
  return (size_t)(end - target);
}

// The next time in [*bytes, end), or 0. Moves *bytes after it.
static inline int64_t next_time(const char **bytes, const char *end) {
  while (*bytes < end) {
    const char *mark = memchr(*bytes, '@', (size_t)(end - *bytes));
    if (!mark || end - mark < 20) return 0;
    char *stop;
    int64_t time = strtoll(mark + 1, &stop, 10);
    *bytes = stop;
    if (stop == mark + 20) return time;
    *bytes = mark + 1;
  }
  return 0;
}

// --------------------------------------------------------------------------------------------------- Expected messages

// The command 'expect N MILLISECONDS' on standard input. The program records the latencies of messages until there are
// N or the time is over, and then reports them. Between two commands, 0 messages are expected.
struct expectation {
  int64_t count, deadline;
  struct samples latencies;
};

// Reads the command, and confirms it.
static inline void begin_expectation(struct expectation *expectation) {
  long long count, milliseconds;
  if (sscanf(read_command(), "expect %lld %lld", &count, &milliseconds) != 2) die("no command");
  expectation->count = count;
  expectation->deadline = now() + milliseconds * 1000000;
  expectation->latencies.count = 0;
  printf("{}\n");
  fflush(stdout);
}

// Like `wait_for`, but not beyond the deadline.
static inline int wait_expecting(const struct expectation *expectation, int epoll, struct epoll_event *events, int capacity) {
  int64_t left = expectation->deadline - now();
  return wait_for(epoll, events, capacity, expectation->count == 0 ? -1 : left < 0 ? 0 : left);
}

// Records the messages in [*bytes, end), which arrived at `time`. Moves *bytes after the last message.
static inline void add_messages(struct expectation *expectation, const char **bytes, const char *end, int64_t time) {
  for (int64_t sent; (sent = next_time(bytes, end));) {
    if (expectation->count > 0) add_sample(&expectation->latencies, time - sent);
  }
}

// Prints the result when all messages have arrived or the time is over.
static inline void report_expectation(struct expectation *expectation) {
  bool is_complete = (int64_t)expectation->latencies.count >= expectation->count;
  if (expectation->count == 0 || (!is_complete && now() < expectation->deadline)) return;
  printf("{\"deliveries\":%zu,\"complete\":%s", expectation->latencies.count, is_complete ? "true" : "false");
  print_percentiles(&expectation->latencies);
  printf("}\n");
  fflush(stdout);
  expectation->count = 0;
}
