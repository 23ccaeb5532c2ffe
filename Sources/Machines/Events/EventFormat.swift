import ByteStreams

/// An event or an acknowledgement as clients and the configuration write it.
package enum EventEnvelope: Equatable, Sendable {
  /// The parts of an event.
  case event(EventParts)
  /// The arguments and attachments of the acknowledgement with this token.
  case acknowledgement(token: [UInt8], EventParts)
}

/// Describes the fault of an event or an envelope, and the accepted form.
package struct EventFormatError: Error, Hashable, Sendable, CustomStringConvertible {
  package let description: String
  package init(_ description: String) { self.description = description }
}

/// How clients write the events of a protocol, and which events a session accepts. The settings of an application
/// protocol conform to `EventFormat`.
package protocol EventFormat: Sendable {
  /// The section of these settings, with the prefix `upstream.`.
  var section: String { get }
  /// The names of the namespaces that a connection joins.
  var namespaceNames: [String] { get }
  /// Maximum number of attachments of an event.
  var attachments: Int { get }
  /// Whether clients acknowledge events, and the value of the setting that decides this.
  var takesAcknowledgements: Bool { get }
  var acknowledgementsWord: String { get }

  /// Throws if an event cannot have this name.
  func check(name: [UInt8]) throws(EventFormatError)
  func envelope(_ text: Span<UInt8>) throws(EventFormatError) -> EventEnvelope
  /// The size of the largest WebSocket message that the event becomes, in bytes.
  func largestFrame(of event: EventParts) -> Int
}

extension EventFormat {
  package func joins(_ namespace: [UInt8]) -> Bool { namespaceNames.contains { Array($0.utf8) == namespace } }
}
