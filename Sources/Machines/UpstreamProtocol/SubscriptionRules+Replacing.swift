import ByteStreams
import JSONCodec

extension SubscriptionRules {
  /// Returns the message of a subscription as it is sent on the next connection. Values that are not in the message are
  /// not replaced.
  ///
  /// - Parameter values: the captured values of the connection.
  package func replacing(
    _ payload: ByteString, kind: MessageKind, with values: [String: CapturedValue]
  ) throws(TemplateError) -> ByteString {
    guard !replacements.isEmpty, kind.isText, JSONValidator.isValid(payload.bytes) else { return payload }
    var found: [(range: Range<Int>, value: CapturedValue)] = []
    for replacement in replacements {
      guard let range = replacement.place.find(in: payload.bytes) else { continue }
      guard let value = values[replacement.capture] else { throw .noCapture(replacement.capture) }
      found.append((range, value))
    }
    var result = ByteQueue()
    var end = 0
    for (range, value) in found.sorted(by: { $0.range.lowerBound < $1.range.lowerBound }) {
      // One place may be inside of another place.
      guard range.lowerBound >= end else { continue }
      result.append(payload.bytes.extracting(end..<range.lowerBound))
      try CapturePlace.value.write(value, of: "", into: &result)
      end = range.upperBound
    }
    result.append(payload.bytes.extracting(end..<payload.count))
    return ByteString(result.copyBytes())
  }
}
