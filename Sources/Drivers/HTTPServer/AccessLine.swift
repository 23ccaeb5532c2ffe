import ByteStreams
import HTTPCodec
import Logging

/// What the access log says about one request.
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

  /// When its first byte was read, or its head if it was read together with the request before it.
  let began: MonotonicTime
  /// `other` if the request line could not be read.
  var method = HTTPMethod.other
  /// The template of its path.
  var route: StaticString = Self.none
  /// The length of its id. `AccessRecord` has the bytes.
  var idCount = 0
  /// The trace that it belongs to.
  var traceID: TraceID?
  /// Whom its credentials name; nil if it has none or is not accepted.
  var principal: String?
  /// The client; nil if it is that of the connection.
  var client: [UInt8]?
  /// Zero if there is no response.
  var status = 0
  /// Size of its response as sent, with the head.
  var bytes = 0
  /// How long it waited for new data.
  var held = TimeSpan.zero
  /// Nil if the response was sent completely.
  var abort: Abort?

  init(began: MonotonicTime) { self.began = began }

  static let none: StaticString = "-"

  var isError: Bool { status >= 400 || abort != nil }

  /// Appends the fields of the line. Nothing in them is from the client, except the id, which was checked,
  /// and the principal, which is escaped.
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
