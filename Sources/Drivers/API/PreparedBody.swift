import HTTPServer
import Reactor
import Sessions
import Threading
import Upstream

/// The content of a large body, read on another thread.
///
/// The loop reads small bodies itself, with the same functions.
final class PreparedBody<Content: Sendable>: BodyPreparation {
  private let read: @Sendable ([UInt8]) -> Content
  private let content = Locked<Content?>(nil)

  init(_ read: @escaping @Sendable ([UInt8]) -> Content) { self.read = read }

  func prepare(_ bytes: [UInt8]) {
    let content = read(bytes)
    self.content.withLock { $0 = content }
  }

  /// Returns the prepared content. Can be called once. Returns nil if the body was not prepared.
  func take() -> Content? {
    content.withLock { content in
      defer { content = nil }
      return content
    }
  }
}

/// The sizes from which a body is read on another thread.
enum LargeBody {
  /// The size of the content, in bytes. The most expensive content takes 20 ns a byte, which is 5 ms for this size. The
  /// change of threads takes 0.05 ms.
  static var smallest: Int { 256 << 10 }

  /// The size of the body, in bytes, from which its content may have `smallest` bytes.
  static func smallest(isCompressed: Bool) -> Int {
    isCompressed ? smallest / GzipContent.maximumRatio : smallest
  }
}

extension API {
  package func preparation(of exchange: borrowing Exchange) -> (any BodyPreparation)? {
    request(of: exchange).flatMap { preparation(of: $0) }
  }

  private func preparation(of request: PendingRequest) -> (any BodyPreparation)? {
    switch request {
    case .send(let message, let session):
      let format = session.upstream.eventFormat
      guard message.isExamined || format != nil else { return nil }
      return PreparedBody { message.prepared($0, format) }
    case .call(let call, let session):
      let format = session.upstream.eventFormat
      let random = randomBits()
      return PreparedBody { bytes in Result { () throws(Problem) in try call.content(bytes, format, random) } }
    case .movable(let request, _), .fromPeer(let request, _, _): return preparation(of: request)
    case .poll, .delivery, .change, .putSession, .closeSession, .listSessions, .consumer, .read, .forward, .misdirected,
      .preflight, .refused, .missing:
      // These requests have no content, or only a small document, or content that is passed on unchanged.
      return nil
    }
  }

  func randomBits() -> UInt128 { UInt128(entropy.next()) << 64 | UInt128(entropy.next()) }
}
