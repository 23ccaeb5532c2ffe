// bridge [-s COUNT] PORT UPSTREAM-URL: the gateway's work in C, on one thread with epoll. It is the floor for the same
// work.
//
//   -s COUNT  creates COUNT sessions, s0, s1 and so on, each with its own connection to the upstream. Paths begin with
//             /v1/sessions/NAME/.
//
// POST /v1/messages forwards its body as one masked WebSocket message, or each line of application/x-ndjson as one
// message. GET /v1/messages?cursor=C&wait=S&limit=L returns the messages after the cursor as JSON, or waits for the
// next message. HTTP/1.1 has keep-alive and pipelining. Requests, UTF-8 and frames are checked. The responses are as
// long as the gateway's responses. All responses and frames of a turn are sent at its end. Polls with the same cursor
// get the same rendered response.
//
// It has no TLS, no chunked request bodies, no reconnection, no confirmations and no record of deliveries. A response
// contains a text message always as a JSON string. A client that is too slow gets no gap, but the oldest message that
// is left.
#include "../../programs/common.h"

#include <openssl/evp.h>
#include <openssl/sha.h>
#include <sys/random.h>

enum {
  HEAD_LIMIT = 16 << 10,       // bytes of a request's head
  BODY_LIMIT = 16 << 20,       // bytes of a request's body, and of a message from the upstream
  BATCH_LIMIT = 1024,          // messages of one batch
  QUEUE_LIMIT = 64 << 20,      // bytes of frames that the upstream has not read yet
  RESPONSES_LIMIT = 1 << 20,   // bytes of unread responses; above this limit, further requests of the client wait
  RETAINED = 10000,            // messages kept for polls
};

// ------------------------------------------------------------------------------------------------------- Buffers, text

struct buffer {
  char *bytes;
  size_t start, end, capacity;
};

static size_t length_of(const struct buffer *buffer) { return buffer->end - buffer->start; }

// Makes room for `count` bytes at the end and returns it. The caller adds the number of bytes written to `end`.
static char *reserve(struct buffer *buffer, size_t count) {
  if (buffer->end + count > buffer->capacity && buffer->start > 0) {
    memmove(buffer->bytes, buffer->bytes + buffer->start, length_of(buffer));
    buffer->end -= buffer->start;
    buffer->start = 0;
  }
  if (buffer->end + count > buffer->capacity) {
    size_t capacity = buffer->capacity ? buffer->capacity : 512;
    while (capacity < buffer->end + count) capacity *= 2;
    buffer->bytes = realloc(buffer->bytes, capacity);
    if (!buffer->bytes) die("out of memory");
    buffer->capacity = capacity;
  }
  return buffer->bytes + buffer->end;
}

static void append(struct buffer *buffer, const void *bytes, size_t count) {
  memcpy(reserve(buffer, count), bytes, count);
  buffer->end += count;
}

static void release(struct buffer *buffer) {
  free(buffer->bytes);
  *buffer = (struct buffer){0};
}

#define APPEND_LITERAL(buffer, text) append(buffer, text, sizeof(text) - 1)

static void append_number(struct buffer *buffer, uint64_t number) {
  char digits[20], *first = digits + sizeof digits;
  do *--first = (char)('0' + number % 10);
  while (number /= 10);
  append(buffer, first, (size_t)(digits + sizeof digits - first));
}

static bool is_utf8(const char *text, size_t count) {
  const uint8_t *bytes = (const uint8_t *)text, *end = bytes + count;
  while (bytes < end) {
    uint64_t word;
    if (end - bytes >= 8 && (memcpy(&word, bytes, 8), (word & 0x8080808080808080) == 0)) {
      bytes += 8;
      continue;
    }
    uint8_t first = *bytes++;
    if (first < 0x80) continue;
    int more = first < 0xE0 ? 1 : first < 0xF0 ? 2 : 3;
    if (first < 0xC2 || first > 0xF4 || end - bytes < more) return false;
    // The second byte excludes overlong forms, surrogates and values above U+10FFFF.
    uint8_t least = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
    uint8_t greatest = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
    if (bytes[0] < least || bytes[0] > greatest) return false;
    for (int index = 1; index < more; index++)
      if ((bytes[index] & 0xC0) != 0x80) return false;
    bytes += more;
  }
  return true;
}

static void append_json_string(struct buffer *buffer, const char *text, size_t count) {
  char *first = reserve(buffer, count * 6 + 2), *target = first;
  *target++ = '"';
  for (size_t index = 0; index < count; index++) {
    uint8_t byte = (uint8_t)text[index];
    if (byte == '"' || byte == '\\') *target++ = '\\';
    if (byte < 0x20) target += sprintf(target, "\\u%04x", byte);
    else *target++ = (char)byte;
  }
  *target++ = '"';
  buffer->end += (size_t)(target - first);
}

