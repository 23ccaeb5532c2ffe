// rate [-n] [-c] [-e] [-r] [-s COUNT] [-t TYPE] PORT CONNECTIONS SECONDS METHOD PATH [BODY [FIELD…]]: measures the
// requests per second on connections that each have one request at a time, after a warm-up of a fifth of the time.
//
//   -n        a new connection for each request, like curl: connect, send, read the response, close. The client closes
//             first, and its ports stay in TIME_WAIT for a minute. It therefore connects from 127.0.0.2 to 127.0.0.251
//             in turn.
//   -c        BODY is sent in chunked transfer coding, as one chunk
//   -e        over TLS. Certificates are not verified.
//   -r        resumes a session for each connection except the first connections
//   -s COUNT  a '*' in PATH is replaced by 0 to COUNT-1 in turn
//   -t TYPE   the Content-Type of BODY, which is sent unchanged. The default is application/json. An empty BODY means
//             no body.
//
// Prints a JSON object with times in microseconds. Only 'all' includes the warm-up. 'refused' counts responses other
// than 2xx, and 207 (Multi-Status) responses, in which parts of a batch were refused. With TLS, 'handshakes' and
// 'resumed' count connections, including the warm-up.
#include "common.h"

#include <openssl/err.h>
#include <openssl/ssl.h>

struct connection {
  int fd;
  // NULL without TLS.
  SSL *tls;
  bool is_established;
  int64_t sent;
  size_t count;
  char input[65536];
};

static struct samples latencies;
static int64_t good, bad, reconnects, all_responses;

static int port;
static bool is_new_each_time, is_spread, is_chunked;
// Requests that differ only in their paths. They are sent in turn.
static struct {
  char *bytes;
  size_t length;
} *requests;
static size_t request_count = 1, next_request;

// NULL without TLS.
static SSL_CTX *context;
// The session that new connections resume.
static SSL_SESSION *session;
static bool resumes;
static int64_t handshakes, resumed;

static int keep_session(SSL *tls, SSL_SESSION *new) {
  (void)tls;
  if (session) SSL_SESSION_free(session);
  session = new;
  return 1;
}

static void prepare_tls(void) {
  context = SSL_CTX_new(TLS_client_method());
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL);
  if (resumes) SSL_CTX_sess_set_new_cb(context, keep_session);
}

static void open_connection(struct connection *connection, int epoll, uint64_t index) {
  static int source;
  connection->fd = connect_from(is_new_each_time ? 2 + source++ % 250 : 0, port);
  connection->count = 0;
  watch(epoll, connection->fd, EPOLLIN, index);
  if (!context) return;
  connection->tls = SSL_new(context);
  connection->is_established = false;
  SSL_set_fd(connection->tls, connection->fd);
  SSL_set_connect_state(connection->tls);
  if (session) SSL_set_session(connection->tls, session);
}

static void close_connection(struct connection *connection) {
  if (connection->tls) {
    // This sends close_notify, because OpenSSL does not resume a session that ended without it.
    SSL_shutdown(connection->tls);
    SSL_free(connection->tls);
  }
  close(connection->fd);
}

static void write_request(struct connection *connection) {
  size_t index = next_request++ % request_count;
  char *bytes = requests[index].bytes;
  size_t length = requests[index].length;
  bool written = connection->tls ? SSL_write(connection->tls, bytes, (int)length) == (int)length
                                 : write_all(connection->fd, bytes, length);
  if (!written) die("the server closed a connection on a request");
}

// Continues the handshake, and then writes the request.
static void advance(struct connection *connection) {
  if (connection->tls && !connection->is_established) {
    ERR_clear_error();
    int result = SSL_do_handshake(connection->tls);
    if (result != 1) {
      if (SSL_get_error(connection->tls, result) == SSL_ERROR_WANT_READ) return;
      die("a TLS handshake failed: %s", ERR_reason_error_string(ERR_get_error()));
    }
    connection->is_established = true;
    handshakes++;
    resumed += SSL_session_reused(connection->tls);
  }
  write_request(connection);
}

static void send_request(struct connection *connection) {
  connection->sent = now();
  advance(connection);
}

static ssize_t receive(struct connection *connection) {
  char *room = connection->input + connection->count;
  size_t size = sizeof connection->input - connection->count;
  if (!connection->tls) return recv(connection->fd, room, size, 0);
  ERR_clear_error();
  int received = SSL_read(connection->tls, room, (int)size);
  if (received > 0) return received;
  if (SSL_get_error(connection->tls, received) != SSL_ERROR_WANT_READ) return 0;
  errno = EAGAIN;
  return -1;
}

