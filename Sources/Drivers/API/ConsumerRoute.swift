import ByteStreams
import Consumers
import HTTPCodec
import Sessions

/// A request for the consumers of a session.
struct ConsumerTarget {
  enum Action {
    case list, put, show, remove, receive, settle, deadLetters, removeDeadLetters, retryDeadLetters
  }

  let session: Session
  /// The name of the consumer; empty for the list.
  let name: String
  let action: Action
  /// The time that a proxy on the path allows for the request.
  var longestWait = TimeSpan(nanoseconds: .max)
  /// How long the request may wait until its change is stored.
  var storeWait = API.storeWait

  /// Whether the method is GET or HEAD.
  var isReading: Bool { action == .list || action == .show || action == .deadLetters }
  /// Whether the request has a document that is read.
  var readsBody: Bool { action == .put || action == .settle }
}

extension Router {
  /// Returns the route of a path below `consumers`, which is empty or begins with a slash.
  func consumers(
    _ path: Span<UInt8>, of session: Session, _ request: borrowing HTTPRequestHead
  ) throws(Problem) -> Route {
    func target(_ action: ConsumerTarget.Action, _ name: String) -> Route {
      .consumer(ConsumerTarget(session: session, name: name, action: action))
    }
    if path.isEmpty {
      switch request.method {
      case .get, .head: return target(.list, "")
      default: return try reject(request, allowing: "GET, HEAD, OPTIONS")
      }
    }
    let rest = path.extracting(1..<path.count)
    let end = rest.firstIndex(of: UInt8(ascii: "/")) ?? rest.count
    let name = try Self.consumerName(rest.extracting(first: end))
    let part = rest.extracting(end..<rest.count)
    if part.isEmpty {
      switch request.method {
      case .get, .head: return target(.show, name)
      case .put: return target(.put, name)
      case .delete: return target(.remove, name)
      default: return try reject(request, allowing: "GET, HEAD, PUT, DELETE, OPTIONS")
      }
    }
    if part.equals("/dead") {
      switch request.method {
      case .get, .head: return target(.deadLetters, name)
      case .delete: return target(.removeDeadLetters, name)
      default: return try reject(request, allowing: "GET, HEAD, DELETE, OPTIONS")
      }
    }
    let action: ConsumerTarget.Action
    if part.equals("/receive") {
      action = .receive
    } else if part.equals("/settle") {
      action = .settle
    } else if part.equals("/dead/retry") {
      action = .retryDeadLetters
    } else {
      throw Self.noSuchPath
    }
    guard request.method == .post else { return try reject(request, allowing: "POST, OPTIONS") }
    return target(action, name)
  }

  private static func consumerName(_ name: Span<UInt8>) throws(Problem) -> String {
    guard ConsumerName.isValid(name) else {
      throw Problem(
        .notFound, "'\(name.excerpt())' is not the name of a consumer: use \(ConsumerName.expectation)")
    }
    return name.text()
  }
}
