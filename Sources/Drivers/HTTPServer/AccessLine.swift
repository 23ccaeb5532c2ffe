import ByteStreams
import HTTPCodec
import Logging

/// The content of one request's line in the access log.
struct AccessLine {
  /// What a request was doing when its connection ended.
  enum Abort: UInt8 {
    case receiving, held, sending

    var name: StaticString {
      switch self {
      case .receiving: "receiving"
      case .held: "held"
      case .sending: "sending"
      }
    }
  }

  /// The time at which the first byte of the request was read. If that byte was read together with the previous
  /// request, the time at which the head was parsed.
  let began: MonotonicTime
  /// `other` if the request line could not be read.
  var method = HTTPMethod.other
  /// The template of the request's path.
  var route: StaticString = Self.none
  /// The length of the request's id. `AccessRecord` has the bytes.
  var idCount = 0
  /// The trace that the request belongs to.
  var traceID: TraceID?
  /// The principal that the request's credentials prove; nil if the request has no accepted credentials.
  var principal: String?
  /// The client's address; nil if it is the address of the connection.
  var client: [UInt8]?
  /// The status code; zero if no response was sent.
  var status = 0
  /// Size of the response as sent, with its head.
  var bytes = 0
  /// How long the request waited for new data.
  var held = TimeSpan.zero
  /// What the request was doing when its connection ended; nil if the response was sent completely.
  var abort: Abort?

  init(began: MonotonicTime) { self.began = began }

  static let none: StaticString = "-"

  var isError: Bool { status >= 400 || abort != nil }

  /// Appends the fields of the line. Only the id and the principal are texts of the client. The id was checked, and the
  /// principal is escaped.
  ///
  /// - Parameters:
  ///   - ids: begins with the id of this request.
  ///   - client: the address.
  func write(
    ids: borrowing ByteQueue, client: [UInt8], at now: MonotonicTime, _ format: LogFieldFormat,
    to line: inout ByteQueue
  ) {
    if idCount == 0 {
      format.append("request_id", Self.none, to: &line)
    } else {
      format.append("request_id", ids.bytes.extracting(first: idCount), to: &line)
    }
    if let principal {
      format.append("principal", principal.utf8Span.span, to: &line)
    } else {
      format.append("principal", Self.none, to: &line)
    }
    format.append("client", client.span, to: &line)
    format.append("method", method == .other ? Self.none : method.name, to: &line)
    format.append("route", route, to: &line)
    format.append("status", number: status, to: &line)
    format.append("bytes", number: bytes, to: &line)
    format.append("seconds", seconds: now - began, to: &line)
    format.append("held_seconds", seconds: held, to: &line)
    if let traceID { format.append("trace_id", hexadecimal: traceID.value, to: &line) }
    if let abort { format.append("aborted", abort.name, to: &line) }
  }
}