// The time of this turn, and its second as text, rendered once per second.
static struct {
  time_t second;
  int milliseconds;
  char http[32], iso[24];
} clock_text;

static void read_clock(void) {
  struct timespec time;
  clock_gettime(CLOCK_REALTIME_COARSE, &time);
  clock_text.milliseconds = (int)(time.tv_nsec / 1000000);
  if (time.tv_sec == clock_text.second) return;
  clock_text.second = time.tv_sec;
  struct tm fields;
  gmtime_r(&time.tv_sec, &fields);
  strftime(clock_text.http, sizeof clock_text.http, "%a, %d %b %Y %H:%M:%S GMT", &fields);
  strftime(clock_text.iso, sizeof clock_text.iso, "%Y-%m-%dT%H:%M:%S", &fields);
}

// --------------------------------------------------------------------------------------------------------------- State

struct session {
  char name[24];
  int fd;
  // `is_dirty`: the session has frames of this turn.
  bool is_full, is_dirty;
  struct session *next_dirty;
  struct buffer input, output, fragments;
  int opcode;
  // Message number n is at n % RETAINED, as JSON. The first message has number 1.
  struct message *messages;
  uint64_t newest, deliveries;
};

struct message {
  char *json;
  size_t length;
};

struct client {
  int fd;
  uint32_t interest;
  // `is_stopped`: requests in the input wait for the responses before them. `closes`: the connection closes after the
  // responses. `drains`: reads until the client closes, so that a reset does not destroy the response.
  bool is_waiting, is_stopped, is_dirty, is_dead, closes, drains;
  // The held poll.
  struct session *session;
  uint64_t cursor;
  size_t limit;
  int64_t deadline;
  // Held polls form a list in the order of their deadlines.
  struct client *previous, *next;
  // Clients with responses of this turn, and clients closed in this turn.
  struct client *next_dirty, *next_dead;
  struct buffer input, output;
};

static int epoll;
static struct client waiting = {.previous = &waiting, .next = &waiting};
static struct client *dirty, **dirty_end = &dirty, *dead;

static struct session *sessions, *dirty_sessions;
static size_t session_count = 1;
static char instance[13];

// ---------------------------------------------------------------------------------------------- Frames to the upstream

// Masking keys come from the kernel's random numbers, a page at a time.
static uint32_t masking_key(void) {
  static uint32_t keys[1024];
  static size_t next = 1024;
  if (next == 1024) {
    for (size_t count = 0; count < sizeof keys;) {
      ssize_t got = getrandom((char *)keys + count, sizeof keys - count, 0);
      if (got > 0) count += (size_t)got;
    }
    next = 0;
  }
  return keys[next++];
}

static bool has_room(const struct session *session, size_t bytes) {
  return length_of(&session->output) + bytes <= QUEUE_LIMIT;
}

static void append_frame(struct session *session, int opcode, const char *payload, size_t length) {
  if (!session->is_dirty) {
    session->is_dirty = true;
    session->next_dirty = dirty_sessions;
    dirty_sessions = session;
  }
  uint8_t *first = (uint8_t *)reserve(&session->output, length + 14), *target = first;
  *target++ = (uint8_t)(0x80 | opcode);
  if (length < 126) {
    *target++ = (uint8_t)(0x80 | length);
  } else if (length < 65536) {
    *target++ = 0x80 | 126;
    *target++ = (uint8_t)(length >> 8);
    *target++ = (uint8_t)length;
  } else {
    *target++ = 0x80 | 127;
    for (int shift = 56; shift >= 0; shift -= 8) *target++ = (uint8_t)(length >> shift);
  }
  uint32_t key = masking_key();
  memcpy(target, &key, 4);
  target += 4;
  uint64_t wide = (uint64_t)key << 32 | key, word;
  size_t index = 0;
  for (; index + 8 <= length; index += 8) {
    memcpy(&word, payload + index, 8);
    word ^= wide;
    memcpy(target + index, &word, 8);
  }
  for (; index < length; index++) target[index] = (uint8_t)payload[index] ^ (uint8_t)(key >> 8 * (index % 4));
  session->output.end += (size_t)(target - first) + length;
}

static void flush_session(struct session *session) {
  struct buffer *output = &session->output;
  while (length_of(output) > 0) {
    ssize_t sent = send(session->fd, output->bytes + output->start, length_of(output), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && errno != EAGAIN) die("the upstream closed its connection");
    if (sent < 0) break;
    output->start += (size_t)sent;
  }
  if (length_of(output) == 0) output->start = output->end = 0;
  bool is_full = length_of(output) > 0;
  if (is_full == session->is_full) return;
  session->is_full = is_full;
  struct epoll_event event = {.events = is_full ? EPOLLIN | EPOLLOUT : EPOLLIN, .data.ptr = session};
  epoll_ctl(epoll, EPOLL_CTL_MOD, session->fd, &event);
}

