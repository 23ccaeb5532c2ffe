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
  /// The size of the content, in bytes. The most expensive content takes 20 ns a byte, which is 5 ms for this size.
  /// Passing the body to another thread takes 0.05 ms.
  static var smallest: Int { 256 << 10 }

  /// The size of the body, in bytes, from which its content may have `smallest` bytes.
  static func smallest(isCompressed: Bool) -> Int {
    isCompressed ? smallest / GzipContent.maximumRatio : smallest
  }
}

extension API {
  package func preparation(of exchange: borrowing Exchange) -> (any BodyPreparation)? {
    guard let pending = requests[exchange.state], pending.isExecutedHere else { return nil }
    return table.endpoints[pending.request.target.route].prepare(pending.input, pending.request, self)
  }

  func randomBits() -> UInt128 { UInt128(entropy.next()) << 64 | UInt128(entropy.next()) }
}
