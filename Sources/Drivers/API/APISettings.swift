import Access
import ByteStreams

/// The settings of the API, except the authentication of clients (`AuthenticationSettings`).
package struct APISettings: Equatable, Sendable {
  /// The names that requests may have in `Host`, besides `localhost` and loopback addresses.
  package var hosts: [String] = []
  package var origins: [String] = []
  package var inflationRatio = 100
  package var batchMessages = 1024
  package var idempotencyKeys = 1 << 20
  package var limits = Limits()
  package var delivery = Delivery()
  /// Whether the status page shows the payloads of messages.
  package var showsPayloads = false

  package init() {}

  /// Limits of each client.
  package struct Limits: Equatable, Sendable {
    package var principal = RateTable.Limits()
    package var address = RateTable.Limits()

    package init() { address.failures = RateLimit(10, per: .seconds(1), burst: 100) }
  }

  /// Defaults and maximums of the parameters of a poll, and the times of streams.
  package struct Delivery: Equatable, Sendable {
    package var wait = TimeSpan.seconds(25)
    package var maximumWait = TimeSpan.seconds(55)
    package var limit = 100
    package var maximumLimit = 10_000
    package var answerBytes = 1 << 20
    package var maximumAnswerBytes = 64 << 20
    package var streamHeartbeat = TimeSpan.seconds(15)
    package var streamLifetime = TimeSpan.minutes(10)

    package init() {}
  }

  /// Returns the size of the largest response, in bytes: the receipts of the largest batch, or the response to a
  /// receive. A receive returns at least one push, even above its limit, and JSON may need six bytes for one byte.
  ///
  /// - Parameter messageBytes: the size of the largest push.
  package func largestResponse(messageBytes: Int) -> Int {
    let receive = max(delivery.maximumAnswerBytes, 6 * messageBytes) + delivery.maximumLimit * Self.leaseBytes
    return max(batchMessages * Self.receiptBytes, receive) + Self.documentBytes
  }

  /// The size of a receipt, which has an id with three numbers, the name of a session, a reason and a time.
  private static var receiptBytes: Int { 384 }
  /// The size of the lease, which a receive adds to each push.
  private static var leaseBytes: Int { 256 }
  /// The size of the parts that a response has only once: a cursor, and the details of problems.
  private static var documentBytes: Int { 64 << 10 }
}