static void flush_sessions(void) {
  while (dirty_sessions) {
    struct session *session = dirty_sessions;
    dirty_sessions = session->next_dirty;
    session->is_dirty = false;
    flush_session(session);
  }
}

// ----------------------------------------------------------------------------------------------------------- Responses

static void mark_dirty(struct client *client) {
  if (client->is_dirty) return;
  client->is_dirty = true;
  client->next_dirty = NULL;
  *dirty_end = client;
  dirty_end = &client->next_dirty;
}

// Appends a head for a body of `length` bytes to `target`; `fields` are further lines.
static void append_head(struct buffer *target, const char *status, size_t length, const char *fields, size_t fields_length) {
  APPEND_LITERAL(target, "HTTP/1.1 ");
  append(target, status, strlen(status));
  APPEND_LITERAL(target, "\r\nDate: ");
  append(target, clock_text.http, 29);
  APPEND_LITERAL(target, "\r\nContent-Length: ");
  append_number(target, length);
  APPEND_LITERAL(target,
                 "\r\nContent-Type: application/json\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n");
  append(target, fields, fields_length);
  APPEND_LITERAL(target, "\r\n");
}

// Responds with an error. `closes` is true if the rest of the input cannot be read as requests.
static void refuse(struct client *client, const char *status, bool closes) {
  char body[256];
  size_t length = (size_t)sprintf(body, "{\"title\":\"%s\"}\n", status);
  const char *fields = closes ? "Connection: close\r\n" : memcmp(status, "503", 3) == 0 ? "Retry-After: 1\r\n" : "";
  append_head(&client->output, status, length, fields, strlen(fields));
  append(&client->output, body, length);
  client->closes |= closes;
  mark_dirty(client);
}

static void append_delivery_id(struct buffer *target, uint64_t number) {
  APPEND_LITERAL(target, "d-");
  append(target, instance, 12);
  APPEND_LITERAL(target, ".");
  append_number(target, number);
}

static void append_result(struct buffer *target, struct session *session) {
  APPEND_LITERAL(target, "{\"id\":\"");
  append_delivery_id(target, ++session->deliveries);
  APPEND_LITERAL(target, "\",\"state\":\"queued\",\"session\":\"");
  append(target, session->name, strlen(session->name));
  APPEND_LITERAL(target, "\"}");
}

// The response to polls after `cursor`. It is rendered once, and reused until something changes.
static const struct buffer *prepare_poll(const struct session *session, uint64_t cursor, size_t limit) {
  static struct buffer response, body;
  static const struct session *prepared_session;
  static uint64_t prepared_cursor = UINT64_MAX, prepared_newest;
  static size_t prepared_limit;
  static time_t prepared_second;
  uint64_t newest = session->newest;
  if (prepared_session == session && prepared_cursor == cursor && prepared_newest == newest && prepared_limit == limit &&
      prepared_second == clock_text.second)
    return &response;
  prepared_session = session;
  prepared_cursor = cursor;
  prepared_newest = newest;
  prepared_limit = limit;
  prepared_second = clock_text.second;
  uint64_t end = newest - cursor > limit ? cursor + limit : newest;
  response.start = response.end = body.start = body.end = 0;
  APPEND_LITERAL(&body, "{\"messages\":[");
  for (uint64_t number = cursor + 1; number <= end; number++) {
    if (number > cursor + 1) APPEND_LITERAL(&body, ",");
    append(&body, session->messages[number % RETAINED].json, session->messages[number % RETAINED].length);
  }
  char fields[80];
  size_t length = (size_t)sprintf(fields, "Gateway-Cursor: p-%s.%llu\r\n", instance, (unsigned long long)end);
  APPEND_LITERAL(&body, "],\"cursor\":\"");
  append(&body, fields + 16, length - 18);
  if (end < newest) APPEND_LITERAL(&body, "\",\"more\":true,\"gap\":null}\n");
  else APPEND_LITERAL(&body, "\",\"more\":false,\"gap\":null}\n");
  append_head(&response, "200 OK", length_of(&body), fields, length);
  append(&response, body.bytes, length_of(&body));
  return &response;
}

static void respond_to_poll(struct client *client) {
  // Skips messages that are no longer kept.
  uint64_t newest = client->session->newest;
  if (newest - client->cursor > RETAINED) client->cursor = newest - RETAINED;
  const struct buffer *response = prepare_poll(client->session, client->cursor, client->limit);
  append(&client->output, response->bytes, length_of(response));
  mark_dirty(client);
}

