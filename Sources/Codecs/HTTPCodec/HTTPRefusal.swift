import ByteStreams

/// The head of an answer that did not give what was asked for (an upgrade, a tunnel): for the rules of trying again, and
/// for the report to a person.
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

  /// The first field of this name, which must be lower case.
  package func field(_ name: String) -> String? { fields.first { $0.name.lowercased() == name }?.value }

  /// `403 Forbidden`, or the number alone.
  package var statusText: String { reason.isEmpty ? "\(status)" : "\(status) \(reason)" }
}