// `arguments` are METHOD PATH [BODY [FIELD…]].
static void prepare_requests(int count, char **arguments, const char *type) {
  const char *path = arguments[1], *body = count > 2 ? arguments[2] : "", *star = is_spread ? strchr(path, '*') : NULL;
  requests = calloc(request_count, sizeof *requests);
  for (size_t index = 0; index < request_count; index++) {
    char *request = requests[index].bytes = malloc(4096 + strlen(body)), *end = request;
    if (star)
      end += sprintf(end, "%s %.*s%zu%s", arguments[0], (int)(star - path), path, index, star + 1);
    else
      end += sprintf(end, "%s %s", arguments[0], path);
    end += sprintf(end, " HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n", port);
    for (int field = 3; field < count; field++) end += sprintf(end, "%s\r\n", arguments[field]);
    if (*body) end += sprintf(end, "Content-Type: %s\r\n", type);
    if (*body && is_chunked)
      end += sprintf(end, "Transfer-Encoding: chunked\r\n\r\n%zx\r\n%s\r\n0\r\n\r\n", strlen(body), body);
    else if (*body)
      end += sprintf(end, "Content-Length: %zu\r\n\r\n%s", strlen(body), body);
    else
      end += sprintf(end, "\r\n");
    requests[index].length = (size_t)(end - request);
  }
}

int main(int count, char **arguments) {
  bool is_secure = false;
  const char *type = "application/json", *usage =
      "usage: rate [-n] [-c] [-e] [-r] [-s COUNT] [-t TYPE] PORT CONNECTIONS SECONDS METHOD PATH [BODY [FIELD...]]";
  for (int option; (option = getopt(count, arguments, "+ncers:t:")) != -1;) {
    if (option == 'n') is_new_each_time = true;
    else if (option == 'c') is_chunked = true;
    else if (option == 'e') is_secure = true;
    else if (option == 'r') resumes = true;
    else if (option == 's') is_spread = true, request_count = strtoul(optarg, NULL, 10);
    else if (option == 't') type = optarg;
    else die("%s", usage);
  }
  count -= optind;
  arguments += optind;
  if (count < 5 || request_count == 0) die("%s", usage);
  raise_descriptor_limit();
  port = atoi(arguments[0]);
  int connections = atoi(arguments[1]);
  int64_t duration = (int64_t)(atof(arguments[2]) * NANOSECONDS);
  prepare_requests(count - 3, arguments + 3, type);
  if (is_secure) prepare_tls();

  int epoll = epoll_create1(EPOLL_CLOEXEC);
  struct connection *all = calloc((size_t)connections, sizeof *all);
  for (int index = 0; index < connections; index++) open_connection(&all[index], epoll, (uint64_t)index);
  int64_t start = now() + duration / 5, end = start + duration;
  for (int index = 0; index < connections; index++) send_request(&all[index]);

  struct epoll_event events[256];
  int64_t time = 0;
  while (time < end) {
    int ready = wait_for(epoll, events, 256, 5 * NANOSECONDS);
    time = now();
    if (ready == 0) die("no response within 5 seconds, after %lld responses", (long long)good);
    for (int index = 0; index < ready; index++) {
      struct connection *connection = &all[events[index].data.u64];
      if (connection->tls && !connection->is_established) {
        advance(connection);
        continue;
      }
      ssize_t received = receive(connection);
      if (received < 0 && errno == EAGAIN) continue;
      bool ended = received <= 0;
      struct response response = {0};
      if (ended && is_new_each_time) die("the server closed a connection without a response");
      if (!ended) {
        connection->count += (size_t)received;
        if (!read_response(connection->input, connection->count, &response)) {
          if (connection->count == sizeof connection->input) die("a response of more than %zu bytes", connection->count);
          continue;
        }
        all_responses++;
        if (response.status < 200 || response.status > 299 || response.status == 207) bad++;
        else if (time >= start) good++;
        if (time >= start) add_sample(&latencies, time - connection->sent);
      }
      connection->count = 0;
      if (ended || response.closes || is_new_each_time) {
        reconnects++;
        close_connection(connection);
        open_connection(connection, epoll, events[index].data.u64);
      }
      send_request(connection);
    }
  }
  printf("{\"rate\":%.1f,\"requests\":%lld,\"refused\":%lld,\"reconnects\":%lld,\"all\":%lld", (double)good * 1e9 / (double)duration,
         (long long)good, (long long)bad, (long long)reconnects, (long long)all_responses);
  if (context) printf(",\"handshakes\":%lld,\"resumed\":%lld", (long long)handshakes, (long long)resumed);
  print_percentiles(&latencies);
  printf("}\n");
}