// ------------------------------------------------------------------------------------------------------------ Requests

struct request {
  const char *target, *body;
  size_t target_length, body_length;
  bool is_post, closes, expects;
  enum { BINARY, TEXT, BATCH } form;
};

static bool starts_with(const char *text, size_t length, const char *prefix) {
  size_t count = strlen(prefix);
  return length >= count && strncasecmp(text, prefix, count) == 0;
}

static bool is_equal(const char *text, size_t length, const char *other) {
  return length == strlen(other) && strncasecmp(text, other, length) == 0;
}

// Reads decimal digits. Returns false if there are no digits or other characters, or if the number is above `limit`.
static bool read_number(const char *text, size_t length, uint64_t limit, uint64_t *number) {
  *number = 0;
  for (size_t index = 0; index < length; index++) {
    if (text[index] < '0' || text[index] > '9') return false;
    *number = *number * 10 + (uint64_t)(text[index] - '0');
    if (*number > limit) return false;
  }
  return length > 0;
}

// Reads a field line. Returns the status of an error, or NULL.
static const char *read_field(struct request *request, const char *line, size_t length, bool *has_length) {
  const char *colon = memchr(line, ':', length);
  if (!colon || colon == line || colon[-1] == ' ' || colon[-1] == '\t' || *line == ' ' || *line == '\t')
    return "400 Bad Request";
  size_t name_length = (size_t)(colon - line);
  const char *value = colon + 1, *end = line + length;
  while (value < end && (*value == ' ' || *value == '\t')) value++;
  while (end > value && (end[-1] == ' ' || end[-1] == '\t')) end--;
  size_t value_length = (size_t)(end - value);
  if (name_length == 14 && is_equal(line, name_length, "content-length")) {
    uint64_t number;
    if (*has_length || !read_number(value, value_length, UINT32_MAX, &number)) return "400 Bad Request";
    *has_length = true;
    request->body_length = number;
  } else if (name_length == 12 && is_equal(line, name_length, "content-type")) {
    bool is_batch = starts_with(value, value_length, "application/x-ndjson");
    bool is_text = starts_with(value, value_length, "text/") || starts_with(value, value_length, "application/json") ||
                   starts_with(value, value_length, "application/x-www-form-urlencoded");
    request->form = is_batch ? BATCH : is_text ? TEXT : BINARY;
  } else if (name_length == 17 && is_equal(line, name_length, "transfer-encoding")) {
    return "411 Length Required";
  } else if (name_length == 10 && is_equal(line, name_length, "connection")) {
    request->closes |= is_equal(value, value_length, "close");
  } else if (name_length == 6 && is_equal(line, name_length, "expect")) {
    request->expects = is_equal(value, value_length, "100-continue");
  }
  return NULL;
}

// Reads a head of `length` bytes, which ends with an empty line. Returns the status of an error, or NULL.
static const char *read_head(struct request *request, const char *head, size_t length) {
  const char *end = head + length - 2, *line_end = memchr(head, '\r', length), *space = memchr(head, ' ', length);
  if (!space || space > line_end || line_end[1] != '\n') return "400 Bad Request";
  bool is_get = is_equal(head, (size_t)(space - head), "GET");
  request->is_post = is_equal(head, (size_t)(space - head), "POST");
  request->target = space + 1;
  const char *version = memchr(request->target, ' ', (size_t)(line_end - request->target));
  if (!version) return "400 Bad Request";
  request->target_length = (size_t)(version - request->target);
  if (line_end - version != 9 || memcmp(version, " HTTP/1.", 8) != 0) return "400 Bad Request";
  request->closes = version[8] == '0';
  bool has_length = false;
  for (const char *line = line_end + 2; line < end; line = line_end + 2) {
    line_end = memchr(line, '\r', (size_t)(end - line));
    if (!line_end || line_end[1] != '\n') return "400 Bad Request";
    const char *error = read_field(request, line, (size_t)(line_end - line), &has_length);
    if (error) return error;
  }
  if (request->body_length > BODY_LIMIT) return "413 Content Too Large";
  if (!is_get && !request->is_post) return "405 Method Not Allowed";
  return NULL;
}

