import ByteStreams

/// The head of a response that refused an upgrade or a tunnel. It is used to decide about a retry, and in error
/// messages.
package struct HTTPRefusal: Sendable {
  package let status: Int
  package let reason: String
  package let fields: [(name: String, value: String)]

  /// Copies the head out of `decoder`, which must be complete.
  package init(_ decoder: borrowing HTTPResponseHeadDecoder) {
    precondition(decoder.isComplete, "the head is not complete")
    var fields: [(name: String, value: String)] = []
    for index in 0..<decoder.fields.count {
      fields.append((decoder.fields.name(at: index).text(), decoder.fields.value(at: index).text()))
    }
    status = Int(decoder.status.rawValue)
    reason = decoder.reason.text()
    self.fields = fields
  }

  /// The value of the first field `name`, which must be in lower case; nil if there is no such field.
  package func field(_ name: String) -> String? { fields.first { $0.name.lowercased() == name }?.value }

  /// `403 Forbidden`, or the status code alone if there is no reason phrase.
  package var statusText: ReportText { reason.isEmpty ? "\(status)" : "\(status) \(quoted: reason)" }
}
