import ByteStreams
import Signatures

/// A secret that the gateway and the receiver of a webhook know, in the notation of Standard Webhooks: `whsec_` and
/// base64.
package struct WebhookSecret: Equatable, Sendable {
  /// Standard Webhooks: between 24 and 64 bytes.
  package static let sizes = 24...64
  package static let expectation = "whsec_ and the base64 of \(sizes.lowerBound) to \(sizes.upperBound) random bytes"

  private let key: HMACKey

  package init?(_ text: String) {
    let prefix = "whsec_"
    guard text.hasPrefix(prefix), let bytes = Base64.decode(Array(text.utf8.dropFirst(prefix.utf8.count)).span),
      Self.sizes.contains(bytes.count), let key = HMACKey(bytes, minimum: Self.sizes.lowerBound)
    else { return nil }
    self.key = key
  }

  /// The signature of this content: `v1,` and base64.
  package func signature(of content: borrowing WebhookContent) -> String {
    "v1," + Base64.encode(key.signature(of: content.bytes).span)
  }
}

/// The signed content of one attempt: `id.timestamp.body`.
package struct WebhookContent: ~Copyable {
  private var text = ByteQueue()

  /// - Parameters:
  ///   - id: the value of `webhook-id`.
  ///   - timestamp: the value of `webhook-timestamp`, in seconds since 1970.
  ///   - body: the body of the request.
  package init(id: String, timestamp: Int64, body: Span<UInt8>) {
    text.append(id)
    text.append(UInt8(ascii: "."))
    text.append(decimal: Int(timestamp))
    text.append(UInt8(ascii: "."))
    text.append(body)
  }

  var bytes: Span<UInt8> {
    @_lifetime(borrow self)
    get { text.bytes }
  }
}