static void post(struct client *client, struct session *session, const struct request *request) {
  if (request->form != BINARY && !is_utf8(request->body, request->body_length)) {
    refuse(client, "400 Bad Request", false);
    return;
  }
  // Counts all lines before it forwards the first: a batch is accepted as a whole or not at all.
  const char *end = request->body + request->body_length;
  size_t count = 1;
  if (request->form == BATCH) {
    count = 0;
    for (const char *line = request->body, *next; line < end; line = next + 1) {
      next = memchr(line, '\n', (size_t)(end - line));
      if (!next) next = end;
      if (next > line && !(next == line + 1 && *line == '\r')) count++;
    }
  }
  if (count == 0 || count > BATCH_LIMIT) {
    refuse(client, count == 0 ? "400 Bad Request" : "413 Content Too Large", false);
    return;
  }
  if (!has_room(session, request->body_length + count * 14)) {
    refuse(client, "503 Service Unavailable", false);
    return;
  }
  static struct buffer body;
  body.start = body.end = 0;
  char fields[128];
  size_t fields_length = 0;
  if (request->form == BATCH) {
    APPEND_LITERAL(&body, "{\"results\":[");
    for (const char *line = request->body, *next; line < end; line = next + 1) {
      next = memchr(line, '\n', (size_t)(end - line));
      if (!next) next = end;
      size_t length = (size_t)(next - line);
      if (length > 0 && line[length - 1] == '\r') length--;
      if (length == 0) continue;
      append_frame(session, 1, line, length);
      if (length_of(&body) > 12) APPEND_LITERAL(&body, ",");
      append_result(&body, session);
    }
    APPEND_LITERAL(&body, "]}\n");
  } else {
    append_frame(session, request->form == TEXT ? 1 : 2, request->body, request->body_length);
    append_result(&body, session);
    APPEND_LITERAL(&body, "\n");
    struct buffer location = {.bytes = fields, .capacity = sizeof fields};
    if (session_count == 1) {
      APPEND_LITERAL(&location, "Location: /v1/deliveries/");
    } else {
      APPEND_LITERAL(&location, "Location: /v1/sessions/");
      append(&location, session->name, strlen(session->name));
      APPEND_LITERAL(&location, "/deliveries/");
    }
    append_delivery_id(&location, session->deliveries);
    APPEND_LITERAL(&location, "\r\n");
    fields_length = location.end;
  }
  append_head(&client->output, "202 Accepted", length_of(&body), fields, fields_length);
  append(&client->output, body.bytes, length_of(&body));
  mark_dirty(client);
}

static void poll(struct client *client, struct session *session, const struct request *request) {
  const char *end = request->target + request->target_length;
  const char *parameter = memchr(request->target, '?', request->target_length);
  uint64_t newest = session->newest, wait = 25, limit = 100, oldest = newest > RETAINED ? newest - RETAINED : 0;
  bool is_valid = true;
  client->session = session;
  client->cursor = newest;
  while (parameter && ++parameter < end) {
    const char *next = memchr(parameter, '&', (size_t)(end - parameter)), *stop = next ? next : end;
    const char *equals = memchr(parameter, '=', (size_t)(stop - parameter));
    if (!equals) equals = stop;
    size_t name_length = (size_t)(equals - parameter);
    const char *value = equals < stop ? equals + 1 : stop;
    size_t length = (size_t)(stop - value);
    if (is_equal(parameter, name_length, "cursor")) {
      if (is_equal(value, length, "earliest")) {
        client->cursor = oldest;
      } else if (!is_equal(value, length, "latest")) {
        is_valid &= length > 15 && memcmp(value, "p-", 2) == 0 && memcmp(value + 2, instance, 12) == 0 && value[14] == '.' &&
                    read_number(value + 15, length - 15, newest, &client->cursor);
      }
    } else if (is_equal(parameter, name_length, "wait")) {
      is_valid &= read_number(value, length, UINT32_MAX, &wait);
    } else if (is_equal(parameter, name_length, "limit")) {
      is_valid &= read_number(value, length, UINT32_MAX, &limit) && limit > 0;
    }
    parameter = next;
  }
  if (!is_valid) {
    refuse(client, "400 Bad Request", false);
    return;
  }
  client->limit = limit > RETAINED ? RETAINED : limit;
  if (client->cursor < newest || wait == 0) {
    respond_to_poll(client);
    return;
  }
  client->is_waiting = true;
  client->deadline = now() + (int64_t)(wait > 55 ? 55 : wait) * NANOSECONDS;
  // Most polls wait equally long, so the search begins at the end.
  struct client *before = waiting.previous;
  while (before != &waiting && before->deadline > client->deadline) before = before->previous;
  client->previous = before;
  client->next = before->next;
  before->next->previous = client;
  before->next = client;
}

// Returns the session with this path for messages, or NULL.
static struct session *find_session(const char *path, size_t length) {
  if (length == 12 && memcmp(path, "/v1/messages", 12) == 0) return sessions;
  uint64_t index;
  bool is_valid = length > 23 && memcmp(path, "/v1/sessions/s", 14) == 0 && memcmp(path + length - 9, "/messages", 9) == 0 &&
                  read_number(path + 14, length - 23, session_count - 1, &index);
  return is_valid ? &sessions[index] : NULL;
}

