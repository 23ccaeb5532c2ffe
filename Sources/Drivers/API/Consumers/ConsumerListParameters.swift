import ByteStreams
import HTTPCodec

/// The parameters of a `GET /v1/consumers`.
struct ConsumerListParameters {
  /// Maximum number of consumers in a response. The document of a consumer has up to 25 KB, most of which are topics.
  static let maximumLimit = 100

  private(set) var after = ""
  private(set) var limit = maximumLimit

  init(_ request: borrowing HTTPRequestHead) throws(Problem) {
    try QueryParameter.forEach(of: request, accepting: ListConsumers.parameters) { parameter, value throws(Problem) in
      switch parameter {
      case .after: after = value.text()
      case .limit:
        guard let count = value.decimalValue(), count > 0 else {
          throw Problem(
            .invalidParameter, "limit '\(value.excerpt())' is not valid: use a number of consumers, 1 or more")
        }
        limit = min(count, Self.maximumLimit)
      default: preconditionFailure("not accepted")
      }
    }
  }
}