// Handles the request at the start of `bytes`. Returns its length, or 0 if it is incomplete.
static size_t take_request(struct client *client, const char *bytes, size_t count) {
  const char *end = memmem(bytes, count < HEAD_LIMIT ? count : HEAD_LIMIT, "\r\n\r\n", 4);
  if (!end) {
    if (count < HEAD_LIMIT) return 0;
    refuse(client, "431 Request Header Fields Too Large", true);
    return count;
  }
  struct request request = {.form = BINARY};
  size_t head_length = (size_t)(end - bytes) + 4;
  const char *error = read_head(&request, bytes, head_length);
  if (error) {
    refuse(client, error, true);
    return count;
  }
  if (count - head_length < request.body_length) {
    // Sent once, while no byte of the body has arrived.
    if (request.expects && count == head_length) {
      APPEND_LITERAL(&client->output, "HTTP/1.1 100 Continue\r\n\r\n");
      mark_dirty(client);
    }
    return 0;
  }
  request.body = bytes + head_length;
  client->closes = request.closes;
  const char *query = memchr(request.target, '?', request.target_length);
  size_t path_length = query ? (size_t)(query - request.target) : request.target_length;
  struct session *session = find_session(request.target, path_length);
  if (!session) refuse(client, "404 Not Found", false);
  else if (request.is_post) post(client, session, &request);
  else poll(client, session, &request);
  return head_length + request.body_length;
}

// Handles all complete requests at the start of `bytes`. Stops at a held poll, or if the client does not read.
static size_t take_requests(struct client *client, const char *bytes, size_t count) {
  size_t offset = 0;
  while (offset < count && !client->is_waiting && !client->closes && length_of(&client->output) < RESPONSES_LIMIT) {
    size_t taken = take_request(client, bytes + offset, count - offset);
    if (taken == 0) break;
    offset += taken;
  }
  client->is_stopped = offset < count && (client->is_waiting || length_of(&client->output) >= RESPONSES_LIMIT);
  return offset;
}

// ------------------------------------------------------------------------------------------------------------- Clients

static void stop_waiting(struct client *client) {
  client->is_waiting = false;
  client->previous->next = client->next;
  client->next->previous = client->previous;
}

// Closes the connection. The memory is freed at the end of the turn, since an event or a list may still refer to it.
static void drop(struct client *client) {
  if (client->is_dead) return;
  if (client->is_waiting) stop_waiting(client);
  close(client->fd);
  release(&client->input);
  release(&client->output);
  client->is_dead = true;
  client->next_dead = dead;
  dead = client;
}

static void set_interest(struct client *client) {
  bool is_full = length_of(&client->output) > 0 || (client->is_waiting && length_of(&client->input) > HEAD_LIMIT);
  uint32_t interest = (length_of(&client->output) > 0 ? EPOLLOUT : 0) | (is_full ? 0 : EPOLLIN);
  if (interest == client->interest) return;
  client->interest = interest;
  struct epoll_event event = {.events = interest, .data.ptr = client};
  epoll_ctl(epoll, EPOLL_CTL_MOD, client->fd, &event);
}

// Handles the requests in the input.
static void resume(struct client *client) {
  client->input.start += take_requests(client, client->input.bytes + client->input.start, length_of(&client->input));
  if (length_of(&client->input) == 0) release(&client->input);
}

static void read_client(struct client *client) {
  static char shared[1 << 16];
  bool is_shared = length_of(&client->input) == 0;
  char *target = is_shared ? shared : reserve(&client->input, sizeof shared);
  ssize_t received = recv(client->fd, target, sizeof shared, 0);
  if (received < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (received <= 0) {
    drop(client);
    return;
  }
  if (client->drains) return;
  if (is_shared) {
    size_t taken = take_requests(client, shared, (size_t)received);
    if (taken < (size_t)received) append(&client->input, shared + taken, (size_t)received - taken);
  } else {
    client->input.end += (size_t)received;
    resume(client);
  }
  if (client->is_waiting) set_interest(client);
}

// Sends as much of a client's responses as possible.
static void flush_client(struct client *client) {
  struct buffer *output = &client->output;
  while (length_of(output) > 0) {
    ssize_t sent = send(client->fd, output->bytes + output->start, length_of(output), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && errno != EAGAIN) {
      drop(client);
      return;
    }
    if (sent < 0) break;
    output->start += (size_t)sent;
  }
  if (length_of(output) == 0) {
    release(output);
    if (client->closes && !client->is_waiting && !client->drains) {
      client->drains = true;
      client->is_stopped = false;
      release(&client->input);
      shutdown(client->fd, SHUT_WR);
    }
    if (client->is_stopped && !client->is_waiting) resume(client);
  }
  set_interest(client);
}

// ------------------------------------------------------------------------------------------ Messages from the upstream

static void keep_message(struct session *session, int opcode, const char *payload, size_t length) {
  if (opcode == 1 && !is_utf8(payload, length)) die("the upstream sent text that is not UTF-8");
  static struct buffer json;
  json.start = json.end = 0;
  session->newest++;
  APPEND_LITERAL(&json, "{\"id\":\"p-");
  append(&json, instance, 12);
  APPEND_LITERAL(&json, ".");
  append_number(&json, session->newest);
  APPEND_LITERAL(&json, "\",\"time\":\"");
  append(&json, clock_text.iso, 19);
  char fraction[] = ".000Z\",\"type\":\"";
  for (int index = 3, rest = clock_text.milliseconds; index > 0; index--, rest /= 10) fraction[index] = (char)('0' + rest % 10);
  append(&json, fraction, sizeof fraction - 1);
  if (opcode == 1) {
    APPEND_LITERAL(&json, "text\",\"topic\":null,\"data\":");
    append_json_string(&json, payload, length);
  } else {
    APPEND_LITERAL(&json, "binary\",\"topic\":null,\"data_base64\":\"");
    json.end += (size_t)EVP_EncodeBlock((uint8_t *)reserve(&json, length * 4 / 3 + 8), (const uint8_t *)payload, (int)length);
    APPEND_LITERAL(&json, "\"");
  }
  APPEND_LITERAL(&json, "}");
  struct message *message = &session->messages[session->newest % RETAINED];
  free(message->json);
  message->json = malloc(length_of(&json));
  if (!message->json) die("out of memory");
  memcpy(message->json, json.bytes, length_of(&json));
  message->length = length_of(&json);
}

static void take_frame(struct session *session, int first, const char *payload, size_t length) {
  int opcode = first & 0x0F;
  bool is_final = first & 0x80;
  if (opcode == 8) {
    append_frame(session, 8, payload, length);
    flush_session(session);
    exit(0);
  }
  if (opcode == 9) append_frame(session, 10, payload, length);
  if (opcode >= 8) return;
  // A message in several frames is assembled. Meanwhile, `session->opcode` is its type.
  if ((opcode == 0) != (session->opcode != 0)) die("the upstream sent a fragment out of order");
  if (opcode != 0 && is_final) {
    keep_message(session, opcode, payload, length);
    return;
  }
  if (opcode != 0) session->opcode = opcode;
  if (length_of(&session->fragments) + length > BODY_LIMIT) die("the upstream sent more than %d bytes", BODY_LIMIT);
  append(&session->fragments, payload, length);
  if (!is_final) return;
  keep_message(session, session->opcode, session->fragments.bytes, length_of(&session->fragments));
  session->opcode = 0;
  release(&session->fragments);
}

static void take_frames(struct session *session) {
  struct buffer *input = &session->input;
  while (length_of(input) >= 2) {
    const uint8_t *frame = (const uint8_t *)input->bytes + input->start;
    size_t length = frame[1] & 0x7F, header = length == 127 ? 10 : length == 126 ? 4 : 2;
    if (frame[1] & 0x80 || frame[0] & 0x70) die("the upstream sent a masked frame or one of an unknown extension");
    if (length_of(input) < header) return;
    if (header > 2) length = 0;
    for (size_t index = 2; index < header; index++) length = length << 8 | frame[index];
    if (length > BODY_LIMIT) die("the upstream sent more than %d bytes", BODY_LIMIT);
    if (length_of(input) < header + length) return;
    take_frame(session, frame[0], (const char *)frame + header, length);
    input->start += header + length;
  }
}

static void read_upstream(struct session *session) {
  ssize_t received = recv(session->fd, reserve(&session->input, 1 << 16), 1 << 16, 0);
  if (received == 0) exit(0);
  if (received < 0) return;
  session->input.end += (size_t)received;
  take_frames(session);
  if (length_of(&session->input) == 0) session->input.start = session->input.end = 0;
}

static void open_upstream(struct session *session, const char *url) {
  const char *port = strrchr(url, ':');
  if (!port || strncmp(url, "ws://127.0.0.1:", 15) != 0) die("'%s' is not ws://127.0.0.1:PORT/", url);
  session->fd = connect_to(atoi(port + 1));
  uint8_t nonce[16], digest[SHA_DIGEST_LENGTH];
  char key[64], accept[64], request[512];
  if (getrandom(nonce, sizeof nonce, 0) != sizeof nonce) die("no random numbers");
  EVP_EncodeBlock((uint8_t *)key, nonce, sizeof nonce);
  int length = sprintf(request,
                       "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                       "Sec-WebSocket-Key: %s\r\nSec-WebSocket-Version: 13\r\n\r\n",
                       key);
  write_all(session->fd, request, (size_t)length);
  strcat(key, "258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
  SHA1((uint8_t *)key, strlen(key), digest);
  EVP_EncodeBlock((uint8_t *)accept, digest, sizeof digest);
  struct buffer *input = &session->input;
  char *end;
  reserve(input, 4096);
  while (!(end = memmem(input->bytes, length_of(input), "\r\n\r\n", 4))) {
    ssize_t received = recv(session->fd, reserve(input, 4096), 4096, 0);
    if (received > 0) input->end += (size_t)received;
    else if (received == 0 || errno != EAGAIN || length_of(input) > HEAD_LIMIT) die("the upstream closed its connection");
  }
  struct response response = {.head = input->bytes, .head_length = (size_t)(end - input->bytes) + 2};
  size_t value_length;
  const char *value = field(&response, "sec-websocket-accept:", &value_length);
  if (strncmp(input->bytes, "HTTP/1.1 101 ", 13) != 0 || !value || !is_equal(value, value_length, accept))
    die("the upstream refused the upgrade");
  input->start = (size_t)(end - input->bytes) + 4;
  take_frames(session);
}

// ----------------------------------------------------------------------------------------------------------- Main loop

static void accept_clients(int listener) {
  int fd;
  while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    struct client *client = calloc(1, sizeof *client);
    if (!client) die("out of memory");
    client->fd = fd;
    client->interest = EPOLLIN;
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = client};
    epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
  }
}

// Responds to held polls whose session has a new message or whose wait is over.
static void respond_to_waiting(bool has_news) {
  int64_t time = waiting.next == &waiting ? 0 : now();
  for (struct client *client = waiting.next, *next; client != &waiting && (has_news || client->deadline <= time); client = next) {
    next = client->next;
    if (client->session->newest == client->cursor && client->deadline > time) continue;
    stop_waiting(client);
    respond_to_poll(client);
  }
}

static void end_turn(void) {
  flush_sessions();
  while (dirty) {
    struct client *client = dirty;
    dirty = client->next_dirty;
    if (!dirty) dirty_end = &dirty;
    client->is_dirty = false;
    if (!client->is_dead) flush_client(client);
  }
  // These requests waited until a response was sent.
  flush_sessions();
  while (dead) {
    struct client *client = dead;
    dead = client->next_dead;
    free(client);
  }
}

static void open_sessions(const char *url) {
  sessions = calloc(session_count, sizeof *sessions);
  if (!sessions) die("out of memory");
  for (size_t index = 0; index < session_count; index++) {
    struct session *session = &sessions[index];
    if (session_count == 1) strcpy(session->name, "default");
    else sprintf(session->name, "s%zu", index);
    session->messages = calloc(RETAINED, sizeof *session->messages);
    if (!session->messages) die("out of memory");
    open_upstream(session, url);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = session};
    epoll_ctl(epoll, EPOLL_CTL_ADD, session->fd, &event);
  }
}

int main(int count, char **arguments) {
  if (count == 5 && strcmp(arguments[1], "-s") == 0 && (session_count = (size_t)atoi(arguments[2])) > 0) {
    count -= 2;
    arguments += 2;
  }
  if (count != 3) die("usage: bridge [-s COUNT] PORT UPSTREAM-URL");
  raise_descriptor_limit();
  uint8_t random[6];
  if (getrandom(random, sizeof random, 0) != sizeof random) die("no random numbers");
  for (int index = 0; index < 6; index++) sprintf(instance + 2 * index, "%02x", random[index]);
  read_clock();
  epoll = epoll_create1(EPOLL_CLOEXEC);
  open_sessions(arguments[2]);
  int listener = listen_on(atoi(arguments[1]));
  struct epoll_event events[512], event = {.events = EPOLLIN, .data.ptr = NULL};
  epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &event);
  while (true) {
    int64_t left = waiting.next == &waiting ? -1 : waiting.next->deadline - now();
    int ready = wait_for(epoll, events, 512, waiting.next != &waiting && left < 0 ? 0 : left);
    bool has_news = false;
    read_clock();
    for (int index = 0; index < ready; index++) {
      struct client *client = events[index].data.ptr;
      if (!client) {
        accept_clients(listener);
      } else if ((void *)client >= (void *)sessions && (void *)client < (void *)(sessions + session_count)) {
        struct session *session = events[index].data.ptr;
        uint64_t before = session->newest;
        if (events[index].events & EPOLLOUT) flush_session(session);
        if (events[index].events & ~(uint32_t)EPOLLOUT) read_upstream(session);
        has_news |= session->newest != before;
      } else if (!client->is_dead) {
        if (events[index].events & EPOLLOUT) mark_dirty(client);
        else read_client(client);
      }
    }
    respond_to_waiting(has_news);
    end_turn();
  }
}
